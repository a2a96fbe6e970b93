"""The life of a run folder around submission: named, created, filled in, or taken back."""

from __future__ import annotations

import os
import random
import re
import shutil
import string
from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.run import RunPaths, file_name_part, read_json, write_json

SCHEMA = 1
ARRAYS = ".arrays"
_LETTERS = string.ascii_lowercase + string.digits
_ACCEPTED = re.compile(r"Submitted batch job (\d+)")


def new_run_id(
    cluster: str, method: str, model: str, now: datetime, rng: random.Random, taken: Container[str] = ()
) -> str:
    """`YYYYMMDD-HHMMSS-cluster-method-model-xxxx`, none of `taken`; pass the ids of the same sweep as `taken`."""
    parts = [file_name_part(part) for part in (cluster, method, Path(model).name)]
    while True:
        run_id = "-".join([f"{now:%Y%m%d-%H%M%S}", *parts, "".join(rng.choices(_LETTERS, k=4))])
        if run_id not in taken:
            return run_id


def create_run(logs: Path, run_id: str, experiment: Mapping[str, Any], script: str) -> RunPaths:
    """Make the run's folder with its experiment and its script.

    Raises:
        RequestError: `logs` already holds a run of that name; an attempt is never overwritten.
    """
    run = RunPaths(logs.absolute() / run_id)
    logs.mkdir(parents=True, exist_ok=True)
    try:
        run.root.mkdir()
    except FileExistsError:
        raise RequestError(f"there is already a run {run_id} in {logs}: leave --run-id out, or give another") from None
    run.script.write_text(script, encoding="utf-8")
    run.script.chmod(0o755)
    write_json(run.experiment, experiment)  # last: a folder counts as a run from here on
    return run


def discard_run(run: RunPaths) -> None:
    """Take a run back that never was submitted."""
    shutil.rmtree(run.root, ignore_errors=True)


def link_array(folder: Path, runs: Sequence[RunPaths]) -> None:
    """Make `folder/<k>` lead to the k-th run, so that one `--output=folder/%a/log.out` serves all tasks.

    Raises:
        RequestError: the folder belongs to an earlier array.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise RequestError(f"there is already a job array in {folder}: submit again under another name") from None
    for task, run in enumerate(runs):
        (folder / str(task)).symlink_to(os.path.relpath(run.root, folder))


def write_submission(run: RunPaths, scheduler: str, job_id: str, array_task: int | None = None, **more: Any) -> None:
    """Record what was submitted; `job_id` is as the scheduler's own commands take it: `123` or `123_4`."""
    submitted_at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    record = {"schema": SCHEMA, "scheduler": scheduler, "job_id": job_id, "array_task": array_task}
    write_json(run.submission, {**record, "submitted_at": submitted_at, **more})


def sbatch_answer(folder: Path) -> Path:
    """Where sbatch's own answer is kept from the moment that it gives it; `folder` is submitit's."""
    return folder / "sbatch.out"


def accepted_job_id(answer: str) -> str | None:
    """The job id in what sbatch prints, among whatever a site makes it say besides.

    >>> accepted_job_id("INFO: job 7 of your limit of 20\\nSubmitted batch job 4711 on cluster x")
    '4711'
    """
    found = _ACCEPTED.search(answer)
    return found.group(1) if found else None


def read_submission(run: RunPaths) -> dict[str, Any] | None:
    """The record of submission; put together from sbatch's answer when the command died before it wrote one."""
    record = read_json(run.submission)
    return record if record is not None and _is_whole(record) else _recovered(run)


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether nobody has damaged it: what every reader relies on is there."""
    try:
        if record["scheduler"] == "local":
            return True
        datetime.fromisoformat(record["submitted_at"])
        return isinstance(record["job_id"], str)
    except (KeyError, TypeError, ValueError):
        return False


def _recovered(run: RunPaths) -> dict[str, Any] | None:
    for folder, task in [(run.submitit, None), *_array_places(run)]:
        answer = sbatch_answer(folder)
        job_id = accepted_job_id(answer.read_text()) if answer.is_file() else None
        if job_id is not None:
            full_id = job_id if task is None else f"{job_id}_{task}"
            write_submission(run, "slurm", full_id, task, recovered=True)
            return read_json(run.submission)
    return None


def _array_places(run: RunPaths) -> list[tuple[Path, int]]:
    links = run.root.parent.glob(f"{ARRAYS}/*/*")
    return [
        (link.parent / "submitit", int(link.name))
        for link in links
        if link.is_symlink() and link.name.isdigit() and link.readlink().name == run.run_id
    ]
