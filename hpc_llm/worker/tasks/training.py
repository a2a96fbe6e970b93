"""Training on this rank, from the plan to the result, whatever the task is called: puts the parts together."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import architecture, is_checkpoint
from hpc_llm.planning.synthetic import DESCRIPTION
from hpc_llm.records.run import Outcome
from hpc_llm.worker import device as devices
from hpc_llm.worker import engines
from hpc_llm.worker.data import batches, epoch_sequences, evaluation_batches
from hpc_llm.worker.data.apart import check_documents_apart
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.data.fitting import fitting
from hpc_llm.worker.data.share import share_of
from hpc_llm.worker.engines.held import Bytes
from hpc_llm.worker.importing import importing
from hpc_llm.worker.keeping import Keeping
from hpc_llm.worker.loop import Between, StepLog, print_summary, run_steps
from hpc_llm.worker.measure import network, telemetry
from hpc_llm.worker.measure.meter import Meter
from hpc_llm.worker.measure.window import largest_over_ranks
from hpc_llm.worker.model.flops import model_flops_per_token
from hpc_llm.worker.model.prepare import count_parameters, parameter_types
from hpc_llm.worker.profiling.window import profile_steps
from hpc_llm.worker.ranks import apply, device_index
from hpc_llm.worker.result import Record, build_result
from hpc_llm.worker.tasks import rouge
from hpc_llm.worker.tasks.evaluation import Evaluation


def train(record: Record) -> None:
    """Train as the plan of `record` says and, on rank 0, write result.json. Errors are the caller's to report."""
    device = _prepare_device(record)
    engine = _build_engine(record, device)
    kept = Keeping(record, engine)
    tokens = _measure(record, engine, device, kept)
    kept.finish()
    if record.ranks.rank == 0:
        result = build_result(record, Outcome.COMPLETED, None)
        record.write(record.paths.result, result)
        print_summary(result)
    profile_steps(record, engine, tokens)
    engine.close()


def _prepare_device(record: Record) -> torch.device:
    """Choose the device and tell every library about it through the environment."""
    record.versions = devices.versions()
    gpus = devices.visible_gpus(record.plan.parallel.gpus_per_node)
    index = device_index(record.ranks, gpus) if gpus else 0
    device = devices.choose_device(index, gpus)
    record.hardware = devices.hardware(device)
    apply(record.ranks, os.environ, gpus)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nodes often have no way out, and nothing is to be downloaded
    return device


def _build_engine(record: Record, device: torch.device) -> engines.Engine:
    plan = record.plan
    kind, sentences = engines.choose(plan)
    record.engine = kind.name
    record.adaptations += [*sentences, *devices.emulated_bf16(plan.model.precision, device)]
    network.listen(plan, record.ranks, record.paths.nccl, os.environ)
    # DeepSpeed imports much of the same as it joins.
    with importing([] if kind.name == "deepspeed" else needed_soon(plan, device)):
        kind.join(device)
    torch.manual_seed(plan.workload.seed)
    built = kind.build(plan, device)
    record.adaptations += built.sentences
    record.fused = list(built.engine.fused)
    model = built.engine.module
    record.adaptations += other_attention(model, plan)
    record.num_parameters, record.trainable_parameters = count_parameters(model)
    record.parameter_types = parameter_types(model)
    record.flops_per_token = model_flops_per_token(model, plan.batch.sequence_length)
    torch.manual_seed(plan.workload.seed + share_of(plan, record.ranks).index)  # dropout differs between samples
    return built.engine


def needed_soon(plan: Plan, device: torch.device) -> list[str]:
    """Modules that building the plan's model and compiling parts of it import: what takes longest of it."""
    names = ["transformers.models.auto.modeling_auto", "transformers.modeling_utils"]
    if not is_checkpoint(plan.model.name):
        family = architecture(plan.model.name).model_type
        names.append(f"transformers.models.{family}.modeling_{family}")
    engine = plan.engine
    if device.type == "cuda" and (engine.fused_layers or engine.compiled_layers or engine.fused_optimizer):
        names += ["torch._dynamo", "torch._inductor.compile_fx"]
    return names


def other_attention(model: torch.nn.Module, plan: Plan) -> list[str]:
    """A sentence where transformers has not the plan's attention for the model."""
    found = getattr(model.config, "_attn_implementation", None)
    if found in (None, plan.model.attention):
        return []
    return [f"Attention is {found} in place of {plan.model.attention}, which this transformers lacks for the model."]


def _measure(record: Record, engine: engines.Engine, device: torch.device, kept: Keeping) -> Iterator[Batch]:
    """Take all steps; the batches go on behind the last one."""
    plan, ranks = record.plan, record.ranks
    check_documents_apart(engine, plan, device)
    tokens = fitting(batches(plan, engine.module.config.vocab_size, ranks, device, used=kept.used), engine.module)
    record.epoch_sequences = epoch_sequences(plan, engine.module.config.vocab_size)
    if ranks.rank == 0:
        print(f"{record.program}: {starting_point(plan)}", flush=True)
    done = kept.start.step
    record.meter = Meter(
        device, plan.workload.steps, plan.workload.warmup_steps, ranks.world_size, done, plan.parallel.tensor
    )
    kept.listen(record.meter)
    log = StepLog(record.paths.steps, plan) if ranks.rank == 0 else None
    gpus = telemetry.find_gpus(device, ranks)
    with telemetry.recording(record, gpus):
        between: list[Between] = [_evaluation(record, engine, device), kept]
        run_steps(engine, tokens, record.meter, plan, log, done=done, between=between)
    record.network = network.chosen(record.paths.nccl)
    record.held = everywhere_at_most(engine.held(), device, ranks.world_size)
    record.peaks = record.meter.window.peaks(ranks.world_size)
    record.adaptations += engine.sentences()
    record.gpu_means = telemetry.means(record, gpus, device)
    return tokens


def _evaluation(record: Record, engine: engines.Engine, device: torch.device) -> Evaluation:
    plan, ranks = record.plan, record.ranks
    log = record.paths.evaluations if ranks.rank == 0 else None

    def held_out() -> Iterator[Batch | None]:
        return fitting(evaluation_batches(plan, engine.module.config.vocab_size, ranks, device), engine.module)

    return Evaluation(engine, plan, held_out, record.evaluations, log, _rouge(record, engine))


def _rouge(record: Record, engine: engines.Engine) -> rouge.Rouge | None:
    """What scores the texts of a model that writes them; where nobody can, that is said."""
    writes = getattr(engine.module.config, "is_encoder_decoder", False)
    if not writes or record.plan.training.eval_every is None or record.plan.training.corpus is None:
        return None
    lack = rouge.missing(record.plan)
    if lack is not None:
        record.adaptations.append(f"ROUGE is left empty: {lack}.")
        return None
    return rouge.Rouge(engine, record.plan)


def everywhere_at_most(held: dict[str, Bytes], device: torch.device, world_size: int) -> dict[str, dict[str, int]]:
    """What an engine holds, the most of any rank. Collective."""
    flat = {f"{what}.{place}": size for what, sizes in held.items() for place, size in sizes.items()}
    most = largest_over_ranks(dict(flat), device, world_size)
    return {what: {place: most[f"{what}.{place}"] or 0 for place in sizes} for what, sizes in held.items()}


def starting_point(plan: Plan) -> str:
    """Which weights are trained on which data, in words."""
    weights = (
        f"random weights in the shape of {plan.model.name}"
        if plan.model.weights == "random"
        else f"weights of {plan.model.name}"
    )
    return f"{weights}, on {', '.join(plan.training.data) if plan.training.data else DESCRIPTION}"
