"""Handing planned and rendered batches to their schedulers: what is checked before, what is written, what is left behind."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.api.sweep import of_cluster
from hpc_llm.errors import PlanError, SubmissionError, notice

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.records.run import RunPaths
    from hpc_llm.schedulers import NewRun, Submission


def send(batches: Sequence[Batch], logs: Path, *, chosen_ids: bool) -> list[RunPaths]:
    """Make the run folders of a request and hand its scripts to the scheduler.

    All folders are there, with the intent to submit them, before the scheduler is asked for the first. What a scheduler
    refuses leaves nothing behind, nor does what was to follow it.
    """
    from hpc_llm.planning.tasks import carried_modules
    from hpc_llm.runs import make_way
    from hpc_llm.schedulers import code_snapshot, create_runs, take_back

    on_slurm = any(batch.planned[0].plan.job.scheduler == "slurm" for batch in batches)
    make_way(logs, [run_id for batch in batches for run_id in batch.run_ids], chosen=chosen_ids, on_slurm=on_slurm)
    if any(batch.planned[0].plan.job.scheduler == "local" for batch in batches):
        _tell_neighbours()
    for batch in batches:
        code_snapshot(logs, also=carried_modules([planned.plan for planned in batch.planned]))
    submissions = _submissions(batches)
    new = list(_new_runs(batches))
    groups = create_runs(logs, list(zip(submissions, new, strict=True)))
    for number, (submission, runs) in enumerate(zip(submissions, groups, strict=True)):
        try:
            with of_cluster(batches[number].cluster.name, several=len(batches) > 1):
                _ask(submission, runs, new[number][0].script)
        except BaseException:
            for later, its_runs in list(zip(submissions, groups, strict=True))[number + 1 :]:
                take_back(its_runs, later.array, later.uuid)
            if number:
                sent = [run.run_id for earlier in groups[:number] for run in earlier]
                notice(f"{len(sent)} runs were submitted before that: {', '.join(sent)}")
            raise
    return [run for runs in groups for run in runs]


def _tell_neighbours() -> None:
    """Runs of this machine share its GPUs, cores and memory, and no scheduler keeps them apart."""
    from hpc_llm.schedulers.marks import living

    names = living().run_names()
    if names:
        others = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        are = "are" if len(names) > 1 else "is"
        notice(
            f"{others} {are} under way on this machine: runs that share it slow each other down. "
            "Where the figures count, submit when nothing else runs"
        )


def check_site(batch: Batch, *, force: bool = False, dry_run: bool = False) -> None:
    """Refuse where no Slurm is to be asked, or one that the job does not belong to, before anything is written."""
    from hpc_llm.schedulers.site import check_paths, check_slurm

    plan, name = batch.planned[0].plan, batch.cluster.name
    if plan.job.scheduler == "slurm" and shutil.which("sbatch") is None:
        if dry_run:  # a look at the script from elsewhere
            return
        raise SubmissionError(
            f"sbatch is not on PATH: submit from a login node of cluster {name}. "
            "`hpc-llm render` prints the script without it."
        )
    cluster = batch.cluster.on(batch.cluster.partition(plan.job.partition))
    absent = list(check_paths(plan, cluster))
    if dry_run:  # a look at the script from anywhere
        for sentence in absent:
            notice(sentence)
    for objection in [*check_slurm(plan, cluster), *([] if dry_run else absent)]:
        if not force:
            here = f"a login node of {name}" if plan.job.scheduler == "slurm" else f"the machine of cluster {name}"
            raise PlanError(f"{objection}. Is this {here}? --force submits all the same.")
        notice(f"--force, although {objection}")


def sbatch_arguments(job_name: str, comment: str | None, uuid: str) -> list[str]:
    """What sbatch gets beside a script."""
    from hpc_llm.schedulers.identity import sbatch_arguments

    return sbatch_arguments(job_name, comment, uuid)


def _submissions(batches: Sequence[Batch]) -> list[Submission]:
    """One a batch: a job, an array, or a queue on this machine."""
    from uuid import uuid4

    from hpc_llm.planning.slurm_request import slurm_tasks_per_node
    from hpc_llm.records.run import ARRAY
    from hpc_llm.schedulers import Submission
    from hpc_llm.schedulers.clients import cluster_name

    sweep = str(uuid4())
    found = []
    for batch in batches:
        plan = batch.planned[0].plan
        is_slurm = plan.job.scheduler == "slurm"
        found.append(
            Submission(
                scheduler=plan.job.scheduler,
                job_name=batch.job_names[0],
                comment=batch.comments[0],
                nodes=plan.parallel.nodes,
                tasks_per_node=slurm_tasks_per_node(plan.job.launcher, plan.parallel.tasks_per_node),
                time_s=plan.job.time_s,
                array=batch.array.folder.name.removeprefix(ARRAY) if batch.array else None,
                cluster=cluster_name() if is_slurm else None,
                sweep=sweep,
            )
        )
    return found


def _new_runs(batches: Sequence[Batch]) -> Iterator[list[NewRun]]:
    from hpc_llm.schedulers import NewRun

    for batch in batches:
        texts = (script.text for script in batch.scripts)
        yield [
            NewRun(run_id=run_id, experiment=record, script=text)
            for run_id, record, text in zip(batch.run_ids, _records(batch), texts, strict=True)
        ]


def _ask(submission: Submission, runs: Sequence[RunPaths], script: str) -> None:
    """Hand one submission to its scheduler, and say where that was not as it should be."""
    from hpc_llm.runs import send as hand_over

    try:
        complaint = hand_over(submission, runs, script)
    except KeyboardInterrupt:
        names = ", ".join(run.run_id for run in runs[:3]) + (" …" if len(runs) > 3 else "")
        notice(f"interrupted while {names} was submitted: `hpc-llm status` says whether the scheduler has it")
        raise
    if complaint is not None:
        notice(f"Slurm has the job, although sbatch ended with: {complaint}")


def _records(batch: Batch) -> list[dict[str, Any]]:
    """What experiment.json holds: the plan, its origins, the versions; never a secret."""
    import platform
    from datetime import datetime, timezone

    from hpc_llm import __version__

    shared = {
        "versions": {"hpc_llm": __version__, "python": platform.python_version()},
        "git_commit": _git_commit(),
        "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    return [
        {
            "schema": 1,
            "run_id": run_id,
            "plan": planned.plan.to_dict(),
            "origins": planned.origins,
            "notices": list(planned.notices),
            **shared,
        }
        for run_id, planned in zip(batch.run_ids, batch.planned, strict=True)
    ]


def _git_commit() -> str | None:
    """The commit of the working directory, if it is a checkout: read from its files, git need not be there."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / ".git").is_dir():
            with contextlib.suppress(OSError, UnicodeDecodeError):  # a checkout of somebody else, a ref that is packed
                return _head(folder / ".git")
            return None
    return None


def _head(git: Path) -> str | None:
    """The commit; None where HEAD leads elsewhere than to a reference: the checkout may be a stranger's."""
    text = _line(git / "HEAD")
    if re.fullmatch(r"ref: refs/[\w./+@-]+", text) and ".." not in text:
        text = _line(git / text.removeprefix("ref: "))
    return text if re.fullmatch(r"[0-9a-f]{40,64}", text) else None


def _line(path: Path) -> str:
    if not path.is_file():  # a pipe might block for ever
        return ""
    with path.open() as file:
        return file.readline(1000).strip()
