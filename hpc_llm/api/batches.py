"""From a request to planned and rendered batches, one a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.api.request import LISTS, Request
from hpc_llm.api.sweep import each, methods_of, of_cluster
from hpc_llm.errors import RequestError, notice
from hpc_llm.planning.experiment import Experiment

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.experiment import PlanWithOrigins
    from hpc_llm.planning.plan import Site
    from hpc_llm.site.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs will live, and what else is not part of the experiment."""

    logs: Path = Path("logs")
    templates: Path | None = None
    """Folder of templates that win over the bundled ones."""
    run_id: str | None = None
    """Run id instead of a new one."""


def experiments(request: Request, cluster: str) -> list[Experiment]:
    """One experiment per method of the sweep on one cluster."""
    from hpc_llm.planning.model import is_checkpoint

    rest: dict[str, Any] = {k: v for k, v in request.values.items() if k not in ("cluster", "method")}
    rest |= {k: tuple(rest[k]) for k in LISTS if k in rest}
    model = os.path.expanduser(rest.get("model", ""))
    if model and is_checkpoint(model):
        rest["model"] = os.path.abspath(model)  # the job runs in another folder
    if rest.get("env_file"):
        rest["env_file"] = os.path.abspath(os.path.expanduser(rest["env_file"]))
    rest["data"] = tuple(os.path.abspath(os.path.expanduser(p)) for p in rest.get("data", ()))
    for file in rest["data"]:
        if not os.path.isfile(file):
            raise RequestError(f"--data {file}: there is no such file.")
    return [Experiment(cluster=cluster, method=method, **rest) for method in request.sweep("method")]


def site_of(cluster: Cluster) -> Site:
    """What planning has to know about this machine."""
    from hpc_llm.planning.plan import Site
    from hpc_llm.site.schedulers import find_scheduler, scheduler_here

    scheduler = scheduler_here() if cluster.scheduler == "auto" else find_scheduler(cluster.scheduler)
    hardware = None
    if cluster.gpu.vendor == "auto" or scheduler.is_this_machine:
        from hpc_llm.site.hardware import detect

        hardware = detect()
    return Site(scheduler=scheduler.name, hardware=hardware, account=os.environ.get("SBATCH_ACCOUNT") or None)


def batches(request: Request, places: Places, *, preview: bool) -> list[Batch]:
    """Plan and render everything that was asked for, one batch a cluster; tell what else is to be known once all is.

    With `preview` and no run id a placeholder stands where the run id will be.
    """
    from hpc_llm.site.cluster import load_cluster

    _tell_templates(places.templates)
    made = [_batch(load_cluster(name), request, places, preview) for name in request.sweep("cluster")]
    for batch in made:
        _tell_notices(batch)
    return made


def _tell_templates(named: Path | None) -> None:
    """Say which templates are used in place of the bundled ones, and which of the working directory are not."""
    from hpc_llm.job.templating import NAMES, own_templates
    from hpc_llm.site.profiles import bundled

    own = own_templates(named)
    if own:
        notice(f"the script is made with {', '.join(map(str, own))}")
    here = Path.cwd() / "templates"
    left = [name for name in NAMES if (here / name).is_file() and here.resolve() != bundled("templates").resolve()]
    if left and named is None:
        notice(f"{here} is not used: --templates {here.name} takes {', '.join(left)} from there")


def elsewhere(request: Request, places: Places, name: str) -> Batch:
    """The same request on cluster `name`, for comparison: without what only makes sense on its own cluster."""
    from hpc_llm.site.cluster import Account, load_cluster

    own = ("partition", "account", "sbatch")
    values = {k: v for k, v in request.values.items() if k not in own} | {"cluster": name}
    cluster = load_cluster(name)
    if cluster.account.required:
        cluster = cluster.model_copy(update={"account": Account(default=cluster.account.default or "ACCOUNT")})
    return _batch(cluster, Request(values, request.sources), replace(places, run_id=None), preview=True)


