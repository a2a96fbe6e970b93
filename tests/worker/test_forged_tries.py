"""What a search believes of the tries in a folder that somebody else may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.errors import RequestError
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.searching.tries import TryOutcome, tries_of
from hpc_llm.worker.tune_llm import answer


@pytest.fixture
def searched(tmp_path: Path) -> RunPaths:
    """A search with one try that is over."""
    [made] = hpc_llm.plan(cluster="local", method="ddp", model="tiny", task="tune", logs=tmp_path, micro_batch_size=2)
    run = RunPaths(tmp_path / "r")
    run.root.mkdir()
    run.write(run.experiment, {"schema": 1, "run_id": "r", "plan": made.plan.to_dict()})
    assert answer(run.root, None).startswith("try 1 ")
    ends(run, {"outcome": "COMPLETED", "tokens_per_second": 100.0, "step_time_s_mean": 0.5})
    return run


def ends(run: RunPaths, result: dict[str, Any], end: dict[str, Any] | None = None) -> None:
    one = run.search_try(1)
    one.result.write_text(json.dumps(result))
    one.exit.write_text(json.dumps(end or {"exit_code": 0, "started_at": 1.0, "ended_at": 9.0}))


@pytest.mark.parametrize("rate", [1e30, -5, "lots", [1], True, float("nan")])
def test_a_figure_that_cannot_be_is_none_of_a_search(searched: RunPaths, rate: object) -> None:
    """It was the fastest of all, or ended the search with an error of Python."""
    ends(
        searched, {"outcome": "COMPLETED", "tokens_per_second": rate, "step_time_s_mean": rate, "peak_host_bytes": rate}
    )
    plan = hpc_llm.plan(
        cluster="local", method="ddp", model="tiny", task="tune", logs=searched.root, micro_batch_size=2
    )[0]
    [found] = tries_of(searched, plan.plan)
    assert (found.tokens_per_second, found.step_time_s, found.verdict) == (None, None, TryOutcome.FITS)
    assert answer(searched.root, 100).startswith("try 2 ")


@pytest.mark.parametrize(
    "changes",
    [{"limit_s": "soon"}, {"limit_s": None}, {"micro_batch_size": 0}, {"sequence_length": "8"}, {"confirms": "no"}],
)
def test_a_try_of_which_nobody_can_say_what_it_was_is_none(searched: RunPaths, changes: dict[str, Any]) -> None:
    path = searched.search_try(1).experiment
    record = json.loads(path.read_text())
    record["search"].update(changes)
    path.write_text(json.dumps(record))
    assert answer(searched.root, None).startswith("try 2 ")


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, TryOutcome.MEMORY), (0, TryOutcome.FAILED), (None, TryOutcome.FAILED), ("2", TryOutcome.FAILED)],
)
def test_a_try_that_the_kernel_killed_for_lack_of_memory_does_not_fit(
    searched: RunPaths, count: object, expected: TryOutcome
) -> None:
    ends(searched, {}, {"exit_code": 137, "started_at": 1.0, "ended_at": 9.0, "oom_kills": count})
    plan = hpc_llm.plan(
        cluster="local", method="ddp", model="tiny", task="tune", logs=searched.root, micro_batch_size=2
    )[0]
    assert tries_of(searched, plan.plan)[0].verdict is expected


def test_times_that_are_none_hinder_nothing(searched: RunPaths) -> None:
    ends(
        searched,
        {"outcome": "FAILED"},
        {"exit_code": 1, "signal": "TERM", "started_at": "then", "ended_at": [], "time_limit_s": "x"},
    )
    assert answer(searched.root, 50).startswith("try 2 ")


def test_a_search_goes_on_from_no_tries_that_others_can_have_written(searched: RunPaths, tmp_path: Path) -> None:
    asked = {"cluster": "local", "method": "ddp", "model": "tiny", "task": "tune", "resume": str(searched.root)}
    [made] = hpc_llm.plan(**asked, logs=tmp_path)
    assert made.plan.tuning.resume == str(searched.root)
    result = searched.search_try(1).result
    result.chmod(0o666)
    with pytest.raises(
        RequestError, match=r"others may write .*result\.json, and a search believes what its tries say"
    ):
        hpc_llm.plan(**asked, logs=tmp_path)
    result.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(result, 65534, -1)
        with pytest.raises(RequestError, match=r"it belongs to user .*cp -r"):
            hpc_llm.plan(**asked, logs=tmp_path)
