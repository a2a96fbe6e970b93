"""One trial: a user's folder on the scratch cluster, what is done to it, and what must never come of it.

What is true is asked of Slurm and of the files, never of hpc-llm: a job is a run's when it prints into that run's folder.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos_site import CLUSTER, METHODS, ChaosSite
from faulty_ground import clock_ahead
from faulty_sbatch import FaultySbatch
from login_node import LoginNode
from polling import pause
from scratch_site import executable
from scratch_slurm import ScratchSlurm, search_path

from hpc_llm.schedulers.job_record import LIVE_STATES

HARMS = ("orphaned", "doubled", "lost", "wrong", "harmed")
"""A job that no run knows, two jobs of one run, a run or its retry that is gone, an untrue outcome, a stranger's job hurt."""
_COLUMNS = ("JobArrayID:40", "State:20", "WorkDir:400", "stdout:400")
_CAUSES = {
    "COMPLETED": {"none"}, "TIMEOUT": {"walltime"}, "PREEMPTED": {"preempted"}, "CANCELLED": {"cancelled"},
    "NODE_FAIL": {"node_fail"}, "OOM_HOST": {"host_oom"}, "OOM_DEVICE": {"device_oom"}, "UNKNOWN": {"unknown", "none"},
}  # fmt: skip
_NO_FAILURE = frozenset(cause for causes in _CAUSES.values() for cause in causes) - {"unknown"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of this trial as Slurm has it."""

    job_id: str
    state: str
    run_id: str
    """Of the folder into which it prints."""

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES


class Trial:
    """Everything random comes from `seed`; `harms` is what went wrong, each with one of `HARMS`."""

    def __init__(self, slurm: ScratchSlurm, site: ChaosSite, folder: Path, seed: int) -> None:
        self.slurm = slurm
        self.site = site
        self.folder = folder.resolve()
        self.rng = random.Random(seed)
        self.node = LoginNode(self.folder, slurm)
        self.environ = {**site.environ, "CHAOS_TRIAL": str(self.folder)}
        self.harms: list[tuple[str, str]] = []
        self._strangers: dict[tuple[str, str], str] = {}

    def harm(self, kind: str, what: str) -> None:
        assert kind in HARMS
        if (kind, what) not in self.harms:
            self.harms.append((kind, what))

    def without_accounting(self) -> None:
        """sacct fails from now on, as at a site that keeps no accounting."""
        complaint = "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n"
        executable(self.folder / ".no-accounting" / "sacct", complaint)
        self.environ["PATH"] = f"{self.folder / '.no-accounting'}{os.pathsep}{search_path()}"

    def move_logs(self, logs: Path) -> None:
        """Runs live there from now on."""
        self.node.logs = logs
        self.environ["HPC_LLM_LOGS"] = str(logs)

    # what a user does

    def request(self, *words: str, methods: int = 1, job: str = "held", steps: int = 4) -> list[str]:
        """The words of a submission whose jobs are held, or do what the stand-in knows: waits, completes, exits, raises."""
        does = ["--sbatch=hold"] if job == "held" else [f"--set=env.CHAOS_JOB={job}", f"--set=env.CHAOS_STEPS={steps}"]
        what = [f"--cluster={CLUSTER}", f"--method={','.join(METHODS[:methods])}", *does]
        return ["submit", "--json", *what, f"--set=env.PYTHONPATH={self.site.stack}", *words]

    def start(self, words: Sequence[str], environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
        return self.node.start(*words, environ={**self.environ, **(environ or {})}, own_session=True)

    def ask(
        self,
        *words: str,
        environ: dict[str, str] | None = None,
        node: LoginNode | None = None,
        under: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """The command, run to its end. It may refuse, and never breaks down."""
        done = (node or self.node).ask(*words, environ={**self.environ, **(environ or {})}, under=under)
        if "Traceback (most recent call last)" in done.stderr or done.returncode not in (0, 1, 2, 3):
            self.harm("wrong", f"{words[0]} broke with {done.returncode}: {done.stderr[-2000:]}")
        return done

    def submit(self, words: Sequence[str]) -> list[Path]:
        """The folders of the runs; a submission that nothing disturbs must go through."""
        done = self.ask(*words)
        if done.returncode != 0:
            raise RuntimeError(f"submit exited {done.returncode}: {done.stderr}")
        return [Path(run["run_dir"]) for run in json.loads(done.stdout)["runs"]]

    def status(self, *runs: str, environ: dict[str, str] | None = None, **how: Any) -> dict[str, dict[str, Any]]:
        """What status says of each run; it must always say something."""
        done = self.ask("status", "--json", *runs, environ=environ, **how)
        try:
            found = json.loads(done.stdout)["runs"]
        except (ValueError, KeyError):
            self.harm("wrong", f"status exited {done.returncode} without an answer: {done.stderr.strip()}")
            return {}
        return {each["run_id"]: each for each in found}

    def reconcile(self) -> None:
        done = self.ask("reconcile")
        if done.returncode != 0 and "No such command" not in done.stderr:
            self.harm("wrong", f"reconcile exited {done.returncode}: {done.stderr.strip()}")

    def cancel(self, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.ask("cancel", *words, environ=environ)

    # what is true

    def jobs(self, slurm: ScratchSlurm | None = None) -> list[Job]:
        """The jobs that this trial has in Slurm's memory, ended ones included."""
        lines = (slurm or self.slurm).run("squeue", "-hart", "all", "-O", ",".join(_COLUMNS)).splitlines()
        widths = [int(column.partition(":")[2]) for column in _COLUMNS]
        found = []
        for line in lines:
            values = [line[sum(widths[:k]) : sum(widths[: k + 1])].strip() for k in range(len(widths))]
            if values[2] == str(self.folder) and str(self.folder) in values[3]:
                found.append(Job(job_id=values[0], state=values[1], run_id=_run_of(Path(values[3]), values[0])))
        return found

    def live(self) -> list[Job]:
        return [job for job in self.jobs() if job.is_live]

    def until(self, what: str, condition: Callable[[], bool], seconds: float = 150.0) -> None:
        deadline = (began := time.monotonic()) + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{seconds:.0f} s were not enough until {what}; jobs: {self.jobs()}")
            pause(began)
            began = time.monotonic()

    def until_waits(self, run: Path, times: int = 1) -> None:
        """The run's program has started, for the n-th time."""
        out = run / "log.out"
        self.until("the run waits", lambda: out.exists() and out.read_text().count("waits\n") >= times)

    def until_over(self) -> None:
        self.until("the trial's jobs are over", lambda: not self.live())

    def until_quiet(self) -> None:
        """No command of this trial works any more on the login node, nor an sbatch that it started."""
        self.until("the login node is quiet", lambda: not self._processes())

    def _processes(self) -> list[str]:
        mark, found = f"CHAOS_TRIAL={self.folder}".encode(), []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    variables = (process / "environ").read_bytes().split(b"\0")
                except OSError:  # ended meanwhile, or another user's
                    continue
                if mark in variables and not any(each.startswith(b"SLURM_JOB_ID=") for each in variables):
                    found.append(process.name)
        return found

    def faulty_sbatch(self, *, before_s: float = 0.0, after_s: float = 0.0, end: str = "answers") -> FaultySbatch:
        path = self.environ.get("PATH", search_path())
        return FaultySbatch(folder=self.folder / ".sbatch", path=path, before_s=before_s, after_s=after_s, end=end)

    # strangers

    def stranger(self, slurm: ScratchSlurm, *words: str, command: str = "sleep 600") -> str:
        """A job that is none of hpc-llm's, of the same user, which makes it the easiest to hurt."""
        done = slurm.run("sbatch", "-o", "/dev/null", "--mem=10M", "-J", "stranger", *words, f"--wrap={command}")
        job_id = done.split()[-1]
        self._strangers[str(slurm.conf), job_id] = ""
        if "-H" not in words:
            self.until("the stranger runs", lambda: set(slurm.job_state(job_id).split()) == {"RUNNING"})
        self._strangers[str(slurm.conf), job_id] = _shape(slurm, job_id)
        return job_id

    def check_strangers(self, *clusters: ScratchSlurm) -> None:
        for slurm in clusters:
            for (conf, job_id), before in self._strangers.items():
                if conf == str(slurm.conf) and (now := _shape(slurm, job_id)) != before:
                    self.harm("harmed", f"a stranger's job {job_id} on {slurm.name} was {before}, is {now}")

    # what must never be

    def audit(self) -> dict[str, dict[str, Any]]:
        """Each job of ours is known to its run and to no other, and no run has two; returns what status says."""
        said, jobs = self.status(), self.jobs()
        for job in jobs:
            one = said.get(job.run_id)
            if job.is_live and (one is None or one["job_id"] != job.job_id):
                self.harm("orphaned", f"job {job.job_id} ({job.state}) of {job.run_id}: status says {_brief(one)}")
            elif job.is_live and one is not None and one["outcome"]:
                self.harm("wrong", f"{job.run_id} is {job.state} as job {job.job_id}: status says {_brief(one)}")
        for run_id in {job.run_id for job in jobs}:
            several = [job for job in jobs if job.run_id == run_id]
            if len(several) > 1:
                self.harm("doubled", f"{run_id} has {len(several)} jobs: {several}")
        return said

    def agreed(self, run: Path, *expected: str | None, environ: dict[str, str] | None = None) -> None:
        """status, parse and diagnose tell one of the expected outcomes, all the same one; None: it is not over."""
        said = self.status(str(run), environ=environ).get(run.name, {})
        row = self._json("parse", "--format=json", str(run), environ=environ)
        diagnosis = self._json("diagnose", "--json", str(run), environ=environ)
        parsed = (row[0].get("outcome") if isinstance(row, list) and row else None) or None
        cause = diagnosis.get("cause") if isinstance(diagnosis, dict) else None
        outcome = said.get("outcome")
        told = f"status {_brief(said)}, parse {parsed}, diagnose {cause}"
        if outcome not in expected:
            self.harm("wrong", f"{run.name} is {' or '.join(map(str, expected))}: {told}")
        elif parsed != outcome or not _fits(cause, said["state"], outcome):
            self.harm("wrong", f"{run.name} is told differently: {told}")

    def agreed_later(self, run: Path, *expected: str) -> None:
        """The same of a run that has ended, as if two minutes had passed: a record may be on its way for a while."""
        later = clock_ahead(self.folder / ".later", 120.0)
        self.until("status tells an outcome", lambda: bool(self.status(str(run), environ=later)[run.name]["outcome"]))
        self.agreed(run, *expected, environ=later)

    def _json(self, *words: str, environ: dict[str, str] | None) -> Any:
        done = self.ask(*words, environ=environ)
        try:
            return json.loads(done.stdout)
        except ValueError:
            self.harm("wrong", f"{words[0]} exited {done.returncode} without an answer: {done.stderr.strip()}")
            return None

    def clean(self) -> None:
        """End what is left in Slurm and on the disk."""
        for job in {job.job_id.partition("_")[0] for job in self.live()}:
            self.slurm.ok("scancel", job)
        for conf, job_id in self._strangers:
            self.slurm.run("sh", "-c", f"SLURM_CONF={conf} scancel {job_id} || true")
        shutil.rmtree(self.folder, ignore_errors=True)


def _run_of(stdout: Path, job_id: str) -> str:
    """The run into whose folder a job prints; the tasks of an array reach theirs by links."""
    task = job_id.partition("_")[2]
    return Path(str(stdout).replace("%a", task)).parent.resolve().name


def _shape(slurm: ScratchSlurm, job_id: str) -> str:
    """What of a job may not change by our doing."""
    try:
        words = slurm.run(
            "squeue", "-hat", "all", "-j", job_id, "-O", "State:20,Name:20,Priority:20,Comment:40"
        ).split()
    except RuntimeError:
        return "gone"
    return " ".join(words)


def _brief(said: dict[str, Any] | None) -> str:
    if not said:
        return "nothing"
    return f"job {said['job_id']} {said['state']} {said['outcome']} ({said.get('reason')})"


def _fits(cause: str | None, state: str, outcome: str | None) -> bool:
    """Whether a diagnosis and what status says are the same."""
    if outcome is None:
        return cause == "none" or (cause == "unknown" and state == "UNKNOWN")  # where Slurm does not answer
    if outcome in ("FAILED", "INVALID"):
        return cause is not None and cause not in _NO_FAILURE
    return cause in _CAUSES[outcome]
