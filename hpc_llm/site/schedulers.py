"""The schedulers: what jobs are handed to. Here is what a plan and a script have to know of one, and where all are known.

What is done with it, submission, questions, cancelling, is in `hpc_llm.schedulers.scheduler`, from which members derive.
Those that come along are the packages in `hpc_llm.schedulers` that define `SCHEDULER`. Further ones come from installed
packages, by an entry point of the group `hpc_llm.schedulers` that leads to a Scheduler, or from a program that calls
`register`.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from hpc_llm.errors import ProfileError
from hpc_llm.immutable import dataclass
from hpc_llm.registry import Modules, Registry

if TYPE_CHECKING:
    from hpc_llm.job.render import HeaderLine, JobArray, Place
    from hpc_llm.planning.experiment import PlanWithOrigins
    from hpc_llm.site.cluster import Cluster

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\[\]-]{0,99}")


class Several(Enum):
    """What becomes of several runs that are asked for together."""

    ARRAY = "one job array with one script"
    QUEUE = "one submission that runs their scripts one after the other"
    ALONE = "a submission each"


@dataclass(frozen=True, kw_only=True)
class JobVariables:
    """Environment variables in which a job finds what it is; of several the first that is set counts."""

    job_id: tuple[str, ...] = ()
    """As the scheduler's commands take it; of a task of an array the array's."""
    cluster: tuple[str, ...] = ()
    """The scheduler's own name of the cluster."""
    job_name: tuple[str, ...] = ()
    """With the UUID's digits at its end (`hpc_llm.schedulers.identity.marked_name`): the script proves its folder by it."""
    array_task: tuple[str, ...] = ()
    restart_count: tuple[str, ...] = ()
    """How often the job was queued again; 0 at first."""

    def in_bash(self) -> dict[str, str]:
        """Each as the words of bash that give its value, or what stands for none."""
        none = {"array_task": "null", "restart_count": "0"}
        names = ("job_id", "cluster", "job_name", "array_task", "restart_count")
        return {name: _first_of(getattr(self, name), none.get(name, "")) for name in names}


def _first_of(variables: tuple[str, ...], none: str) -> str:
    """
    >>> _first_of(("A", "B"), "0"), _first_of((), "")
    ('${A:-${B:-0}}', '')
    """
    return f"${{{variables[0]}:-{_first_of(variables[1:], none)}}}" if variables else none


class SchedulerFacts(ABC):
    """What a scheduler is. The defaults are those of one that takes a script for one node and knows no more."""

    name: str
    """As profiles, plans and records have it."""
    title: str
    """As sentences have it: Slurm, this machine."""
    command: str = ""
    """The program that takes the jobs; empty where none does."""
    requests: frozenset[str] = frozenset()
    """Which of `partition`, `account` and `sbatch`, the options of --sbatch, have a meaning for it."""
    several: Several = Several.ALONE
    several_nodes: bool = False
    """Whether a job may have more than one node. Then `first_node` is needed."""
    first_node: str = ""
    """A command of bash that prints the first node of a job, with the further argument behind it, if there is one."""
    keeps_time: bool = False
    """Whether it ends a job at its time limit; else the script does."""
    has_srun: bool = False
    """Whether Slurm's srun starts tasks in its jobs."""
    is_this_machine: bool = False
    """Whether runs are processes of the machine that submits them, which nobody needs to be asked about; else jobs with ids,
    which are asked for, and acted on where they are proven to be ours."""
    variables: JobVariables = JobVariables()

    @abstractmethod
    def is_here(self) -> bool:
        """Whether it can be submitted to from this machine; a cheap look, as at PATH."""

    def is_job_id(self, text: str) -> bool:
        """Whether that could be a job's id: whatever a record holds else is damage, and is not asked for."""
        return _JOB_ID.fullmatch(text) is not None

    def header(
        self, planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
    ) -> list[HeaderLine]:
        """The lines of the script by which it asks for its job."""
        return []

    def name_and_comment(
        self, planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
    ) -> tuple[str, str | None]:
        """The job's name and comment, as its script asks for them."""
        return planned.plan.job.name, None

    def without_effect(self, environ: Mapping[str, str]) -> list[str]:
        """A sentence for each variable of the shell by which a user may expect to change the job, and does not."""
        return []


class _Unknown(SchedulerFacts):
    """One of which a record tells, and which is not installed here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"the scheduler {name}, which is not known here,"

    def is_here(self) -> bool:
        return False


def _type() -> type[SchedulerFacts]:
    found: type[SchedulerFacts] = importlib.import_module("hpc_llm.schedulers.scheduler").Scheduler
    return found


_registry: Registry[SchedulerFacts] = Registry(
    "scheduler", Modules("hpc_llm.schedulers", "SCHEDULER", folders=True), _type, error=ProfileError
)
register, unregister = _registry.register, _registry.unregister
known, names, find_scheduler = _registry.known, _registry.names, _registry.find


def scheduler_of(name: str) -> SchedulerFacts:
    """The scheduler of that name in a record; a stand-in where nobody here knows it."""
    try:
        return find_scheduler(name)
    except ProfileError:
        return _Unknown(name)


def scheduler_here() -> SchedulerFacts:
    """What `auto` means here: the first that has jobs and can be submitted to, those that come along before others."""
    found = sorted(known().values(), key=lambda one: (one.is_this_machine, not _comes_along(one), one.name))
    return next(one for one in found if one.is_here())


def _comes_along(one: SchedulerFacts) -> bool:
    return type(one).__module__.startswith("hpc_llm.schedulers.")
