"""Handing planned and rendered batches to their schedulers: what is checked before, what is written, what is left behind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.api.fit import check_fit
from hpc_llm.api.room import check_room
from hpc_llm.api.still_going import refuse_going
from hpc_llm.api.sweep import of_cluster
from hpc_llm.errors import PlanError, RequestError, SubmissionError, counted, notice
from hpc_llm.text.homes import from_home

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.experiment import Plan
    from hpc_llm.records.run import RunPaths
    from hpc_llm.schedulers import NewRun, Submission


OnSent = Callable[[Sequence["RunPaths"]], None]
"""Told of runs as soon as a scheduler has them: what comes after them may fail."""


def send(batches: Sequence[Batch], logs: Path, *, chosen_ids: bool, on_sent: OnSent | None = None) -> list[RunPaths]:
    """Make the run folders of a request and hand its scripts to the scheduler.

    All folders are there, with the intent to submit them, before the scheduler is asked for the first. What a scheduler
    refuses leaves nothing behind, nor does what was to follow it.
    """
    from hpc_llm.planning.tasks import carried_modules
    from hpc_llm.records.run import RunPaths
    from hpc_llm.runs.caches import note_readers
    from hpc_llm.runs.wanted import reserved
    from hpc_llm.schedulers import code_snapshot
    from hpc_llm.schedulers.scheduler import find

    check_room(batches, logs)
    schedulers = make_way_for(batches, logs, chosen_ids=chosen_ids)
    if any(find(name).is_this_machine for name in schedulers):
        _tell_neighbours(logs)
    _tell_who_can_rename(logs)
    for batch in batches:
        code_snapshot(logs, also=carried_modules([planned.plan for planned in batch.planned]))
    clusters, submissions, new = zip(*_submissions(batches), strict=True)
    wanted = [
        (run.experiment, RunPaths(logs / run.run_id), submission.uuid)
        for submission, its_runs in zip(submissions, new, strict=True)
        for run in its_runs
    ]
    note_readers((experiment for experiment, _, _ in wanted), logs, from_home("~"))
    with reserved(wanted):
        return _send_all(logs, clusters, submissions, new, on_sent or (lambda runs: None), several=len(batches) > 1)


def make_way_for(batches: Sequence[Batch], logs: Path, *, chosen_ids: bool, dry_run: bool = False) -> set[str]:
    """Clear what stands where the runs are to be made; the names of their schedulers. Raises RequestError where it has to stay.

    With `dry_run` nothing is cleared, and the silence of a scheduler is no refusal.
    """
    from hpc_llm.runs import make_way
    from hpc_llm.schedulers.scheduler import find

    schedulers = {batch.planned[0].plan.job.scheduler for batch in batches}
    asked = {name for name in schedulers if not dry_run or find(name).is_answering()}
    run_ids = [run_id for batch in batches for run_id in batch.run_ids]
    make_way(logs, run_ids, chosen=chosen_ids, schedulers=asked, dry_run=dry_run)
    return schedulers


def check(batches: Sequence[Batch], logs: Path, *, force: bool = False, dry_run: bool = False) -> None:
    """All that is looked at before a submission: refuse what does not fit, and what its site would not take or could not run."""
    check_fit(batches, force=force)
    check_sites(batches, logs, force=force, dry_run=dry_run)


def would_send(batches: Sequence[Batch], logs: Path, *, chosen_ids: bool, force: bool) -> None:
    """Refuse what `check` would, and `send` before it writes anything, as far as that can be told from here."""
    from hpc_llm.schedulers.scheduler import find

    check(batches, logs, force=force, dry_run=True)
    check_room([batch for batch in batches if find(batch.planned[0].plan.job.scheduler).is_answering()], logs)
    if chosen_ids:
        make_way_for(batches, logs, chosen_ids=True, dry_run=True)


def _send_all(
    logs: Path,
    clusters: Sequence[str],
    submissions: Sequence[Submission],
    new: Sequence[Sequence[NewRun]],
    on_sent: OnSent,
    *,
    several: bool,
) -> list[RunPaths]:
    """Make all folders, then ask the schedulers for one submission after another."""
    from hpc_llm.schedulers import create_runs, take_back

    groups = create_runs(logs, list(zip(submissions, new, strict=True)))
    for number, (submission, runs) in enumerate(zip(submissions, groups, strict=True)):
        try:
            with of_cluster(clusters[number], several=several):
                _ask(submission, runs, new[number][0].script)
            on_sent(runs)
        except BaseException:
            for later, its_runs in list(zip(submissions, groups, strict=True))[number + 1 :]:
                take_back(its_runs, later.array, later.uuid)
            if number:
                sent = [run.run_id for earlier in groups[:number] for run in earlier]
                were = "was" if len(sent) == 1 else "were"
                notice(f"{counted(len(sent), 'run')} {were} submitted before that: {', '.join(sent)}")
            raise
    return [run for runs in groups for run in runs]


def _tell_neighbours(logs: Path) -> None:
    """Runs of this machine share its GPUs, cores and memory, and no scheduler keeps them apart; those of other folders say where."""
    from hpc_llm.schedulers.local.marks import living

    folders = living().run_folders()
    if folders:
        names = [one.name if one.parent == logs.absolute() else f"{one.name} (in {one.parent})" for one in folders]
        others = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        are = "are" if len(names) > 1 else "is"
        notice(
            f"{others} {are} under way on this machine: runs that share it slow each other down. "
            "Where the figures count, submit when nothing else runs"
        )


def check_sites(batches: Sequence[Batch], logs: Path, *, force: bool = False, dry_run: bool = False) -> None:
    """`check_site` for each run that asks a site for something else than those before; no run that is not over is gone on with.

    Where runs go to several schedulers each is looked at before the first gets anything: of one alone its own command says
    what is wrong, and then nothing is queued either.
    """
    from dataclasses import replace

    from hpc_llm.schedulers.scheduler import find

    refuse_going(batches)
    clusters = {batch.planned[0].plan.job.scheduler: batch.cluster.name for batch in batches}
    for name in clusters:
        if why := find(name).unfit_folder(logs):
            raise RequestError(why)
    asked = set()
    for batch, plan in [(made, one.plan) for made in batches for one in made.planned]:
        of_site = repr((replace(plan.job, name=""), plan.parallel, plan.training.profile))
        wanted = (batch.cluster.name, of_site, plan.model.name)
        if wanted not in asked:
            check_site(batch, plan, force=force, dry_run=dry_run)
        asked.add(wanted)
    if len(clusters) > 1 and not dry_run:
        _check_reach(clusters, logs)


def _check_reach(clusters: Mapping[str, str], logs: Path) -> None:
    """Raise SubmissionError where one of the schedulers, each with the cluster that is meant, takes nothing from here."""
    from hpc_llm.schedulers.scheduler import find

    for name, cluster in clusters.items():
        why = find(name).out_of_reach(logs)
        if why:
            raise SubmissionError(f"cluster {cluster}: {why} Nothing was submitted, to no cluster.")


def _tell_who_can_rename(logs: Path) -> None:
    """The script leaves alone what is not its run's folder, but where it prints to is opened by the scheduler, through any link."""
    from hpc_llm.records.shared import who_can_rename

    clause = who_can_rename(logs)
    if clause:
        notice(
            f"{clause}: who can rename your runs there can have your job print into another file of yours. A folder of your own "
            "(--logs DIR) is safe"
        )


