"""A run while its log is read: what was seen so far.

Steps come in two ways, which must count the same: one by one (`open_step`, `add_to_step`, `flush`), because further lines
may add to a step, or as many whole ones (`add_steps`). A log may be read in pieces by several processes; what two
neighbouring pieces saw of one run is joined in `hpc_llm.parsing.joining`, so all that is kept here can be joined.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import sub

from hpc_llm.causes.program import NONE, UNKNOWN
from hpc_llm.causes.verdict import Verdict
from hpc_llm.parsing.aftermath import Aftermath
from hpc_llm.parsing.bars import Bars
from hpc_llm.parsing.clock import Clock, ClockReading, Stamps
from hpc_llm.parsing.commas import LOSS_UNREAD
from hpc_llm.parsing.completing import Skips, complete, has_more, with_times
from hpc_llm.parsing.doubt import Doubt
from hpc_llm.parsing.gaps import Gaps
from hpc_llm.parsing.heads import Heads
from hpc_llm.parsing.losses import TOLD_EPOCH, Losses
from hpc_llm.parsing.means import Distribution
from hpc_llm.parsing.opening import Line, Opening
from hpc_llm.parsing.rows import STEP_COLUMNS
from hpc_llm.parsing.rules import BEGINS, BELOW, Value, keep_larger
from hpc_llm.parsing.sample import StepSample
from hpc_llm.parsing.shown import Shown
from hpc_llm.parsing.tail import Tail
from hpc_llm.parsing.work import Work, state_of

TIMES = ("step_time_s",)
RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "model_tflops_per_gpu", "mfu", "samples_per_second")
MEASURED = frozenset((*TIMES, *RATES))
PEAKS = frozenset(f"{name}_bytes" for name in "peak_allocated peak_reserved peak_device peak_host engine_peak".split())
RAN_OUT = frozenset(("ran_out_allocated_bytes", "ran_out_reserved_bytes"))
"""What was held when memory ran out, on whichever rank."""
EARLY_PEAK = "early_engine_peak_bytes"
"""A peak of the time before training."""
FIRST_COUNTS = frozenset(("started_at", "gpu", "job_id", "batch_loss_first"))
"""Facts that a log may repeat with other values later; for all others the last one counts."""
OF_THE_JOB = ("gpu", "job_id", "nodes")
"""Facts that a log prints once for all of its runs."""
RESULTS = frozenset(("eval_loss", "eval_accuracy", "perplexity"))
_RECENT = 4
_STEP_FIELDS = frozenset(STEP_COLUMNS)
_OF_THE_STEP = (_STEP_FIELDS | MEASURED) - PEAKS


@dataclass
class LogRun:
    """One run in a log."""

    began: bool = False
    """A START or SETUP line opened it, so it does not go on from an earlier piece of the log."""
    trains: bool = False
    """A START line was seen."""
    is_programs: bool = False
    """One of these lines was the program's, not only those of a library below."""
    evaluated: bool = False
    """The result of an evaluation was seen below them."""
    closed: bool = False
    """Training ended, or the input says that something else begins."""
    formats: dict[str, int] = field(default_factory=dict)
    """The formats whose lines were seen, with their precedence."""
    packed: bool = False
    """Every sample is a full sequence."""
    first_goes_on: bool = False
    """The line behind the first one may hold its time, too."""
    opening: Opening = field(default_factory=Opening)
    values: dict[str, Value] = field(default_factory=dict)
    left_out_before: int = 0
    """Runs of the log right before it that were not kept."""
    inherited: dict[str, Value] = field(default_factory=dict)
    """Facts of the job that the log printed before an earlier run."""
    distributions: dict[str, Distribution] = field(default_factory=dict)
    companion: dict[str, Value] = field(default_factory=dict)
    """What a library below the program printed; it counts where the program itself does not say."""
    doubt: Doubt = field(default_factory=Doubt)
    tail: Tail = field(default_factory=Tail)
    """The end of its text, which may say how it ended."""
    aftermath: Aftermath | None = None
    """It begins where a line names another job, or one was over."""
    heads: Heads = field(default_factory=Heads)
    job_over: bool = False
    """The scheduler said that the job was over."""
    lines: int = 0
    """Step lines seen."""
    first: float | None = None
    """Number of the first step (or its epoch, where a program prints no step)."""
    second: float | None = None
    last: float | None = None
    weight: float = 1.0
    """Steps that the last line stands for: those since the line before."""
    gaps: Gaps = field(default_factory=Gaps)
    numbered: bool = False
    """Whether these are step numbers."""
    counts_steps: bool = False
    """Whether the number of the last line is a step's, though one that may come again."""
    losses: Losses = field(default_factory=Losses)
    stream: bytes | None = None
    """Prefix of the rank whose steps are counted."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    paused: bool = False
    """Something else than training took place since the last step line."""
    is_after_pause: bool = False
    """It took place before the step that is being read."""
    was_paused: bool = False
    """It took place at all."""
    first_is_after_pause: bool = False
    not_measured: float = 0.0
    """Steps whose time holds something else, the first line's left out."""
    clock: Clock = field(default_factory=Clock)
    stamps: Stamps = field(default_factory=Stamps)
    bars: Bars = field(default_factory=Bars)
    shown: Shown = field(default_factory=Shown)
    work: Work = field(default_factory=Work)
    sample: StepSample | None = None
    """Some of its steps, where anybody asked for them."""
    left_empty: str | None = None
    """Figures that are printed and not taken, and why."""
    mixed: str | None = None
    """What shows that its step lines are those of more than one run, in a sentence: its figures are then nobody's."""
    skips: Skips = field(default_factory=Skips)
    pending: dict[str, Value] = field(default_factory=dict)
    """The step that is being read; further lines may add to it."""
    from_below: frozenset[str] = frozenset()
    """Columns of that step which a library below the program printed."""
    orphans: dict[str, Value] = field(default_factory=dict)
    """What lines said of a step that stands in an earlier piece of the log."""

    @property
    def empty(self) -> bool:
        """Whether nothing is known of it; before it is settled, its messages are not."""
        seen = self.lines or self.pending or self.values or self.orphans or self.companion
        return not (seen or self.tail.speaks)

    @property
    def has_steps(self) -> bool:
        return bool(self.lines or self.pending)

    @property
    def idle(self) -> bool:
        """Whether a program began and nothing came of it, like an engine that is set up for an evaluation."""
        came = self.lines or self.closed or self.tail.found or self.orphans
        came = came or (BEGINS in self.values and self.bars.moved and not self.evaluated)
        return self.began and not (came or (self.is_programs and self.evaluated))

    @property
    def has_results(self) -> bool:
        """Whether the beginning of a program that follows is that of another run."""
        below = 0 if self.has_steps else self.companion.get(BELOW, 0)
        return self.has_steps or self.closed or self.evaluated or float(below) > 1

    @property
    def over(self) -> bool:
        """Whether steps that follow are those of another run."""
        return self.closed or self.job_over

    @property
    def reached_last_step(self) -> bool:
        """Whether the log says how many steps there are, and the last one was seen."""
        total = self.values.get("total_steps")
        return isinstance(total, int) and self.last is not None and self.last >= total

    @property
    def ended(self) -> bool:
        """Whether training came to its end; of what is known from its text once that is settled."""
        return self.closed or self.reached_last_step or self.tail.has_ended(self.known)

    @property
    def known(self) -> Mapping[str, Value]:
        """The facts so far."""
        return {**self.companion, **self.inherited, **self.values}

    def goes_back(self, number: float | None, by_step: bool) -> bool:
        """Whether this number cannot follow the last one. An epoch is printed rounded: it may come again."""
        if number is None or self.last is None:
            return False
        return number <= self.last if by_step else number < self.last

    def goes_on(self, number: float | None) -> bool:
        """Whether this is the number of the next step, or of the same one."""
        if self.closed or number is None or self.last is None:
            return False
        return self.last <= number <= self.last + self.weight

    def look(self, text: bytes) -> None:
        """Some more of its text: what it shows of other jobs, and of time in which no step took place."""
        if self.aftermath is not None:
            self.aftermath.look(text)
        self.heads.look(text)
        self.bars.look(text)
        self.shown.look(b"" if self.has_steps else text)

    def pause(self) -> None:
        """Something else than training takes place."""
        self.paused = self.was_paused = True

    def verdict(self) -> Verdict:
        """How it ended, as far as its text says; it must be settled."""
        said = self.tail.verdict(self.ended)
        found = self.losses.verdict(said, self.not_finite_reason)
        if self.mixed is not None and found.cause is NONE:  # the end of one of them
            return Verdict(UNKNOWN, 0.3, None, ())
        return found

    @property
    def not_finite_reason(self) -> str | None:
        return self.losses.reason(self.last, self.counts_steps)

    def note(self, name: str, precedence: int, packed: bool) -> None:
        """A line of format `name` was seen; the one with the lowest precedence names the run."""
        if name not in self.formats:
            self.formats[name] = precedence
            self.packed = self.packed or packed

    def learn(self, values: Mapping[str, Value], companion: bool = False, again: bool = False) -> None:
        """Take facts and results of the whole run; what is said `again`, behind its end, only where nothing was known."""
        target = self.companion if companion else self.values
        self.evaluated = self.evaluated or (self.began and not RESULTS.isdisjoint(values))
        for name, value in values.items():
            if again and name in target:
                continue  # a program that is started again and finds nothing to do has a time and a rate, too
            if name in PEAKS | MEASURED and not 0 < float(value) < math.inf:
                continue  # a zero is a rounded or an empty measurement
            if name in PEAKS or name in RAN_OUT:
                keep_larger(target, name, value)
            elif name not in FIRST_COUNTS or name not in target:
                target[name] = value

    def learn_peaks(self, values: Mapping[str, Value]) -> None:
        """Take only the peaks: of another rank."""
        self.learn({name: values[name] for name in PEAKS if name in values})

    def open_step(
        self, order: float | None, values: Mapping[str, Value], below: Mapping[str, Value] | None = None
    ) -> None:
        """A step line; the step before is complete now. `below` is what a library printed of the same step."""
        self.flush()
        self.pending = {**(below or {}), **values}
        self.from_below = frozenset(below or ()) - values.keys()
        self.numbered = self.numbered or ("step" in values and "order" not in values)
        self.counts_steps = self.numbered or (order is not None and order == values.get("step"))
        if order is not None:
            self.gaps.add(self.last, order)
            self._advance(order, order)
            self.recent.append(order)
        self.is_after_pause, self.paused = self.paused, False
        self.lines += 1

    def _advance(self, first: float, last: float) -> None:
        if self.first is None:
            self.first = first
        elif self.second is None:
            self.second = first
        if self.numbered and self.last is not None:
            self.weight = max(1.0, first - self.last)
        self.last = last

    def add_to_step(self, values: Mapping[str, Value]) -> None:
        """More about the step that is being read."""
        (self.pending if self.pending else self.orphans).update(values)

    def tick(self, values: Mapping[str, Value]) -> bool:
        """More about the step that is being read; false where that step has it already, or there is none."""
        if not self.pending or self.pending.keys() & values.keys():
            return False
        self.pending.update(values)
        return True

    def flush(self) -> dict[str, Value] | None:
        """Count the step that was being read and give its columns; None when there was none."""
        step, self.pending = self.pending, {}
        if not step:
            return None
        self.skips.see(step)
        measured = complete(step, self.known, self.packed) if has_more(step) else step.keys()
        loss = step.get("loss")
        self.losses.unread = bool(step.pop(LOSS_UNREAD, 0)) or self.losses.unread
        if step.pop("nan_in_line", 0):
            self.losses.note_step(self.last)
        if isinstance(loss, (int, float)):
            self.losses.count([float(loss)], [self.last], step.pop(TOLD_EPOCH, None))
        if self.sample is not None:
            self._draw(step.get("step"), loss)
        self._measure(step, MEASURED & measured)
        for name in step.keys() - _OF_THE_STEP:
            self.learn({name: step[name]}, companion=name in self.from_below)
        return step

    def _draw(self, step: Value | None, loss: Value | None) -> None:
        assert self.sample is not None
        number = step if isinstance(step, int) else None
        self.sample.add(number, float(loss) if isinstance(loss, (int, float)) else None)

    def _measure(self, step: dict[str, Value], measured: Set[str]) -> None:
        """Count the step's measurements; those which hold something else than training are taken out of it."""
        self._read_clock(step)
        # The first value is kept apart by the distribution: whether it is a warm-up is known only at the end.
        is_first = self.lines == 1
        line = self._line(step, frozenset(measured))
        if is_first:
            self.opening.first = line
        if self.lines == 2 and self.first_goes_on and not self.is_after_pause:
            self.opening.second, measured = line, frozenset()
        self.count(line, measured if is_first or not self.is_after_pause else ())
        if self.lines == 2 and self.opening.is_left_out:
            self._without_measured(step)
        if not self.is_after_pause:
            return
        self._without_measured(step)
        self.first_is_after_pause = self.first_is_after_pause or is_first
        self.not_measured += 0.0 if is_first or not measured else self.weight

    def _read_clock(self, step: dict[str, Value]) -> None:
        time, number, tokens, epoch = (step.pop(f"clock_{name}", None) for name in ("s", "step", "tokens", "epoch"))
        rounding = float(step.pop("clock_rounding_s", 0.0))
        if not isinstance(time, float) or not isinstance(number, int):
            self.clock.pass_over(self.is_after_pause)
            return
        seen, at = (float(v) if isinstance(v, (int, float)) else None for v in (tokens, epoch))
        self.clock.add(ClockReading(number, time, seen, rounding, at), self.is_after_pause)

    def _line(self, step: dict[str, Value], measured: frozenset[str]) -> Line:
        at, rounding = self.stamps.see(step, self.lines, self.weight)
        return Line(self.last, self.weight, dict(step), measured, at, rounding)

    @staticmethod
    def _without_measured(step: dict[str, Value]) -> None:
        for name in MEASURED & step.keys():
            del step[name]

    def count(self, line: Line, measured: Iterable[str]) -> None:
        """Take these columns of a line into the means, and its work."""
        before = state_of(self.distributions.get("step_time_s"))
        for name in measured:
            self.distribution(name).add(float(line.step[name]), line.weight)
        self.work.add(line.step, self.distributions.get("step_time_s"), before)

    def settle_opening(self) -> None:
        """All was read: take the second line into the means, unless it may hold the first one's time."""
        second = self.opening.second
        if second is not None and not self.opening.is_left_out:
            self.count(second, second.measured)
            self.opening.second = None

    def distribution(self, name: str) -> Distribution:
        """That of a measurement, made where there is none yet."""
        return self.distributions.setdefault(name, Distribution(rates=name in RATES))

    def add_steps(self, order: Sequence[float], columns: Mapping[str, list[float]], facts: Mapping[str, Value]) -> None:
        """Many whole steps at once: their numbers or epochs, rising, and the measurements of each column.

        `facts` are those that the last of the step lines prints.
        """
        self.flush()
        self.stamps.last = None
        self.clock.stop()  # whole chunks bring no clock, so what it has measured ends here
        self.learn({n: v for n, v in facts.items() if n not in _STEP_FIELDS and n not in MEASURED and n not in PEAKS})
        self.gaps.add(self.last, order[0])
        self.gaps.add_all(order if self.numbered else ())
        self._advance(order[0], order[0])
        self.recent.extend(order[-_RECENT:])
        self.lines += len(order)
        before = state_of(self.distributions.get("step_time_s"))
        for name, numbers in with_times(columns, self.known).items():
            if name == "loss":
                self.losses.count(numbers, order)
            elif name in PEAKS:
                keep_larger(self.values, name, round(max(numbers)))
            elif name in MEASURED:
                self._extend(name, numbers, order)
        self.work.add(facts, self.distributions.get("step_time_s"), before)
        if len(order) > 1:
            self._advance(order[1], order[-1])
            self.weight = 1.0 if not self.numbered else order[-1] - order[-2]

    def _extend(self, name: str, numbers: list[float], order: Sequence[float]) -> None:
        """Add measurements of the steps `order`; a line stands for the steps since the line before."""
        distribution = self.distribution(name)
        if not self.numbered or len(numbers) != len(order):
            distribution.extend(numbers)
            return
        distribution.add(numbers[0], self.weight)
        gaps = [order.step] if isinstance(order, range) else list(map(sub, order[1:], order))
        if len(set(gaps)) <= 1:
            distribution.extend(numbers[1:], gaps[0] if gaps else 1.0)
            return
        for number, gap in zip(numbers[1:], gaps, strict=True):
            distribution.add(number, gap)

    def end(self) -> None:
        """Training came to its end."""
        self.flush()
        self.closed = True
