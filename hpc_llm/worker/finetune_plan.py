"""The plan that the flags of the LZU project's programs of fine-tuning stand for.

What carries out the steps is what planning takes for the same method: plain PyTorch, whose facts say what it records and fuses, or
DeepSpeed where there is a config of it.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.sources import CSV, HUB, JSONL, PARQUET, source_files
from hpc_llm.corpus.words import NONE, SEQ2SEQ, STREAM, TRAIN, TRUNCATE, VALIDATION
from hpc_llm.errors import RequestError
from hpc_llm.planning.checkpoint import has_tokenizer, read_checkpoint
from hpc_llm.planning.deepspeed_config import COMPUTED, check_keys
from hpc_llm.planning.deepspeed_schedules import place_of_rate, with_rate
from hpc_llm.planning.deepspeed_values import check_partitions, check_precision
from hpc_llm.planning.engines import Wanted
from hpc_llm.planning.engines.deepspeed import FACTS as DEEPSPEED
from hpc_llm.planning.engines.plain import FACTS as PLAIN
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.families import check_made_of_text
from hpc_llm.planning.model import ALIASES, architecture, is_checkpoint, layout_of_model
from hpc_llm.planning.optimizers import OF_DEEPSPEED
from hpc_llm.planning.parts import (
    BatchShape,
    EngineSetup,
    ExpectedGpu,
    Lora,
    ModelSetup,
    OptimizerSetup,
    Parallel,
    Precision,
    Quantization,
    Training,
)
from hpc_llm.records.metrics import MIN_MEASURED_STEPS
from hpc_llm.worker.deepspeed_file import fit_batch, optimizer_of, precision_of, read_deepspeed_config, zero_letters
from hpc_llm.worker.started_by_flags import running_job

WARMUP_STEPS = 5
"""As many as runs that are planned leave out of the measurement, where enough steps are left."""
SAVE_EVERY = 500
"""Steps, as those programs do; the two newest checkpoints stay."""
_NO_LINES = 10**9
"""Steps between DeepSpeed's own lines: the steps are printed already."""
_ROWS = (JSONL, CSV, PARQUET, HUB)
"""Kinds of files of which each row is a sample; any other is a text."""
_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj")
_DROPOUT = 0.05
_FUSED = ("fused_dequantization", "fused_lora", "fused_loss", "fused_layers")


@dataclass(frozen=True, kw_only=True)
class Base:
    """The model that is trained, as its config tells it; None is not known."""

    name: str
    weights: str
    """`checkpoint` or `random`."""
    family: str | None
    width: int | None
    vocab_size: int | None


@dataclass(frozen=True, kw_only=True)
class Stepping:
    """What carries out the steps, before it is known on what."""

    is_deepspeed: bool
    config: dict[str, Any]
    """The complete DeepSpeed config, which other engines read too."""
    precision: Precision
    optimizer: OptimizerSetup
    sentences: tuple[str, ...] = ()
    """What runs otherwise than the flags and files say."""


def base_of(name: str, length: int) -> Base:
    """The model of that name. Raises RequestError where there is none, or none that can be trained in sequences of `length` tokens."""
    known = name if is_checkpoint(name) else ALIASES.get(name, name)
    if layout_of_model(known) == SEQ2SEQ:
        raise RequestError(f"the model {name} is an encoder and decoder: these flags are of causal language models.")
    longest: int | None
    if is_checkpoint(name):
        found = read_checkpoint(Path(name))
        check_made_of_text(found.folder, found.config)
        if not found.weights:
            raise RequestError(
                f"the folder {name} holds a config.json and no weights: give the folder of a whole model."
            )
        if not has_tokenizer(found.folder):
            raise RequestError(
                f"the folder {name} holds no tokenizer, so nothing turns text into the tokens that its model knows: put that there "
                "which it was trained with."
            )
        family, longest = found.config.get("model_type"), found.max_position_embeddings
        base = Base(
            name=name,
            weights="checkpoint",
            family=None if family is None else str(family),
            width=found.hidden_size,
            vocab_size=found.size("vocab_size"),
        )
    else:
        shape = architecture(name)
        longest = shape.max_position_embeddings
        base = Base(
            name=name,
            weights="random",
            family=shape.model_type,
            width=shape.hidden_size,
            vocab_size=shape.vocab_size,
        )
    if longest is not None and length > longest:
        raise RequestError(f"--max_length is {length}: the model {name} takes {longest} tokens at most.")
    return base


