"""What came later in a log: jobs and attempts that were appended to it, and a program that went on in spite of an error.

Most logs are of one attempt that ends where it fails. Where the same file goes on, what is said first is not how it ended.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from hpc_llm.causes import reports
from hpc_llm.causes.attempts import Piece, is_over
from hpc_llm.causes.found import Found
from hpc_llm.causes.starts import Starts
from hpc_llm.causes.steps import FAILED

_TAKEN_DOWN = re.compile(
    r"\*\*\* JOB (?P<job>\d{1,18})(?: .{0,200})? CANCELLED(?: AT (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b)?"
)
PARTS = 128
"""The parts of one job, and the tasks of an array, have ids of their own, one after the other; they end at once."""
AT_ONCE_S = 5
_AGAIN_S = 120
"""So long after Slurm took a job down it begins again at the earliest."""
_ANEW_S = 90
"""So much later another attempt begins."""
_CLOCK = re.compile(rb"\b(20\d\d)[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)")
_HAS_CLOCK = re.compile(rb":\d\d:\d\d")
"""Is in both, and takes a hundredth of the time."""
_DATE = re.compile(
    rb"\b(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) (\d\d):(\d\d):(\d\d) (?:[AP]M )?(?:[A-Z]{2,5} )?(?P<year>20\d\d)\b"
)
"""As the command `date` writes it."""
_MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_OPENING = 1 << 13
_SEVERAL = 2
"""So many attempts besides the first show that each begins so."""
_BLANK = re.compile(rb"\s*")
_LETTERS = re.compile(rb"[^\W\d]{3}[^\d\n]{17,100}")
"""The part of a line that is the same in each attempt."""
_OF_OTHERS = re.compile(rb"arning|slurmstepd|srun: |\*\*\* (?:JOB|STEP) ")
"""What no program opens with."""
_LOOKS = 64
"""So often it is looked for in one piece: what comes more often is said of something else."""
_NEAR = 1 << 12
"""Bytes within which the time stands of what is said there."""
_SERVER = re.compile(
    rb"^\(APIServer pid=(?P<pid>\d{1,10})\)(?:(?P<opens>[^\n]{1,120}\bvLLM API server version\b)|(?P<up>[^\n]{1,80}\bApplication startup complete\b))?",
    re.MULTILINE,
)
"""A line of the process of vLLM's that answers."""
_LONG_S = 600
_LONG = 40
"""Lines of its own with which a program shows that it went on, and so long it must have."""
_CLOSING = 5
"""Of these so many behind the last error."""
_LAST_LINES, _LOOKED_AT = 12, 200
_NO_OWN_LINE = re.compile(
    rb"(?i)^\s|error|exception|traceback|fail|abort|kill|signal|warn|terminat|cancel|elastic|c10d|nccl|slurm|srun|core dumped|\[E |=>> |exit(?:ed|s)? "
)
"""What a program does not write of its work."""
_ORDERLY = re.compile(
    rb"(?i)\b(?:successful(?:ly)?|success|sucesso|erfolgreich|completed?|finished|done|finalizado|results?|summary)\b|\xe6\x88\x90\xe5\x8a\x9f|\xe5\xae\x8c\xe6\x88\x90|\xc3\xa9xito|succ\xc3\xa8s"
    rb"|^[A-Za-z][\w /()-]{2,40}[:=] ?-?\d[\d.,]*%?$",
    re.MULTILINE,
)
"""A program's own word on its good end, or a result of it."""


@dataclass(frozen=True)
class _Down:
    """Slurm took a job down."""

    job: int
    time_s: float | None
    """Since a time that is the same for all."""

    def is_same(self, other: _Down) -> bool:
        """Whether it is the same taking down, of another part of the job or said again."""
        is_near = abs(self.job - other.job) < PARTS
        if self.time_s is None or other.time_s is None or not is_near:
            return is_near
        return abs(self.time_s - other.time_s) < (_AGAIN_S if self.job == other.job else AT_ONCE_S)


def _begin_of_last_job(found: Sequence[Found]) -> int:
    """Behind which position stands what is of the last job that Slurm took down, in what was found in one file; -1 where all is."""
    downs = [(down, one.position) for one in found if one.position >= 0 and (down := _down(one.text)) is not None]
    return max((position for down, position in downs if not down.is_same(downs[-1][0])), default=-1)


