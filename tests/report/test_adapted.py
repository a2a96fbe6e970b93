"""What ran otherwise than planned because of the node stands in a line of `status` and in a note of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import Made, write_run

from hpc_llm.cli import run as command
from hpc_llm.records.files import read_json, write_json
from hpc_llm.reporting.collect import collect
from hpc_llm.reporting.report import make_report

FALLBACK = "On this node deepspeed runs in place of fsdp2, for it needs torch 2.6."
UNCOMPILED = f"The layers run uncompiled, for nothing can be compiled here: {'no compiler ' * 40}"
TELEMETRY = "There is no GPU telemetry: OSError: x."


def made(logs: Path, name: str, *adaptations: str) -> None:
    folder = write_run(logs, Made(run_id=name, cluster="delta", method="z3"))
    write_json(folder / "result.json", {**(read_json(folder / "result.json") or {}), "adaptations": list(adaptations)})


def test_status_tells_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, "one", FALLBACK)
    made(tmp_path, "two", UNCOMPILED, TELEMETRY, FALLBACK)
    made(tmp_path, "none", TELEMETRY)
    assert command(["status", "--logs", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "adapted" in line]
    assert lines[0] == f"one: adapted to its node: {FALLBACK[:-1]}"
    assert lines[1].startswith("two: adapted to its node: The layers run uncompiled") and len(lines[1]) < 200
    assert lines[1].endswith("…; and 1 more in its result.json") and len(lines) == 2
    command(["status", "--json", "--logs", str(tmp_path)])
    told = {one["run_id"]: one["adapted"] for one in json.loads(capsys.readouterr().out)["runs"]}
    assert told["one"] == FALLBACK[:-1] and told["none"] is None


def test_the_report_has_a_note_of_it_with_the_runs(tmp_path: Path) -> None:
    for name in "abcde":
        made(tmp_path, name, FALLBACK)
    made(tmp_path, "f", TELEMETRY)
    [note] = [one for one in make_report(collect([tmp_path])).notes if one.startswith("Adapted")]
    assert note == f"Adapted to the node, otherwise than planned: {FALLBACK[:-1]} (a, b, c and 2 more)."
