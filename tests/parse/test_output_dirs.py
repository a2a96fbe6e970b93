"""The output folder of a Trainer is one training, though its state, its checkpoints and its tables of results each tell of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpc_llm.errors import PassedOverWarning
from hpc_llm.parsing import parse_paths


def history(last: int, *, ended: bool = False, loss: float = 5.0) -> dict[str, Any]:
    lines: list[dict[str, Any]] = [
        {"loss": loss - step / 100, "step": step, "epoch": step / 100} for step in range(10, last + 1, 10)
    ]
    lines += [{"eval_loss": 4.2, "step": last, "epoch": last / 100}] if last >= 50 else []
    lines += [{"train_runtime": 200.0, "train_steps_per_second": 0.5, "step": last}] if ended else []
    return {"global_step": last, "max_steps": 100, "log_history": lines}


def state(loss: float = 5.0) -> dict[str, Any]:
    """That of the end, which goes on from the checkpoint's."""
    one, end = history(50, loss=loss), history(100, ended=True, loss=loss)
    end["log_history"] = [*one["log_history"], *end["log_history"][5:]]
    return end


def written(folder: Path, **files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / (name.replace("__", "/").replace("checkpoint_", "checkpoint-") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def test_an_output_folder_is_one_row(tmp_path: Path) -> None:
    end = state()
    last = {**end, "log_history": end["log_history"][:-1]}
    written(
        tmp_path, trainer_state=end, checkpoint_50__trainer_state=history(50), checkpoint_100__trainer_state=last,
        all_results={"train_runtime": 200.0, "eval_loss": 4.2}, train_results={"train_runtime": 200.0, "train_loss": 4.5},
        eval_results={"eval_loss": 4.2, "eval_runtime": 3.0},
    )  # fmt: skip
    with pytest.warns(PassedOverWarning, match="and 4 more"):
        [row] = parse_paths([tmp_path])
    assert (row.loss_last, row.elapsed_s, row.outcome) == (4.0, 200.0, "COMPLETED")
    [row] = parse_paths([tmp_path / "checkpoint-50"])  # named itself
    assert (row.loss_last, row.outcome) == (4.5, "UNKNOWN")


def test_the_batch_of_all_gpus_of_a_node_is_no_micro_batch(tmp_path: Path) -> None:
    """Under DataParallel the Trainer writes 16 where each of two GPUs has 8, and nowhere how many there are."""
    [row] = parse_paths([written(tmp_path, trainer_state={**state(), "train_batch_size": 16})])
    assert row.micro_batch_size is None and row.loss_last == 4.0


def test_checkpoints_alone_are_the_last_of_them(tmp_path: Path) -> None:
    end = state()
    written(tmp_path, checkpoint_50__trainer_state=history(50), checkpoint_100__trainer_state=end)
    with pytest.warns(PassedOverWarning, match="checkpoint-50"):
        [row] = parse_paths([tmp_path])
    assert row.loss_last == 4.0


def test_checkpoints_of_several_trainings_are_one_row_each(tmp_path: Path) -> None:
    """As they lie in a folder that was used again with other settings."""
    other = {**state(loss=9.0), "global_step": 300, "max_steps": 300}
    written(
        tmp_path, checkpoint_50__trainer_state=history(50), checkpoint_70__trainer_state=history(70, loss=7.0),
        checkpoint_100__trainer_state=history(100), checkpoint_300__trainer_state=other,
    )  # fmt: skip
    for checkpoint in ("60", "90"):
        lines = state()["log_history"][: int(checkpoint) // 10]
        written(tmp_path, **{f"checkpoint_{checkpoint}__trainer_state": {**history(100), "log_history": lines}})
    with pytest.warns(PassedOverWarning):
        rows = list(parse_paths([tmp_path]))
    assert sorted(row.loss_last for row in rows if row.loss_last is not None) == [4.0, 6.3, 8.0]


def test_what_says_something_else_is_a_row_of_its_own(tmp_path: Path) -> None:
    """A checkpoint of an earlier training, and results with a figure that no other file has."""
    written(
        tmp_path, trainer_state=state(), checkpoint_50__trainer_state=history(50, loss=7.0),
        all_results={"train_runtime": 200.0, "eval_loss": 4.2, "perplexity": 66.7}, eval_results={"eval_loss": 3.0, "eval_runtime": 3.0},
    )  # fmt: skip
    rows = parse_paths([tmp_path])
    assert len(list(rows)) == 4
