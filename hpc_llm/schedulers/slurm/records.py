"""What sacct and squeue print, as records. Pure text in, data out.

Either may be a site's own program around Slurm's, or be cut off by whatever lies between. So what they print is an answer only
with the header that they print before the first job and without any; a line counts where it is one of Slurm's; and of a
list with a line that cannot be read nothing follows from what it lacks.

>>> text = "JobID|State|ExitCode\\n315_[2-4%2]|PENDING|0:0\\n7|CANCELLED by 0|0:15\\n"
>>> sorted(read_sacct(text).jobs)
['315_2', '315_3', '315_4', '7']
>>> [record.state for record in read_sacct(text).jobs["7"]], read_sacct("").flaw
(['CANCELLED'], 'sacct printed nothing, not even its header')
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hpc_llm.schedulers.job_record import FINAL_STATES, LIVE_STATES, MUST_HAVE_BEGUN, JobRecord
from hpc_llm.text.numbers import whole_number
from hpc_llm.text.shown import one_line

SACCT_FIELDS = (
    "JobID,State,ExitCode,DerivedExitCode,Reason,Submit,Start,End,ElapsedRaw,NodeList,Cluster,JobName,Comment"
)
SACCT_DELIMITER = "\x1f"
"""A job's name may hold any other character."""
_SQUEUE_COLUMNS = {
    "JobArrayID": 40, "State": 20, "Reason": 160, "SubmitTime": 24, "StartTime": 24, "EndTime": 24, "TimeUsed": 20,
    "exit_code": 12, "UserID": 16, "NodeList": 256, "Comment": 64, "Name": 256,
}  # fmt: skip
"""Fixed widths: the one form that old and new versions of squeue share and that has the exit code.

What people write stands last: squeue counts bytes, and one character of theirs may be several."""
SQUEUE_FIELDS = ",".join(f"{name}:{width}" for name, width in _SQUEUE_COLUMNS.items())
_OUTPUT_COLUMNS = {"JobArrayID": 64, "Comment": 256, "STDOUT": 4096}
OUTPUT_FIELDS = ",".join(f"{name}:{width}" for name, width in _OUTPUT_COLUMNS.items())
_TITLES = {"JobArrayID": "JOBID", "State": "STATE", "Comment": "COMMENT"}
"""What every version of squeue writes above these columns."""

_OOM_EXIT = (0, 125)
"""How Slurm codes "killed for memory" where it does not say OUT_OF_MEMORY."""
_SINGLE = re.compile(r"[1-9][0-9]{0,9}(?:[_+][0-9]{1,9})?")
"""The id of a job, of a task of an array, or of a part of a job of several kinds of nodes."""
_ARRAY_RANGE = re.compile(r"(?P<job>[1-9][0-9]{0,9})_\[(?P<tasks>[^\]%]*)(?:%[0-9]{1,9})?\]")
_HIGHEST_TASK = 4_000_000
"""Slurm's own bound."""
_MOST_TASKS = 100_000
"""Of one line, and of those of a list together: squeue is asked for a line a task, and no sweep has so many."""
_SET_BACK_S = 3600.0
"""So far may an end lie before a start by local time, where the clocks are set back."""
_AT_ONCE_S = 30.0
_SHOWN = 60
"""Letters of a line that nobody can read."""


@dataclass(frozen=True)
class Listing:
    """What one of Slurm's commands has listed."""

    jobs: Mapping[str, list[JobRecord]]
    """Records by job id, of one job in the order of its tries."""
    flaw: str = ""
    """Why nothing follows from what is not listed; empty where all that was printed has been read."""


