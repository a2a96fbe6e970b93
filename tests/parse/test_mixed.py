"""Several runs that print into one file in turns: none of their figures is a run's, and the row says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from hpc_llm.errors import PassedOverWarning
from hpc_llm.parsing import COLUMNS, Reading, Step

KEPT = {"run_id", "source", "format", "kind", "outcome", "outcome_reason", "cause", "cause_confidence"}


def homework(step: int, total: int = 40, loss: float = 6.5) -> str:
    return f"[Step {step}/{total}] Loss: {loss - step / 100:.4f} | Global Tokens/s: 1000.0 | GPU Mem (GB): 3.10 | Peak Mem: 4.25\n"


def megatron(step: int, total: int = 100, batch: int = 8) -> str:
    return (
        f" iteration {step:8}/{total:8} | consumed samples: {step * batch:12} | elapsed time per iteration (ms): 100.0 |"
        f" learning rate: 1.5E-04 | global batch size: {batch:5} | lm loss: {9 - step / 10:.6E} | loss scale: 1.0 |\n"
    )


def trainer(epoch: float) -> str:
    return f"{{'loss': {9 - epoch:.4f}, 'grad_norm': 0.75, 'learning_rate': 4e-05, 'epoch': {epoch:.2f}}}\n"


def factory(step: int) -> str:
    time = f"0:{step // 6:02}:{step % 6 * 10:02}"
    return f'{{"current_steps": {10 * step}, "total_steps": 900, "loss": {9 - step / 10:.4f}, "lr": 1e-05, "epoch": {step / 9:.2f}, "percentage": 1.0, "elapsed_time": "{time}"}}\n'


def in_turns(*runs: Iterable[str]) -> str:
    return "".join("".join(lines) for lines in zip(*runs, strict=True))


def by(size: int, one: list[str], other: list[str]) -> str:
    """Some lines of one, then some of the other."""
    parts = ([run[at : at + size] for run in (one, other)] for at in range(0, len(one), size))
    return "".join(line for pair in parts for part in pair for line in part)


SMALL = [homework(step) for step in range(1, 31)]
MIXED = {
    "two programs": in_turns(SMALL, map(megatron, range(1, 31))),
    "two programs, one far ahead": in_turns(map(homework, range(10, 40)), map(megatron, range(60, 90))),
    "a dictionary and lines": in_turns(SMALL, (trainer(step / 50) for step in range(1, 31))),
    "two totals": in_turns(SMALL, (homework(step, 60) for step in range(1, 31))),
    "two totals, a few steps behind": in_turns(map(homework, range(4, 34)), (homework(step, 60) for step in range(1, 31))),
    "two batches": in_turns((megatron(step, batch=8) for step in range(1, 31)), (megatron(step, batch=16) for step in range(1, 31))),
    "a line behind, with whole seconds": in_turns(map(factory, range(13, 43)), map(factory, range(12, 42))),
    "one begins later": "".join(SMALL) + in_turns(map(homework, range(31, 61)), SMALL),
    "one far ahead": in_turns(map(homework, range(11, 41)), SMALL),
    "one pace and one total": in_turns(SMALL, (homework(step, loss=7.5) for step in range(1, 31))),
    "several lines at a time": by(3, SMALL, [homework(step) for step in range(101, 131)]),
    "epochs": in_turns((trainer(step / 50) for step in range(1, 31)), (trainer(2 + step / 50) for step in range(1, 31))),
}  # fmt: skip
END = "Training done in 40.50 seconds.\nAvg Global Tokens/s: 1000.0\n"


@pytest.mark.parametrize("text", MIXED.values(), ids=MIXED.keys())
@pytest.mark.parametrize("end", ["", END], ids=["", "one ended"])
def test_no_figure_of_runs_that_print_in_turns_is_taken(read: Callable[..., Reading], text: str, end: str) -> None:
    reading = read(text + end + SMALL[-1])
    (row,) = reading.rows
    said = {name for name in COLUMNS if row.to_dict()[name] is not None}
    assert said <= KEPT, said
    assert (row.outcome, row.cause) == ("UNKNOWN", "unknown")
    assert reading.left_empty == [row.outcome_reason] and "more than one run stand here mixed" in str(
        row.outcome_reason
    )


def test_a_message_of_a_failure_is_told_of_them_still(read: Callable[..., Reading]) -> None:
    crash = 'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: gone\n'
    (row,) = read(MIXED["two programs"] + crash).rows
    assert (row.outcome, row.loss_last) == ("FAILED", None)


def test_their_steps_are_not_handed_out_as_one_runs(steps: Callable[..., list[Step]]) -> None:
    with pytest.warns(PassedOverWarning, match="more than one run stand here mixed"):
        assert len(steps(MIXED["two programs"])) < 6


def resumed(*parts: range) -> str:
    return "".join(homework(step) for part in parts for step in part)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (resumed(range(1, 20), range(11, 30)), 2),
        (resumed(range(1, 20), range(11, 25), range(15, 40)), 3),
        (resumed(*[range(at, at + 2) for at in range(1, 20)]), 1),
        (resumed(*[range(1, 11)] * 5), 5),
        ("".join(resumed(range(at, at + 11, 5)) for at in (5, 11, 16, 22, 27)), 3),
        ("".join(homework(step) + homework(step) for step in range(1, 31)), 1),
        ("".join(f"{rank}: {homework(step, loss=6 + rank)}" for step in range(1, 31) for rank in range(4)), 1),
        (in_turns((f"0: {homework(step)}" for step in range(21, 41)), (f"1: {homework(step)}" for step in range(1, 21))), 1),
        ("".join(SMALL) + "".join(map(megatron, range(1, 31))), 2),
    ],
    ids=["resumed", "resumed twice", "of a crash loop", "again", "crash loop off the grid", "ranks", "ranks with prefix",
         "a rank behind", "one after the other"],
)  # fmt: skip
def test_runs_that_follow_each_other_and_ranks_keep_their_rows(
    read: Callable[..., Reading], text: str, rows: int
) -> None:
    reading = read(text)
    assert len(reading.rows) == rows and not reading.left_empty
    assert all(row.loss_first is not None and row.loss_last is not None for row in reading.rows)


RANK = "[Step {0}/40] Loss: {1:.4f} | Tokens/s: {2:.2f} | GPU Mem (GB): 26.79 | Peak Mem: 33.51\n"
LAUNCHED = "[2026-01-01 08:40:17,790] [INFO] [launch.py:164:main] dist_world_size={0}\n"


@pytest.mark.parametrize(
    ("head", "mixed"), [(LAUNCHED.format(2), False), (LAUNCHED.format(1), True), ("", True)], ids=["2", "1", "unknown"]
)
def test_ranks_that_print_each_its_own_loss_are_one_run(read: Callable[..., Reading], head: str, mixed: bool) -> None:
    text = "".join(RANK.format(i, 5 - i / 50, 130) + RANK.format(i, 5.2 - i / 60, 131) for i in range(30))
    [row] = read(head + text).rows
    assert ("more than one run" in str(row.outcome_reason)) == mixed
    assert (row.loss_first, row.peak_allocated_bytes is None) == (None if mixed else 5.0, mixed)


def test_lines_of_all_ranks_together_are_printed_once(read: Callable[..., Reading]) -> None:
    """`Global Tokens/s` is what one rank prints for all, however many there are."""
    [row] = read(LAUNCHED.format(2) + MIXED["one pace and one total"]).rows
    assert "more than one run" in str(row.outcome_reason)


def factory(step: int, loss: float) -> str:
    clock = f"0:{step // 60:02}:{step % 60:02}"
    return f'{{"current_steps": {step}, "total_steps": 1000, "loss": {loss - step / 100:.4f}, "lr": 1e-05, "epoch": 0.1, "elapsed_time": "{clock}"}}\n'


def titan(step: int, loss: float) -> str:
    return (
        f"[titan] - root - INFO - step: {step:2}  loss: {loss - step / 100:.4f}  memory: 40.00GiB(50.00%)  tps: 1,000\n"
    )


def place(step: int, loss: float, each: float = 0.01) -> str:
    return (
        f"{{'loss': {loss - step / 100:.4f}, 'grad_norm': 0.75, 'learning_rate': 1e-05, 'epoch': {step * each:.2f}}}\n"
    )


def megatron_of(step: int, loss: float) -> str:
    return megatron(step).replace(f"lm loss: {9 - step / 10:.6E}", f"lm loss: {loss - step / 100:.6E}")


def behind(line: Callable[[int, float], str], lag: int, jitter: int = 0) -> str:
    """Two runs of one program, the second `lag` steps behind, or now before and now behind the other."""
    events = [(float(step), line(step, 5.0)) for step in range(1, 60)]
    events += [(step + lag + 0.5 - jitter * (step % 4 == 0), line(step, 7.0)) for step in range(1, 60)]
    return "".join(text for _, text in sorted(events, key=lambda event: event[0]))


@pytest.mark.parametrize("line", [factory, titan, place, megatron_of])
@pytest.mark.parametrize(("lag", "jitter"), [(0, 0), (1, 0), (2, 0), (3, 0), (7, 0), (0, 1)])
def test_two_runs_of_one_program_are_no_copies_however_far_apart(
    read: Callable[..., Reading], line: Callable[[int, float], str], lag: int, jitter: int
) -> None:
    [row] = read(behind(line, lag, jitter)).rows
    assert "stand here mixed" in (row.outcome_reason or "")
    assert {name for name, value in row.to_dict().items() if value is not None} <= KEPT


def test_two_trainings_with_their_headers_and_summaries_are_told_by_their_lines(read: Callable[..., Reading]) -> None:
    """Losses that cross, at places of a hundredth of an epoch: no step has two lines."""
    head = "***** Running training *****\n  Num examples = 800\n  Total optimization steps = 60\n"
    lines = [place(step, 5.0 + other * 0.02 * (step % 3 - 1)) for step in range(1, 61) for other in (0, 1)]
    ends = [
        f"{{'train_runtime': {seconds}, 'train_steps_per_second': {60 / seconds:.3f}, 'epoch': 0.6}}\n"
        for seconds in (100.0, 150.0)
    ]
    [row] = read(head + head + "".join(lines) + "".join(ends)).rows
    assert row.loss_first is row.loss_last is row.elapsed_s is row.step_time_s_mean is None
    few = [place(step, 5.0 + other * 0.2 * (-1) ** step, 0.05) for step in range(1, 21) for other in (0, 1)]
    [row] = read("".join(few)).rows
    assert "each step has two losses" in (row.outcome_reason or "")


def test_lines_of_one_run_that_share_a_place_are_its_own(read: Callable[..., Reading]) -> None:
    """Of an epoch of many steps two digits are printed, and losses go up and down."""
    lines = [
        f"{{'loss': {5 + 0.3 * (-1) ** step - step / 999:.4f}, 'grad_norm': 0.75, 'learning_rate': {1e-5 - step * 1e-8:.3e}, 'epoch': {step / 200:.2f}}}\n"
        for step in range(1, 150)
    ]
    [row] = read("".join(lines)).rows
    assert row.loss_first is not None and row.loss_last is not None
    # One that begins again twice repeats what it has lost, one step behind the other.
    again = [
        megatron_of(step, 5.0 + part / 10)
        for part, steps in enumerate((range(1, 30), range(20, 40), range(30, 60)))
        for step in steps
    ]
    assert all("mixed" not in (row.outcome_reason or "") for row in read("".join(again)).rows)