def check_site(batch: Batch, plan: Plan, *, force: bool = False, dry_run: bool = False) -> None:
    """Refuse where the scheduler is not to be asked, or is one that the job does not belong to, before anything is written."""
    import os

    from hpc_llm.schedulers.paths import missing_paths
    from hpc_llm.schedulers.scheduler import Objection, find

    name, scheduler = batch.cluster.name, find(plan.job.scheduler)
    absent_here = f"{scheduler.command} is not on PATH" if scheduler.command else f"{scheduler.title} is not here"
    if dry_run and not scheduler.is_answering():  # a look at the script from elsewhere
        why = f"{scheduler.title} gives no answer here" if scheduler.is_here() else absent_here
        notice(f"{why}: what only cluster {name} itself can tell was not checked. Submit from a login node of it")
    if not scheduler.is_here():
        if dry_run:
            return
        raise SubmissionError(
            f"{absent_here}: submit from a login node of cluster {name}. `hpc-llm render` prints the script without it."
        )
    cluster = batch.cluster.on(batch.cluster.partition(plan.job.partition))
    here = f"the machine of cluster {name}" if scheduler.is_this_machine else f"a login node of {name}"
    absent: list[str] = (
        list(missing_paths(cluster, os.environ, here)) if scheduler.is_answering() else []
    )  # else this is some other machine
    if scheduler.is_this_machine and cluster.prelude.python.kind == "current" and not cluster.prelude.load:
        absent += _lacking(batch)
    for objection in [*scheduler.objections(plan, cluster), *absent]:
        if not force:
            way = (
                objection.remedy
                if isinstance(objection, Objection)
                else f"Is this {here}? --force submits all the same."
            )
            raise PlanError(f"{objection}. {way}")
        notice(f"--force, although {objection}")