def read_sacct(text: str) -> Listing:
    """What `sacct --parsable2 --duplicates` lists, header included.

    A job that was queued again comes once for each try, oldest first, and so do the jobs of several people where ids were
    given out anew. Lines of steps only add what the line of their job hides: with srun, running out of memory shows on the
    step alone.
    """
    lines = text.split("\n")
    at = next((number for number, line in enumerate(lines) if {"JobID", "State"} <= set(_parts(line))), None)
    if at is None:
        return Listing({}, _no_header("sacct", text))
    delimiter, names = _delimiter(lines[at]), _parts(lines[at])
    jobs: dict[str, list[JobRecord]] = {}
    flaw, spread = _cut_short("sacct", text), 0
    for line in lines[at + 1 :]:
        values = dict(zip(names, line.split(delimiter), strict=False))
        job_id, is_step, _ = values.get("JobID", "").partition(".")
        if is_step:
            if job_id in jobs and _is_out_of_memory(values):
                jobs[job_id][-1] = replace(jobs[job_id][-1], out_of_memory=True)
        elif (singles := _jobs_of(job_id, _state(values))) is None:
            flaw = flaw or _unreadable("sacct", line)
        else:
            record = _sacct_record(values)
            if "End" in values and not _can_be(record):
                flaw = flaw or _contradiction("sacct", job_id, record)
                continue
            spread += max(len(singles) - 1, 0)
            if spread > _MOST_TASKS:
                return Listing({}, _too_many("sacct"))
            for single in singles:
                jobs.setdefault(single, []).append(record)
    return Listing(jobs, flaw)


def read_squeue(text: str) -> Listing:
    """What `squeue --Format=SQUEUE_FIELDS` lists, header included; one record a job."""
    rows, flaw = _rows(text, _SQUEUE_COLUMNS)
    jobs: dict[str, list[JobRecord]] = {}
    spread = 0
    for line, values in rows:
        singles = _jobs_of(values["JobArrayID"], values["State"])
        if singles is None:
            flaw = flaw or _unreadable("squeue", line)
            continue
        record = _squeue_record(values)
        if not _can_be(record) or _is_expected(record):
            flaw = flaw or _contradiction("squeue", values["JobArrayID"], record)
            continue
        spread += max(len(singles) - 1, 0)
        if spread > _MOST_TASKS:
            return Listing({}, _too_many("squeue"))
        for single in singles:
            jobs[single] = [record]
    return Listing(jobs, flaw)


def read_outputs(text: str) -> tuple[list[tuple[str, str, str]], str]:
    """Of each job that `squeue --Format=OUTPUT_FIELDS` lists its id, its comment and where it prints; and the flaw of the list."""
    rows, flaw = _rows(text, _OUTPUT_COLUMNS)
    found = []
    for line, values in rows:
        job_id, path = values["JobArrayID"], values["STDOUT"]
        if _SINGLE.fullmatch(job_id):  # of an array that waits the path is the pattern
            found.append((job_id, values["Comment"], path.replace("%a", job_id.partition("_")[2])))
        elif _jobs_of(job_id, "PENDING") is None:
            flaw = flaw or _unreadable("squeue", line)
    return found, flaw


def _rows(text: str, columns: Mapping[str, int]) -> tuple[list[tuple[str, dict[str, str]]], str]:
    """The lines below the header, each with its columns, and the flaw of what was printed."""
    lines = text.split("\n")
    titled = {name: title for name, title in _TITLES.items() if name in columns}

    def is_header(values: Mapping[str, str]) -> bool:
        return all(values[name] == title for name, title in titled.items())

    cut = [(line, _columns(line, columns)) for line in lines]
    at = next((number for number, (_, values) in enumerate(cut) if is_header(values)), None)
    if at is None:
        return [], _no_header("squeue", text)
    rows = [(line, values) for line, values in cut[at + 1 :] if line.strip() and not is_header(values)]
    return rows, _cut_short("squeue", text)


def _jobs_of(job_id: str, state: str) -> Sequence[str] | None:
    """The ids that a line is of; None where it may be one of a job and cannot be read. A site's own notice is of no job."""
    is_text = job_id.isprintable() and "\ufffd" not in job_id
    if is_text and (" " in job_id or not job_id[:1].isdigit()):
        return ()
    if state not in LIVE_STATES | FINAL_STATES:
        return None
    return (job_id,) if _SINGLE.fullmatch(job_id) else _tasks_of(job_id)


