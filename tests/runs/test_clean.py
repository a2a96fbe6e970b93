"""hpc-llm clean: shows all that is kept, removes what is asked for, never the last good state or what is not ours to take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from run_folders import Folder, Slurm, job

from hpc_llm.api import clean, diagnose
from hpc_llm.cli import run as command
from hpc_llm.errors import RequestError
from hpc_llm.records.checkpoints import MANIFEST, kept_in
from hpc_llm.records.files import read_json, write_json


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def keep(folder: Folder, *steps: int, model: bool = False) -> Folder:
    for step in steps:
        place = folder.run.checkpoint(step)
        (place / "engine").mkdir(parents=True)
        (place / "engine" / "shard-0.bin").write_bytes(b"x" * 1000)
        write_json(place / MANIFEST, {"schema": 2, "step": step, "files": {"engine/shard-0.bin": 1000}})
    if model:
        folder.run.model.mkdir()
        (folder.run.model / "model.safetensors").write_bytes(b"x" * 500)
    return folder


def done(folder: Folder) -> Folder:
    return folder.exit(0).result("COMPLETED", measured_steps=9)


def failed(folder: Folder) -> Folder:
    return folder.exit(1, stage="launch").failure(0).result("FAILED", outcome_reason="boom")


def left(folder: Folder) -> list[str]:
    places = (folder.run.checkpoints, folder.run.root)
    names = {path.name for place in places if place.is_dir() for path in place.iterdir() if path.is_dir()}
    return sorted(names - {"checkpoints", "failures"})


def test_without_a_kind_all_is_shown_and_nothing_removed(folder: Folder, logs: Path, capsys: Any) -> None:
    keep(failed(folder), 2, 4)
    assert command(["clean", "--logs", str(logs), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(one["kind"], one["size_bytes"], one["state"]) for one in items] == [("checkpoints", 1000, "stays")] * 2
    assert [one["why"] for one in items] == [None, "it is the newest, and the run goes on from it"]
    assert left(folder) == ["step-2", "step-4"]
    assert command(["clean", "--logs", str(logs)]) == 0
    shown = capsys.readouterr()
    assert "run-1/checkpoints/step-2  may go" in shown.out and "nothing was removed" in shown.err


@pytest.mark.parametrize(
    ("kinds", "stays"),
    [
        (["checkpoints"], ["model", "step-4"]),
        (["model"], ["step-2", "step-4"]),
        (["checkpoints", "model"], ["step-4"]),
        (["code"], ["model", "step-2", "step-4"]),
    ],
)
def test_of_a_run_that_failed_the_newest_checkpoint_stays(
    folder: Folder, logs: Path, kinds: list[str], stays: list[str]
) -> None:
    keep(failed(folder), 2, 4, model=True)
    assert not any(one.problem for one in clean(remove=kinds, logs=logs))
    assert left(folder) == stays


@pytest.mark.parametrize(
    ("kinds", "stays"),
    [(["checkpoints"], ["model"]), (["model"], ["step-2", "step-4"]), (["checkpoints", "model"], ["model"])],
)
def test_of_a_run_that_came_to_its_end_one_of_both_stays(
    folder: Folder, logs: Path, kinds: list[str], stays: list[str]
) -> None:
    keep(done(folder), 2, 4, model=True)
    clean(remove=kinds, logs=logs, dry_run=True)
    assert left(folder) == ["model", "step-2", "step-4"]
    for _ in range(3):  # again and again: the last stays
        clean(remove=kinds, logs=logs)
        assert left(folder) == stays


def test_a_model_alone_is_the_last_good_state(folder: Folder, logs: Path) -> None:
    keep(done(folder), model=True)
    [one] = clean(remove=["model"], logs=logs)
    assert one.taken.stays == "no checkpoint is left, so it is all that was trained" and left(folder) == ["model"]


def test_what_is_not_whole_is_no_good_state(folder: Folder, logs: Path) -> None:
    keep(failed(folder), 2, 4, 6)
    (folder.run.checkpoint(6) / "engine" / "shard-0.bin").write_bytes(b"x")
    (folder.run.checkpoints / ".step-8.part").mkdir()
    assert [one.step for one in kept_in(folder.run.root)] == [2, 4]
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4", "step-6"]  # what somebody damaged may still be of use to them


def test_of_a_run_that_is_not_over_nothing_goes(folder: Folder, logs: Path, slurm: Slurm) -> None:
    keep(folder, 2, 4, model=True)
    slurm.says(job("RUNNING"))
    found = clean(remove=["checkpoints", "model"], logs=logs)
    assert {one.taken.stays for one in found} == {"the run is not over: RUNNING"}
    assert left(folder) == ["model", "step-2", "step-4"]


def test_what_a_run_that_is_not_over_goes_on_from_stays(folder: Folder, logs: Path, slurm: Slurm) -> None:
    keep(failed(folder), 2, 4)
    other = Folder(logs / "run-2", job_id="8")
    write_json(other.run.job, {**(read_json(other.run.job) or {}), "uuid": str(uuid4())})
    record = read_json(other.run.experiment) or {}
    write_json(other.run.experiment, {**record, "plan": {"workload": {"resume": str(folder.run.root)}}})
    slurm.says(job("PENDING", started_at=None), "8")
    found = clean(["run-1"], remove=["checkpoints"], logs=logs)
    assert {one.taken.stays for one in found} == {"a run that is not over goes on from it"} and len(left(folder)) == 2
    slurm.says(job("FAILED", 1), "8")
    clean(["run-1"], remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


def test_only_the_runs_that_are_named_are_touched(folder: Folder, logs: Path) -> None:
    other = keep(failed(Folder(logs / "run-2", job_id="8")), 1, 2)
    keep(failed(folder), 1, 2)
    clean("run-2", remove=["checkpoints"], logs=logs)
    assert (left(folder), left(other)) == (["step-1", "step-2"], ["step-2"])
    with pytest.raises(RequestError, match="run-9"):
        clean(["run-2", "run-9"], remove=["checkpoints"], logs=logs)
    with pytest.raises(RequestError, match="caches"):
        clean(remove=["caches"], logs=logs)


def test_diagnose_says_how_a_run_goes_on_that_kept_something(folder: Folder, logs: Path) -> None:
    timed_out = {"signal": "TERM", "stage": "launch", "time_limit_s": 3600}
    assert "--resume" not in diagnose(folder.exit(143, **timed_out).run.root)[0].remedy
    keep(folder, 2, 4)
    [found] = diagnose(folder.run.root)
    assert found.cause.id == "walltime"
    assert found.remedy.startswith(
        "it kept what it had trained: go on behind step 4 with hpc-llm submit … --resume run-1\n"
    )


def test_links_are_not_followed(folder: Folder, logs: Path, tmp_path: Path) -> None:
    keep(failed(folder), 1, 2)
    folder.run.checkpoints.rename(tmp_path / "elsewhere")
    folder.run.checkpoints.symlink_to(tmp_path / "elsewhere")
    clean(remove=["checkpoints"], logs=logs)
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["step-1", "step-2"]
