"""What any log may say about the job around the program: GPU, job id, start."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from hpc_llm.causes.tracebacks import TRACEBACK
from hpc_llm.parsing.rules import REPORTED, Kind, Rule, Value, rule
from hpc_llm.parsing.short_times import ShortTime, first_short

CELL = b"\n\x1dnext cell\n"
"""Stands between the outputs of a notebook's cells: what follows is another run."""

START = re.compile(re.escape(CELL.strip()))

END_OF_JOB = b"CANCELLED AT "
"""Is in every message by which Slurm ends a job or a step: steps after it are those of another run."""

JOB_OVER = re.compile(rb"\*\*\* (?:JOB (?P<job>\S+)|STEP (?P<step>[^\s.]+)\S*) ON \S+ CANCELLED AT [^\n]*")

LSF_OVER = re.compile(rb"^The output \(if any\) is above this job summary\.$", re.MULTILINE)
"""Ends LSF's report on a job, where that stands behind what the job printed."""


def _lsf_started(match: re.Match[bytes]) -> Mapping[str, Value]:
    """When LSF started the job on which it reports."""
    with contextlib.suppress(ValueError):
        return {"started_at": datetime.strptime(match["time"].decode(), "%b %d %H:%M:%S %Y").isoformat()}
    return {}


_UNITS = {b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30, b"TiB": 1 << 40}


def _ran_out(match: re.Match[bytes]) -> Mapping[str, Value]:
    """What torch held when memory ran out: no peak of that run is below."""
    held = float(match["held"]) * _UNITS[match["unit"]]
    more = float(match["more"]) * _UNITS[match["more_unit"]] if match["more"] else 0.0
    is_sum = match["more"] is not None and b"already allocated" in match[0]  # of before torch 2.1
    return {"ran_out_allocated_bytes": held, "ran_out_reserved_bytes": more if is_sum else held + more}


_HELD = r"(?P<held>[\d.]{1,12}) (?P<unit>[KMGT]iB)"
_MORE = r"(?P<more>[\d.]{1,12}) (?P<more_unit>[KMGT]iB)"

RULES: tuple[Rule, ...] = (
    rule(
        Kind.RUN,
        rf"allocated memory {_HELD} is allocated by PyTorch(?:, and {_MORE} is reserved by PyTorch but unallocated)?",
        _ran_out,
        literal=" is allocated by PyTorch",
    ),
    rule(
        Kind.RUN,
        rf"; {_HELD} already allocated; [^\n;]{{1,40}} free; (?:[^\n;]{{1,40}} allowed; )?{_MORE} reserved in total by PyTorch",
        _ran_out,
        literal=" already allocated; ",
    ),
    # nvidia-smi's table; the vendor's prefix differs from card to card.
    rule(
        Kind.RUN,
        r"\|  +\d+  (?:NVIDIA |Tesla )?(?P<gpu>[A-Z][\w -]{2,40}?)(?: {2,}|\.\.\.) *(?:On|Off|N/A)  *\|",
        literal="Bus-Id",
    ),
    rule(Kind.RUN, r"\*\*\* JOB (?P<job_id>\d[\d_+]*) ON ", literal="*** JOB "),
    rule(Kind.RUN, r"\*\*\* STEP (?P<job_id>\d+)\.\w+ ON ", literal="*** STEP "),
    rule(Kind.RUN, r"StepId=(?P<job_id>\d+)\.", literal="StepId="),
    rule(Kind.RUN, r"in step (?P<job_id>\d+)\.\w+ cgroup", literal=" cgroup"),
    rule(
        Kind.RUN,
        r"^Subject: Job (?P<job_id>\d{1,18}): <[^\n]{0,400}> in cluster <",
        lambda match: {"job_id": match["job_id"].decode(), REPORTED: 1},
        literal="Subject: Job ",
    ),
    rule(
        Kind.RUN,
        r"^<[^\n]{1,4000}> was used as the working directory\.\nStarted at [A-Z][a-z]{2} (?P<time>[A-Z][a-z]{2} [ \d]\d [\d:]{8} 20\d\d)$",
        _lsf_started,
        literal="\nStarted at ",
    ),
    rule(Kind.RUN, r"\bSLURM_JOB(?:_?ID|ID)=['\"]?(?P<job_id>\d+)\b", literal="SLURM_JOB"),
)

