"""Finding the signs of all causes in a text.

Searching a block for a hundred patterns would take minutes for a large log. So a block is searched first for the few
texts that the signs' literals share, then for the literals, and only then for a pattern; and of lines that differ in their
numbers alone, as those of steps do, one is searched for all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from hpc_llm.causes.catalogue import all_causes
from hpc_llm.causes.caught import caught_at, first_launch, is_before_launch, is_beside, program_of, weakened
from hpc_llm.causes.cause import STARTED, TRAINED_ON, Cause, Role, Sign
from hpc_llm.causes.crashes import crashed_at
from hpc_llm.causes.endings import ends_a_process
from hpc_llm.causes.frames import engine_of_inference, is_no_helper, is_of_a_request, is_of_a_signal, is_of_a_stop
from hpc_llm.causes.ipython import is_its_source
from hpc_llm.causes.libraries import NEEDED_LATER
from hpc_llm.causes.lines import is_without_numbers, without_numbers
from hpc_llm.causes.nested import is_made_by_another
from hpc_llm.causes.phases import EVALUATION, LOADING, phase_of
from hpc_llm.causes.program import PYTHON_EXCEPTION
from hpc_llm.causes.recovered import OF_OTHERS, of_what_goes_on, proceeds_without
from hpc_llm.causes.remarks import is_remark, is_warned
from hpc_llm.causes.samples import is_of_a_sample
from hpc_llm.causes.schedulers import is_quoted
from hpc_llm.causes.tracebacks import PER_LINE, exceptions_in
from hpc_llm.causes.worked import is_outlived_by_work
from hpc_llm.errors import OURS
from hpc_llm.text.numbers import MOST_DIGITS

SHARED = (
    b"rror", b"emory", b"exit", b" not ", b"odule", b"illed", b" code ", b" file", b"oss ", b"xce", b"ermin", b"n't ", b"(): ",
    b"mis", b"nan", b"nvalid", b"STATUS", b" space", b"rrupt", b"GPUs ", b"Host", b"DUE TO ", b"SIG", b"onnection ", b"river",
    b"oom", b"rolog", b"uggingface.co", b"yaml.", b"evice", b"NaN", b"hpc-llm: ", b"TERM_", b"Exit_status", b"ode 1",
    b"EXIT CODE", b"imed out", b"imeout", b"signal", b"ocket", b"ymbol", b"CANCELLED", b"aile", b"ailure", b"atch", b"ERROR",
    b"onda", b"onitor", b"GLIBC", b"finite", b"eepspeed", b"DeepSpeed", b"srun", b"ore dumped",
    b"fork", b"navailable", b"ultiple of", b"ode -", b"ode: ", b"ode=", b"ode = ", b"ode of ",
    b"tatus ", b"tatus: ", b"tatus=", b"xited (", b"transport/tcp",
)  # fmt: skip
"""Texts that many literals contain: without one of them, all of those can be left out."""

LOUD = (
    b"Traceback (most recent call last)", b" out of memory. Tried to allocate", b"slurmstepd: error: ",
    b"Watchdog caught collective operation", b"No space left on device", b"Segmentation fault", b"uncorrectable ECC error",
)  # fmt: skip
"""In the middle of a huge log only blocks with one of these are searched: what ends a run stands near its end."""

# Of both, the label of srun or pdsh is that of a node's launcher, and the program's own the rank.
_RANK = re.compile(
    rb"(?: {0,8}\d{1,9}\t)?[ \t]{0,80}(?:(?:[\w.-]{1,60}: ?)?\[(?:rank|default|Rank )(\d{1,5})\]:?|\[\d+,(?:mpirank:)?(\d{1,5})[^\]\n]{0,40}\](?:<std\w+>)?:?|(\d{1,5}): )"
)
_OF_TORCH = re.compile(rb"\[rank(\d{1,5})\]:")
_BOXED = re.compile(rb"[^\n]{0,80}?\xe2\x94\x82 (?:\xe2\x9d\xb1| ) {0,8}\d{1,7} \xe2\x94\x82")
"""How rich shows the source."""
_RAISE = re.compile(rb"\braise [A-Za-z_.]+\(")
_RIGHT_BEFORE, _BEFORE = 600, 8192
_TOLD, _BEGAN = 2, 3
"""So many further steps show that the program goes on with an exception that it tells, or that it was begun anew."""
_PER_SIGN = 512
"""So many matches of one sign in one block are looked at: a storm of equal lines says nothing more."""


@dataclass
class Found:
    """A sign that was found in a log."""

    cause: Cause
    sign: Sign
    text: str
    """The line, cut to a readable length."""
    position: int
    """Where, in bytes of cleaned text; below 0 where no text says it, but a record of the run does."""
    rank: int | None = None
    details: Mapping[str, str] | None = None
    file: str = ""
    line: int | None = 1
    """Number in the file, from 1; None where it is not known."""
    time: float = 0.0
    """Unix time where the record has one; what happened first is the root."""
    steps_after: int = 0
    """Training steps that followed."""
    advanced: int = 0
    """The same, with what several ranks print of one step counted once."""
    clock: datetime | None = None
    """What the program's clock showed there."""
    reason: str | None = None
    """What a table says of it, where that is not the line."""
    ends_process: bool = False
    """Whether the line by itself says that a process has ended."""
    caught_at: str | None = None
    """Where the program caught it and wrote it down, as far as its traceback says."""
    program: str | None = None
    """The script whose exception it is, as far as its traceback begins with it."""
    is_raised: bool = False
    """Whether a traceback ends with it."""
    is_before_steps: bool = False
    """Whether no training step stands before it."""

    @property
    def precedence(self) -> int:
        return self.cause.precedence if self.sign.precedence is None else self.sign.precedence

    @property
    def is_root(self) -> bool:
        return self.sign.role is Role.ROOT

    @property
    def is_survived(self) -> bool:
        """Whether the program went on in spite of it."""
        return self.steps_after >= self.sign.survived_after or self._is_put_right

    @property
    def _is_put_right(self) -> bool:
        """Whether training began, or went on, behind it: an exception that the program itself tells, or anything from before all steps, in
        spite of which no other rank could have trained."""
        if not self.is_raised:
            return self.is_before_steps and self.cause.id not in OF_OTHERS and self.advanced >= _BEGAN
        if not self.is_root:
            return False
        return self.advanced >= (_TOLD if not self.ends_process else _BEGAN if self.is_before_steps else TRAINED_ON)


