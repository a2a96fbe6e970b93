"""One training that a log tells twice is one row, and two trainings stay two."""

from __future__ import annotations

import json
import pprint
from collections.abc import Callable
from typing import Any

import pytest

from hpc_llm.parsing import Reading, Row, Step, told_steps
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.told import MOST, Told
from tests.parse.test_notebook_displays import EVALUATED, display, notebook, stream

TIME = 1234.5678
Entry = dict[str, Any]


def history(
    every: int = 20, last: int = 200, time: float | None = TIME, shift: float = 0.0, total: int = 210
) -> list[Entry]:
    """What the Trainer keeps: a loss every so many steps, an evaluation each 100, and its summary."""
    entries: list[Entry] = []
    for step in range(every, last + 1, every):
        place = {"epoch": 3 * step / total, "step": step}
        entries.append(
            {
                "loss": round(5 - step / 100 + step % 7 / 9.13 + shift, 4),
                "grad_norm": 1.25,
                "learning_rate": 2e-05,
                **place,
            }
        )
        if step % 100 == 0:
            entries.append({"eval_loss": 4.98765432 - step / 150 + shift, "eval_runtime": 2.5, **place})
    if time is not None:
        end = {
            "train_runtime": time,
            "train_steps_per_second": round(total / time, 3),
            "train_loss": 3.21,
            "epoch": 3.0,
        }
        entries.append({**end, "step": total})
    return entries


def printed(entries: list[Entry], digits: int = 2) -> str:
    """The Trainer's lines of them."""
    lines = [{k: round(v, digits) if k == "epoch" else v for k, v in one.items() if k != "step"} for one in entries]
    return "\n".join(map(str, lines)) + "\n"


def one_a_line(entries: list[Entry]) -> str:
    return "\n".join(map(str, entries)) + "\n"


def table(entries: list[Entry], total: int = 210, state: str | None = None) -> dict[str, Any]:
    """The display of a notebook: a row an evaluation."""
    losses = {one["step"]: one["loss"] for one in entries if "loss" in one}
    rows = [
        (one["step"], f"{losses[one['step']]:.6f}", f"{one['eval_loss']:.6f}") for one in entries if "eval_loss" in one
    ]
    return display(rows, state or f"{total}/{total} 20:34, Epoch 3/3", EVALUATED)


def told(rows: list[Row]) -> list[tuple[float | None, ...]]:
    return [(row.loss_first, row.loss_last, row.elapsed_s) for row in rows]


FIRST, LAST = 5.4572, 3.4381
ONE = [(FIRST, LAST, TIME)]


@pytest.mark.parametrize("metrics", [True, False])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("show", [one_a_line, str, lambda one: f"log: {one}"])
def test_a_table_and_the_history_below_it_are_one_training(
    read: Callable[..., Reading],
    steps: Callable[..., list[Step]],
    show: Callable[[list[Entry]], str],
    apart: bool,
    metrics: bool,
) -> None:
    entries = history()
    below = [stream(show(entries) + "\n")]
    above = [table(entries), *([stream(printed(entries[-1:]))] if metrics else [])]
    text = notebook(*([above, below] if apart else [[*above, *below]]))
    rows = read(text, "n.ipynb").rows
    assert told(rows) == ONE
    assert (rows[0].measured_steps, rows[0].eval_loss) == (210, pytest.approx(3.654321, abs=1e-6))
    assert [(one.run_id, one.step) for one in steps(text, "n.ipynb")] == [("n", 20 * k) for k in range(1, 11)]


def test_each_training_of_a_notebook_has_its_history(
    read: Callable[..., Reading], steps: Callable[..., list[Step]]
) -> None:
    trainings = [history(), history(shift=0.25, time=1240.0625), history(every=50, time=999.1251)]
    text = notebook(*([table(one), stream(one_a_line(one))] for one in trainings))
    assert told(read(text, "n.ipynb").rows) == [
        (FIRST, LAST, TIME),
        (5.7072, 3.6881, 1240.0625),
        (4.6095, 3.4381, 999.1251),
    ]
    assert [one.run_id for one in steps(text, "n.ipynb")] == ["n"] * 10 + ["n#2"] * 10 + ["n#3"] * 4


@pytest.mark.parametrize(
    "show",
    [
        one_a_line,
        str,
        pprint.pformat,
        lambda one: pprint.pformat(one, sort_dicts=False),
        json.dumps,
        lambda one: json.dumps(one, indent=2),
    ],
)
def test_the_lines_of_training_and_the_history_behind_them_are_one(
    read: Callable[..., Reading], steps: Callable[..., list[Step]], show: Callable[[list[Entry]], str]
) -> None:
    text = printed(history()) + show(history()) + "\n"
    assert told(read(text).rows) == ONE
    assert len(steps(text)) == 10


def test_histories_that_are_printed_at_the_end_are_those_of_their_trainings(
    read: Callable[..., Reading], steps: Callable[..., list[Step]]
) -> None:
    one, other = history(), history(shift=0.5, time=1300.4321)
    text = printed(one) + printed(other) + f"{one}\n{other}\n"
    assert told(read(text).rows) == [*ONE, (5.9572, 3.9381, 1300.4321)]
    assert [step.run_id for step in steps(text)] == ["job"] * 10 + ["job#2"] * 10