_TIME = re.compile(
    rb"(?<![\d./])(?:(?P<date>20[0-9]{2}-[01][0-9]-[0-3][0-9])|(?P<one>[0-3][0-9])/(?P<other>[0-3][0-9])/(?P<year>20[0-9]{2}))[ T_]"
    rb"(?P<time>[0-2][0-9]:[0-5][0-9]:[0-5][0-9])(?!\d| [AP]M\b)"
)


_HAS_MINUTES = re.compile(rb":[0-5]\d")
"""Is in every time, and takes a hundredth of the time that the searches for times take."""
_LONGEST_BEFORE = 64
"""Bytes of a date and a time before their minutes, at most."""


def _times_from(text: bytes, begin: int, end: int) -> int:
    """Where times between these positions begin at the earliest; `end` where there is none."""
    minutes = _HAS_MINUTES.search(text, begin, max(begin, end))
    return max(begin, end) if minutes is None else max(begin, minutes.start() - _LONGEST_BEFORE)


_OF_AN_END = re.compile(
    rb"(?im)cancelled at|\bdue to (?:time limit|preemption|node fail)|\*\*\* (?:JOB|STEP) \d|\b(?:end(?:ed|s|ing)?|finish(?:ed|es)?|complet(?:ed?|ion)|done|exit(?:ed|ing)?|stopp?(?:ed|ing)?|"
    rb"terminat(?:ed|ing)|fail(?:ed|ure)?|killed|saved|elapsed|total)\b|^ +time +: "
)
"""What a line says that has the time of an end, or of a failure, in it."""

# Not by a progress bar, unless it has gone on for an hour: loading weights draws one, too.
_OF_A_STEP = re.compile(
    rb"(?i)\[\d{1,3}:\d\d:\d\d<|\btrain_runtime['\"]?[ \t]{0,24}[:=]|\b(?:step|global_step|iter(?:ation)?)\b[ =:]{1,12}[1-9]|SamplesPerSec=|\bloss['\"]?[ \t]{0,8}[:=|]?[ \t]{0,8}['\"]?[-+]?\d"
    rb"|\bepoch[ #:=\[]{1,4}\d{1,7}(?:/\d{1,7})?[\]:, ]{1,3}(?:is |was |has )?(?:completed?|finished|done|ended|over)\b"
    rb"|\b(?:completed|finished|end of|done with)[ \t]epoch[ #:=]{1,3}\d"
)
_WORDS_OF_A_STEP = (b"<", b"train_runtime", b"step", b"iter", b"samplespersec", b"loss", b"epoch")
"""One of them is in each of these, whatever its capitals, and is found in a hundredth of the time."""


_WAITED = rb"(?:submi(?:t(?:ted)?|ssion)|qsub|eligible|accrued?|(?:en)?queued?)(?:[ _-]?(?:time|date))?"
_OF_A_WAIT = re.compile(rb"(?i)" + _WAITED + rb"(?:\b[^\n:=]{0,80} (?:at|on|since))?[\"'\s:=.|<\[(]{0,40}$")
"""A label of the time at which a job was submitted, or began to wait."""
_JOB_SUBMITTED = re.compile(rb"(?i)[^\n]{0,40}\b(?:job (?:was )?submitted|submitted (?:batch )?job)\b")
_RULED = re.compile(rb"[-=+| \t]*")
_NEAR = 1 << 16
"""Bytes before an opening in which the last time is looked for."""
_ROWS = 8
"""So many rows of a table are gone up to its head."""


def _is_of_a_wait(text: bytes, start: int, end: int) -> bool:
    """Whether the stamp between these positions is said to be of the time before the job began, by its label, behind it or by the head of its column; or to be of an end by that."""
    begin = text.rfind(b"\n", 0, start) + 1
    row = text[begin:start]
    if _OF_A_WAIT.search(row[-160:]) or _JOB_SUBMITTED.match(text, end):
        return True
    above = text[max(0, begin - (_ROWS << 8)) : begin].splitlines()[: -_ROWS - 1 : -1]
    head = next((line for line in above if not _RULED.fullmatch(line) and not _TIME.search(line)), b"")
    column = head.split(b"|")[row.count(b"|") :][:1] if b"|" in row else head[: end - begin].split()[-1:]
    return bool(column) and re.fullmatch(rb"(?i)\s*(?:" + _WAITED + rb"|end)\s*", column[0]) is not None


_STAMPS = 64
"""So many stamps are looked at."""
_BEFORE_A_STAMP = re.compile(rb"[ -\[\]-~\t]{0,160}")
"""What a program writes before the time: no character beyond ASCII, and no escaped one, as the pages and answers have that are printed."""


