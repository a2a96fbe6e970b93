"""status, parse, diagnose and report say the same of any run, whatever its folder holds and in whatever order it came."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cases import LASTED, REVIEWED, Case, Reviewed, cases, drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_folders import BEGAN, Folder, Slurm

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.causes.verdict import doubt
from hpc_llm.diagnosis import diagnose_run
from hpc_llm.parsing.formats.own_run import rows
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.reporting.collect import own_runs
from hpc_llm.runs import status
from hpc_llm.runs.looks import look

COMMAND = Path(sys.executable).with_name("hpc-llm")
NUM_CASES = 250
THROUGH_THE_COMMAND = 60
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""For folders that are made and removed by the thousand; None: where temporary files usually lie."""


@dataclass(frozen=True)
class Word:
    """What one command says of a run."""

    outcome: str | None
    cause: str
    reason: str | None


@contextmanager
def at(moment: float, slurm: Slurm) -> Iterator[None]:
    """Look at that time, and ask that scheduler."""
    clock = mock.Mock(wraps=time, time=lambda: moment)
    with mock.patch("hpc_llm.runs.looks.time", clock), mock.patch("hpc_llm.runs.looks.ask", slurm.ask):
        yield


@contextmanager
def new_folder(case: Case) -> Iterator[tuple[Folder, Slurm]]:
    root = Path(tempfile.mkdtemp(prefix="judge-", dir=IN_MEMORY))
    try:
        yield Folder(root / "run-1", submitted_at=None), Slurm()
    finally:
        shutil.rmtree(root)


def words(run: RunPaths) -> dict[str, Word]:
    """What the four say."""
    [state], diagnosis = status([run]), diagnose_run(run)
    [row], [reported] = rows([run.root]), own_runs([run.root])
    over = row.outcome is not None
    said = {
        "status": Word(state.outcome.value if state.outcome else None, diagnosis.cause.id, state.reason),
        "parse": Word(row.outcome, row.cause if over and row.cause else diagnosis.cause.id, _plain(row.outcome_reason)),
    }
    cause = reported.diagnosis.get("cause", "none")
    said["report"] = Word(reported.row.outcome, str(cause), _plain(reported.row.outcome_reason))
    return said


def _plain(reason: str | None) -> str | None:
    """The reason without what a table says first of a run that is not over."""
    found = re.fullmatch(r"it is not over: \w+(?:, (?P<why>.*))?", reason or "")
    return found["why"] if found else reason


def agreed(run: RunPaths) -> Word:
    said = words(run)
    assert len(set(said.values())) == 1, said
    return said["status"]


def belongs_together(word: Word) -> bool:
    """Whether this outcome can come of this cause: a guess is listed as failed, and INVALID is the worker's own word."""
    cause = BY_ID[word.cause]
    if word.outcome is None:
        return word.cause in ("none", "unknown")
    outcomes = {cause.outcome.value, Outcome.INVALID.value}
    outcomes |= {Outcome.FAILED.value} if word.cause in ("unknown", "host_oom", "bus_error", "segfault") else set()
    return word.outcome in outcomes and (word.cause == "none") == (word.outcome == "COMPLETED")


@settings(max_examples=NUM_CASES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=cases(), order=st.randoms(use_true_random=False))
def test_the_four_agree_and_end_at_the_same_answer_in_whatever_order_the_evidence_comes(case: Case, order: Any) -> None:
    moment = BEGAN + LASTED + case.age
    with new_folder(case) as (folder, slurm), at(moment, slurm):
        for add in case.pieces(folder, slurm, BEGAN):
            add()
        whole = agreed(folder.run)
        assert belongs_together(whole), whole
    with new_folder(case) as (folder, slurm), at(moment, slurm):
        pieces = case.pieces(folder, slurm, BEGAN)
        first = [pieces.pop(-2)] if case.kept is not None and case.scheduler is not None else []
        order.shuffle(pieces)
        for add in first + pieces:  # what was kept is older than what is said now
            add()
            list(look([folder.run]))
        assert agreed(folder.run) == whole  # what a look keeps changes nothing


