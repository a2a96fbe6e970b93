"""The steps of a run as one training, of all its tries; and runs that are not sent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from run_folders import Folder

import hpc_llm
from hpc_llm.cli import run as command
from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.exporting.finished import finished_runs
from hpc_llm.exporting.history import history
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.text.json_text import DamagedRecordError


def write(path: Path, steps: Iterable[int], **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps({"step": step, **more}) + "\n" for step in steps)


def drawn(run: RunPaths) -> dict[int, dict[str, float]]:
    points = list(history(run))
    assert [point.step for point in points] == sorted({point.step for point in points})
    return {point.step: dict(point.figures) for point in points}


def test_steps_that_a_later_try_made_again_count_once_and_evaluations_stand_by_their_steps(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    first, second = RunPaths(run.tries / "1"), RunPaths(run.tries / "2")
    write(first.steps, range(1, 9), loss=1.0)
    write(first.evaluations, (2, 4, 8), eval_loss=11.0)
    write(second.steps, range(5, 12), loss=2.0)
    write(second.evaluations, (8,), eval_loss=12.0)
    write(run.steps, range(7, 15), loss=3.0)
    write(run.evaluations, (12, 12, 20), eval_loss=13.0)
    found = drawn(run)
    assert {k: v["loss"] for k, v in found.items() if "loss" in v} == dict.fromkeys(range(1, 5), 1.0) | {
        5: 2.0, 6: 2.0, **dict.fromkeys(range(7, 15), 3.0)}  # fmt: skip
    assert {k: v["eval_loss"] for k, v in found.items() if "eval_loss" in v} == {2: 11.0, 4: 11.0, 12: 13.0, 20: 13.0}


def test_a_file_that_begins_anew_is_of_two_tries(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    write(run.steps, range(1, 7), loss=1.0)
    write(run.steps, range(4, 6), loss=2.0)
    write(run.steps, range(5, 8), loss=3.0)
    assert [figures["loss"] for figures in drawn(run).values()] == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_only_figures_that_can_be_are_drawn(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    write(
        run.steps, (1,), loss=None, step_time_s=-1, tokens_per_second=1e30, skipped=True, note="x", own=2**60, their=0.5
    )
    assert drawn(run) == {1: {"skipped": True, "their": 0.5}}


def test_half_of_a_last_line_is_what_a_killed_run_leaves(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    write(run.steps, (1, 2), loss=1.0)
    run.steps.write_text(run.steps.read_text() + '{"step": 3, "lo')
    assert list(drawn(run)) == [1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"step": 1}\n{"step"\n{"step": 3}\n', "steps.jsonl, line 2: it is no JSON object"),
        ('{"step": 1}\n[1]\n', "steps.jsonl, line 2: it is no JSON object"),
        ('{"step": 1}\n\0\0\0\0', "steps.jsonl, line 2: it is no JSON object"),
        ('{"step": 1}\n{"loss": 1}\n', "steps.jsonl, line 2: it names no step"),
        ('{"step": true}\n', "steps.jsonl, line 1: it names no step"),
    ],
)
def test_a_hole_is_named_and_not_passed_over(tmp_path: Path, text: str, said: str) -> None:
    RunPaths(tmp_path).steps.write_text(text)
    with pytest.raises(DamagedRecordError) as raised:
        list(history(RunPaths(tmp_path)))
    assert str(raised.value) == said


def damage_result(folder: Folder) -> None:
    folder.run.result.write_text('{"outcome": "COMPL')


def damage_steps(folder: Folder) -> None:
    folder.run.steps.write_text('{"step": 1}\n{"st\n{"step": 3}\n')


def hide_steps(folder: Folder) -> None:
    folder.run.steps.unlink()
    os.mkfifo(folder.run.steps)


def go_on(folder: Folder) -> None:
    for path in (folder.run.exit, folder.run.result):
        path.unlink()


def of_tomorrow(folder: Folder) -> None:
    folder.result("COMPLETED", schema=99)


def never_begun(folder: Folder) -> None:
    for path in (folder.run.exit, folder.run.result, folder.run.steps, folder.run.job):
        path.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage_result, "run run-1 is damaged: result.json: it is no JSON"),
        (damage_steps, "run run-1 is damaged: steps.jsonl, line 2: it is no JSON object"),
        (hide_steps, "run run-1 is damaged: steps.jsonl: it is no regular file"),
        (go_on, "run run-1 is not over: "),
        (of_tomorrow, "was written by a newer version of hpc-llm (schema 99 of result.json), which can send it"),
        (never_begun, "run run-1 has nothing to send: it was never submitted"),
    ],
)
@pytest.mark.filterwarnings("ignore::hpc_llm.errors.PassedOverWarning")
def test_a_run_that_cannot_be_sent_is_one_sentence_and_no_other_is_sent(
    folder: Folder, change: Callable[[Folder], None], said: str, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("tensorboard")
    shutil.copytree(folder.run.root, tmp_path / "logs" / "whole")
    write_json(
        tmp_path / "logs" / "whole" / "job.json", {"schema": 2, "scheduler": "local", "uuid": UUID, "job_id": "1"}
    )
    change(folder)
    with pytest.raises(RequestError) as raised:
        hpc_llm.export(["whole", "run-1"], to="tensorboard", logs=tmp_path / "logs", output=tmp_path / "out")
    assert said in str(raised.value) and str(raised.value).startswith("nothing was sent: ")
    assert not (tmp_path / "out").exists()


UUID = "00000000-5a3c-4b0a-9a0e-1c2d3e4f5a6b"


def test_a_copy_of_a_run_is_the_same_run(folder: Folder, tmp_path: Path) -> None:
    copy = tmp_path / "logs" / "copy"
    shutil.copytree(folder.run.root, copy)
    with pytest.raises(RequestError, match="run-1 and copy are the same run, one a copy: name one"):
        finished_runs([folder.run, RunPaths(copy)])
    renamed = folder.run.root.rename(tmp_path / "logs" / "renamed")
    assert finished_runs([RunPaths(renamed)])[0].key == finished_runs([RunPaths(copy)])[0].key


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "tensorbord"), "there is no tracker 'tensorbord': did you mean 'tensorboard'? Valid: mlflow, tensorboard, wandb."),
        (("--to", "wandb", "--uri", "http://x"), "--uri is for mlflow: Weights & Biases gets files in the folder that -o DIR names."),
        (("--to", "tensorboard", "--project", "p"), "--project: TensorBoard has no projects; a folder of its own"),
        (("--to", "wandb", "--project", "a/b"), "--project 'a/b' is no name of a project"),
        (("--to", "mlflow", "--uri", "ftp://x"), "--uri ftp://x: MLflow knows no ftp. Valid: a folder, or http, "),
        (("--to", "mlflow", "--uri", ""), "--uri is empty: a variable of the shell may not be set."),
        (("--to", "tensorboard", "-o", "logs/run-1/exit.json"), "logs/run-1/exit.json: it is a file, a folder is needed."),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_meant_is_refused(
    folder: Folder, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    needs: Callable[..., None],
) -> None:  # fmt: skip
    needs("mlflow", "tensorboard", "wandb")
    monkeypatch.chdir(folder.run.root.parents[1])
    assert command(["export", "run-1", *arguments]) == 2
    assert f"hpc-llm: {said}" in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["logs"]


WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in ("wandb", "alembic", "tensorboard") else found(name, *more)
from hpc_llm.cli import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("tracker", "module", "packages"),
    [
        ("wandb", "wandb", "wandb"),
        ("mlflow", "alembic", "mlflow-skinny sqlalchemy alembic"),
        ("tensorboard", "tensorboard", "tensorboard numpy"),
    ],
)
def test_a_missing_package_is_one_sentence_with_what_installs_it(
    folder: Folder, tracker: str, module: str, packages: str
) -> None:
    logs = folder.run.root.parent
    asked = ("export", "run-1", "--to", tracker, "--logs", logs, "-o", logs / "out")
    done = subprocess.run([sys.executable, "-c", WITHOUT, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not (logs / "out").exists()
    assert module in done.stderr and f"not installed here: python -m pip install {packages}\n" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_cannot_be_looked_into_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(HpcLlmError, match="there is no run 'nowhere'"):
        hpc_llm.export("nowhere", to="tensorboard", logs=tmp_path)
