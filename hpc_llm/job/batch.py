"""Batch: what one submission to one cluster consists of. Run ids and folders decided, scripts rendered, nothing written.

Where a scheduler has job arrays, runs that need the same script are one array; the others go beside it. Elsewhere each run
has its own script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hpc_llm.immutable import dataclass
from hpc_llm.job.render import JobArray, Place, Script, render
from hpc_llm.job.support import Support
from hpc_llm.job.templating import digest_of_own
from hpc_llm.planning.experiment import PlanWithOrigins
from hpc_llm.planning.tasks import further_packages, required_packages
from hpc_llm.records.run import array_folder, file_name_part
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.schedulers import Several, find_scheduler

MOST_TASKS = 1000
"""Of an array: as many as Slurm takes where a site has not said otherwise (MaxArraySize 1001)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Runs that are submitted together."""

    cluster: Cluster
    planned: tuple[PlanWithOrigins, ...]
    run_ids: tuple[str, ...]
    support: Support
    """What all scripts rely on."""
    scripts: tuple[Script, ...]
    """One per run; all the same for an array."""
    array: JobArray | None
    job_names: tuple[str, ...]
    """As each script has it."""
    comments: tuple[str | None, ...]
    """What a user or a site wants in the job's comment; one per run, like the scripts."""
    parallel: int | None = None
    """Most runs at a time; None where nobody says."""
    templates: str | None = None
    """Digest of the templates of which the scripts were made, where they are not the bundled ones."""

    @property
    def distinct_scripts(self) -> tuple[Script, ...]:
        """What is sent: one script for an array, else one per run."""
        return self.scripts[:1] if self.array else self.scripts

    def of_run(self, number: int) -> Batch:
        """The same as if that run alone were asked about; an array stays the array that it is one task of."""
        one = slice(number, number + 1)
        return replace(
            self,
            planned=self.planned[one],
            run_ids=self.run_ids[one],
            scripts=self.scripts[one],
            job_names=self.job_names[one],
            comments=self.comments[one],
        )


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the scripts of a request to one cluster have in common."""

    cluster: Cluster
    logs: Path
    support: Support
    python: Path
    templates: Path | None = None
    parallel: int | None = None
    """Most runs at a time."""

    def place(self, run_id: str) -> Place:
        """Where that run will live."""
        return Place(self.logs.absolute() / run_id, self.support, self.python, self.templates)


def make_batches(
    ground: Ground, planned: Sequence[PlanWithOrigins], run_ids: Sequence[str], array_name: Callable[[int], str]
) -> list[Batch]:
    """The batches of `planned`, whose runs will be called `run_ids`; `array_name(k)` is the name of the k-th array, from 0."""
    several = find_scheduler(planned[0].plan.job.scheduler).several
    if several is not Several.ARRAY or len(planned) == 1:
        return [_scripts_each(ground, planned, run_ids)]
    made, arrays = [], 0
    for places in _with_equal_scripts(ground, planned):
        those, ids = [planned[i] for i in places], [run_ids[i] for i in places]
        if len(places) == 1:
            made.append(_scripts_each(ground, those, ids))
        else:
            made.append(_array(ground, those, ids, array_name(arrays)))
            arrays += 1
    return made


def _with_equal_scripts(ground: Ground, planned: Sequence[PlanWithOrigins]) -> list[list[int]]:
    """The places in `planned` of the runs that may share a script: all but their folder, and what the worker reads, is equal."""
    job_name = _shared_name(planned)
    found: dict[str, list[int]] = {}
    for number, one in enumerate(planned):
        array = JobArray(ground.logs, ("",), (), study=_study_of(one))
        script = render(_shown(one, job_name), ground.cluster, ground.place("run"), array)
        found.setdefault(script.text, []).append(number)
    return [places[i : i + MOST_TASKS] for places in found.values() for i in range(0, len(places), MOST_TASKS)]


def _study_of(planned: PlanWithOrigins) -> str | None:
    return planned.study.study if planned.study is not None else None


def _shared_name(planned: Sequence[PlanWithOrigins]) -> str:
    """The job name of arrays of runs for which nobody has chosen one."""
    first = planned[0]
    if first.study is not None:
        return file_name_part(first.study.study)
    return f"{file_name_part(Path(first.plan.model.name).name)}-sweep"


def _shown(planned: PlanWithOrigins, job_name: str) -> PlanWithOrigins:
    """The plan as the script of an array shows it."""
    if not planned.origins["job_name"].startswith("computed"):
        return planned
    plan, study = planned.plan, _study_of(planned)
    whose = "computed: the model" if study is None else f"study {study}: the name of its file"
    origins = {**planned.origins, "job_name": f"{whose}, which all runs of a job array share"}
    return replace(planned, plan=replace(plan, job=replace(plan.job, name=job_name)), origins=origins)


def _array(ground: Ground, planned: Sequence[PlanWithOrigins], run_ids: Sequence[str], name: str) -> Batch:
    """One job for runs that need the same script."""
    plans = [one.plan for one in planned]
    array = JobArray(
        array_folder(ground.logs.absolute(), name),
        tuple(f"{i} ({p.study.name if p.study else p.plan.method})" for i, p in zip(run_ids, planned, strict=True)),
        required_packages(plans),
        further_packages(plans),
        ground.parallel,
        _study_of(planned[0]),
    )
    place, first = ground.place(run_ids[0]), _shown(planned[0], _shared_name(planned))
    name_and_comment = _in_the_job(first, ground.cluster, place, array)
    script = render(first, ground.cluster, place, array)
    return _batch(ground, planned, run_ids, [script] * len(planned), array, [name_and_comment] * len(planned))


def _scripts_each(ground: Ground, planned: Sequence[PlanWithOrigins], run_ids: Sequence[str]) -> Batch:
    """A script for each run."""
    pairs = [(one, ground.place(run_id)) for one, run_id in zip(planned, run_ids, strict=True)]
    scripts = [render(one, ground.cluster, place) for one, place in pairs]
    names = [_in_the_job(one, ground.cluster, place, None) for one, place in pairs]
    return _batch(ground, planned, run_ids, scripts, None, names)


def _batch(
    ground: Ground,
    planned: Sequence[PlanWithOrigins],
    run_ids: Sequence[str],
    scripts: Sequence[Script],
    array: JobArray | None,
    names: Sequence[tuple[str, str | None]],
) -> Batch:
    return Batch(
        cluster=ground.cluster,
        planned=tuple(planned),
        run_ids=tuple(run_ids),
        support=ground.support,
        scripts=tuple(scripts),
        array=array,
        job_names=tuple(name for name, _ in names),
        comments=tuple(comment for _, comment in names),
        parallel=ground.parallel,
        templates=digest_of_own(ground.templates),
    )


def _in_the_job(
    planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
) -> tuple[str, str | None]:
    """The job's name and comment, as its script asks for them."""
    return find_scheduler(planned.plan.job.scheduler).name_and_comment(planned, cluster, place, array)
