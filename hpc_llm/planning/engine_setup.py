"""The engine of a plan with its settings: what it records, fuses, splits and compiles, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import PlanError
from hpc_llm.planning import engines
from hpc_llm.planning.deepspeed_schedules import with_rate
from hpc_llm.planning.draft import Draft, positive
from hpc_llm.planning.engine_choice import able_fallback, answer, check_engine, choose_engine, first_suited
from hpc_llm.planning.engines import Chosen, EngineFacts, Wanted
from hpc_llm.planning.method import Method
from hpc_llm.planning.optimizers import OF_DEEPSPEED
from hpc_llm.planning.parts import BatchShape, EngineSetup, ModelSetup, OptimizerSetup, Parallel
from hpc_llm.planning.recipe import family_of, kept_bytes, parameters_of
from hpc_llm.site.cluster import Gpu

if TYPE_CHECKING:
    from hpc_llm.planning.checkpoint import Checkpoint

_FP8_PAYS = 3000
"""Tokens of a micro batch: on an H100 layers as wide as a 7B's are faster in fp8 from 2300 on, those of a 1B from 2800."""


def choose_setup(method: Method, wanted: Wanted, draft: Draft) -> EngineSetup:
    """The engine that the method names or the settings make it, as far as it can do what is wanted."""
    precision = wanted.model.precision
    set_keys: Sequence[Sequence[str]] = [setting.inside for setting in draft.settings.of("deepspeed")]
    for keys in set_keys:
        if keys and keys[0] in ("fp16", "bf16") and keys[0] != precision:
            raise PlanError(f"deepspeed.{'.'.join(keys)} has no effect: the precision is {precision}.")
        if keys and keys[0] == "activation_checkpointing":
            raise PlanError(
                f"deepspeed.{'.'.join(keys)} has no effect: activations are recomputed by torch, layer by layer, and not by DeepSpeed. "
                "--set recompute=true, or +r in --method, turns that on."
            )
    if "scheduler" in wanted.deepspeed:  # of the method too: another engine would keep one rate without a word
        set_keys = [*set_keys, ["scheduler"]]
    _check_device(wanted)
    if "activation_checkpointing" in method.deepspeed:
        draft.notices.append(
            f"activation_checkpointing of method {method.name} has no effect: activations are recomputed by torch, layer by layer. "
            "recompute: true turns that on"
        )
    suited, passed = first_suited(method.engine, wanted)
    asked = draft.put("engine", suited, "; ".join((f"method {method.name}", *passed)))
    facts, why = choose_engine(asked, set_keys)
    if why is not None:
        draft.computed("engine", facts.name, f"computed: {why}")
        draft.notices.append(why)
    check_engine(facts, wanted, passed)
    draft.notices += _too_few_for_fp8(wanted)
    split, switches = answer(facts, facts.splitting, wanted), dict[str, Any]()
    for name, how in _FUSED.items():
        switches[name] = _switch(name, facts, answer(facts, facts.unfused, name, wanted), how, draft)
    for name in _SPLITTING:
        switches[name] = _split(name, facts, split.get(name), draft)
    _check_together(switches, wanted, draft)
    return EngineSetup(
        name=facts.name,
        module=draft.computed(
            "engine_module",
            None if facts.name in engines.OWN else facts.module,
            "computed: where the engine comes from",
        ),
        fallback=draft.computed(
            "engine_fallback", able_fallback(facts, wanted), "computed: what trains the same with other software"
        ),
        deepspeed=complete_deepspeed(wanted.deepspeed, wanted.batch, precision, wanted.optimizer),
        cuda_graph=_switch(
            "cuda_graph", facts, answer(facts, facts.unrecorded, wanted), "whose steps have one shape", draft
        ),
        **switches,
    )


def _too_few_for_fp8(wanted: Wanted) -> list[str]:
    tokens = wanted.batch.micro_batch_size * wanted.batch.sequence_length
    if not wanted.model.fp8 or tokens >= _FP8_PAYS or not wanted.parallel.gpus_per_node:
        return []
    return [
        f"fp8 will hardly pay with {tokens} tokens a micro batch: all weights are rounded in each pass, which on H100 was repaid from "
        f"about {_FP8_PAYS} on"
    ]


def _check_device(wanted: Wanted) -> None:
    """Raise PlanError for what of DeepSpeed's offload the device cannot do, and ends a run with at its start."""
    zero = wanted.deepspeed.get("zero_optimization") or {}
    if (zero.get("offload_optimizer") or {}).get("super_offload") and not wanted.has_cuda:
        raise PlanError(
            "deepspeed.zero_optimization.offload_optimizer.super_offload is for NVIDIA's GPUs alone. Leave it out."
        )
    if zero.get("zenflow") and not wanted.parallel.gpus_per_node:
        raise PlanError(
            "deepspeed.zero_optimization.zenflow ends a run on the CPU where it starts (DeepSpeed 0.19.8). Leave it out, or run on GPUs."
        )


