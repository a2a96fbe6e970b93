"""Evaluations that a file tells between the end of one training and the first loss of the next: each is of the training that it evaluates."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from hpc_llm.parsing import Reading


def loss(epoch: float, value: float) -> str:
    return f"{{'loss': {value}, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n"


def evaluated(epoch: float, value: float) -> str:
    return f"{{'eval_loss': {value}, 'eval_runtime': 1.5, 'eval_steps_per_second': 40.5, 'epoch': {epoch}}}\n"


def summary(epoch: float, time: float) -> str:
    return f"{{'train_runtime': {time}, 'train_steps_per_second': 2.5, 'train_loss': 0.4, 'epoch': {epoch}}}\n"


def training(losses: Iterable[float], of_first: float = 2.0) -> str:
    return "".join(loss(epoch, of_first - epoch / 10) for epoch in losses)


FIRST = training((0.5, 1.0)) + evaluated(1.0, 0.9) + training((1.5, 2.0)) + evaluated(2.0, 0.8)
CRASH = 'Traceback (most recent call last):\n  File "tune.py", line 9, in <module>\n    main()\nOSError: gone\n'


def results(reading: Reading) -> list[tuple[float | None, float | None]]:
    return [(row.loss_first, row.eval_loss) for row in reading.rows]


@pytest.mark.parametrize(
    ("between", "second", "told"),
    [
        ("", evaluated(1.0, 0.5) + evaluated(2.0, 0.4) + loss(2.5, 0.3) + evaluated(3.0, 0.2), (0.8, 0.2)),
        ("", evaluated(4.0, 0.5) + loss(4.5, 0.3) + evaluated(5.0, 0.2), (0.8, 0.2)),
        ("", evaluated(2.0, 0.7) + loss(0.5, 0.3) + evaluated(1.0, 0.2), (0.7, 0.2)),
        ("", evaluated(2.0, 0.7) + evaluated(1.0, 0.6) + loss(1.5, 0.3), (0.7, 0.6)),
        ("", evaluated(2.0, 0.5) + loss(2.5, 0.3) + evaluated(3.0, 0.2), (0.8, 0.2)),
        ("Perplexity: 2.2\nNum of classes: 9\n", evaluated(0.25, 0.5) + loss(0.5, 0.3), (0.8, 0.5)),
    ],
    ids=["earlier", "later", "its own last one", "both", "of either", "words between"],
)  # fmt: skip
def test_an_evaluation_is_of_the_training_whose_epoch_it_tells(
    read: Callable[..., Reading], between: str, second: str, told: tuple[float, float]
) -> None:
    reading = read(FIRST + summary(2.0, 100.0) + between + second)
    assert tuple(value for _, value in results(reading)) == told
    assert reading.rows[1].loss_first == 0.3 and reading.rows[0].elapsed_s == 100.0


def test_a_result_that_may_be_of_either_is_empty_where_none_is_surely_its_own(read: Callable[..., Reading]) -> None:
    text = training((0.5, 1.0)) + summary(1.0, 100.0) + evaluated(1.0, 0.7) + training((1.5, 2.0), 0.5)
    reading = read(text)
    assert [value for _, value in results(reading)] == [None, None]
    assert any("eval_loss: two trainings may have come to it" in said for said in reading.left_empty)


def test_the_last_evaluation_behind_a_training_is_its_own(read: Callable[..., Reading]) -> None:
    [row] = read(FIRST + summary(2.0, 100.0) + evaluated(2.0, 0.7)).rows
    assert row.eval_loss == 0.7


def test_a_training_that_only_evaluated_is_one(read: Callable[..., Reading]) -> None:
    first, second = read(FIRST + summary(2.0, 100.0) + evaluated(1.0, 0.5) + CRASH).rows
    assert (first.outcome, first.eval_loss) == ("COMPLETED", 0.8)
    assert (second.outcome, second.eval_loss) == ("FAILED", 0.5)


def test_behind_a_failure_an_earlier_epoch_is_of_another_training(read: Callable[..., Reading]) -> None:
    text = FIRST + training((2.5,)) + CRASH + evaluated(1.0, 0.5) + training((1.5, 2.0), 0.4)
    assert [row.eval_loss for row in read(text).rows] == [0.8, 0.5]


def test_an_evaluation_that_another_rank_repeats_begins_no_training(read: Callable[..., Reading]) -> None:
    text = training((0.5, 1.0)) + evaluated(1.0, 0.9) + training((1.5,)) + evaluated(1.0, 0.9) + training((2.0,))
    [row] = read(text + summary(2.0, 100.0)).rows
    assert row.eval_loss == 0.9
