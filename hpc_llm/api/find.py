"""From what a user types to run folders."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from hpc_llm.api.door import is_path, shown
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.records.run import RunPaths, is_run, iter_runs
from hpc_llm.text.homes import from_home
from hpc_llm.text.pasted import default_logs, refuse_address, refuse_file

if TYPE_CHECKING:
    from hpc_llm.api.handle import Named

_JOB_ID = re.compile(r"\d+(?:_\d+)?")
_MADE = re.compile(r"\d{8}-\d{6}-")
"""How ids begin that nobody chose."""
_FEW = 12
"""So many runs are listed whole where one is not found."""
_SHOWN = 5
"""So many runs are listed of those that one name may mean."""
_DATE = 8
"""Digits with which the run ids of a day begin."""


def logs_folder(logs: str | os.PathLike[str] | None) -> Path:
    """The folder in which runs live: as given, else `HPC_LLM_LOGS`, else `logs` of the working directory."""
    if logs is not None and not is_path(logs):
        raise RequestError(f"logs is {shown(logs)}: the path of a folder, as text or a Path, is needed.")
    if logs is not None and not os.fspath(logs):
        raise RequestError("logs is empty: a variable may not be set. Leave it out, or name a folder.")
    if logs is not None:
        refuse_address("logs", os.fspath(logs))
    folder = from_home(logs) if logs else default_logs()
    if logs:  # what only reads paths asks here too, and another folder called logs is no fault of theirs
        refuse_file("logs", folder)
    return folder


def refuse_empty(text: str) -> None:
    """Refuse a name of no letters: read as a path it would be all that lies in the working directory."""
    if not text:
        raise RequestError("the name of a run is empty: a variable of the shell may not be set.")


def find_run(text: str, logs: Path, *, whole: bool = False) -> RunPaths:
    """The run named by its id, its Slurm job id, or, with a slash in it, the path of its folder; unless its name has to be `whole`, as
    for what ends, removes or goes on with a run, also by the start of its id, up to where a word of it ends."""
    refuse_empty(text)
    refuse_address("", text)
    candidate = Path(text) if _is_path(text) else logs / text  # a name is never another run that is here by chance
    if is_run(candidate):
        return RunPaths(candidate.absolute())
    if not _is_path(text) and os.path.lexists(logs / text):  # never another run whose name begins like that
        raise RequestError(_no_run(logs / text))
    if _is_path(text):
        raise RequestError(_no_run(Path(text)))
    refuse_missing(logs)
    if is_run(Path(text)) and Path(text).absolute().parent != logs.absolute():
        raise RequestError(f"there is no run '{text}' in {logs}. The one in this folder is ./{text}, or --logs .")
    matches = _matches(text, list(iter_runs(logs.absolute())), whole)
    if len(matches) == 1:
        return matches[0]
    runs = list(iter_runs(logs.absolute()))
    if matches:
        raise RequestError(_several(text, matches))
    if any(iter_runs(Path(text))) and Path(text).absolute() != logs.absolute():
        raise RequestError(_no_run(Path(text)))
    if not runs:
        below = runs_below(logs)
        raise RequestError(
            f"there is no run '{text}' in {logs}: it holds no runs{f', {below}' if below else '. Those of another folder: --logs DIR, in Python logs=DIR'}."
        )
    if _is_job_id(text):  # digits of one are in every run's name by chance
        of_job = f"there is no run of job {text} in {logs}"
        raise RequestError(f"{of_job}. {_runs_there(runs)}")
    if len(runs) > _FEW:
        near = difflib.get_close_matches(text, [run.run_id for run in runs], n=1)
        hint = f": did you mean '{near[0]}'?" if near else "."
        raise RequestError(f"there is no run '{text}' in {logs}{hint} {_runs_there(runs)}")
    raise RequestError(unknown_name("run", text, [run.run_id for run in runs], where=str(logs)))


def _is_job_id(text: str) -> bool:
    """Whether a name is the id of a job: it may be a date from eight digits on."""
    return _JOB_ID.fullmatch(text) is not None and len(text.partition("_")[0]) < _DATE


def _runs_there(runs: Sequence[RunPaths]) -> str:
    if len(runs) > _FEW:
        return f"{len(runs)} runs are there, `hpc-llm status` lists them."
    return f"Valid: {', '.join(run.run_id for run in runs)}."


def _several(text: str, matches: Sequence[RunPaths]) -> str:
    """That one name is said of several runs: more of a start says which is meant, and of a job nothing but the run's own id."""
    more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
    named = f"{', '.join(run.run_id for run in matches[:_SHOWN])}{more}"
    if all(run.run_id.startswith(text) for run in matches):
        return f"'{text}' is the start of {len(matches)} runs: {named}. Write more of it."
    return f"{text} is the job of {len(matches)} runs: {named}. Name one of them."