@functools.lru_cache(maxsize=1024)
def _down(text: str) -> _Down | None:
    """What a line says of it; the same lines are asked again with each job that follows in the file."""
    said = _TAKEN_DOWN.search(text)
    if said is None:
        return None
    try:
        time = datetime.fromisoformat(said["time"]) if said["time"] else None
    except ValueError:
        time = None
    return _Down(int(said["job"]), None if time is None else (time - datetime.min).total_seconds())


@dataclass(frozen=True)
class Opening:
    """By what an attempt is known when it comes again: parts of two of its first lines."""

    first: bytes
    second: bytes
    lead: int
    """Bytes of the attempt before the line of the first part."""
    head: bytes
    """With what it begins, as far as that is looked at."""

    @staticmethod
    def of(text: bytes) -> Opening | None:
        """That of an attempt that begins with `text`."""
        lines = [line for line in text[:_OPENING].splitlines()[:40] if not _OF_OTHERS.search(line)]
        parts: dict[bytes, bytes] = {}
        for line in lines:
            if found := _LETTERS.search(line):
                parts.setdefault(found[0], line)
        if len(parts) < 2:
            return None
        first, second, *_ = parts
        return Opening(first, second, text.find(parts[first]), text[:_OPENING].lstrip())

    def begins_at(self, text: bytes, position: int) -> bool:
        """Whether an attempt begins there whose first lines are the same to the letter, and more of it is to be seen."""
        opening = self.head.partition(b"Traceback ")[0]
        lines = opening[: opening.find(b"\n", opening.find(self.second)) + 1] if self.second in opening else b""
        shown = text[position : position + _OPENING].splitlines()
        is_output = lines != b"" and not any(line[:1].isspace() for line in lines.splitlines())
        return is_output and text.startswith(lines, position) and not {b"", *opening.splitlines()}.issuperset(shown)

    def begins(self, text: bytes, is_over_before: bool = False) -> int | None:
        """Where in `text` another attempt begins last: much later than what stands before it, or when that was said to be over."""
        at = len(text)
        for _ in range(_LOOKS):
            at = text.rfind(self.first, 0, at)
            line = text.rfind(b"\n", 0, max(at, 0)) - self.lead
            if at < 0 or (line < 0 and not is_over_before):
                return None
            begin = text.rfind(b"\n", 0, max(line, 0) + 1) + 1
            is_behind = is_over_before or _is_later(text, begin) or is_over(text, begin)
            if is_behind and text.find(self.second, at, at + _OPENING) >= 0:
                return begin
        return None


def _begin_of_last_attempt(begins_with: Opening | None, pieces: Sequence[Piece]) -> int:
    """Where in `pieces` another attempt begins last: with the same lines as the first one, and behind its end. -1 where none does."""
    for position, text in reversed(pieces) if begins_with is not None else ():
        begin = begins_with.begins(text) if begins_with is not None else None
        if begin is not None:
            return position + begin
    return -1


def begin_of_last(found: Sequence[Found], begins_with: Opening | None, pieces: Sequence[Piece]) -> int:
    """Behind which position stands what is of the last job, attempt or server alone; -1 where all is."""
    of_attempts = _begin_of_last_attempt(begins_with, pieces), _begin_behind_exceptions(found, begins_with, pieces)
    of_files = reports.begin_of_last(pieces), _begin_of_last_start(pieces)
    return max(_begin_of_last_job(found), *of_attempts, _begin_of_last_server(pieces), *of_files)


def of_last(found: Sequence[Found], begin: int) -> list[Found]:
    """What is of the last attempt, which stands behind `begin`. Where nothing is known of it but that srun says that the step failed in
    which all attempts were, what was found before is what is known of the step."""
    last = [one for one in found if one.position > begin or not one.cause.undone_by_end]
    if len(last) == len(found) or not last or any(one.is_root for one in last):
        return last
    ends = [one.position for one in found if FAILED.search(one.text)]
    return list(found) if ends and min(ends) > begin else last


def _begin_behind_exceptions(found: Sequence[Found], begins_with: Opening | None, pieces: Sequence[Piece]) -> int:
    """Where the last of several attempts begins that tell no time: each right behind the exception that ended the one before. -1 where
    only one does: what a rank writes that began late may stand so behind the end of another."""
    ends = [one.position for one in found if one.is_root and one.ends_process] if begins_with is not None else []
    begins = []
    for position, text in pieces if len(ends) >= _SEVERAL else ():
        for end in (one - position for one in ends if 0 <= one - position < len(text)):
            behind = _BLANK.match(text, max(0, text.find(b"\n", end)))
            if behind is not None and begins_with is not None and begins_with.begins_at(text, behind.end()):
                begins.append(position + behind.end())
    return max(begins) if len(begins) >= _SEVERAL else -1


