"""DeepSpeed settings that would make a number of ours wrong, refused with the reason. Standard library only.

The training program gives each rank a batch of its own, the same number of tokens each step, in the plan's precision.
Batch size, data, tokens/s and MFU are counted so. What shares a batch among ranks, or changes it on the way, is refused
rather than counted wrongly. How ZeRO splits states (hpZ, quantized weights, offload) changes none of it and passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpc_llm.errors import RequestError

_SHARES_A_BATCH = {
    "autotp_size": "each layer would be split over the ranks of a group",
    "tp_size": "each layer would be split over the ranks of a group",
    "tensor_parallel_size": "each layer would be split over the ranks of a group",
    "autoep_size": "the experts would be split over the ranks of a group",
    "ep_size": "the experts would be split over the ranks of a group",
    "expert_tensor_parallel_size": "each expert would be split over the ranks of a group",
    "sequence_parallel_size": "each sequence would be split over the ranks of a group",
    "data_parallel_size": "the ranks would be put into groups",
    "stages": "the layers would be split over the ranks of a group",
}
"""Keys that set the size of a group of ranks, wherever they stand; 0 and 1 are a group of one."""

_CHANGES_THE_BATCH = {
    "elasticity": "it computes batch sizes of its own",
    "autotuning": "it chooses batch sizes and stages of its own",
    "curriculum_learning": "it shortens the sequences of the first steps",
    "data_efficiency": "it drops tokens and samples",
    "progressive_layer_drop": "it leaves layers out",
    "hybrid_engine": "it is for generating text between the steps",
    "expert_parallel": "it replaces the layers of the model by experts split over ranks",
}
"""Blocks that change what a step computes once they are enabled."""

_WITHOUT_EFFECT = {
    "compression_training": "DeepSpeed's compression is set up by a call that the training program does not make",
    "sparse_attention": "the layers of the model would have to be made for it",
    "nebula": "what is trained is kept by hpc-llm and not by DeepSpeed",
    "compile": "DeepSpeed compiles by a call that the training program does not make",
    "checkpoint": "what is trained is kept by hpc-llm and not by DeepSpeed",
}
"""Blocks that only a program made for them heeds; releases of DeepSpeed that have given them up end the job where it starts."""

_READ_BY_NONE = {
    "quantize_training": "no DeepSpeed since 0.17 quantizes by it, and newer ones refuse it: quantization.kind and fp8 are the plan's own",
    "eigenvalue": "it belongs to quantize_training, which no DeepSpeed since 0.17 reads",
}
"""Blocks that a method may keep to say the whole of a config that it follows, and that change nothing."""

_GIVEN_UP = ("graph_harvesting", "sparse_gradients")
"""Switches that older releases heed; the training program leaves out what the installed one has no more."""

_CHANGES_THE_PRECISION = ("amp", "torch_autocast")


def check_limits(config: Mapping[str, Any], where: str) -> None:
    """Raise a RequestError for the first setting of a DeepSpeed config that the plan's numbers could not follow."""
    for path, key, value in _leaves(config):
        if key in _SHARES_A_BATCH and not _is_one(key, value):
            raise RequestError(
                f"{where}: {path} is {value!r}: {_SHARES_A_BATCH[key]}, but hpc-llm feeds each rank a batch of its own, "
                "so that samples and tokens/s would be counted several times. Leave it out; z3 splits a model that is "
                "too large for one GPU, and --tensor-parallel lets ranks share each layer."
            )
    for key, reason in _CHANGES_THE_BATCH.items():
        if _is_enabled(config.get(key)):
            raise RequestError(
                f"{where}: {key} is enabled: {reason}, and what a step computes would not be what the plan says. Leave it out."
            )
    for key, reason in _WITHOUT_EFFECT.items():
        if key in config:
            raise RequestError(f"{where}: {key} has no effect: {reason}. Leave it out.")
    for key in _CHANGES_THE_PRECISION:
        if _is_enabled(config.get(key)):
            raise RequestError(f"{where}: {key} is enabled, which contradicts the plan's precision. Set precision.")
    _check_averaging(config, where)


def check_set(config: Mapping[str, Any], keys: Iterable[str], where: str) -> list[str]:
    """What is to be told of the top-level `keys` that a request sets itself; raises RequestError for one that it enables in vain."""
    enabled = [key for key in sorted(keys) if _is_enabled(config.get(key))]
    for key in enabled:
        if key in _READ_BY_NONE:
            raise RequestError(f"{where}: {key} has no effect: {_READ_BY_NONE[key]}. Leave it out.")
    return [
        f"newer releases of DeepSpeed, as 0.19.8, have no deepspeed.{key} any more: with them the run is without it, and its result says so"
        for key in _GIVEN_UP
        if key in enabled
    ]


def _check_averaging(config: Mapping[str, Any], where: str) -> None:
    """The loss is weighed for an engine that averages gradients over micro batches and ranks."""
    reduction = config.get("gradient_allreduce_op")
    if reduction is not None and str(reduction).lower() != "mean":
        summed = str(reduction).lower() == "sum"
        why = (
            "the step would grow with the number of ranks"
            if summed
            else "DeepSpeed knows mean, which it does anyway, and sum"
        )
        raise RequestError(f"{where}: gradient_allreduce_op is {reduction!r}: {why}. Leave it out.")
    if config.get("managed_gradient_accumulation", True) is not True:
        raise RequestError(
            f"{where}: managed_gradient_accumulation is off, so that gradients of a step would be summed and not averaged. "
            "Leave it out."
        )


def _leaves(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, Any]]:
    """(path, key, value) of everything that is no mapping."""
    for key, value in config.items():
        place = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, place)
        else:
            yield place, str(key), value


def _is_one(key: str, value: Any) -> bool:
    neutral = (None, "auto") if key == "stages" else (None,)
    return value in neutral or (value in (0, 1) and not isinstance(value, bool))


def _is_enabled(block: Any) -> bool:
    """Whether a feature that is off by default is switched on."""
    return bool(block.get("enabled", False)) if isinstance(block, Mapping) else bool(block)
