"""From a request to planned and rendered batches, those of one cluster together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.api.fetching import way_to_dataset
from hpc_llm.api.request import Request
from hpc_llm.api.sweep import check_twins, each, methods_of, of_cluster
from hpc_llm.api.values import LISTS
from hpc_llm.errors import RequestError, notice
from hpc_llm.immutable import dataclass
from hpc_llm.planning.experiment import Experiment
from hpc_llm.text.pasted import refuse_address

if TYPE_CHECKING:
    from hpc_llm.api.layers import RunRequest
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.experiment import PlanWithOrigins
    from hpc_llm.planning.parts import JobRequest
    from hpc_llm.planning.plan import Site
    from hpc_llm.site.cluster import Cluster
    from hpc_llm.site.schedulers import SchedulerFacts


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs will live, and what else is not part of the experiment."""

    logs: Path = Path("logs")
    templates: Path | None = None
    """Folder of templates that win over the bundled ones."""
    run_id: str | None = None
    """Run id instead of a new one."""


def experiment_of(run: RunRequest, logs: Path, models: Sequence[str] = ()) -> Experiment:
    """The experiment of one run, with files of this machine as absolute paths: the job runs in another folder.

    `models` are the folders of the site's own.
    """
    from hpc_llm.planning.model import is_checkpoint

    values: dict[str, Any] = {**run.values, **{name: tuple(run.values[name]) for name in LISTS if name in run.values}}
    model = os.path.expanduser(values.get("model", ""))
    if models and model:
        from hpc_llm.api.site_models import site_model

        values["model"] = model = site_model(model, values.get("set", ()), models)
    if model and is_checkpoint(model):
        values["model"] = os.path.abspath(model)
    if values.get("env_file"):
        refuse_address("--env-file", values["env_file"])
        values["env_file"] = os.path.abspath(os.path.expanduser(values["env_file"]))
    values["data"] = tuple(_source(source) for source in values.get("data", ()))
    if values.get("resume") is not None:
        from hpc_llm.api.resuming import with_start

        values = with_start(values, logs)
    return Experiment(**values)


def _source(text: str) -> str:
    """A source of data with its full path. Raises RequestError where nothing is there, with the command that may bring it."""
    from hpc_llm.corpus.sources import SourceOfFile, full_source, read_source
    from hpc_llm.text.near_files import near_file

    try:
        return full_source(text)
    except RequestError as error:
        told = str(error)
        way = way_to_dataset(text) if "no such file" in told else ""
        near = (
            near_file(os.path.abspath(os.path.expanduser(read_source(text).place)))
            if told.endswith("no such file.")
            else None
        )
        meant = f" Did you mean {near}?" if near and not way else ""
        said = told.replace("--data ", f"data in {text.file}: ", 1) if isinstance(text, SourceOfFile) else told
        raise type(error)(f"{said}{way}{meant}") from None


def site_of(cluster: Cluster, logs: Path) -> Site:
    """What planning has to know about this machine."""
    from hpc_llm.api.corpora import caches_folder
    from hpc_llm.planning.plan import Site

    scheduler = site_scheduler(cluster)
    hardware = None
    if cluster.gpu.vendor == "auto" or scheduler.is_this_machine:
        from hpc_llm.site.hardware import detect

        hardware = detect()
    return Site(
        scheduler=scheduler.name,
        hardware=hardware,
        account=os.environ.get("SBATCH_ACCOUNT") or None,
        caches=str(caches_folder(logs, os.environ)),
    )


def site_scheduler(cluster: Cluster) -> SchedulerFacts:
    """The scheduler that runs the cluster's jobs from here."""
    from hpc_llm.site.schedulers import find_scheduler, scheduler_here

    return scheduler_here() if cluster.scheduler == "auto" else find_scheduler(cluster.scheduler)


def batches(
    request: Request, places: Places, *, preview: bool, unprepared: bool = False, as_submitted: bool = False
) -> list[Batch]:
    """Plan and render everything that was asked for: for each cluster one batch, or one for each script that its runs need.

    With `preview` and no run id a placeholder stands where the run id will be. What else is to be known is told once all is
    planned. With `unprepared` they are made of data that nobody has prepared, to be checked and not to be run. With `as_submitted`
    a preview refuses what a submission from this machine does, and not only what is wrong wherever it is made.
    """
    from hpc_llm.site.cluster import load_cluster

    _tell_templates(places.templates)
    clusters = list(dict.fromkeys(run.cluster for run in request.runs))
    made = [
        _batches(load_cluster(name), request, places, preview, unprepared=unprepared, as_submitted=as_submitted)
        for name in clusters
    ]
    for of_cluster_ in made:
        _tell_notices(of_cluster_, request.max_parallel)
    return [batch for of_cluster_ in made for batch in of_cluster_]


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
    return _batches(cluster, Request(values, request.sources), replace(places, run_id=None), preview=True)[0]