def _can_be(record: JobRecord) -> bool:
    """Whether the times of a job that is over agree with its state: an end has a time, and what completed was somewhere."""
    if record.state not in FINAL_STATES or record.is_revoked:
        return True
    if record.ended_at is None or (record.state in MUST_HAVE_BEGUN and not _was_at_work(record)):
        return False
    return record.started_at is None or record.ended_at > record.started_at - _SET_BACK_S


def _was_at_work(record: JobRecord) -> bool:
    return record.started_at is not None and (record.nodes is not None or bool(record.elapsed_s))


def _is_expected(record: JobRecord) -> bool:
    """Whether the times are those that the queue expects of a job that waits: one that is ended meanwhile gets one time for both."""
    if record.is_live or _was_at_work(record) or record.started_at is None or record.ended_at is None:
        return False
    return record.ended_at - record.started_at > _AT_ONCE_S


def _contradiction(command: str, job_id: str, record: JobRecord) -> str:
    return f"{command} says {record.state} of job {job_id} and gives it times by which that cannot be"


def _no_header(command: str, text: str) -> str:
    if not text.strip():
        return f"{command} printed nothing, not even its header"
    return f"{command} printed what is none of its lists: {_shown(text)}"


def _cut_short(command: str, text: str) -> str:
    return "" if text.endswith("\n") else f"what {command} printed is cut short"


def _unreadable(command: str, line: str) -> str:
    return f"{command} printed a line that cannot be read: {_shown(line)}"


def _too_many(command: str) -> str:
    return f"{command} lists arrays of more than {_MOST_TASKS} tasks, which is no list that can be read"


def _shown(text: str) -> str:
    if not text[:1000].isprintable() and any("\ud800" <= one <= "\udfff" for one in text[:1000]):
        return "it is no text"
    words = " ".join(one_line(text[:1000]).split())
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


def _delimiter(line: str) -> str:
    return SACCT_DELIMITER if SACCT_DELIMITER in line else "|"


def _parts(line: str) -> list[str]:
    return line.split(_delimiter(line))


def latest(records: Iterable[JobRecord]) -> JobRecord | None:
    """The last of the records of one job, which are in the order of its tries."""
    return next(iter(deque(records, maxlen=1)), None)


def _columns(line: str, columns: Mapping[str, int]) -> dict[str, str]:
    """The columns, whose widths are in bytes: what people write may be cut in the middle of a character."""
    told, values, start = line.encode("utf-8", "surrogateescape"), {}, 0
    for name, width in columns.items():
        values[name] = told[start : start + width].decode("utf-8", "replace").strip()
        start += width
    return values


def _squeue_record(values: dict[str, str]) -> JobRecord:
    status = whole_number(values["exit_code"])  # as wait(2) gives it: one that tells a signal tells no exit code
    signal = None if status is None else status & 127
    return JobRecord(
        state=values["State"],
        exit_code=None if status is None else 0 if signal else status >> 8,
        signal=signal,
        reason=_word(values["Reason"]),
        user_id=whole_number(values["UserID"]),
        job_name=values["Name"] or None,
        comment=_word(values["Comment"].replace("(null)", "")),
        submitted_at=_unix_time(values["SubmitTime"]),
        started_at=_unix_time(values["StartTime"]),
        # While it goes on, that is when its time is up.
        ended_at=_unix_time(values["EndTime"]) if values["State"] in FINAL_STATES else None,
        elapsed_s=_seconds(values["TimeUsed"]),
        nodes=_word(values["NodeList"]),
        out_of_memory=values["State"] == "OUT_OF_MEMORY",
    )


def expand_job_id(job_id: str) -> Iterator[str]:
    """The single ids of what a scheduler writes for several tasks; none of what it would not write.

    >>> list(expand_job_id("46_[0-2,7%16]"))
    ['46_0', '46_1', '46_2', '46_7']
    >>> list(expand_job_id("46")), list(expand_job_id("46_[0-99999999999]"))
    (['46'], [])
    """
    if _SINGLE.fullmatch(job_id):
        yield job_id
    else:
        yield from _tasks_of(job_id) or ()


