"""The output and the errors of one job in two files: one run, and one row."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.parsing import Row, parse_paths

STEPS = "".join(
    f"{{'loss': {3 - step / 100:.4f}, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': {step / 100}}}\n"
    for step in range(1, 20)
)
END = "{'train_runtime': 100.0, 'train_samples_per_second': 5.0, 'train_steps_per_second': 1.0, 'train_loss': 2.0, 'epoch': 1.0}\n"
RAISED = 'Traceback (most recent call last):\n  File "/w/train.py", line 88, in <module>\n    main()\nValueError: no labels\n'
LIMIT = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-03-06T09:00:00 DUE TO TIME LIMIT ***\n"
WARNED = "warning: the cache is old\n"


def _rows(folder: Path, **files: str) -> list[Row]:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return list(parse_paths([folder]))


@pytest.mark.parametrize(
    ("output", "errors"), [("x_out", "x_err"), ("x_log", "x_err"), ("x_o12", "x_e12"), ("stdout_txt", "stderr_txt")]
)
@pytest.mark.parametrize(
    ("said", "wrong", "outcome"),
    [
        (STEPS + END, WARNED, "COMPLETED"),
        (STEPS, RAISED, "FAILED"),
        (STEPS, LIMIT, "TIMEOUT"),
        ("loading\n", RAISED, "FAILED"),
        (WARNED, STEPS + END, "COMPLETED"),
    ],
    ids=["warned", "raised", "over its time", "before training", "trains on standard error"],
)
def test_two_files_of_one_job_are_one_row(
    output: str, errors: str, said: str, wrong: str, outcome: str, tmp_path: Path
) -> None:
    (row,) = _rows(tmp_path, **{output: said, errors: wrong})
    assert row.outcome == outcome and Path(row.source or "").name == output.replace("_", ".")
    assert (row.loss_last is not None) == ("loss" in said + wrong)


def test_only_names_that_say_so_join_two_files(tmp_path: Path) -> None:
    assert len(_rows(tmp_path, a_out=STEPS, b_err=RAISED)) == 2


def test_which_of_several_runs_failed_is_not_guessed(tmp_path: Path) -> None:
    run = "***** Running training *****\n  Total optimization steps = 19\n" + STEPS + END
    rows = _rows(tmp_path, x_out=run + run, x_err=RAISED)
    assert sorted(row.outcome or "" for row in rows) == ["COMPLETED", "COMPLETED", "FAILED"]
    assert len(_rows(tmp_path, x_out=run + run, x_err=WARNED)) == 2


def test_what_fails_behind_training_is_told_so_from_two_files_as_from_one(tmp_path: Path) -> None:
    (row,) = _rows(tmp_path / "whole", x_out=STEPS + END, x_err=RAISED)
    (cut,) = _rows(tmp_path / "cut", x_out=STEPS, x_err=RAISED)
    assert row.outcome_reason is not None and row.outcome_reason.startswith("training had ended before: ")
    assert row.outcome == cut.outcome == "FAILED" and "had ended" not in (cut.outcome_reason or "")
    files = [tmp_path / "whole" / name for name in ("x.err", "x.out")]
    for named in (files, files[::-1]):
        (found,) = hpc_llm.diagnose([str(file) for file in named])
        assert "Training had come to its end before that (line " in found.summary and "of x.out" in found.summary
    (alone,) = hpc_llm.diagnose(str(files[0]))
    assert "had come to its end" not in alone.summary
    (stopped,) = hpc_llm.diagnose([str(tmp_path / "cut" / file.name) for file in files])
    assert stopped.cause.id == found.cause.id and "had come to its end" not in stopped.summary


def test_a_time_limit_behind_a_training_that_had_ended_is_told_from_two_files_as_from_one(tmp_path: Path) -> None:
    training = (
        "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
        "{'train_runtime': 60.0, 'train_samples_per_second': 1.6, 'train_steps_per_second': 0.1, 'train_loss': 2.5, 'epoch': 1.0}\n"
    )
    limit = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
    for name, text in (("pair/slurm-7.out", training), ("pair/slurm-7.err", limit), ("one/a.log", training + limit)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    [two], [one] = (hpc_llm.parse(tmp_path / name) for name in ("pair", "one"))
    assert one.outcome == two.outcome == "COMPLETED" and one.cause == two.cause == "none"
    assert one.outcome_reason == two.outcome_reason == f"training had ended before: {limit.strip()}"
