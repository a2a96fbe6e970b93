"""Token batches that are made up: learnable, the same for the same seed, and never twice."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from tiny_plans import make_plan

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data import MASKED, batches, count_targets
from hpc_llm.worker.ranks import Ranks

CPU = torch.device("cpu")


def ranks(rank: int = 0, world_size: int = 1) -> Ranks:
    return Ranks(rank, world_size, rank, world_size, "127.0.0.1", 0, "python")


def made_up(plan: Plan, count: int, share: Ranks | None = None) -> torch.Tensor:
    """The first `count` micro batches of made-up tokens, one after the other."""
    return torch.cat(
        [batch["input_ids"] for batch in itertools.islice(batches(plan, 512, share or ranks(), CPU), count)]
    )


def test_made_up_tokens_repeat_with_the_seed_and_differ_between_ranks() -> None:
    plan = make_plan(micro_batch_size=2, sequence_length=32, world_size=2)
    first, again, other = (made_up(plan, 1, ranks(rank, 2)) for rank in (0, 0, 1))
    assert first.shape == (2, 32)
    assert first.dtype == torch.int64
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0 <= int(first.min()) <= int(first.max()) < 512


def test_ranks_that_share_a_batch_get_the_same_tokens() -> None:
    plan = make_plan(world_size=4, data_parallel=2)
    drawn = [made_up(plan, 2, ranks(rank, 4)) for rank in range(4)]
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[2], drawn[3])
    assert not torch.equal(drawn[0], drawn[2])


def test_made_up_tokens_do_not_depend_on_how_they_are_batched() -> None:
    one, four = (make_plan(micro_batch_size=size, sequence_length=32) for size in (1, 4))
    assert torch.equal(made_up(one, 8), made_up(four, 2))


def test_the_entropy_of_made_up_tokens_is_what_the_plan_says() -> None:
    """Counted from the pairs that occur; the entropy of counts is low by about (cells) / (2 x pairs)."""
    plan = make_plan(micro_batch_size=64, sequence_length=1024, seed=5)
    tokens = made_up(plan, 8)
    pairs = Counter(zip(tokens[:, :-1].flatten().tolist(), tokens[:, 1:].flatten().tolist(), strict=True))
    singles: Counter[int] = Counter()
    for (first, _), count in pairs.items():
        singles[first] += count
    total = sum(pairs.values())
    entropy = -sum(count / total * math.log(count / singles[first]) for (first, _), count in pairs.items())
    assert entropy == pytest.approx(plan.workload.loss_floor_nats, abs=2e-3)
    assert (len(singles), len(pairs)) == (64, 256)
    assert max(singles.values()) < 1.1 * min(singles.values())  # no token alone is a good guess


def test_made_up_tokens_never_come_again() -> None:
    plan = make_plan(micro_batch_size=64, sequence_length=64)
    drawn = made_up(plan, 80)  # more than one chunk
    assert len(drawn.unique(dim=0)) == len(drawn)


def test_a_batch_says_how_many_tokens_it_predicts() -> None:
    tokens = torch.arange(8).view(2, 4)
    assert count_targets({"input_ids": tokens}) == 6
    assert int(count_targets({"input_ids": tokens, "labels": torch.tensor([[1, 2, MASKED, 4], [MASKED] * 4])})) == 2


def test_a_plan_whose_data_were_not_prepared_trains_nothing() -> None:
    with pytest.raises(WorkerError, match=r"names data, a\.txt, and not where they were prepared"):
        next(batches(make_plan(data=["a.txt"]), 512, ranks(), CPU))
