"""What the values of a DeepSpeed config may be: one of a wrong kind ends the job only when it starts. Standard library only.

Read from the config models of DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/, runtime/precision_config.py); a test asks
the installed one. A key that is not listed may hold anything, but for `auto`: that word is for the Hugging Face Trainer,
which puts a value in its place, and nobody does so here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.planning.deepspeed_monitors import MONITORS
from hpc_llm.planning.deepspeed_schedules import check_schedule, in_place_of_auto
from hpc_llm.records.metrics import is_figure


def _keys(names: str, kind: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


_SWITCH, _WHOLE, _POSITIVE, _SHARE = "switch", "whole", "positive", "share"
_DEVICE, _BLOCK, _OPTIONAL_SWITCH, _ABOVE, _FROM_0 = "device", "block", "optional switch", "above 0", "from 0"
_TYPE, _SENT_TYPE = "type", "sent type"
_TYPES = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}
"""What DeepSpeed calls each type that gradients can be added up in."""
_OFFLOAD = {
    "device": _DEVICE,
    **_keys("pin_memory pipeline_read pipeline_write fast_init super_offload", _SWITCH),
    **_keys("buffer_count buffer_size max_in_cpu", _WHOLE),
    **_keys("ratio cpuadam_cores_perc", _SHARE),
}
KINDS: dict[str, dict[str, str]] = {
    "": {
        "gradient_clipping": _FROM_0,  # 0 is off; below, an engine that does not look would step uphill
        "gradient_predivide_factor": _ABOVE,
        "steps_per_print": _POSITIVE,
        "data_types": _BLOCK,
        **_keys("communication_data_type seq_parallel_communication_data_type", _SENT_TYPE),
        **_keys(
            """prescale_gradients sparse_gradients wall_clock_breakdown memory_breakdown dump_state disable_allgather
            disable_python_gc dataloader_drop_last zero_allow_untested_optimizer zero_force_ds_cpu_optimizer
            use_data_before_expert_parallelism""",
            _SWITCH,
        ),
    },
    "zero_optimization": {
        "reduce_bucket_size": _POSITIVE,
        **_keys(
            """allgather_bucket_size sub_group_size prefetch_bucket_size stage3_prefetch_bucket_size param_persistence_threshold
            stage3_param_persistence_threshold model_persistence_threshold stage3_model_persistence_threshold
            max_live_parameters stage3_max_live_parameters max_reuse_distance stage3_max_reuse_distance
            module_granularity_threshold stage3_module_granularity_threshold zero_hpz_partition_size""",
            _WHOLE,
        ),
        **_keys(
            """contiguous_gradients reduce_scatter use_multi_rank_bucket_allreduce allgather_partitions compute_grad_norm
            load_from_fp32_weights elastic_checkpoint gather_16bit_weights_on_model_save
            stage3_gather_16bit_weights_on_model_save use_all_reduce_for_fetch_params
            stage3_use_all_reduce_for_fetch_params allgather_sequential stage3_allgather_sequential
            stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1 round_robin_gradients
            parameter_alignment zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients memory_efficient_linear
            pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
            save_muon_momentum_buffer_in_memory""",
            _SWITCH,
        ),
        **_keys("overlap_comm cpu_offload cpu_offload_param cpu_offload_use_pin_memory", _OPTIONAL_SWITCH),
        **_keys("offload_optimizer offload_param zenflow", _BLOCK),
    },
    "data_types": {"grad_accum_dtype": _TYPE},
    "zero_optimization.offload_optimizer": _OFFLOAD,
    "zero_optimization.offload_param": _OFFLOAD,
    "fp16": {
        **_keys("enabled auto_cast consecutive_hysteresis fp16_master_weights_and_grads", _SWITCH),
        **_keys("initial_scale_power loss_scale_window hysteresis min_loss_scale", _WHOLE),
        "loss_scale": _FROM_0,
    },
    "bf16": _keys(
        "enabled immediate_grad_update check_grad_overflow bf16_master_weights_and_grads bf16_optimizer_states", _SWITCH
    ),
    **{name: {"enabled": _SWITCH} for name in MONITORS},
}
"""Block of the config -> key -> what its value must be."""

_MEANT = {
    _SWITCH: "true or false",
    _OPTIONAL_SWITCH: "true, false or null",
    _WHOLE: "a whole number of at least 0",
    _POSITIVE: "a whole number of at least 1",
    _ABOVE: "a number above 0",
    _FROM_0: "a number of at least 0",
    _SHARE: "a number from 0 to 1",
    _DEVICE: "none, cpu or nvme",
    _BLOCK: "keys of its own, or null",
    _TYPE: "fp16, bf16, fp32 or null",
    _SENT_TYPE: "fp16, bf16, fp32 or null",
}
_OWN_AUTO = (
    "pipeline",
    "expert_parallel",
    "zero_optimization.zenflow",
    "wandb",
    "tensorboard",
    "csv_monitor",
    "comet",
    "data_types.keep_in_fp32_modules",
)
"""Blocks whose `auto` DeepSpeed itself knows, or that hold names."""


def check_values(config: Mapping[str, Any], where: str) -> None:
    """Raise a RequestError for the first value that is `auto`, or of another kind than its key takes."""
    for path, value in _values(config):
        block, _, key = path.rpartition(".")
        kind = KINDS.get(block, {}).get(key)
        if value == "auto" and not path.startswith(_OWN_AUTO):
            raise RequestError(f"{where}: {path} is 'auto', which nothing fills in here. {_instead(path, kind)}.")
        if kind is not None and not _fits(value, kind):
            raise RequestError(f"{where}: {path} is {value!r}: it must be {_MEANT[kind]}.")


_OF_STAGE_3 = (
    "offload_param",
    "zero_quantized_weights",
    "zero_quantized_gradients",
    "zero_quantized_nontrainable_weights",
    "zero_hpz_partition_size",
)
"""What splits or moves parameters, which ZeRO-3 alone does: another stage leaves it without a word."""


def check_together(config: Mapping[str, Any], where: str) -> None:
    """Raise a RequestError for the first key that needs another one, or that DeepSpeed would not heed beside the others.

    Read from DeepSpeed 0.19.8 (runtime/engine.py, runtime/lr_schedules.py, runtime/zero/stage3.py and stage_1_and_2.py), which ends
    in an assertion where it starts.
    """
    zero = config.get("zero_optimization") or {}
    check_schedule(config.get("scheduler"), where)
    for name in ("offload_optimizer", "offload_param"):
        block = zero.get(name) or {}
        if block.get("device") == "nvme" and not isinstance(block.get("nvme_path"), str):
            raise RequestError(
                f"{where}: zero_optimization.{name}.device is nvme, and there is no nvme_path beside it: give the folder of the node's disk."
            )
    if (zero.get("offload_optimizer") or {}).get("ratio", 1.0) < 1.0 and zero.get("stage", 0) != 3:
        raise RequestError(
            f"{where}: zero_optimization.offload_optimizer.ratio is below 1, and a part of the optimizer is offloaded by ZeRO-3 alone: "
            "take a method with z3o, or leave it out."
        )
    if (zero.get("offload_optimizer") or {}).get("super_offload") and zero.get("stage", 0) != 3:
        raise RequestError(
            f"{where}: zero_optimization.offload_optimizer.super_offload has no effect with stage {zero.get('stage', 0)}: ZeRO-3 alone heeds it. "
            "Take a method with z3o, or leave it out."
        )
    if zero.get("zenflow") and (zero.get("offload_optimizer") or {}).get("device") != "cpu":
        raise RequestError(
            f"{where}: zero_optimization.zenflow goes with an optimizer on the host alone: take a method with z2o, or leave it out."
        )
    if zero.get("stage", 0) and zero.get("reduce_scatter", True):
        for key, neutral in (("gradient_predivide_factor", 1), ("prescale_gradients", False)):
            if config.get(key, neutral) != neutral:
                raise RequestError(
                    f"{where}: {key} goes not with gradients that ZeRO scatters. Leave it out, or set "
                    "zero_optimization.reduce_scatter to false."
                )
    lost = [key for key in _OF_STAGE_3 if _asks(zero.get(key))]
    if lost and zero.get("stage", 0) != 3:
        raise RequestError(
            f"{where}: zero_optimization.{lost[0]} has no effect with stage {zero.get('stage', 0)}: ZeRO-3 alone heeds it. Take a method with z3, or leave it out."
        )


def _asks(value: Any) -> bool:
    """Whether a key of ZeRO's asks for anything."""
    if isinstance(value, Mapping):
        return value.get("device", "none") not in (None, "none")
    return value not in (None, False, 0, 1) or value is True


