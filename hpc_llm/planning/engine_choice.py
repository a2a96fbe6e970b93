"""Which engine carries out the training steps of a plan, and what each can do. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.planning.parts import ModelSetup

EngineName = Literal["deepspeed", "plain", "fsdp2"]
"""What can carry out the training steps: DeepSpeed, plain PyTorch (DDP), PyTorch's fully sharded data parallel."""

ENGINES: tuple[EngineName, ...] = get_args(EngineName)

PACKAGES: Mapping[EngineName | str, tuple[str, ...]] = {"deepspeed": ("deepspeed",), "plain": (), "fsdp2": ()}
"""What an engine imports besides torch and transformers; what only its fallback needs is not demanded."""

_OF_ALL = ("gradient_clipping", "fp16", "bf16", "steps_per_print")
"""Keys of a DeepSpeed config that every engine heeds, or that change nothing but what is printed."""


def check_engine(name: str, model: ModelSetup, deepspeed: Mapping[str, Any]) -> None:
    """Raise PlanError where the engine cannot do what the plan asks for; the message names those that can."""
    if name not in ENGINES:
        raise RequestError(unknown_name("engine", name, ENGINES))
    lack = _LIMITS[name](model, deepspeed)
    if lack is not None:
        able = ", ".join(other for other in ENGINES if _LIMITS[other](model, deepspeed) is None)
        raise PlanError(f"engine {name} {lack}. Engines that can: {able}.")


def choose_engine(asked: str, settings: Iterable[Sequence[str]]) -> tuple[str, str | None]:
    """The engine, and why another one than `asked`: what it does not heed must not be set in vain.

    `settings` are the keys within the DeepSpeed config that the request sets, the outermost first.
    """
    only = [keys for keys in settings if not keys or keys[0] not in _OF_ALL]
    if only and asked != "deepspeed":
        path = ".".join(("deepspeed", *only[0]))
        return "deepspeed", f"engine {asked} becomes deepspeed: {path} is set, which only it heeds"
    return asked, None


def fallback_of(name: str) -> str | None:
    """What trains the same where a node's software is too old for the engine."""
    return None if name == "deepspeed" else "deepspeed"


def zero_stage(deepspeed: Mapping[str, Any]) -> int:
    """ZeRO's stage in a DeepSpeed config; 0 means that nothing is split."""
    return int((deepspeed.get("zero_optimization") or {}).get("stage", 0))


def _of_plain(model: ModelSetup, deepspeed: Mapping[str, Any]) -> str | None:
    return "holds the whole model on each rank, and cannot split it" if zero_stage(deepspeed) else None


def _of_fsdp2(model: ModelSetup, deepspeed: Mapping[str, Any]) -> str | None:
    if zero_stage(deepspeed) != 3:
        return "splits the parameters among all ranks, as ZeRO-3 does, and nothing less"
    zero = deepspeed["zero_optimization"]
    if zero.get("offload_optimizer") or zero.get("offload_param"):
        return "keeps everything on the device, and cannot offload"
    return "trains whole models: no quantization, no LoRA" if model.quantization or model.peft else None


_LIMITS: Mapping[str, Callable[[ModelSetup, Mapping[str, Any]], str | None]] = {
    "deepspeed": lambda model, deepspeed: None,
    "plain": _of_plain,
    "fsdp2": _of_fsdp2,
}
