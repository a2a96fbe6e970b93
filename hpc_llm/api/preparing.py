"""Data that a request needs and that nobody has prepared yet are prepared first, where its own cluster does that."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Optional

from hpc_llm.api.batches import Places, batches
from hpc_llm.api.corpora import NotPreparedError
from hpc_llm.errors import HpcLlmError, Notice, RequestError, notice

if TYPE_CHECKING:
    from hpc_llm.api.handle import Run
    from hpc_llm.api.request import Request
    from hpc_llm.job.batch import Batch
    from hpc_llm.runs import RunStatus

OnUpdate = Callable[[list["RunStatus"]], None]
Following = AbstractContextManager[Optional[OnUpdate]]
"""Gives what is told of runs while they are waited for within it."""


def ready(
    request: Request, places: Places, *, waits: bool, force: bool = False, following: Following | None = None
) -> list[Batch]:
    """All batches of the request, ready to be sent: planned, their data prepared, and looked at as far as that goes from here.

    `force` takes what does not fit, and what seems not to be for the cluster. `following` shows how far preparations are.

    Raises:
        RequestError, PlanError, SubmissionError: as `_prepared` and `check`.
    """
    from hpc_llm.api.sending import check

    with following or nullcontext() as on_update:
        made = _prepared(request, places, waits=waits, force=force, on_update=on_update)
    check(made, places.logs, force=force)
    return made


def _prepared(request: Request, places: Places, *, waits: bool, force: bool, on_update: OnUpdate | None) -> list[Batch]:
    """All batches of the request, its data prepared: on this machine at once, on a cluster where the caller `waits` anyway.

    Nothing is prepared for a request that is wrong whatever its data hold. What is wrong only by them says that they were
    prepared, and stay.

    Raises:
        RequestError, PlanError: as `batches`; also where the data have to be prepared by another request, or cannot be.
        SubmissionError: a scheduler of the request is out of reach.
    """
    prepared: list[dict[str, Any]] = []
    runs: list[Run] = []
    while True:
        try:
            return batches(request, places, preview=False)
        except NotPreparedError as missing:
            if missing.preparation in prepared or not _is_done_here(missing.preparation, request, waits=waits):
                raise _with(missing, runs) from None
            if not prepared:
                _check_all_else(request, places, force=force)
            prepared.append(missing.preparation)
            runs.append(_prepare(missing.preparation, places, on_update))
        except HpcLlmError as error:
            raise _with(error, runs) from None


def _with(error: HpcLlmError, runs: list[Run]) -> HpcLlmError:
    """The same error, which says what was done before anybody could know of it."""
    if runs:
        names = ", ".join(run.run_id for run in runs)
        was = (
            "the data were prepared for that and stay" if len(runs) == 1 else "all data were prepared for that and stay"
        )
        error.args = (f"{error} Nothing else was submitted; {was} ({names}): asked for again they are there.",)
    return error


def _check_all_else(request: Request, places: Places, *, force: bool) -> None:
    """Everything that is looked at before runs are submitted, but for what their data hold. What is told is told again then."""
    from hpc_llm.api.sending import check, make_way_for

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        made = batches(request, places, preview=False, unprepared=True)
        check(made, places.logs, force=force)
        if places.run_id is not None:
            make_way_for(made, places.logs, chosen_ids=True)


def _is_done_here(preparation: dict[str, Any], request: Request, *, waits: bool) -> bool:
    """Whether the request's own cluster prepares the data, and nobody is kept waiting who did not ask for it."""
    from hpc_llm.api.batches import site_scheduler
    from hpc_llm.site.cluster import load_cluster

    name = preparation["cluster"]
    if name not in {run.cluster for run in request.runs}:
        return False
    return waits or site_scheduler(load_cluster(name)).is_this_machine


def _prepare(preparation: dict[str, Any], places: Places, on_update: OnUpdate | None) -> Run:
    from hpc_llm.api.handle import submitted, wait
    from hpc_llm.api.request import read_request
    from hpc_llm.api.sending import check_sites, send
    from hpc_llm.text.pasted import for_runs_in

    request = read_request(None, preparation, beside={})
    made = batches(request, Places(logs=places.logs, templates=places.templates), preview=False)
    check_sites(made, places.logs)
    [run] = submitted(send(made, places.logs, chosen_ids=False))
    notice(f"the data are prepared first, by {run.run_id}")
    [status] = wait([run], on_update=on_update)
    if status.outcome != "COMPLETED":
        why = f": {status.reason.rstrip('.')}." if status.reason else "."
        told = (
            f"the data could not be prepared, and nothing else was submitted{why} The run that tried stays; "
            f"`hpc-llm diagnose {run.run_id}` says what to do."
        )
        raise RequestError(for_runs_in(places.logs, told))
    return run
