"""How long a search for the micro batch takes: the trainings that it is expected to be, one after the other. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hpc_llm.estimating.largest import largest_micro_batch
from hpc_llm.estimating.sizes import Sizes
from hpc_llm.estimating.step_time import StepTime, of_whole, step_time
from hpc_llm.estimating.time_constants import Calibration
from hpc_llm.estimating.walltime import Span, lasting
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.micro_batches import MicroBatches, micro_batches_of, plan_of_try, starting_at
from hpc_llm.site.cluster import Cluster

_SLOWER = 0.9
"""The search leaves off at a size with less than this part of the best rate."""


def sizes_on_the_way(sizes: MicroBatches, first: int, limit: int) -> list[int]:
    """The sizes that are tried until the largest one is known, which is `limit`; 0: none fits.

    >>> sizes_on_the_way(MicroBatches(), 4, 11), sizes_on_the_way(MicroBatches(), 4, 1), sizes_on_the_way(MicroBatches(8), 2, 8)
    ([4, 8, 16, 12, 10, 11], [4, 2, 1], [2, 4, 8])
    """
    tried, size = [], sizes.at_most(first)
    good, bad = 0, sizes.largest + 1
    while size is not None and size not in tried:
        tried.append(size)
        good, bad = (max(good, size), bad) if size <= limit else (good, min(bad, size))
        if good == 0:
            size = sizes.at_most(bad // 2)
        elif bad <= sizes.largest:
            size = sizes.between(good, bad)
        else:
            size = sizes.above(good) if sizes.at_most(2 * good) == good else sizes.at_most(2 * good)
    return tried


def search_time(plan: Plan, cluster: Cluster, sizes: Sizes, calibration: Calibration | None = None) -> StepTime | None:
    """The time of the plan's search; its step is that of the first try. None where steps are not timed, or nobody says what fits."""
    first, tries = step_time(plan, cluster, calibration=calibration), list(_tries(plan, cluster, sizes, calibration))
    if first is None or not tries:
        return None
    whole = sum((Span(one.run_time_s, *one.run_interval) for one in tries), Span(0.0, 0.0, 0.0))
    run = lasting(plan, Span.around(first.time_to_first_step_s, 1.0), whole, cluster)
    return replace(first, tries=len(tries), **of_whole(run))


def _tries(plan: Plan, cluster: Cluster, sizes: Sizes, calibration: Calibration | None) -> Iterator[StepTime]:
    """Each training of the search, as far as it is known beforehand; none where nobody says what there is to fit into."""
    can_be, first, before = micro_batches_of(plan), plan.batch.micro_batch_size, plan.batch.sequence_length
    for length in plan.tuning.lengths or [before]:
        largest = largest_micro_batch(starting_at(plan, 1, length), cluster, sizes)
        if largest is None:
            return
        limit = can_be.at_most(largest) or 0
        asked = [(size, False) for size in sizes_on_the_way(can_be, max(1, first * before // length), limit)]
        if limit:
            asked.append((limit, True))
        for size, confirms in asked:
            yield from _timed(plan_of_try(plan, size, length, confirms=confirms), cluster, calibration)
        if limit and not plan.tuning.lengths:
            yield from _towards_the_fastest(plan, can_be, limit, cluster, calibration)
        first, before = limit, length


def _towards_the_fastest(
    plan: Plan, can_be: MicroBatches, limit: int, cluster: Cluster, calibration: Calibration | None
) -> Iterator[StepTime]:
    """Ever smaller sizes, as long as they are not clearly slower, and the fastest once more for longer."""
    length, size = plan.batch.sequence_length, limit
    rates: dict[int, float] = {}
    while size:
        timed = list(_timed(plan_of_try(plan, size, length, confirms=False), cluster, calibration))
        rates[size] = max((one.tokens_per_second for one in timed), default=0.0)
        if size < limit:  # the largest was tried on the way
            yield from timed
        if rates[size] < _SLOWER * max(rates.values()):
            break
        size = can_be.at_most(size // 2) or 0
    fastest = max(rates, key=lambda one: rates[one])
    if fastest != limit:
        yield from _timed(plan_of_try(plan, fastest, length, confirms=True), cluster, calibration)


def _timed(plan: Plan, cluster: Cluster, calibration: Calibration | None) -> Iterator[StepTime]:
    found = step_time(plan, cluster, calibration=calibration)
    if found is not None:
        yield found
