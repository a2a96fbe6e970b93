"""What one log says: the signs that nothing after them takes back, and whether training came to its end."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

from hpc_llm.causes import attempts, last_error, later, life, reports, worked, workload
from hpc_llm.causes.aftermath import without_harmless
from hpc_llm.causes.caught import left_over, without_repeated
from hpc_llm.causes.cause import TRAINED_ON
from hpc_llm.causes.endings import end_of
from hpc_llm.causes.found import OF_SHELLS, Found, is_loud, signs_in
from hpc_llm.causes.program import NONE
from hpc_llm.causes.schedulers import is_of_another_job, job_of
from hpc_llm.causes.verdict import Verdict, decide, is_of_shell, left_of, of_errors_alone
from hpc_llm.text.blocks import Block, open_blocks

NEAR_THE_END = 1 << 24
"""Bytes at the end of a log that are searched for everything; before them only for what is loud."""
AT_THE_START = 1 << 21
SEARCHED_BETWEEN = 1 << 28
"""Bytes of what is loud that are searched between the start and the end: a log of nothing else says it again there."""
_MOST = 1000
"""Signs that are kept; a log that holds more repeats itself."""
_TAIL = 1 << 16
_SAVED = re.compile(
    rb"^[^\n]{0,160}\b(?i:(?:model|checkpoint|weights|adapter|safetensors|state)\b[^\n]{0,80}\b(?:saved|written|exported)|(?:saved|wrote|exported)\b[^\n]{0,80}"
    rb"\b(?:model|checkpoint|weights|adapter|safetensors|state))\b[^\n]{0,160}",
    re.MULTILINE,
)
"""A line by which a program says that its model lies on the disk."""
_NCCL = re.compile(rb"^[^\n]{0,160}\bNCCL WARN (?!MSCCL|NET/Plugin)[^\n]+", re.MULTILINE)
"""What NCCL says of a call that failed, and not of a plugin without which it goes on."""
_OF_ENVIRONMENTS = frozenset(("package_missing", "gpu_missing", "driver_mismatch"))
"""What may follow from a module or an environment that did not load."""
_LOOKED_AT = 1 << 18
"""Of each block so much is searched for steps: a log that has them has them everywhere."""


@dataclass
class _Later:
    """The steps in the blocks that follow, counted where somebody asks, and each block once."""

    counts: deque[int] = field(default_factory=deque)
    """Those of the first of the blocks that follow."""

    def pass_one(self) -> None:
        """The first of them follows no more."""
        if self.counts:
            self.counts.popleft()

    def are_trained_on(self, blocks: Iterable[Block]) -> bool:
        """Whether they hold so many steps that no message before them says how the run ended."""
        steps = 0
        for number, block in enumerate(blocks):
            if number == len(self.counts):
                self.counts.append(life.steps_after(block.text[:_LOOKED_AT], 0, TRAINED_ON))
            steps += self.counts[number]
            if steps >= TRAINED_ON:
                return True
        return False


@dataclass
class LogFindings:
    """One file, read."""

    file: str
    looks_for_end: bool = True
    """Whether it matters that training came to its end even where nothing was found: not where records say so."""
    found: list[Found] = field(default_factory=list)
    ended_at: int | None = None
    """Position of the last message that training came to its end, without a step after it."""
    firm_at: int | None = None
    """The same of what no script prints by chance."""
    ended_line: tuple[int, str] | None = None
    saved_line: tuple[int, str] | None = None
    """The last line behind the steps that says that something was saved, before what failed behind the end."""
    has_steps: bool = False
    trains: bool = False
    """Whether some of these steps are training's for certain, and no mere progress bar."""
    last_line: tuple[int, str] | None = None
    error_line: tuple[int, str] | None = None
    """The last line near the end in which Slurm or MPI says that something is an error."""
    nccl_line: tuple[int, str] | None = None
    """The line in which NCCL says what failed, the nearest one before the last error, or the first behind it."""
    is_empty: bool = True
    is_binary: bool = False
    """Whether it is no text at all; nothing is read of it then."""
    counts_on: bool = False
    """Whether it begins with lines by which a program counts what it has done."""
    went_on: bool = False
    """Whether the program wrote on for long in spite of all that was found, and came to an end in order."""
    begins_with: later.Opening | None = None
    earlier: list[Found] = field(default_factory=list)
    """What ended the attempts before the last one."""
    holds_jobs: bool = False
    """Whether reports part it into the output of several jobs."""
    workload: str | None = None
    """Whether the program trains or serves, where something was found and the log says which."""
    _first_step: int | None = None
    """Position of the first step that was seen."""
    _overcome: set[str] = field(default_factory=set)
    """Where the program caught what it went on after."""
    _searched: int = 0
    """Bytes of what is loud that were searched, apart from the start and the end."""

    def read_file(self, file: IO[bytes]) -> LogFindings:
        """Take in an open file."""
        return self.read(open_blocks(file, self.file, self._note_binary))

    def _note_binary(self) -> None:
        self.is_binary = True

    def read(self, blocks: Iterable[Block]) -> LogFindings:
        """Take in the blocks of the file, in order."""
        kept: deque[Block] = deque()
        following = _Later()
        size, first = 0, b""
        for block in blocks:
            first = first or block.text
            self.is_empty = self.is_empty and not block.text.strip()
            self.begins_with = self.begins_with or later.Opening.of(block.text)
            kept.append(block)
            size += block.size
            while size - kept[0].size > NEAR_THE_END:
                early = kept.popleft()
                size -= early.size
                following.pass_one()
                self._pass(early, kept, following)
        last = kept[-1] if kept else None
        for block in kept:
            self._count_steps(block)
            self._search(block)
        self.counts_on = worked.begins_with_work(first)
        self.found = without_repeated(self.found, self._overcome)
        if last is not None:
            self._finish(last)
        pieces = [(block.offset, block.text) for block in kept]
        self._leave_out_earlier(pieces)
        self.found = without_harmless(self.found, self.firm_at, pieces)
        if self.ended_at is not None:
            self._note_saved(kept)
        if self.found:
            self._note_nccl(kept)
            self.workload = workload.of((first[:_LOOKED_AT], *(block.text for block in kept)), self.has_steps)
        return self

    def _note_nccl(self, blocks: Iterable[Block]) -> None:
        until = max((one.position for one in self.found if one.is_root), default=0)
        for block in blocks:
            for said in _NCCL.finditer(block.text) if b"NCCL WARN " in block.text else ():
                if self.nccl_line is not None and block.offset + said.start() > until:
                    return
                text = said[0][:400].decode("utf-8", "replace").strip()
                self.nccl_line = (block.line_number(said.start()), text)

    def _note_saved(self, blocks: Iterable[Block]) -> None:
        """Keep the last line before what failed behind the end that says that something was saved."""
        late = [one.position for one in self.found if one.is_root and one.position > (self.ended_at or 0)]
        for block in blocks:  # what failed may also stand in the file of errors
            until = max(0, min(late) - block.offset) if late else len(block.text)
            for said in _SAVED.finditer(block.text, 0, until):
                text = said[0].decode("utf-8", "replace").strip()
                self.saved_line = (block.line_number(said.start()), text)

    def _leave_out_earlier(self, pieces: Sequence[attempts.Piece]) -> None:
        """Leave out what is of earlier jobs and attempts, of which only the last says how it ended."""
        self.holds_jobs = reports.are_several(pieces)
        of_last_job = reports.begin_of_last(pieces)
        if self.ended_at is not None and self.ended_at < of_last_job:
            self.ended_at = self.firm_at = self.ended_line = None
        if not self.found:
            return
        begins = attempts.begins_in(pieces)
        begins.append(later.begin_of_last(self.found, self.begins_with, pieces))
        self.earlier = _roots(self.found, sorted(begins))
        begin = attempts.last_of(begins, self.found)
        if self.ended_at is not None and self.ended_at < begin < max(
            (one.position for one in self.found if one.is_root), default=-1
        ):
            self.ended_at = self.firm_at = self.ended_line = None  # an earlier one came to its end
        of_job = [one for one in self.found if one.position > of_last_job]
        self.found = later.of_last(of_job, begin)
        if any(one.position <= begin and one.cause.undone_by_end for one in self.found):
            self.earlier = []  # it is what is known of the last one
        self.went_on = later.went_on([one for one in self.found if one.is_root], pieces)
        self.ended_at = end_of(self.found, self.ended_at, self.firm_at)

    def _pass(self, block: Block, blocks: Sequence[Block], following: _Later) -> None:
        """Take in what is not near the end, as far as it may matter: no training that is to be seen took it back."""
        self._count_steps(block)
        at_start = block.offset < AT_THE_START
        if not at_start and (self._searched >= SEARCHED_BETWEEN or not is_loud(block.text)):
            return
        if not following.are_trained_on(blocks):
            self._searched += 0 if at_start else block.size
            self._search(block)

    def _search(self, block: Block) -> None:
        found = signs_in(block.text) if len(self.found) < _MOST else []
        steps = list(life.steps(block.text)) if found else []
        advances = life.advances(block.text, steps, TRAINED_ON)
        for one in found:
            following = bisect_right(steps, one.position)
            one.steps_after = len(steps) - following
            one.advanced = advances[following]
            one.file, one.line = self.file, block.line_number(one.position)
            one.clock = later.clock_before(block.text, one.position) if one.is_root else None
            one.position += block.offset
            is_first = self._first_step is None or one.position < self._first_step
            one.is_before_steps = is_first and following == 0
            is_told_elsewhere = one.cause is NONE and not self.looks_for_end
            if len(self.found) < _MOST and not is_told_elsewhere:
                self.found += left_over((one,), self._overcome)
        self._note_end(block)

    def _count_steps(self, block: Block) -> None:
        """Training went on after earlier signs: count how far, and forget those that it survived."""
        self.trains = self.trains or life.shows_training(block.text[:_LOOKED_AT])
        if not self.found and self.ended_at is None and self.has_steps:
            return
        need = max((f.sign.survived_after - f.steps_after for f in self.found), default=1)
        steps = life.steps_after(block.text[:_LOOKED_AT], 0, need)
        if steps:
            if self._first_step is None:
                self._first_step = block.offset + next(life.steps(block.text))
            self.has_steps = True
            if self.ended_at is not None and life.begins_anew(block.text[:_LOOKED_AT]):
                self.ended_at = self.firm_at = self.ended_line = None  # another run began
        for one in self.found:
            one.steps_after += steps
            one.advanced += steps
        self.found = left_over(self.found, self._overcome)

    def _note_end(self, block: Block) -> None:
        end, firm = life.last_ends(block.text)
        if end is None or life.begins_anew(block.text, end + len(block.line(end))):
            return
        self.firm_at = self.firm_at if firm is None else block.offset + firm
        self.ended_at = block.offset + end
        self.ended_line = (block.line_number(end), block.line(end)[:400].decode("utf-8", "replace").strip())

    def _finish(self, last: Block) -> None:
        text = last.text
        if self.ended_at is None and (self.found or self.looks_for_end):
            tail = max(0, len(text) - _TAIL)
            end = life.reached_last_step(text[tail:])
            if end is None and not any(one.is_root for one in self.found):
                end = life.soft_end(text[tail:])
            if end is not None:
                end += tail
                self.ended_at = self.firm_at = last.offset + end
                self.ended_line = (last.line_number(end), last.line(end)[:400].decode("utf-8", "replace").strip())
        stripped = text.rstrip()
        start = stripped.rfind(b"\n") + 1
        self.last_line = (last.line_number(start), last.line(start)[:400].decode("utf-8", "replace").strip())
        tail = text.rfind(b"\n", 0, max(0, len(text) - _TAIL)) + 1
        error = last_error.last_error(text[tail:])
        if error is not None:
            begin = tail + error
            self.error_line = (last.line_number(begin), last.line(begin)[:400].decode("utf-8", "replace").strip())