def _batch(cluster: Cluster, request: Request, places: Places, preview: bool) -> Batch:
    from hpc_llm.job.batch import make_batch
    from hpc_llm.planning.plan import plan
    from hpc_llm.planning.tasks import carried_modules
    from hpc_llm.schedulers.paths import with_named_environment
    from hpc_llm.schedulers.snapshot import support_of
    from hpc_llm.text.secrecy import WAY_IN, has_secret_shape

    clusters, methods = request.sweep("cluster"), methods_of(request.sweep("method"))
    several = len(clusters) > 1 or len(methods) > 1
    with of_cluster(cluster.name, several=len(clusters) > 1):
        cluster, site = with_named_environment(cluster, os.environ), site_of(cluster)
    asked = {e.method: e for e in experiments(request, cluster.name)}

    def planned_run(method: str) -> PlanWithOrigins:
        one = plan(asked[method], cluster, methods[method], site, request.sources)
        _check_secrets(one, preview)
        return one

    planned = each(list(methods), cluster.name, planned_run, several=several)
    run_ids, name = _run_ids(
        places, cluster.name, [(p.plan.method, p.plan.model.name) for p in planned], several, preview
    )
    with of_cluster(cluster.name, several=len(clusters) > 1):
        batch = make_batch(
            cluster,
            planned,
            run_ids,
            name=name,
            logs=places.logs,
            support=support_of(places.logs, also=carried_modules([one.plan for one in planned])),
            python=Path(sys.executable),
            templates=places.templates,
        )
    if any(has_secret_shape(script.text) for script in batch.distinct_scripts):
        raise RequestError(f"the script for cluster {cluster.name} would hold what looks like a secret. {WAY_IN}")
    return batch


def _check_secrets(planned: PlanWithOrigins, preview: bool) -> None:
    """Wherever a value came from, a file of variables or the environment: no record may keep a secret."""
    from hpc_llm.text.secrecy import WAY_IN, check_env_file, find_secret

    place = find_secret(planned.plan.flat())
    if place is not None:
        origin = planned.origins.get(place.split(".")[0], "the plan")
        raise RequestError(f"{place} ({origin}) holds what looks like a secret. {WAY_IN}")
    if planned.plan.job.env_file is not None:
        check_env_file(os.path.expandvars(os.path.expanduser(planned.plan.job.env_file)), preview=preview)


def _run_ids(
    places: Places, cluster: str, runs: Sequence[tuple[str, str]], several: bool, preview: bool
) -> tuple[list[str], str]:
    """The id of each run, and a name for all of them together."""
    from hpc_llm.records.run import RUN_ID_PLACEHOLDER, file_name_part

    base = places.run_id or (RUN_ID_PLACEHOLDER if preview else None)
    if places.run_id is not None and file_name_part(places.run_id, limit=200) != places.run_id:
        raise RequestError(f"run id '{places.run_id}': use letters, digits, dot, underscore and hyphen only.")
    if base is not None and not several:
        return [base], base
    if base is not None:
        return [f"{base}-{cluster}-{file_name_part(method)}" for method, _ in runs], f"{base}-{cluster}"
    import random
    from datetime import datetime

    from hpc_llm.schedulers.runs import new_run_id

    now, rng = datetime.now(), random.Random()
    ids: list[str] = []
    for method, model in runs:
        ids.append(new_run_id(cluster, method, model, now, rng, ids))
    return ids, new_run_id(cluster, "sweep", runs[0][1], now, rng, ids)


def _tell_notices(batch: Batch) -> None:
    """Say what the plan changed on its own, once each, and what of the shell the scheduler never gets."""
    from hpc_llm.site.schedulers import find_scheduler

    said: dict[str, None] = {}
    for planned in batch.planned:
        said.update(dict.fromkeys(planned.notices))
    scheduler = find_scheduler(batch.planned[0].plan.job.scheduler)
    if batch.cluster.scheduler == "auto" and scheduler.is_this_machine:
        said["sbatch is not on PATH here, so the script is for bash"] = None
    said.update(dict.fromkeys(scheduler.without_effect(os.environ)))
    for sentence in said:
        notice(f"cluster {batch.cluster.name}: {sentence}")
