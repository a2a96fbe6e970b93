"""The text of a run that may say how it ended.

A message counts only where little training follows it, so of a long log only the end has to be searched: what stands
before the last few steps is dropped as soon as those steps are read. What is not followed by steps is kept up to a limit.
Of a program that no format knows, lines that look like steps take the place of those that are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpc_llm.causes import attempts as attempts_of
from hpc_llm.causes import later as later_on
from hpc_llm.causes import life
from hpc_llm.causes.aftermath import without_harmless
from hpc_llm.causes.caught import left_over, without_repeated
from hpc_llm.causes.cause import TRAINED_ON
from hpc_llm.causes.endings import end_of
from hpc_llm.causes.found import Found, is_loud, signs_in
from hpc_llm.causes.outlived import BY_FIGURES, TAKEN_DOWN
from hpc_llm.causes.schedulers import is_of_another_job
from hpc_llm.causes.tracebacks import TRACEBACK
from hpc_llm.causes.verdict import Verdict, decide, left_of, of_errors_alone
from hpc_llm.parsing.exits import Exits
from hpc_llm.parsing.rules import Value
from hpc_llm.parsing.unread import Lookalikes

KEPT = 1 << 20
"""Bytes without a step that are searched for everything; before them, only what is loud."""
_BEFORE, _ABOVE = 1 << 13, 1200
_MOST = 1000
"""Signs that are kept; a log that holds more repeats itself."""


@dataclass
class Part:
    """A piece of the text, with where in it steps begin."""

    text: bytes
    steps: Sequence[int]
    position: int
    """Bytes of the run's text before it, as far as it was looked at."""
    is_read: bool = True
    """Whether a format read the steps; else the lines look like steps, and may be those of an evaluation."""
    before: bytes = b""
    """The end of the text before it, in which a traceback may begin that goes on in this one."""

    def goes_on_in(self, other: Part) -> bool:
        return self.is_read == other.is_read and self.position + len(self.text) == other.position

    def joined(self, other: Part) -> Part:
        """One part of both, of which the other stands right behind."""
        steps = [*self.steps, *(len(self.text) + step for step in other.steps)]
        return replace(self, text=self.text + other.text, steps=steps)

    @property
    def end(self) -> bytes:
        """The end of the text so far, of whole lines."""
        end = (self.before + self.text)[-_BEFORE:]
        return end if len(end) < _BEFORE else end[end.find(b"\n") + 1 :]

    def signs(self) -> list[Found]:
        """Those in its text."""
        lead = len(self.before)
        found = [one for one in signs_in(self.before + self.text) if one.position >= lead]
        for one in found:
            one.position -= lead
        return found


def _with_traceback(end: bytes) -> bytes:
    """The end of a text from above the last heading of a traceback on, which may go on behind it; nothing where there is none: signs are
    looked for in what is kept, once for each of perhaps thousands of runs."""
    heading = end.rfind(TRACEBACK)
    return end[end.rfind(b"\n", 0, max(0, heading - _ABOVE)) + 1 :] if heading >= 0 else b""


