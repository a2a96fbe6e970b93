"""What a notebook's display of the Trainer says: its table, how far training is, and that it evaluated."""

from __future__ import annotations

import json
from typing import Any

import pytest

LOSSES = [(100, "2.500000"), (200, "2.400000"), (300, "2.300000")]
END = "TrainOutput(global_step=318, training_loss=2.4, metrics={{'train_runtime': {}, 'train_steps_per_second': {}, 'epoch': 2.0}})"


def display(
    rows: list[tuple[Any, ...]], state: str, names: tuple[str, ...] = ("Step", "Training Loss")
) -> dict[str, Any]:
    cells = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in row)}</tr>" for row in rows)
    head = "".join(f"<th>{name}</th>" for name in names)
    markup = (
        f"<div><progress value='1' max='318'></progress>\n [{state}]\n</div>\n<table><tr>{head}</tr>{cells}</table><p>"
    )
    return {
        "output_type": "display_data",
        "data": {"text/html": [markup], "text/plain": ["<IPython.core.display.HTML object>"]},
    }


def result(text: str) -> dict[str, Any]:
    return {"output_type": "execute_result", "data": {"text/plain": [text]}}


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stderr", "text": [text]}


def notebook(*cells: list[dict[str, Any]]) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "outputs": outputs} for outputs in cells], "nbformat": 4})


