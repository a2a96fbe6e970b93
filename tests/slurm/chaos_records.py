"""What may befall the folder of a run and the clock of its reader: lag, full disks, read-only disks, foreign folders."""

from __future__ import annotations

import shutil
from pathlib import Path

from chaos_submit import RUN_ID, settle
from chaos_trial import Trial
from faulty_ground import as_an_ordinary_user, clock_ahead, hidden, make_foreign
from small_disk import SmallDisk

ENDS = {"completes": "COMPLETED", "exits": "FAILED", "raises": "FAILED"}
"""What the stand-in for the training program is told, and the outcome of the run."""
RECORDS = (
    "exit.json", "result.json", "job.json", "submission.json", "scheduler.json", "started.jsonl", "steps.jsonl", "log.out",
    "log.err", "failures", "submitit", "experiment.json",
)  # fmt: skip
HOURS = 3600.0


def records_lag(trial: Trial) -> None:
    """Some files of an ended run become visible late, after somebody has looked, before or after any grace."""
    [run], outcome = _ended(trial)
    late = trial.rng.sample(RECORDS, trial.rng.randint(0, len(RECORDS)))
    late += trial.rng.choice((["exit.json"], ["result.json"], ["exit.json", "result.json"]))
    when = trial.rng.choice((0.0, 300.0))
    with hidden([run / name for name in late], aside=trial.folder / ".late"):
        environ = clock_ahead(trial.folder / ".clock", when) if when else {}
        for command in trial.rng.sample(("status", "status", "parse", "diagnose"), 3):
            trial.ask(command, str(run), environ=environ)
    trial.agreed(run, outcome)


def disk_full(trial: Trial) -> None:
    """The disk of the runs is full: a run can be looked at and cancelled."""
    with SmallDisk(trial.folder / "disk") as disk:
        run = _waits_on(trial, disk)
        disk.fill()
        ended = _cancel_on(trial, run)
        disk.make_room()
        if ended:
            trial.agreed_later(run, "CANCELLED")


def disk_full_in_submit(trial: Trial) -> None:
    """The disk of the runs is full when one is submitted: no job runs that nobody knows."""
    with SmallDisk(trial.folder / "disk") as disk:
        trial.move_logs(disk.folder / "logs")
        words = trial.request(f"--run-id={RUN_ID}")
        if trial.rng.random() < 0.5:  # so that what travels with the runs is there already
            trial.submit(trial.request())
        disk.fill()
        trial.ask(*words)
        disk.make_room()
        settle(trial, words, methods=1)


def disk_read_only(trial: Trial) -> None:
    """The disk of the runs has become read-only: a run can be looked at and cancelled."""
    with SmallDisk(trial.folder / "disk") as disk:
        run = _waits_on(trial, disk)
        disk.make_read_only()
        try:
            ended = _cancel_on(trial, run)
        finally:
            disk.make_writable()
        if ended:
            trial.agreed_later(run, "CANCELLED")


def folder_gone(trial: Trial) -> None:
    """A run's folder was removed: its job can be ended by its id, a stranger's cannot."""
    job = trial.rng.choice(("held", "waits"))
    [run], [kept] = trial.submit(trial.request(job=job)), trial.submit(trial.request())
    if job == "waits":
        trial.until_waits(run)
    job_id = next(each.job_id for each in trial.jobs() if each.run_id == run.name)
    stranger = trial.stranger(trial.slurm, "-H")
    shutil.rmtree(run)
    if kept.name not in trial.status():
        trial.harm("lost", f"{kept.name} is not listed any more")
    trial.cancel(stranger)
    trial.check_strangers(trial.slurm)
    done = trial.cancel(job_id)
    try:
        gone = [each for each in trial.jobs() if each.job_id == job_id]
        trial.until("the job ends", lambda: not any(e.is_live for e in trial.jobs() if e.job_id == job_id))
    except RuntimeError:
        trial.harm("orphaned", f"cancel {job_id} exited {done.returncode}, {gone} lives: {done.stderr.strip()}")


def clock_wrong(trial: Trial) -> None:
    """The clock of who looks is hours from that of the node, or that of who submitted was."""
    ahead = trial.rng.choice((-1.0, 1.0)) * trial.rng.uniform(0.2, 12.0) * HOURS
    environ = clock_ahead(trial.folder / ".clock", ahead)
    [run], outcome = _ended(trial)
    if trial.rng.random() < 0.5:
        [held] = trial.submit(trial.request())
    else:
        done = trial.ask(*trial.request(f"--run-id={RUN_ID}"), environ=environ)
        held = trial.node.logs / RUN_ID
        if done.returncode != 0:
            trial.harm("wrong", f"submit exited {done.returncode}: {done.stderr.strip()}")
    for clock in (environ, {}):
        trial.agreed(run, outcome, environ=clock)
        trial.agreed(held, None, environ=clock)
    trial.audit()


def foreign_folder(trial: Trial) -> None:
    """Among the runs is a folder of another user: the others are told all the same."""
    [run], outcome = _ended(trial)
    foreign = trial.node.logs / trial.rng.choice(("00000000-foreign", "zzz"))
    shutil.copytree(run, foreign)
    make_foreign(foreign)
    try:
        said = trial.status(under=as_an_ordinary_user()).get(run.name, {})
        if said.get("outcome") != outcome:
            trial.harm("wrong", f"{run.name} is told as {said} beside a folder that cannot be read")
        for words in (("parse", "logs"), ("diagnose", "logs"), ("report", "logs", "-o", "report")):
            done = trial.ask(*words, under=as_an_ordinary_user())
            if done.returncode != 0:
                trial.harm("wrong", f"{words[0]} exited {done.returncode}: {done.stderr.strip()}")
    finally:
        foreign.chmod(0o700)


# the parts


def _ended(trial: Trial) -> tuple[list[Path], str]:
    job = trial.rng.choice(("completes", "completes", "exits", "raises"))
    runs = trial.submit(trial.request(job=job))
    trial.until_over()
    return runs, ENDS[job]


def _waits_on(trial: Trial, disk: SmallDisk) -> Path:
    trial.move_logs(disk.folder / "logs")
    [run] = trial.submit(trial.request(job="waits"))
    trial.until_waits(run)
    return run


def _cancel_on(trial: Trial, run: Path) -> bool:
    """Look at the run and cancel it; whether its job has ended."""
    said = trial.status().get(run.name, {})
    if said.get("state") != "RUNNING":
        trial.harm("wrong", f"{run.name} runs, and is told as {said}")
    done = trial.cancel(run.name)
    try:
        trial.until("the job ends", lambda: not trial.live())
    except RuntimeError:
        trial.harm("orphaned", f"cancel exited {done.returncode}, {trial.live()} lives: {done.stderr.strip()}")
        return False
    return True
