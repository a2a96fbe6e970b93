"""The progress bar of the next program in one file, up to its first line: it is none of the run before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading

MEGATRON = "".join(
    f" iteration {n}/ 100 | consumed samples: {16 * n} | elapsed time per iteration (ms): 400.0 | learning rate: 1.0E-04 | global batch size: 16"
    f" | lm loss: {9 - n / 100:.6E} | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
    for n in range(10, 101, 10)
)
ENDED = "[after training is done] datetime: 2026-11-20 11:00:00\n"
WITHOUT_BARS = "".join(
    f"{{'loss': {3 - n / 50}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.{n:02}}}\n" for n in range(1, 20)
)
FAILED = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\n    main()\nRuntimeError: no\n'


def bar(done: int, total: int = 200) -> str:
    at = f"{2 * done // 60:02}:{2 * done % 60:02}<{'?' if done == 0 else '06:00'},  {'?it/s' if done == 0 else '2.00s/it'}"
    return f"\r{100 * done // total:3}%|###   | {done}/{total} [{at}]"


TRAINER = "".join(
    bar(n) + (f"\n{{'loss': {3 - n / 100}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {n / 100}}}\n" if n and n % 10 == 0 else "")
    for n in range(201)
) + "{'train_runtime': 400.0, 'train_steps_per_second': 0.5, 'train_loss': 2.0, 'epoch': 2.0}\n"  # fmt: skip


@pytest.mark.parametrize(
    ("before", "outcome", "steps", "time_s"),
    [
        (MEGATRON + ENDED, "COMPLETED", 90, 0.4),
        (MEGATRON[: len(MEGATRON) // 2] + "\n" + FAILED, "FAILED", None, 0.4),
        (WITHOUT_BARS + FAILED, "FAILED", None, None),
    ],
)
def test_the_next_programs_bar_gives_the_run_before_no_time(
    read: Callable[..., Reading], before: str, outcome: str, steps: int | None, time_s: float | None
) -> None:
    first, second = read(before + TRAINER).rows
    assert (first.outcome, first.step_time_s_mean) == (outcome, time_s)
    assert steps is None or first.measured_steps == steps
    assert (second.outcome, second.step_time_s_mean, second.measured_steps) == ("COMPLETED", 2.0, 200)


def test_a_bar_behind_the_end_alone_is_no_run(read: Callable[..., Reading]) -> None:
    [row] = read(MEGATRON + ENDED + "".join(bar(n, 30) for n in range(31)) + "\n").rows
    assert (row.outcome, row.step_time_s_mean) == ("COMPLETED", 0.4)


def test_the_bars_of_standard_error_behind_the_output_are_the_runs(read: Callable[..., Reading]) -> None:
    summary = "{'train_runtime': 400.0, 'train_steps_per_second': 0.5, 'train_loss': 2.0, 'epoch': 0.2}\n"
    [row] = read(WITHOUT_BARS + summary + "".join(map(bar, range(201))) + "\n").rows
    assert row.outcome == "COMPLETED" and row.elapsed_s == 400.0
