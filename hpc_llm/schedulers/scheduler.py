"""What is asked of a scheduler once there is something to submit. A member is one object of a class that derives from this.

A job is only acted on where the scheduler's own answer proves that it is the run's, and never on a guess. So each submission
draws a UUID (`submission.uuid`), which the scheduler has to keep with the job and give back: `ask` answers of a run only what
holds its UUID.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import ProfileError, SubmissionError
from hpc_llm.site.schedulers import SchedulerFacts, find_scheduler, known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_llm.planning.experiment import Plan
    from hpc_llm.records.run import RunPaths
    from hpc_llm.schedulers.answer import Answer, Printing
    from hpc_llm.schedulers.identity import Identity
    from hpc_llm.schedulers.job_record import JobRecord
    from hpc_llm.schedulers.submission import Submission
    from hpc_llm.site.cluster import Cluster


class UnclearAnswer(SubmissionError):
    """The scheduler was asked, and whether it has the job is open."""


class Objection(str):
    """Why a job is not to be handed over; `remedy` is what to do instead, in whole sentences, where the request itself is at fault."""

    remedy: str

    def __new__(cls, sentence: str, remedy: str) -> Objection:
        made = super().__new__(cls, sentence)
        made.remedy = remedy
        return made


class Scheduler(SchedulerFacts):
    """A scheduler. `submit`, `ask` and `end` are what each needs; the rest has defaults that claim nothing."""

    # --- submission

    def cluster_name(self) -> str | None:
        """The scheduler's own name of the cluster that commands here talk to; None where nothing tells."""
        return None

    def is_answering(self) -> bool:
        """Whether this machine is where jobs are submitted to it, so that what a profile names should be here."""
        return self.is_here()

    def out_of_reach(self, logs: Path) -> str | None:
        """Why it would take nothing from here whose folder lies in `logs`, in whole sentences; None where nothing tells.

        It is asked where a request has runs for other schedulers too, before the first is handed over.
        """
        return None

    def unfit_folder(self, logs: Path) -> str | None:
        """Why it could never take a run whose folder lies in `logs`, in a whole sentence; None where it could."""
        return None

    def objections(self, plan: Plan, cluster: Cluster) -> Iterator[str]:
        """Why the job does not belong here or could never start, one sentence each; it may be asked for that."""
        yield from ()

    def node_bytes(self, plan: Plan, cluster: Cluster) -> int | None:
        """Memory of the largest node on which the job may start; None where nothing tells."""
        return None

    def arguments(self, job_name: str, comment: str | None, uuid: str) -> list[str]:
        """What `command` gets beside the script."""
        return []

    @abstractmethod
    def submit(self, submission: Submission, runs: Sequence[RunPaths], script: str) -> None:
        """Hand `script` over, once, and record each run's job id (`schedulers.runs.write_job`).

        Of an array task k is `runs[k]`. The runs' folders hold the same bytes as job.sh. Nothing is taken back here.

        Raises:
            SubmissionError: it was refused, with the scheduler's words, or nobody was asked.
            UnclearAnswer: nobody can tell from the answer whether the scheduler has the job.
        """

    # --- jobs; of no use where runs are processes of this machine

    def told_job_id(self, run: RunPaths, record: Mapping[str, Any]) -> str | None:
        """The job id that the scheduler answered, where job.json, which is `record`, could not be completed by it."""
        return None

    @abstractmethod
    def ask(self, identities: Iterable[Identity]) -> Answer:
        """What it knows of these runs, with as few commands as it takes; of each only what is proven to be of it."""

    def queued(self, identities: Collection[Identity]) -> tuple[Mapping[object, JobRecord], str]:
        """What it has now, by `Identity.key`, of runs that are about to be ended; and the complaint where it is silent.

        For schedulers whose `ask` also looks into an archive, which may have the jobs of all who ever had an id.
        """
        answer = self.ask(identities)
        return answer.records, "" if answer.answered else answer.complaint

    @abstractmethod
    def end(self, job_ids: Sequence[str], job_name: str | None) -> str:
        """End jobs that it has just proven to be ours; returns what went wrong, nothing for those that were over.

        `job_name` is that of all of them, where it holds the UUID; None where it was changed.
        """

    def find_job(self, job_id: str) -> tuple[JobRecord | None, str]:
        """The job of that id, whosever it is, with owner and comment; and the complaint where there is no answer."""
        return None, ""

    def members(self, job_id: str) -> Mapping[str, JobRecord]:
        """The members of the array of that id, whosever it is, by their own ids; none where that is no array, or nothing is answered."""
        return {}

    def jobs_under(self, logs: Path) -> tuple[list[Printing], str | None]:
        """Live jobs of this user that hold a UUID of ours and print into `logs`; and why there was no answer."""
        return [], None

    def way_to_look(self, job_id: str) -> str:
        """The command that shows a job; empty where there is none."""
        return ""

    def way_to_end(self, job_id: str) -> str:
        """The command that ends a job; empty where there is none."""
        return ""


def find(name: str) -> Scheduler:
    """The scheduler of that name.

    Raises:
        ProfileError: there is none, or it cannot be loaded.
    """
    found = find_scheduler(name)
    if not isinstance(found, Scheduler):
        raise ProfileError(f"{found!r} is no {Scheduler.__module__}.{Scheduler.__qualname__}.")
    return found


def with_jobs() -> list[Scheduler]:
    """All schedulers whose runs are jobs."""
    return [one for one in known().values() if isinstance(one, Scheduler) and not one.is_this_machine]