def plain_stepping(*, adapts: bool, rate: float, micro_batch_size: int, on_gpu: bool) -> Stepping:
    """PyTorch alone: adapters in fp16, on a CPU in fp32; all weights with their moments in bf16."""
    narrow: Precision = "fp16" if on_gpu else "fp32"
    precision: Precision = narrow if adapts else "bf16"
    optimizer = OptimizerSetup(type="AdamW" if adapts else "AdamWBF16", lr=rate)
    config: dict[str, Any] = {"gradient_clipping": 1.0, "steps_per_print": _NO_LINES}
    fit_batch(config, micro_batch_size, 1)
    if precision != "fp32":
        config[precision] = {"enabled": True}
    _put_optimizer(config, optimizer)
    return Stepping(is_deepspeed=False, config=config, precision=precision, optimizer=optimizer)


def deepspeed_stepping(
    path: Path,
    base: Base,
    *,
    rate: float | None,
    usual_rate: float,
    micro_batch_size: int,
    world_size: int,
    on_gpu: bool,
) -> Stepping:
    """DeepSpeed as the file says it. Raises RequestError where it cannot be, or says another learning rate than the flags."""
    config = read_deepspeed_config(path)
    _fill_in(config, base, usual_rate if rate is None else rate)
    check_keys(config, str(path))
    check_partitions(config, world_size, str(path))
    sentences = fit_batch(config, micro_batch_size, world_size)
    precision = precision_of(config)
    check_precision(config, precision, str(path))
    if precision == "fp16" and not on_gpu:
        precision = "fp32"
        del config["fp16"]
        sentences.append("DeepSpeed does not train in fp16 on the CPU: the precision is fp32.")
    config.setdefault("steps_per_print", _NO_LINES)
    if "optimizer" not in config:
        _put_optimizer(config, OptimizerSetup(type="AdamW", lr=usual_rate if rate is None else rate))
    optimizer = _optimizer_of_file(config, path, rate, usual_rate)
    if config.get("scheduler"):
        config["scheduler"] = with_rate(config["scheduler"], optimizer.lr)
    return Stepping(
        is_deepspeed=True, config=config, precision=precision, optimizer=optimizer, sentences=tuple(sentences)
    )


def _fill_in(config: dict[str, Any], base: Base, rate: float) -> None:
    """Put in place of `auto` what the Trainer of those programs does; where it is left nobody knows the value."""
    zero, width = config.get("zero_optimization"), base.width
    if isinstance(zero, dict) and width is not None:
        found = {
            "reduce_bucket_size": width * width,
            "stage3_prefetch_bucket_size": int(0.9 * width * width),
            "stage3_param_persistence_threshold": 10 * width,
        }
        zero.update((key, value) for key, value in found.items() if zero.get(key) == "auto")
    for key in COMPUTED:
        if config.get(key) == "auto":
            del config[key]
    if config.get("gradient_clipping") == "auto":
        config["gradient_clipping"] = 1.0
    for key, is_on in (("fp16", True), ("bf16", False)):
        block = config.get(key)
        if isinstance(block, dict) and block.get("enabled") == "auto":
            block["enabled"] = is_on
    optimizer = config.get("optimizer")
    parameters = optimizer.get("params") if isinstance(optimizer, dict) else None
    if isinstance(parameters, dict):
        for key in [key for key, value in parameters.items() if value == "auto"]:
            del parameters[key]
        parameters.setdefault("lr", rate)


def _optimizer_of_file(config: dict[str, Any], path: Path, rate: float | None, usual_rate: float) -> OptimizerSetup:
    block = config["optimizer"]
    block["params"] = {"lr": usual_rate if rate is None else rate, **(block.get("params") or {})}
    optimizer = optimizer_of(config)
    if rate is not None and optimizer.lr != rate:
        raise RequestError(
            f"--learning_rate is {rate:g}, and {path} says {place_of_rate(config)} is {optimizer.lr!r}: leave one of the two out."
        )
    return optimizer


def _put_optimizer(config: dict[str, Any], optimizer: OptimizerSetup) -> None:
    if optimizer.type in OF_DEEPSPEED:
        parameters = {
            "lr": optimizer.lr,
            "betas": optimizer.betas,
            "eps": optimizer.eps,
            "weight_decay": optimizer.weight_decay,
        }
        config["optimizer"] = {"type": optimizer.type, "params": parameters}


