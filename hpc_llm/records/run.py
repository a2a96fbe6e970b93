"""A run: one folder that holds all of one attempt and outlives the shell. Standard library only.

`RunPaths` is the only place that builds a file name of a run. Writers replace whole files through a temporary name,
so a reader on another node sees the old or the new content and never half of one.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hpc_llm.errors import pass_over
from hpc_llm.immutable import dataclass
from hpc_llm.records.files import HEART, NOT_THEIRS, is_trusted_link, read_json, reason_of, write_json
from hpc_llm.records.stops import Stop as Stop

RUN_ID_PLACEHOLDER = "RUN-ID"
"""Stands for the run id in a preview: the id is the one thing that only submission decides."""

EXIT_FILE, RESULT_FILE, CANCELLED_FILE, JOB_FILE = "exit.json", "result.json", "cancelled.json", "job.json"
"""Names that are told of what was read there, too."""
TRY_FILES = (
    EXIT_FILE,
    RESULT_FILE,
    "steps.jsonl",
    "evaluations.jsonl",
    "outputs.jsonl",
    "failures",
    "telemetry*.jsonl",
    "nccl.log",
    "profile*.json*",
    "vllm-latency.json",
    "profile-rank-*",
)
"""What one try of a run writes, as patterns; the job script moves them to `tries` before the next one."""


class Outcome(str, Enum):
    """How a run ended. OOM and TIMEOUT are results with a row of their own, not gaps in the table."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    OOM_DEVICE = "OOM_DEVICE"
    OOM_HOST = "OOM_HOST"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


HALF_EXIT = ".exit.json"
"""What the script writes before it gives it its name; it stays where that could not be done."""
NO_EXIT_WRITTEN = "the job script could not write the record of its end"
"""The reason that the queue of this machine gives in its place."""
ARRAY = ".array-"
"""Begins the name of an array's folder, whose links lead from its tasks to their runs. It lies beside the runs and in no
folder that all arrays share: who had made that one could rename what others put there."""
CARRIED = ".code"
"""The folder beside the runs for what travels with them."""


def carried_file(logs: Path, digest: str, suffix: str) -> Path:
    """Where a file with that SHA-256 belongs; each user has one, for nobody else's can be trusted to stay there."""
    return logs.absolute() / CARRIED / f"{digest[:12]}-{os.geteuid()}{suffix}"


def array_folder(logs: Path, array: str) -> Path:
    """The folder of the array of that name among the runs in `logs`."""
    return logs / f"{ARRAY}{array}"


