"""The life of a run folder around submission: named, made whole out of sight, shown, completed, or taken back."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import shutil
import string
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from hpc_llm.errors import ProfileError, RequestError, SubmissionError
from hpc_llm.records.files import load_json_lines, make_own_folder, make_shared_folder, new_file, read_json, read_text
from hpc_llm.records.run import RunPaths, array_folder, file_name_part, is_run
from hpc_llm.schedulers.claim import claim, claim_folder
from hpc_llm.schedulers.identity import Identity, identity_of, is_job_of
from hpc_llm.schedulers.ledger import forget, note
from hpc_llm.schedulers.scheduler import find
from hpc_llm.schedulers.submission import Submission, digest_of, now
from hpc_llm.text.json_text import DamagedRecordError

INCOMING = ".incoming-"
"""Begins the name of the folder in which those of a request are made; they are shown when all are whole. Each request has one
of its own, beside the runs: in a folder that another user has made, what is made could be replaced."""
_LETTERS = string.ascii_lowercase + string.digits
_UNCLEAR = re.compile(
    r"timed out|timeout|zero bytes|unexpected message|reset by peer|broken pipe|communication|protocol|not connected"
    r"|message length|unpack|header|submitted batch job",
    re.IGNORECASE,
)
"""Words of sbatch that leave open whether Slurm has taken the job, whatever its exit code."""
_ACCEPTED = re.compile(r"^[ \t]*Submitted batch job ([1-9][0-9]{0,9})\b[^\n]*\n", re.MULTILINE)
"""A line with its end: of one that is cut short the number may be another job's."""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """What a run's folder holds before it is submitted."""

    run_id: str
    experiment: Mapping[str, Any]
    script: str


def new_run_id(
    cluster: str, method: str, model: str, now: datetime, rng: random.Random, taken: Container[str] = ()
) -> str:
    """`YYYYMMDD-HHMMSS-cluster-method-model-xxxx`, none of `taken`; pass the ids of the same sweep as `taken`."""
    parts = [file_name_part(part) for part in (cluster, method, Path(model).name)]
    while True:
        run_id = "-".join([f"{now:%Y%m%d-%H%M%S}", *parts, "".join(rng.choices(_LETTERS, k=4))])
        if run_id not in taken:
            return run_id


def create_runs(logs: Path, groups: Sequence[tuple[Submission, Sequence[NewRun]]]) -> list[list[RunPaths]]:
    """Make the folders of all runs of one request, each with its experiment, its script and the intent to submit it.

    They are made out of sight and then renamed: a command that is killed meanwhile leaves no half of a run. Before one can be seen
    its submission is noted outside of them (`ledger`). Returns the runs of each group.

    Raises:
        RequestError: `logs` already holds a run or an array of that name; an attempt is never overwritten, and nothing of
            this request is left then.
    """
    logs = logs.absolute()
    staging = logs / f"{INCOMING}{uuid4()}"
    try:
        make_shared_folder(logs)
        staging.mkdir(0o755)
        owner = staging.lstat().st_uid
    except OSError as error:
        raise SubmissionError(
            f"{logs} cannot be written ({error.strerror}): nothing was submitted; --logs DIR"
        ) from error
    shown: list[Path] = []
    try:
        for submission, runs in groups:
            _make(staging, logs, submission, runs)
            folder = claim_folder(RunPaths(staging / runs[0].run_id), submission.array)
            if not claim(folder):
                new_file(folder / ".claim").close()  # what hinders it says why
                raise OSError(errno.EIO, "no file can be made that only one process makes", str(staging))
        for submission, runs in groups:
            note(submission, logs, {run.run_id: digest_of(run.script.encode()) for run in runs})
        for submission, runs in groups:
            if submission.array is not None:  # first, for it holds the claim
                array = submission.array
                _show(array_folder(staging, array), array_folder(logs, array), f"a job array {array}", shown, owner)
            for run in runs:
                _show(staging / run.run_id, logs / run.run_id, f"a run {run.run_id}", shown, owner)
    except BaseException as error:
        for folder in shown:
            shutil.rmtree(folder, ignore_errors=True)
        forget(submission.uuid for submission, _ in groups)
        if isinstance(error, OSError):
            raise SubmissionError(f"{logs} cannot be written ({error.strerror}): nothing was submitted") from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [[RunPaths(logs / run.run_id) for run in runs] for _, runs in groups]


def _make(staging: Path, logs: Path, submission: Submission, runs: Sequence[NewRun]) -> None:
    """The folders of one submission under `staging`; equal scripts are one file with several names."""
    scripts: dict[str, Path] = {}
    for task, new in enumerate(runs):
        run = RunPaths(staging / new.run_id)
        make_own_folder(run.root)
        if not _linked(scripts.get(new.script), run.script):
            with new_file(run.script, 0o755) as file:
                file.write(new.script)
            scripts.setdefault(new.script, run.script)
        _write(run.experiment, new.experiment)
        _write(run.job, submission.intent(logs / new.run_id, task))
    if submission.array is not None:
        _link_array(array_folder(staging, submission.array), [new.run_id for new in runs])
    make_own_folder(submitit_folder(RunPaths(staging / runs[0].run_id), submission.array))


def _linked(original: Path | None, name: Path) -> bool:
    """Whether `name` could be made another name of the file `original`."""
    try:
        if original is not None:
            os.link(original, name)
    except OSError:  # a file system without hard links, or their limit is reached
        return False
    return original is not None


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """Nobody sees the folder yet, so no temporary name is needed."""
    with new_file(path) as file:
        file.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _link_array(folder: Path, run_ids: Sequence[str]) -> None:
    """Make `folder/<k>` lead to the k-th run, so that one `--output=folder/%a/log.out` serves all tasks."""
    make_own_folder(folder)
    for task, run_id in enumerate(run_ids):
        (folder / str(task)).symlink_to(Path("..", run_id))


def _show(made: Path, shown: Path, what: str, done: list[Path], owner: int) -> None:
    """Rename a whole folder to where it is seen: of two commands with the same name one wins."""
    try:
        os.rename(made, shown)
    except OSError as error:
        if not shown.is_dir():
            raise
        raise RequestError(f"there is already {what} in {shown.parent}: leave --run-id out, or give another") from error
    if shown.lstat().st_uid != owner:
        raise SubmissionError(
            f"what was made as {shown} is somebody else's by now: nothing was submitted. Others can rename what lies in "
            f"{shown.parent}: `chmod +t` it, or keep your runs in a folder of your own (--logs DIR)."
        )
    done.append(shown)


def discard_run(run: RunPaths) -> None:
    """Take a run back that never was submitted: what submission has made, and the folder where nothing else lies in it."""
    others = set(others_in(run))
    with contextlib.suppress(OSError):
        for path in [path for path in run.root.iterdir() if path.name not in others]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        run.root.rmdir()


def others_in(run: RunPaths) -> list[str]:
    """The names in the folder of a run that submission does not make: a person or a job has put them there."""
    made = (run.experiment, run.job, run.script, run.submission, run.scheduler_record, run.submitit)
    names = tuple(path.name for path in made)
    halves = (".claim", *(f".{name}." for name in names))  # a process that was killed leaves what it was writing
    with contextlib.suppress(OSError):
        return sorted(
            one.name for one in run.root.iterdir() if one.name not in names and not one.name.startswith(halves)
        )
    return []


def take_back(runs: Sequence[RunPaths], array: str | None, uuid: str | None) -> None:
    """Remove the folders of a submission, or of some of its runs, that reached no scheduler.

    What was made anew under the same names, by a submission of another UUID, stays. The links of an array stay as long
    as one of its tasks is left: it prints through them.
    """
    ours = [run for run in runs if (read_json(run.job) or {}).get("uuid") == uuid]
    links = [] if array is None else _links(array, ours)
    for run in ours:
        discard_run(run)
    for link in links:
        link.unlink(missing_ok=True)
    if links and not any(path.name.isdecimal() for path in links[0].parent.iterdir()):
        shutil.rmtree(links[0].parent, ignore_errors=True)
    forget([uuid])


def _links(array: str, runs: Sequence[RunPaths]) -> list[Path]:
    """The links by which the tasks of `array` find these runs."""
    tasks = [((read_json(run.job) or {}).get("array_task"), run) for run in runs]
    paths = [(array_folder(run.root.parent, array) / str(task), run) for task, run in tasks if isinstance(task, int)]
    return [path for path, run in paths if path.is_symlink() and Path(os.readlink(path)).name == run.run_id]


def submitit_folder(run: RunPaths, array: str | None) -> Path:
    """Where submitit writes, and the answer of sbatch is kept: with the run, or with the array that holds it."""
    return run.submitit if array is None else array_folder(run.root.parent, array) / "submitit"


def asking_file(folder: Path) -> Path:
    """Which process asks, or asked, sbatch."""
    return folder / "asking.json"


def answer_file(folder: Path) -> Path:
    """sbatch's own answer, kept from the moment that it gives it."""
    return folder / "sbatch.json"


