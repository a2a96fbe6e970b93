"""Run folders and submissions with a few words, for tests whose scripts are a few lines of shell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpc_llm import schedulers
from hpc_llm.records.run import RunPaths
from hpc_llm.runs import send
from hpc_llm.schedulers import NewRun, Submission, create_runs
from hpc_llm.schedulers.local.queue import QueuedScript
from hpc_llm.schedulers.slurm.clients import cluster_name
from hpc_llm.schedulers.submission import digest_of


def make_run(logs: Path, run_id: str, experiment: dict[str, Any], script: str, scheduler: str = "local") -> RunPaths:
    """A run that was not submitted yet."""
    new = NewRun(run_id=run_id, experiment=experiment, script=script)
    [[run]] = create_runs(logs, [(Submission(scheduler=scheduler), [new])])
    return run


def submit_local(runs: Sequence[RunPaths], parallel: int = 1) -> str:
    """A queue of runs that were made, with the scripts that they have by now."""
    jobs = [json.loads(run.job.read_text()) for run in runs]
    scripts = [
        QueuedScript(str(run.root), job["uuid"], digest_of(run.script.read_bytes()))
        for run, job in zip(runs, jobs, strict=True)
    ]
    return schedulers.submit_local(scripts, parallel, jobs[0]["sweep"] or "")


def send_job(logs: Path, run_id: str, experiment: dict[str, Any], script: str, **asked: Any) -> RunPaths:
    """A run that is one job."""
    return send_runs(logs, [(run_id, experiment)], script, None, **asked)[0]


def send_runs(
    logs: Path, runs: Sequence[tuple[str, dict[str, Any]]], script: str, array: str | None, **asked: Any
) -> list[RunPaths]:
    """Runs that are one job array."""
    values: dict[str, Any] = {"time_s": 300, "cluster": cluster_name(), **asked}
    submission = Submission(scheduler="slurm", array=array, **values)
    new = [NewRun(run_id=run_id, experiment=experiment, script=script) for run_id, experiment in runs]
    [made] = create_runs(logs, [(submission, new)])
    send(submission, made, script)
    return made


def tensors(sizes: dict[str, int], kind: str = "U8") -> bytes:
    """A file of safetensors with tensors of so many bytes."""
    table: dict[str, Any] = {}
    at, width = 0, int(kind.lstrip("BFIU")) // 8
    for name, size in sizes.items():
        table[name] = {"dtype": kind, "shape": [size // width], "data_offsets": [at, at + size]}
        at += size
    head = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    return len(head).to_bytes(8, "little") + head + b"x" * at
