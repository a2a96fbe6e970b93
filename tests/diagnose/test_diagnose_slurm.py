"""Runs that fail for real on a real Slurm, and what the command line says of each."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.cli import make_app
from hpc_llm.diagnosis import diagnose_files
from hpc_llm.records.run import Outcome
from hpc_llm.site.slurm_time import parse_time

if TYPE_CHECKING:
    from failing_runs import Failing
    from scratch_site import ScratchSite
    from scratch_slurm import ScratchSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Told:
    """What is to be said of a run."""

    cause: str
    shows: str
    """Pattern of `FILE: TEXT` of the first evidence."""
    remedy: str
    """Part of it."""
    retry: bool = False
    outcome: Outcome | None = None
    """Where it is not the cause's own: a guess is listed as failed."""

    @property
    def listed_as(self) -> str:
        return (self.outcome or BY_ID[self.cause].outcome).value


ENDED = {
    "walltime": Told("walltime", r"log.err: .*\*\*\* (?:JOB|STEP) .* DUE TO TIME LIMIT", "--steps "),
    "preempted": Told("preempted", r"log.err: .* DUE TO PREEMPTION", "submit it again as it is", retry=True),
    "requeued": Told("cancelled", r"log.err: .*\*\*\* JOB .* CANCELLED AT \S+ \*\*\*$", "submit it again", retry=True),
    "cancelled": Told("cancelled", r"log.err: .*\*\*\* JOB .* CANCELLED AT", "submit it again", retry=True),
    "scancelled": Told("cancelled", r"log.err: .*\*\*\* JOB .* CANCELLED AT", "submit it again", retry=True),
    "node lost": Told("node_fail", r"log.err: .*(?:Node failure on tw2|DUE TO NODE FAILURE)", "--sbatch exclude=tw2", retry=True),
    "node lost silently": Told("node_fail", r"scheduler: NODE_FAIL: .*tw2", "--sbatch exclude=tw2", retry=True),
    "memory": Told("host_oom", r"log.err: slurmstepd.* [Ee]xceeded (?:job )?memory limit", "--sbatch mem="),
    "no module": Told("module_missing", r"log.err: .*no-such-module/1.0", "prelude.load"),
    "no environment": Told("conda_not_initialised", r"log.err: Environment.*/missing", "prelude.python"),
    "no hook": Told("conda_not_initialised", r"log.err: .*/nowhere/conda.sh cannot be read", "prelude.python"),
    "no stack": Told("package_missing", r"log.err: .* lacks torch, transformers, deepspeed", "pip install"),
    "array broken": Told("package_missing", r".*: ModuleNotFoundError", "find out what brings a_package_that_nobody_has"),
    "wrong value": Told("config_error", r".*: \S*ValidationError: .*CommsLoggerConfig", "--set PATH=VALUE"),
    "port taken": Told("port_in_use", r".*: \S*DistNetworkError: .*EADDRINUSE", "submit it again", retry=True),
    "rank raises": Told("python_exception", r"failures/rank-1.json: RuntimeError: adapter shapes", "traceback"),
    "rank killed": Told("unknown", r"exit.json: exit code 137", "", outcome=Outcome.FAILED),
    "rank exits": Told("unknown", r"log.err: srun: .* task 1: Exited with exit code 7", "sacct", outcome=Outcome.FAILED),
    "crash": Told("segfault", r"log.err: (?:Fatal Python error|srun: error: tw1: task 0): Segmentation fault", "mixed builds are the usual reason: "),
    "disk full": Told("disk_full", r"log.*: .*No space left on device", "--logs DIR"),
    "array whole": Told("none", r"log.out: Training done", "nothing to do"),
}  # fmt: skip
GOING = {
    "queued": "PENDING",
    "running": "RUNNING",
    "requeued, queued again": "PENDING",
    "requeued, runs again": "RUNNING",
}
ONLY_SLURM_KNOWS = {"node lost silently": Outcome.UNKNOWN.value}
"""Nothing in a copy of the folder tells of it, which holds neither its job nor what Slurm said of that."""
NOT_OF_SUBMIT = {"--watch", "--standalone", "--base"}  # of `hpc-llm status`, of torchrun, of conda info


@pytest.fixture(scope="module")
def failing(slurm: ScratchSlurm, quick_site: ScratchSite, tmp_path_factory: pytest.TempPathFactory) -> Failing:
    from failing_runs import Failing
    from login_node import LoginNode

    made = Failing(LoginNode(tmp_path_factory.mktemp("login"), slurm), quick_site, tmp_path_factory.mktemp("failing"))
    made.produce()
    return made


@pytest.fixture(params=ENDED)
def name(request: pytest.FixtureRequest, failing: Failing) -> str:
    """The name of each run that has ended."""
    if request.param == "disk full" and failing.mount_refused:
        lacking = f"no file system can be mounted to be filled: {failing.mount_refused}"
        pytest.fail(lacking) if os.environ.get("CI") else pytest.skip(lacking)
    return str(request.param)


