"""hpc-llm submit: plan, check, render, submit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpc_llm.cli.asking import asked, would_submit
from hpc_llm.cli.options import JsonOption, ManyOptions, RunOptions, with_run_options
from hpc_llm.cli.output import note, print_json, terminal_width
from hpc_llm.cli.render import tell_arguments
from hpc_llm.cli.study_text import run_list
from hpc_llm.cli.terminal import write_exactly
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.records.run import RunPaths

NOT_COMPLETED = 3


def register(app: typer.Typer) -> None:
    app.command("submit", cls=ManyOptions)(submit)


@with_run_options
def submit(
    options: RunOptions,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Follow the runs to their end; exit 3 if one does not complete, or not as its study expects."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the script, submit nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Submit even what does not fit, and where this seems not to be the cluster of the profile."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Plan, check, render and submit; prints the run id and the job id."""
    from hpc_llm.api.sending import send, would_send

    found = (
        would_submit(options) if dry_run else _ready(options, waits=wait, force=force, quiet=as_json)
    )  # all are planned and checked before the first is sent
    is_study = sum(len(batch.planned) for batch in found) > 1 and found[0].planned[0].study is not None
    if dry_run:
        for batch in () if is_study else found:
            tell_arguments(batch)
        would_send(found, options.logs, chosen_ids=options.run_id is not None, force=force)
        _print_scripts(found, as_json, is_study, options.logs)
        return 0
    runs: list[RunPaths] = []
    try:
        send(found, options.logs, chosen_ids=options.run_id is not None, on_sent=runs.extend)
    finally:  # what a scheduler has is named, whatever becomes of the rest
        if not as_json:
            _print_runs(runs, found)
            _tell_searches(found)
        elif len(runs) < sum(len(batch.planned) for batch in found):
            print_json({"runs": [_document(run, None) for run in runs]})
    statuses = _waited(runs, quiet=as_json) if wait else None
    if as_json:
        print_json({"runs": [_document(run, statuses and statuses[i]) for i, run in enumerate(runs)]})
    if statuses is None:
        return 0
    return 0 if all(s.is_as_expected for s in statuses) else NOT_COMPLETED


def _ready(options: RunOptions, *, waits: bool, force: bool, quiet: bool) -> list[Batch]:
    """All batches of the request, ready to be sent, their data prepared where this command may do that."""
    from hpc_llm.api.preparing import ready
    from hpc_llm.cli.progress import following

    return ready(*asked(options), waits=waits, force=force, following=following(quiet=quiet))


def _print_runs(runs: list[RunPaths], batches: list[Batch]) -> None:
    """A line for each run that was submitted: the first of those that were planned."""
    names = [f"  {one.study.name}" if one.study else "" for batch in batches for one in batch.planned]
    for run, name in zip(runs, names, strict=False):
        typer.echo(f"{run.run_id}  {_job_id(run) or '-'}{one_line(name)}")


def _tell_searches(batches: list[Batch]) -> None:
    """What searches may cost: a line for those that may cost the same."""
    from hpc_llm.api.searching import bounds, searches

    plans = [(one.plan, batch.cluster) for batch in batches for one in batch.planned]
    for line in dict.fromkeys(bounds(plan, cluster) for plan, cluster in plans if searches(plan)):
        note(line)


def _previews(batch: Batch, logs: Path) -> list[dict[str, Any]]:
    """The documents of runs that are not submitted: no job id yet."""
    return [
        {"run_id": run_id, "job_id": None, "run_dir": str(logs.absolute() / run_id), "script": script.text}
        for run_id, script in zip(batch.run_ids, batch.scripts, strict=True)
    ]


def _print_scripts(found: list[Batch], as_json: bool, is_study: bool, logs: Path) -> None:
    if as_json:
        print_json({"runs": [document for batch in found for document in _previews(batch, logs)]})
    elif is_study:
        write_exactly(run_list(found, terminal_width()))
    else:
        write_exactly("\n".join(script.text for batch in found for script in batch.distinct_scripts))


def _job_id(run: RunPaths) -> str | None:
    """What is written down, else what the scheduler says: a disk that is full takes no id."""
    from hpc_llm.api.handle import Run

    sent = Run(run.root)
    return sent.job_id or sent.status().job_id


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
    from hpc_llm.api.handle import Run
    from hpc_llm.records.files import read_text

    document: dict[str, Any] = {
        "run_id": run.run_id,
        "job_id": _job_id(run),
        "run_dir": str(run.root),
        "script": read_text(run.script),
    }
    if status is not None:
        document["outcome"] = status.outcome.value
        document["result"] = Run(run.root).result
        if status.study is not None:
            document |= {"study": status.study, "study_run": status.study_run, "expect": status.expect}
    return document
