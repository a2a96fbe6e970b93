"""From what was found to the root: which of the causes everything else follows from. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.causes.cause import STARTED, Cause, Role
from hpc_llm.causes.found import CUT, OF_SHELLS, Found, without_rank
from hpc_llm.causes.outlived import (
    BY_FIGURES,
    EXPLICIT,
    NO_ERROR,
    PASSED_ON,
    SPEAKS_OF_OTHERS,
    TAKEN_DOWN,
    WAITS,
    is_schedulers,
    without_outlived,
)
from hpc_llm.causes.program import NONE, UNKNOWN
from hpc_llm.causes.relayed import without_relayed
from hpc_llm.causes.steps import without_later_steps
from hpc_llm.records.run import Outcome
from hpc_llm.text.secrecy import redacted

_AFTER_ALL = frozenset(("host_oom", "gpu_hardware", "node_fail"))
"""Slurm and the kernel report these late."""
# Python underlines the failing part of a line; ranks that write at once mix these lines with others.
_CARETS = re.compile(r"\^{2,}|^[\s^]+")
REASON_LENGTH = 200
"""Characters of the reason in a table."""
_RAISED = frozenset(("python_exception", "kernel_failed"))
"""What a program raises by itself."""
_FAILS_FIRST = _RAISED | {"segfault"}
"""A rank that ends so leaves the others waiting."""
SURE = 0.65
"""A sign that is less sure of its cause says that the run failed, and no more."""
_OF_WHAT_IS_MISSING = frozenset(("python_exception", "model_missing", "data_missing"))
"""What a program raises where an earlier one did not leave what it should have."""
_USAGE = re.compile(r"\.py: error: (?:the following arguments|unrecognized arguments|ambiguous option|argument [-\w])")
"""How a program refuses its arguments."""
_TASK_FAILED = re.compile(r"srun: error: \S+: tasks? [\d,-]+: (?!Terminated|Exited with exit code 143$)")
_TOLD_TO_END = re.compile(r"\b[Ee]xit(?:ed with exit)? code (?:129|130|143)\b|return code = -(?:1|2|15)\b")
"""What ended of a signal by which others end it."""
KILLED = (
    "a process was killed (SIGKILL), and nothing says by whom: most often the system does it because memory ran out"
)
_OF_SHELL = re.compile(
    r"(?:[^\n\"]{1,160}: line \d+: +\d+ +)?(?P<word>Killed|Segmentation fault|Bus error|Aborted|Terminated)(?: \(core dumped\))?(?:$| {2,}\S)"
)
"""What a shell prints of a process that a signal ended."""
_SIGNALS = {"Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS", "Aborted": "SIGABRT", "Terminated": "SIGTERM"}
_AGREEMENT = 0.02
_RIVAL = 0.1
_ERRORS = re.compile(r"(?:\.err|\.e\d+|(?:^|/)stderr(?:\.log|\.txt)?)(?:\.(?:gz|xz|zst|bz2))?$")
"""Names of a job's standard error."""
_OPEN = 0.6
"""So sure is a cause of which it is not known whether it ended anything."""


@dataclass(frozen=True)
class Verdict:
    """The root cause and what follows from it."""

    cause: Cause
    confidence: float
    root: Found | None
    chain: tuple[Cause, ...]
    """The root first, then its consequences in the order in which they were seen."""
    is_open: bool = False
    """Whether the job may have gone on after the root: its output, which would tell, is in another file."""

    @property
    def outcome(self) -> Outcome:
        """How the run is listed: as failed where the cause is a guess, or where only its consequences are known."""
        if self.is_open:
            return Outcome.UNKNOWN
        if self.root is None:
            return self.cause.outcome
        if self.root.is_root:
            return Outcome.FAILED if self.is_guess else self.cause.outcome
        return self.root.cause.outcome if self.root.sign.role is Role.CASCADE else Outcome.FAILED

    @property
    def is_sure(self) -> bool:
        """Whether the root's text alone says what the cause is."""
        return self.root is not None and self.root.is_root and self.root.sign.confidence >= SURE

    @property
    def is_guess(self) -> bool:
        """Whether a process ended in a way of which the cause is the likely one, and not the only one."""
        return self.root is not None and self.root.sign.confidence < SURE and self.cause.id not in TAKEN_DOWN

    @property
    def reason(self) -> str | None:
        """What a table says: the exception, or the line that shows the root."""
        if self.root is None:
            return None
        if self.root.reason is not None:
            return self.root.reason
        if (words := _in_words(self.root.text)) is not None:
            return words
        details = self.root.details or {}
        words = ": ".join(filter(None, (details.get("exception"), details.get("message"))))
        return _short(redacted(_CARETS.sub("", words or without_rank(self.root.text))).strip())


