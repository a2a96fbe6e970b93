"""How long a search for the micro batch takes beforehand, counted as the search itself goes."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.estimating.search_time import sizes_on_the_way
from hpc_llm.planning.micro_batches import MicroBatches
from hpc_llm.worker.searching.choice import Known, next_at
from hpc_llm.worker.searching.tries import Try, TryOutcome


def search(sizes: MicroBatches, first: int, limit: int) -> list[int]:
    """The sizes that the search itself tries until the largest is known, where all up to `limit` fit."""
    tries: list[Try] = []
    while True:
        wanted = next_at(Known(512, sizes, tries), first, looks_for_fastest=False)
        if wanted is None or wanted.confirms:
            return [one.size for one in tries]
        verdict = TryOutcome.FITS if wanted.size <= limit else TryOutcome.MEMORY
        one = Try(
            number=len(tries) + 1,
            folder=Path(),
            size=wanted.size,
            length=512,
            confirms=False,
            verdict=verdict,
            peaks={},
        )
        tries.append(one)


@pytest.mark.parametrize("share", [None, 24, 64, 7])
def test_the_sizes_are_those_that_the_search_tries(share: int | None) -> None:
    sizes = MicroBatches(share)
    for first in (1, 2, 3, 8, 24, 50):
        begins = sizes.at_most(first) or 1
        for limit in (*range(13), 31, 32, 33, 64):
            limit_there = sizes.at_most(limit) or 0
            assert sizes_on_the_way(sizes, begins, limit_there) == search(sizes, begins, limit_there), (first, limit)


def test_a_search_takes_as_long_as_its_trainings_together() -> None:
    [one] = hpc_llm.estimate(cluster="delta", method="z3", model="llama2-7b", micro_batch_size=4)
    [search] = hpc_llm.estimate(cluster="delta", method="z3", model="llama2-7b", micro_batch_size=4, task="tune")
    assert one.time is not None and search.time is not None and search.time.tries is not None
    assert one.time.tries is None and search.time.tries > 5
    least = search.time.tries * search.time.time_to_first_step_s
    assert search.time.run_time_s > least
    assert search.time.run_interval[0] < search.time.run_time_s < search.time.run_interval[1]
    assert search.time.proposed_time_s > search.time.run_interval[1]
    assert search.time.gpu_hours == pytest.approx(search.time.run_time_s * 4 / 3600)
    [longer] = hpc_llm.estimate(
        cluster="delta", method="z3", model="llama2-7b", task="tune", over="sequence-length=512,1024,2048"
    )
    [once] = hpc_llm.estimate(cluster="delta", method="z3", model="llama2-7b", task="tune", over="sequence-length=512")
    assert longer.time is not None and once.time is not None
    assert longer.time.run_time_s > 1.5 * once.time.run_time_s


def test_a_search_without_a_gpu_is_not_timed() -> None:
    [found] = hpc_llm.estimate(cluster="local", method="ddp", model="tiny", task="tune")
    assert found.time is None
    assert any(note.startswith("no time is given: steps on a CPU") for note in found.all_notes)