def _check_together(switches: dict[str, Any], wanted: Wanted, draft: Draft) -> None:
    if switches["moments_precision"] == "bf16" and switches["offloaded_step"] == "host":
        raise PlanError(
            f"{draft.settings.said('moments_precision')}=bf16: moments are rounded at random on the device alone, and here they "
            "are stepped on the host (offloaded_step)."
        )
    if switches["hybrid_sharding"] and wanted.parallel.nodes == 1:
        raise PlanError(
            f"{draft.settings.said('hybrid_sharding')}=true: it splits among the ranks of each node, and the plan has one node. Leave it "
            "out, or ask for more (--nodes 2)."
        )


def wanted_of(
    model: ModelSetup,
    batch: BatchShape,
    parallel: Parallel,
    optimizer: OptimizerSetup,
    deepspeed: dict[str, Any],
    found: Checkpoint | None,
    gpu: Gpu,
) -> Wanted:
    """What an engine is chosen by."""
    width = 4 if model.precision == "fp32" else 2
    return Wanted(
        model=model,
        batch=batch,
        parallel=parallel,
        optimizer=optimizer,
        deepspeed=deepspeed,
        family=family_of(model.name, found) or None,
        parameters=parameters_of(model.name, found),
        kept_bytes=kept_bytes(model.name, found, batch, width=width, recompute=model.recompute, fp8=model.fp8),
        gpu_bytes=gpu.memory_gib * 2**30 if gpu.memory_gib and parallel.gpus_per_node else None,
        has_cuda=gpu.vendor == "nvidia",
    )


def engine_asked(method: Method, draft: Draft) -> str:
    """The engine that the method or the settings name, as far as it is known before the rest of the plan: of several the first."""
    first = method.engine if isinstance(method.engine, str) else method.engine[0]
    named = str(draft.settings.applied("engine", first))
    if named not in engines.names():
        return named  # whoever takes it later says what is wrong with it
    return choose_engine(named, [setting.inside for setting in draft.settings.of("deepspeed")])[0].name


_FUSED = {
    "fused_dequantization": "which unpacks a weight in one pass",
    "fused_lora": "which computes a layer and its adapter as one",
    "fused_loss": "which needs not all logits at once",
    "fused_layers": "which compiles norm, MLP and rotary positions",
}


_SPLITTING = (
    "layers_per_unit",
    "keeps_parameters",
    "hybrid_sharding",
    "reduce_precision",
    "compiled_layers",
    "overlap",
    "fused_optimizer",
    "offloaded_step",
    "moments_precision",
)


def _split(name: str, facts: EngineFacts, chosen: Chosen | None, draft: Draft) -> Any:
    """How the engine splits layers, as the settings leave it; they may change only what it heeds."""
    default = next(one.default for one in fields(EngineSetup) if one.name == name)
    value, why = chosen or (default, "which does not heed it")
    found = draft.put(name, value, f"computed: engine {facts.name}, {why}")
    if chosen is None and found != default:
        raise PlanError(f"{draft.settings.said(name)}={_written(found)}: engine {facts.name} does not heed it.")
    if name == "layers_per_unit":
        positive(name, found)
    return found


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _switch(name: str, facts: EngineFacts, lack: str | None, why: str, draft: Draft) -> bool:
    """Something that the engine does unless there is a reason against it, or the settings say no."""
    is_on: bool = draft.put(name, lack is None, f"computed: engine {facts.name}, {lack or why}")
    if is_on and lack is not None:
        raise PlanError(f"{draft.settings.said(name)}=true: with engine {facts.name} it cannot be, for {lack}.")
    return is_on


def complete_deepspeed(
    deepspeed: Mapping[str, Any], batch: BatchShape, precision: str, optimizer: OptimizerSetup
) -> dict[str, Any]:
    """The DeepSpeed config with batch sizes, precision blocks, optimizer and the schedule's rate filled in from the plan's values."""
    config = {k: v for k, v in deepspeed.items() if k not in ("fp16", "bf16", "bfloat16")}
    config["train_micro_batch_size_per_gpu"] = batch.micro_batch_size
    config["gradient_accumulation_steps"] = batch.gradient_accumulation_steps
    config["train_batch_size"] = batch.global_batch_size
    if precision in ("fp16", "bf16"):
        block = deepspeed.get(precision) or {}
        config[precision] = {**block, "enabled": True}
    if optimizer.type in OF_DEEPSPEED:
        parameters = {k: v for k, v in asdict(optimizer).items() if k != "type"}
        config["optimizer"] = {"type": optimizer.type, "params": parameters}
    if config.get("scheduler"):
        config["scheduler"] = with_rate(config["scheduler"], optimizer.lr)
    return config