def check_with_plan(config: Mapping[str, Any], ranks: int, precision: str, where: str) -> None:
    """Refuse what a config says otherwise than the plan that it is part of: over how many ranks it shards, and in which precision."""
    check_partitions(config, ranks, where)
    check_precision(config, precision, where)


def check_partitions(config: Mapping[str, Any], ranks: int, where: str) -> None:
    """Raise a RequestError where groups of the ranks would not come out even, which DeepSpeed finds only when it starts."""
    size = (config.get("zero_optimization") or {}).get("zero_hpz_partition_size", 1)
    if size > 1 and (size > ranks or ranks % size):
        valid = ", ".join(str(n) for n in range(1, ranks + 1) if ranks % n == 0)
        raise RequestError(
            f"{where}: zero_optimization.zero_hpz_partition_size is {size}, which does not divide the plan's {ranks} ranks. "
            f"Valid: {valid}; the ranks of a node are usual."
        )


def check_precision(config: Mapping[str, Any], precision: str, where: str) -> None:
    """Raise a RequestError where gradients would be added up in another type than the plan's, which DeepSpeed can with ZeRO alone."""
    kept = (config.get("data_types") or {}).get("grad_accum_dtype")
    if kept is not None and not (config.get("zero_optimization") or {}).get("stage", 0) and _TYPES[kept] != precision:
        raise RequestError(
            f"{where}: data_types.grad_accum_dtype is {kept}, and without ZeRO gradients are added up in the type of the weights alone, "
            f"{precision}. Leave it out, or take a method with ZeRO (z1, z2, z3)."
        )