def _no_run(path: Path) -> str:
    """What stands at a path that is no run, and how the runs in it are named."""
    if not os.path.lexists(path):
        return f"there is no folder {path}."
    inside = next((one for one in list(path.absolute().parents)[:3] if is_run(one)), None)
    if inside is not None:
        return f"{path} is no run, it lies in that of {inside.name}: name the run by its folder, {inside}."
    if not path.is_dir():
        return f"{path} is no folder, so it is no run: a run is named by its id, or by its folder."
    if number := sum(1 for _ in iter_runs(path)):
        return (
            f"{path} is no run, it holds {number}: name the folder of runs as --logs {quote(str(path))} (in Python logs=), "
            "and one of its runs by its id."
        )
    below = runs_below(path)
    return f"{path} is no run: it holds no experiment.json that can be read{f'; {below}' if below else ''}."


def refuse_missing(logs: Path) -> None:
    """Raise RequestError for a folder of runs that is named and not there; the usual one begins with the first run."""
    if os.path.lexists(logs) or logs.absolute() == Path("logs").absolute():
        return
    if os.environ.get("HPC_LLM_LOGS") and logs.absolute() == default_logs().absolute():
        raise RequestError(
            f"there is no folder {logs}, which the variable HPC_LLM_LOGS names: the first run that is submitted makes it. Correct the "
            "variable, or name another folder by --logs DIR, in Python logs=DIR."
        )
    raise RequestError(f"there is no folder {logs}: --logs, in Python logs=, names the folder of the runs.")


def find_runs(texts: Sequence[str] | None, logs: Path, *, whole: bool = False) -> list[RunPaths]:
    """The runs named, or all runs under `logs` if none is; the id of a job array names all its members. `whole` as in `find_run`."""
    if not texts:
        return list(iter_runs(logs.absolute()))
    found: dict[RunPaths, None] = {}
    for text in texts:
        members = (
            _of_job(text, list(iter_runs(logs.absolute()))) if text.isdecimal() and not is_run(logs / text) else []
        )
        found |= dict.fromkeys(members or [find_run(text, logs, whole=whole)])
    return list(found)


def _is_path(text: str) -> bool:
    return "/" in text or text in (".", "..")


def paths_of(texts: Sequence[str], logs: Path) -> list[str]:
    """Paths as they are, and the folders of the runs that are named by their ids, the start of those, or their jobs.

    What is neither stays, for whoever reads it to say so.
    """
    return [path for text in texts for path in _paths_of(text, logs)]


def paths_of_logs(paths: Named | Iterable[Named], logs: str | os.PathLike[str] | None) -> list[str]:
    """Paths as they are, and the folders of the runs of `logs` that are named."""
    from hpc_llm.api.handle import each_of, name_of

    given = [one if isinstance(one, str) else os.fspath(name_of(one)).rstrip("/") or "/" for one in each_of(paths)]
    return paths_of(given, logs_folder(logs))


def _paths_of(text: str, logs: Path) -> list[str]:
    refuse_empty(text)
    if text == "-" or os.sep in text or os.path.lexists(text):
        return [text]
    try:
        return [str(run.root) for run in find_runs([text], logs)]
    except RequestError:
        return [text]


def _matches(text: str, runs: Sequence[RunPaths], whole: bool) -> list[RunPaths]:
    """The run of that job, else, unless the name has to be `whole`, the runs whose ids begin so, else that of a job whose id is no number.
    A number is a job id; from eight digits on it may be a date."""
    of_job = _of_job(text, runs)
    if of_job or (text.isdecimal() and len(text) < _DATE):
        return of_job
    # `z3` is no beginning of `z3o`: words of a name end where neither a letter nor a digit follows. Those that begin with a time are not typed.
    starts = [
        run
        for run in runs
        if run.run_id.startswith(text) and (_MADE.match(run.run_id) or not run.run_id[len(text) :][:1].isalnum())
    ]
    return (not whole and starts) or _own_of([run for run in runs if _job_id(run) == text])


def _of_job(text: str, runs: Sequence[RunPaths]) -> list[RunPaths]:
    """The runs that are the job of that id, or tasks of the array of that id: this user's, where one of them is."""
    if not _JOB_ID.fullmatch(text):
        return []
    found = [run for run in runs if (job_id := _job_id(run)) is not None and text in (job_id, job_id.partition("_")[0])]
    return _own_of(found)


def _own_of(found: list[RunPaths]) -> list[RunPaths]:
    from hpc_llm.runs.adoption import is_own

    return [run for run in found if is_own(run)] or found  # what a folder of somebody else says takes no id from us


def _job_id(run: RunPaths) -> str | None:
    from hpc_llm.schedulers.runs import read_identity

    identity = read_identity(run)
    return identity.job_id if identity else None


def where_runs_are(logs: Path) -> str:
    """That there are none in `logs`, and where some are: in the working directory, or the latest folder below `logs`, as the demo makes one."""
    if number := sum(1 for _ in iter_runs(Path())):
        return f"there are no runs in {logs}; the working directory holds {number}: --logs ."
    below = runs_below(logs)
    return f"there are no runs in {logs} itself; {below}" if below else f"there are no runs in {logs}"


def runs_below(logs: Path) -> str | None:
    """The latest folder of `logs` that holds runs, and how it is named; None where there is none."""
    below = sorted((path for path in logs.glob("[!.]*") if path.is_dir() and not path.is_symlink()), reverse=True)
    for folder in below[:20]:
        if number := sum(1 for _ in iter_runs(folder)):
            return f"{folder} holds {number}: --logs {folder}"
    return None