def _roots(found: Sequence[Found], begins: Sequence[int]) -> list[Found]:
    """What ended each attempt but the last, which begin at `begins`."""
    of_each = [[one for one in found if bisect_right(begins, one.position) == number] for number in range(len(begins))]
    roots = (decide(of_one, completed=False).root for of_one in of_each if of_one)
    return [root for root in roots if root is not None and root.is_root]


def verdict_on(logs: Sequence[LogFindings]) -> tuple[Verdict, list[Found]]:
    """The verdict on one job of which only its logs are there, and what it rests on. Beside a log that is parted into those of several
    jobs, one that is not tells of nobody knows which of them."""
    logs = [log for log in logs if log.holds_jobs] or logs
    ended = any(log.ended_at is not None for log in logs)
    overcome = overcome_in(logs)
    found = [
        one
        for log in logs
        for one in left_of(log.found, log.ended_at, ended)
        if not is_of_another_job(one.text, job_of(log.file)) and not any(one is other for other in overcome)
    ]
    roots = {one.file for one in found if one.is_root}
    went_on = bool(roots) and all(log.went_on for log in logs if log.file in roots)
    verdict = decide([] if went_on else found, ended)
    return of_errors_alone(verdict, found, logs[0].file) if len(logs) == 1 else verdict, found


def overcome_in(logs: Sequence[LogFindings]) -> list[Found]:
    """What the job's shell said in one file of something that did not load, where another file shows that training began, or other
    work of a program that misses none of it."""
    trained = {log.file for log in logs if log.has_steps or log.ended_at is not None}
    is_missed = any(map(_misses, (one for log in logs for one in log.found)))
    worked_on = set() if is_missed else {log.file for log in logs if log.counts_on}
    return [
        one
        for log in logs
        for one in log.found
        if is_of_shell(one) and (trained | (worked_on if one.cause.id in OF_SHELLS else set())) - {log.file}
    ]


def _misses(one: Found) -> bool:
    """Whether something is missing that a module or an environment brings."""
    is_command = "command not found" in one.text and one.cause.id not in OF_SHELLS
    return one.cause.id in _OF_ENVIRONMENTS or is_command
