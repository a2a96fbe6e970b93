"""Which runs and jobs are meant by what a user names, and their end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.api.find import find_runs, logs_folder
from hpc_llm.api.handle import Named, Run, names_of
from hpc_llm.errors import RequestError
from hpc_llm.records.run import RunPaths

if TYPE_CHECKING:
    from hpc_llm.runs import Cancellation
    from hpc_llm.runs.local_orphans import LocalOrphan

_JOB_ID = re.compile(r"\d+(?:_\d+)?")
_HERE = "this machine"


def cancel(runs: Named | Iterable[Named], *, logs: str | os.PathLike[str] | None = None) -> list[Cancellation]:
    """Cancel runs; only jobs that are proven to be theirs are touched, and what was over is said.

    Runs are named by their whole ids or their job ids, also where their folders are gone.

    Raises:
        RequestError: a name that nothing has, or several jobs have; nothing was done.
    """
    from hpc_llm.runs import cancel, cancel_jobs, cancel_orphan

    given, folder = names_of(runs), logs_folder(logs)
    known = [one.paths for one in given if isinstance(one, Run)]
    texts = [one for one in given if isinstance(one, str)]
    found, job_ids, gone = _find(texts, folder)
    all_runs = list(dict.fromkeys([*known, *found]))
    done = cancel(all_runs) if all_runs else []
    done += [one for job_id in job_ids for one in cancel_jobs(job_id)]
    return done + [one for name in gone if (one := cancel_orphan(name, folder)) is not None]


def _find(texts: list[str], logs: Path) -> tuple[list[RunPaths], list[str], list[str]]:
    """The runs that are meant, the ids of jobs of which there is no run here, and the names of runs that are gone."""
    runs: dict[RunPaths, None] = {}
    job_ids: list[str] = []
    names: list[str] = []
    for text in texts:
        gone = _of_runs_that_are_gone(text, logs)  # of a sweep whose other runs may be there still
        try:
            found = find_runs([text], logs, whole=True)
        except RequestError as error:
            if any(one.run_id == text for one in _orphans(logs)):
                names.append(text)
                continue
            is_job = _JOB_ID.fullmatch(text) or _is_job(text)
            gone = gone or ([text] if is_job else _jobs_of_gone_run(text, logs, error))
            found = []
        if _JOB_ID.fullmatch(text):
            _refuse_to_choose(text, found, gone, logs)
        job_ids += gone
        runs |= dict.fromkeys(found)
    return list(runs), list(dict.fromkeys(job_ids)), names


def _jobs_of_gone_run(name: str, logs: Path, unknown: RequestError) -> list[str]:
    """The ids of jobs of a run whose folder is gone. Raises RequestError, `unknown` where nothing is known of such a run."""
    from hpc_llm.runs import jobs_of_gone_run, of_gone_run

    jobs = jobs_of_gone_run(name, logs)
    if not jobs:
        why = of_gone_run(name, logs)
        raise unknown if why is None else RequestError(why)
    return jobs


def _is_job(text: str) -> bool:
    """Whether a scheduler whose ids look so has a job of that id."""
    from hpc_llm.schedulers.scheduler import with_jobs

    return any(one.is_job_id(text) and one.find_job(text)[0] is not None for one in with_jobs())


def _refuse_to_choose(text: str, found: list[RunPaths], gone: list[str], logs: Path) -> None:
    """Refuse a number that names jobs of several submissions: of a scheduler and of this machine, or one that came twice."""
    from hpc_llm.schedulers.runs import read_identity
    from hpc_llm.schedulers.scheduler import with_jobs
    from hpc_llm.text.pasted import for_runs_in

    jobs = 0
    named: dict[tuple[str, str | None], str] = {}
    for run in found:
        identity = read_identity(run)
        is_over = identity is not None and not identity.has_job and run.exit.exists()
        if identity is not None and not is_over:  # numbers of processes come again
            named.setdefault((identity.facts.title, identity.uuid), run.run_id)
            jobs += identity.has_job
    orphans = [one for one in _orphans(logs) if one.job_id in gone]
    for one in orphans:
        named.setdefault((_HERE, one.script.uuid), one.run_id)
    if len(gone) > len(orphans) and found and not jobs:
        named[" or ".join(one.title for one in with_jobs()), None] = f"job {text}"
    if len(named) > 1:
        what = [f"{name} ({'on' if key[0] == _HERE else 'of'} {key[0]})" for key, name in named.items()]
        told = (
            f"{text} is the job id of {' and of '.join(what)}: nothing was done. Give the name of the run that is meant, as "
            f"in `hpc-llm cancel {next(iter(named.values()))}`."
        )
        raise RequestError(for_runs_in(logs, told))


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
