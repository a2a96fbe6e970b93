"""Runs of hpc-llm on the scratch Slurm that fail for real, each in a way of its own, all at once.

Where the failure is one of the training stack, the real one runs. Where it only matters that ranks are there and what
Slurm does to them, a package `torch` that waits or breaks takes its place: it starts in a tenth of the time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty_ground import clock_ahead
from login_node import LoginNode, job_id, printed, until
from scratch_site import ScratchSite, create_environment, executable
from small_disk import CannotMount, SmallDisk

from hpc_llm.records.run import RunPaths

TINY = (
    "--method=z3", "--model=tiny", "--gpus-per-node=0", "--steps=4", "--warmup-steps=1", "--sequence-length=32",
    "--set=precision=fp32", "--set=launcher=srun", "--set=tasks_per_node=1", "--time=00:10:00",
)  # fmt: skip
ENDLESS = "--steps=1000000"
FIRST_NODE, LAST_NODE = "--sbatch=nodelist=tw1", "--sbatch=nodelist=tw2"
ONCE = "--sbatch=no-requeue="
TAIWANIA = ("--cluster=taiwania2", "--partition=gtest", "--account=ACD110018", *TINY)
TWO_RANKS = tuple(word.replace("tasks_per_node=1", "tasks_per_node=2") for word in TAIWANIA)
DELTA = ("--cluster=delta", "--account=bbka-delta-gpu", "--sbatch=mem=8G", *TINY)
MI210 = ("--cluster=mi210", "--partition=sky", *TINY)

# Rank 0 waits, as in a collective for a peer that never comes. The others break once it does.
TORCH = """\
import os, pathlib, time
here = pathlib.Path("rank-0-waits")  # in the run's folder
if os.environ["SLURM_PROCID"] == "0" and {rank_0_waits}:
    here.touch()
    print("waits", flush=True)
    time.sleep(600)
while {rank_0_waits} and not here.exists():
    time.sleep(0.05)
{breaks}
"""
WAITS = "import time; print('waits', flush=True); time.sleep(600)"
HUNGRY = "import time; block = bytearray(400 << 20); time.sleep(600)"
PACKAGE = "a_package_that_nobody_has"

# A task prolog that takes the port of the ranks before they can, as a neighbour's program on the node may.
TAKES_THE_PORT = """\
#!/usr/bin/env python3
import os, socket, time
if os.environ["SLURM_LOCALID"] == "0":
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("", int(os.environ["MASTER_PORT"])))
    taken.listen()
    if os.fork() == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.close(stream)
        time.sleep(60)