def _in_words(line: str) -> str | None:
    """What a shell's line on the end of a process means; None of another line."""
    found = _OF_SHELL.match(without_rank(line).strip())
    if found is None:
        return None
    return KILLED if found["word"] == "Killed" else f"a process was ended by {_SIGNALS[found['word']]}"


def doubt(confidence: float | None) -> str:
    """How sure a cause is, in the words of `diagnose`, where that is little; nothing of a cause that is sure, or not known.

    >>> doubt(0.5), doubt(0.97), doubt(None)
    ('confidence 0.50', '', '')
    """
    return f"confidence {confidence:.2f}" if confidence is not None and confidence < SURE else ""


def _short(reason: str) -> str:
    """The reason as a table holds it, with a mark where it goes on."""
    return reason if len(reason) <= REASON_LENGTH else f"{reason[: REASON_LENGTH - len(CUT)].rstrip()}{CUT}"


def decide(found: Sequence[Found], completed: bool) -> Verdict:
    """The verdict on one job; `completed` if training came to its end and nothing was found that undoes it."""
    found = without_later_steps(without_outlived(_without_stopped(found)))
    roots = _without_explained(_without_aftermath(_without_complaints([f for f in found if f.is_root])))
    if all(f.cause is NONE for f in roots) and any(f.sign.ends_job for f in found):
        roots = []  # a script that ended well, and what failed in it
    if not roots:
        failed = [f for f in found if f.sign.ends_job] if completed else found
        return Verdict(NONE, 0.95, None, ()) if completed and not failed else _nothing(failed)
    root = max(roots, key=lambda f: (f.precedence, -f.time, -f.position))
    root = first_of(root, roots)
    return Verdict(root.cause, _confidence(root, roots, found), root, _chain(root, found))


def of_errors_alone(verdict: Verdict, found: Iterable[Found], source: str) -> Verdict:
    """The verdict on a file by its name: standard error that holds nothing but what a shell says of its environment, and goes on,
    does not tell whether the job did."""
    is_open = _ERRORS.search(source) is not None and verdict.root is not None and all(map(is_of_shell, found))
    return replace(verdict, is_open=True, confidence=min(verdict.confidence, _OPEN)) if is_open else verdict


def is_undone(one: Found, ended_at: int | None, completed: bool) -> bool:
    """Whether training reached its end, at position `ended_at`, in spite of `one`, or before it when it does not matter any more."""
    if not one.cause.undone_by_end:
        return False
    if ended_at is not None and one.position < ended_at:
        return True
    late = one.cause.id in TAKEN_DOWN or one.sign.role is not Role.ROOT or one.sign.at_any_time
    return completed and late


def left_of(found: Sequence[Found], ended_at: int | None, completed: bool) -> list[Found]:
    """What was found in one text without what its end undoes; that the job failed after its end is left, unless it was taken down."""
    is_taken_down = any(f.is_root and f.cause.id in TAKEN_DOWN for f in found)
    return [
        f for f in found if not is_undone(f, ended_at, completed) or (not is_taken_down and _fails_after(f, ended_at))
    ]


def _fails_after(one: Found, ended_at: int | None) -> bool:
    """Whether it says so of the time behind the end of training; `ended_at` is None where that is known from elsewhere."""
    is_behind = one.position > ended_at if ended_at is not None else one.steps_after == 0
    return one.sign.ends_job and is_behind and not _TOLD_TO_END.search(one.text)


def first_of(root: Found, found: Iterable[Found]) -> Found:
    """The first of all signs that say as much as `root`: a rank's own record, else a line of a log, else what is stated."""
    same = (f for f in found if f.is_root and f.cause is root.cause and f.precedence == root.precedence)
    return min((root, *same), key=_when)


def _nothing(found: Sequence[Found]) -> Verdict:
    return Verdict(UNKNOWN, 0.5 if found else 0.3, found[0] if found else None, ())


def _when(one: Found) -> tuple[float, bool, str, int]:
    """What ranks recorded has a time and comes first, by it; then lines of logs, then what a record states."""
    return (one.time or math.inf, one.position < 0, one.file, one.position)