@dataclass(frozen=True)
class RunPaths:
    """The files of one run."""

    root: Path

    @property
    def run_id(self) -> str:
        return self.root.name

    def write(self, path: Path, value: Any) -> None:
        """Write one of the run's records, whole or not at all; a folder that was removed is not made anew.

        Raises:
            OSError: the folder is gone, or cannot be written, or a folder within it is a link.
        """
        if not self.root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the run folder was removed", str(self.root))
        if path.parent != self.root and path.parent.is_symlink():
            raise OSError(errno.ELOOP, "it is a link", str(path.parent))
        write_json(path, value)

    @property
    def experiment(self) -> Path:
        """The resolved plan with its origins, the versions and the git commit."""
        return self.root / HEART

    @property
    def script(self) -> Path:
        """The batch script exactly as submitted."""
        return self.root / "job.sh"

    @property
    def job(self) -> Path:
        """Which job it is: written before the scheduler is asked, completed by its answer."""
        return self.root / JOB_FILE

    @property
    def submission(self) -> Path:
        """What version 0.1 wrote in place of `job`: scheduler, job id and time, and no UUID."""
        return self.root / "submission.json"

    @property
    def started(self) -> Path:
        """One JSON object a try, appended by the first statement of the job script: its job id, cluster and time."""
        return self.root / "started.jsonl"

    @property
    def scheduler_record(self) -> Path:
        """What the scheduler last said of the job once it was over: sites forget their jobs."""
        return self.root / "scheduler.json"

    @property
    def tries(self) -> Path:
        """What the tries before the last one left: a job that Slurm queues again keeps its folder."""
        return self.root / "tries"

    def earlier_tries(self) -> list[RunPaths]:
        """The folders of the tries before the last one, in order; each has the files of a run that a try writes."""
        return [RunPaths(folder) for _, folder in _numbered(self.tries)]

    @property
    def search(self) -> Path:
        """The tries of a search, each a run of its own in a folder that its number names; they outlive a try of the whole run."""
        return self.root / "search"

    def search_try(self, number: int) -> RunPaths:
        """That of one try."""
        return RunPaths(self.search / str(number))

    def search_tries(self) -> list[tuple[int, RunPaths]]:
        """Number and folder of each try that there is, in order."""
        return [(number, RunPaths(folder)) for number, folder in _numbered(self.search)]

    def left_by_try(self) -> list[str]:
        """Which of the files that a try writes are there."""
        return [path.name for pattern in TRY_FILES for path in sorted(self.root.glob(pattern))]

    @property
    def submitit(self) -> Path:
        """What submitit writes."""
        return self.root / "submitit"

    @property
    def process(self) -> Path:
        """Which process leads the local queue that holds the run and, once started, its script."""
        return self.submitit / "process.json"

    def start_mark(self, uuid: str) -> Path:
        """Who has started it for that submission: only one can make it (see `schedulers.local.start`)."""
        return self.submitit / f"start-{uuid}.json"

    @property
    def kept_answer(self) -> Path:
        """What version 0.1 kept of the scheduler's answer, with the outcome that it made of it."""
        return self.submitit / "final.json"

    @property
    def stdout(self) -> Path:
        return self.root / "log.out"

    @property
    def stderr(self) -> Path:
        return self.root / "log.err"

    @property
    def steps(self) -> Path:
        """One JSON object a training step, appended as it happens."""
        return self.root / "steps.jsonl"

    @property
    def evaluations(self) -> Path:
        """One JSON object an evaluation between steps, appended as it happens."""
        return self.root / "evaluations.jsonl"

    @property
    def outputs(self) -> Path:
        """One JSON object a query that was answered, with what was generated; written whole at the end, where it is asked for."""
        return self.root / "outputs.jsonl"

    @property
    def vllm(self) -> Path:
        """What vLLM's own benchmark wrote, where that answered."""
        return self.root / "vllm-latency.json"

    @property
    def baseline_metrics(self) -> Path:
        """The result of inference in the words of the project whose flags started it."""
        return self.root / "baseline_inference_metrics.json"

    @property
    def finetune_metrics(self) -> Path:
        """The result of fine-tuning in the words of the same project."""
        return self.root / "baseline_finetune_metrics.json"

    @property
    def profile(self) -> Path:
        """What a few steps behind the measured ones were made of, where it is asked for."""
        return self.root / "profile.json"

    @property
    def trace(self) -> Path:
        """All that those steps did, as Chrome and Perfetto show it."""
        return self.root / "profile-trace.json.gz"

    def profiles(self) -> list[Path]:
        """What profilers left of it: a summary and a trace of torch's, reports of a GPU maker's, one a rank."""
        own = [path for path in (self.profile, self.trace) if path.is_file()]
        return [*own, *sorted(path for path in self.root.glob("profile-rank-*") if path.is_file())]

    @property
    def checkpoints(self) -> Path:
        """What the training can go on from, a folder each (see `records.checkpoints`); it outlives a try."""
        return self.root / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """What was kept when so many steps were done."""
        return self.checkpoints / f"step-{step}"

    @property
    def model(self) -> Path:
        """What was trained, for use: a whole model or an adapter, as Hugging Face's libraries load it."""
        return self.root / "model"

    @property
    def wanted_by(self) -> Path:
        """A file for each run that was submitted and needs something of this one, in whatever folder that lies."""
        return self.root / "wanted-by"

    def wanted_by_run(self, run_id: str, uuid: str) -> Path:
        """That of the run which was submitted so."""
        return self.wanted_by / f"{file_name_part(run_id, 200)}-{uuid[:8]}.json"

    @property
    def removed(self) -> Path:
        """What `clean` took away of it, and when (see `records.removed`)."""
        return self.root / "removed.json"

    @property
    def stop(self) -> Path:
        """Made by the job script, where the ranks are to save and end."""
        return self.root / "stop"

    @property
    def telemetry(self) -> Path:
        """One JSON object a GPU and second, appended as it happens; of the first node where there are several."""
        return self.telemetry_of(0)

    def telemetry_of(self, node: int) -> Path:
        """The same of any node, counted from 0."""
        return self.root / (f"telemetry-{node}.jsonl" if node else "telemetry.jsonl")

    def telemetry_files(self) -> list[Path]:
        """Those of all nodes that left one."""
        return sorted(self.root.glob("telemetry*.jsonl"))

    @property
    def nccl(self) -> Path:
        """What NCCL says on the first rank as it begins, where the run is on several nodes."""
        return self.root / "nccl.log"

    @property
    def result(self) -> Path:
        """The summary of the measured numbers."""
        return self.root / RESULT_FILE

    @property
    def exit(self) -> Path:
        """Written by the job script on its way out."""
        return self.root / EXIT_FILE

    def half_exits(self) -> list[Path]:
        """What the job script began to write of its end and could not."""
        return [path for path in self.root.iterdir() if path.name.startswith(HALF_EXIT)]

    @property
    def cancelled(self) -> Path:
        """Marker: the user asked to cancel this run."""
        return self.root / CANCELLED_FILE

    @property
    def failures(self) -> Path:
        return self.root / "failures"

    def failure(self, rank: int) -> Path:
        """The error of one rank."""
        return self.failures / f"rank-{rank}.json"

    def failure_records(self) -> list[dict[str, Any]]:
        """The errors of all ranks that left one, the earliest first; each has its rank and a time."""
        records = [
            {**record, "rank": int(_number(record.get("rank"))), "time": _number(record.get("time"))}
            for path in sorted(self.failures.glob("rank-*.json"))
            if (record := read_json(path))
        ]
        return sorted(records, key=lambda record: float(record["time"]))