def test_the_cause_its_evidence_and_the_remedy(failing: Failing, name: str) -> None:
    found, told = failing.diagnosis[name], ENDED[name]
    assert (found["cause"], bool(found["retry"])) == (told.cause, told.retry), found
    assert found["chain"][:1] == ([] if told.cause in ("none", "unknown") else [told.cause])
    first = found["evidence"][0]
    assert re.match(told.shows, f"{first['file']}: {first['text']}"), found["evidence"]
    assert told.remedy in found["remedy"]
    if first["text"].startswith("Fatal Python error"):  # which of the two lines is written first the system decides
        assert "it crashed in " in found["remedy"]


def test_a_guess_is_told_from_what_is_known(failing: Failing, name: str) -> None:
    confidence = failing.diagnosis[name]["confidence"]
    assert confidence < 0.65 if ENDED[name].outcome else confidence > 0.85


def test_evidence_stands_where_it_is_said_to(failing: Failing, name: str) -> None:
    evidence = failing.diagnosis[name]["evidence"]
    for one, line in zip(evidence, failing.lines[name], strict=True):
        assert one["file"] == "scheduler" if line is None else _holds(line, one["text"], one["file"]), (one, line)


def _holds(line: str, text: str, file: str) -> bool:
    if file == "exit.json":
        record: dict[str, Any] = json.loads(line)
        return text.startswith(f"exit code {record['exit_code']}, ") and (record["reason"] or "") in text
    if file.startswith("failures/"):  # one field a line, quoted
        return any(json.dumps(part, ensure_ascii=False)[1:-1] in line for part in (text, text.partition(": ")[2]))
    return text in line


def test_the_remedy_names_flags_that_there_are(failing: Failing, name: str) -> None:
    submit = get_command(make_app([])).commands["submit"]  # type: ignore[attr-defined]
    known = {word for option in submit.params for word in option.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", failing.diagnosis[name]["remedy"])) <= known | NOT_OF_SUBMIT


def test_the_remedy_can_be_followed(failing: Failing) -> None:
    from failing_runs import TAIWANIA

    remedies = failing.diagnosis["walltime"]["remedy"] + "\n" + failing.diagnosis["node lost"]["remedy"]
    pairs = re.findall(r"(--[a-z-]+) (\S+)", remedies)
    rendered = json.loads(failing.node.do("render", "--json", *TAIWANIA, *map("=".join, pairs)))
    asked = dict(pairs)
    assert rendered["plan"]["workload"]["steps"] == int(asked["--steps"])
    if "--time" in asked:  # what its steps need may be more than any partition allows
        assert rendered["plan"]["job"]["time_s"] == parse_time(asked["--time"]) > 600
    assert "#SBATCH --exclude=tw2\n" in re.sub(r" +#[^\n]*", "", rendered["script"])


def test_status_and_parse_agree_with_the_cause(failing: Failing, name: str) -> None:
    listed = (failing.status[name]["outcome"], failing.row[name]["outcome"])
    assert listed == (ENDED[name].listed_as, ENDED[name].listed_as)


def test_parse_agrees_of_a_copy(failing: Failing, name: str) -> None:
    expected = ONLY_SLURM_KNOWS.get(name, ENDED[name].listed_as)
    assert failing.row_alone[name]["outcome"] == expected, failing.row_alone[name]["outcome_reason"]


@pytest.mark.parametrize("name", GOING)
def test_a_run_that_is_not_over_has_not_failed(failing: Failing, name: str) -> None:
    found = failing.diagnosis[name]
    assert (found["cause"], found["chain"], found["retry"]) == ("none", [], False)
    assert found["summary"].startswith(f"The run is not over: {GOING[name]}.")
    assert (failing.status[name]["state"], failing.status[name]["outcome"]) == (GOING[name], None)
    assert failing.row[name]["outcome"] is None
    assert failing.row[name]["outcome_reason"].startswith(f"it is not over: {GOING[name]}")


# What Slurm and srun write is understood in any program's output, without the records of a run.
ALONE = (
    "walltime", "preempted", "cancelled", "scancelled", "node lost", "memory", "no module", "no environment", "no stack",
    "array broken", "wrong value", "port taken", "rank raises", "rank killed", "rank exits", "crash",
)  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_the_output_alone_tells_the_cause(failing: Failing, name: str) -> None:
    found = diagnose_files([failing.runs[name].stderr])
    told = ENDED[name]
    assert found.cause.id == ("unknown" if told.outcome else told.cause), failing.runs[name].stderr.read_text()
    assert found.retry == told.retry


def test_over_memory_says_how_much(failing: Failing) -> None:
    said = re.fullmatch(r"It used (\d+) MiB, and 100 MiB were allowed\.", failing.diagnosis["memory"]["summary"])
    assert said is not None and 100 < int(said[1]) < 800  # it was to become 400, and Slurm may look before it has


def test_the_module_the_rank_and_the_steps_are_named(failing: Failing) -> None:
    assert diagnose_files([failing.runs["no module"].stderr]).details["module"] == "no-such-module/1.0"
    assert failing.diagnosis["rank raises"]["summary"].startswith("Rank 1 failed first: RuntimeError: adapter")
    made = failing.diagnosis["walltime"]["details"]["steps_made"]
    assert int(made) >= 3 and f"of which it made {made})" in failing.diagnosis["walltime"]["remedy"].replace(";", ")")
