"""What sacct and squeue print, as records. Pure text in, data out.

>>> text = "JobID|State|ExitCode\\n315_[2-4%2]|PENDING|0:0\\n7|CANCELLED by 0|0:15"
>>> sorted(parse_sacct(text))
['315_2', '315_3', '315_4', '7']
>>> [record.state for record in parse_sacct(text)["7"]]
['CANCELLED']
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from hpc_llm.schedulers.job_record import JobRecord

SACCT_FIELDS = (
    "JobID,State,ExitCode,DerivedExitCode,Reason,Submit,Start,End,ElapsedRaw,NodeList,Cluster,JobName,Comment"
)
SACCT_DELIMITER = "\x1f"
"""A job's name may hold any other character."""
_SQUEUE_COLUMNS = {
    "JobArrayID": 40, "State": 20, "Reason": 160, "SubmitTime": 24, "StartTime": 24, "TimeUsed": 20, "exit_code": 12,
    "UserID": 16, "NodeList": 256, "Comment": 64, "Name": 256,
}  # fmt: skip
"""Fixed widths: the one form that old and new versions of squeue share and that has the exit code.

What people write stands last: squeue counts bytes, and one character of theirs may be several."""
SQUEUE_FIELDS = ",".join(f"{name}:{width}" for name, width in _SQUEUE_COLUMNS.items())

_OOM_EXIT = (0, 125)
"""How Slurm codes "killed for memory" where it does not say OUT_OF_MEMORY."""
_ARRAY_RANGE = re.compile(r"(?P<job>\d{1,20})_\[(?P<tasks>[^\]%]*)(%\d+)?\]")


def parse_sacct(text: str) -> dict[str, list[JobRecord]]:
    """Records by job id from `sacct --parsable2 --duplicates`, header included.

    A job that was queued again comes once for each try, oldest first, and so do the jobs of several people where ids were
    given out anew. Lines of steps only add what the line of their job hides: with srun, running out of memory shows on the
    step alone.
    """
    lines = text.split("\n")
    records: dict[str, list[JobRecord]] = {}
    delimiter = SACCT_DELIMITER if SACCT_DELIMITER in lines[0] else "|"
    names = lines[0].split(delimiter)
    for line in lines[1:]:
        values = dict(zip(names, line.split(delimiter), strict=False))
        job_id, is_step, _ = values.get("JobID", "").partition(".")
        if is_step:
            if job_id in records and _is_out_of_memory(values):
                records[job_id][-1] = replace(records[job_id][-1], out_of_memory=True)
        else:
            record = _sacct_record(values)
            for single in expand_job_id(job_id):
                records.setdefault(single, []).append(record)
    return records


def parse_squeue(text: str) -> dict[str, list[JobRecord]]:
    """Records by job id from `squeue --noheader --Format=SQUEUE_FIELDS`; one each."""
    records: dict[str, list[JobRecord]] = {}
    for line in text.split("\n"):
        values = _columns(line)
        if values["State"]:  # a site's own notice has none
            record = _squeue_record(values)
            for single in expand_job_id(values["JobArrayID"]):
                records[single] = [record]
    return records


def latest(records: Iterable[JobRecord]) -> JobRecord | None:
    """The last of the records of one job, which are in the order of its tries."""
    return next(iter(deque(records, maxlen=1)), None)


def _columns(line: str) -> dict[str, str]:
    """The columns, whose widths are in bytes: what people write may be cut in the middle of a character."""
    told, values, start = line.encode("utf-8", "surrogateescape"), {}, 0
    for name, width in _SQUEUE_COLUMNS.items():
        values[name] = told[start : start + width].decode("utf-8", "replace").strip()
        start += width
    return values


def _squeue_record(values: dict[str, str]) -> JobRecord:
    status = int(values["exit_code"]) if values["exit_code"].isdigit() else None  # as wait(2) gives it
    return JobRecord(
        state=values["State"],
        exit_code=None if status is None else status >> 8,
        signal=None if status is None else status & 127,
        reason=_word(values["Reason"]),
        user_id=int(values["UserID"]) if values["UserID"].isdecimal() else None,
        job_name=values["Name"] or None,
        comment=_word(values["Comment"].replace("(null)", "")),
        submitted_at=_unix_time(values["SubmitTime"]),
        started_at=_unix_time(values["StartTime"]),
        elapsed_s=_seconds(values["TimeUsed"]),
        nodes=_word(values["NodeList"]),
        out_of_memory=values["State"] == "OUT_OF_MEMORY",
    )


def expand_job_id(job_id: str) -> Iterator[str]:
    """The single ids of what a scheduler writes for several tasks.

    >>> list(expand_job_id("46_[0-2,7%16]"))
    ['46_0', '46_1', '46_2', '46_7']
    >>> list(expand_job_id("46"))
    ['46']
    """
    array = _ARRAY_RANGE.fullmatch(job_id)
    if array is None:
        if job_id:
            yield job_id
        return
    for part in array["tasks"].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if first.isdigit() and (last or first).isdigit():
            for task in range(int(first), int(last or first) + 1, int(step or 1)):
                yield f"{array['job']}_{task}"


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
    return (int(code), int(signal)) if code.isdigit() and signal.isdigit() else (None, None)


def _word(text: str) -> str | None:
    return None if text in ("", "None", "Unknown", "None assigned", "N/A") else text


def _unix_time(text: str) -> float | None:
    """Slurm prints the local time of whoever asks."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    """Seconds of `75`, `01:15`, `00:01:15` or `1-00:01:15`: squeue writes a clock, sacct's raw field the number."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + 86400 * int(days or 0)