def _instead(path: str, kind: str | None) -> str:
    first = path.partition(".")[0]
    if first.startswith(("train_", "gradient_accumulation_steps")) or path.endswith("16.enabled"):
        return "Leave it out, it is computed"
    if first == "optimizer":
        return "Leave it out: optimizer.lr and its like are fields of their own, and without lr one is chosen"
    if first == "scheduler" and (said := in_place_of_auto(path)):
        return said
    return f"Leave it out for DeepSpeed's default, or give {_MEANT[kind] if kind else 'a value'}"


def _values(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in the config, blocks included; the items of a list have the path of the list."""
    for key, value in config.items():
        place = f"{path}.{key}" if path else str(key)
        yield place, value
        if isinstance(value, Mapping):
            yield from _values(value, place)
        elif isinstance(value, (list, tuple)):
            yield from ((place, item) for item in value if item == "auto")


def _fits(value: Any, kind: str) -> bool:
    if kind == _BLOCK:
        return value is None or isinstance(value, Mapping)
    if kind in (_TYPE, _SENT_TYPE):
        known = _TYPES if kind == _TYPE else _TYPES.values()
        return value is None or (isinstance(value, str) and (value.lower() if kind == _SENT_TYPE else value) in known)
    if kind == _DEVICE:
        return value in ("none", "cpu", "nvme")
    if kind in (_SWITCH, _OPTIONAL_SWITCH):
        return value in (True, False) if isinstance(value, (bool, int)) else value is None and kind == _OPTIONAL_SWITCH
    if not is_figure(value):
        return False
    if kind == _SHARE:
        return 0 <= value <= 1
    if kind in (_ABOVE, _FROM_0):
        return value > 0 or (kind == _FROM_0 and value == 0)
    return value == int(value) and value >= (kind == _POSITIVE)
