"""A cause of which little is sure is told so wherever it is told, and a process that was killed in words, not in the shell's."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.causes.verdict import KILLED, SURE
from hpc_llm.reporting.write import CSV, PAGE

STEPS = "".join(f"step {n}/20 | loss 2.{n:02} | 1.00s/it\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("line", "cause", "reason", "is_sure"),
    [
        ("/var/job.sh: line 45:  1234 Killed                  python train.py", "host_oom", KILLED, False),
        ("bash: line 1: 77 Killed   torchrun a.py", "host_oom", KILLED, False),
        ("Killed", "host_oom", KILLED, False),
        ("run.sh: line 3: 12 Segmentation fault      (core dumped) python a.py", "segfault", "a process was ended by SIGSEGV", True),
        ("run.sh: line 3: 12 Aborted                 (core dumped) python a.py", "segfault", "a process was ended by SIGABRT", None),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been killed", "host_oom", None, True),
    ],
)  # fmt: skip
def test_parse_diagnose_and_report_say_how_sure_they_are(
    tmp_path: Path, line: str, cause: str, reason: str | None, is_sure: bool | None
) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"{STEPS}{line}\n")
    [row], [found] = hpc_llm.parse(log), hpc_llm.diagnose(log)
    assert row.cause == found.cause.id == cause
    assert row.cause_confidence is not None and abs(row.cause_confidence - found.confidence) <= 0.05
    assert reason is None or row.outcome_reason == reason
    if is_sure is not None:
        assert (found.confidence >= SURE) is (row.cause_confidence >= SURE) is is_sure
    hpc_llm.report(log, output=tmp_path / "report")
    said = f"confidence {found.confidence:.2f}" if found.confidence < SURE else ""
    with (tmp_path / "report" / CSV).open(newline="") as file:
        [line_of_csv] = csv.DictReader(file)
    assert line_of_csv["cause"] == (f"{cause} ({said})" if said else cause)
    page = (tmp_path / "report" / PAGE).read_text()
    assert (f"{found.cause.title} ({said})" if said else found.cause.title) in page


def test_what_came_to_its_end_has_no_confidence(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"{STEPS}Training completed\n")
    [row] = hpc_llm.parse(log)
    assert (row.cause, row.cause_confidence) == ("none", None)