"""


@dataclass
class Failing:
    """The runs, and what the command line said of each: once all were over, or while one was not."""

    node: LoginNode
    site: ScratchSite
    folder: Path
    runs: dict[str, RunPaths] = field(default_factory=dict)
    diagnosis: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    row: dict[str, dict[str, Any]] = field(default_factory=dict)
    row_alone: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `parse` makes of a copy of the run that lacks what Slurm had answered."""
    lines: dict[str, list[str | None]] = field(default_factory=dict)
    """For each piece of evidence the line to which it points, None where that is in no file of the run."""
    mount_refused: str = ""
    """Why no file system could be mounted to be filled."""

    def produce(self) -> None:
        """Submit everything, do to it what is to be done, and return when all is over."""
        self.site.write_profiles(self.node.folder)
        self._add_broken_clusters()
        self._submit("walltime", *TAIWANIA, ENDLESS, FIRST_NODE)
        self._submit("preempted", *DELTA, ENDLESS, "--partition=gpuA100x4-preempt", "--sbatch=nodelist=delta1")
        waits = self._torch("waits", WAITS)
        requeued = (*DELTA, waits, "--partition=gpuA100x4-interactive", "--sbatch=nodelist=delta2")
        self._submit("requeued", *requeued)
        self._submit("node lost", *TAIWANIA, waits, ONCE, "--nodes=2")
        self._submit("node lost silently", *TAIWANIA, waits, ONCE, LAST_NODE)
        for name in ("cancelled", "scancelled"):
            self._submit(name, *TAIWANIA, waits, FIRST_NODE)
        self._submit("queued", *TAIWANIA, "--sbatch=hold")
        self._reach_the_time_limit()  # first what trains without end, which slows down all the rest
        self._preempt()
        with self._full_disk():
            self._lose_a_node()
            self._cancel()
            self._submit_what_fails_by_itself()
        self._see_the_requeued_run_start_again()
        self._look([name for name in self.runs if name not in self.status])

    # what is submitted

    def _submit(self, name: str, *words: str) -> None:
        [self.runs[name]] = self.node.submit(*words)

    def _submit_what_fails_by_itself(self) -> None:
        for name in ("no module", "no environment", "no stack"):
            self._submit(name, *TAIWANIA, FIRST_NODE, f"--cluster={name.replace(' ', '-')}", "--force")
        self._submit("no hook", *MI210, "--cluster=no-hook", "--force")
        wrong = "--set=deepspeed.comms_logger.prof_ops=5"
        self._submit("wrong value", *TAIWANIA, FIRST_NODE, wrong)
        self._submit("port taken", *TWO_RANKS, FIRST_NODE, "--cluster=port-taken")
        for name, breaks in {
            "rank raises": "raise RuntimeError('adapter shapes disagree: 64 and 48')",
            "rank killed": "os.kill(os.getpid(), 9)",
            "rank exits": "os._exit(7)",
        }.items():
            self._submit(name, *TWO_RANKS, FIRST_NODE, self._torch(name, breaks))
        crash = "import ctypes; ctypes.string_at(0)"
        self._submit("crash", *TAIWANIA, FIRST_NODE, self._torch("crash", crash, rank_0_waits=False))
        hungry = self._torch("hungry", HUNGRY, rank_0_waits=False)
        self._submit("memory", *MI210, "--sbatch=mem=100M", "--force", hungry)
        sweep = ("--method=z2,z2+lora", self._package("peft", f"import {PACKAGE}"))
        self.runs["array whole"], self.runs["array broken"] = self.node.submit(*TAIWANIA, FIRST_NODE, *sweep)

    def _torch(self, name: str, breaks: str, rank_0_waits: bool = True) -> str:
        return self._package("torch", TORCH.format(breaks=breaks, rank_0_waits=rank_0_waits), name)

    def _package(self, package_name: str, text: str, name: str = "") -> str:
        """The flag by which a run finds a package of our own first."""
        folder = self.folder / "packages" / (name or package_name).replace(" ", "-")
        return f"--set=env.PYTHONPATH={package(folder, package_name, text)}"

    def _add_broken_clusters(self) -> None:
        bare = self.folder / "bare"
        create_environment(bare)
        for training in bare.rglob("training.pth"):
            training.unlink()
        changes: dict[str, dict[str, Any]] = {
            "no-module": {"load": ["cmake", "no-such-module/1.0"]},
            "no-environment": {"python": {"env": str(self.folder / "missing")}},
            "no-stack": {"python": {"env": str(bare)}},
        }
        taiwania, mi210 = self.site.profile("taiwania2"), self.site.profile("mi210")
        for name, prelude in changes.items():
            self.node.add_cluster(name, **{**taiwania, "prelude": {**taiwania["prelude"], **prelude}})
        no_hook = {"python": {"hook": "/nowhere/conda.sh"}}
        self.node.add_cluster("no-hook", **{**mi210, "prelude": {**mi210["prelude"], **no_hook}})
        prolog = self.folder / "takes-the-port"
        executable(prolog, TAKES_THE_PORT)
        self.node.add_cluster("port-taken", **{**taiwania, "launch": {"srun_args": [f"--task-prolog={prolog}"]}})

    # what is done to them

    def _until(self, what: str, name: str, condition: Callable[[RunPaths], bool]) -> None:
        until(f"{name}: {what}", lambda: condition(self.runs[name]))

    def _until_ranks_wait(self, name: str, ranks: int) -> None:
        self._until("its ranks wait", name, lambda run: printed(run).count("waits\n") == ranks)

    def _until_trains(self, name: str) -> None:
        self._until("it trains", name, lambda run: run.steps.exists() and run.steps.read_text().count("\n") >= 3)

    def _lose_a_node(self) -> None:
        self._until_ranks_wait("node lost", 2)
        self._until_ranks_wait("node lost silently", 1)
        self.node.slurm.crash_node("tw2")
        self._until_slurm_has_ended("node lost", "node lost silently")
        self.node.slurm.bring_back("tw2")

    def _until_slurm_has_ended(self, *names: str) -> None:
        jobs = ",".join(job_id(self.runs[name]) for name in names)
        going = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}
        until(f"Slurm has ended {names}", lambda: not going & set(self.node.slurm.job_state(jobs).split()))

    def _cancel(self) -> None:
        for name in ("cancelled", "scancelled"):
            self._until_ranks_wait(name, 1)
        self.node.do("cancel", self.runs["cancelled"].run_id)
        self.node.slurm.run("scancel", job_id(self.runs["scancelled"]))

    def _preempt(self) -> None:
        """A job of higher priority takes both nodes; it ends when the requeued run is to start again."""
        self._until_trains("preempted")
        self._until_ranks_wait("requeued", 1)
        waits = f"until [ -e {self.folder}/room ]; do sleep 0.1; done"
        asks = ("--nodes=2", "--gpus-per-node=4", "--time=5", "--output=/dev/null")
        self.node.slurm.run(
            "sbatch", "--account=bbka-delta-gpu", "--partition=gpuA100x4", *asks, f"--chdir={self.folder}",
            f"--wrap={waits}",
        )  # fmt: skip
        requeued = job_id(self.runs["requeued"])
        until("the run is queued again", lambda: self.node.slurm.job_state(requeued) == "PENDING")
        self._look_meanwhile("requeued", "requeued, queued again")
        (self.folder / "room").touch()

    def _see_the_requeued_run_start_again(self) -> None:
        self._until_ranks_wait("requeued", 2)  # once in each of its tries
        self._look_meanwhile("requeued", "requeued, runs again")
        self._look_meanwhile("queued", "queued")
        self.node.do("cancel", self.runs["requeued"].run_id)
        self.node.do("cancel", self.runs.pop("queued").run_id)

    def _reach_the_time_limit(self) -> None:
        self._until_trains("walltime")
        self._look_meanwhile("walltime", "running")
        self.node.slurm.expire(job_id(self.runs["walltime"]))

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        """The file system that holds a run is full before its first step, and for as long as others are seen to."""
        with ExitStack() as stack:
            try:
                disk = stack.enter_context(SmallDisk(self.folder / "full", "4m"))
            except CannotMount as refused:
                self.mount_refused = str(refused)
                yield
                return
            self._submit("disk full", *TAIWANIA, FIRST_NODE, f"--logs={disk.folder}")
            self._until("its script has launched", "disk full", lambda run: "hpc-llm: " in printed(run))
            disk.fill()
            self._until_slurm_has_ended("disk full")
            yield
            self._look(["disk full"])

    # what is said of them

    def _look_meanwhile(self, name: str, then: str) -> None:
        """Ask about a run that is not over, and keep the answers as `then`."""
        now = {then: self.runs[name]}
        self._ask(now)

    def _look(self, names: Sequence[str]) -> None:
        """Wait for the end of these runs, and ask about all of them at once, as if two minutes had passed.

        What left no record might have one on its way for a minute.
        """
        runs = {name: self.runs[name] for name in names}
        self._until_slurm_has_ended(*names)
        later = clock_ahead(self.folder / "later", 120.0)
        until("all runs are over", lambda: all(each["outcome"] for each in self._statuses(runs, later)))
        self._ask(runs, later)

    def _ask(self, runs: dict[str, RunPaths], environ: dict[str, str] | None = None) -> None:
        paths = [str(run.root) for run in runs.values()]
        diagnoses = json.loads(self.node.do("diagnose", "--json", *paths, environ=environ))
        self.diagnosis.update(zip(runs, diagnoses if len(runs) > 1 else [diagnoses], strict=True))
        self.status.update(zip(runs, self._statuses(runs, environ), strict=True))
        self.row.update(self._rows(runs, environ))
        self.row_alone.update(self._rows({name: self._copy(name, run) for name, run in runs.items()}, environ))
        for name, run in runs.items():
            self.lines[name] = [_line(run.root / e["file"], e["line"]) for e in self.diagnosis[name]["evidence"]]

    def _rows(self, runs: dict[str, RunPaths], environ: dict[str, str] | None) -> dict[str, dict[str, Any]]:
        paths = [str(run.root) for run in runs.values()]
        rows = json.loads(self.node.do("parse", "--format=json", *paths, environ=environ))
        by_id = {row["run_id"]: row for row in rows}
        return {name: by_id[run.run_id] for name, run in runs.items()}

    def _copy(self, name: str, run: RunPaths) -> RunPaths:
        target = self.folder / "copies" / name / run.run_id
        told_by_slurm = (run.submitit.name, run.scheduler_record.name, run.submission.name, run.job.name)
        shutil.copytree(run.root, target, ignore=shutil.ignore_patterns(*told_by_slurm))
        return RunPaths(target)

    def _statuses(self, runs: dict[str, RunPaths], environ: dict[str, str] | None) -> list[dict[str, Any]]:
        paths = [str(run.root) for run in runs.values()]
        found: list[dict[str, Any]] = json.loads(self.node.do("status", "--json", *paths, environ=environ))["runs"]
        return found


def _line(file: Path, number: int) -> str | None:
    return file.read_text().split("\n")[number - 1] if file.is_file() else None


def package(folder: Path, name: str, text: str) -> Path:
    """A package of our own in a folder, which is given back."""
    file = folder / name / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return folder
