"""Batch: what one submission to one cluster consists of. Run ids and folders decided, scripts rendered, nothing written.

Where a scheduler has job arrays several runs are one, with one script; else each run has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.errors import PlanError
from hpc_llm.job.render import JobArray, Place, Script, render
from hpc_llm.job.support import Support
from hpc_llm.planning.experiment import PlanWithOrigins
from hpc_llm.planning.plan import renamed
from hpc_llm.planning.tasks import further_packages, required_packages
from hpc_llm.records.run import array_folder, file_name_part
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.schedulers import Several, find_scheduler


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

    @property
    def distinct_scripts(self) -> tuple[Script, ...]:
        """What is sent: one script for an array, else one per run."""
        return self.scripts[:1] if self.array else self.scripts


def make_batch(
    cluster: Cluster,
    planned: Sequence[PlanWithOrigins],
    run_ids: Sequence[str],
    *,
    name: str,
    logs: Path,
    support: Support,
    python: Path,
    templates: Path | None = None,
) -> Batch:
    """Render the scripts of `planned`, whose runs will be called `run_ids`; `name` is that of the array, if it is one."""
    logs = logs.absolute()
    if len(planned) > 1 and find_scheduler(planned[0].plan.job.scheduler).several is Several.ARRAY:
        array = JobArray(
            array_folder(logs, name),
            tuple(f"{i} ({p.plan.method})" for i, p in zip(run_ids, planned, strict=True)),
            required_packages([p.plan for p in planned]),
            further_packages([p.plan for p in planned]),
        )
        place = Place(logs / run_ids[0], support, python, templates)
        script, first = _array_script(cluster, planned, place, array)
        scripts = (script,) * len(planned)
        names = [_in_the_job(first, cluster, place, array)] * len(planned)
    else:
        array = None
        places = [Place(logs / run_id, support, python, templates) for run_id in run_ids]
        scripts = tuple(render(p, cluster, place) for p, place in zip(planned, places, strict=True))
        names = [_in_the_job(p, cluster, place, None) for p, place in zip(planned, places, strict=True)]
    return Batch(
        cluster=cluster,
        planned=tuple(planned),
        run_ids=tuple(run_ids),
        support=support,
        scripts=scripts,
        array=array,
        job_names=tuple(name for name, _ in names),
        comments=tuple(comment for _, comment in names),
    )


def _in_the_job(
    planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
) -> tuple[str, str | None]:
    """The job's name and comment, as its script asks for them."""
    return find_scheduler(planned.plan.job.scheduler).name_and_comment(planned, cluster, place, array)


def _array_script(
    cluster: Cluster, planned: Sequence[PlanWithOrigins], place: Place, array: JobArray
) -> tuple[Script, PlanWithOrigins]:
    """The one script of an array, and the plan that it shows; the runs may differ only in what the worker reads."""
    first = planned[0]
    job_name = first.plan.job.name
    if first.origins["job_name"].startswith("computed"):
        job_name = f"{file_name_part(Path(first.plan.model.name).name)}-sweep"
    shown = renamed(first, job_name)
    script = render(shown, cluster, place, array)
    for other in planned[1:]:
        if render(renamed(other, job_name), cluster, place, array).text != script.text:
            raise PlanError(
                f"{first.plan.method} and {other.plan.method} need different job scripts on cluster {cluster.name}. "
                "Submit them one by one."
            )
    return script, shown