def _tasks_of(job_id: str) -> list[str] | None:
    """The ids of the tasks of an array, None where that is no expression of some that Slurm could have."""
    array = _ARRAY_RANGE.fullmatch(job_id)
    if array is None:
        return None
    tasks: list[range] = []
    for part in array["tasks"].split(","):
        if part == "...":  # where the list was too long to be printed
            continue
        some = _range_of(part)
        if some is None or sum(map(len, tasks)) + len(some) > _MOST_TASKS:
            return None
        tasks.append(some)
    return [f"{array['job']}_{task}" for some in tasks for task in some]


def _range_of(part: str) -> range | None:
    """The numbers of `3`, `0-7` or `0-7:2`."""
    first, has_last, rest = part.partition("-")
    last, has_step, step = rest.partition(":")
    numbers = [whole_number(text) for text in (first, last if has_last else first, step if has_step else "1")]
    if any(number is None or number > _HIGHEST_TASK for number in numbers) or not numbers[2]:
        return None
    return range(numbers[0] or 0, (numbers[1] or 0) + 1, numbers[2])


def compress_job_ids(job_ids: list[str]) -> list[str]:
    """The shortest way to name the same jobs to scancel, one request an array.

    >>> compress_job_ids(["7", "46_0", "46_1", "46_2", "46_9"])
    ['7', '46_[0-2,9]']
    """
    single = [job_id for job_id in job_ids if "_" not in job_id]
    arrays: dict[str, list[int]] = {}
    for job_id in job_ids:
        array, is_task, task = job_id.partition("_")
        if is_task:
            arrays.setdefault(array, []).append(int(task))
    return single + [f"{array}_[{_ranges(sorted(tasks))}]" for array, tasks in arrays.items()]


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _sacct_record(values: dict[str, str]) -> JobRecord:
    exit_code, signal = _exit(values.get("ExitCode", ""))
    return JobRecord(
        state=_state(values),
        exit_code=exit_code,
        signal=signal,
        reason=_word(values.get("Reason", "")),
        cluster=values.get("Cluster") or None,
        job_name=values.get("JobName") or None,
        comment=values.get("Comment") or None,
        submitted_at=_unix_time(values.get("Submit", "")),
        started_at=_unix_time(values.get("Start", "")),
        ended_at=_unix_time(values.get("End", "")),
        elapsed_s=_seconds(values.get("ElapsedRaw", "")),
        nodes=_word(values.get("NodeList", "")),
        out_of_memory=_is_out_of_memory(values),
    )


def _state(values: dict[str, str]) -> str:
    return (values.get("State", "").split() or ["UNKNOWN"])[0].rstrip("+")


def _is_out_of_memory(values: dict[str, str]) -> bool:
    exits = (_exit(values.get("ExitCode", "")), _exit(values.get("DerivedExitCode", "")))
    return _state(values) == "OUT_OF_MEMORY" or _OOM_EXIT in exits


def _exit(text: str) -> tuple[int | None, int | None]:
    """`code:signal` as two numbers."""
    code, _, signal = text.partition(":")
    numbers = (whole_number(code), whole_number(signal))
    return (None, None) if None in numbers else numbers


def _word(text: str) -> str | None:
    return None if text in ("", "None", "Unknown", "None assigned", "N/A") else text


def _unix_time(text: str) -> float | None:
    """Slurm prints the local time of whoever asks."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _seconds(text: str) -> float | None:
    """Seconds of `75`, `01:15`, `00:01:15` or `1-00:01:15`: squeue writes a clock, sacct's raw field the number."""
    days, _, clock = text.rpartition("-")
    parts = [whole_number(part) for part in (days or "0", *clock.split(":"))]
    seconds = 0.0
    for part in parts[1:]:
        seconds = seconds * 60 + (part or 0)
    return None if None in parts else seconds + 86400 * (parts[0] or 0)
