"""Submission to Slurm: one job, or one array for all runs of a sweep on a cluster."""

from __future__ import annotations

import contextlib
import io
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.errors import SubmissionError
from hpc_llm.run import RunPaths
from hpc_llm.submit.queue import RunScripts
from hpc_llm.submit.runs import discard_run, link_array, sbatch_answer, write_submission

if TYPE_CHECKING:
    from hpc_llm.submit.executors import ScriptExecutor


def submit_slurm(
    runs: Sequence[RunPaths],
    script: str,
    *,
    nodes: int,
    tasks_per_node: int,
    time_s: int | None,
    array_folder: Path | None = None,
) -> list[str]:
    """Hand `script` to sbatch, once, and record each run's job id, `123` or `123_4`, as Slurm prints it.

    With `array_folder` task k of the array is `runs[k]`, reachable from the script as `array_folder/<k>`; without it
    there is exactly one run.

    Raises:
        SubmissionError: sbatch refused, with its message. The runs' folders are gone then: nothing ran, so there is no
            run, and the same run id is free for another try. Should Slurm have taken the job although sbatch failed, as
            after a timeout, the script stops by itself because its run folder is missing.
    """
    if array_folder is None and len(runs) != 1:
        raise ValueError(f"{len(runs)} runs need an array folder")
    folder = runs[0].submitit if array_folder is None else _new_array(array_folder, runs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        job_ids = _sbatch(folder, runs, script, nodes, tasks_per_node, time_s, is_array=array_folder is not None)
    except BaseException:
        if not sbatch_answer(folder).exists():
            _take_back(runs, array_folder)
        raise
    for task, (run, job_id) in enumerate(zip(runs, job_ids, strict=True)):
        write_submission(run, "slurm", job_id, None if array_folder is None else task)
    return job_ids


def _new_array(folder: Path, runs: Sequence[RunPaths]) -> Path:
    """Lay out the array's folder and say where submitit may write."""
    try:
        link_array(folder, runs)
    except BaseException:
        _take_back(runs, None)
        raise
    return folder / "submitit"


def _sbatch(
    folder: Path, runs: Sequence[RunPaths], script: str, nodes: int, tasks: int, time_s: int | None, *, is_array: bool
) -> list[str]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = _executor(folder, script, is_array)
    minutes = {} if time_s is None else {"time": math.ceil(time_s / 60)}
    executor.update_parameters(nodes=nodes, ntasks_per_node=tasks, **minutes)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints the message that the error carries
            jobs = executor.submit_array([RunScripts((str(run.root),)) for run in runs])
    except FailedJobError as error:
        raise SubmissionError(f"sbatch refused the job: {_one_line(error)}. No run was left behind.") from error
    except FailedSubmissionError as error:
        raise SubmissionError(f"{_one_line(error)}. Look for the job with squeue --me.") from error
    return [job.job_id for job in jobs]


def _executor(folder: Path, script: str, is_array: bool) -> ScriptExecutor:
    from hpc_llm.submit.executors import ScriptExecutor

    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise SubmissionError(
            "sbatch or srun is not on PATH: run this on a login node of the cluster, or choose --cluster local"
        )
    return ScriptExecutor(folder, script, is_array=is_array)


def _take_back(runs: Sequence[RunPaths], array_folder: Path | None) -> None:
    for run in runs:
        discard_run(run)
    if array_folder is not None:
        shutil.rmtree(array_folder, ignore_errors=True)


def _one_line(error: Exception) -> str:
    """sbatch's message without its prefixes, which repeat on every line."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in str(error).splitlines()]
    return "; ".join(line for line in lines if line).rstrip(".")
