"""Sending finished runs to a tracker: all is looked at before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.exporting import find, names
from hpc_llm.exporting.finished import finished_runs
from hpc_llm.exporting.tracker import Sent, Target, Tracker
from hpc_llm.records.run import RunPaths

_LONGEST_PROJECT = 128
"""Letters that all trackers take."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """What became of the runs."""

    runs: list[Sent]
    next_step: str
    """A sentence."""


def send(runs: Sequence[RunPaths], to: str, target: Target) -> Export:
    """Send each run whole or not at all; what was sent before is not doubled.

    Raises:
        RequestError: there is no such tracker, the target cannot be what was meant, or a run cannot be sent; nothing was changed.
        HpcLlmError: a package is missing, or the tracker failed; runs before the one that it names are there.
    """
    tracker = find(to)
    _check(tracker, target)
    _require(tracker)
    if not runs:
        raise RequestError("no run is named: `hpc-llm status` lists them.")
    finished = finished_runs(runs)
    done: list[Sent] = []
    with tracker.connect(target) as send_one:
        for run in finished:
            done.append(send_one(run))
    return Export(runs=done, next_step=tracker.next_step(done, target))


def _check(tracker: Tracker, target: Target) -> None:
    if target.uri is not None and not tracker.takes_uri:
        ones = ", ".join(name for name in names() if find(name).takes_uri)
        raise RequestError(f"--uri is for {ones}: {tracker.title} gets files in the folder that -o DIR names.")
    if target.project is not None and not tracker.has_projects:
        raise RequestError(
            f"--project: {tracker.title} has no projects; a folder of its own, -o DIR, keeps runs apart."
        )
    if target.project is not None and not _is_name(target.project):
        raise RequestError(
            f"--project {target.project!r} is no name of a project: letters, digits, dots, hyphens, underscores and blanks, "
            f"at most {_LONGEST_PROJECT}."
        )
    if target.folder.exists() and not target.folder.is_dir():
        raise RequestError(f"{target.folder}: it is a file, a folder is needed.")


def _is_name(text: str) -> bool:
    plain = text.replace("-", "").replace("_", "").replace(".", "").replace(" ", "")
    return 0 < len(text) <= _LONGEST_PROJECT and plain.isalnum() and text == text.strip()


def _require(tracker: Tracker) -> None:
    missing = [module for module in tracker.modules if find_spec(module) is None]
    if missing:
        raise HpcLlmError(
            f"{tracker.title} needs {' and '.join(missing)}, not installed here: python -m pip install {tracker.install}"
        )
