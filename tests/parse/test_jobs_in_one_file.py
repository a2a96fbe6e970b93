"""Several jobs of Slurm that print into one file: no row has the number of one job and the end of another."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading, Row, parse_stream
from hpc_llm.parsing.joining import join
from hpc_llm.parsing.registry import formats_in
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.scan import Scanner
from hpc_llm.parsing.unparsed import Unparsed

ENDED = "slurmstepd: error: *** JOB {0} ON n1 CANCELLED AT 2026-01-0{1}T10:00:00{2} ***\n"
STEP_ENDED = "slurmstepd: error: *** STEP {0}.0 ON n1 CANCELLED AT 2026-01-0{1}T10:00:00{2} ***\n"
TEXT = "some output of a program\n" * 3
ERROR = "Traceback (most recent call last):\n  File 'a.py', line 3, in f\nOSError: gone\n"
PREEMPTED, LIMIT = " DUE TO PREEMPTION", " DUE TO TIME LIMIT"


def said(rows: list[Row]) -> list[tuple[str | None, str | None]]:
    return [(row.job_id, row.outcome) for row in rows]


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        (ENDED.format(11, 1, "") + TEXT + ENDED.format(12, 2, PREEMPTED), [("11", "CANCELLED"), ("12", "PREEMPTED")]),
        (ENDED.format(11, 1, LIMIT) + ENDED.format(12, 2, ""), [("11", "TIMEOUT"), ("12", "CANCELLED")]),
        (ENDED.format(11, 1, LIMIT) + ERROR + ENDED.format(12, 2, ""), [("11", "TIMEOUT"), ("12", "FAILED")]),
        (TEXT + ENDED.format(11, 1, LIMIT) + "Fri Jan  2 09:00:00 2026\n" + ERROR, [("11", "TIMEOUT"), (None, "FAILED")]),
        (TEXT + ENDED.format(11, 1, LIMIT) + "2026-01-02 09:00:00 INFO begin\n" + ERROR, [("11", "TIMEOUT"), (None, "FAILED")]),
        ("SLURM_JOB_ID=11\n" + ERROR + "SLURM_JOB_ID=12\n" + TEXT + ENDED.format(12, 2, LIMIT), [("11", "FAILED"), ("12", "TIMEOUT")]),
        ("SLURM_JOB_ID=11\n" + ERROR + STEP_ENDED.format(12, 2, LIMIT), [("11", "FAILED"), ("12", "TIMEOUT")]),
        (ENDED.format(11, 1, "") + ENDED.format(12, 2, "") + ENDED.format(13, 3, LIMIT), [("11", "CANCELLED"), ("12", "CANCELLED"), ("13", "TIMEOUT")]),
    ],
    ids=["text between", "nothing between", "an error of the second", "the date", "a time", "its number", "a step's number", "three"],
)  # fmt: skip
def test_each_job_has_a_row(read: Callable[..., Reading], text: str, jobs: list[tuple[str | None, str]]) -> None:
    assert said(read(text).rows) == jobs


@pytest.mark.parametrize(
    "text",
    [
        STEP_ENDED.format(11, 1, "") + ENDED.format(11, 1, LIMIT) + ENDED.format(11, 1, LIMIT).replace("n1", "n2"),
        ENDED.format(11, 1, LIMIT) + "2026-01-01 10:00:20 the last words\n" + ERROR,
        ENDED.format(11, 1, LIMIT) + "SLURM_JOB_ID=11\n" + TEXT + STEP_ENDED.format(11, 1, ""),
        ENDED.format("11_4", 1, LIMIT) + "SLURM_JOB_ID=15\n" + TEXT,
    ],
    ids=["of all nodes", "last words", "its own number", "a task of an array"],
)
def test_what_a_job_still_says_is_its_own(read: Callable[..., Reading], text: str) -> None:
    [row] = read(text).rows
    assert row.outcome == "TIMEOUT" and str(row.job_id).startswith("11")


def test_a_file_that_slurm_named_is_of_one_job(read: Callable[..., Reading]) -> None:
    text = TEXT + "prints of another: " + ENDED.format(9012, 1, LIMIT) + ENDED.format(9012, 1, LIMIT) + ERROR
    [row] = read(text, "slurm-11.out").rows
    assert (row.job_id, row.outcome) == ("11", "FAILED")


@pytest.mark.parametrize("cut", range(1, 12))
def test_in_pieces_as_in_one(cut: int) -> None:
    text = "SLURM_JOB_ID=11\n" + TEXT + ENDED.format(11, 1, LIMIT) + TEXT + ERROR + ENDED.format(12, 2, "")
    lines = text.splitlines(keepends=True)
    runs: list[LogRun] = []
    for part in ("".join(lines[:cut]), "".join(lines[cut:])):
        scanner = Scanner(formats_in(text.encode()))
        scanner.feed(part.encode())
        runs = join((runs, scanner.finish()))
    whole = parse_stream("a.log", io.BytesIO(text.encode())).rows
    assert said(whole) == [("11", "TIMEOUT"), ("12", "FAILED")]
    assert said(Reading.of_runs("a.log", runs, Unparsed()).rows) == said(whole)
