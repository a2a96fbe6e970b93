"""What a tracker is to hpc-llm: where it keeps runs, which packages it needs, and a way to write one whole run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpc_llm.exporting.finished import FinishedRun

WRITTEN, REPLACED, UNCHANGED = "written", "replaced", "unchanged"
"""What became of a run that was sent: it is new there, took the place of what was sent of it earlier, or stood there so."""
PROJECT = "hpc-llm"
"""Of runs that belong to no study."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where runs are to be sent."""

    folder: Path
    """For what is written here."""
    uri: str | None = None
    """Of the tracker's own store, in place of one in `folder`."""
    project: str | None = None
    """What the tracker sorts runs by; None means the study of each run."""

    def project_of(self, run: FinishedRun) -> str:
        """That of one run."""
        return self.project or run.study or PROJECT


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One run as the tracker has it now."""

    run_id: str
    key: str
    """By which the tracker knows the run again: the same however often it is sent."""
    place: str
    """The folder that was written, or the store and the run in it."""
    state: str
    """`written`, `replaced` or `unchanged`."""

    def to_dict(self) -> dict[str, Any]:
        """JSON types, with stable keys."""
        return {"run_id": self.run_id, "id": self.key, "place": self.place, "state": self.state}


Send = Callable[["FinishedRun"], Sent]
"""Writes one run whole or not at all; where its like is there already, nothing is doubled."""


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """A program that keeps and compares runs."""

    name: str
    title: str
    """As people call it."""
    modules: tuple[str, ...]
    """That must be importable here."""
    install: str
    """The packages that `pip install` has to be given for them, from wherever it is called."""
    connect: Callable[[Target], AbstractContextManager[Send]]
    """Opens the target, whose folder may not be there yet.

    Raises RequestError where it cannot be what was meant, HpcLlmError where it does not answer.
    """
    next_step: Callable[[list[Sent], Target], str]
    """What to do now, as a sentence with the command."""
    takes_uri: bool = False
    has_projects: bool = True