def _without_stopped(found: Sequence[Found]) -> Sequence[Found]:
    """Leave out that ranks were told to stop where srun says before it which task had failed: it stopped them for that."""
    stopped = [f for f in found if f.is_root and f.cause.id == "cancelled" and f.sign.confidence < SURE]
    first: dict[str, int] = {}
    for one in stopped:
        first[one.file] = min(first.get(one.file, one.position), one.position)
    failed = (f for f in found if _TASK_FAILED.search(f.text) and f.position <= first.get(f.file, f.position))
    return [f for f in found if f not in stopped] if stopped and any(failed) else found


def _without_aftermath(roots: list[Found]) -> list[Found]:
    """Leave out what a job says after the scheduler took it down, or the taking down of a job that had failed."""
    downs = [f for f in roots if f.cause.id in TAKEN_DOWN and f.precedence >= BY_ID["cancelled"].precedence]
    first: dict[str, int] = {}
    for down in downs:
        first[down.file] = min(first.get(down.file, down.position), down.position)
    before = [f for f in roots if f.cause.id not in TAKEN_DOWN and f.position < first.get(f.file, 0)]
    if any(f.precedence >= BY_ID["python_exception"].precedence for f in before):
        # It failed, hung, and was taken down for that; what a record states of its end stays true.
        return [f for f in roots if f.cause.id not in TAKEN_DOWN or f.position < 0]
    return [
        f
        for f in roots
        if f.cause.id in TAKEN_DOWN or f.cause.id in _AFTER_ALL or f.position < first.get(f.file, f.position + 1)
    ]


def _without_complaints(roots: list[Found]) -> list[Found]:
    """Leave out what the job's script said of its environment before it went on, and what says nothing of an error: of that
    the scheduler does not end a job.

    It says by itself what ended it: a limit, a node, a preemption, memory. A job that nothing but a person or srun ended may
    have failed before; but its script went on after a module that did not load, or there would have been no job to end.
    """
    said = [f for f in roots if is_schedulers(f)]
    went_on = [f for f in roots if f.cause.id == "cancelled" and "*** JOB " in f.text]
    return [
        f
        for f in roots
        if not (_is_complaint(f) and any(_is_later(one, f) for one in said))
        and not (f.cause.id in OF_SHELLS and any(one.file == f.file and _is_later(one, f) for one in went_on))
    ]


def _is_complaint(one: Found) -> bool:
    """Whether it is one of those messages with which a program or a shell goes on."""
    if one.position >= 0 and NO_ERROR.search(one.text) and one.cause.id not in BY_FIGURES and not is_schedulers(one):
        return True
    return is_of_shell(one)


def is_of_shell(one: Found) -> bool:
    """Whether a shell or its module system says it of what comes before the program, and goes on unless it is told to end."""
    is_meant = one.cause.id in OF_SHELLS or "command not found" in one.text
    return is_meant and one.position >= 0 and one.sign.survived_after == STARTED


def _is_later(one: Found, complaint: Found) -> bool:
    """Whether it is a record's word, stands in another file or later in the same one."""
    return one.position < 0 or one.file != complaint.file or one.position > complaint.position


def _without_explained(roots: list[Found]) -> list[Found]:
    """Leave out what another cause that was found explains."""
    roots = _without_later_programs(_without_late_signal(_without_waiting(_without_overcome(without_relayed(roots)))))
    explained: dict[str, int] = {}
    for cause in {f.cause.id: f for f in roots if f.precedence >= _firm(f.cause)}.values():
        explained |= {one: max(cause.precedence, explained.get(one, 0)) for one in cause.cause.explains}
    explaining = _explaining_later(roots)
    left = [f for f in roots if not _is_explained(f, explained) and not _follows(f, explaining)]
    return left or roots


def _is_explained(one: Found, explained: Mapping[str, int]) -> bool:
    """Whether its cause is; a text that by itself says more than what would explain it is not."""
    return one.cause.id in explained and (one.sign.precedence or 0) <= explained[one.cause.id]


def _explaining_later(roots: Sequence[Found]) -> dict[str, list[Found]]:
    """Of each cause, by its id, the messages that explain it where it follows them."""
    explaining: dict[str, list[Found]] = {}
    for one in roots:
        if one.precedence >= _firm(one.cause):
            for name in one.cause.explains_later | one.sign.explains_later:
                explaining.setdefault(name, []).append(one)
    return explaining


def _follows(one: Found, explaining: Mapping[str, list[Found]]) -> bool:
    """Whether it comes after a message that explains what follows it."""
    said = explaining.get(one.cause.id, [])
    first = min(said, key=lambda f: f.position if f.file == one.file else -1, default=None)
    return first is not None and _is_later(one, first)