def _tells_of_a_program(text: bytes, start: int, end: int) -> bool:
    line = text[text.rfind(b"\n", 0, start) + 1 : start]
    return _is_of_a_program(text, start) and not _is_of_a_wait(text, start, end) and b"datetime64[" not in line


def _is_of_a_program(text: bytes, position: int) -> bool:
    """Whether the stamp there stands where programs write theirs: near the beginning of a line, behind nothing but names and signs."""
    return _BEFORE_A_STAMP.fullmatch(text, text.rfind(b"\n", 0, position) + 1, position) is not None


def _date(stamp: re.Match[bytes]) -> str | None:
    """Its date as ISO 8601; None where day and month may be mistaken, as in `05/06/2023`.

    >>> [_date(_TIME.search(text + b" 10:00:00")) for text in (b"11/22/2023", b"22/11/2023", b"05/06/2023", b"05/05/2023")]
    ['2023-11-22', '2023-11-22', None, '2023-05-05']
    """
    if stamp["date"]:
        return stamp["date"].decode()
    month, day = sorted((stamp["one"].decode(), stamp["other"].decode()))
    is_certain = "01" <= month <= "12" < day <= "31" or "01" <= month == day <= "12"
    return f"{stamp['year'].decode()}-{month}-{day}" if is_certain else None


def is_under_way(text: bytes, begin: int, end: int) -> bool:
    """Whether a step is told of between these positions."""
    words = text[begin:end].lower()
    return any(one in words for one in _WORDS_OF_A_STEP) and _OF_A_STEP.search(text, begin, max(begin, end)) is not None


def first_and_last(text: bytes, begin: int, end: int) -> tuple[datetime, datetime] | None:
    """The first and the last full time that programs print between these positions."""
    first = next(islice(_times(text, begin, end), 1), None)
    if first is None:
        return None
    near = list(_times(text, max(begin, end - _NEAR), end))
    return first, near[-1] if near else first


def _times(text: bytes, begin: int, end: int) -> Iterator[datetime]:
    for one in _TIME.finditer(text, _times_from(text, begin, end), max(begin, end)):
        if (date := _date(one)) is not None and _tells_of_a_program(text, *one.span()):
            with contextlib.suppress(ValueError):  # no day of a calendar
                yield datetime.fromisoformat(f"{date}T{one['time'].decode()}")


@dataclass
class FirstTime:
    """Looks for the first time stamp of a run in one piece of its text after another: what comes of it does not depend on the
    pieces. It is the time when the run began.

    >>> FirstTime().of(b"2026-01-01 10:00:00 begins", 0, 26), FirstTime().of(b"training finished at 2026-01-01 10:00:00", 0, 40)
    ('2026-01-01T10:00:00', None)
    """

    left: int = _STAMPS
    """So many more stamps are looked at."""
    above: ShortTime | None = None
    """The first time without its date, or without its year."""

    def of(self, text: bytes, begin: int, end: int) -> str | None:
        """The stamp in `text` between these positions, as ISO 8601 without a zone.

        Where a time without its date or its year stands above it, it is that one, or None where the stamp does not tell for certain which it was. None, too, where the run was
        under way by then, or where the stamp is that of an end: a program that prints the time once often does so when it is done. Then no later one is, either.
        """
        if not self.left:
            return None
        start = _times_from(text, begin, end)
        stamps = list(islice(_TIME.finditer(text, start, max(begin, end)), self.left))
        match = next((one for one in stamps if _date(one) and _tells_of_a_program(text, *one.span())), None)
        self.left -= len(stamps)
        if self.above is None:
            until = end if match is None else match.start()
            self.above = first_short(text, start, until, _tells_of_a_program, _OF_AN_END)
        if match is None:
            if TRACEBACK in text[begin:end] or is_under_way(text, begin, end):
                self.left = 0
            return None
        self.left = 0
        line = text.rfind(b"\n", begin, match.start()) + 1
        line_end = text.find(b"\n", match.end())
        line_end = line_end if line_end >= 0 else len(text)
        if _OF_AN_END.search(text, max(line, begin), line_end) or is_under_way(text, begin, line_end):
            return None
        if TRACEBACK in text[begin:line]:
            return None
        try:
            time = datetime.fromisoformat(f"{_date(match)}T{match['time'].decode()}")
        except ValueError:  # no day of a calendar
            return None
        begun = time if self.above is None else self.above.begun(time)
        return None if begun is None else begun.isoformat()
