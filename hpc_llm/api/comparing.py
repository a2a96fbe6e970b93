"""What a request would send, beside a run that was submitted or the same request on another cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpc_llm.api.batches import Places, batches, elsewhere
from hpc_llm.api.find import find_run
from hpc_llm.api.request import Request
from hpc_llm.errors import RequestError, did_you_mean, notice
from hpc_llm.records.files import read_json, read_text

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.experiment import PlanWithOrigins
    from hpc_llm.records.run import RunPaths


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Script and plans of the other side, and ours; plans by their parts."""

    their_script: str
    our_script: str
    plans: tuple[tuple[PlanWithOrigins, dict[str, Any], dict[str, Any]], ...]
    """Each run of ours that is compared, with the plan of the other side and its own."""


def compare(batch: Batch, other: str, request: Request, places: Places) -> Comparison:
    """`batch`, which `request` asks for, beside `other`: a cluster, or a run that is named.

    Raises:
        RequestError: there is neither a cluster nor a run of that name, or its script cannot be read.
    """
    from hpc_llm.site.cluster import cluster_names

    if other not in cluster_names():
        try:
            run = find_run(other, places.logs)
        except RequestError as error:
            near = did_you_mean(other, cluster_names()) or "."
            raise RequestError(f"--diff: {error} Clusters: {', '.join(cluster_names())}{near}") from None
        return _with_run(batch, run, request, places)
    there = elsewhere(request, places, other)
    plans = zip(there.planned, batch.planned, strict=True)
    return Comparison(
        their_script=there.scripts[0].text,
        our_script=batch.scripts[0].text,
        plans=tuple((ours, theirs.plan.flat(), ours.plan.flat()) for theirs, ours in plans),
    )


def _with_run(batch: Batch, run: RunPaths, request: Request, places: Places) -> Comparison:
    from hpc_llm.planning.experiment import flat_plan

    theirs = read_text(run.script)
    if theirs is None:
        raise RequestError(f"--diff: {run.script} cannot be read, or is no regular file.")
    kept = (read_json(run.experiment) or {}).get("plan")
    ours, script = batch.planned[0], batch.scripts[0].text
    if isinstance(kept, dict):
        ours = next((one for one in batch.planned if one.plan.method == kept.get("method")), ours)
    if places.run_id is None and len(batch.planned) == 1:
        # Under its id, so that only what the request changes is shown.
        here = Request({**request.values, "cluster": batch.cluster.name}, request.sources)
        script = batches(here, replace(places, run_id=run.run_id), preview=True)[0].scripts[0].text
    if not isinstance(kept, dict) or not kept:
        notice(f"{run.run_id} keeps no plan that can be read: only the scripts are compared")
        kept = ours.plan.flat()
    plans = ((ours, flat_plan(kept), ours.plan.flat()),)
    return Comparison(their_script=theirs, our_script=script, plans=plans)
