"""One request with runs for several schedulers: all are looked at before the first gets anything, and what one has is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_llm.cli import run
from hpc_llm.errors import SubmissionError
from hpc_llm.schedulers.local import Local
from hpc_llm.schedulers.slurm import Slurm

ASKED = ("--method", "ddp", "--model", "tiny", "--steps", "8")
BOTH = ("--cluster", "local,delta", "--account", "x-delta-gpu", *ASKED)
NO_SLURM = '#!/bin/sh\necho "$(basename $0): error: fatal: Could not establish a configuration source" >&2\nexit 1\n'


@pytest.fixture
def laptop(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Slurm's commands and without a Slurm."""
    (own_folder / "bin").mkdir()
    for name in ("sbatch", "srun", "scontrol", "sacct", "squeue"):
        path = own_folder / "bin" / name
        path.write_text(NO_SLURM)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own_folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", str(own_folder / "slurm.conf"))
    return own_folder


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Clusters whose scheduler was asked, in place of asking it."""
    asked: list[str] = []

    def taken(self: object, submission: object, runs: object, script: str) -> None:
        asked.append("local")

    def refused(self: object, submission: object, runs: object, script: str) -> None:
        asked.append("slurm")
        raise SubmissionError("sbatch refused the job: Invalid account.")

    monkeypatch.setattr(Local, "submit", taken)
    monkeypatch.setattr(Slurm, "submit", refused)
    return asked


def visible(logs: Path) -> list[str]:
    return [one.name for one in logs.glob("[!.]*")]


@pytest.mark.parametrize("order", ["local,delta", "delta,local"])
def test_a_scheduler_that_is_out_of_reach_keeps_all_others_from_getting_anything(
    laptop: Path, sent: list[str], capsys: pytest.CaptureFixture[str], order: str
) -> None:
    code = run(["submit", "--cluster", order, *BOTH[2:]])
    told = capsys.readouterr()
    assert (code, told.out, sent) == (1, "", []) and not visible(laptop / "logs")
    assert (
        "cluster delta: sbatch finds no Slurm here: no configuration" in told.err and "submitted before" not in told.err
    )
    assert "Nothing was submitted, to no cluster." in told.err


def test_of_one_cluster_the_scheduler_itself_says_what_is_wrong(
    laptop: Path, sent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "--cluster", "delta", *BOTH[2:]]) == 1 and sent == ["slurm"]
    assert "Invalid account" in capsys.readouterr().err


@pytest.mark.parametrize("is_json", [False, True])
def test_what_was_queued_before_another_cluster_refused_is_named_on_stdout(
    laptop: Path, sent: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_json: bool
) -> None:
    monkeypatch.setattr(Slurm, "out_of_reach", Local.out_of_reach)
    code = run(["submit", *BOTH, *(["--json"] if is_json else [])])
    told = capsys.readouterr()
    [queued] = visible(laptop / "logs")
    named = [one["run_id"] for one in json.loads(told.out)["runs"]] if is_json else [told.out.split()[0]]
    assert code == 1 and sent == ["local", "slurm"] and named == [queued]
    assert f"1 run was submitted before that: {queued}" in told.err