def accepted_job_id(answer: str) -> str | None:
    """The job id in what sbatch prints, among whatever a site makes it say besides; None where it says several, or half of one.

    >>> accepted_job_id("INFO: job 7 of your limit of 20\\nSubmitted batch job 4711 on cluster x\\n")
    '4711'
    >>> accepted_job_id("Submitted batch job 47")
    """
    found = set(_ACCEPTED.findall(answer))
    return found.pop() if len(found) == 1 else None


def read_identity(run: RunPaths) -> Identity | None:
    """Which job the run is; None where nothing tells, as in a copy without its records.

    A job id that nobody could write into job.json any more is taken from the answer of sbatch, or from the script, whose
    first statement writes it down.
    """
    record = read_json(run.job)
    if record is None:
        record = read_json(run.submission)
        return identity_of(record) if record is not None else _answered_before(run)
    identity = identity_of(record)
    if identity is None or not identity.has_job:
        return identity
    if identity.job_id is not None:
        return where_it_ran(identity, _starts(run))
    job_id = _told(run, identity, record) or _started(run, identity)
    return identity if job_id is None else identity.with_job(job_id)


def _told(run: RunPaths, identity: Identity, record: Mapping[str, Any]) -> str | None:
    with contextlib.suppress(ProfileError):  # not known here any more
        return find(identity.scheduler).told_job_id(run, record)
    return None