SHOWN = 400
"""Characters of an evidence line."""
_SHOWN_OF_OURS = 2000
"""The same of a line with an error of ours, which ends in what is to be done."""
CUT = "…"
"""Stands where a line goes on."""


@functools.lru_cache(maxsize=1)
def _groups(ids: tuple[str, ...]) -> dict[bytes | None, list[tuple[Cause, Sign, tuple[bytes, ...]]]]:
    """The signs of these causes by the shared text that their literals contain; a sign with several literals may stand in several groups."""
    groups: dict[bytes | None, list[tuple[Cause, Sign, tuple[bytes, ...]]]] = {}
    for cause in map(all_causes().__getitem__, ids):
        for one in cause.signs:
            by_key: dict[bytes | None, list[bytes]] = {}
            for literal in one.literals:
                by_key.setdefault(next((s for s in SHARED if s in literal), None), []).append(literal)
            for key, literals in by_key.items():
                groups.setdefault(key, []).append((cause, one, tuple(literals)))
    return groups


def is_loud(text: bytes) -> bool:
    """Whether `text` may matter although much more follows it."""
    return any(loud in text for loud in LOUD)


def signs_in(text: bytes) -> list[Found]:
    """The signs in `text`, cleaned and of whole lines, by position; of several that match on one line the one that says most."""
    best: dict[int, Found] = {}
    raised: set[int] = set()
    for position, cause, one, details in _matches(text):
        start = text.rfind(b"\n", 0, position) + 1
        if one is EXCEPTION or one is _LESSER:
            raised.add(start)
        known = best.get(start)
        if known is None or _says(cause, one) > _says(known.cause, known.sign):
            best[start] = _found(text, start, position, cause, one, details)
    for start, found in best.items():
        found.is_raised = start in raised
        found.ends_process = ends_a_process(text, found.position, found.is_raised)
        if found.is_raised:
            found.caught_at = caught_at(text, found.position, is_told=not found.ends_process)
            found.program = program_of(text, found.position)
            found.ends_process = found.caught_at is None and found.ends_process
    return [best[start] for start in sorted(best)]


