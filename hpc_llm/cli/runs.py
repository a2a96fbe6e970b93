"""From what a user types to run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.run import RunPaths, is_run, iter_runs


def find_run(text: str, logs: Path) -> RunPaths:
    """The run named by its folder, its id, the start of its id, or its Slurm job id."""
    folder = Path(text)
    for candidate in (folder, logs / text):
        if is_run(candidate):
            return RunPaths(candidate.absolute())
    runs = list(iter_runs(logs.absolute()))
    matches = [run for run in runs if run.run_id.startswith(text)] or [run for run in runs if _job_id(run) == text]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RequestError(
            f"'{text}' is the start of {len(matches)} runs: {', '.join(r.run_id for r in matches[:5])}. Write more of it."
        )
    if not runs:
        raise RequestError(f"there is no run '{text}' in {logs}: it holds no runs. --logs DIR says where runs live.")
    raise RequestError(unknown_name("run", text, [run.run_id for run in runs[-5:]], where=str(logs)))


def find_runs(texts: Sequence[str] | None, logs: Path) -> list[RunPaths]:
    """The runs named, or all runs under `logs` if none is."""
    if texts:
        return [find_run(text, logs) for text in texts]
    return list(iter_runs(logs.absolute()))


def _job_id(run: RunPaths) -> str | None:
    from hpc_llm.submit.runs import read_identity

    identity = read_identity(run)
    return identity.job_id if identity else None
