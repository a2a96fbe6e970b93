"""Whether runs fit and how long they take, before they are queued."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hpc_llm.api.batches import Places, experiment_of, site_of
from hpc_llm.api.find import logs_folder
from hpc_llm.api.request import Request, read_request
from hpc_llm.api.sweep import method_of
from hpc_llm.errors import HpcLlmError, PlanError, RequestError, notice

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hpc_llm.api.experiments import AnExperiment, Options
    from hpc_llm.api.layers import RunRequest
    from hpc_llm.estimating.parts import Estimate
    from hpc_llm.planning.experiment import Experiment, Plan, PlanWithOrigins
    from hpc_llm.planning.method import Method
    from hpc_llm.planning.plan import Site
    from hpc_llm.site.cluster import Cluster
    from hpc_llm.site.hardware import Hardware

Ground: TypeAlias = "tuple[Cluster, Site, str | None]"
"""A cluster as it is judged, what planning knows of this machine, and that this machine stands in for it."""
_THIS_MACHINE = "local"
"""The profile that means the machine at which one sits."""
_ALL = "all"
_STEPS = 1000
"""Of a run whose epochs nobody can count yet."""
_COMPOSED = ("lora", "qlora")
"""Methods that are no files of their own, and that `all` means too."""


def estimate(
    experiment: AnExperiment = None, *, logs: str | os.PathLike[str] | None = None, **options: Unpack[Options]
) -> list[Estimate]:
    """What each run would need and whether it fits: one Estimate a run, in the order of the request.

    `method="all"` and `cluster="all"` mean each that there is; then a run that cannot be beside others that can is an Estimate with
    `refused`, and they are ordered by how fast they are, those that fit first.

    Raises:
        RequestError, PlanError: as `prepare`; the model's shape cannot be seen from here; or no run of `all` can be.
    """
    request = read_request(experiment, options, beside={"logs": logs}, spelled="")
    return estimates(request, Places(logs=logs_folder(logs)))


def estimates(request: Request, places: Places) -> list[Estimate]:
    """One for each run of the request."""
    from hpc_llm.planning.method import load_method
    from hpc_llm.site.cluster import load_cluster

    is_survey = is_ranking(request)
    runs = _of_one_model(_expanded(request).runs, request)
    read_method = functools.partial(method_of, load=functools.cache(load_method))
    grounds: dict[str, Ground | HpcLlmError] = {}
    found = []
    for run in runs:
        if run.cluster not in grounds:
            try:
                grounds[run.cluster] = _ground(_without_account(load_cluster(run.cluster)), places.logs)
            except HpcLlmError as error:
                if not is_survey:
                    raise
                grounds[run.cluster] = error
        try:
            found.append(_one(run, grounds[run.cluster], read_method, places.logs))
        except (PlanError, RequestError) as error:
            if not is_survey and (_trains(run) or not any(map(_trains, runs))):
                raise
            found.append(_refused(run, str(error)))  # in a study beside what is estimated
    if not is_survey:
        return found
    _refuse_if_none_can_be(found)
    return sorted(found, key=_rank)


def _refuse_if_none_can_be(found: Sequence[Estimate]) -> None:
    """Where every run of a survey is refused there is nothing to rank: the request was wrong, each reason is told once."""
    refused: dict[str, list[str]] = {}
    for one in found:
        if one.refused is None:
            return
        refused.setdefault(one.refused, []).append(f"{one.cluster} {one.method}")
    if len(refused) == 1:
        raise RequestError(next(iter(refused)))
    if refused:
        reasons = " ".join(f"Not {', '.join(names)}: {why.rstrip('.')}." for why, names in refused.items())
        raise RequestError(f"none of these {len(found)} runs can be. {reasons}")


def _ground(profile: Cluster, logs: Path) -> Ground:
    """The cluster as it is judged; where its profile leaves that to a machine that need not be this one, the sentence that says so."""
    site = site_of(profile, logs)
    cluster = as_it_is(profile, site.hardware)
    if profile.gpu.vendor != "auto" or profile.name == _THIS_MACHINE:
        return cluster, site, None
    gpus = _counted_gpus(site.hardware)
    memory = f"{(cluster.node.mem_gb or 0) * 1e9 / 2**30:.0f} GiB of memory"
    told = (
        f"the profile of cluster {profile.name} leaves GPU and memory to the machine that it runs on: this machine stands in for it, "
        f"with {gpus} and {memory}. What holds there is told by the same command there"
    )
    return cluster, site, told


def _counted_gpus(hardware: Hardware | None) -> str:
    """The GPUs of this machine, in words."""
    if hardware is None or not hardware.gpus:
        return "no GPU"
    return f"{hardware.gpus} x {hardware.gpu_model}"


def _trains(run: RunRequest) -> bool:
    from hpc_llm.planning.tasks import find

    try:
        return find(str(run.values.get("task", "pretrain"))).trains
    except HpcLlmError:
        return True  # whoever plans it says what is wrong


def is_ranking(request: Request) -> bool:
    """Whether `all` methods or clusters are asked about."""
    return _ALL in (request.values.get("method"), request.values.get("cluster"))


def _of_one_model(runs: Sequence[RunRequest], request: Request) -> list[RunRequest]:
    """What stands in one order over all clusters is of one model, not of the one that each profile is used to."""
    from hpc_llm.planning.draft import FALLBACKS

    if request.values.get("cluster") != _ALL or all("model" in run.values for run in runs):
        return list(runs)
    model = FALLBACKS["model"]
    notice(f"no model is named: each cluster is asked about {model}. --model NAME asks about another.")
    return [run if "model" in run.values else replace(run, values={**run.values, "model": model}) for run in runs]


def _expanded(request: Request) -> Request:
    from hpc_llm.planning.method import method_names
    from hpc_llm.site.cluster import cluster_names

    names = {"method": [*method_names(), *_COMPOSED], "cluster": cluster_names()}
    whole = {key: ",".join(all_) for key, all_ in names.items() if request.values.get(key) == _ALL}
    return replace(request, values={**request.values, **whole})


def _without_account(cluster: Cluster) -> Cluster:
    """Nobody is charged for an estimate."""
    from hpc_llm.site.cluster import Account

    if not cluster.account.required:
        return cluster
    return cluster.model_copy(update={"account": Account(default=cluster.account.default or "ACCOUNT")})


def with_own_memory(cluster: Cluster) -> Cluster:
    """With this machine's memory, where the profile leaves the machine to itself."""
    if cluster.gpu.vendor != "auto" or cluster.node.mem_gb is not None:
        return cluster
    import psutil

    node = cluster.node.model_copy(update={"mem_gb": psutil.virtual_memory().total / 1e9})
    return cluster.model_copy(update={"node": node})


