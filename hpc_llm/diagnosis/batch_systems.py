"""Advice in the commands of the batch system that speaks in a log: what Slurm calls sbatch is bsub or qsub elsewhere.

Known by the system's own messages among the evidence. A line that names a command of Slurm's and cannot be said otherwise is
left out; without one of these messages nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpc_llm.diagnosis.askable import SLURMS_COMMANDS
from hpc_llm.immutable import dataclass


@dataclass(frozen=True, kw_only=True)
class BatchSystem:
    """How one of them is asked; empty where it has no word for it."""

    name: str
    speaks: re.Pattern[str]
    """What only it prints."""
    memory: str = ""
    """How more of the host's memory is asked for."""
    time: str = ""
    """How a longer time limit is asked for."""
    queue: str = ""
    """What shows a queue's limits."""
    ended: str
    """What says how a job ended."""
    alone: str = ""
    """How a whole node is asked for."""
    tasks: str = ""
    """How the ranks of a node are asked for."""


_SYSTEMS = (
    BatchSystem(
        name="LSF",
        speaks=re.compile(r"\bTERM_[A-Z]{3,20}:|Completed <exit>; TERM_|\bLSF\b|\bLSBATCH\b"),
        memory='bsub -M LIMIT -R "rusage[mem=LIMIT]"',
        time="bsub -W HH:MM",
        queue="bqueues -l QUEUE",
        ended="bhist -l JOB",
        alone="bsub -x",
        tasks='bsub -R "span[ptile=RANKS]"',
    ),
    BatchSystem(
        name="Grid Engine",
        speaks=re.compile(
            r"\bjob [\d.]+ exceed(?:s job|ed hard)|Unable to run job: |\bqmaster\b|\bsge_(?:execd|shepherd)\b"
        ),
        memory="qsub -l h_vmem=LIMIT",
        time="qsub -l h_rt=HH:MM:SS",
        queue="qconf -sq QUEUE",
        ended="qacct -j JOB",
    ),
    BatchSystem(
        name="PBS",
        speaks=re.compile(
            r"=>> PBS:|\bPBS\b|\bExit_status ?=|Job deleted at request of |\bMOAB_INFO\b|^qsub: |^Execution terminated$"
        ),
        memory="qsub -l mem=LIMIT, or :mem=LIMIT in the chunks of -l select",
        time="qsub -l walltime=HH:MM:SS",
        queue="qstat -Qf QUEUE",
        ended="qstat -xf JOB, or tracejob JOB",
        alone="qsub -l place=excl",
        tasks=":mpiprocs=RANKS in the chunks of qsub -l select",
    ),
    BatchSystem(
        name="Flux",
        speaks=re.compile(r"\bjob\.exception |^flux-job: |\bexception type=\""),
        time="flux batch -t TIME",
        queue="flux queue list",
        ended="flux job eventlog JOB",
        alone="flux batch --exclusive",
    ),
    BatchSystem(
        name="HTCondor",
        speaks=re.compile(r"\b[Jj]ob has gone over (?:cgroup )?memory limit of|\bcondor_\w+"),
        memory="request_memory = LIMIT in the submit file",
        ended="condor_history -l JOB",
    ),
    BatchSystem(
        name="Kubernetes",
        speaks=re.compile(r"\bOOMKilled\b|\bThe node was low on resource: "),
        memory="resources.limits.memory of its container",
        ended="kubectl describe pod POD",
    ),
)
_FOR_ALL = re.compile(r"`squeue[^`]*`, `qstat")
"""A line with the command of each system in it."""
_SLURM_SPEAKS = re.compile(r"\b(?:slurm(?:step)?d|srun|sbatch|salloc|slurm_\w+): |\*\*\* (?:JOB|STEP) ")
_MEMORY = re.compile(r"sbatch --mem=…(?:, or --mem=0 for all of the node)?")
_LIMIT = re.compile(r"the partition's limit \(sinfo[^()]*\)")
_MORE_TIME = re.compile(r"\bask for more time\b")
_ASKED = re.compile(r"sacct -j \S+(?: --duplicates)?(?: -o [\w,%]+)?")
_ALONE = re.compile(r"sbatch --exclusive\b")
_TASKS = re.compile(r"sbatch --ntasks-per-node=…")


def speaking(evidence: Iterable[str]) -> BatchSystem | None:
    """The one whose messages these are; None of Slurm's, of several systems', and where none speaks."""
    lines = list(evidence)
    if any(map(_SLURM_SPEAKS.search, lines)):
        return None
    found = [one for one in _SYSTEMS if any(map(one.speaks.search, lines))]
    return found[0] if len(found) == 1 else None


def in_its_words(remedy: str, system: BatchSystem | None) -> str:
    """The remedy with the commands of that batch system, a line each; how to ask it where nothing is left.

    >>> lsf = speaking(["TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."])
    >>> in_its_words("ask for more: sbatch --mem=…, or --mem=0 for all of the node", lsf)
    'ask for more: bsub -M LIMIT -R "rusage[mem=LIMIT]"'
    """
    if system is None:
        return remedy
    lines = [_said(line, system) for line in remedy.splitlines()]
    left = [line for line in lines if line and (_FOR_ALL.search(line) or not SLURMS_COMMANDS.search(line))]
    return "\n".join(left) or f"ask {system.name} how the job ended: {system.ended}"


def _said(line: str, system: BatchSystem) -> str:
    if _LIMIT.search(line):
        line = _MORE_TIME.sub(f"ask for more time ({system.time})", line)
        line = _LIMIT.sub(f"the queue's limit ({system.queue})", line)
    for pattern, words in (
        (_MEMORY, system.memory),
        (_ASKED, system.ended),
        (_ALONE, system.alone),
        (_TASKS, system.tasks),
    ):
        if words:
            line = pattern.sub(lambda _, words=words: words, line)  # type: ignore[misc]
    return line
