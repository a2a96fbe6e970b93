"""Files of JSON lines that one process writes alone: what stands in them twice is another program's, or another training's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

Line = tuple[int, float, int]
"""Step, loss, seconds since the start."""


def factory(lines: Iterable[Line], total: int = 400, epoch: float = 100.0) -> str:
    return "".join(
        json.dumps(
            {"current_steps": step, "total_steps": total, "loss": loss, "lr": 1e-5, "epoch": step / epoch, "elapsed_time": f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}"}
        )
        + "\n"
        for step, loss, s in lines
    )  # fmt: skip


def swift(lines: Iterable[Line], total: int = 400) -> str:
    return "".join(
        json.dumps({"loss": loss, "global_step/max_steps": f"{step}/{total}", "elapsed_time": f"{s // 60}m {s % 60}s"})
        + "\n"
        for step, loss, s in lines
    )


def steps(first: int, last: int, began: int = 0, pace: int = 20, off: float = 0.0) -> list[Line]:
    """Every tenth step of a process that began behind step `began`."""
    return [(step, round(3 - step / 1000 + off, 4), (step - began) * pace // 10) for step in range(first, last + 1, 10)]


def in_turns(one: list[Line], other: list[Line], behind: int) -> list[Line]:
    """Two programs' lines, of the other one so many later."""
    late = [None] * behind
    return [line for pair in zip([*one, *late], [*late, *other], strict=True) for line in pair if line is not None]


@pytest.mark.parametrize("write", [factory, swift])
@pytest.mark.parametrize("off", [0.0, 0.0001])
@pytest.mark.parametrize(("behind", "later_s"), [(0, 1), (1, 21), (2, 45), (8, 160), (2, 5), (2, -20), (4, 0)])
def test_two_programs_that_write_one_file_have_no_figures(
    read, write: Callable[..., str], off: float, behind: int, later_s: int
) -> None:
    other = [(step, loss, s + later_s) for step, loss, s in steps(20, 300, off=off)]
    (row,) = read(write(in_turns(steps(20, 300), other, behind)), "trainer_log.jsonl").rows
    assert (row.loss_first, row.step_time_s_mean, row.elapsed_s) == (None, None, None)
    assert "more than one run" in (row.outcome_reason or "")


@pytest.mark.parametrize("write", [factory, swift])
def test_restarts_are_no_two_programs(read, write: Callable[..., str]) -> None:
    """Each goes on with a checkpoint, of which the one before had got some steps further."""
    lines = [*steps(10, 140), *steps(110, 150, 100, off=0.0001), *steps(110, 160, 100), *steps(110, 170, 100, off=0.0001), *steps(110, 180, 100), *steps(110, 400, 100)]  # fmt: skip
    rows = read(write(lines), "trainer_log.jsonl").rows
    assert all("more than one run" not in (row.outcome_reason or "") for row in rows)
    assert (rows[0].loss_first, rows[-1].loss_last, rows[-1].step_time_s_mean) == (2.99, 2.6, 2.0)


def test_lines_of_an_evaluation_and_of_the_end_are_no_second_ones(read) -> None:
    lines = factory(steps(10, 390)).splitlines(keepends=True)
    evaluated = (
        '{"current_steps": 200, "total_steps": 400, "eval_loss": 2.9, "epoch": 2.0, "elapsed_time": "0:07:00"}\n'
    )
    end = '{"current_steps": 390, "total_steps": 400, "epoch": 3.9, "elapsed_time": "0:13:30"}\n'
    (row,) = read("".join([*lines[:20], evaluated, *lines[20:], end, end]), "trainer_log.jsonl").rows
    assert (row.loss_last, row.eval_loss, row.step_time_s_mean) == (2.61, 2.9, 2.0)


ADDED = {"total": 900, "epoch": 500.0}


@pytest.mark.parametrize(
    ("settings", "means"),
    [
        (ADDED, [4.0, 1.0]),
        ({"total": 900, "epoch": 100.0}, [4.0, 1.0]),
        ({"total": 400, "epoch": 500.0}, [4.0, 1.0]),
        ({"total": 400, "epoch": 90.0}, [None]),  # goes on, with fewer steps an epoch
        ({"total": 400, "epoch": 100.0}, [2.5]),  # the same training, resumed
    ],
)
def test_a_training_with_other_settings_that_was_added_is_not_averaged(
    read, settings: dict[str, float], means: list[float | None]
) -> None:
    text = factory(steps(10, 200, pace=40)) + factory(steps(210, 400, 200, pace=10), **settings)
    rows = read(text, "trainer_log.jsonl").rows
    assert [row.step_time_s_mean for row in rows] == [
        None if mean is None else pytest.approx(mean, rel=0.02) for mean in means
    ]


@pytest.mark.parametrize(("last", "total_s"), [(400, 815), (398, 815), (400, 800)])
def test_the_line_at_the_end_is_the_time_of_all_and_of_no_step(read, last: int, total_s: int) -> None:
    """LLaMA-Factory writes it once the model is saved, for the last step, whether that was logged or not."""
    end = f'{{"current_steps": 400, "total_steps": 400, "epoch": 4.0, "percentage": 100.0, "elapsed_time": "0:{total_s // 60}:{total_s % 60:02}", "remaining_time": "0:00:00"}}\n'
    (row,) = read(factory(steps(2, last) if last < 400 else steps(10, 400)) + end, "trainer_log.jsonl").rows
    assert (row.elapsed_s, row.step_time_s_mean, row.outcome) == (float(total_s), 2.0, "COMPLETED")
