"""What is advised can be pasted: it looks into the folder of runs that was given, and helps."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_folders import Folder
from test_clean import keep

from hpc_llm.api import plan, room
from hpc_llm.api.find import find_runs
from hpc_llm.api.resuming import asked_with
from hpc_llm.cli import run as command
from hpc_llm.cli.output import name_logs, with_logs
from hpc_llm.corpus.sources import full_source
from hpc_llm.errors import Notice, PlanError, RequestError, SubmissionError
from hpc_llm.records.files import read_json
from hpc_llm.schedulers import Submission
from hpc_llm.schedulers.slurm import submit


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "other logs"


def test_status_and_diagnose_advise_for_the_folder_that_was_given(logs: Path, capsys: Any) -> None:
    folder = Folder(logs / "run-1")
    job = {"schema": 2, "scheduler": "local", "uuid": "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b", "run_id": "run-1"}
    folder.run.write(folder.run.job, job)
    for words in (["status"], ["diagnose", "run-1"]):
        assert command([*words, "--logs", str(logs)]) == 0
        said = capsys.readouterr().out
        assert "`hpc-llm " not in said or f"--logs '{logs}'`" in said, said
    name_logs(logs)
    for advice in ("status --watch", "clean", "reconcile run-1"):
        assert with_logs(f"`hpc-llm {advice}`") == f"`hpc-llm {advice} --logs '{logs}'`"
    assert with_logs("`hpc-llm status --logs x`") == "`hpc-llm status --logs x`"
    name_logs(Path("logs"))


@pytest.mark.parametrize("place", ["other logs", "logs"])
def test_what_names_a_run_names_its_folder_unless_commands_look_there(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """By whatever path the run was named, on the terminal and in JSON; what is pasted elsewhere finds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HPC_LLM_LOGS", raising=False)
    folder = Folder(tmp_path / place / "run-1")
    folder.run.write(folder.run.experiment, {**(read_json(folder.run.experiment) or {}), "asked": {"steps": 9}})
    keep(folder.exit(143, signal="TERM", stage="launch", time_limit_s=3600), 4)
    Folder(tmp_path / place / "run-2").local().run.process.unlink()  # its queue ended before its turn came
    where = "" if place == "logs" else f" --logs '{tmp_path / place}'"
    for words in (["diagnose", f"{place}/run-1"], ["diagnose", "run-1", "--json", "--logs", place]):
        assert command(words) == 0
        assert f"with `hpc-llm submit --resume run-1{where}`" in capsys.readouterr().out
    for words in (["status", f"{place}/run-2"], ["status", "run-2", "--json", "--logs", place]):
        assert command(words) == 0
        assert f"`hpc-llm reconcile{where}`" in capsys.readouterr().out
    [start] = find_runs(["run-1"], tmp_path / place)
    monkeypatch.chdir("/")
    pasted = shlex.split(f"submit --resume run-1 --logs '{tmp_path / place}' --wait")
    assert asked_with(pasted[2], Path(pasted[4]))[0] == start


@pytest.mark.parametrize(("keep", "free_for", "is_advised"), [(3, 2.5, True), (3, 1.0, False), (1, 1.5, False)])
def test_keeping_fewer_is_advised_where_it_helps(
    keep: int, free_for: float, is_advised: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from hpc_llm.planning.room import room_of

    asked = {"cluster": "local", "method": "ddp", "model": "tiny", "steps": 40, "save_every": 2}
    [made] = plan({**asked, "set": [f"keep={keep}"]})
    found = room_of(made.plan)
    assert found is not None
    free = int(found.model + free_for * found.checkpoint)
    monkeypatch.setattr(room, "_free_bytes", lambda logs: free)
    with pytest.raises(PlanError) as refused:
        room.check_room([SimpleNamespace(planned=[made])], tmp_path)  # type: ignore[list-item]
    assert ("--set keep=1" in str(refused.value)) == is_advised


def test_an_empty_folder_of_runs_is_refused(capsys: Any) -> None:
    assert command(["status", "--logs", ""]) == 2
    assert "--logs is empty: a variable of the shell may not be set" in capsys.readouterr().err
    with pytest.raises(RequestError, match="logs is empty"):
        plan(cluster="local", method="ddp", model="tiny", steps=4, logs="")


def test_tasks_of_nodes_without_gpus_are_said_by_their_setting(capsys: Any) -> None:
    asked = ["--method", "ddp", "--model", "tiny", "--cluster", "delta", "--account", "x", "--sbatch", "ntasks=4"]
    assert command(["render", *asked]) == 2
    assert "--set tasks_per_node=N where nodes have no GPUs" in capsys.readouterr().err


def test_a_folder_that_has_a_known_sets_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gsm8k").mkdir()
    Path("gsm8k/a.txt").write_text("What is learned. " * 50)
    with pytest.warns(Notice, match=r"--data gsm8k is what lies here, .*/gsm8k, and not the known set"):
        assert full_source("gsm8k") == str(tmp_path / "gsm8k")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert full_source("./gsm8k") == str(tmp_path / "gsm8k")


def test_a_folder_in_which_submitit_would_fill_in_a_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(SubmissionError, match="use another --logs"):
        submit._executor(tmp_path / "a%jb" / "run-1" / "submitit", Submission(scheduler="slurm"), "")
