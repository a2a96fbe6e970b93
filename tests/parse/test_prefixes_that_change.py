"""Logs in which the prefix of a rank's lines is not the same throughout: none of its steps is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Row

STEPS = 40


def step(number: int) -> str:
    return (
        f" iteration {number:8}/     100 | elapsed time per iteration (ms): {900.0 + number % 7} | learning rate: 1.0E-04 |"
        f" global batch size:   256 | lm loss: {10.0 - number / 10:.3E} | loss scale: 1.0 | grad norm: 1.2 |\n"
    )


def lines(prefix: Callable[[int], str]) -> str:
    return "".join(prefix(number) + step(number) for number in range(1, STEPS + 1))


WAYS: dict[str, Callable[[int], str]] = {
    "glued to a bar": lambda n: "Loading: 40%|####      | 2/5 [00:01<00:02] 0: " if n == 1 else "0: ",
    "glued to a warning": lambda n: "[W801 10:00:05.1 Utils.hpp:136] Warning: x is deprecated [default0]:" if n == 1 else "[default0]:",
    "bare at first": lambda n: "" if n == 1 else "0: ",
    "bare twice at first": lambda n: "" if n <= 2 else "[rank0]: ",
    "a mark of the encoding": lambda n: "\ufeff[default0]:" if n == 1 else "[default0]:",
    "bare at the end": lambda n: "0: " if n < 30 else "",
    "bare for the last two": lambda n: "0: " if n < 39 else "",
    "two styles": lambda n: "0: " if n < 20 else "[rank0]: ",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_step_is_lost_where_the_prefix_changes(row: Callable[..., Row], way: str) -> None:
    right, found = row(lines(lambda _: "0: ")), row(lines(WAYS[way]))
    for column in ("loss_first", "loss_last", "step_time_s_mean", "measured_steps", "outcome_reason"):
        assert getattr(found, column) == getattr(right, column), column


@pytest.mark.parametrize("block", [1, 4, 20, 40])
@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_that_print_the_same_in_blocks_are_one_run(row: Callable[..., Row], ranks: int, block: int) -> None:
    """Output of a process that is kept back until a buffer is full comes in blocks."""
    text = "".join(
        f"{rank}: {step(number)}"
        for first in range(1, STEPS + 1, block)
        for rank in range(ranks)
        for number in range(first, first + block)
    )
    right, found = row(lines(lambda _: "0: ")), row(text)
    assert (found.loss_last, found.measured_steps, found.step_time_s_mean) == (
        right.loss_last, right.measured_steps, right.step_time_s_mean,
    )  # fmt: skip


@pytest.mark.parametrize("ranks", [3, 8, 16, 64])
def test_ranks_without_a_prefix_that_print_the_same_line_are_one_run(row: Callable[..., Row], ranks: int) -> None:
    right = row(lines(lambda _: ""))
    found = row("".join(step(number) * ranks for number in range(1, STEPS + 1)))
    assert (found.loss_last, found.measured_steps, found.step_time_s_mean) == (
        right.loss_last, right.measured_steps, right.step_time_s_mean,
    )  # fmt: skip


TRAINER = "".join(f"{{'loss': {3 - n / 10:.2f}, 'learning_rate': 1e-5, 'epoch': {n / 10:.2f}}}\n" for n in range(1, 11))
SUMMARY = "{{'train_runtime': {0}, 'train_samples_per_second': {1}, 'train_steps_per_second': {2}, 'train_loss': 2.0, 'epoch': 1.0}}\n"


def test_a_second_start_that_finds_nothing_to_do_changes_no_figure(row: Callable[..., Row]) -> None:
    first = SUMMARY.format(100.0, 10.0, 1.25)
    right, found = row(TRAINER + first), row(TRAINER + first + SUMMARY.format(1.0, 1000.0, 125.0))
    assert (found.elapsed_s, found.step_time_s_mean, found.outcome) == (100.0, 0.8, "COMPLETED")
    assert (right.elapsed_s, right.step_time_s_mean) == (100.0, 0.8)


@pytest.mark.parametrize("label", ["sample: ", "Prompt: ", "generated text: ", "# ", "Response 3: ", "0: output: "])
def test_a_sample_that_quotes_a_step_is_none(row: Callable[..., Row], label: str) -> None:
    summary = SUMMARY.format(100.0, 10.0, 1.25)
    quoted = f"{label}{{'loss': 0.0001, 'learning_rate': 1e-5, 'epoch': 0.99}}\n"
    found = row(TRAINER + quoted + summary)
    assert (found.loss_first, found.loss_last, found.elapsed_s, found.outcome) == (2.9, 2.0, 100.0, "COMPLETED")