def _batches(
    cluster: Cluster,
    request: Request,
    places: Places,
    preview: bool,
    *,
    unprepared: bool = False,
    as_submitted: bool = False,
) -> list[Batch]:
    """The batches of one cluster."""
    from hpc_llm.api.as_shown import refuse_other_than_shown
    from hpc_llm.job.batch import Ground, make_batches
    from hpc_llm.planning.tasks import carried_modules
    from hpc_llm.schedulers.paths import with_named_environment
    from hpc_llm.schedulers.snapshot import support_of
    from hpc_llm.text.secrecy import WAY_IN, has_secret_shape

    several_clusters = len({run.cluster for run in request.runs}) > 1
    runs = [run for run in request.runs if run.cluster == cluster.name]
    with of_cluster(cluster.name, several=several_clusters):
        cluster, site = with_named_environment(cluster, os.environ), site_of(cluster, places.logs)
    looks = preview and not (as_submitted and _is_here(site))
    planned = _planned(
        runs, cluster, site, places.logs, several=len(request.runs) > 1, looks=looks, unprepared=unprepared
    )
    ids = RunIds.of(places, cluster.name, planned, several=len(request.runs) > 1, preview=preview)
    with of_cluster(cluster.name, several=several_clusters):
        _check_parallel(request.max_parallel, site)
        support = support_of(places.logs, also=carried_modules([one.plan for one in planned]))
        ground = Ground(
            cluster=cluster,
            logs=places.logs,
            support=support,
            python=Path(sys.executable),
            templates=places.templates,
            parallel=request.max_parallel,
        )
        made = make_batches(ground, planned, ids.runs, ids.array)
        if places.templates is not None and not preview and places.run_id is None:
            shown = RunIds.of(places, cluster.name, planned, several=len(request.runs) > 1, preview=True)
            refuse_other_than_shown(made, make_batches(ground, planned, shown.runs, shown.array), places.templates)
    if any(has_secret_shape(script.text) for batch in made for script in batch.distinct_scripts):
        raise RequestError(f"the script for cluster {cluster.name} would hold what looks like a secret. {WAY_IN}")
    return made


def _planned(
    runs: Sequence[RunRequest],
    cluster: Cluster,
    site: Site,
    logs: Path,
    *,
    several: bool,
    looks: bool,
    unprepared: bool = False,
) -> list[PlanWithOrigins]:
    """The plans of the runs of one cluster; a refusal names all runs that it holds for. With `looks` they may be another machine's."""
    from hpc_llm.api.corpora import Corpora, refuse_to_evaluate_nothing
    from hpc_llm.api.fit import with_memory
    from hpc_llm.api.recomputing import with_fewest_recomputed
    from hpc_llm.api.searching import with_first_size
    from hpc_llm.planning.plan import plan

    corpora = Corpora(logs)
    methods = methods_of(runs)
    asked: dict[Experiment, RunRequest] = {}

    def planned_run(run: RunRequest) -> PlanWithOrigins:
        experiment = experiment_of(run, logs, cluster.models)
        check_twins(run, asked.setdefault(replace(experiment, method=methods[run.method].name), run))
        corpus, lack = corpora.find_or_lack(experiment, cluster)
        ask = partial(plan, experiment, cluster, methods[run.method], site, run.sources, corpus)
        one = with_fewest_recomputed(ask, cluster)
        _check_secrets(one, looks)
        if getattr(one.plan.workload, "resume", None) is not None:
            from hpc_llm.api.resuming import check_start

            one = check_start(one)
        one = with_memory(with_first_size(one, cluster), cluster)
        _check_deadline(one.plan.job, cluster)
        if lack is not None:  # once all else is as it should be: nothing is prepared for what cannot run
            refuse_to_evaluate_nothing(experiment, cluster)
            if not unprepared:
                raise lack
        return replace(one, study=run.place) if run.place else one

    return each(runs, cluster.name, planned_run, several=several)


def _check_parallel(most: int | None, site: Site) -> None:
    from hpc_llm.site.schedulers import Several

    if most is not None and site.facts.several is Several.ALONE:
        raise RequestError(f"{site.facts.title} cannot be told to hold runs back. Leave --max-parallel out.")


def _check_deadline(job: JobRequest, cluster: Cluster) -> None:
    """Raise RequestError where the job cannot end before the deadline that is asked for; where it says no time, its scheduler is asked later."""
    options = {**cluster.extra_options, **job.sbatch}
    if "deadline" not in options or job.time_s is None:
        return
    from datetime import datetime

    from hpc_llm.site.sbatch_times import deadline_missed

    if missed := deadline_missed(options, job.time_s, datetime.now()):
        raise RequestError(f"{missed[0]}. {missed[1]}")


def _is_here(site: Site) -> bool:
    """Whether jobs can be handed to the scheduler from this machine."""
    from hpc_llm.schedulers.scheduler import find

    return find(site.facts.name).is_here()


