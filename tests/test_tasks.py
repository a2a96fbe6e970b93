"""Tasks: what each demands of the job's Python, what it heeds, and how one from elsewhere comes in and travels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rendering import batch, planned, script

from hpc_llm.errors import RequestError
from hpc_llm.planning import tasks
from hpc_llm.planning.experiment import PATHS
from hpc_llm.planning.tasks import OF_EVERY_TASK, TaskKind, required_packages
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.snapshot import code_digest, code_snapshot

OTHER = """\
from hpc_llm.planning.tasks import TaskKind

KIND = TaskKind(
    name="counting", worker="counting_task", packages=lambda plan: ("json",),
    plan_fields=frozenset({"steps", "seed"}), result_fields=frozenset(),
)


def train(record):
    from hpc_llm.records.run import Outcome
    from hpc_llm.worker.result import build_result

    print("counted", sum(range(record.plan.workload.steps)), "in", __file__)
    record.write(record.paths.result, build_result(record, Outcome.COMPLETED, None))


if __name__ == "__main__":
    from hpc_llm.worker.main import Program, command

    command(Program("counting", "counting_task"))
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as pip leaves it, with a package that brings the task `counting`."""
    site = tmp_path / "site"
    info = site / "counting_task-1.dist-info"
    info.mkdir(parents=True)
    (site / "counting_task.py").write_text(OTHER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-task\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hpc_llm.tasks]\ncounting = counting_task:KIND\n")
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("counting_task", None)


def demanded(text: str) -> list[str]:
    """What the script's own probe looks for."""
    line = next(line for line in text.splitlines() if line.startswith("need_packages "))
    return line.split()[1:]


@pytest.mark.parametrize(
    ("method", "settings", "more"),
    [
        ("z2o", (), []),
        ("z3", (), []),
        ("z3-hpc2", (), ["deepspeed"]),
        ("z3", ("engine=deepspeed",), ["deepspeed"]),
        ("ddp", (), []),
        ("ddp", ("engine=deepspeed",), ["deepspeed"]),
        ("z3", ("engine=fsdp2",), []),
        ("z3", ("engine=flat",), []),
        ("q", (), ["bitsandbytes"]),
        ("ddp+l", (), ["peft"]),
        ("qlora", (), ["bitsandbytes", "peft"]),
        ("z2+qlora", (), ["deepspeed", "bitsandbytes", "peft"]),
        ("z3", ("optimizer.type=PagedAdamW8bit",), ["bitsandbytes"]),
        ("ddp", ("engine=plain", "optimizer.type=Adam8bit"), ["bitsandbytes"]),
    ],
)
def test_a_job_demands_what_its_engine_and_method_import(
    method: str, settings: tuple[str, ...], more: list[str]
) -> None:
    assert demanded(script("local", method, set=settings)) == ["torch", "transformers", *more]


def test_weights_that_are_quantized_as_they_are_loaded_need_accelerate() -> None:
    plan = planned("local", "q").plan
    assert "accelerate" not in required_packages([plan])
    assert "accelerate" in required_packages([plan.changed(weights="checkpoint", model="/m")])


