"""What of runs takes room, and its removal, as far as it is asked for."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_llm.api.find import logs_folder
from hpc_llm.api.handle import Named, runs_of
from hpc_llm.errors import RequestError, unknown_name

if TYPE_CHECKING:
    from hpc_llm.runs.room import Taken


@dataclass(frozen=True)
class Cleaned:
    """Something that takes room, and what became of it."""

    taken: Taken
    is_chosen: bool
    """It was asked for and may go: it is gone, or would be."""
    problem: str | None = None
    """Why it is still there although it was to be removed."""


def clean(
    runs: Named | Iterable[Named] | None = None,
    *,
    remove: Collection[str] = (),
    logs: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> list[Cleaned]:
    """Say what the runs have kept, and remove of it the kinds `remove`: `checkpoints`, `model`, `code`.

    The newest checkpoint of a run stays, unless the run came to its end and its model is there; the model stays where no
    checkpoint is left. What is of a run that is not over stays, and what another one goes on from.

    Raises:
        RequestError: a name that no run has, or a kind that there is not; nothing was removed.
    """
    from hpc_llm.records.run import iter_runs
    from hpc_llm.runs import status
    from hpc_llm.runs.room import KINDS, choose, taken_by
    from hpc_llm.runs.room import remove as take_away

    for kind in remove:
        if kind not in KINDS:
            raise RequestError(unknown_name("kind", kind, KINDS))
    named = [run.paths for run in runs_of(runs, logs)]
    folder = logs_folder(logs).absolute()
    known = list(dict.fromkeys([*named, *iter_runs(folder)]))
    found = taken_by(folder, named, dict(zip(known, status(known), strict=True)))
    chosen = {one.path for one in choose(found, remove)}
    return [
        Cleaned(one, one.path in chosen, take_away(one) if one.path in chosen and not dry_run else None)
        for one in found
    ]