def _check_secrets(planned: PlanWithOrigins, looks: bool) -> None:
    """Wherever a value came from, a file of variables or the environment: no record may keep a secret."""
    from hpc_llm.text.env_file_check import check_env_file
    from hpc_llm.text.secrecy import WAY_IN, find_secret

    place = find_secret(planned.plan.flat())
    if place is not None:
        origin = planned.origins.get(place.split(".")[0], "the plan")
        raise RequestError(f"{place} ({origin}) holds what looks like a secret. {WAY_IN}")
    if planned.plan.job.env_file is not None:
        check_env_file(os.path.expandvars(os.path.expanduser(planned.plan.job.env_file)), preview=looks)


@dataclass(frozen=True, kw_only=True)
class RunIds:
    """How the runs of one cluster are called, and the arrays that hold them."""

    runs: list[str]
    array: Callable[[int], str]
    """The name of the k-th array, from 0."""

    @classmethod
    def of(
        cls, places: Places, cluster: str, planned: Sequence[PlanWithOrigins], *, several: bool, preview: bool
    ) -> RunIds:
        """As the caller wants them, as a preview shows them, or new ones."""
        from hpc_llm.records.run import RUN_ID_PLACEHOLDER, file_name_part

        base = places.run_id or (RUN_ID_PLACEHOLDER if preview else None)
        if places.run_id is not None and file_name_part(places.run_id, limit=200) != places.run_id:
            raise RequestError(f"run id '{places.run_id}': use letters, digits, dot, underscore and hyphen only.")
        if base is None:
            return cls._new(cluster, planned)
        if not several:
            return cls(runs=[base], array=lambda k: base)
        names = _apart([file_name_part(one.study.name if one.study else _doing(one)) for one in planned])
        whole = f"{base}-{cluster}"
        return cls(runs=[f"{whole}-{name}" for name in names], array=lambda k: f"{whole}-{k + 1}" if k else whole)

    @classmethod
    def _new(cls, cluster: str, planned: Sequence[PlanWithOrigins]) -> RunIds:
        import random
        from datetime import datetime

        from hpc_llm.schedulers.runs import new_run_id

        now, rng = datetime.now(), random.Random()
        taken: dict[str, None] = {}
        for one in planned:
            taken[new_run_id(cluster, _doing(one), one.plan.model.name, now, rng, taken)] = None
        model = planned[0].plan.model.name
        return cls(runs=list(taken), array=lambda k: new_run_id(cluster, "sweep", model, now, rng, taken))


def _doing(planned: PlanWithOrigins) -> str:
    """What a run is called by: its method, or the task that knows none."""
    from hpc_llm.planning.tasks import find

    return planned.plan.task if find(planned.plan.task).is_on_host else planned.plan.method


def _apart(names: Sequence[str]) -> list[str]:
    """The names, those that come again with a number behind.

    >>> _apart(["z3", "z3", "q"])
    ['z3', 'z3-2', 'q']
    """
    taken: dict[str, None] = {}
    for name in names:
        number, one = 1, name
        while one in taken:
            number += 1
            one = f"{name}-{number}"
        taken[one] = None
    return list(taken)


def _tell_notices(made: Sequence[Batch], parallel: int | None) -> None:
    """Say what the plans of one cluster changed on their own, once each, and what of the shell the scheduler never gets."""
    from hpc_llm.job.render import path_variables
    from hpc_llm.site.schedulers import find_scheduler

    said = dict.fromkeys(sentence for batch in made for one in batch.planned for sentence in one.notices)
    cluster, scheduler = made[0].cluster, find_scheduler(made[0].planned[0].plan.job.scheduler)
    if cluster.scheduler == "auto" and scheduler.is_this_machine:
        said["sbatch is not on PATH here, so the script is for bash"] = None
    if parallel is not None and len(made) > 1:
        said[f"{len(made)} different job scripts are needed, and each has at most {parallel} runs at a time"] = None
    if parallel is not None and parallel > 1 and scheduler.is_this_machine:
        said[f"{parallel} runs at a time share this machine and slow each other down: their figures do not count"] = (
            None
        )
    for name in path_variables(cluster):
        if not os.environ.get(name):
            said[f"${{{name}}} in its paths is not set here: the job stops where the node does not set it either"] = (
                None
            )
    said.update(dict.fromkeys(scheduler.without_effect(os.environ)))
    for sentence in said:
        notice(f"cluster {cluster.name}: {sentence}")


def arguments_beside(batch: Batch) -> tuple[str, list[list[str]]]:
    """The scheduler's command, and what it gets beside each different script; only submission draws the UUID."""
    from hpc_llm.schedulers.scheduler import find

    scheduler = find(batch.planned[0].plan.job.scheduler)
    names = dict.fromkeys(zip(batch.job_names, batch.comments, strict=True))
    arguments = [scheduler.arguments(name, comment, "UUID") for name, comment in names]
    return scheduler.command, [words for words in arguments if words]
