"""Settings that a log says after steps were seen: of the run before, or of one that begins with what follows.

Only the next step tells, or the beginning of a program. Until then they are kept here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpc_llm.parsing.copies import Copies, is_next_bar
from hpc_llm.parsing.losses import TOLD_EPOCH
from hpc_llm.parsing.matches import Hit
from hpc_llm.parsing.rows import STEP_COLUMNS
from hpc_llm.parsing.rules import BEGINS, FIRST_BAR, TRAINS, Kind, Rule, Value, leave_empty
from hpc_llm.parsing.run import OF_THE_JOB, PEAKS, RESULTS, LogRun

SETTINGS = frozenset(
    """accelerator backend bf16 divided data_parallel_ranks fp16 global_batch_size gpus_per_node gradient_accumulation_steps
    micro_batch_size model nodes num_examples num_parameters precision ranks_of_topology sequence_length steps_per_epoch
    tensor_parallel tokens_per_step total_steps world_size""".split()
)
"""Facts that hold for a whole run, which programs say before its first step."""


_STEP_FIELDS = frozenset(STEP_COLUMNS)
OF_BARS = ("bar ", "at_0 ", "begun ", FIRST_BAR)
"""How the names begin of what is known of progress bars."""
_FEW = 8
"""Steps after which two programs that print in turns would have been seen."""
_ROUNDED = 0.02
"""An epoch is printed with two digits or more."""
OF_ONE_RUN = ("world_size", "gpu")
"""What no run changes: a program that goes on from a checkpoint on other ranks, or on another GPU, has rates of its own."""


def of_the_run(values: Mapping[str, Value]) -> dict[str, Value]:
    """What a step line says of the whole run."""
    return {n: v for n, v in values.items() if n in PEAKS or n not in _STEP_FIELDS}


def is_another_setup(known: Mapping[str, Value], later: Mapping[str, Value]) -> bool:
    """Whether a program that says `later` is not the one that said `known`, though its steps go on from there.

    >>> is_another_setup({"world_size": 8}, {"world_size": 4}), is_another_setup({"world_size": 8}, {"gpu": "A100"})
    (True, False)
    """
    return any(name in known and name in later and known[name] != later[name] for name in OF_ONE_RUN)


def is_another_call(run: LogRun, values: Mapping[str, Value]) -> bool:
    """Whether a step is of a training with other settings, to whose file it was added: its clock began anew, and it has another number
    of steps, or fewer epochs are behind it."""

    def went_back(name: str) -> bool:
        before, now = run.pending.get(name), values.get(name)
        return isinstance(before, float) and isinstance(now, float) and now < before

    total = {**run.values, **run.pending}.get("total_steps")
    return went_back("clock_s") and (values.get("total_steps", total) != total or went_back("clock_epoch"))


def tells_settings_alone(run: LogRun) -> bool:
    """Whether a piece of a log says how a program is set up, and holds nothing of what it did: the cell of a notebook before, with the bars
    of what loads a model or data."""
    came = run.has_results or run.evaluated or run.orphans or run.tail.found
    names = run.values.keys() | run.companion.keys()
    if run.tail.is_cell and not (TRAINS in names or run.shown.steps or run.tail.ended_at is not None):
        names = {name for name in names if not name.startswith(OF_BARS)}
    return not came and names <= SETTINGS | {*OF_THE_JOB, "started_at", TRAINS}


def _starts(rule: Rule, below: bool) -> bool:
    """Whether a program begins with a line of that kind, or its launcher."""
    return rule.kind is Kind.START and not below if not rule.aside else rule.kind is Kind.SETUP


def _goes_back(run: LogRun, epoch: Value) -> bool:
    """Whether steps of a later epoch were seen, however both are rounded."""
    return run.has_steps and not run.numbered and run.last is not None and float(epoch) + _ROUNDED < run.last


def _is_behind_end(run: LogRun, values: Mapping[str, Value]) -> bool:
    """Whether these are results of an epoch, behind the end of a training that told its own."""
    return run.closed and "order" in values and "order" in run.values and not RESULTS.isdisjoint(values)


@dataclass
class Held:
    """What was said since the last step; of a library below the program apart, as `LogRun` keeps it."""

    values: dict[str, Value] = field(default_factory=dict)
    companion: dict[str, Value] = field(default_factory=dict)
    program: str | None = None
    """The format of the last step line that began no copy."""
    behind: LogRun | None = None
    """The run in whose place another program's, or one with another total, came."""
    results: list[Mapping[str, Value]] = field(default_factory=list)
    """What an evaluation behind the end of training came to, at the epoch at which that ended: the next training may have come there, too."""

    def take(
        self, run: LogRun, values: Mapping[str, Value], below: bool, found: Hit, chunk: bytes
    ) -> Mapping[str, Value]:
        """Keep the settings among `values` where `run` may be over, and results; the rest, which `run` can learn at once."""
        if _is_behind_end(run, values) and not below:
            self.results.append(values)
            return {}
        if not (run.has_steps or run.closed):
            if found.rule is not None and _starts(found.rule, below):
                run.doubt.restart(chunk, found.start, (run.values, run.companion))
            return run.doubt.sure(values, (run.values, run.companion), below, chunk, found.start)
        held = SETTINGS if below else SETTINGS.union(OF_ONE_RUN)
        if held.isdisjoint(values):
            return values
        (self.companion if below else self.values).update({n: v for n, v in values.items() if n in held})
        return {n: v for n, v in values.items() if n not in held}

    def are_of_another(
        self, run: LogRun, found: Hit, number: float | None, values: Mapping[str, Value], failed: bool
    ) -> bool:
        """Whether the step that follows them is that of another run: by them, because another program or total stands in its line, or
        because its number goes back."""
        before, self.program = self.program, found.format.name if found.format is not None else None
        if is_another_setup(run.known, self.values) or self._repeats_opening(run, number, values, failed):
            return True
        goes_back = run.goes_back(number, by_step="order" not in values)
        if not run.numbered and TOLD_EPOCH in values and _goes_back(run, values[TOLD_EPOCH]):
            return True
        if number is None or run.last is None or not run.numbered:
            return goes_back
        if is_another_call(run, values):
            return True
        if run.goes_on(number):
            return goes_back
        total = {**run.values, **run.pending}.get("total_steps")
        is_other = "step" in values and (
            before not in (None, self.program) or values.get("total_steps", total) != total
        )
        if is_other:
            self.behind = self.origin(run)
        return is_other or goes_back

    def _repeats_opening(self, run: LogRun, number: float | None, values: Mapping[str, Value], failed: bool) -> bool:
        """Whether a line tells another loss of the epoch of which the only line before tells: behind settings that the run had said above
        that one, or behind a failure where the epoch is not rounded."""
        if run.lines != 1 or number is None or number != run.last or "order" not in values:
            return False
        loss, before = values.get("loss"), run.pending.get("loss")
        if loss is None or before is None or loss == before:
            return False
        said = {*self.values, *self.companion}
        return not said.isdisjoint(run.known) or (failed and number != round(number, 2))

    def begins_anew(self, run: LogRun, number: float | None) -> bool:
        """Whether the program said how it is set up, and goes back to a step that `run` has: it was started again."""
        return len(self.values) > 1 and run.numbered and run.goes_back(number, by_step=True)

    def origin(self, run: LogRun) -> LogRun:
        """The run behind which `run` stands, where so few of its steps were seen that the two may yet prove to be mixed."""
        return self.behind if self.behind is not None and run.lines <= _FEW else run

    def give(self, run: LogRun) -> None:
        """They are of `run`."""
        if self.values or self.companion:
            run.learn(self.values)
            run.learn(self.companion, companion=True)
            self.values, self.companion = {}, {}

    def are_of_next(
        self, run: LogRun, values: Mapping[str, Value], found: Hit, chunk: bytes, since: int, copies: Copies
    ) -> bool:
        """Whether what a line tells is of the run that follows `run`, whose last step ends at `since`."""
        if BEGINS in values or (FIRST_BAR in values and is_next_bar(run, chunk[max(0, since) : found.start])):
            return True
        if "order" not in values or found.is_step or RESULTS.isdisjoint(values):
            return False
        if run.closed:
            is_other = _is_behind_end(run, values) and values["order"] != run.values["order"]
        else:
            is_other = _goes_back(run, values["order"]) and copies.has_failed(chunk, since, found.start)
        return is_other and not copies.is_of_another_rank(run, found, chunk)

    def give_results(self, run: LogRun, order: Value | None) -> None:
        """Another training is at that epoch. Where it is beyond the one at which results were told, they may be of either: of `run` is then
        what it told before its end."""
        results, self.results = self.results, []
        if any(order is not None and float(order) > float(one["order"]) for one in results):
            names = sorted(RESULTS.intersection(name for one in results for name in one))
            lacking = [name for name in names if name not in run.values]
            if lacking:
                leave_empty(run.values, f"{', '.join(lacking)}: two trainings may have come to it")
            return
        for one in results:
            run.learn(one)

    def give_unknown(self, run: LogRun, order: Value | None = None) -> None:
        """No step follows, so they may be of `run`, or of a program that came to nothing: `run` learns what it lacks. `order` is the epoch
        that another training tells first."""
        self.give_results(run, order)
        lacking = {n: v for n, v in self.values.items() if n not in run.values}
        lacking_below = {n: v for n, v in self.companion.items() if n not in run.companion}
        self.values, self.companion = {}, {}
        run.learn(lacking)
        run.learn(lacking_below, companion=True)
