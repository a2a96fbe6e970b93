"""Advice of which a run's scheduler can answer the questions: its job by its id, and no question where there is no Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpc_llm.schedulers.identity import Identity

# What names an option of ours, as --sbatch, is left to who knows the plan.
SLURMS_COMMANDS = re.compile(r"(?<![\w-])(?:sacct|sacctmgr|scontrol|squeue|sinfo|sbatch|scancel|srun|seff)\b")
_ASKS_SLURM = re.compile(rf"{SLURMS_COMMANDS.pattern}|\bask the scheduler\b|\bSlurm queued\b")
_OF_SLURM = re.compile(r"\b(?:slurm\w*|srun|sbatch|salloc|squeue|sacct): ", re.IGNORECASE)
_ON_THIS_MACHINE = "see what ended it on this machine: a person, a session that was closed, or the kernel, whose own log says so where you may read it"


def askable(remedy: str, identity: Identity | None, evidence: Iterable[str]) -> str:
    """The remedy without what cannot be asked. Of a run whose job nobody knows, or in which Slurm itself speaks, all stays."""
    if identity is not None and "sbatch" in identity.facts.requests:
        return remedy.replace("sacct -j JOB", f"sacct -j {identity.job_id}") if identity.job_id else remedy
    if identity is None or any(map(_OF_SLURM.search, evidence)):
        return remedy
    lines = remedy.splitlines()
    kept = [line for line in lines if not _ASKS_SLURM.search(line)]
    if kept or not lines:
        return "\n".join(kept)
    return _elsewhere(identity)


def _elsewhere(identity: Identity) -> str:
    """Whom to ask of a run that is no job of Slurm's."""
    return f"ask {identity.facts.title} how the job ended" if identity.has_job else _ON_THIS_MACHINE
