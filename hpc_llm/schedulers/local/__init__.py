"""This machine: no scheduler at all. The same script is run by bash, the runs of one request one after the other.

Its runs are processes, known by the marks in their environment (`marks`), so there are no jobs to ask about.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hpc_llm.schedulers.environment import JOB_VARIABLES
from hpc_llm.schedulers.scheduler import Objection, Scheduler
from hpc_llm.site.schedulers import Several

if TYPE_CHECKING:
    from hpc_llm.planning.experiment import Plan
    from hpc_llm.records.run import RunPaths
    from hpc_llm.schedulers.answer import Answer
    from hpc_llm.schedulers.identity import Identity
    from hpc_llm.schedulers.submission import Submission
    from hpc_llm.site.cluster import Cluster


class Local(Scheduler):
    name = "local"
    title = "this machine"
    several = Several.QUEUE
    is_this_machine = True
    variables = JOB_VARIABLES  # by hand the script may be started inside a job of Slurm's, and then says in which

    def is_here(self) -> bool:
        return True

    def is_job_id(self, text: str) -> bool:
        return True  # a number of its queue, by which nothing is asked

    def objections(self, plan: Plan, cluster: Cluster) -> Iterator[str]:
        import shutil

        from hpc_llm.planning.profilers import command_of

        program = next(iter(command_of(plan.training.profile, gpus=plan.parallel.gpus_per_node)), None)
        has_module = plan.training.profile in cluster.prelude.profilers
        if program is not None and not has_module and shutil.which(program) is None:
            yield Objection(
                f"profile is {plan.training.profile}, and its program {program} is not on PATH here",
                "Install it, or take --profile torch; --force submits all the same.",
            )

        model = plan.model.name
        if os.path.isabs(model) and not os.path.isdir(model):
            yield Objection(
                f"there is no folder {model} here, which the run takes as its model, and cluster {cluster.name} runs on this machine",
                "Correct --model, or name a preset (`hpc-llm models` lists them); --force submits all the same.",
            )

    def submit(self, submission: Submission, runs: Sequence[RunPaths], script: str) -> None:
        from hpc_llm.schedulers.local.queue import QueuedScript
        from hpc_llm.schedulers.local.submit import submit_local
        from hpc_llm.schedulers.submission import digest_of

        digests = submission.digests or [digest_of(script.encode())] * len(runs)
        queued = [
            QueuedScript(str(run.root), submission.uuid, digest) for run, digest in zip(runs, digests, strict=True)
        ]
        submit_local(queued, submission.parallel or 1, submission.sweep or "")

    def ask(self, identities: Iterable[Identity]) -> Answer:
        from hpc_llm.schedulers.answer import Answer

        return Answer()

    def end(self, job_ids: Sequence[str], job_name: str | None) -> str:
        return "its processes are to be ended (`hpc_llm.schedulers.local.marks`)" if job_ids else ""


SCHEDULER = Local()