@dataclass
class Tail:
    """The end of a run's text, while the run is read."""

    parts: deque[Part] = field(default_factory=deque)
    found: list[Found] = field(default_factory=list)
    """Signs in text that is not kept any more, and that no step took back."""
    length: int = 0
    """Bytes that were added."""
    above: bytes = b""
    """What stands right above the first part, where that says what it means."""
    latest: bytes = b""
    """The end of the text so far."""
    size: int = 0
    """Bytes that are kept."""
    unread: Lookalikes = field(default_factory=Lookalikes)
    """Lines that look like steps, where no format read any."""
    ended_at: int | None = None
    """Where training came to its end."""
    firm_at: int | None = None
    """The same, in words that no script prints by chance."""
    exits: Exits = field(default_factory=Exits)
    """Processes that ended well behind the last step."""
    stopped: str | None = None
    """How it says that it stopped there by its own settings, which may be before its last step."""
    source: str = ""
    """The file, whose name may say that it is standard error alone."""
    job: int | None = None
    """The job whose output it is, where that is known; what Slurm says of another one was printed by the program."""

    begins_with: later_on.Opening | None = None
    """By what it is known that another attempt begins."""
    first_step: int | None = None
    """Where the first step begins."""
    attempts: list[int] = field(default_factory=list)
    """Where the words of a launcher or a script begin another attempt."""
    overcome: set[str] = field(default_factory=set)
    """Where the program caught what it went on after."""
    went_on: bool = False
    """Whether the program wrote on for long in spite of all that was found, and came to an end in order."""
    is_followed: bool = False
    """Another run begins behind it: what stands between its end and that opening is of neither."""
    is_cell: bool = False
    """It is what the cells of a notebook printed."""
    cell_before: Tail | None = None
    """That of a cell before, which holds nothing but an exception."""

    def add(self, text: bytes, steps: Sequence[int]) -> None:
        """Go on with `text`, in which steps begin at these positions, rising."""
        self._append(Part(text, steps, self.length))
        self.length += len(text)

    def add_unread(self, text: bytes) -> None:
        """Go on with `text` of a run of which no format has read a step."""
        steps = self.unread.of(text)
        if steps:
            self._end(text, self.length)  # a part is dropped when steps follow, and these may be an evaluation's
        self._append(Part(text, steps, self.length, is_read=not steps))
        if steps:
            self.exits.look(text, steps[-1])
        self.length += len(text)

    def end(self, position: int) -> None:
        """Training came to its end so many bytes into the text that is added next."""
        self.ended_at = self.firm_at = self.length + position

    def _append(self, part: Part) -> None:
        if not self.begins_with and part.position == 0:
            self.begins_with = later_on.Opening.of(part.text)
        if part.steps and self.first_step is None:
            self.first_step = part.position + part.steps[0]
        part = replace(part, before=part.before or self.above or _with_traceback(self.latest))
        self.above, self.latest = b"", part.end
        if len(part.steps) > TRAINED_ON:
            cut = part.steps[-TRAINED_ON]
            before = replace(part, text=part.text[:cut]).end
            steps = [step - cut for step in part.steps[-TRAINED_ON:]]
            part = Part(part.text[cut:], steps, part.position + cut, part.is_read, before)
        self._pass(len(part.steps), part.is_read)
        self.parts.append(part)
        self.size += len(part.text)
        after = self._steps_kept() - len(self.parts[0].steps)
        while len(self.parts) > 1 and after >= TRAINED_ON:
            self._drop()
            after -= len(self.parts[0].steps)
        while len(self.parts) > 1 and self.size - len(self.parts[0].text) > KEPT:
            self._search_first()

    def _pass(self, steps: int, is_read: bool = True) -> None:
        """So many steps followed all that was found so far; where no format read them, lines of several ranks may be one."""
        if steps:
            self.exits = Exits()
        for one in self.found:
            one.steps_after += steps
            one.advanced += steps if is_read else 0
        self.found = left_over(self.found, self.overcome)

    def _drop(self) -> Part:
        part = self.parts.popleft()
        self.size -= len(part.text)
        return part

    def _search_first(self) -> None:
        """Search what becomes too much to keep."""
        part = self._drop()
        if part.position < KEPT or is_loud(part.text):
            self._take(part, self._steps_kept())

    def _take(self, part: Part, steps_after: int) -> None:
        found = part.signs() if len(self.found) < _MOST else ()
        shown = list(life.steps(part.text)) if found else []
        advances = life.advances(part.text, shown, TRAINED_ON)
        for one in found:
            of_format = len(part.steps) - bisect_right(part.steps, one.position)
            of_lines = 0 if one.cause.id in BY_FIGURES else advances[bisect_right(shown, one.position)]
            one.advanced = max(of_lines, steps_after + of_format if part.is_read else 0)
            one.steps_after = max(steps_after + of_format, of_lines)
            one.clock = later_on.clock_before(part.text, one.position) if one.is_root else None
            one.position += part.position
            one.is_before_steps = self.first_step is None or one.position < self.first_step
            if len(self.found) < _MOST:
                self.found += left_over((one,), self.overcome)
        is_followed = steps_after and any(one.steps and one.is_read for one in self.parts)
        if not is_followed and part.is_read:
            self.exits.look(part.text, part.steps[-1] if part.steps else 0)
            self._end(part.text, part.position, part.steps[-1] if part.steps else None)

    def _end(self, text: bytes, position: int, last_step: int | None = None) -> None:
        """Training came to its end where `text`, which stands at `position`, says so on a line behind the last step."""
        end, firm = life.last_ends(text)
        if end is None or (last_step is not None and b"\n" not in text[last_step:end]):
            return
        self.ended_at = max(self.ended_at or 0, position + end)
        self.firm_at = self.firm_at if firm is None else max(self.firm_at or 0, position + firm)
        self.stopped = life.planned_stop(text, end)

    @property
    def speaks(self) -> bool:
        """Whether anything says how the run ended; before it is settled, not all is known."""
        return bool(self.found) or self.ended_at is not None

    def settle(self) -> None:
        """Nothing follows: search all that is left, as one text where it is one: a traceback may lie across two parts."""
        pieces = [(part.position, part.text) for part in self.parts]
        while self.parts:
            part = self._drop()
            while self.parts and part.goes_on_in(self.parts[0]):
                part = part.joined(self._drop())
            self._take(part, self._steps_kept())
        self.found = without_repeated(self.found, self.overcome)
        if pieces and self.found:
            self._note_attempts(pieces)
            self.found = without_harmless(self.found, self.firm_at, pieces)
        self.ended_at = end_of(self._of_attempt_at(self.ended_at), self.ended_at, self.firm_at)

    def _of_attempt_at(self, position: int | None) -> list[Found]:
        """The signs of the attempt to which the text at `position` belongs, and of those behind it."""
        begin = max((begin for begin in self.attempts if begin < (position or 0)), default=-1)
        return [one for one in self.found if one.position > begin]

    def _note_attempts(self, pieces: Sequence[attempts_of.Piece]) -> None:
        """Note where jobs and attempts begin, of which only the last says how it ended; leave out what is surely of earlier ones."""
        self.went_on = later_on.went_on([one for one in self.found if one.is_root], pieces)
        self.attempts += attempts_of.begins_in(pieces)
        begin = later_on.begin_of_last(self.found, self.begins_with, pieces)
        if begin >= 0 and self.first_step is not None:  # it may be the opening of the next run, which is not known yet
            self.attempts.append(begin)
        else:
            self.found = later_on.of_last(self.found, begin)

    def _steps_kept(self) -> int:
        return sum(len(part.steps) for part in self.parts)

    def has_ended(self, facts: Mapping[str, Value]) -> bool:
        """Whether its text says that training came to its end, or that all processes did; it must be settled."""
        return self.ended_at is not None or self.exits.are_of_all(facts)

    def verdict(self, completed: bool) -> Verdict:
        """How the run ended, as far as its messages say; it must be settled. `completed` if its format says so."""
        completed = completed or self.ended_at is not None
        found = left_of(self._own(), self.ended_at, completed)
        return of_errors_alone(decide([] if self.went_on else found, completed), found, self.source)

    def _own(self) -> list[Found]:
        """The signs that are of this run and its job."""
        begin = attempts_of.last_of(self.attempts, self.found, is_followed=self.is_followed)
        found = later_on.of_last(self.found, begin)
        own = [one for one in found if not is_of_another_job(one.text, self.job)]
        end = self.ended_at if self.is_followed else None
        return own if end is None else [one for one in own if one.position < end]

    def aftermath(self) -> str | None:
        """What ended the job after training had come to its end."""
        return next((one.text for one in self._own() if one.cause.id in TAKEN_DOWN), None)

    def look_behind_end(self, later: Tail) -> None:
        """What stands behind the end of the job may be the same job's next attempt, which begins as the first one did."""
        opening = self.begins_with
        begins = [(part.position, opening.begins(part.text, is_over_before=True)) for part in later.parts if opening]
        self.attempts += [self.length + position + begin for position, begin in begins if begin is not None]

    def merge(self, later: Tail, steps: int) -> None:
        """Go on with what a later piece of the log kept, of which the formats read so many steps."""
        steps += later.unread.count
        self.unread.count += later.unread.count
        dropped = steps - later._steps_kept()
        if steps >= TRAINED_ON:
            self.parts.clear()
            self.size = 0
        elif dropped:
            self.settle()
        self._pass(dropped)
        self.exits = Exits(self.exits.processes | later.exits.processes) if not steps else later.exits
        for one in later.found:
            one.position += self.length
        if self.first_step is None and later.first_step is not None:
            self.first_step = self.length + later.first_step
        if later.ended_at is not None:
            self.ended_at = later.ended_at + self.length
            self.stopped = later.stopped
        if later.firm_at is not None:
            self.firm_at = later.firm_at + self.length
        for part in later.parts:
            self._append(replace(part, position=part.position + self.length))
        self.found += later.found
        self.overcome |= later.overcome
        self.attempts += [self.length + begin for begin in later.attempts]
        self.begins_with = self.begins_with or later.begins_with
        self.length += later.length
