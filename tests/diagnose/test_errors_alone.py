"""What a job's shell says on standard error, in a file of its own, of a module or an environment, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_llm.diagnosis import diagnose_files
from hpc_llm.parsing import Row, parse_paths

COMPLAINTS = (
    'Lmod has detected the following error:  The following module(s) are unknown:\n"cuda/12.9"\n',
    "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'cuda/11'\n",
    "/var/spool/slurmd/job9/slurm_script: line 4: module: command not found\n",
    "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n",
)
STEPS = "".join(f"iter {i}: loss {5 - i / 100:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(1, 21))
DONE = "{'train_runtime': 480.0, 'train_samples_per_second': 1.0, 'train_loss': 1.1, 'epoch': 1.0}\n"
NAMES = ("job.err", "train.e77", "stderr.log")


def write(folder: Path, errors: str, output: str, name: str = "job.err") -> list[Path]:
    files = [folder / name, folder / "job.out"]
    for path, text in zip(files, (errors, output), strict=True):
        path.write_text(text)
    return files


def row_of(path: Path) -> Row:
    (row,) = parse_paths([path])
    return row


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize("name", NAMES)
def test_standard_error_alone_does_not_say_that_the_job_ended_of_it(complaint: str, name: str, tmp_path: Path) -> None:
    errors, _ = write(tmp_path, complaint, "", name)
    row, found = row_of(errors), diagnose_files([errors])
    assert row.outcome == "UNKNOWN" and "does not say whether the job went on" in str(row.outcome_reason)
    assert row.cause == found.cause.id in ("module_missing", "conda_not_initialised")
    assert row.cause_confidence == found.confidence == 0.6
    assert "listed as UNKNOWN" in found.summary and found.evidence[0].line == 1


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize(("end", "cause"), [(DONE, "none"), ("", "unknown")])
def test_a_job_whose_output_shows_training_went_on(complaint: str, end: str, cause: str, tmp_path: Path) -> None:
    found = diagnose_files(write(tmp_path, complaint, STEPS + end))
    assert found.cause.id == cause
    assert "went on after a complaint" in found.summary and "job.err:1" in found.summary


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_a_job_that_shows_no_training_has_failed_of_it(complaint: str, tmp_path: Path) -> None:
    found = diagnose_files(write(tmp_path, complaint, "starting\n"))
    assert found.cause.id in ("module_missing", "conda_not_initialised") and found.confidence > 0.6


def test_what_failed_behind_it_is_a_failure(tmp_path: Path) -> None:
    for more in (
        "ModuleNotFoundError: No module named 'torch'\n",
        "srun: error: n1: task 0: Exited with exit code 1\n",
    ):
        errors, _ = write(tmp_path, COMPLAINTS[0] + more, "")
        assert row_of(errors).outcome == "FAILED" and diagnose_files([errors]).confidence > 0.6
    assert row_of(write(tmp_path, "", COMPLAINTS[0])[1]).outcome == "FAILED"  # both streams in one file


WORK = "".join(f"part {n} of the data done in {n * 3 % 7}.5 s\n" for n in range(12))
BROKEN = (
    'Traceback (most recent call last):\n  File "/w/a.py", line 9, in <module>\n    main()\nValueError: no labels\n'
)
CUT_OFF = BROKEN.replace(
    "ValueError: no labels",
    "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(4 bytes read)')",
)
ABSENT = BROKEN.replace("ValueError: no labels", "ModuleNotFoundError: No module named 'torch'")
ENVIRONMENT = ("module_missing", "conda_not_initialised")


def both(files: list[Path]) -> tuple[str, float | None]:
    """Cause and confidence, which are the same in a row and in a diagnosis."""
    (row,), found = parse_paths(files), diagnose_files(files)
    if row.cause is None:  # nothing at all was recognised
        assert found.cause.id == "unknown"
    else:
        assert (row.cause, row.cause_confidence) == (found.cause.id, found.confidence)
    return found.cause.id, found.confidence


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize(
    ("end", "cause"), [(BROKEN, "python_exception"), (CUT_OFF, "python_exception"), ("", "unknown")]
)
def test_a_program_that_worked_in_spite_of_it_ended_by_something_else(
    complaint: str, end: str, cause: str, tmp_path: Path
) -> None:
    pair = write(tmp_path, complaint + end, WORK)
    assert both(pair)[0] == both(pair[::-1])[0] == cause
    whole = tmp_path / "whole.log"
    whole.write_text("".join(COMPLAINTS) + complaint + WORK + end)
    assert both([whole])[0] == cause


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_a_connection_that_broke_is_of_no_module(complaint: str, tmp_path: Path) -> None:
    errors, _ = write(tmp_path, complaint + CUT_OFF, "")
    assert both([errors]) == ("python_exception", 0.85)


@pytest.mark.parametrize("complaint", COMPLAINTS)
@pytest.mark.parametrize("end", [BROKEN, ABSENT, ""])
@pytest.mark.parametrize("output", ["", "starting\n", "run 1\nrun 2\nrun 3\n"])
def test_without_work_it_stays_the_cause_in_both(complaint: str, end: str, output: str, tmp_path: Path) -> None:
    cause, confidence = both(write(tmp_path, complaint + end, output))
    assert cause in ENVIRONMENT and confidence is not None and confidence > 0.65


def test_what_a_script_counts_while_its_program_is_missing_is_no_work(tmp_path: Path) -> None:
    assert both(write(tmp_path, COMPLAINTS[0] + ABSENT, WORK))[0] in ENVIRONMENT
    errors = COMPLAINTS[3] + "job.sh: line 9: python: command not found\n" * 12
    assert both(write(tmp_path, errors, "".join(f"seed {n}\n" for n in range(12))))[0] != "unknown"
