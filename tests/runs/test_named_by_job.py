"""A run that is named by its job: a job of several runs names none of them, and a number is no part of a run's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import Folder

import hpc_llm
from hpc_llm.api.find import find_run, find_runs
from hpc_llm.errors import RequestError
from hpc_llm.runs.cancellation import cancel_job

RUNS = (
    "20261126-134616-local-z2o-tiny-09qy",
    "20261126-134616-local-z3-tiny-hmun",
    "20261126-130000-local-z3-tiny-12ab",
)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name, job_id in zip(RUNS, ("27982", "27982", "11_0"), strict=True):
        Folder(tmp_path / name, job_id)
    return tmp_path


def refused(text: str, logs: Path) -> str:
    with pytest.raises(RequestError) as caught:
        find_run(text, logs)
    return str(caught.value)


def test_the_job_of_several_runs_is_told_as_that(logs: Path) -> None:
    assert refused("27982", logs) == f"27982 is the job of 2 runs: {RUNS[0]}, {RUNS[1]}. Name one of them."
    assert [run.run_id for run in find_runs(["27982"], logs)] == list(RUNS[:2])
    for number in range(6):
        Folder(logs / f"more-{number}", "27982")
    assert refused("27982", logs).endswith(" and 3 more. Name one of them.")


def test_the_start_of_several_ids_asks_for_more_of_it(logs: Path) -> None:
    assert refused("20261126", logs).startswith("'20261126' is the start of 3 runs: ")
    assert refused("20261126-134616", logs).endswith("Write more of it.")
    assert find_run("20261126-134616-local-z2o", logs).run_id == RUNS[0]


@pytest.mark.parametrize("number", ["0", "99999999999999999999"])
def test_a_number_that_no_job_has_is_told_in_a_whole_sentence(number: str, logs: Path) -> None:
    with pytest.raises(RequestError) as caught:
        cancel_job(number)
    assert str(caught.value).endswith("in that folder of runs (--logs DIR names another).")


def test_a_name_is_no_other_run_s_that_goes_on_with_a_letter_or_a_digit(logs: Path) -> None:
    for name in ("exp10", "exp2-b", "z3o"):
        Folder(logs / name, None)
    for text in ("exp1", "z3", "ex", "exp"):
        assert f"there is no run '{text}'" in refused(text, logs)
    assert find_run("exp2", logs).run_id == "exp2-b"


def test_what_ends_removes_or_goes_on_with_a_run_takes_its_whole_name(logs: Path) -> None:
    Folder(logs / "exp2-b", None)
    for act in (hpc_llm.cancel, hpc_llm.clean, hpc_llm.reconcile):
        with pytest.raises(RequestError, match="there is no run 'exp2' in"):
            act("exp2", logs=logs)
    with pytest.raises(RequestError, match="there is no run 'exp2' in"):
        hpc_llm.plan(resume="exp2", logs=logs)
    assert hpc_llm.status("exp2", logs=logs)


@pytest.mark.parametrize("text", ["12", "2026", "11_1"])
def test_a_number_is_no_part_of_a_runs_name(text: str, logs: Path) -> None:
    said = refused(text, logs)
    assert said.startswith(f"there is no run of job {text} in {logs}. Valid: ") and "did you mean" not in said
    assert find_run("11_0", logs).run_id == RUNS[2]


def test_a_name_that_is_nearly_one_is_offered(logs: Path) -> None:
    assert f"did you mean '{RUNS[1]}'?" in refused("20261126-134616-local-z3-tiny-hmum", logs)