def _begin_of_last_start(pieces: Sequence[Piece]) -> int:
    """Where a program says last that it starts, as it does in its first line; -1 where it was started once."""
    starts = Starts() if pieces and pieces[0][0] == 0 else Starts(b"")
    return max((position + begin for position, text in pieces for begin in starts.of(text)), default=-1)


def _begin_of_last_server(pieces: Sequence[Piece]) -> int:
    """Where a server of vLLM begins that came up when an earlier one had written its last; -1 where none does."""
    begin, pid, is_up = -1, b"", False
    for position, line in (
        (position + line.start(), line) for position, text in pieces for line in _SERVER.finditer(text)
    ):
        if pid and line["pid"] != pid:
            if not line["opens"]:
                return -1
            begin, is_up = position, False
        pid, is_up = line["pid"], is_up or line["up"] is not None
    return begin if is_up else -1


def _is_later(text: bytes, line: int) -> bool:
    """Whether much time passed before the line at `line`; not where no clock tells."""
    before, after = clock_before(text, line), _first_time(text[line : line + _NEAR].splitlines())
    return before is not None and after is not None and (after - before).total_seconds() >= _ANEW_S


def went_on(roots: Sequence[Found], pieces: Sequence[Piece]) -> bool:
    """Whether the program wrote on for long after the first of `roots`, and came to an end in order after the last."""
    positions = [one.position for one in roots if one.position >= 0]
    if not positions or len(positions) < len(roots) or not pieces:
        return False
    if not ends_in_order(pieces, max(positions), _CLOSING):
        return False
    return _is_long(min(roots, key=lambda one: one.position), pieces)


def ends_in_order(pieces: Sequence[Piece], position: int, least: int = 1, words: re.Pattern[bytes] = _ORDERLY) -> bool:
    """Whether so many lines of a program's or a script's own stand behind the one at `position`, the last of all among them, with
    `words` on a good end."""
    closing = list(deque((line for line in _lines(pieces, position) if line.strip()), maxlen=_LOOKED_AT))
    own = [line for line in closing if not _NO_OWN_LINE.search(line)]
    is_to_the_end = len(own) >= least and closing[-1] is own[-1]
    return is_to_the_end and words.search(b"\n".join(own[-_LAST_LINES:])) is not None


def _is_long(first: Found, pieces: Sequence[Piece]) -> bool:
    """Whether what the program wrote of its work after the first error is much, and took long."""
    lines = [line for line in _lines(pieces, first.position) if line.strip() and not _NO_OWN_LINE.search(line)]
    if len(lines) < _LONG:
        return False
    begin, end = first.clock or _first_time(lines), _first_time(reversed(lines))
    return begin is not None and end is not None and (end - begin).total_seconds() >= _LONG_S


def _lines(pieces: Sequence[Piece], position: int) -> Iterator[bytes]:
    """The lines behind the one at `position`."""
    for begin, text in pieces:
        if begin + len(text) <= position:
            continue
        if begin <= position:
            end = text.find(b"\n", position - begin)
            text = text[end + 1 :] if end >= 0 else b""
        yield from text.splitlines()


def clock_before(text: bytes, position: int) -> datetime | None:
    """What the program's clock showed last before `position`."""
    begin = max(0, position - (_NEAR << 3))
    if _HAS_CLOCK.search(text, begin, position) is None:
        return None
    return _first_time(reversed(text[begin:position].splitlines()))


def _first_time(lines: Iterable[bytes]) -> datetime | None:
    """The first that one of the lines shows."""
    return next((time for line in lines if (time := _time(line)) is not None), None)


def _time(line: bytes) -> datetime | None:
    if _HAS_CLOCK.search(line) is None:
        return None
    if found := _CLOCK.search(line):
        year, month, day, *clock = map(int, found.groups())
    elif found := _DATE.search(line):
        year, month, day = int(found["year"]), _MONTHS.index(found["month"]) // 3 + 1, int(found["day"])
        clock = [int(one) for one in found.groups()[2:5]]
    else:
        return None
    try:
        return datetime(year, month, day, clock[0], clock[1], clock[2])
    except ValueError:
        return None