def is_run_of(folder: Path, uuid: str) -> bool:
    """Whether a run stands in `folder` that is of the submission `uuid`, and not another one under its name."""
    return is_run(folder) and (read_json(RunPaths(folder).job) or {}).get("uuid") == uuid


def original_of(run: RunPaths, identity: Identity, planned_as: object = None) -> Path | None:
    """The folder of which this one is a copy; None for the run itself, be it that its folder was renamed or moved since.

    `planned_as` is the run id of experiment.json: it names the original where somebody wrote the copy's name into job.json.
    """
    if identity.uuid is None:
        return None
    names = [name for name in (identity.run_id, planned_as) if isinstance(name, str) and name not in ("", run.run_id)]
    places = [run.root.parent / Path(name).name for name in names]
    places += [Path(identity.run_dir)] if identity.run_dir else []
    own = run.root.absolute()
    others = (one for one in places if one.absolute() != own and is_run_of(one, identity.uuid))
    return next((one for one in others if not _is_same(one, run.root)), None)


def _is_proven_copy(run: RunPaths, original: Path) -> bool:
    """Whether two folders of one run are two. On two devices they may be one that is mounted twice: no number tells."""
    try:
        return run.root.stat().st_dev == original.stat().st_dev
    except OSError:
        return False


def _name_of_original(run: RunPaths, original: Path) -> str:
    """How to name the run of which `run` is a copy: by its folder where its name would not tell them apart."""
    return original.name if original.parent == run.root.absolute().parent else str(original)


def in_words_of_copy(run: RunPaths, original: Path) -> str:
    """That a folder is not taken for the run that its records are of."""
    name = _name_of_original(run, original)
    if _is_proven_copy(run, original):
        return f"its folder is a copy of run {name}"
    return f"its folder is run {name} by another way, or a copy of it on another file system: nothing here tells which"


def _is_same(one: Path, other: Path) -> bool:
    """Whether it is one folder, by whatever way it was reached."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def where_it_ran(identity: Identity, starts: Iterable[Mapping[str, Any]]) -> Identity:
    """The same job, of the cluster on which its script says that it runs: in a federation that need not be the one asked."""
    job_id = identity.job_id or ""
    parent = job_id if identity.array_task is None else job_id.partition("_")[0]
    for line in starts:
        cluster, name = line.get("cluster"), line.get("job_name")
        proven = isinstance(name, str) and is_job_of(identity.uuid or "", name, None)
        if proven and line.get("job_id") == parent and isinstance(cluster, str) and cluster:
            identity = replace(identity, cluster=cluster)
    return identity


def answered_job_id(folder: Path) -> str | None:
    """The job id that sbatch gave; one that failed may have been told of another job by the site, and proves nothing."""
    answer = read_json(answer_file(folder)) or {}
    told = answer.get("stdout")
    return accepted_job_id(told) if isinstance(told, str) and answer.get("returncode") == 0 else None


def is_refusal(answer: Mapping[str, Any] | None) -> bool:
    """Whether sbatch ended by itself with a message by which Slurm has not taken the job."""
    code = (answer or {}).get("returncode")
    said = " ".join(str((answer or {}).get(stream)) for stream in ("stdout", "stderr"))
    return isinstance(code, int) and 0 < code < 128 and _UNCLEAR.search(said) is None


def _starts(run: RunPaths) -> list[dict[str, Any]]:
    """What the script has written of its starts; nothing where that cannot be read."""
    try:
        return load_json_lines(run.started)
    except DamagedRecordError:
        return []


def _started(run: RunPaths, identity: Identity) -> str | None:
    """The job id that the script itself found, where it ran on the cluster that was asked."""
    for line in _starts(run):
        job_id, cluster = line.get("job_id"), line.get("cluster")
        known = identity.cluster is None or cluster in (None, "", identity.cluster)
        name = line.get("job_name")
        ours = not isinstance(name, str) or is_job_of(identity.uuid or "", name, None)
        if isinstance(job_id, str) and identity.facts.is_job_id(job_id) and known and ours:
            return job_id
    return None


def _answered_before(run: RunPaths) -> Identity | None:
    """Of a run of version 0.1 whose command died before it wrote the submission down."""
    job_id = accepted_job_id(read_text(run.submitit / "sbatch.out") or "")
    return Identity(scheduler="slurm", job_id=job_id) if job_id else None


def write_job(run: RunPaths, job_id: str, **more: Any) -> None:
    """Complete job.json with the scheduler's answer; `job_id` is as the scheduler's commands take it: `123` or `123_4`."""
    record = read_json(run.job)
    if record is None:
        raise RequestError(f"run {run.run_id} has no job.json: its folder is damaged. `hpc-llm reconcile` looks again.")
    run.write(run.job, {**record, "job_id": job_id, "submitted_at": now(), **more})
