"""What a run has that the flags of another project's program start, where no submission has planned it: a job of its own, and its record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import JobRequest
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths

EXPERIMENT_SCHEMA = 1


def running_job(name: str, launcher: str) -> JobRequest:
    """The job that runs already: nothing is asked for."""
    return JobRequest(
        scheduler="slurm" if "SLURM_JOB_ID" in os.environ else "local",
        launcher=launcher,
        partition=None,
        account=None,
        time_s=None,
        name=name,
        cpus_per_task=None,
        mem=None,
    )


def write_experiment(
    paths: RunPaths, plan: Plan, notices: Sequence[str], more: Mapping[str, Any] | None = None
) -> None:
    """Make the folder a run, so that `hpc-llm parse` and `report` read it like any other; `more` stands beside the plan."""
    experiment = {
        "schema": EXPERIMENT_SCHEMA,
        "run_id": paths.run_id,
        "plan": plan.to_dict(),
        "origins": {},
        "notices": list(notices),
        "versions": {},
        "git_commit": None,
        "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **(more or {}),
    }
    write_json(paths.experiment, experiment)
