"""Bringing run folders and scheduler together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hpc_llm.api.find import logs_folder
from hpc_llm.api.handle import Named, runs_of

if TYPE_CHECKING:
    from hpc_llm.runs import Reconciled


def reconcile(
    runs: Named | Iterable[Named] | None = None,
    *,
    logs: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> list[Reconciled]:
    """Adopt jobs that no run knows, clear runs that never became a job, submit the missing members of a sweep.

    Without `runs` all of `logs` are looked at, and what was cut off there is named too; where a scheduler with jobs of it does not
    answer, so that this cannot be told, the folder itself. With `dry_run` nothing is done.

    Raises:
        RequestError: a name that no run has.
    """
    from hpc_llm.runs import cut_off, reconcile

    done = reconcile([run.paths for run in runs_of(runs, logs, whole=True)], dry_run=dry_run)
    return done if runs is not None else done + cut_off(logs_folder(logs))
