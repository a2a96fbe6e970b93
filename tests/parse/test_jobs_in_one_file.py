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


OPENING = "INFO:root:reading the settings of the trainer\nINFO:root:loading the weights of the encoder\n"
SRUN = "srun: error: n1: task 0: {}\n"
AT_WORK = "INFO:root:[1,     0/ 2562] - train_loss: 4.942\nINFO:root:[1,    25/ 2562] - train_loss: 4.8\n"
ABORTED = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
STEP_11 = ABORTED + STEP_ENDED.format(11, 1, "") + SRUN.format("Terminated")
FAILED = ERROR + SRUN.format("Exited with exit code 1")


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        (OPENING + AT_WORK + STEP_11 + OPENING + AT_WORK + FAILED, [("11", "CANCELLED"), (None, "FAILED")]),
        (OPENING + AT_WORK + STEP_11 + OPENING + ERROR, [("11", "CANCELLED"), (None, "FAILED")]),
        (AT_WORK + STEP_11 + FAILED, [("11", "CANCELLED"), (None, "FAILED")]),
        (AT_WORK + STEP_11 + TEXT + STEP_ENDED.format(12, 2, ""), [("11", "CANCELLED"), ("12", "CANCELLED")]),
        (AT_WORK + STEP_11 + FAILED + OPENING + STEP_ENDED.format(12, 2, LIMIT), [("11", "CANCELLED"), ("12", "FAILED")]),
        (OPENING + ERROR + SRUN.format("Exited with exit code 1") + OPENING + AT_WORK + STEP_11, [("11", "CANCELLED")]),
    ],
    ids=["opens again", "opens and fails", "srun fails again", "another step", "fails before the next", "failed before"],
)  # fmt: skip
def test_what_stands_behind_the_end_of_a_step_is_not_its_jobs(
    read: Callable[..., Reading], text: str, jobs: list[tuple[str | None, str]]
) -> None:
    assert said(read(text).rows) == jobs


@pytest.mark.parametrize(
    "behind",
    ["", ERROR, "the last words of a rank\n", STEP_ENDED.format(11, 1, "").replace("11.0", "11.1"), ENDED.format(11, 1, "")],
    ids=["nothing", "an exception", "words", "its other step", "the job"],
)  # fmt: skip
def test_what_a_step_still_says_is_its_own(read: Callable[..., Reading], behind: str) -> None:
    [row] = read(OPENING + AT_WORK + STEP_ENDED.format(11, 1, "") + behind).rows
    assert row.job_id == "11"


LOGGED = """\
--- Logging error ---
Traceback (most recent call last):
  File "/e/lib/python3.12/logging/__init__.py", line 1160, in emit
    msg = self.format(record)
  File "/e/lib/python3.12/logging/__init__.py", line 392, in getMessage
    msg = msg % self.args
TypeError: not all arguments converted during string formatting
Call stack:
  File "/home/u/train.py", line 52, in main
    logger.info("samples", 12)
Message: 'samples'
Arguments: (12,)
"""


@pytest.mark.parametrize("shift", range(0, 700, 50))
def test_the_verdict_does_not_depend_on_what_stands_around_the_job(read: Callable[..., Reading], shift: int) -> None:
    """Blocks of an error that a logger wrote lie across any place where the text is parted."""
    steps = "".join(f"INFO:root:[1, {n:5}/ 2562] - train_loss: {5 - n / 1000:.3f}\n" for n in range(400))
    job = OPENING + steps + LOGGED * 120 + AT_WORK + STEP_11
    [alone] = read(job).rows
    before = "x" * shift + "\n" + OPENING + steps + STEP_11.replace("11.0", "10.0").replace("2026", "2025")
    first, row = read(before + job).rows
    assert said([first, row]) == [("10", "CANCELLED"), ("11", "CANCELLED")]
    assert (row.outcome, row.cause) == (alone.outcome, alone.cause)
