"""hpc-llm cancel: end runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import note, print_json
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.run import RunPaths
    from hpc_llm.runs import Cancellation

_JOB_ID = re.compile(r"\d+(?:_\d+)?")


def register(app: typer.Typer) -> None:
    app.command("cancel")(cancel_command)


def cancel_command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Runs to cancel, or job ids of runs whose folders are gone.")
    ],
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> int:
    """Cancel runs; says what was already over. Only jobs that are proven to be theirs are touched."""
    from hpc_llm.runs import cancel, cancel_job

    found, job_ids = _find(runs, logs)
    done = cancel(found) if found else []
    done += [cancel_job(job_id) for job_id in job_ids]
    if as_json:
        print_json({"runs": [_document(item) for item in done]})
    for item in done:
        name = item.run_id or f"job {item.job_id}"
        if item.problem is not None:
            note(f"{name} was not cancelled: {item.problem}")
        elif not as_json:
            typer.echo(f"{name}  {_was_over(item) if item.was_over else 'cancelled'}")
    return 1 if any(item.problem for item in done) else 0


def _was_over(item: Cancellation) -> str:
    """How it had ended, and where nobody knows that, what there is."""
    if item.outcome not in (None, "UNKNOWN"):
        return f"was over: {item.outcome}"
    return one_line(f"was over, and how it ended is not known{f': {item.reason}' if item.reason else ''}")


def _find(texts: list[str], logs: Path) -> tuple[list[RunPaths], list[str]]:
    """The runs that are meant, and the ids of jobs of which there is no run here."""
    from hpc_llm.cli.runs import find_runs
    from hpc_llm.errors import RequestError

    runs: dict[RunPaths, None] = {}
    job_ids: list[str] = []
    for text in texts:
        gone = _of_runs_that_are_gone(text, logs)  # of a sweep whose other runs may be there still
        job_ids += gone
        try:
            runs |= dict.fromkeys(find_runs([text], logs))
        except RequestError:
            if not _JOB_ID.fullmatch(text):
                raise
            if not gone:
                job_ids.append(text)
    return list(runs), list(dict.fromkeys(job_ids))


def _of_runs_that_are_gone(text: str, logs: Path) -> list[str]:
    """The ids of jobs that are, or are tasks of, the job `text`, print into `logs` and have no run there any more."""
    from hpc_llm.runs import homeless

    if not text.isdecimal():
        return []
    ids = [one.job_id for one in homeless(logs) if one.job_id is not None]
    return [job_id for job_id in ids if text in (job_id, job_id.partition("_")[0])]


def _document(item: Cancellation) -> dict[str, object]:
    return {
        "run_id": item.run_id or None,
        "job_id": item.job_id,
        "was_over": item.was_over,
        "outcome": item.outcome,
        "problem": item.problem,
        "reason": item.reason,
    }
