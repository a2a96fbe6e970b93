"""From blocks of text to runs.

Two lanes give the same result. The careful lane takes what `matches` finds in the order in which it stands in the log. Most of a
long log is nothing but step lines in rising order: there `fast` takes all numbers of a chunk in few searches. A step is complete only
when the next one begins, since lines may add to it; so the run holds one open, and all that ends a run flushes it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hpc_llm.causes.samples import is_of_a_sample
from hpc_llm.parsing import cells, jobs
from hpc_llm.parsing.aftermath import Aftermath
from hpc_llm.parsing.begun import Begun
from hpc_llm.parsing.copies import Copies
from hpc_llm.parsing.fast import CHUNK, FastLane, end_of_chunk
from hpc_llm.parsing.held import Held, of_the_run
from hpc_llm.parsing.joining import MOST_RUNS, is_stray, leave_out, merge, rejoin, without_empty
from hpc_llm.parsing.matches import Border, Hit, WholeHits, hits_in, line_at, stream_of
from hpc_llm.parsing.mixed import Mixture, first_piece, in_words
from hpc_llm.parsing.registry import LineFormat, formats_in
from hpc_llm.parsing.rows import TRAIN
from hpc_llm.parsing.rules import BELOW, BELOW_SINCE, EACH_RANK, LARGEST, PAUSES, Kind, Rule, Value
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.sample import StepSample
from hpc_llm.parsing.unparsed import Unparsed
from hpc_llm.text import sources

SLOW_CHUNK = 1 << 15
"""Bytes that are searched at once until a fast lane is found."""


class Scanner:
    """Reads the blocks of one log, or of one piece of it, in order."""

    def __init__(
        self,
        formats: tuple[LineFormat, ...],
        *,
        on_step: Callable[[int, Mapping[str, Value]], None] | None = None,
        count_unparsed: bool = False,
        careful: bool = False,
        sampled: bool = False,
        stands_in: bool = False,
    ) -> None:
        """`on_step` gets the number of the run, from 0, and each complete step; without it the fast lane is used. `sampled` keeps some
        of the steps of each run; with `stands_in` a library's steps are the program's."""
        self._sampled, self._stands_in = sampled, stands_in
        self.runs: list[LogRun] = [self._new_run()]
        self.unparsed = Unparsed()
        self._formats: tuple[LineFormat, ...] = ()
        self._on_step = on_step
        self._count_unparsed = count_unparsed
        self._careful_only = careful or on_step is not None or count_unparsed or stands_in
        self._fast: FastLane | None = None
        self._held = b""
        self._handed_to = 0
        """Up to there the run before has the text of the chunk."""
        self._step_starts: list[int] = []
        self._offset = 0
        self._last_step_end = 0
        self._job_over_at = 0
        self._taken_to = 0
        self._whole = WholeHits()
        self._aside: dict[str, Value] = {}
        self._later = Held()
        self._rules_of_step: set[Rule | None] = set()
        self._mixture = Mixture()
        self._copies = Copies()
        self._went_back_in: LogRun | None = None
        self._begun = Begun.of(self.run)
        self._use(formats)

    def _new_run(self) -> LogRun:
        return LogRun(sample=StepSample() if self._sampled else None)

    @property
    def run(self) -> LogRun:
        return self.runs[-1]

    def _use(self, formats: tuple[LineFormat, ...]) -> None:
        self._formats = tuple(sorted({*self._formats, *formats}, key=lambda f: (f.precedence, f.name)))
        self._owned = any(not f.companion and any(r.kind is Kind.STEP for r in f.rules) for f in self._formats)
        self._measures_else = any(f.kind not in (None, TRAIN) for f in self._formats)

    def look_for_formats(self, text: bytes) -> None:
        """Use the formats whose output is in `text`, too."""
        new = set(formats_in(text)) - set(self._formats)
        if new:
            self._use(tuple(new))
            self._fast = None

    def feed(self, block: bytes) -> None:
        """Read the next bytes."""
        text = self._held + block if self._held else block
        begin = 0
        while (end := end_of_chunk(text, begin, CHUNK if self._fast else min(CHUNK, SLOW_CHUNK), self._fast)) > begin:
            self._take_chunk(text[begin:end])
            begin = end
        self._held = text[begin:]

    def finish(self) -> list[LogRun]:
        """All input was read; the runs, without an empty one at the end."""
        text, self._held = self._held, b""
        end = sources.end_of_lines(text, 0, len(text))
        for chunk in filter(None, (text[:end], text[end:])):
            self._take_chunk(chunk)
        self._flush()
        self._later.give_unknown(self.run)
        return without_empty(self.runs)

    def _take_chunk(self, chunk: bytes) -> None:
        length = len(chunk)
        if b"\r" in chunk or b"\0" in chunk:
            chunk = sources.clean(self.unparsed.without_damage(chunk))
        # the first two lines are looked at one by one
        is_plain = self.run.lines > 1 and not (self.run.over or self.run.paused)
        if self._fast is None or not is_plain or not self._take_fast(self._fast, chunk, length):
            self._careful(sources.clean(chunk))
        self._offset += length

    def _take_fast(self, lane: FastLane, chunk: bytes, length: int) -> bool:
        """Take a chunk of nothing but steps; false where it must be read with care."""
        steps = lane.read(chunk, self.run.last)
        if steps is None or self._copies.may_come_again(self.run, steps.order, steps.first_losses):
            return False
        self._later.give(self.run)
        self.run.add_steps(steps.order, steps.columns, steps.facts)
        if self.run.sample is not None:
            self.run.sample.extend(len(steps.order), steps.loss_at)
        begin, starts = lane.last_steps(chunk)
        self.run.tail.add(chunk[begin:], [start - begin for start in starts])
        self._last_step_end = self._taken_to = self._offset + max(starts[-1], chunk.find(b"\n", starts[-1]))
        self._aside = {}
        for one in lane.last_below(chunk):
            self._take(one, chunk)
            self._taken_to = max(self._taken_to, self._offset + one.end)
            if one.start < starts[-1]:
                self._aside = {}  # that step has it
        self._begun.note(chunk, self._offset, self.run, self._taken_to)
        self._copies.leave(chunk, self._last_step_end - self._offset, self.run, lane.told(chunk))
        return True

    def _careful(self, chunk: bytes) -> None:
        chunk = sources.without_endless_lines(chunk)
        lines = self.run.lines
        found = self._whole.of(hits_in(chunk, self._formats), chunk)
        taken_to = -1
        accepted: list[Hit] = []
        self._copies.hits = found
        for self._copies.place, one in enumerate(found):
            if one.is_step and one.start < taken_to:
                continue  # another reading of the line that was taken as a step
            if self._take(one, chunk):
                accepted.append(one)
                self._taken_to = self._offset + max(one.end, chunk.find(b"\n", one.end))
                if one.is_step:
                    taken_to = one.end
        self._hand_over(chunk, len(chunk))
        self._handed_to = 0
        self._begun.note(chunk, self._offset, self.run, self._taken_to)
        self._copies.leave(chunk, self._last_step_end - self._offset)
        if self._count_unparsed:
            self.unparsed.look(chunk, [(one.start, one.end) for one in accepted])
        if not self._careful_only and self.run.lines > lines:
            self._fast = self._fast or FastLane.for_formats(self._formats)

    def _take(self, found: Hit, chunk: bytes) -> bool:
        """Apply one match; false where it turned out to be no metric."""
        if found.border in (Border.JOB_OVER, Border.REPORTED, Border.HEAD):
            (self._end_job if found.border is Border.JOB_OVER else self._open_job)(found, chunk)
            return True
        if found.rule is None or found.match is None:
            self._later.give_unknown(self.run)
            self.run.tail.is_cell, self._taken_to = True, self._offset + found.start
            self._begin(chunk, found.start, only_after_results=False)
            cells.begin_next(self.runs)
            return True
        values = found.values()
        if values is None or (found.format is not None and is_of_a_sample(chunk, found.start)):
            return False
        if self._count_unparsed and found.rule.leaves_commas(found.match):
            self.unparsed.note_comma(line_at(chunk, found.start))
        if found.format is None:
            self._learn_of_job(found, values, chunk)
            return True
        place = found.format.place
        if place is not None and (values := place(values, self.run.known, self.run.has_steps)) is None:
            return False
        since = self._last_step_end - self._offset
        if self._later.are_of_next(self.run, values, found, chunk, since, self._copies):
            self._later.give_unknown(self.run, values.get("order"))
            self._begin(chunk, found.start, only_after_results=False)
        self._apply(found, found.format, found.rule.kind, values, chunk)
        return True

    def _end_job(self, found: Hit, chunk: bytes) -> None:
        """The scheduler said that the job, or a step of it, is over: what follows a job may be another one's."""
        self.run.job_over = True
        self._job_over_at = self._offset + found.end
        if found.match is None or self.run.mixed is not None:
            return
        self._later.give_unknown(self.run)
        end = jobs.end_of_last_words(chunk, min(found.end + 1, len(chunk)))
        self._taken_to = self._offset + end
        self._begin(chunk, end, only_after_results=False, aftermath=Aftermath.of(found.match, end, self.run.aftermath))

    def _open_job(self, found: Hit, chunk: bytes) -> None:
        """Another job begins: behind a report, or with a table if what began with another one failed."""
        position = found.start if found.border is Border.HEAD else min(found.end + 1, len(chunk))
        self._hand_over(chunk, position)
        if self.run.mixed is None and (found.border is Border.REPORTED or self.run.heads.is_over):
            self._later.give_unknown(self.run)
            self._taken_to = self._offset + position
            self._begin(chunk, position, only_after_results=False)
            self.run.inherited, self.run.heads.opens = {}, len(self.runs) > 1

    def _learn_of_job(self, found: Hit, values: Mapping[str, Value], chunk: bytes) -> None:
        """A fact of the job; that of another one is another run's."""
        known = self.run.values.get("job_id")
        if self.run.mixed is None and jobs.is_another(values.get("job_id"), known):
            self._later.give_unknown(self.run)
            start = chunk.rfind(b"\n", 0, found.start) + 1
            self._begin(chunk, start, only_after_results=False, aftermath=Aftermath(str(known)))
        self.run.learn(values)

    def _apply(self, found: Hit, owner: LineFormat, kind: Kind, values: Mapping[str, Value], chunk: bytes) -> None:
        is_owner = self._stands_in and owner.stands_in and kind is Kind.STEP
        below = owner.companion and self._owned and not is_owner
        pauses = (found.rule is not None and found.rule.pauses) or PAUSES in values
        if kind in (Kind.START, Kind.SETUP) and self._copies.begins(self.run, found, chunk):
            self._begin(chunk, found.start, only_after_results=True)
            self._mixture.restart()
            self.run.trains = self.run.trains or kind is Kind.START
            self.run.is_programs = self.run.is_programs or not below
        if kind is Kind.STEP and not below:
            self._step(found, values, chunk)
        elif below:
            self._learn_below(found, kind, self.run.stamps.engine.take(values), chunk)
        elif kind is Kind.MORE:
            if self.run.stream is None or self.run.stream == stream_of(chunk, found.start):
                self.run.add_to_step(values)
        elif kind is Kind.TICK:
            if values and not (self.run.over or self._copies.repeats_line(found, chunk) or self.run.tick(values)):
                self._open(found, None, values, chunk)
        else:
            sure = self._later.take(self.run, values, below, found, chunk)
            self.run.learn(sure, again=kind is Kind.END and self.run.closed)
        if pauses and not below and not self.run.over:
            self.run.pause()
        if found.rule is None or not found.rule.aside:
            self.run.note(owner.name, owner.precedence, owner.packed)
        if kind is Kind.END and not below:
            if not self._copies.is_of_another_rank(self.run, found, chunk):  # that one may be ahead
                self._flush()
                self.run.end()
            self.run.tail.end(found.start - self._handed_to)

    def _learn_below(self, found: Hit, kind: Kind, values: Mapping[str, Value], chunk: bytes) -> None:
        """What a library below the program says: facts, and more about the program's next step."""
        if kind in (Kind.STEP, Kind.TICK):
            self._aside.update(values)
            count = BELOW_SINCE if self.run.has_steps else BELOW
            self.run.companion[count] = int(self.run.companion.get(count, 0)) + 1
        if kind is not Kind.TICK:
            facts = of_the_run(values) if kind is Kind.STEP else values
            self.run.learn(self._later.take(self.run, facts, True, found, chunk), companion=True)

    def _step(self, found: Hit, values: Mapping[str, Value], chunk: bytes) -> None:
        """A step line of the program: of a new step, of another run, or another rank's copy."""
        rule = found.rule
        order = values.get("order", values.get("step"))
        number = float(order) if isinstance(order, (int, float)) and abs(order) < LARGEST else None
        step = None if "order" in values else number
        position, distance = self._offset + found.start, self._offset + found.start - self._last_step_end
        if not jobs.is_own(self.run) and jobs.goes_on(self.runs[-2], step, position - self._job_over_at):
            rejoin(self.runs)
        if is_stray(self.runs, step):
            rejoin(self.runs)
        is_second = not self.run.mixed and self._copies.takes_second_line(self.run, found, values, self._rules_of_step)
        if is_second or self._is_mixed(found, number, values, chunk):
            return
        failed = self._copies.failed_once(self.run, found, chunk, distance)
        is_over = self.run.over and not jobs.goes_on(self.run, step, position - self._job_over_at)
        if is_over and self._copies.is_behind_end(self.run, number, values, found, chunk, self._rules_of_step):
            self.run.learn_peaks(values)
            return
        is_others = self._copies.is_of_another_rank(self.run, found, chunk)
        if is_over or (self._later.begins_anew(self.run, number) and not is_others):
            self._later.give_results(self.run, values.get("order"))
            self._begin(chunk, found.start, only_after_results=False)
        elif number is not None and number == self.run.last and self.run.pending and rule not in self._rules_of_step:
            self._rules_of_step.add(rule)
            self.run.add_to_step(values)
            return
        elif self._copies.is_copy(
            self.run, step, number, found, chunk, distance, "loss" in values
        ) or self._copies.says_again(self.run, found, values):
            self._copies.note(self.run, number)
            self._last_step_end = position + found.end - found.start  # many ranks print many lines
            self.run.learn_peaks(values)
            return
        elif self._shows_two_rows(number):
            return
        elif self._later.are_of_another(self.run, found, number, values, failed):
            self._begin(chunk, found.start, only_after_results=False)
        self._open(found, number, values, chunk)
        self._rules_of_step = {rule}

    def _is_mixed(self, found: Hit, number: float | None, values: Mapping[str, Value], chunk: bytes) -> bool:
        """Whether the step lines are those of more than one run: what follows is of none that could be told."""
        if self.run.mixed is not None:
            self._step_starts.append(found.start)
            return True
        if found.format is None or self.run.stream not in (None, stream_of(chunk, found.start)):
            return False
        one_loss = found.format.one_loss and EACH_RANK not in values
        shown = self._mixture.of(found.format, number, values, one_loss)
        if shown is not None:
            self._mix(shown)
        return shown is not None

    def _shows_two_rows(self, number: float | None) -> bool:
        """Whether this number goes on with one of two rows between which the log goes to and fro."""
        run = self.run
        if number is None or run.last is None:
            return False
        if number <= run.last and not self._mixture.is_between:
            self._went_back_in = run
        shown = self._mixture.goes(number, run.last)
        if shown is not None:
            self._mix(shown)
        return shown is not None

    def _mix(self, shown: str) -> None:
        """All since the numbers went back are pieces of the runs whose lines stand here mixed: one row says so."""
        self._flush()
        since = self._later.origin((self._went_back_in if self._mixture.is_between else None) or self.run)
        first = first_piece(self.runs, since, shown)
        for later in self.runs[first + 1 :]:
            merge(self.runs[first], later)
        del self.runs[first + 1 :]
        self.run.mixed = in_words(shown)

    def _open(self, found: Hit, number: float | None, values: Mapping[str, Value], chunk: bytes) -> None:
        self._flush()
        self._later.give(self.run)
        if self.run.stream is None:
            self.run.stream = stream_of(chunk, found.start)
        aside, self._aside = self._aside, {}
        if not math.isfinite(float(values.get("loss", 0.0))) or values.get("nan_in_line"):
            self.run.losses.note_line(line_at(chunk, found.start))
        self.run.open_step(number, values, aside)
        self._copies.opened(self.run, found, values)
        self.run.first_goes_on = found.format is not None and found.format.first_goes_on
        self._step_starts.append(found.start)
        self._last_step_end = self._offset + found.end

    def _begin(
        self, chunk: bytes, position: int, *, only_after_results: bool, aftermath: Aftermath | None = None
    ) -> None:
        """Another run begins at `position` of the chunk, unless this one has nothing yet; of another job with `aftermath`."""
        if (only_after_results and not self.run.has_results) or (self.run.mixed is not None and only_after_results):
            self.run.began = True
            return
        self._flush()
        self._hand_over(chunk, position)
        if jobs.is_of_before(self.run):
            rejoin(self.runs)
        # Else it is left out, and its messages need no search.
        if len(self.runs) <= MOST_RUNS or not self.run.has_steps:
            self.run.tail.settle()
        if self.run.empty:
            return
        inherited = {} if aftermath else jobs.facts_of(self.run)
        self.runs.append(self._new_run())
        self.run.began, self.run.inherited, self.run.aftermath = True, inherited, aftermath
        jobs.follow(self.run, self.runs[-2])
        leave_out(self.runs)
        self._later.give(self.run)
        self._begun.add(self.run, self._taken_to, self._offset, chunk, position)
        self._aside = {}

    def _hand_over(self, chunk: bytes, position: int) -> None:
        """Give the run the text of the chunk up to `position`."""
        begin, self._handed_to = self._handed_to, position
        starts, self._step_starts = self._step_starts, []
        self.run.look(chunk[begin:position])
        if self.run.has_steps or self._measures_else:
            self.run.tail.add(chunk[begin:position], [max(0, start - begin) for start in starts])
        else:
            self.run.tail.add_unread(chunk[begin:position])

    def _flush(self) -> None:
        """Hand out the step that is complete."""
        step = self.run.flush()
        if step is not None and self._on_step is not None and self.run.mixed is None:
            self._on_step(len(self.runs) - 1 + self.run.left_out_before, step)
