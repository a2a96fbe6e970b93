"""Batch: what one submission to one cluster consists of. Run ids and folders decided, scripts rendered, nothing written.

On a Slurm cluster several runs are one job array with one script; without a scheduler each run has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.cluster import Cluster
from hpc_llm.errors import PlanError
from hpc_llm.experiment import PlanWithOrigins
from hpc_llm.planning import renamed
from hpc_llm.render import JobArray, Place, Script, render
from hpc_llm.run import file_name_part

ARRAYS = ".arrays"


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Runs that are submitted together."""

    cluster: Cluster
    planned: tuple[PlanWithOrigins, ...]
    run_ids: tuple[str, ...]
    scripts: tuple[Script, ...]
    """One per run; all the same for an array."""
    array: JobArray | None

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
    code_dir: Path,
    python: Path,
) -> Batch:
    """Render the scripts of `planned`, whose runs will be called `run_ids`; `name` is that of the array, if it is one."""
    logs = logs.absolute()
    if len(planned) > 1 and planned[0].plan.scheduler == "slurm":
        array = JobArray(
            logs / ARRAYS / name, tuple(f"{i} ({p.plan.method})" for i, p in zip(run_ids, planned, strict=True))
        )
        script = _array_script(cluster, planned, Place(logs / run_ids[0], code_dir, python), array)
        scripts = (script,) * len(planned)
    else:
        array = None
        scripts = tuple(
            render(p, cluster, Place(logs / run_id, code_dir, python))
            for p, run_id in zip(planned, run_ids, strict=True)
        )
    return Batch(cluster=cluster, planned=tuple(planned), run_ids=tuple(run_ids), scripts=scripts, array=array)


def _array_script(cluster: Cluster, planned: Sequence[PlanWithOrigins], place: Place, array: JobArray) -> Script:
    """The one script of an array; the runs may differ only in what the worker reads from its run folder."""
    first = planned[0]
    job_name = first.plan.job_name
    if first.origins["job_name"].startswith("computed"):
        job_name = f"{file_name_part(Path(first.plan.model).name)}-sweep"
    script = render(renamed(first, job_name), cluster, place, array)
    for other in planned[1:]:
        if render(renamed(other, job_name), cluster, place, array).text != script.text:
            raise PlanError(
                f"{first.plan.method} and {other.plan.method} need different job scripts on cluster {cluster.name}. "
                "Submit them one by one."
            )
    return script
