"""What may befall Slurm while runs are under way: daemons die and hang, nodes are lost, everything is wiped.

These trials need a cluster of their own: what they do to it would disturb others.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from chaos_submit import RUN_ID, settle
from chaos_trial import Trial

STEPS = 4


def controller_fails_in_submit(trial: Trial) -> None:
    """slurmctld is dead or hangs while a run is submitted, and comes back."""
    methods = trial.rng.choice((1, 3))
    words = trial.request(f"--run-id={RUN_ID}", methods=methods)
    with _controller(trial) as heal:
        process = trial.start(words)
        if trial.rng.random() < 0.5:  # it comes back while the command still waits
            with contextlib.suppress(Exception):
                process.wait(trial.rng.uniform(0.5, 3.0))
            heal()
        process.communicate(timeout=240)
    trial.until_quiet()
    settle(trial, words, methods)


def controller_fails(trial: Trial) -> None:
    """slurmctld is dead or hangs while a run is looked at and cancelled, and comes back."""
    [run] = trial.submit(trial.request(job="waits"))
    trial.until_waits(run)
    with _controller(trial):
        trial.agreed(run, None)
        done = trial.cancel(run.name)
    if done.returncode == 0:
        _ends_as_cancelled(trial, run)
        return
    # A controller that hung may obey scancel later, though scancel did not see it.
    cancelled(trial, run)


def accounting_fails(trial: Trial) -> None:
    """slurmdbd is dead, or it and slurmctld, while runs end and are looked at."""
    both = trial.rng.random() < 0.4
    [waits] = trial.submit(trial.request(job="waits"))
    trial.until_waits(waits)
    trial.slurm.end("slurmdbd", signal.SIGTERM)
    try:
        [exits] = trial.submit(trial.request(job="exits"))
        trial.until("the run has ended", lambda: _is_over(trial, exits))
        with _controller(trial, "dead") if both else contextlib.nullcontext():
            trial.agreed(waits, None)
            trial.agreed(exits, "FAILED")
    finally:
        trial.slurm.start_accounting()
    trial.agreed(waits, None)
    trial.agreed(exits, "FAILED")
    trial.audit()
    cancelled(trial, waits)


def accounting_hangs(trial: Trial) -> None:
    """slurmdbd hangs, which makes sacct wait for more than half a minute."""
    [run] = trial.submit(trial.request(job="waits"))
    trial.until_waits(run)
    trial.slurm.freeze("slurmdbd")
    try:
        said = trial.status().get(run.name, {})
    finally:
        trial.slurm.thaw("slurmdbd")
    if said.get("outcome") is not None:
        trial.harm("wrong", f"{run.name} runs, and is told as {said}")
    cancelled(trial, run)


def node_lost(trial: Trial) -> None:
    """The node dies, and Slurm may not start the job again."""
    [run] = trial.submit(trial.request("--sbatch=nodelist=tw2", "--sbatch=no-requeue=", job="waits"))
    trial.until_waits(run)
    trial.slurm.crash_node("tw2")
    try:
        if trial.rng.random() < 0.5:
            trial.status()
        trial.agreed_later(run, "NODE_FAIL")
    finally:
        trial.slurm.bring_back("tw2")
    _steps_are_kept(trial, run, STEPS)


def requeued(trial: Trial) -> None:
    """Slurm starts the job again: by request, or because its node died."""
    [run] = trial.submit(trial.request("--sbatch=nodelist=tw2", job="waits"))
    trial.until_waits(run)
    job = trial.jobs()[0]
    if trial.rng.random() < 0.5:
        trial.slurm.run("scontrol", "requeue", job.job_id)
    else:
        trial.slurm.crash_node("tw2")
        trial.slurm.bring_back("tw2")
    _starts_again(trial, run)


def preempted(trial: Trial) -> None:
    """A job of higher priority takes the node, and ends this one."""
    run = _give_way(trial, "gpuA100x4-preempt")
    trial.agreed_later(run, "PREEMPTED")
    _steps_are_kept(trial, run, STEPS)


def preempted_and_requeued(trial: Trial) -> None:
    """A job of higher priority takes the node, and this one waits for it to be free again."""
    run = _give_way(trial, "gpuA100x4-interactive")
    trial.until("the run is queued again", lambda: any(job.state == "PENDING" for job in trial.jobs()))
    trial.agreed(run, None)
    trial.slurm.run("scancel", "-n", "preemptor")
    _starts_again(trial, run)


# the parts


@contextlib.contextmanager
def _controller(trial: Trial, trouble: str | None = None) -> Iterator[object]:
    """slurmctld is dead or hangs within; what is given brings it back earlier."""
    slurm, trouble = trial.slurm, trouble or trial.rng.choice(("dead", "hangs"))
    if trouble == "dead":
        slurm.end("slurmctld", signal.SIGTERM)
    else:
        slurm.freeze("slurmctld")
    todo = contextlib.ExitStack()
    todo.callback(slurm.start_controller) if trouble == "dead" else todo.callback(slurm.thaw, "slurmctld")
    with todo:
        yield todo.close


def _is_over(trial: Trial, run: Path) -> bool:
    return all(not job.is_live for job in trial.jobs() if job.run_id == run.name)


def cancelled(trial: Trial, run: Path) -> None:
    """The run can be cancelled, and is told as cancelled."""
    done = trial.cancel(run.name)
    if done.returncode != 0:
        trial.harm("wrong", f"cancel exited {done.returncode}: {done.stderr.strip()}")
        return
    _ends_as_cancelled(trial, run)


def _ends_as_cancelled(trial: Trial, run: Path) -> None:
    try:
        trial.until("the cancelled job ends", lambda: _is_over(trial, run))
    except RuntimeError as error:
        trial.harm("orphaned", f"cancel said it was done: {error}")
        return
    trial.agreed_later(run, "CANCELLED")


def _give_way(trial: Trial, partition: str) -> Path:
    """A run that has started in `partition`, and the job that takes its node."""
    [run] = trial.submit(trial.request(f"--partition={partition}", "--sbatch=nodelist=delta1", job="waits"))
    trial.until_waits(run)
    preemptor = ("-J", "preemptor", "-p", "gpuA100x4", "-w", "delta1", "--exclusive", "--mem=0")
    trial.stranger(trial.slurm, *preemptor)
    return run


def _starts_again(trial: Trial, run: Path) -> None:
    trial.status()
    trial.until_waits(run, times=2)
    trial.audit()
    trial.agreed(run, None)
    _steps_are_kept(trial, run, 2 * STEPS)
    cancelled(trial, run)
    _steps_are_kept(trial, run, 2 * STEPS)


def _steps_are_kept(trial: Trial, run: Path, count: int) -> None:
    if steps_of(run) < count:
        trial.harm("lost", f"{run.name} made {count} steps, {steps_of(run)} are kept")


def steps_of(run: Path) -> int:
    """The steps in all tries of a run."""
    files = [run / "steps.jsonl", *run.glob("tries/*/steps.jsonl")]
    return sum(file.read_text().count("\n") for file in files if file.exists())