def looked_for(text: str, task: int) -> list[str]:
    """What the script's probes look for as that task of its array, by bash itself."""
    probes = [line for line in text.splitlines() if "need_packages " in line]
    lines = ["set -euo pipefail", "need_packages() { printf '%s\\n' \"$@\"; }", *probes]
    environ = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
    return subprocess.run(
        ["bash", "-c", "\n".join(lines)], env=environ, capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize(
    "methods",
    [
        ("z3", "q"),
        ("q", "z3"),
        ("z2", "z3"),
        ("q", "qlora"),
        ("z3", "z2+lora", "q", "qlora", "q-hpc2"),
        ("z3",) * 10 + ("q",) * 2,
    ],
    ids="-".join,
)
def test_each_task_of_an_array_looks_for_what_its_run_needs_and_no_more(methods: tuple[str, ...]) -> None:
    made = batch("taiwania2", *methods)
    assert len(made.distinct_scripts) == 1
    for task, one in enumerate(made.planned):
        found = looked_for(made.scripts[0].text, task)
        assert sorted(found) == sorted(required_packages([one.plan]))
    assert demanded(made.scripts[0].text) == list(required_packages([one.plan for one in made.planned]))


def test_every_field_of_the_plan_is_heeded() -> None:
    kinds = [tasks.find(name) for name in ("pretrain", "prepare", "infer", "tune")]
    heeded = [fields for kind in kinds for fields in (kind.plan_fields, kind.own_fields)]
    assert set(PATHS) == OF_EVERY_TASK.union(*heeded)
    assert not tasks.find("pretrain").plan_fields & OF_EVERY_TASK


def test_a_task_that_is_not_there_names_those_that_are(elsewhere: Path) -> None:
    with pytest.raises(RequestError, match=r"task 'pretrian'.*pretrain"):
        planned("local", "z3", task="pretrian")
    assert tasks.names() == ("pretrain", "finetune", "prepare", "infer", "tune", "counting")


@pytest.mark.parametrize("names", [{"worker": "counting-task; rm"}, {"worker": ""}, {"carries": ("a.b",)}])
def test_modules_that_a_script_or_an_archive_could_not_hold_are_refused(names: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no name of a Python module"):
        replace(tasks.find("pretrain"), **names)


def test_a_setting_that_a_task_would_not_heed_is_refused(elsewhere: Path) -> None:
    assert planned("local", "z3", task="counting", set=("seed=3",)).plan.workload.seed == 3
    with pytest.raises(RequestError, match="--set recompute: task counting does not heed recompute"):
        planned("local", "z3", task="counting", set=("recompute=true",))


def test_a_task_can_be_registered_by_hand_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks._registry, "_registered", {})
    kind = TaskKind(
        name="mine", worker="mine.run", packages=lambda plan: (), plan_fields=frozenset(), result_fields=frozenset(),
        carries=("helper",),
    )  # fmt: skip
    tasks.register(kind)
    assert tasks.find("mine").carried == ("mine", "helper")
    for name in ("mine", "pretrain"):
        with pytest.raises(ValueError, match=f"a task {name} already"):
            tasks.register(replace(kind, name=name))


def test_a_task_from_elsewhere_runs_from_the_archive_that_travels(elsewhere: Path, tmp_path: Path) -> None:
    request = tmp_path / "experiment.yaml"
    request.write_text("cluster: local\nmethod: ddp\ntask: counting\nsteps: 40\n")
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm", "submit", str(request), "--logs", str(tmp_path / "logs"), "--run-id", "r", "--wait"],
        env={**os.environ, "PYTHONPATH": str(elsewhere)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    run = RunPaths(tmp_path / "logs" / "r")
    said = run.stdout.read_text() if run.stdout.exists() else done.stderr
    assert f"counted 780 in {tmp_path / 'logs' / '.code'}" in said, said + done.stderr
    result: dict[str, Any] = json.loads(run.result.read_text())
    assert result["outcome"] == "INVALID" and "measured" in result["invalid_reason"]  # it trains nothing


def test_what_travels_with_a_task_is_its_sources_and_those_that_it_names(elsewhere: Path, tmp_path: Path) -> None:
    package = elsewhere / "helper" / "deep"
    package.mkdir(parents=True)
    (elsewhere / "helper" / "__init__.py").write_text("")
    (package / "one.py").write_text("x = 1")
    with_it = code_snapshot(tmp_path, also=("counting_task", "helper"))
    names = zipfile.ZipFile(with_it).namelist()
    assert {"counting_task.py", "helper/__init__.py", "helper/deep/one.py", "hpc_llm/worker/main.py"} <= set(names)
    assert code_snapshot(tmp_path) != with_it
    before = code_digest(also=("helper",))
    (package / "one.py").write_text("x = 2")
    assert code_digest(also=("helper",)) != before
    (elsewhere / "no_init").mkdir()
    for name, why in (("not_there_at_all", "is not there"), ("no_init", "cannot travel"), ("zlib", "cannot travel")):
        with pytest.raises(RequestError, match=why):
            code_digest(also=(name,))