def _matches(text: bytes) -> Iterator[tuple[int, Cause, Sign, Mapping[str, str]]]:
    launch, few = first_launch(text), without_numbers(text)
    for key, members in _groups(tuple(all_causes())).items():
        if key is not None and key not in (few if is_without_numbers(key) else text):
            continue
        for cause, one, literals in members:
            for literal in literals:  # a loop of its own: it runs hundreds of times for each text
                if literal in (few if is_without_numbers(literal) else text):
                    break
            else:
                continue
            for match in islice(_spread(one.pattern, text), _PER_SIGN):
                if (
                    not _is_source(text, match.start())
                    and _stands_right(text, match.start(), one)
                    and not is_quoted(text, match.start(), match.end())
                    and not is_of_a_sample(text, match.start())
                    and not is_remark(text, _told_at(text, match, literals))
                    and not proceeds_without(cause.id, text, match.start())
                    and not (cause is PYTHON_EXCEPTION and is_of_a_request(text, match.start()))
                    and not (is_complaint(cause, one) and is_outlived_by_work(text, match.start()))
                ):
                    details = _details(match) | _around(cause, text, match.start())
                    said = of_what_goes_on(cause.id, one, text, match.start())
                    is_weak = said is not NEEDED_LATER and (
                        is_beside(text, match.start()) or is_before_launch(text, match.start(), launch)
                    )
                    yield match.start(), cause, weakened(said) if is_weak else said, details
    for position, name, message in exceptions_in(text):
        if (
            is_no_helper(text, position)
            and not is_beside(text, position)
            and not is_warned(text, position)
            and not is_of_a_request(text, position)
            and not is_of_a_stop(text, position, name)
        ):
            details = {"exception": name, "message": message}
            is_lesser = (
                is_made_by_another(text, position)
                or is_before_launch(text, position, launch)
                or is_of_a_signal(text, position)
            )
            cause, one = PYTHON_EXCEPTION, _LESSER if is_lesser else EXCEPTION
            yield position, cause, of_what_goes_on(cause.id, one, text, position), details