RAISED = {"output_type": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt: "]}
EVALUATED = ("Step", "Training Loss", "Validation Loss")


@pytest.mark.parametrize(
    "before",
    [
        [],
        [[RAISED]],
        [[display([(100, "2.4", "2.6")], "120/318 20:00 < 33:00, 0.1 it/s, Epoch 1/2", EVALUATED), RAISED]],
    ],
)
@pytest.mark.parametrize("loss", ["2.600000", "No log"])
def test_a_step_time_that_holds_evaluations_is_empty(read, before: list[Any], loss: str) -> None:
    rows = [(*row, loss) for row in LOSSES]
    reading = read(
        notebook(*before, [display(rows, "318/318 53:00, Epoch 2/2", EVALUATED), result(END.format(3180.0, 0.1))]),
        "n.ipynb",
    )
    row = reading.rows[-1]
    assert (row.step_time_s_mean, row.measured_steps, row.elapsed_s) == (None, 318, 3180.0)
    assert (row.loss_first, row.loss_last, row.eval_loss) == (2.5, 2.3, None if loss == "No log" else 2.6)
    assert any("evaluated" in said for said in reading.left_empty)


def test_evaluations_without_a_loss_of_training_are_read(read) -> None:
    rows = [(100, "No log", "2.6"), (200, "2.4", "2.5")]
    (row,) = read(notebook([display(rows, "318/318 53:00, Epoch 2/2", EVALUATED)]), "n.ipynb").rows
    assert (row.loss_first, row.loss_last, row.eval_loss) == (2.4, 2.4, 2.5)


@pytest.mark.parametrize(
    ("outputs", "steps", "time"),
    [
        # A rate of 0.1 over 3195 s makes 319.5 steps, one of 0.02 none that could be counted.
        ([display(LOSSES, "318/318 53:15, Epoch 2/2"), result(END.format(3195.0, 0.1))], 318, 3195 / 318),
        ([display(LOSSES, "318/318 4:25:00, Epoch 2/2"), result(END.format(15900.0, 0.02))], 318, 50.0),
        ([display(LOSSES, "318/900 53:15 < 1:00:00, 0.1 it/s, Epoch 0/2"), result(END.format(3195.0, 0.1))], 318, 3195 / 318),
        ([display(LOSSES, "318/318 53:15, Epoch 2/2"), result(END.format(3195.0, 0.4))], 318, None),
    ],
)  # fmt: skip
def test_steps_are_counted_from_what_the_notebook_says(
    read, outputs: list[Any], steps: int | None, time: float | None
) -> None:
    (row,) = read(notebook(outputs), "n.ipynb").rows
    assert (row.measured_steps, row.step_time_s_mean) == (steps, None if time is None else pytest.approx(time))


def test_no_step_count_is_computed_from_a_rounded_rate(read) -> None:
    text = "".join(f"{{'loss': {loss}, 'step': {step}}}\n" for step, loss in LOSSES)
    (row,) = read(text + "{'train_runtime': 3195.0, 'train_steps_per_second': 0.1, 'epoch': 2.0}\n").rows
    assert (row.measured_steps, row.step_time_s_mean) == (None, pytest.approx(10.0))


LATER = [*LOSSES, (318, "2.200000")]


@pytest.mark.parametrize(
    ("first", "second", "runs"),
    [
        (display(LOSSES, "310/318 40:00 < 01:00, 0.1 it/s, Epoch 1/2"), display(LATER, "318/318 53:00, Epoch 2/2"), 1),
        (display([], "2/318 : < :, Epoch 0.01/2"), display(LATER, "318/318 53:00, Epoch 2/2"), 1),
        (display(LATER, "318/318 53:00, Epoch 2/2"), display(LATER, "318/318 53:00, Epoch 2/2"), 1),
        (display(LATER, "318/318 53:00, Epoch 2/2"), display(LATER, "318/318 54:00, Epoch 2/2"), 2),  # the same once more
        (display(LOSSES, "310/318 40:00 < 01:00, 0.1 it/s, Epoch 1/2"), display([(100, "2.600000"), *LATER[1:]], "318/318 53:00, Epoch 2/2"), 2),
        (display(LOSSES, "310/318 40:00 < 01:00, 0.1 it/s, Epoch 1/2"), display(LATER, "318/636 53:00 < 53:00, 0.1 it/s, Epoch 1/2"), 2),
    ],
)  # fmt: skip
def test_a_display_that_was_kept_twice_is_one_training(
    read, first: dict[str, Any], second: dict[str, Any], runs: int
) -> None:
    between = {"output_type": "stream", "name": "stderr", "text": ["a warning\n"]}
    rows = read(notebook([first, between, second]), "n.ipynb").rows
    assert len(rows) == runs
    assert (rows[-1].loss_last, rows[-1].measured_steps) == (2.2, 318)


def test_what_was_trained_before_the_first_logged_loss_is_counted(read) -> None:
    rows = [
        (100, "No log", "2.6"),
        (200, "No log", "2.5"),
        (300, "2.4", "2.4"),
        (400, "2.4", "2.3"),
        (500, "2.4", "2.3"),
    ]
    text = notebook([display(rows, "500/500 53:00, Epoch 2/2", EVALUATED)])
    (row,) = read(text, "n.ipynb").rows
    assert (row.loss_first, row.loss_last, row.eval_loss, row.measured_steps) == (2.4, 2.4, 2.3, 500)
    assert row.outcome == "COMPLETED"


def test_a_loss_that_later_evaluations_show_again_is_of_one_step(steps) -> None:
    rows = [(1, "No log", "2.6"), (2, "2.4", "2.5"), (3, "2.4", "2.4"), (4, "2.2", "2.3")]
    found = steps(notebook([display(rows, "4/4 00:53, Epoch 2/2", EVALUATED)]))
    assert [(step.step, step.loss) for step in found] == [(1, None), (2, 2.4), (3, None), (4, 2.2)]


@pytest.mark.parametrize(("state", "last"), [("318/318 53:00, Epoch 2/2", 318), ("318/318 53:00, Epoch 2.00/2", 300)])
def test_a_display_that_came_to_its_end_says_the_last_step(read, state: str, last: int) -> None:
    (row,) = read(notebook([display(LOSSES, state)]), "n.ipynb").rows
    assert (row.measured_steps, row.loss_last) == (last, 2.3)
    assert row.outcome == ("COMPLETED" if last == 318 else "UNKNOWN")


@pytest.mark.parametrize("first", ["2.5", "No log"])
def test_a_table_by_epochs_is_a_training_from_its_first_row_on(read, first: str) -> None:
    rows = [(1, first, "2.6"), (2, "2.4", "2.5"), (3, "2.3", "2.4")]
    shown = display(rows, "318/318 53:00, Epoch 3/3", ("Epoch", *EVALUATED[1:]))
    (row,) = read(notebook([shown, result(END.format(3180.0, 0.1))]), "n.ipynb").rows
    assert (row.loss_first, row.loss_last, row.measured_steps) == (2.5 if first == "2.5" else 2.4, 2.3, 318)


@pytest.mark.parametrize(
    "bars",
    [
        "  0%|          | 0/3 [00:00<?, ?it/s]\n",
        " 33%|###       | 1/3 [00:01<00:02,  1.0s/it]\n100%|##########| 3/3 [00:03<00:00,  1.0s/it]\n",
    ],
)
def test_the_bars_of_cells_before_a_training_are_no_runs(read, bars: str) -> None:
    train = display(LOSSES, "318/318 53:00, Epoch 2/2")
    rows = read(notebook([stream(bars)], [stream(bars)], [train]), "n.ipynb").rows
    assert [(row.outcome, row.measured_steps) for row in rows] == [("COMPLETED", 318)]


@pytest.mark.parametrize("began", ["step 1: train loss 2.5\n", "Training finished\n"])
def test_the_bars_of_a_cell_that_trained_are_those_of_a_run(read, began: str) -> None:
    text = began + "  0%|          | 0/3 [00:00<?, ?it/s]\n 67%|######    | 2/3 [00:02<00:01,  1.0s/it]\n"
    assert len(read(notebook([stream(text)], [display(LOSSES, "318/318 53:00, Epoch 2/2")]), "n.ipynb").rows) == 2


@pytest.mark.parametrize(
    ("logged", "end", "steps"),
    [
        ([40], 41, None),  # every 40, 20, 10, … steps: where the training began is not shown
        ([40], 44, None),
        ([40], 48, None),
        ([40], 59, None),
        ([40], 62, 62),  # of the divisors of 40 only itself is longer than 22
        ([40], 75, 75),
        ([40, 80], 84, 84),
        ([40, 80, 120], 124, 124),
    ],
)
def test_the_end_of_training_is_no_logged_step(read, logged: list[int], end: int, steps: int | None) -> None:
    shown = display([(step, f"{2.5 - step / 1000}") for step in logged], f"{end}/{end} 10:00, Epoch 1/1")
    metrics = f"{{'train_runtime': 600.0, 'train_steps_per_second': {end / 600:.3f}}}"
    outcome = result(f"TrainOutput(global_step={end}, training_loss=2.4, metrics={metrics})")
    (row,) = read(notebook([shown, outcome]), "n.ipynb").rows
    assert (row.measured_steps, row.outcome) == (steps, "COMPLETED")


@pytest.mark.parametrize("end", [41, 44, 48, 59])
def test_the_end_of_a_display_alone_is_no_logged_step(read, end: int) -> None:
    (row,) = read(notebook([display([(40, "2.5")], f"{end}/{end} 10:00, Epoch 1/1")]), "n.ipynb").rows
    assert (row.measured_steps, row.outcome) == (None, "COMPLETED")
