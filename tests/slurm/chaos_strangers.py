"""What may befall runs whose job ids are also those of strangers' jobs: no stranger's job comes to harm.

These trials wipe the clusters they are played on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from chaos_slurm import STEPS, cancelled, steps_of
from chaos_submit import RUN_ID
from chaos_trial import Trial
from scratch_slurm import ScratchSlurm

STRANGERS: tuple[tuple[str, ...], ...] = (
    (),
    ("-J", "tiny-m01"),
    ("-J", "tiny-m01-deadbeef", "--comment=hpc-llm:deadbeef-5a3c-4b0a-9a0e-1c2d3e4f5a6b"),
)
"""A job of another kind, one named like ours, and one of hpc-llm in somebody else's folder."""


def ids_used_again(trial: Trial) -> None:
    """Slurm's state is wiped, and a stranger's job gets the id that a run had."""
    slurm, rng = trial.slurm, trial.rng
    job, methods = rng.choice(("held", "waits")), rng.choice((1, 3))
    words = trial.request(f"--run-id={RUN_ID}", methods=methods, job=job)
    runs = trial.submit(words)
    if job == "waits":
        trial.until_waits(runs[0])
    if rng.random() < 0.5:
        trial.status()
    job_id = trial.jobs()[0].job_id.partition("_")[0]
    forgotten = rng.random() < 0.7
    slurm.wipe(int(job_id), accounting=forgotten)
    stranger = trial.stranger(slurm, *_stranger(trial, methods))
    assert stranger == job_id
    is_tried_again = job == "held" and forgotten and rng.random() < 0.5
    _meddle(trial, runs, () if is_tried_again else (stranger, *(run.name for run in runs)))
    if job == "waits" and steps_of(runs[0]) < STEPS:
        trial.harm("lost", f"{steps_of(runs[0])} steps are left of {STEPS}")
    if is_tried_again:
        _retry_goes_through(trial, words)
    trial.check_strangers(slurm)


def two_clusters(trial: Trial, other: ScratchSlurm) -> None:
    """The runs of one cluster are looked at and cancelled from another one that has the same job ids."""
    rng = trial.rng
    job, methods = rng.choice(("held", "waits", "completes")), rng.choice((1, 3))
    runs = trial.submit(trial.request(methods=methods, job=job))
    job_id = trial.jobs()[0].job_id.partition("_")[0]
    other.wipe(int(job_id))
    stranger = trial.stranger(other, *_stranger(trial, methods))
    assert stranger == job_id
    there = {"SLURM_CONF": str(other.conf)}
    _meddle(trial, runs, (stranger, *(run.name for run in runs)), environ=there)
    trial.check_strangers(other)
    if job == "completes":
        trial.until_over()
        trial.status(environ=there)
        trial.agreed(runs[0], "COMPLETED")
        return
    trial.audit()
    cancelled(trial, runs[0])


# the parts


def _stranger(trial: Trial, methods: int) -> tuple[str, ...]:
    return (*trial.rng.choice(STRANGERS), *([f"--array=0-{methods - 1}"] if methods > 1 else []))


def _meddle(trial: Trial, runs: list[Path], to_cancel: Sequence[str], environ: dict[str, str] | None = None) -> None:
    """All that a user may do to the runs; the stranger's job of the same id must come to no harm."""
    said = trial.status(environ=environ)
    for run in runs:
        if said.get(run.name, {}).get("state") == "RUNNING" and not _lives(trial, run):
            trial.harm("wrong", f"{run.name} is told as RUNNING, which only the stranger's job is")
    steps = [("reconcile",), ("status",), *(("cancel", what) for what in to_cancel)]
    trial.rng.shuffle(steps)
    for words in steps:
        trial.ask(*words, environ=environ)


def _lives(trial: Trial, run: Path) -> bool:
    return any(job.run_id == run.name for job in trial.live())


def _retry_goes_through(trial: Trial, words: list[str]) -> None:
    if trial.jobs():  # reconcile may have sent it already
        return
    for run in trial.node.logs.glob("*/job.json"):  # lists may be late, so for a minute nobody takes their word for it
        os.utime(run, (time.time() - 120,) * 2)
    done = trial.ask(*words)
    if done.returncode != 0:
        trial.harm("lost", f"Slurm has nothing, and the retry exits {done.returncode}: {done.stderr.strip()}")
    trial.audit()