def _lacking(batch: Batch) -> list[str]:
    """A sentence where this Python, in which the runs train, lacks what they need; jobs of clusters say so when they start."""
    import sys
    from importlib.util import find_spec

    from hpc_llm.planning.tasks import find

    needed = dict.fromkeys(name for one in batch.planned for name in find(one.plan.task).packages(one.plan))
    missing = [name for name in needed if find_spec(name.partition(".")[0]) is None]
    if not missing:
        return []
    return [
        f"the Python that runs hpc-llm, {sys.executable}, lacks {', '.join(missing)}, which the runs need: python -m pip install "
        f"{' '.join(missing)}"
    ]


def _submissions(batches: Sequence[Batch]) -> Iterator[tuple[str, Submission, list[NewRun]]]:
    """The name of the cluster, the submission and its runs: a batch is one submission where its scheduler takes it as one."""
    from uuid import uuid4

    from hpc_llm.schedulers.scheduler import find
    from hpc_llm.site.schedulers import Several

    sweep = str(uuid4())
    for batch in batches:
        scheduler, runs = find(batch.planned[0].plan.job.scheduler), _new_runs(batch)
        cluster = scheduler.cluster_name()
        if scheduler.several is not Several.ALONE:
            yield batch.cluster.name, _submission(batch, 0, cluster, sweep), runs
            continue
        for number, run in enumerate(runs):
            yield batch.cluster.name, _submission(batch, number, cluster, sweep), [run]


def _submission(batch: Batch, number: int, cluster: str | None, sweep: str) -> Submission:
    """A job for that run of the batch, or for all of them: a job, an array, or a queue on this machine."""
    from hpc_llm.planning.slurm_request import slurm_tasks_per_node
    from hpc_llm.records.run import ARRAY
    from hpc_llm.schedulers import Submission
    from hpc_llm.schedulers.scheduler import find
    from hpc_llm.schedulers.submission import digest_of
    from hpc_llm.site.schedulers import Several

    plan = batch.planned[number].plan
    is_alone = find(plan.job.scheduler).several is Several.ALONE
    scripts = batch.scripts[number : number + 1] if is_alone else batch.scripts
    return Submission(
        scheduler=plan.job.scheduler,
        job_name=batch.job_names[number],
        comment=batch.comments[number],
        nodes=plan.parallel.nodes,
        tasks_per_node=slurm_tasks_per_node(plan.job.launcher, plan.parallel.tasks_per_node),
        time_s=plan.job.time_s,
        array=batch.array.folder.name.removeprefix(ARRAY) if batch.array else None,
        cluster=cluster,
        sweep=sweep,
        parallel=batch.parallel,
        digests=tuple(digest_of(script.text.encode()) for script in scripts),
    )


def _new_runs(batch: Batch) -> list[NewRun]:
    from hpc_llm.schedulers import NewRun

    texts = (script.text for script in batch.scripts)
    return [
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
        notice(
            f"{submission.facts.title} has the job, although {submission.facts.command or 'it'} ended with: {complaint}"
        )


def _records(batch: Batch) -> list[dict[str, Any]]:
    """What experiment.json holds: the plan, its origins, the versions; never a secret."""
    import platform
    from datetime import datetime, timezone

    from hpc_llm import __version__
    from hpc_llm.api.predicting import predictions

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
            "asked": planned.asked,
            "origins": planned.origins,
            "notices": list(planned.notices),
            **({"templates": batch.templates} if batch.templates else {}),
            **({"study": planned.study.to_dict()} if planned.study else {}),
            **({"prediction": prediction} if prediction else {}),
            **shared,
        }
        for run_id, planned, prediction in zip(batch.run_ids, batch.planned, predictions(batch), strict=True)
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
