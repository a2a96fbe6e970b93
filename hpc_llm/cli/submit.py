"""hpc-llm submit: plan, check, render, submit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpc_llm.cli.options import JsonOption, RunOptions, with_run_options
from hpc_llm.cli.output import note, print_json
from hpc_llm.cli.terminal import write_exactly

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.records.run import RunPaths
    from hpc_llm.schedulers import NewRun, Submission

NOT_COMPLETED = 3


def register(app: typer.Typer) -> None:
    app.command("submit")(submit)


@with_run_options
def submit(
    options: RunOptions,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the runs to their end; exit 3 if one does not complete.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the script, submit nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Submit even where this seems not to be the cluster of the profile.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Plan, check, render and submit; prints the run id and the job id."""
    from hpc_llm.cli.request import batches

    found = list(batches(options, preview=dry_run))  # all are planned and checked before the first is sent
    _tell(found, dry_run)
    for batch in found:
        _check_site(batch, force, dry_run)
    if dry_run:
        _print_scripts(found, as_json, options.logs)
        return 0
    runs = send(found, options.logs, chosen_ids=options.run_id is not None)
    if not as_json:
        for run in runs:
            typer.echo(f"{run.run_id}  {_job_id(run)}")
    statuses = _waited(runs, quiet=as_json) if wait else None
    if as_json:
        print_json({"runs": [_document(run, statuses and statuses[i]) for i, run in enumerate(runs)]})
    if statuses is None:
        return 0
    from hpc_llm.records.run import Outcome

    return 0 if all(s.outcome is Outcome.COMPLETED for s in statuses) else NOT_COMPLETED


def _tell(found: list[Batch], dry_run: bool) -> None:
    from hpc_llm.cli.render import tell_arguments, tell_notices

    for batch in found:
        tell_notices(batch)
        if dry_run:
            tell_arguments(batch)


def _previews(batch: Batch, logs: Path) -> list[dict[str, Any]]:
    """The documents of runs that are not submitted: no job id yet."""
    return [
        {"run_id": run_id, "job_id": None, "run_dir": str(logs.absolute() / run_id), "script": script.text}
        for run_id, script in zip(batch.run_ids, batch.scripts, strict=True)
    ]


def _print_scripts(found: list[Batch], as_json: bool, logs: Path) -> None:
    if as_json:
        print_json({"runs": [document for batch in found for document in _previews(batch, logs)]})
    else:
        write_exactly("\n".join(script.text for batch in found for script in batch.distinct_scripts))


def send(batches: Sequence[Batch], logs: Path, *, chosen_ids: bool) -> list[RunPaths]:
    """Make the run folders of a request and hand its scripts to the scheduler.

    All folders are there, with the intent to submit them, before the scheduler is asked for the first. What a scheduler
    refuses leaves nothing behind, nor does what was to follow it.
    """
    from hpc_llm.plan.tasks import carried_modules
    from hpc_llm.runs import make_way
    from hpc_llm.schedulers import code_snapshot, create_runs, take_back

    on_slurm = any(batch.planned[0].plan.scheduler == "slurm" for batch in batches)
    make_way(logs, [run_id for batch in batches for run_id in batch.run_ids], chosen=chosen_ids, on_slurm=on_slurm)
    for batch in batches:
        code_snapshot(logs, also=carried_modules([planned.plan for planned in batch.planned]))
    submissions = _submissions(batches)
    new = list(_new_runs(batches))
    groups = create_runs(logs, list(zip(submissions, new, strict=True)))
    for number, (submission, runs) in enumerate(zip(submissions, groups, strict=True)):
        try:
            _ask(submission, runs, new[number][0].script)
        except BaseException:
            for later, its_runs in list(zip(submissions, groups, strict=True))[number + 1 :]:
                take_back(its_runs, later.array, later.uuid)
            if number:
                sent = [run.run_id for earlier in groups[:number] for run in earlier]
                note(f"{len(sent)} runs were submitted before that: {', '.join(sent)}")
            raise
    return [run for runs in groups for run in runs]


def _check_site(batch: Batch, force: bool, dry_run: bool) -> None:
    """Refuse where no Slurm is to be asked, or one that the job does not belong to, before anything is written."""
    import shutil

    from hpc_llm.errors import PlanError, SubmissionError
    from hpc_llm.schedulers.site import check_paths, check_slurm

    plan, name = batch.planned[0].plan, batch.cluster.name
    if plan.scheduler == "slurm" and shutil.which("sbatch") is None:
        if dry_run:  # a look at the script from elsewhere
            return
        raise SubmissionError(
            f"sbatch is not on PATH: submit from a login node of cluster {name}. "
            "`hpc-llm render` prints the script without it."
        )
    cluster = batch.cluster.on(batch.cluster.partition(plan.partition))
    absent = list(check_paths(plan, cluster))
    if dry_run:  # a look at the script from anywhere
        for sentence in absent:
            note(sentence)
    for objection in [*check_slurm(plan, cluster), *([] if dry_run else absent)]:
        if not force:
            here = f"a login node of {name}" if plan.scheduler == "slurm" else f"the machine of cluster {name}"
            raise PlanError(f"{objection}. Is this {here}? --force submits all the same.")
        note(f"--force, although {objection}")


def _submissions(batches: Sequence[Batch]) -> list[Submission]:
    """One a batch: a job, an array, or a queue on this machine."""
    from uuid import uuid4

    from hpc_llm.plan.slurm_request import slurm_tasks_per_node
    from hpc_llm.records.run import ARRAY
    from hpc_llm.schedulers import Submission
    from hpc_llm.schedulers.clients import cluster_name

    sweep = str(uuid4())
    found = []
    for batch in batches:
        plan = batch.planned[0].plan
        is_slurm = plan.scheduler == "slurm"
        found.append(
            Submission(
                scheduler=plan.scheduler,
                job_name=batch.job_names[0],
                comment=batch.comments[0],
                nodes=plan.nodes,
                tasks_per_node=slurm_tasks_per_node(plan.launcher, plan.tasks_per_node),
                time_s=plan.time_s,
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
        note(f"interrupted while {names} was submitted: `hpc-llm status` says whether the scheduler has it")
        raise
    if complaint is not None:
        note(f"Slurm has the job, although sbatch ended with: {complaint}")


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


def _job_id(run: RunPaths) -> str | None:
    from hpc_llm.schedulers.runs import read_identity

    identity = read_identity(run)
    return identity.job_id if identity else None


def _waited(runs: list[RunPaths], quiet: bool) -> list[Any]:
    """Follow the runs; Ctrl-C leaves them running."""
    from hpc_llm.cli.progress import follow
    from hpc_llm.cli.status import print_statuses

    try:
        statuses = follow(runs)
    except KeyboardInterrupt:
        names = " ".join(run.run_id for run in runs[:3]) + (" …" if len(runs) > 3 else "")
        note(f"the runs go on; `hpc-llm status` shows them, `hpc-llm cancel {names}` ends them")
        raise
    if not quiet:
        print_statuses(statuses)
    return statuses


def _document(run: RunPaths, status: Any) -> dict[str, Any]:
    from hpc_llm.records.files import read_json, read_text

    document: dict[str, Any] = {
        "run_id": run.run_id,
        "job_id": _job_id(run),
        "run_dir": str(run.root),
        "script": read_text(run.script),
    }
    if status is not None:
        document["outcome"] = status.outcome.value
        document["result"] = read_json(run.result)
    return document
