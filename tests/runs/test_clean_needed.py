"""What a run that waits or runs was submitted with stays, by whatever path, and of what was removed everybody says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from run_folders import Folder, Slurm, job
from test_clean import LATER, done, failed, keep

from hpc_llm.api import clean, plan
from hpc_llm.errors import Notice, RequestError
from hpc_llm.planning.checkpoint import read_checkpoint
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.wanted import reserved

WHEN = r"`hpc-llm clean` removed it on \d{4}-\d\d-\d\d at \d\d:\d\d UTC"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def kept(folder: Folder) -> Folder:
    """A run with two checkpoints and a model."""
    return keep(done(folder), 2, 4, model=True)


def plan_with(kept: Folder, tmp_path: Path, way: str) -> dict[str, Any]:
    """Plans that name something of the run, in each of the ways that there are."""
    model, link, links = kept.run.model, tmp_path / "link", tmp_path / "links"
    if way == "link":
        link.symlink_to(model)
    if way == "links":
        links.mkdir()
        for file in model.iterdir():
            (links / file.name).symlink_to(file)
    return {
        "model": {"model": {"name": str(model)}},
        "file": {"workload": {"data": [f"train={model}/config.json"]}},
        "checkpoint": {"workload": {"resume": str(kept.run.checkpoint(2))}},
        "adapter of another's task": {"workload": {"adapter": str(model), "steps": 3}},
        "variable": {"job": {"env": {"BASE": str(model)}}},
        "link": {"model": {"name": str(link)}},
        "links": {"model": {"name": str(links)}},
        "dots": {"model": {"name": f"{model}/../../run-1/model"}},
    }[way]


WAYS = ("model", "file", "checkpoint", "adapter of another's task", "variable", "link", "links", "dots")


def submitted(root: Path, named: dict[str, Any]) -> Folder:
    """As the command does: the mark, then the folder of the run."""
    with reserved([({"plan": named}, RunPaths(root), LATER)]):
        other = Folder(root, job_id="8")
        write_json(other.run.job, {**(read_json(other.run.job) or {}), "uuid": LATER})
        record = read_json(other.run.experiment) or {}
        write_json(other.run.experiment, {**record, "plan": {**record["plan"], **named}})
    return other


@pytest.mark.parametrize("where", ["logs", "others"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_run_that_is_not_over_was_submitted_with_stays(
    kept: Folder, logs: Path, tmp_path: Path, slurm: Slurm, way: str, where: str
) -> None:
    other = submitted(tmp_path / where / "run-2", plan_with(kept, tmp_path, way))
    for state in ("PENDING", "RUNNING"):
        slurm.says(job(state, started_at=None if state == "PENDING" else 1.0), "8")
        for kinds in (["model"], ["checkpoints"], ["model", "checkpoints"]):
            found = clean(["run-1"], remove=kinds, logs=logs)
            assert {one.taken.stays for one in found} == {f"a run that is not over needs it: {other.run.root}"}
    assert kept.run.model.is_dir() and kept.run.checkpoint(2).is_dir()
    slurm.says(job("FAILED", 1), "8")
    clean(["run-1"], remove=["model"], logs=logs)
    assert not kept.run.model.exists()


def test_a_path_beside_a_run_and_the_name_of_a_preset_keep_nothing(
    kept: Folder, logs: Path, tmp_path: Path, slurm: Slurm
) -> None:
    (tmp_path / "run-1").mkdir()
    submitted(logs / "run-2", {"model": {"name": "run-1"}, "workload": {"data": ["model", str(tmp_path / "run-1")]}})
    slurm.says(job("PENDING", started_at=None), "8")
    assert not kept.run.wanted_by.exists()
    clean(["run-1"], remove=["model"], logs=logs)
    assert not kept.run.model.exists()


def test_what_is_removed_before_the_run_is_there_is_not_submitted(kept: Folder, logs: Path, tmp_path: Path) -> None:
    clean(["run-1"], remove=["model"], logs=logs)
    with pytest.raises(RequestError, match=f"model is not there any more: {WHEN}"):
        submitted(tmp_path / "others" / "run-2", {"model": {"name": str(kept.run.model)}})
    assert list(kept.run.wanted_by.iterdir()) == []


def test_many_runs_with_a_model_that_takes_no_mark_are_told_of_once(kept: Folder, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    kept.run.wanted_by.symlink_to(tmp_path / "mine")
    named = {"plan": {"model": {"name": str(kept.run.model)}}}
    with pytest.warns(Notice) as told, reserved([(named, RunPaths(tmp_path / f"x{n}"), LATER) for n in range(3)]):
        pass
    assert [str(one.message).partition(": ")[2] for one in told] == [
        "`hpc-llm clean` will not know that x0 and 2 more need it, unless both lie in one folder"
    ]


@pytest.mark.parametrize("way", ["folder", "file", "link"])
def test_of_a_model_that_was_removed_it_is_said_when_and_how_it_comes_back(
    kept: Folder, logs: Path, tmp_path: Path, way: str
) -> None:
    model = kept.run.model
    (tmp_path / "link").symlink_to(model)
    place = {"folder": model, "file": model / "tokenizer", "link": tmp_path / "link"}[way]
    clean(["run-1"], remove=["model"], logs=logs)
    said = rf"whose model is gone: {WHEN}\. `hpc-llm submit --resume {re.escape(str(kept.run.root))}` goes on from"
    with pytest.raises(RequestError, match=said):  # as the job does
        read_checkpoint(place)
    with pytest.raises(RequestError, match=said):  # as the command does
        plan(cluster="local", method="z1", model=str(place))


def test_a_run_that_kept_no_model_is_told_from_one_whose_model_was_removed(folder: Folder, logs: Path) -> None:
    keep(failed(folder), 2, 4)
    clean(["run-1"], remove=["checkpoints"], logs=logs)
    with pytest.raises(RequestError, match=r"that kept no model: a run keeps one with --save-every"):
        read_checkpoint(folder.run.model)


@pytest.mark.parametrize(
    "record", ["[]", '{"removed": 3}', '{"removed": {"model": "yesterday"}}', '{"removed": {"model": 3}}']
)
def test_a_record_of_removals_that_says_nothing_is_none(folder: Folder, record: str) -> None:
    folder.run.removed.write_text(record)
    with pytest.raises(RequestError, match="kept no model"):
        read_checkpoint(folder.run.model)