def make_plan(
    arguments: argparse.Namespace,
    base: Base,
    stepping: Stepping,
    source: str,
    facts: CorpusFacts,
    parallel: Parallel,
    launcher: str,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan, and what is otherwise than the flags say. Raises RequestError where the data fill no sequence."""
    batch = BatchShape(
        micro_batch_size=arguments.batch_size,
        gradient_accumulation_steps=stepping.config["gradient_accumulation_steps"],
        global_batch_size=stepping.config["train_batch_size"],
        sequence_length=arguments.max_length,
    )
    workload, sentences = _workload(arguments, source, facts, batch, stepping)
    model = _model(arguments, base, stepping)
    letters = _letters(model, stepping)
    is_bf16 = model.peft is None and not stepping.is_deepspeed
    plan = Plan(
        task="finetune",
        cluster="unknown",
        method="+".join(["bf16", *(["r"] if model.recompute else [])]) if is_bf16 else letters,
        letters=letters,
        workload=workload,
        model=model,
        batch=batch,
        parallel=parallel,
        optimizer=stepping.optimizer,
        engine=_engine(stepping, model, batch, parallel, base),
        job=running_job("finetune_llm", launcher),
        gpu=ExpectedGpu(model=None, peak_flops=None),
    )
    return plan, (*stepping.sentences, *sentences)


def _workload(
    arguments: argparse.Namespace, source: str, facts: CorpusFacts, batch: BatchShape, stepping: Stepping
) -> tuple[Training, list[str]]:
    """Rows are cut or padded to the length, each a sample; a text that has none is cut into sequences of it."""
    has_rows = any(file.kind in _ROWS for file in source_files([source]))
    packing = NONE if has_rows else STREAM
    rows = facts.count_rows(TRAIN, packing, batch.sequence_length, TRUNCATE)
    if not rows:
        raise RequestError(
            f"--dataset_name {source}: it has {facts.splits[TRAIN].tokens} tokens, which do not fill one sequence of "
            f"{batch.sequence_length}. Give more, or a smaller --max_length."
        )
    steps = math.ceil(arguments.num_epochs * rows / batch.global_batch_size)
    workload = Training(
        steps=steps,
        warmup_steps=min(WARMUP_STEPS, max(steps - MIN_MEASURED_STEPS, 0)),
        seed=42,
        lr_ramp_steps=0,
        lr_schedule="constant" if "scheduler" in stepping.config else "linear",
        eval_every=0 if VALIDATION in facts.splits else None,
        data=[source],
        loss_floor_nats=None,
        corpus=str(facts.folder),
        packing=packing,
        too_long=TRUNCATE,
        epochs=steps * batch.global_batch_size / rows,
        train_samples=arguments.num_samples,
        save_every=SAVE_EVERY,
    )
    if has_rows or rows <= arguments.num_samples:
        return workload, []
    return workload, [
        f"{source} is text without samples: all of its {rows} sequences are trained on, not {arguments.num_samples}."
    ]


def _model(arguments: argparse.Namespace, base: Base, stepping: Stepping) -> ModelSetup:
    adapts, packs = arguments.use_lora or arguments.use_qlora, arguments.use_qlora
    lora = Lora(r=arguments.lora_r, alpha=arguments.lora_alpha, dropout=_DROPOUT, target_modules=list(_LAYERS))
    nf4 = Quantization(kind="nf4", double_quant=True, compute_dtype=stepping.precision)
    return ModelSetup(
        name=base.name,
        weights=base.weights,
        precision=stepping.precision,
        attention="sdpa",
        recompute=arguments.gradient_checkpointing or packs,  # PEFT turns it on where it prepares packed weights
        quantization=nf4 if packs else None,
        peft=lora if adapts else None,
    )


def _letters(model: ModelSetup, stepping: Stepping) -> str:
    adapters = [] if model.peft is None else ["lora" if model.quantization is None else "qlora"]
    zero = zero_letters(stepping.config) if stepping.is_deepspeed else []
    return "+".join([*zero, *adapters, *(["r"] if model.recompute else [])]) or "ddp"


def _engine(stepping: Stepping, model: ModelSetup, batch: BatchShape, parallel: Parallel, base: Base) -> EngineSetup:
    if stepping.is_deepspeed:
        return EngineSetup(name=DEEPSPEED.name, fallback=None, deepspeed=stepping.config)
    import torch

    wanted = Wanted(
        model=model,
        batch=batch,
        parallel=parallel,
        optimizer=stepping.optimizer,
        deepspeed=stepping.config,
        family=base.family,
        has_cuda=parallel.gpus_per_node > 0 and torch.version.hip is None,
    )
    fused: dict[str, Any] = {part: PLAIN.unfused(part, wanted) is None for part in _FUSED}
    return EngineSetup(
        name=PLAIN.name,
        fallback=PLAIN.fallback if DEEPSPEED.lacks(wanted) is None else None,
        deepspeed=stepping.config,
        cuda_graph=PLAIN.unrecorded(wanted) is None,
        **fused,
    )
