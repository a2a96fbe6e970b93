"""Why runs did not complete: the diagnosis beside each of them, on the page and in Markdown."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rendering import planned
from synthetic import Made, write_run

from hpc_llm.cli import run as command
from hpc_llm.diagnosis import CAUSES
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting import collect, make_report
from hpc_llm.reporting.records import SharedItems

TITLES = {cause.id: cause.title for cause in CAUSES}
STEPS = "".join(f"iter {i}: loss {5 - i / 50:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(30))
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "train.py", line 12, in <module>
    model(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 31.74 GiB of which 1.02 GiB is free.
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A job that left two files, one that completed, one that says nothing of its end, and a run stopped at its limit."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "gpt-17.out").write_text(STEPS)
    (folder / "gpt-17.err").write_text(OUT_OF_MEMORY)
    run = RunPaths(
        write_run(folder, Made(run_id="run-stopped", cluster="local", method="z3", outcome="UNKNOWN", reason="?"))
    )
    write_json(run.exit, {
        "schema": 1, "run_id": "run-stopped", "exit_code": 124, "signal": "TERM", "stage": "done", "job_id": None,
        "reason": "time limit of 60 s reached", "started_at": 1777629600.0, "ended_at": 1777629660.0, "time_limit_s": 60,
    })  # fmt: skip
    write_json(run.submission, {"schema": 1, "run_id": "run-stopped", "scheduler": "local", "job_id": None})
    write_run(folder, Made(run_id="run-completed", cluster="local", method="z3"))
    write_run(folder, Made(run_id="run-short", cluster="local", method="z3", outcome="INVALID", reason="too short"))
    return folder


def data(page: Path) -> dict[str, Any]:
    found = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    read: dict[str, Any] = json.loads(found[1])
    return read


def items(known: dict[str, Any], ranges: list[int]) -> list[Any]:
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return [item for start, count in pairs for item in known["items"][start : start + count]]


def test_each_run_that_did_not_complete_has_its_cause(logs: Path, tmp_path: Path) -> None:
    assert command(["report", str(logs), "-o", str(tmp_path / "out")]) == 0
    known = data(tmp_path / "out" / "index.html")
    causes = {run["id"]: run.get("cause") for run in known["runs"]}
    assert causes["run-completed"] is None
    assert causes["gpt-17"] == TITLES["device_oom"] and causes["run-stopped"] == TITLES["walltime"]
    gpt = next(run for run in known["runs"] if run["id"] == "gpt-17")
    (where, line), *_ = items(known, gpt["evidence"])
    assert where.endswith("gpt-17.err:4") and "Tried to allocate 3.00 GiB" in line
    assert items(known, gpt["remedy"])


def test_the_outcome_is_the_one_that_status_gives(logs: Path, tmp_path: Path) -> None:
    assert command(["report", str(logs), "-o", str(tmp_path / "out")]) == 0
    known = data(tmp_path / "out" / "index.html")
    facts = {run["id"]: dict(items(known, run["facts"])) for run in known["runs"]}
    assert facts["run-stopped"]["Outcome"] == "TIMEOUT"
    assert facts["run-short"]["Outcome"] == "INVALID"
    assert facts["run-completed"]["Outcome"] == "COMPLETED"


def test_the_list_names_cause_reason_and_the_first_thing_to_do(logs: Path, tmp_path: Path) -> None:
    assert command(["report", str(logs), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "results.md").read_text()
    listed = text.split("## Why runs did not complete")[1].split("##")[0].strip().splitlines()
    assert len(listed) == 3
    assert any(
        re.search(rf"TIMEOUT: run-stopped: {TITLES['walltime']}: .*To do: its steps say that", line) for line in listed
    )
    assert any(re.search(rf"OOM_DEVICE: gpt-17: {TITLES['device_oom']}: .*\. To do: \S", line) for line in listed)
    page = (tmp_path / "out" / "index.html").read_text()
    ended = page.split('id="ended"')[1].split("</section>")[0]
    assert ended.count("<li") == 2 and TITLES["device_oom"] in ended and "run-short" not in ended
    assert "too short" in page.split('id="invalid"')[1].split("</section>")[0]


def test_what_comes_first_is_listed_with_what_mends(tmp_path: Path) -> None:
    """A way into an environment by itself mends nothing."""
    run = RunPaths(write_run(tmp_path / "logs", Made(run_id="run-bare", cluster="taiwania2", method="z3")))
    run.result.unlink()
    run.steps.unlink()
    record = json.loads(run.experiment.read_text())
    write_json(run.experiment, {**record, "plan": planned("taiwania2", "z3").plan.to_dict()})
    write_json(run.exit, {
        "schema": 1, "run_id": "run-bare", "exit_code": 75, "signal": None, "stage": "prelude", "job_id": None, "started_at": 1777629600.0,
        "reason": "the Python environment lacks torch, transformers: /e/bin/python", "ended_at": 1777629660.0, "time_limit_s": 60,
    })  # fmt: skip
    run.stderr.write_text("hpc-llm: the Python environment lacks torch, transformers: /e/bin/python (on gn1)\n")
    write_json(run.submission, {"schema": 1, "run_id": "run-bare", "scheduler": "local", "job_id": None})
    assert command(["report", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]) == 0
    told = (tmp_path / "out" / "results.md").read_text()
    assert re.search(r"To do: first, on a login node: module load .*; then install it .*pip install torch", told), told


def test_the_table_for_programs_has_the_ids_of_the_causes(logs: Path, tmp_path: Path) -> None:
    assert command(["report", str(logs), "-o", str(tmp_path / "out")]) == 0
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        found = {(row["outcome"], row["cause"]) for row in csv.DictReader(file)}
    assert {("TIMEOUT", "walltime"), ("OOM_DEVICE", "device_oom"), ("COMPLETED", "")} <= found


def test_runs_of_ours_bring_their_diagnosis_and_logs_get_it_when_asked(logs: Path) -> None:
    made = make_report(collect([logs]))
    explained = {run.row.run_id for run in made.runs if run.diagnosis}
    assert explained == {"run-stopped", "run-short"}


def test_a_run_that_is_not_over_is_shown_as_such_and_is_no_failure(tmp_path: Path) -> None:
    run = RunPaths(write_run(tmp_path / "logs", Made(run_id="run-new", cluster="local", method="z3")))
    run.result.unlink()
    run.steps.unlink()
    assert command(["report", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]) == 0
    known = data(tmp_path / "out" / "index.html")
    [facts] = [dict(items(known, one["facts"])) for one in known["runs"]]
    assert (facts["Outcome"], facts["Reason"]) == ("NOT_OVER", "it is not over: SUBMITTING")
    text = (tmp_path / "out" / "results.md").read_text()
    assert "Why runs did not complete" not in text or "run-new" not in text.split("Why runs did not complete")[1]


@pytest.mark.parametrize(
    "lists", [[["a", "b", "c"], ["b", "c", "a"]], [[], ["x", "x", "x"]], [["a"], ["b"], ["a", "b"]]]
)
def test_shared_items_give_every_list_back(lists: list[list[str]]) -> None:
    shared = SharedItems()
    ranges = [shared.add(one) for one in lists]
    known = {"items": shared.items()}
    assert [items(known, one) for one in ranges] == lists
    assert len(known["items"]) == len({item for one in lists for item in one})
