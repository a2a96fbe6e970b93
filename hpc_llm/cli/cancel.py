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
    from hpc_llm.records.run import RunPaths
    from hpc_llm.runs import Cancellation
    from hpc_llm.runs.local_orphans import LocalOrphan

_JOB_ID = re.compile(r"\d+(?:_\d+)?")


def register(app: typer.Typer) -> None:
    app.command("cancel")(cancel_command)


def cancel_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Runs to cancel, or names or job ids of runs whose folders are gone."),
    ],
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> int:
    """Cancel runs; says what was already over. Only jobs that are proven to be theirs are touched."""
    from hpc_llm.runs import cancel, cancel_job, cancel_orphan

    found, job_ids, gone = _find(runs, logs)
    done = cancel(found) if found else []
    done += [cancel_job(job_id) for job_id in job_ids]
    done += [one for name in gone if (one := cancel_orphan(name, logs)) is not None]
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


def _find(texts: list[str], logs: Path) -> tuple[list[RunPaths], list[str], list[str]]:
    """The runs that are meant, the ids of jobs of which there is no run here, and the names of runs that are gone."""
    from hpc_llm.cli.runs import find_runs
    from hpc_llm.errors import RequestError

    runs: dict[RunPaths, None] = {}
    job_ids: list[str] = []
    names: list[str] = []
    for text in texts:
        gone = _of_runs_that_are_gone(text, logs)  # of a sweep whose other runs may be there still
        try:
            found = find_runs([text], logs)
        except RequestError:
            if any(one.run_id == text for one in _orphans(logs)):
                names.append(text)
                continue
            if not _JOB_ID.fullmatch(text):
                raise
            found, gone = [], gone or [text]
        if _JOB_ID.fullmatch(text):
            _refuse_to_choose(text, found, gone, logs)
        job_ids += gone
        runs |= dict.fromkeys(found)
    return list(runs), list(dict.fromkeys(job_ids)), names


def _refuse_to_choose(text: str, found: list[RunPaths], gone: list[str], logs: Path) -> None:
    """Refuse a number that names jobs of several submissions: of Slurm and of this machine, or one that came twice."""
    from hpc_llm.errors import RequestError
    from hpc_llm.schedulers.runs import read_identity

    named: dict[tuple[str, str | None], str] = {}
    for run in found:
        identity = read_identity(run)
        is_over = identity is not None and identity.scheduler == "local" and run.exit.exists()
        if identity is not None and not is_over:  # numbers of processes come again
            named.setdefault((identity.scheduler, identity.uuid), run.run_id)
    orphans = [one for one in _orphans(logs) if one.job_id in gone]
    for one in orphans:
        named.setdefault(("local", one.script.uuid), one.run_id)
    if len(gone) > len(orphans) and found and not any(scheduler == "slurm" for scheduler, _ in named):
        named["slurm", None] = f"job {text}"
    if len(named) > 1:
        what = [f"{name} ({'of Slurm' if key[0] == 'slurm' else 'on this machine'})" for key, name in named.items()]
        raise RequestError(
            f"{text} is the job id of {' and of '.join(what)}: nothing was done. Give the name of the run that is meant, as "
            f"in `hpc-llm cancel {next(iter(named.values()))}`."
        )


def _orphans(logs: Path) -> list[LocalOrphan]:
    """Scripts that this machine runs and whose folder is gone from `logs`."""
    from hpc_llm.runs.local_orphans import local_orphans

    return list(local_orphans(logs))


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
