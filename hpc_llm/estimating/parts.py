"""What an estimate says. Sizes are bytes; GiB is 2^30 of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from hpc_llm.planning.micro_batches import LARGEST

if TYPE_CHECKING:
    from hpc_llm.estimating.step_time import StepTime


class Fit(str, Enum):
    """Whether a run fits where it is to run."""

    FITS = "fits"
    TOO_CLOSE = "too_close"
    DOES_NOT_FIT = "does_not_fit"
    UNKNOWN = "unknown"
    """Nothing is known of the memory that is there, or of the model."""

    @property
    def words(self) -> str:
        return {"too_close": "too close to call"}.get(self.value, self.value.replace("_", " "))


_MOST_NODES_HAVE = 100 * 2**30
"""Bytes of memory that hardly any node with GPUs lacks."""
_WORST = (Fit.DOES_NOT_FIT, Fit.TOO_CLOSE, Fit.UNKNOWN, Fit.FITS)


def worst(verdicts: Sequence[Fit]) -> Fit:
    """The verdict on all of them together."""
    return min(verdicts, key=_WORST.index, default=Fit.UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is held at one moment of a step; the largest of them is the peak."""

    name: str
    terms: dict[str, int]
    """What for -> bytes."""

    @property
    def total(self) -> int:
        return sum(self.terms.values())


@dataclass(frozen=True, kw_only=True)
class Need:
    """Memory of one place: a GPU, or the host of a node."""

    breakdown: dict[str, int]
    """What for -> bytes; together they are `peak`."""
    peak: int
    """What is expected."""
    low: int
    """No less than this is needed."""
    high: int
    """No more than this, as far as is known."""
    capacity: int | None
    """What is there; None where nobody says."""
    capacity_low: int | None = None
    """What is there at least: drivers keep a part for themselves."""
    of_node: int | None = None
    """What the node has, where nobody says how much of that the job gets."""

    @property
    def verdict(self) -> Fit:
        if self.capacity is None:
            return Fit.UNKNOWN
        if self.low > self.capacity:
            return Fit.DOES_NOT_FIT
        return Fit.FITS if self.high <= (self.capacity_low or self.capacity) else Fit.TOO_CLOSE

    @property
    def enough(self) -> int:
        """How much there must be that it fits, where as large a part as here may not be free; it is known what there is."""
        assert self.capacity is not None
        return -(-self.high * self.capacity // (self.capacity_low or self.capacity))


@dataclass(frozen=True, kw_only=True)
class Device(Need):
    """Memory of one GPU. `low` and `high` count what is outside torch's allocator, `peak` and `breakdown` do not."""

    fragments: int
    """What the allocator keeps of what was freed and cannot use again; in `high`, for some of it may be of use."""
    outside: int
    """What the driver, libraries and collectives take beside the allocator."""
    moment: str
    """When in a step the peak is reached."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Of one run."""

    device: Device | None
    """None where a run has no GPU."""
    host: Need
    """Of one node, all of its ranks together."""
    notes: tuple[str, ...] = ()
    """What is not known, and what the interval is wide for."""

    @property
    def verdict(self) -> Fit:
        if self.device is None:
            return self.host.verdict
        on_device, on_host = self.device.verdict, self.host.verdict
        if on_host is Fit.UNKNOWN:  # few sites state it, and few runs come near it
            return on_device
        return worst([on_device, on_host])


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one run will need, and whether it fits."""

    cluster: str
    method: str
    model: str
    gpu: str | None
    gpus: int
    """Of all nodes."""
    micro_batch_size: int
    sequence_length: int
    memory: Memory | None
    """None where `refused`."""
    checkpoint: int | None = None
    """Bytes of one checkpoint; None where the run keeps none or its size is not known."""
    disk: int | None = None
    """Most bytes that the run keeps at a time."""
    largest_micro_batch: int | None = None
    """That fits for certain, 0: none; None where it is not known."""
    fewest_gpus: int | None = None
    """With which this micro batch fits for certain, in whole or parts of nodes; None where none is known."""
    time: StepTime | None = None
    run: str | None = None
    """Its name in the study that it is of."""
    refused: str | None = None
    """Why there can be no such run."""
    recomputed: str | None = None
    """Of how many layers it recomputes activations, and why of so many, where a share or the estimate decides."""
    untimed: str | None = None
    """Why no time is given, a clause."""
    stands_in: str | None = None
    """That this machine is what was judged by, as the profile leaves it to the machine that it runs on."""
    notes: tuple[str, ...] = ()

    @property
    def is_unlimited(self) -> bool:
        """Whether its largest micro batch is the largest that was looked at: more may fit."""
        return self.largest_micro_batch is not None and self.largest_micro_batch >= LARGEST

    @property
    def all_notes(self) -> tuple[str, ...]:
        """All that is to be told beside the figures."""
        of_time = f"no time is given: {self.untimed}" if self.untimed else None
        of_memory = self.memory.notes if self.memory else ()
        return (*filter(None, (self.stands_in, of_time)), *self.notes, *of_memory)

    @property
    def verdict(self) -> Fit:
        return self.memory.verdict if self.memory else Fit.UNKNOWN

    @property
    def unsaid(self) -> str | None:
        """Where it fits the GPUs, and may need more of a node's memory than is usual, that nobody says how much there is: a clause."""
        memory = self.memory
        if memory is None or memory.device is None or self.verdict is not Fit.FITS:
            return None
        if memory.host.capacity is not None or memory.host.high <= _MOST_NODES_HAVE:
            return None
        whole = memory.host.of_node
        if whole is None:
            return "nobody says whether a node's host does (node.mem_gb)"
        return f"nobody says how much a job gets of a node's {whole / 2**30:.0f} GiB (--sbatch mem=…)"

    @property
    def verdict_words(self) -> str:
        """The verdict, and of what it is where nobody can give one on the host."""
        words = self.verdict.words
        return f"{words} the GPUs; {self.unsaid}" if self.unsaid else words
