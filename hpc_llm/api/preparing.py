"""Data that a request needs and that nobody has prepared yet are prepared first, where its own cluster does that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpc_llm.api.batches import Places, batches
from hpc_llm.api.corpora import NotPreparedError
from hpc_llm.errors import RequestError, notice

if TYPE_CHECKING:
    from hpc_llm.api.request import Request
    from hpc_llm.job.batch import Batch
    from hpc_llm.runs import RunStatus

OnUpdate = Callable[[list["RunStatus"]], None]


def ready(request: Request, places: Places, *, waits: bool, on_update: OnUpdate | None = None) -> list[Batch]:
    """All batches of the request, its data prepared: on this machine at once, on a cluster where the caller `waits` anyway.

    Raises:
        RequestError, PlanError: as `batches`; also where the data have to be prepared by another request, or cannot be.
    """
    prepared: list[dict[str, Any]] = []
    while True:
        try:
            return batches(request, places, preview=False)
        except NotPreparedError as missing:
            if missing.preparation in prepared or not _is_done_here(missing.preparation, request, waits=waits):
                raise
            prepared.append(missing.preparation)
            _prepare(missing.preparation, places, on_update)


def _is_done_here(preparation: dict[str, Any], request: Request, *, waits: bool) -> bool:
    """Whether the request's own cluster prepares the data, and nobody is kept waiting who did not ask for it."""
    from hpc_llm.api.batches import site_scheduler
    from hpc_llm.site.cluster import load_cluster

    name = preparation["cluster"]
    if name not in {run.cluster for run in request.runs}:
        return False
    return waits or site_scheduler(load_cluster(name)).is_this_machine


def _prepare(preparation: dict[str, Any], places: Places, on_update: OnUpdate | None) -> None:
    from hpc_llm.api.handle import submitted, wait
    from hpc_llm.api.request import read_request
    from hpc_llm.api.sending import check_sites, send
    from hpc_llm.text.pasted import for_runs_in

    request = read_request(None, preparation, beside={})
    made = batches(request, Places(logs=places.logs, templates=places.templates), preview=False)
    check_sites(made, force=False)
    [run] = submitted(send(made, places.logs, chosen_ids=False))
    notice(f"the data are prepared first, by {run.run_id}")
    [status] = wait([run], on_update=on_update)
    if status.outcome != "COMPLETED":
        told = (
            f"the data could not be prepared, and nothing else was submitted: `hpc-llm diagnose {run.run_id}` says why."
        )
        raise RequestError(for_runs_in(places.logs, told))