def _without_overcome(roots: list[Found]) -> list[Found]:
    """Leave out that a process was not reached at first, where the one that said so went on and failed of something else."""
    missed: dict[str, int] = {}
    for one in (f for f in roots if f.cause.id == "unreachable"):
        missed[one.file] = min(missed.get(one.file, one.position), one.position)
    overcome = {
        f.file
        for f in roots
        if f.cause.id in _RAISED
        and f.precedence >= _firm(f.cause)
        and f.position > missed.get(f.file, f.position)
        and not SPEAKS_OF_OTHERS.search(f.text)
        and not PASSED_ON.search(f.text)
    }
    return [f for f in roots if f.cause.id != "unreachable" or f.file not in overcome]


def _without_later_programs(roots: list[Found]) -> list[Found]:
    """Leave out what a program said that came behind the end of another: that it refused its arguments, as it does before all else, or
    raised what it raises where the one before did not make what it should have made. The script went on after the failure."""
    ended = [f for f in roots if f.ends_process and f.position >= 0]
    return [f for f in roots if not any(_is_of_later_program(f, end) for end in ended)]


def _is_of_later_program(one: Found, end: Found) -> bool:
    if one.file != end.file or one.position <= end.position:
        return False
    if _USAGE.search(one.text):
        return True
    if one.cause.id not in _OF_WHAT_IS_MISSING or not one.ends_process or not one.is_raised:
        return False
    is_another = None not in (one.program, end.program) and one.program != end.program and not end.is_before_steps
    return is_another if end.is_raised else True


def _without_waiting(roots: list[Found]) -> list[Found]:
    """Leave out that ranks missed one that had failed in their sight: before they missed it, and without a step since."""
    waits = [f for f in roots if f.cause.id in WAITS]
    first: dict[str, Found] = {}
    for one in sorted(waits, key=lambda f: f.position):
        first.setdefault(one.file, one)
    failed = any(
        f.cause.id in _FAILS_FIRST
        and f.precedence >= _firm(f.cause)
        and not SPEAKS_OF_OTHERS.search(f.text)
        and _is_before(f, first)
        for f in roots
    )
    return [f for f in roots if f not in waits] if failed else roots


def _without_late_signal(roots: list[Found]) -> list[Found]:
    """Leave out a signal that a launcher reports after exceptions of a program that failed by itself: while it ends, ranks come
    down in any way. What names a bus error in words stays."""
    first: dict[str, Found] = {}
    signals = [f for f in roots if f.cause.id == "bus_error"]
    if any(f.sign.confidence > EXPLICIT for f in signals):
        return roots
    for one in sorted(signals, key=lambda f: f.position):
        first.setdefault(one.file, one)
    failed = {
        f.file
        for f in roots
        if f.cause.id in _RAISED
        and f.precedence >= _firm(f.cause)
        and not SPEAKS_OF_OTHERS.search(f.text)
        and not PASSED_ON.search(f.text)
        and f.file in first
        and _is_before(f, first)
    }
    return [f for f in roots if f.cause.id != "bus_error" or f.file not in failed]


def _is_before(one: Found, waits: Mapping[str, Found]) -> bool:
    """Whether it is before the first wait in its file, but for the step that others had begun; or in a file of a process
    that did not wait, whose last word it is."""
    wait = waits.get(one.file)
    if wait is None:
        return bool(waits) and one.position >= 0 and one.steps_after == 0
    return 0 <= one.position < wait.position and one.steps_after <= wait.steps_after + 1


def _firm(cause: Cause) -> int:
    """A sign that is weaker than its cause explains nothing away."""
    return min(cause.precedence, 45)


def _confidence(root: Found, roots: Sequence[Found], found: Sequence[Found]) -> float:
    same = {f.sign.source for f in found if f.cause is root.cause}
    confirmed = any(f.sign.role is Role.CONFIRMATION for f in found)
    rivals = {f.cause.id for f in roots if f.cause is not root.cause and f.precedence > root.precedence - 10}
    confidence = root.sign.confidence + _AGREEMENT * (len(same) - 1) + _AGREEMENT * confirmed - _RIVAL * bool(rivals)
    return round(min(0.99, max(0.1, confidence)), 2)


def _chain(root: Found, found: Iterable[Found]) -> tuple[Cause, ...]:
    """What is seen besides the root; an abort of a process that had a reason for it is no crash."""
    chain = [root.cause]
    for one in found:
        is_weak = one.is_root and one.cause.id == "segfault" and one.precedence < _firm(one.cause)
        if one.sign.role is not Role.CONFIRMATION and not is_weak and one.cause not in chain:
            chain.append(one.cause)
    return tuple(chain)