def _spread(pattern: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    """The matches of a pattern, of each line the first few: each is looked at with its line, which may be as long as the text."""
    position, line_end, on_line = 0, -1, 0
    while position <= len(text) and (match := pattern.search(text, position)) is not None:
        on_line = on_line + 1 if match.start() < line_end else 1
        if on_line == 1:
            line_end = text.find(b"\n", match.start())
            line_end = line_end if line_end >= 0 else len(text)
        yield match
        position = max(match.end(), match.start() + 1)
        if on_line == PER_LINE:
            position = max(position, line_end)


def _told_at(text: bytes, match: re.Match[bytes], literals: Iterable[bytes]) -> int:
    """Where the match says what it is known by: a pattern may begin with all that stands before that on its line."""
    places = (text.find(literal, match.start(), match.end()) for literal in literals)
    return min((at for at in places if at >= 0), default=match.start())


OF_SHELLS = frozenset(("module_missing", "conda_not_initialised"))
"""What a shell says of modules and environments, and goes on."""


def is_complaint(cause: Cause, one: Sign) -> bool:
    """Whether a shell says it of a module or an environment, and goes on unless it is told to end."""
    return cause.id in OF_SHELLS and one.survived_after == STARTED


_OF_ENGINES = frozenset(("device_oom", "host_oom"))
"""Causes against which other things help in a program that only infers."""


def _around(cause: Cause, text: bytes, position: int) -> dict[str, str]:
    """What the lines around it say of it."""
    if cause.id == "segfault":
        return {"crashed_at": where} if (where := crashed_at(text, position)) is not None else {}
    if cause.id not in _OF_ENGINES:
        return {}
    engine, phase = engine_of_inference(text, position), phase_of(text, position)
    told = {"engine": engine} if engine is not None else {}
    is_told = phase == EVALUATION if cause.id == "host_oom" else phase is not None
    return told | {"phase": str(phase)} if is_told and (engine is None or phase == LOADING) else told


def _is_source(text: bytes, position: int) -> bool:
    """Whether the line at `position` is a program's own, which a traceback quotes."""
    end = text.find(b"\n", position)
    start = text.rfind(b"\n", 0, position) + 1
    if is_its_source(text, position) or _BOXED.match(text, start):
        return True
    return _RAISE.search(text, start, end if end >= 0 else len(text)) is not None


def _stands_right(text: bytes, position: int, one: Sign) -> bool:
    """Whether there is before `position` what the sign asks for, and not what it excludes."""
    if one.after is not None and one.after not in text[max(0, position - _RIGHT_BEFORE) : position]:
        return False
    if one.not_after is not None and one.not_after in text[max(0, position - _BEFORE) : position]:
        return False
    return one.where is None or one.where(text, position)


EXCEPTION = Sign("(?!)", (), confidence=0.85)
"""Stands for an exception that a traceback ends with."""
_LESSER = Sign("(?!)", (), confidence=0.85, precedence=PYTHON_EXCEPTION.precedence - 1)
"""The same, where the text says that another one or a signal made it, or the script went on after it."""


_SAYS_MORE = {Role.ROOT: 3, Role.CASCADE: 2, Role.CONFIRMATION: 1}


def _says(cause: Cause, one: Sign) -> tuple[int, int, float]:
    """How much a sign says about its line: a known text more than an exception of which only the name is known."""
    is_name_alone = cause is PYTHON_EXCEPTION and one.role is Role.ROOT and one.remedy is None
    role = 0 if is_name_alone else _SAYS_MORE[one.role]
    return role, cause.precedence if one.precedence is None else one.precedence, one.confidence


def _found(text: bytes, start: int, position: int, cause: Cause, one: Sign, details: Mapping[str, str]) -> Found:
    end = text.find(b"\n", position)
    line = text[start : end if end >= 0 else len(text)]
    shown_from = max(0, position - start - SHOWN // 2) if len(line) > SHOWN and OURS.encode() not in line else 0
    return Found(
        cause=cause,
        sign=one,
        text=_part(line, shown_from),
        position=position,
        rank=_rank(line, line[: position - start], details),
        details=details,
    )


def _rank(line: bytes, before: bytes, details: Mapping[str, str]) -> int | None:
    """The rank that says it: of the job where torch writes it before a message of a process group, which counts its own ranks."""
    in_group, torchs = details.get("rank_in_group"), _OF_TORCH.findall(before)
    if in_group is not None and torchs:
        return int(torchs[-1])
    rank = details.get("rank") or in_group
    return int(rank) if rank else rank_of(line)


def _part(line: bytes, begin: int) -> str:
    """So much of a line from there on as is kept, with a mark at each end where more of it is."""
    most = _SHOWN_OF_OURS if OURS.encode() in line else SHOWN
    text = line[begin : begin + most].decode("utf-8", "replace").strip()
    return f"{CUT if begin else ''}{text}{CUT if begin + most < len(line.rstrip()) else ''}"


def rank_of(line: bytes) -> int | None:
    """The rank that a line's prefix names.

    >>> rank_of(b"[rank5]: RuntimeError"), rank_of(b" 12: loss 3.1"), rank_of(b"loss 3.1"), rank_of(b"1: [rank6]: KeyError")
    (5, 12, None, 6)
    """
    match = _RANK.match(line)
    return next((int(g) for g in match.groups() if g is not None), None) if match else None


def without_rank(line: str) -> str:
    """The line without the prefix that names its rank.

    >>> without_rank("[rank5]: RuntimeError: x")
    'RuntimeError: x'
    """
    text = line.encode()
    match = _RANK.match(text)
    return text[match.end() if match else 0 :].decode().strip()


def _details(match: re.Match[bytes]) -> dict[str, str]:
    """The named groups that matched, without a number that nobody can mean; `capacity_old` is another spelling of `capacity`."""
    found = {
        name: value.decode("utf-8", "replace")
        for name, value in match.groupdict().items()
        if value and not (value.isdigit() and len(value) > MOST_DIGITS)
    }
    return {re.sub(r"_(?:old|2|3)$", "", name): value for name, value in found.items()}
