"""What an engine is for planning: what it imports, what it heeds, what it cannot do. Its program is another thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hpc_llm.immutable import dataclass
from hpc_llm.planning.parts import BatchShape, ModelSetup, OptimizerSetup, Parallel
from hpc_llm.registry import check_name

KNOWN_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Families of models whose modules the worker's `kernels` know."""
Chosen = tuple[Any, str]
"""A value, and why it is that one, in a clause."""


SEEN = 0.94
"""Of the GPU's memory, what a run may need by what nobody asked for: an engine that holds more, or parameters that stay whole."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a plan wants of its engine."""

    model: ModelSetup
    batch: BatchShape
    parallel: Parallel
    optimizer: OptimizerSetup
    deepspeed: Mapping[str, Any]
    """The DeepSpeed config, by which methods say what is split and offloaded, whatever the engine. No computed keys."""

    family: str | None = None
    """Of the model, as Hugging Face calls it (`llama`); None where it cannot be seen."""

    parameters: int | None = None
    """Of the whole model; None where they cannot be counted."""
    kept_bytes: float | None = None
    """What forward and backward of a micro batch need at most, where the model is whole; None where it cannot be seen."""
    gpu_bytes: float | None = None
    """Memory of one GPU; None where it is not known, or there is none."""
    has_cuda: bool = False
    """Whether the GPUs are NVIDIA's."""

    @property
    def zero_stage(self) -> int:
        return zero_stage(self.deepspeed)


def _nothing(wanted: Wanted) -> str | None:
    return None


def _never(wanted: Wanted) -> str:
    return "it records no steps"


def _fuses_nothing(part: str, wanted: Wanted) -> str:
    return "it fuses nothing"


def _multiplies_in_16_bits(wanted: Wanted) -> str:
    return "multiplies in no fp8, which the method asks for"


def _has_whole_layers(wanted: Wanted) -> str:
    return "has whole layers on each rank"


def _as_it_does(wanted: Wanted) -> Mapping[str, Chosen]:
    return {}


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """One engine among others, as planning knows it: what its module exports as FACTS."""

    name: str
    module: str
    """Where the worker finds it: as `KIND`, a `hpc_llm.worker.engines.EngineKind`, or a function `kind()` that makes it,
    so that a module with these facts imports torch only there."""
    packages: tuple[str, ...] = ()
    """What it imports besides torch and transformers, by import name; what only its fallback needs is not demanded."""
    lacks: Callable[[Wanted], str | None] = _nothing
    """Why it cannot do what a plan wants, in a clause that goes on from its name; None where it can."""
    unsuited: Callable[[Wanted], str | None] = _nothing
    """Why it should be asked for by name where it is one of several engines of a method, in a clause that goes on from its name."""
    heeds: frozenset[str] | None = frozenset()
    """Keys of the DeepSpeed config that it alone heeds, besides those that every engine does; None: all keys."""
    unrecorded: Callable[[Wanted], str | None] = _never
    """Why it does not record forward and backward as a CUDA graph, in a clause; None where it does."""
    unfused: Callable[[str, Wanted], str | None] = _fuses_nothing
    """Why it does not fuse a part, one of `EngineSetup`'s `fused_…`, in a clause; None where it does."""
    unshared: Callable[[Wanted], str | None] = _has_whole_layers
    """Why ranks cannot share layers with it (`--tensor-parallel`), in a clause that goes on from its name; None where they can."""
    without_fp8: Callable[[Wanted], str | None] = _multiplies_in_16_bits
    """Why linear layers cannot multiply in fp8 with it (`+fp8`), in a clause that goes on from its name; None where they can."""
    splitting: Callable[[Wanted], Mapping[str, Chosen]] = _as_it_does
    """How it splits layers, for each field that it heeds of `EngineSetup`'s `layers_per_unit`, `keeps_parameters`,
    `hybrid_sharding`, `reduce_precision`, `compiled_layers`, `overlap`, `fused_optimizer`, `offloaded_step` and `moments_precision`: the value, and why."""
    fallback: str | None = None
    """The engine of ours that trains the same where a node's software is too old for this one."""
    carries: tuple[str, ...] = ()
    """Top-level modules or packages, beside its own, that travel with a run. Python sources only."""

    def __post_init__(self) -> None:
        check_name("engine", self.name, ValueError)
        for module in (self.module, *self.packages):
            if not all(part.isidentifier() for part in module.split(".")):
                raise ValueError(f"engine {self.name}: {module!r} is no name of a Python module")
        for module in self.carries:
            if not module.isidentifier():
                raise ValueError(f"engine {self.name}: {module!r} is no name of a top-level Python module")

    @property
    def carried(self) -> tuple[str, ...]:
        """The top-level modules that travel with a run of it, besides what travels with every run."""
        return tuple(dict.fromkeys(top for top in (self.module.split(".")[0], *self.carries) if top != "hpc_llm"))


def zero_stage(deepspeed: Mapping[str, Any]) -> int:
    """ZeRO's stage in a DeepSpeed config; 0 means that nothing is split."""
    return int((deepspeed.get("zero_optimization") or {}).get("stage", 0))


def offload_place(deepspeed: Mapping[str, Any], what: str) -> str | None:
    """Where `optimizer` or `param` are, `cpu` or `nvme`; None on the device, which DeepSpeed also takes `none` and nothing for.

    >>> offload_place({"zero_optimization": {"offload_param": {"device": "none"}}}, "param")
    >>> offload_place({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "param")
    'cpu'
    """
    block = (deepspeed.get("zero_optimization") or {}).get(f"offload_{what}") or {}
    found = block.get("device")
    return None if found in (None, "none") else str(found)
