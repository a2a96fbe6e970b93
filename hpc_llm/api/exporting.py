"""Sending finished runs to a tracker."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hpc_llm.api.handle import Named, runs_of
from hpc_llm.text.homes import from_home
from hpc_llm.text.pasted import refuse_address, refuse_link_by_default

if TYPE_CHECKING:
    from hpc_llm.exporting.send import Export


OUTPUT = "export"


def export(
    runs: Named | Iterable[Named],
    *,
    to: str,
    output: str | os.PathLike[str] = OUTPUT,
    uri: str | None = None,
    project: str | None = None,
    logs: str | os.PathLike[str] | None = None,
) -> Export:
    """Send finished runs to the tracker `to`: `wandb`, `mlflow`, `tensorboard`, or one of another package.

    Their plan is the configuration, their result the summary, their steps and evaluations the history. Files are written
    into `output`; `uri` names a store of MLflow in place of one there; `project` is the study of each run, else `hpc-llm`.
    What was sent before takes no second place.

    Raises:
        RequestError: no such run or tracker, or a run that is not over or damaged; nothing was changed.
        HpcLlmError: a package is missing, or the tracker failed.
    """
    from hpc_llm.exporting.send import send
    from hpc_llm.exporting.tracker import Target

    named = [run.paths for run in runs_of(runs, logs)]
    refuse_address("output", os.fspath(output))
    refuse_link_by_default(output, OUTPUT)
    return send(named, to, Target(folder=from_home(output), uri=uri, project=project))