def as_it_is(cluster: Cluster, hardware: Hardware | None) -> Cluster:
    """With this machine's GPU and memory where the profile leaves them to it; `hardware` is this machine's."""
    from hpc_llm.planning.gpu import actual_gpu

    if cluster.gpu.vendor != "auto":
        return cluster
    return with_own_memory(cluster).model_copy(update={"gpu": actual_gpu(cluster.gpu, hardware)})


def _one(
    run: RunRequest, ground: Ground | HpcLlmError, read_method: Callable[[RunRequest], Method], logs: Path
) -> Estimate:
    from hpc_llm.api.calibrating import calibration_of
    from hpc_llm.api.predicting import too_short
    from hpc_llm.estimating.estimate import estimate as of_plan
    from hpc_llm.estimating.parts import Fit
    from hpc_llm.planning.recompute_choice import layers_in

    if isinstance(ground, HpcLlmError):
        raise ground
    (cluster, site, stands_in), method = ground, read_method(run)
    planned, told = _plan(run, cluster, method, site, logs)
    found = of_plan(planned.plan, cluster, calibration_of(run.cluster), _again(planned, method, cluster))
    late = (
        too_short(planned.plan, cluster, calibration_of(run.cluster)) if found.verdict is not Fit.DOES_NOT_FIT else None
    )
    return replace(
        found,
        run=run.place.name if run.place else None,
        stands_in=stands_in,
        recomputed=layers_in(planned.origins.get("recompute", "")),
        notes=(*found.notes, *filter(None, (late,)), *planned.notices, *told),
    )