def test_metrics_behind_the_summary_are_no_training(read: Callable[..., Reading]) -> None:
    entries = history()
    metrics = printed(entries[-1:])
    output = f"TrainOutput(global_step=210, training_loss=3.21, metrics={metrics.strip()})\n"
    assert told(read(printed(entries) + metrics + output).rows) == ONE
    assert len(read(notebook([table(entries), stream(metrics)], [stream(metrics)]), "n.ipynb").rows) == 1
    cells = [[stream(output)], [stream(metrics)], [stream(one_a_line(entries))]]
    assert told(read(notebook(*cells), "n.ipynb").rows) == ONE


@pytest.mark.parametrize("show", [printed, one_a_line])
def test_trainings_with_the_same_seeds_are_two(
    read: Callable[..., Reading], show: Callable[[list[Entry]], str]
) -> None:
    text = show(history()) + show(history(time=TIME + 0.0003))
    assert [row.elapsed_s for row in read(text).rows] == [TIME, TIME + 0.0003]
    cells = [[table(history()), stream(show(history()))], [stream(one_a_line(history(time=1250.5)))]]
    times = [row.elapsed_s for row in read(notebook(*cells), "n.ipynb").rows]
    assert times == ([None, TIME, 1250.5] if show is printed else [TIME, 1250.5])  # the table may be of either


def test_the_history_of_another_training_is_another_row(
    read: Callable[..., Reading], steps: Callable[..., list[Step]]
) -> None:
    """Of as many steps, with another time or, where one tells none, other losses."""
    entries, other = history(), history(shift=0.0007, time=1234.5679)
    for above in ([table(entries)], [table(entries), stream(printed(entries[-1:]))]):
        text = notebook([*above, stream(one_a_line(other))])
        assert [row.loss_last for row in read(text, "n.ipynb").rows] == [LAST, 3.4388]
        assert len(steps(text, "n.ipynb")) == 13
    same_time = history(shift=0.5)
    assert len(read(printed(entries) + one_a_line(same_time)).rows) == 2


def test_a_training_that_broke_off_is_not_the_one_that_was_begun_anew(read: Callable[..., Reading]) -> None:
    whole = history()
    broken = [one for one in whole if one["step"] <= 100]
    shown = table(broken, state="130/210 12:00 < 09:00, 0.1 it/s, Epoch 1.8/3")
    assert len(read(notebook([shown, stream(one_a_line(whole))]), "n.ipynb").rows) == 2
    assert len(read(printed(broken) + one_a_line(whole)).rows) == 2


def test_what_broke_off_and_its_history_are_one(read: Callable[..., Reading], steps: Callable[..., list[Step]]) -> None:
    text = printed(history(time=None)) + one_a_line(history(time=None))
    assert told(read(text).rows) == [(FIRST, LAST, None)]
    assert len(steps(text)) == 10


def test_the_history_of_a_resumed_training_tells_steps_that_it_did_not_do(read: Callable[..., Reading]) -> None:
    entries = history()
    text = printed([one for one in entries if one["step"] > 100]) + one_a_line(entries)
    (row,) = read(text).rows
    assert (row.loss_first, row.loss_last) == (next(one["loss"] for one in entries if one["step"] == 120), LAST)


def test_values_of_four_digits_are_those_of_the_history(read: Callable[..., Reading]) -> None:
    """As transformers 5 prints them."""
    entries = history(shift=0.0123)
    rounded = [{k: f"{v:.4g}" for k, v in one.items() if k != "step"} for one in entries]
    assert len(read("\n".join(map(str, rounded)) + "\n" + one_a_line(entries)).rows) == 1
    other = history(shift=0.0183)
    assert len(read("\n".join(map(str, rounded)) + "\n" + one_a_line(other)).rows) == 2


def test_what_fails_behind_the_history_is_told(read: Callable[..., Reading]) -> None:
    entries = history()
    failed = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    save()\nOSError: [Errno 28] No space left on device\n'
    alone, behind = (
        read(printed(entries) + failed).rows[0],
        read(printed(entries) + one_a_line(entries) + failed).rows[0],
    )
    assert (behind.outcome, behind.cause, behind.outcome_reason) == (alone.outcome, alone.cause, alone.outcome_reason)


def test_lines_are_kept_within_bounds() -> None:
    told = Told()
    told.add([1.0] * 3 * MOST, range(3 * MOST))
    told.merge(told)
    assert (len(told.places), len(told.losses), told.count, told.is_whole) == (MOST, MOST, 6 * MOST, False)


def test_steps_are_held_back_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_steps, "MOST_HELD", 2)
    told, run = told_steps.ToldSteps(whole=False), LogRun()
    run.losses.count([2.5], [1.0], 0.25)
    given = []
    for step in range(4):
        told.see(run, 0, {"step": step})
        given.append(len(list(told.ready())))
    assert (given, list(told.rest())) == ([0, 0, 3, 0], [(0, {"step": 3})])


def test_a_history_of_many_lines_is_known(read: Callable[..., Reading], steps: Callable[..., list[Step]]) -> None:
    entries = history(every=1, last=2100, total=2100)
    assert told(read(printed(entries, 4) + one_a_line(entries)).rows) == [
        (entries[0]["loss"], entries[-3]["loss"], TIME)
    ]
    assert len(steps(printed(entries, 4) + one_a_line(entries))) == 2100
