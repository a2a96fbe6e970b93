"""Token batches: learnable when made up, packed without loss or overlap when from text."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_plans import make_plan

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data import MASKED, batches, count_targets
from hpc_llm.worker.data.tokenizer import BYTE_END, find_tokenizer
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


def text_plan(tmp_path: Path, text: str, **changes: Any) -> Plan:
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    return make_plan(data=[str(path)], micro_batch_size=1, sequence_length=8, **changes)


def sequences(plan: Plan, rank: int, world_size: int, count: int) -> list[list[int]]:
    plan = plan.changed(world_size=world_size, data_parallel=world_size)
    stream = batches(plan, 512, ranks(rank, world_size), CPU)
    return [next(stream)["input_ids"][0].tolist() for _ in range(count)]


def test_text_is_packed_end_to_end_and_split_between_ranks(tmp_path: Path) -> None:
    text = "".join(f"line {number:03d}\n" for number in range(20))  # 180 bytes and the end: 22 sequences of 8
    plan = text_plan(tmp_path, text)
    whole = [*text.encode(), BYTE_END]
    expected = [whole[start : start + 8] for start in range(0, 176, 8)]
    shares = [sequences(plan, rank, 2, 11) for rank in (0, 1)]
    assert sorted(shares[0] + shares[1]) == sorted(expected)
    assert sorted(shares[0]) == sorted(expected[0::2])


def test_each_epoch_is_shuffled_anew_from_the_seed(tmp_path: Path) -> None:
    text = "".join(chr(97 + number % 26) * 8 for number in range(20))
    plan = text_plan(tmp_path, text)
    drawn = sequences(plan, 0, 1, 40)
    assert drawn == sequences(plan, 0, 1, 40)
    assert sorted(drawn[:20]) == sorted(drawn[20:])
    assert drawn[:20] != drawn[20:]
    assert drawn != sequences(text_plan(tmp_path, text, seed=8), 0, 1, 40)


def test_too_little_text_is_an_error_for_every_rank(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="2 ranks need at least 16 tokens"):
        sequences(text_plan(tmp_path, "short text"), 1, 2, 1)


def test_a_text_that_is_missing_is_named(tmp_path: Path) -> None:
    plan = make_plan(data=[str(tmp_path / "none.txt")])
    with pytest.raises(WorkerError, match=r"none\.txt cannot be read: No such file"):
        next(batches(plan, 512, ranks(), CPU))


def test_bytes_need_a_vocabulary_that_holds_them() -> None:
    with pytest.raises(RequestError, match="vocabulary of 200 is too small"):
        find_tokenizer("tiny", 200)


def test_a_checkpoint_folder_brings_its_tokenizer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<end>": 2, "<unk>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(tmp_path)
    tokenize, end = find_tokenizer(str(tmp_path), 512)
    assert list(tokenize("a b c a")) == [0, 1, 3, 0]
    assert end == 2
    narrow, _ = find_tokenizer(str(tmp_path), 3)
    with pytest.raises(WorkerError, match="gives token 3, its model has 3 tokens"):
        narrow("a b c")


def test_loaded_weights_are_not_fed_bytes(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="holds no tokenizer, and its model knows no other tokens"):
        find_tokenizer(str(tmp_path), 512, loaded=True)
    assert find_tokenizer(str(tmp_path), 512)[1] == BYTE_END
