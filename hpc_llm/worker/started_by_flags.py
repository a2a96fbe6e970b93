"""What a run has that the flags of another project's program start, where no submission has planned it: a job of its own, and its record."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import ALIASES, architecture, is_checkpoint
from hpc_llm.planning.parts import JobRequest, Parallel
from hpc_llm.records.files import read_json, reason_of, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.ranks import Ranks
from hpc_llm.worker.result import Record

EXPERIMENT_SCHEMA = 1
GIB = 1 << 30
_ARGUMENTS = "arguments"
"""In experiment.json: the flags of a run that these started."""


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


def parallel_of(ranks: Ranks, gpus_per_node: int) -> Parallel:
    """The ranks that are there, each of which trains on samples of its own."""
    return Parallel(
        nodes=max(1, ranks.world_size // ranks.local_world_size),
        gpus_per_node=gpus_per_node,
        tasks_per_node=ranks.local_world_size,
        world_size=ranks.world_size,
        data=ranks.world_size,
    )


def check_model(name: str) -> list[str]:
    """Say so where a preset stands in for a model of the Hub. Raises RequestError where there is no such model."""
    if is_checkpoint(name):
        return []
    preset = architecture(name).name
    return [f"{name} is no folder here: {preset} with random weights is trained."] if name in ALIASES else []


def told(arguments: argparse.Namespace) -> dict[str, Any]:
    """The flags as a record holds them."""
    flags = {key: value for key, value in vars(arguments).items() if key != "run_dir"}
    return {key: str(value) if isinstance(value, Path) else value for key, value in flags.items()}


def write_experiment(
    paths: RunPaths, plan: Plan, notices: Sequence[str], arguments: argparse.Namespace | None = None
) -> None:
    """Make the folder a run, so that `hpc-llm parse` and `report` read it like any other; `arguments` are kept for `write_metrics`.

    Raises RequestError where it cannot be made.
    """
    experiment = {
        "schema": EXPERIMENT_SCHEMA,
        "run_id": paths.run_id,
        "plan": plan.to_dict(),
        "origins": {},
        "notices": list(notices),
        "versions": {},
        "git_commit": None,
        "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **({} if arguments is None else {_ARGUMENTS: told(arguments)}),
    }
    try:
        write_json(paths.experiment, experiment)
    except OSError as error:
        raise RequestError(f"the run cannot be written to {paths.root}: {reason_of(error)}.") from None


def write_metrics(
    record: Record, path: Path, metrics_of: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
) -> None:
    """Where flags started the run, its result once more in the words of their project's file: `metrics_of` flags and result."""
    config = (read_json(record.paths.experiment) or {}).get(_ARGUMENTS)
    found = read_json(record.paths.result)
    if isinstance(config, dict) and found is not None:
        record.write(path, {"config": config, "metrics": metrics_of(config, found)})


def in_gib(size_bytes: int | None) -> float | None:
    """As other projects say memory in their files, and call it GB; None is not known, and not 0."""
    return None if size_bytes is None else size_bytes / GIB
