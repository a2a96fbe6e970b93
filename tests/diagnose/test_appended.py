"""Logs to which several jobs or starts of one program were appended: what an earlier one says is not how the last one ended."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.causes.log import LogFindings, verdict_on
from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import Row, parse_stream
from hpc_llm.text.blocks import open_blocks

Diagnose = Callable[[str], Diagnosis]
RAISED = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\n    main()\n{}\n'
MEMORY = RAISED.format(
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 9 GiB"
)
MISSING = RAISED.format("ModuleNotFoundError: No module named 'peft'")


def report(job: int, place: str) -> str:
    return (
        f"\n{'-' * 60}\nSender: LSF System <lsfadmin@gpu7>\nSubject: Job {job}: <tune> in cluster <c1> Exited\n\n"
        f"Exited with exit code 1.\n\nThe output (if any) {place}\n\n"
    )


def findings(text: str, name: str) -> LogFindings:
    return LogFindings(name).read(open_blocks(io.BytesIO(text.encode()), name))


@pytest.mark.parametrize(("outputs", "cause"), [((MEMORY, MISSING), "package_missing"), ((MISSING, MEMORY), "device_oom"), ((MISSING, "ready\n"), "unknown")])  # fmt: skip
@pytest.mark.parametrize("place", ["is above this job summary.", "follows:"])
def test_the_last_of_the_jobs_that_lsf_reports_is_judged(
    place: str, outputs: tuple[str, str], cause: str, diagnose: Diagnose
) -> None:
    jobs = [(report(71 + n, place), printed) for n, printed in enumerate(outputs)]
    text = "".join(said + printed if place == "follows:" else printed + said for said, printed in jobs)
    assert diagnose(text).cause.id == cause


def test_errors_that_may_be_of_any_of_the_jobs_are_no_verdict() -> None:
    place = "is above this job summary."
    of_two = findings("ready\n" + report(71, place) + "ready\n" + report(72, place), "a.out")
    of_one = findings("ready\n" + report(71, place), "a.out")
    errors = findings(MISSING, "a.err")
    assert verdict_on([of_two, errors])[0].cause.id == "unknown"
    assert verdict_on([of_one, errors])[0].cause.id == "package_missing"


def said(time: str, words: str) -> str:
    return f"2026-03-{time},104 - INFO - {words}\n"


def started(day: int, opening: str, rest: str) -> str:
    return said(f"{day:02} 08:00:00", opening) + said(f"{day:02} 08:00:02", "reading data") + rest


def row_of(text: str) -> Row:
    [row] = parse_stream("a.log", io.BytesIO(text.encode())).rows
    return row


@pytest.mark.parametrize("opening", ["Iniciando processo de ajuste...", "Starting the trainer", "main: 训练开始 v2"])
def test_what_a_program_said_before_it_was_started_again_is_over(opening: str, diagnose: Diagnose) -> None:
    first, second = started(2, opening, MISSING), started(5, opening, MEMORY)
    assert diagnose(first + second).cause.id == "device_oom"
    assert diagnose(first + started(5, opening, "")).cause.id == "unknown"
    assert row_of(first).started_at == "2026-03-02T08:00:00"
    assert row_of(first + second).started_at is None


def test_a_line_that_comes_again_at_once_is_no_start(diagnose: Diagnose) -> None:
    ranks = said("02 08:00:00", "Starting the trainer") + said("02 08:00:01", "Starting the trainer")
    assert row_of(ranks + MISSING).started_at == "2026-03-02T08:00:00"
    counted = "".join(said(f"02 08:{n:02}:00", f"working on file {n}") for n in range(0, 30, 5))
    assert diagnose(said("02 07:59:00", "working on file 0") + MISSING + counted).cause.id == "package_missing"
