"""Which micro batches a search may try, and the plan of one try. Standard library only; it travels."""

from __future__ import annotations

from dataclasses import fields, replace

from hpc_llm.immutable import dataclass
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import Training

LARGEST = 2**16
"""No larger micro batch is tried."""


@dataclass(frozen=True)
class MicroBatches:
    """The sizes that may be tried: all, or those that divide what a group of ranks does in a step."""

    share: int | None = None
    """Sequences of a group in an optimizer step, which are kept; None: a step is one micro batch."""

    def at_most(self, size: int) -> int | None:
        """The largest one that is not above `size`; None where there is none.

        >>> MicroBatches().at_most(7), MicroBatches(24).at_most(7), MicroBatches(24).at_most(0)
        (7, 6, None)
        """
        return next((one for one in range(min(size, self.largest), 0, -1) if self._is_one(one)), None)

    def above(self, size: int) -> int | None:
        """The smallest one above `size`; None where there is none.

        >>> MicroBatches().above(7), MicroBatches(24).above(8), MicroBatches(24).above(24)
        (8, 12, None)
        """
        return next((one for one in range(size + 1, self.largest + 1) if self._is_one(one)), None)

    def between(self, low: int, high: int) -> int | None:
        """The one in the middle of those above `low` and below `high`; None where there is none.

        >>> MicroBatches().between(4, 8), MicroBatches(24).between(4, 12), MicroBatches().between(4, 5)
        (6, 8, None)
        """
        found = [one for one in range(low + 1, high) if self._is_one(one)]
        return found[len(found) // 2] if found else None

    @property
    def largest(self) -> int:
        return LARGEST if self.share is None else min(self.share, LARGEST)

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(map(self._is_one, range(1, self.largest + 1)))

    def _is_one(self, size: int) -> bool:
        return self.share is None or self.share % size == 0


def micro_batches_of(plan: Plan) -> MicroBatches:
    """Those that the search of the plan may try."""
    kept = plan.tuning.kept_global_batch
    return MicroBatches(None if kept is None else kept // plan.parallel.data)


def starting_at(plan: Plan, size: int, length: int | None = None) -> Plan:
    """The plan with micro batches of that size, and its global batch where that is to be kept."""
    share = micro_batches_of(plan).share
    accumulation = 1 if share is None else share // size
    batch = replace(
        plan.batch,
        micro_batch_size=size,
        gradient_accumulation_steps=accumulation,
        global_batch_size=size * accumulation * plan.parallel.data,
        sequence_length=length or plan.batch.sequence_length,
    )
    config = plan.engine.deepspeed | {
        "train_micro_batch_size_per_gpu": size,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": batch.global_batch_size,
    }
    return replace(plan, batch=batch, engine=replace(plan.engine, deepspeed=config))


def plan_of_try(plan: Plan, size: int, length: int, *, confirms: bool) -> Plan:
    """One try of a search, as the training that it is. One that confirms is longer."""
    tuning = plan.tuning
    common = {one.name: getattr(tuning, one.name) for one in fields(Training)}
    steps = tuning.confirm_steps if confirms else tuning.steps
    workload = Training(**{**common, "steps": steps, "resume": None})
    return replace(starting_at(plan, size, length), task="pretrain", workload=workload)
