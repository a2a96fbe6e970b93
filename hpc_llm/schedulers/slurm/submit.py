"""Submission to Slurm: one job, or one array for all runs of a sweep on a cluster."""

from __future__ import annotations

import contextlib
import io
import math
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.errors import SubmissionError
from hpc_llm.records.files import make_own_folder, read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.runs import answer_file, answered_job_id, asking_file, is_refusal, submitit_folder, write_job
from hpc_llm.schedulers.scheduler import UnclearAnswer
from hpc_llm.schedulers.slurm.clients import call, is_answering
from hpc_llm.schedulers.submission import Submission

if TYPE_CHECKING:
    from hpc_llm.schedulers.slurm.executors import ScriptExecutor


def submit_slurm(submission: Submission, runs: Sequence[RunPaths], script: str) -> list[str]:
    """Hand `script` to sbatch, once, and record each run's job id, `123` or `123_4`, as Slurm prints it.

    Task k of an array is `runs[k]`. Beside the script sbatch gets the arguments of job.json. The runs' folders hold the same
    bytes as job.sh, which are not read here: others may be able to put another folder there meanwhile.

    Nothing is taken back here: whoever asked looks for the job in Slurm first (`runs.sending`).

    Raises:
        SubmissionError: sbatch refused, with its message, or was not asked at all.
        UnclearAnswer: nobody can tell from the answer whether Slurm has taken the job.
    """
    if submission.array is None and len(runs) != 1:
        raise ValueError(f"{len(runs)} runs need an array")
    folder = submitit_folder(runs[0], submission.array)
    make_own_folder(folder)
    try:
        job_ids = _sbatch(folder, submission, runs, script)
        if answered_job_id(folder) is None:
            raise SubmissionError("sbatch's answer is cut short.")
    except SubmissionError as error:
        job_id = answered_job_id(folder)
        if job_id is None:
            if asking_file(folder).exists() and not is_refusal(read_json(answer_file(folder))):
                raise UnclearAnswer(str(error)) from error
            raise
        job_ids = [job_id if submission.array is None else f"{job_id}_{task}" for task in range(len(runs))]
    for run, job_id in zip(runs, job_ids, strict=True):
        with contextlib.suppress(OSError):  # the answer of sbatch is kept, too, and the script tells its job
            write_job(run, job_id)
    return job_ids


def _sbatch(folder: Path, submission: Submission, runs: Sequence[RunPaths], script: str) -> list[str]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = _executor(folder, submission, script)
    minutes = {} if submission.time_s is None else {"time": math.ceil(submission.time_s / 60)}
    executor.update_parameters(nodes=submission.nodes, ntasks_per_node=submission.tasks_per_node, **minutes)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints the message that the error carries
            jobs = executor.submit_array([partial(str, run.root) for run in runs])  # it keeps them, and runs none
    except FailedJobError as error:
        raise SubmissionError(refusal(_one_line(error), script)) from error
    except FailedSubmissionError as error:
        raise SubmissionError(f"{_one_line(error)}.") from error
    return [job.job_id for job in jobs]


def _executor(folder: Path, submission: Submission, script: str) -> ScriptExecutor:
    from hpc_llm.schedulers.slurm.executors import ScriptExecutor

    why = _unfit(folder)
    if why:
        raise SubmissionError(why)
    return ScriptExecutor(folder, script, submission.arguments, is_array=submission.array is not None)


def out_of_reach(logs: Path) -> str | None:
    """Why sbatch would take nothing whose folder lies in `logs`; None where nothing tells."""
    why = _unfit(logs)
    if why is not None or is_answering():
        return why
    _, said = call(["scontrol", "show", "config"])
    return f"{_NO_SLURM_HERE} scontrol said: {said.rstrip('.') or 'nothing'}."


def _unfit(folder: Path) -> str | None:
    """What keeps submitit from asking sbatch here, or from a folder."""
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        return "sbatch or srun is not on PATH: run this on a login node of the cluster, or choose --cluster local."
    return unfit_folder(folder)


def unfit_folder(folder: Path) -> str | None:
    """Why nothing that lies there can be handed to sbatch, in a whole sentence; None where it can."""
    if _FILLED_IN.search(str(folder.absolute())):
        return f"the folder {folder} holds %j, %t, %a or %A, which submitit takes for the job's number: use another --logs."
    return None


_NO_SLURM_HERE = (
    "sbatch finds no Slurm here: no configuration, or a controller that gives no answer. Run this on a login node of the "
    "cluster, or choose --cluster local."
)
_FILLED_IN = re.compile(r"%[jtaA]")
_NO_SLURM = re.compile(
    r"configuration source|DNS SRV|_dns_srv|slurm\.conf|Unable to contact slurm controller|Unable to establish control",
    re.IGNORECASE,
)


_GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")
_OF_A_NODE = (
    "partition", "constraint", "nodelist", "exclude", "reservation", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-core", "cpus-per-task", "cpus-per-gpu", "mincpus", "mem", "mem-per-cpu", "mem-per-gpu", *_GPUS, "sockets-per-node",
    "cores-per-socket", "threads-per-core", "extra-node-info", "tmp",
)  # fmt: skip
_IN_EXTRA = "unless --sbatch says it, it is in request.extra of the cluster's profile"
_NEXT_STEPS: tuple[tuple[re.Pattern[str], tuple[str, ...], str], ...] = (
    (
        re.compile(r"invalid feature specification", re.IGNORECASE),
        ("constraint",),
        "no node here has such a feature: unless --sbatch says it, it is request.constraint of the cluster's profile, where null asks for none",
    ),
    (
        re.compile(r"invalid (?:account|partition name)|account/partition combination", re.IGNORECASE),
        ("account", "partition"),
        "`sacctmgr -n show associations user=$USER format=account,partition` and `sinfo -s` tell yours; --account and --partition say others",
    ),
    (
        re.compile(r"invalid qos", re.IGNORECASE),
        ("qos",),
        _IN_EXTRA,
    ),
    (
        re.compile(r"generic resource|gres specification|invalid gres", re.IGNORECASE),
        _GPUS,
        "how GPUs are asked for is request.gpu_style and request.gpu_type of the cluster's profile; `sinfo -o '%P %G'` tells what nodes have",
    ),
    (
        re.compile(r"memory specification", re.IGNORECASE),
        ("mem", "mem-per-gpu", "mem-per-cpu"),
        "--sbatch mem=SIZE asks for another amount; the profile's is request.memory with node.mem_gb_per_gpu",
    ),
    (
        re.compile(r"accounting/QOS policy", re.IGNORECASE),
        ("account", "partition", "qos", "nodes", "time", *_GPUS),
        "a limit of yours is reached, and sbatch does not say which; `sacctmgr show associations user=$USER` and `sacctmgr show qos` list "
        "them, `squeue -u $USER` the jobs that count",
    ),
    (re.compile(r"time limit", re.IGNORECASE), ("time",), "--time HH:MM:SS asks for another"),
    (
        re.compile(r"reservation", re.IGNORECASE),
        ("reservation",),
        f"`scontrol show reservation` lists them; {_IN_EXTRA}",
    ),
    (
        re.compile(r"invalid node name", re.IGNORECASE),
        ("exclude", "nodelist"),
        f"`sinfo -N -h -o %N` lists the nodes that there are; {_IN_EXTRA}",
    ),
    (
        re.compile(r"dependency problem", re.IGNORECASE),
        ("dependency",),
        "Slurm knows no such job of yours that it may wait for, `squeue -u $USER` lists them; one that is over for some minutes is forgotten",
    ),
    (
        re.compile(r"license", re.IGNORECASE),
        ("licenses",),
        f"`scontrol show licenses` lists them; {_IN_EXTRA}",
    ),
    (
        re.compile(r"node configuration", re.IGNORECASE),
        _OF_A_NODE,
        "no node, or too few, fit all of that together, and sbatch does not say which line is too much; `sinfo -o '%P %N %z %m %G %f'` tells "
        "what nodes have: sockets, cores and threads, memory, GPUs, features",
    ),
)
"""What sbatch refuses, the options of a script that may be meant, and what says them."""
_UNKNOWN = re.compile(r"(?:unrecognized|invalid|unknown) option:? ['\"`‘]?--([a-z][\w-]{0,60})")
_OPTION = re.compile(r"^#SBATCH --([a-z][a-z-]*)(?:=(.*))?$", re.MULTILINE)


def refusal(said: str, script: str) -> str:
    """What sbatch's message means, and which line of the script it is about; its own words are no use to who is on a machine
    without a Slurm.
    """
    if _NO_SLURM.search(said):
        return f"{_NO_SLURM_HERE} sbatch said: {said}."
    asked = _OPTION.findall(script)
    unknown = _UNKNOWN.search(said)
    lines = [f"--{name}={value}" if value else f"--{name}" for name, value in asked if unknown and name == unknown[1]]
    if lines:
        return f"sbatch refused the job: {said}. The script holds {' and '.join(lines)}, which is none of its options: {_IN_EXTRA}, where it is left out."
    for words, options, way in _NEXT_STEPS:
        lines = [f"--{name}={value}" for name, value in asked if name in options]
        if lines and words.search(said):
            return f"sbatch refused the job: {said}. The script holds {' and '.join(lines)}: {way}."
    return f"sbatch refused the job: {said}."


def _one_line(error: Exception) -> str:
    """sbatch's message without its prefixes, which repeat on every line."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in str(error).splitlines()]
    return "; ".join(line for line in lines if line).rstrip(".") or "it ended without a word"