_RECORDS = frozenset(
    path.parts[0]
    for name, member in vars(RunPaths).items()
    if isinstance(member, property) and isinstance(path := getattr(RunPaths(Path()), name), Path)
)


def is_record(path: str) -> bool:
    """Whether a path, relative to the folder of a run, is one of its records or lies in one.

    >>> is_record("result.json"), is_record("./tries/1/x"), is_record("telemetry-3.jsonl"), is_record("profile/result.json")
    (True, True, True, False)
    """
    first = os.path.normpath(path).split(os.sep)[0]
    return first in _RECORDS or any(fnmatch(first, pattern) for pattern in TRY_FILES)


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """The folders in it that are called by numbers, in their order; none where it is a link, for ours is none."""
    try:
        with os.scandir(folder) as found:
            numbers = sorted(
                int(e.name) for e in found if e.name.isascii() and e.name.isdecimal() and not e.is_symlink()
            )
    except OSError:
        return []
    return [] if folder.is_symlink() else [(number, folder / str(number)) for number in numbers]


def _number(value: object) -> float:
    """The number that a record holds, 0 where somebody damaged it."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else 0.0


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run of ours; one that nobody may look into is none."""
    try:
        return RunPaths(folder).experiment.is_file()
    except OSError:
        return False


def iter_runs(logs: Path) -> Iterator[RunPaths]:
    """The runs directly under `logs`, oldest first (their names start with the time).

    A folder that cannot be looked into is passed over with a warning. A link to a run beside it is no second run.
    """
    try:
        with os.scandir(logs) as found:
            entries = sorted((e for e in found if not e.name.startswith(".")), key=lambda e: e.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    names = {entry.name for entry in entries}
    for entry in entries:
        try:
            if _is_run_entry(entry, names, logs):
                yield RunPaths(logs / entry.name)
        except OSError as error:
            pass_over(entry.path, reason_of(error))


def _is_run_entry(entry: os.DirEntry[str], names: set[str], logs: Path) -> bool:
    """Whether this entry of `logs` is a run, and not another name of one; raises OSError where nobody can or should say."""
    try:
        is_file = stat.S_ISREG(os.stat(RunPaths(Path(entry.path)).experiment).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not is_file or not entry.is_symlink():
        return is_file
    if not is_trusted_link(entry.path):
        raise PermissionError(errno.EPERM, NOT_THEIRS)
    target = Path(entry.path).resolve()
    return not (target.name in names and target.parent == logs.resolve())


def file_name_part(text: str, limit: int = 40) -> str:
    """`text` as a part of a file name: letters, digits, dot, underscore and hyphen only.

    >>> file_name_part("z3+o+r")
    'z3-o-r'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:limit].rstrip("-.") or "x"
