"""Slurm: jobs and job arrays by sbatch, their fate by sacct and squeue, their end by scancel.

submitit calls sbatch and keeps its files beside the run; what stands around that call (the script, the identity of jobs,
the session in which sbatch is asked, and what becomes of an answer that is lost) is ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.schedulers.environment import JOB_VARIABLES
from hpc_llm.schedulers.scheduler import Scheduler
from hpc_llm.site.schedulers import Several

if TYPE_CHECKING:
    from hpc_llm.job.render import HeaderLine, JobArray, Place
    from hpc_llm.planning.experiment import Plan, PlanWithOrigins
    from hpc_llm.records.run import RunPaths
    from hpc_llm.schedulers.answer import Answer, Printing
    from hpc_llm.schedulers.identity import Identity
    from hpc_llm.schedulers.job_record import JobRecord
    from hpc_llm.schedulers.submission import Submission
    from hpc_llm.site.cluster import Cluster


class Slurm(Scheduler):
    name = "slurm"
    title = "Slurm"
    command = "sbatch"
    requests = frozenset({"partition", "account", "sbatch"})
    several = Several.ARRAY
    several_nodes = True
    first_node = "first_node"  # a function of the script
    keeps_time = True
    has_srun = True
    variables = JOB_VARIABLES

    def is_here(self) -> bool:
        return shutil.which("sbatch") is not None

    def is_job_id(self, text: str) -> bool:
        from hpc_llm.schedulers.slurm.arguments import JOB_ID

        return JOB_ID.fullmatch(text) is not None

    def header(
        self, planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
    ) -> list[HeaderLine]:
        from hpc_llm.schedulers.slurm.header import header

        return header(planned, cluster, place, array)

    def name_and_comment(
        self, planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
    ) -> tuple[str, str | None]:
        from hpc_llm.schedulers.slurm.header import sbatch_flags

        flags = sbatch_flags(planned, cluster, place, array)
        return flags["job-name"][0] or planned.plan.job.name, flags.get("comment", (None, ""))[0]

    def without_effect(self, environ: Mapping[str, str]) -> list[str]:
        names = sorted(name for name in environ if name.startswith("SBATCH_") and name != "SBATCH_ACCOUNT")
        return [
            f"{name} of this shell has no effect on the job: say it with an option, or with --sbatch" for name in names
        ]

    def cluster_name(self) -> str | None:
        from hpc_llm.schedulers.slurm.clients import cluster_name

        return cluster_name()

    def is_answering(self) -> bool:
        from hpc_llm.schedulers.slurm.clients import is_answering

        return is_answering()

    def out_of_reach(self, logs: Path) -> str | None:
        from hpc_llm.schedulers.slurm.submit import out_of_reach

        return out_of_reach(logs)

    def unfit_folder(self, logs: Path) -> str | None:
        from hpc_llm.schedulers.slurm.submit import unfit_folder

        return unfit_folder(logs)

    def objections(self, plan: Plan, cluster: Cluster) -> Iterator[str]:
        from hpc_llm.schedulers.slurm.check import live_partitions, objections
        from hpc_llm.schedulers.slurm.nodes import objections_to_nodes

        found = list(objections(plan, cluster, self.cluster_name(), live_partitions()))
        return iter(found or objections_to_nodes(plan, cluster))

    def node_bytes(self, plan: Plan, cluster: Cluster) -> int | None:
        from hpc_llm.schedulers.slurm.nodes import largest_node

        is_another = cluster.slurm_clusters and self.cluster_name() not in (None, *cluster.slurm_clusters)
        return None if is_another or not self.is_answering() else largest_node(plan.job.partition)

    def arguments(self, job_name: str, comment: str | None, uuid: str) -> list[str]:
        from hpc_llm.schedulers.slurm.arguments import sbatch_arguments

        return sbatch_arguments(job_name, comment, uuid)

    def submit(self, submission: Submission, runs: Sequence[RunPaths], script: str) -> None:
        from hpc_llm.schedulers.slurm.submit import submit_slurm

        submit_slurm(submission, runs, script)

    def told_job_id(self, run: RunPaths, record: Mapping[str, Any]) -> str | None:
        from hpc_llm.schedulers.runs import answered_job_id, submitit_folder
        from hpc_llm.schedulers.submission import array_of

        return answered_job_id(submitit_folder(run, array_of(record)))

    def ask(self, identities: Iterable[Identity]) -> Answer:
        from hpc_llm.schedulers.slurm.questions import ask

        return ask(identities)

    def queued(self, identities: Collection[Identity]) -> tuple[Mapping[object, JobRecord], str]:
        from hpc_llm.schedulers.slurm.questions import queued

        return queued(identities)

    def end(self, job_ids: Sequence[str], job_name: str | None) -> str:
        from hpc_llm.schedulers.slurm.questions import end

        return end(job_ids, job_name)

    def find_job(self, job_id: str) -> tuple[JobRecord | None, str]:
        from hpc_llm.schedulers.slurm.questions import find_job

        return find_job(job_id)

    def members(self, job_id: str) -> Mapping[str, JobRecord]:
        from hpc_llm.schedulers.slurm.questions import members

        return members(job_id)

    def jobs_under(self, logs: Path) -> tuple[list[Printing], str | None]:
        from hpc_llm.schedulers.slurm.questions import jobs_under

        return jobs_under(logs)

    def way_to_look(self, job_id: str) -> str:
        return f"scontrol show job {job_id}"

    def way_to_end(self, job_id: str) -> str:
        return f"scancel {job_id}"


SCHEDULER = Slurm()