def _again(planned: PlanWithOrigins, method: Method, cluster: Cluster) -> Callable[[Plan], Plan] | None:
    """What the plan would be with another batch or on more GPUs, where the first engine that suits may be another one."""
    from hpc_llm.diagnosis.replanned import replanning

    if isinstance(method.engine, str) or not planned.origins["engine"].startswith("method "):
        return None  # it stays, whatever becomes of the rest
    again = replanning(planned.plan, cluster, method)

    def ask(changed: Plan) -> Plan:
        with suppress(HpcLlmError):
            return again(changed)
        return changed

    return ask


def _plan(
    run: RunRequest, cluster: Cluster, method: Method, site: Site, logs: Path
) -> tuple[PlanWithOrigins, Sequence[str]]:
    """The plan of a run, and what was taken for granted. Data that nobody has prepared yet are taken for full sequences."""
    from hpc_llm.api.corpora import Corpora, NotPreparedError
    from hpc_llm.api.recomputing import with_fewest_recomputed
    from hpc_llm.api.searching import with_first_size
    from hpc_llm.planning.plan import plan

    experiment, told = experiment_of(run, logs, cluster.models), []
    try:
        corpus = Corpora(logs).find(experiment, cluster)
    except NotPreparedError:
        corpus = None
        told.append("the data are not prepared yet: sequences are taken to be full")
        if experiment.epochs is not None:
            experiment = replace(experiment, epochs=None, steps=experiment.steps or _STEPS)
            told.append(f"nobody knows yet how many steps the epochs are: the run's time is that of {experiment.steps}")
        experiment = _without_data(experiment)
    ask = functools.partial(plan, experiment, cluster, method, site, run.sources, corpus)
    return with_first_size(with_fewest_recomputed(ask, cluster), cluster), told


def _without_data(experiment: Experiment) -> Experiment:
    """The same on synthetic tokens, without what is said of how its data are read."""
    from hpc_llm.planning.settings import read_setting
    from hpc_llm.planning.tasks.task import DATA_FIELDS

    kept = tuple(pair for pair in experiment.set if read_setting(pair).field not in DATA_FIELDS)
    return replace(experiment, data=(), set=kept)


def _refused(run: RunRequest, why: str) -> Estimate:
    from hpc_llm.estimating.parts import Estimate

    values = run.values
    return Estimate(
        cluster=run.cluster,
        method=run.method,
        model=str(values.get("model", "")),
        gpu=None,
        gpus=0,
        micro_batch_size=int(values.get("micro_batch_size") or 1),
        sequence_length=int(values.get("sequence_length") or 0),
        memory=None,
        run=run.place.name if run.place else None,
        refused=why,
    )


def _rank(one: Estimate) -> tuple[float, float]:
    from hpc_llm.estimating.parts import Fit

    order: Sequence[Fit] = (Fit.FITS, Fit.TOO_CLOSE, Fit.UNKNOWN, Fit.DOES_NOT_FIT)
    place = len(order) if one.refused else order.index(one.verdict) + 0.5 * (one.unsaid is not None)
    return place, -(one.time.tokens_per_second if one.time else 0.0)


def documents(found: Sequence[Estimate]) -> list[dict[str, Any]]:
    """As JSON has them."""
    from hpc_llm.estimating.document import document

    return [document(one) for one in found]