@pytest.mark.parametrize("name", REVIEWED)
def test_what_a_review_found_misjudged(name: str) -> None:
    known: Reviewed = REVIEWED[name]
    with new_folder(known.case) as (folder, slurm), at(BEGAN + LASTED + known.case.age, slurm):
        for add in known.case.pieces(folder, slurm, BEGAN):
            add()
        word = agreed(folder.run)
    assert (word.outcome, word.cause) == (known.outcome.value if known.outcome else None, known.cause)
    assert known.words in (word.reason or "")


def command(*given: str) -> str:
    """The command as a user types it, on a machine without Slurm."""
    environ = {**os.environ, "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    shutil_free = {name: value for name, value in environ.items() if not name.startswith("SLURM")}
    done = subprocess.run([str(COMMAND), *given], check=False, capture_output=True, text=True, env=shutil_free)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_four_commands_agree(tmp_path: Path) -> None:
    logs, began = tmp_path / "logs", time.time() - 3 * LASTED
    chosen = [*drawn(7, THROUGH_THE_COMMAND), *(one.case for one in REVIEWED.values())]
    for number, case in enumerate(chosen):
        folder = Folder(logs / f"run-{number:03}", submitted_at=None)
        for add in replace(case, scheduler=None).pieces(folder, Slurm(), began):
            add()
    told = {one["run_id"]: one for one in json.loads(command("status", "--json", "--logs", str(logs)))["runs"]}
    listed = {one["run_id"]: one for one in json.loads(command("parse", "--format=json", str(logs)))}
    causes = {one["source"]: one["cause"] for one in json.loads(command("diagnose", "--json", str(logs)))}
    command("report", str(logs), "-o", str(tmp_path / "out"))
    shown = reported(tmp_path / "out" / "index.html")
    assert len(told) == len(listed) == len(causes) == len(shown) == len(chosen)
    for run_id, one in told.items():
        outcome = one["outcome"]
        assert listed[run_id]["outcome"] == outcome, (one, listed[run_id])
        assert listed[run_id]["cause"] in (causes[run_id], None), (listed[run_id], causes[run_id])
        assert belongs_together(Word(outcome, causes[run_id], None))
        assert shown[run_id] == (
            outcome or "NOT_OVER",
            title(causes[run_id], outcome, listed[run_id]["cause_confidence"]),
        )
    again = {one["run_id"]: one for one in json.loads(command("status", "--json", "--logs", str(logs)))["runs"]}
    assert {name: one["outcome"] for name, one in again.items()} == {name: one["outcome"] for name, one in told.items()}


def title(cause: str, outcome: str | None, confidence: float | None) -> str | None:
    """What the page calls the cause, with the doubt about it."""
    if outcome == "COMPLETED":
        return None
    return (
        "not recognised"
        if cause in ("none", "unknown")
        else BY_ID[cause].title + (f" ({told})" if (told := doubt(confidence)) else "")
    )


def reported(page: Path) -> dict[str, tuple[str, str | None]]:
    """Outcome and title of the cause of each run in a report."""
    found = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    known = json.loads(found[1])

    def items(ranges: list[int]) -> list[Any]:
        pairs = zip(ranges[::2], ranges[1::2], strict=True)
        return [item for start, count in pairs for item in known["items"][start : start + count]]

    return {run["id"]: (dict(items(run["facts"]))["Outcome"], run.get("cause")) for run in known["runs"]}


def test_a_module_that_did_not_load_is_no_failure_of_a_run_that_trained(tmp_path: Path) -> None:
    said = "Lmod has detected the following error:  The following module(s) are unknown:\n"
    with at(BEGAN + 7200, Slurm()):
        ended = Folder(tmp_path / "whole").local().steps().result("COMPLETED").exit(0).says(said)
        assert agreed(ended.run) == Word("COMPLETED", "none", None)
        failed = Folder(tmp_path / "failed").local().steps().exit(3).says(said)
        assert agreed(failed.run).cause == "unknown" and agreed(failed.run).outcome == "FAILED"
        assert agreed(Folder(tmp_path / "untrained").local().exit(3).says(said).run).cause == "module_missing"
