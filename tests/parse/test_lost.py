"""A document whose training came to nothing says so as a log of the same training does."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.diagnosis import diagnose_files

NAN, INF = math.nan, math.inf


def state(folder: Path, losses: list[Any], **more: Any) -> Path:
    history = [
        {"loss": loss, "learning_rate": 1e-5, "step": i, "epoch": i / 10, **more} for i, loss in enumerate(losses, 1)
    ]
    end = {"train_runtime": 60.0, "train_loss": 1.0, "train_steps_per_second": 0.5, "step": len(losses), "epoch": 1.0}
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"global_step": len(losses), "max_steps": len(losses), "log_history": [*history, end]}))
    return path


@pytest.mark.parametrize(
    ("losses", "more", "at", "first", "last"),
    [
        ([3.0, 2.5, NAN, NAN], {}, 3, 3.0, 2.5),
        ([NAN, NAN], {}, 1, None, None),
        ([3.0, INF], {}, 2, 3.0, 3.0),
        (["3.0", "nan"], {}, 2, 3.0, 3.0),
        ([3.0, 2.5, 0.0, 0.0], {"grad_norm": NAN}, 3, 3.0, 2.5),
    ],
)
def test_a_history_that_ends_without_a_finite_loss_is_invalid(
    tmp_path: Path, losses: list[Any], more: dict[str, Any], at: int, first: float | None, last: float | None
) -> None:
    path = state(tmp_path, losses, **more)
    [row] = hpc_llm.parse(path)
    said = f"the loss is not a finite number at step {at}"
    assert (row.outcome, row.outcome_reason, row.invalid_reason, row.cause) == ("INVALID", said, said, "nan_loss")
    assert (row.loss_first, row.loss_last) == (first, last)
    found = diagnose_files([path])
    assert (found.cause.id, found.outcome, found.confidence) == ("nan_loss", "INVALID", row.cause_confidence)
    assert (
        found.summary.startswith("The loss is not a finite number at step") and "smaller learning rate" in found.remedy
    )


@pytest.mark.parametrize(
    ("losses", "more"), [([3.0, NAN, 2.5], {}), ([0.5, 0.0], {"grad_norm": 0.0}), ([2.0, 0.0], {})]
)
def test_a_loss_that_is_finite_at_the_end_leaves_the_run_as_it_was(
    tmp_path: Path, losses: list[float], more: dict[str, float]
) -> None:
    path = state(tmp_path, losses, **more)
    [row] = hpc_llm.parse(path)
    assert (row.outcome, row.loss_last) == ("COMPLETED", losses[-1])
    assert diagnose_files([path]).cause.id == "none"


@pytest.mark.parametrize("name", ["train_results.json", "all_results.json"])
def test_results_whose_mean_loss_is_no_number_are_invalid(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(
        json.dumps({"epoch": 1.0, "train_loss": NAN, "train_runtime": 100.0, "train_samples_per_second": 5.0})
    )
    [row] = hpc_llm.parse(path)
    assert (row.outcome, row.cause) == ("INVALID", "nan_loss") and "mean of the losses" in (row.outcome_reason or "")
    assert diagnose_files([path]).cause.id == "nan_loss"


def test_a_checkpoint_says_no_step_that_it_does_not_tell(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"global_step": null, "max_steps": 20, "log_history": [{"loss": 2.5, "step": 5}]}')
    [row] = hpc_llm.parse(path)
    assert row.outcome_reason == "a checkpoint"
