"""plan(): the request with everything decided, each value with its origin. Pure: no clock, no environment, no subprocess.

What a GPU or a site cannot do is caught here, before anything is queued.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.plan import tasks
from hpc_llm.plan.deepspeed_config import COMPUTED, check_keys
from hpc_llm.plan.draft import FALLBACKS, Draft, Said, Site, one_line, positive
from hpc_llm.plan.engine_choice import check_engine, choose_engine, fallback_of
from hpc_llm.plan.experiment import Experiment, Plan, PlanWithOrigins
from hpc_llm.plan.gpu import actual_gpu, check_capabilities, choose_precision
from hpc_llm.plan.method import Lora, Method, Optimizer, Quantization, spelled
from hpc_llm.plan.optimizers import OF_DEEPSPEED
from hpc_llm.plan.recipe import check_length, check_tokenizer, choose_ramp, choose_weights, frozen_by, learning_rate
from hpc_llm.plan.settings import apply_settings, split_pair
from hpc_llm.plan.slurm_request import (
    ask_account,
    ask_cores_and_memory,
    ask_options,
    ask_partition,
    ask_resources,
    ask_time,
)
from hpc_llm.plan.synthetic import LOSS_FLOOR_NATS
from hpc_llm.records import metrics
from hpc_llm.records.run import file_name_part, is_record
from hpc_llm.site.cluster import Cluster, Gpu, Partition, allowed_keys
from hpc_llm.site.profiles import explain_validation
from hpc_llm.site.reach import refuse_way_out

__all__ = ["Site", "complete_deepspeed", "plan", "renamed"]


def plan(
    experiment: Experiment, cluster: Cluster, method: Method, site: Site, sources: Mapping[str, str] | None = None
) -> PlanWithOrigins:
    """Decide everything about one run.

    `sources` says where each field of the experiment came from (`--steps`, `FILE.yaml`); a field that is not in it was
    set by the caller. Raises PlanError or RequestError when the site, its GPU or the method cannot do it.
    """
    draft = Draft()
    said = Said(experiment, sources or {})
    partition = ask_partition(said, cluster, site, draft)
    cluster = cluster.on(partition)
    gpu = actual_gpu(cluster.gpu_of(partition), site.hardware)
    ask_resources(said, cluster, partition, gpu, site, draft)
    _batch(said, cluster, draft)
    _method(method, gpu, draft)
    _bookkeeping(said, cluster, partition, site, draft)
    _settings(said, draft)
    return _finish(draft, cluster, partition, gpu, site)


def _batch(said: Said, cluster: Cluster, draft: Draft) -> None:
    for name in (
        "model",
        "micro_batch_size",
        "gradient_accumulation_steps",
        "sequence_length",
        "steps",
        "warmup_steps",
    ):
        suggested = getattr(cluster.defaults, name, None)
        fallback = FALLBACKS[name]
        if name == "warmup_steps":
            fallback = min(fallback, max(draft.values["steps"] - metrics.MIN_MEASURED_STEPS, 0))
        value = draft.first(name, said(name), (suggested, f"cluster {cluster.name}: defaults"), (fallback, "default"))
        if name not in ("model", "warmup_steps"):
            positive(name, value)
    draft.first("seed", said("seed"), (FALLBACKS["seed"], "default"))


def _method(method: Method, gpu: Gpu, draft: Draft) -> None:
    origin = f"method {method.name}"
    draft.put("method", method.name, "request")
    draft.put("letters", method.letters, origin)
    precision, why = choose_precision(method, gpu)
    draft.put("precision", precision, why or origin)
    draft.put("attention", method.attention, origin)
    draft.put("recompute", method.recompute, origin)
    draft.put("quantization", method.quantization and method.quantization.model_dump(), origin)
    draft.put("peft", method.peft and method.peft.model_dump(), origin)
    draft.put("optimizer", method.optimizer.model_dump(), origin)
    draft.put("lr_ramp_steps", method.lr_ramp_steps, origin)
    draft.put("weights", None, "not set")
    draft.put("engine", method.engine, origin)
    draft.put("deepspeed", copy.deepcopy(method.deepspeed), origin)


def _bookkeeping(said: Said, cluster: Cluster, partition: Partition | None, site: Site, draft: Draft) -> None:
    experiment = said.experiment
    draft.put("task", tasks.find(experiment.task).name, said("task")[1])
    draft.put("cluster", cluster.name, "request")
    draft.put("data", list(experiment.data), said("data")[1] if experiment.data else "default: synthetic tokens")
    floor = None if experiment.data else LOSS_FLOOR_NATS
    draft.put(
        "loss_floor_nats", floor, "not known" if experiment.data else "computed: the entropy of the synthetic tokens"
    )
    ask_account(said, cluster, site, draft)
    ask_time(said, cluster, partition, draft)
    default_name = f"{draft.values['model'].rstrip('/').rsplit('/', 1)[-1]}-{draft.values['method']}"
    name = draft.first("job_name", said("name"), (file_name_part(default_name), "computed: model and method"))
    one_line("job name", name)
    ask_options(said, cluster, site, draft)
    draft.put("env", {}, "not set")
    draft.first("env_file", said("env_file"), (cluster.env.file, f"cluster {cluster.name}: env.file"))


COMPUTED_BLOCKS = {
    "optimizer": "Set optimizer.lr and its like.",
    "fp16.enabled": "Set precision.",
    "bf16.enabled": "Set precision.",
    "bfloat16": "Set precision.",
    **dict.fromkeys(COMPUTED, "Set micro_batch_size, gradient_accumulation_steps, or use --nodes and --gpus-per-node."),
}
"""Places in the DeepSpeed config that follow from the plan."""


def _settings(said: Said, draft: Draft) -> None:
    settings, source = said("set")
    origin = source if source.startswith("--") else f"{source}: set"
    for name in apply_settings(draft.values, settings):
        draft.origins[name] = origin
    tasks.check_settings(tasks.find(draft.values["task"]), settings)
    for item in settings:
        place = split_pair(item, "--set")[0].removeprefix("deepspeed.")
        for computed, advice in COMPUTED_BLOCKS.items():
            if item.startswith("deepspeed.") and (place == computed or place.startswith(f"{computed}.")):
                raise RequestError(f"deepspeed.{place} is computed. {advice}")
        other = {"fp16": "fp16", "bf16": "bf16"}.get(place.split(".")[0])
        if item.startswith("deepspeed.") and other and draft.values["precision"] != other:
            raise PlanError(f"deepspeed.{place} has no effect: the precision is {draft.values['precision']}.")
    where = "--set deepspeed" if settings else "deepspeed"
    check_keys(draft.values["deepspeed"], where)
    refuse_way_out(draft.values["deepspeed"], where, is_record)
    for key in (*COMPUTED, "optimizer"):
        if key in draft.values["deepspeed"]:
            raise RequestError(f"deepspeed.{key} is computed. {COMPUTED_BLOCKS[key]}")
    _checked_parts(draft.values)
    _engine(draft, settings)
    for name in ("tasks_per_node", "micro_batch_size", "gradient_accumulation_steps", "sequence_length", "steps"):
        positive(name, draft.values[name])
    if not 0 <= draft.values["seed"] < 2**32:
        raise RequestError(f"seed is {draft.values['seed']}, it must be between 0 and {2**32 - 1}.")


def _engine(draft: Draft, settings: Sequence[str]) -> None:
    values = draft.values
    name, why = choose_engine(values["engine"], settings, values)
    if why is not None:
        draft.put("engine", name, f"computed: {why}")
        draft.notices.append(why)
    check_engine(name, values)
    draft.put("engine_fallback", fallback_of(name), "computed: what trains the same with other software")


def _checked_parts(values: dict[str, Any]) -> None:
    """Hold the parts that --set can change to what a method file may say there."""
    models: dict[str, type[Quantization] | type[Lora] | type[Optimizer]]
    models = {"quantization": Quantization, "peft": Lora, "optimizer": Optimizer}
    for name, model in models.items():
        if values[name] is None:
            continue
        try:
            values[name] = model.model_validate(values[name]).model_dump()
        except ValidationError as error:
            raise explain_validation(error, f"--set {name}", allowed_keys(model)) from None


def _finish(draft: Draft, cluster: Cluster, partition: Partition | None, gpu: Gpu, site: Site) -> PlanWithOrigins:
    values = draft.values
    _learning(draft)
    check_capabilities(values, gpu, cluster)
    if " becomes " in draft.origins["precision"]:
        draft.notices.append(draft.origins["precision"])
    letters = spelled(values)
    if letters != values["letters"]:
        draft.put("letters", letters, "computed: what the method does after --set")
    if values["launcher"] not in cluster.launch.allowed:
        raise PlanError(
            unknown_name("launcher", values["launcher"], cluster.launch.allowed, where=f"cluster {cluster.name}")
        )
    measured = values["steps"] - values["warmup_steps"]
    if values["warmup_steps"] < 0 or measured < metrics.MIN_MEASURED_STEPS:
        raise RequestError(
            f"warmup_steps is {values['warmup_steps']} of {values['steps']} steps: at least "
            f"{metrics.MIN_MEASURED_STEPS} steps must be measured, or the run is invalid. Choose more --steps."
        )
    world = values["nodes"] * values["tasks_per_node"]
    draft.put("world_size", world, "computed: nodes x tasks_per_node")
    if world == 1 and values["launcher"] == "torchrun":
        draft.put("launcher", "python", "computed: one rank needs no launcher")
    if world > 1 and values["launcher"] == "python":
        others = ", ".join(name for name in cluster.launch.allowed if name != "python") or "none here"
        raise PlanError(f"launcher python starts one rank, the plan has {world}. Launchers for several: {others}.")
    if values["launcher"] == "srun" and values["scheduler"] != "slurm":
        raise PlanError(
            f"launcher srun needs Slurm, cluster {cluster.name} runs on this machine. Use another launcher."
        )
    if 0 < values["gpus_per_node"] < values["tasks_per_node"]:
        raise PlanError(
            f"tasks_per_node is {values['tasks_per_node']} with {values['gpus_per_node']} GPUs per node: "
            "each rank needs a GPU of its own."
        )
    groups = draft.put("data_parallel", world, "computed: each rank trains on samples of its own")
    batch = values["micro_batch_size"] * values["gradient_accumulation_steps"] * groups
    draft.put("global_batch_size", batch, "computed: micro_batch_size x gradient_accumulation_steps x data_parallel")
    ask_cores_and_memory(draft, cluster, partition, site)
    on_gpu = bool(values["gpus_per_node"])
    draft.put("expected_gpu", gpu.model if on_gpu else None, f"cluster {cluster.name}: gpu.model")
    _peak(draft, cluster, gpu.peak_tflops.get(values["precision"]) if on_gpu else None)
    values["deepspeed"] = complete_deepspeed(values)
    if values["quantization"]:
        values["quantization"] = {**values["quantization"], "compute_dtype": values["precision"]}
    return PlanWithOrigins(plan=Plan(**values), origins=draft.origins, notices=tuple(draft.notices))


def _learning(draft: Draft) -> None:
    """Decide what training starts from and how fast it learns, where nobody has said."""
    values = draft.values
    model, optimizer = values["model"], values["optimizer"]
    weights, why, found = choose_weights(model, values["weights"])
    draft.put("weights", weights, why if values["weights"] is None else draft.origins["weights"])
    check_length(model, found, values["sequence_length"])
    check_tokenizer(found, weights, values["data"])
    if optimizer["lr"] is None:
        rate, why = learning_rate(
            model, found, frozen_by(lora=values["peft"] is not None, quantized=values["quantization"] is not None)
        )
        values["optimizer"] = {**optimizer, "lr": rate}
        draft.origins["optimizer"] += f", lr: {why}"
    steps, origin = choose_ramp(values["lr_ramp_steps"], values["steps"], own="scheduler" in values["deepspeed"])
    draft.put("lr_ramp_steps", steps, origin or draft.origins["lr_ramp_steps"])


def _peak(draft: Draft, cluster: Cluster, tflops: float | None) -> None:
    """The profile's peak, unless --set gave one."""
    given = draft.values.get("peak_flops")
    if given is None:
        draft.put("peak_flops", tflops and tflops * 1e12, f"cluster {cluster.name}: gpu.peak_tflops")
    elif isinstance(given, bool) or not isinstance(given, (int, float)) or given <= 0:
        raise RequestError(f"--set peak_flops={given!r}: FLOP/s of one GPU are needed, e.g. 312e12.")


def complete_deepspeed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The DeepSpeed config with batch sizes, precision blocks and optimizer filled in from the plan's values."""
    config = {k: v for k, v in values["deepspeed"].items() if k not in ("fp16", "bf16", "bfloat16")}
    config["train_micro_batch_size_per_gpu"] = values["micro_batch_size"]
    config["gradient_accumulation_steps"] = values["gradient_accumulation_steps"]
    config["train_batch_size"] = values["global_batch_size"]
    if values["precision"] in ("fp16", "bf16"):
        block = values["deepspeed"].get(values["precision"]) or {}
        config[values["precision"]] = {**block, "enabled": True}
    optimizer = values["optimizer"]
    if optimizer["type"] in OF_DEEPSPEED:
        parameters = {k: v for k, v in optimizer.items() if k != "type"}
        config["optimizer"] = {"type": optimizer["type"], "params": parameters}
    return config


def renamed(planned: PlanWithOrigins, job_name: str) -> PlanWithOrigins:
    """The same plan under another job name, as for a job array."""
    return replace(planned, plan=replace(planned.plan, job_name=job_name))
