"""What may befall a submission: the command is killed, sbatch is slow or loses its answer, somebody is impatient."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from chaos_trial import Job, Trial
from faulty_sbatch import ENDS_AFTER_ACCEPTING, ENDS_BEFORE_ACCEPTING, FaultySbatch

RUN_ID = "a-run"
COMMAND_S = 0.7
"""About how long a submission takes by itself."""


def killed(trial: Trial) -> None:
    """The command dies at any moment of submitting one run; a quick sbatch."""
    _killed(trial, methods=1, faulty=trial.faulty_sbatch(), moment="anytime")


def killed_before_accepting(trial: Trial) -> None:
    """The command dies while sbatch is on its way to Slurm."""
    _killed(trial, methods=1, faulty=trial.faulty_sbatch(before_s=_some(trial.rng)), moment="asked")


def killed_after_accepting(trial: Trial) -> None:
    """The command dies while sbatch is on its way back from Slurm."""
    _killed(trial, methods=1, faulty=trial.faulty_sbatch(after_s=_some(trial.rng)), moment="accepted")


def sweep_killed(trial: Trial) -> None:
    """The command dies at any moment of submitting a sweep."""
    methods = trial.rng.choice((2, 3, 8, 50))
    faulty = trial.faulty_sbatch(
        before_s=trial.rng.choice((0.0, _some(trial.rng))), after_s=trial.rng.choice((0.0, _some(trial.rng)))
    )
    _killed(trial, methods=methods, faulty=faulty, moment=trial.rng.choice(("anytime", "asked", "accepted")))


def answer_lost(trial: Trial) -> None:
    """Slurm has the job, and the command is not told."""
    _sbatch_fails(trial, ENDS_AFTER_ACCEPTING)


def asked_in_vain(trial: Trial) -> None:
    """Slurm has no job, and the command cannot know it."""
    _sbatch_fails(trial, ENDS_BEFORE_ACCEPTING)


def tried_again_at_once(trial: Trial) -> None:
    """The command is killed, and the user repeats it while its sbatch is still under way."""
    faulty = trial.faulty_sbatch(before_s=_some(trial.rng), after_s=_some(trial.rng))
    words = trial.request(f"--run-id={RUN_ID}")
    _kill(trial, trial.start(words, faulty.environ), faulty, trial.rng.choice(("asked", "accepted")))
    trial.ask(*words)
    trial.until_quiet()
    settle(trial, words, methods=1)


def many_at_once(trial: Trial, commands: int = 20) -> None:
    """The same request from many shells at the same moment: one job."""
    words = trial.request(f"--run-id={RUN_ID}")
    faulty = trial.faulty_sbatch(before_s=0.1)
    started = [trial.start(words, faulty.environ) for _ in range(commands)]
    codes = [_ended(process) for process in started]
    if codes.count(0) != 1:
        trial.harm("wrong", f"{codes.count(0)} of {commands} submissions of one run went through: {codes}")
    settle(trial, words, methods=1)


# the parts


def _killed(trial: Trial, *, methods: int, faulty: FaultySbatch, moment: str) -> None:
    words = trial.request(f"--run-id={RUN_ID}", methods=methods, job=trial.rng.choice(("held", "held", "exits")))
    _kill(trial, trial.start(words, faulty.environ), faulty, moment)
    trial.until_quiet()
    settle(trial, words, methods)


def _kill(trial: Trial, process: subprocess.Popen[str], faulty: FaultySbatch, moment: str) -> None:
    """End the command, or it and all that it started, at a moment drawn at random."""
    rng = trial.rng
    if moment == "anytime":
        time.sleep(rng.uniform(0.0, COMMAND_S + faulty.before_s + faulty.after_s))
    else:
        faulty.wait_for(moment, process)
        time.sleep(rng.uniform(0.0, 0.05 + (faulty.before_s if moment == "asked" else faulty.after_s)))
    send = rng.choice((os.kill, os.killpg))
    with contextlib.suppress(ProcessLookupError):
        send(process.pid, rng.choice((signal.SIGKILL, signal.SIGHUP)))
    _ended(process)


def _ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=240)
    return process.returncode


def _sbatch_fails(trial: Trial, ends: Sequence[str]) -> None:
    methods = trial.rng.choice((1, 1, 3))
    words = trial.request(f"--run-id={RUN_ID}", methods=methods, job=trial.rng.choice(("held", "exits")))
    faulty = trial.faulty_sbatch(after_s=trial.rng.choice((0.0, 0.3)), end=trial.rng.choice(ends))
    trial.ask(*words, environ=faulty.environ)
    trial.until_quiet()
    settle(trial, words, methods)


def settle(trial: Trial, words: Sequence[str], methods: int) -> None:
    """What a user does after a mishap: look, reconcile, send it again; then everything is as it should be."""
    trial.status()
    trial.reconcile()
    trial.audit()
    _check_sweep(trial, methods)
    _retry(trial, words, methods)
    _cancel_all(trial)


def _check_sweep(trial: Trial, methods: int) -> None:
    runs = {job.run_id for job in _asked_for(trial)}
    if runs and len(runs) != methods:
        trial.harm("lost", f"{len(runs)} of {methods} runs have a job: {sorted(runs)}")


def _retry(trial: Trial, words: Sequence[str], methods: int) -> None:
    """The same request again goes through where Slurm has nothing of it, and is refused where it has."""
    had = bool(_asked_for(trial))
    done = trial.ask(*words)
    if had and done.returncode == 0:
        trial.harm("wrong", "a run that has a job was submitted again")
    if not had and done.returncode != 0:
        trial.harm("lost", f"Slurm has nothing, and the retry exits {done.returncode}: {done.stderr.strip()}")
    trial.audit()
    if not had and len(_asked_for(trial)) != methods and done.returncode == 0:
        trial.harm("lost", f"the retry of {methods} runs gave {_asked_for(trial)}")


def _asked_for(trial: Trial) -> list[Job]:
    return [job for job in trial.jobs() if job.run_id.startswith(RUN_ID)]


def _cancel_all(trial: Trial) -> None:
    """What lives can be ended by hpc-llm, and is told as ended."""
    live = {job.run_id for job in trial.live()}
    if not live:
        return
    done = trial.cancel(*sorted(live))
    if done.returncode != 0:
        trial.harm("wrong", f"cancel exited {done.returncode}: {done.stderr.strip()}")
    try:
        trial.until("the cancelled jobs end", lambda: not trial.live())
    except RuntimeError as error:
        trial.harm("orphaned", f"cancel left jobs behind: {error}")


def folder_of(trial: Trial, run_id: str = RUN_ID) -> Path:
    return trial.node.logs / run_id


def _some(rng: random.Random) -> float:
    return rng.uniform(0.1, 0.6)
