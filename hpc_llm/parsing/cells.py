"""Cells of a notebook that only raised or logged an exception, ended the kernel, or ran a command that failed: they draw, look something up or try it out, and are no
run beside one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hpc_llm.causes.caught import is_weakened
from hpc_llm.causes.environment import COMMAND_MISSING
from hpc_llm.causes.found import Found
from hpc_llm.causes.jupyter import KERNEL_DIED
from hpc_llm.parsing.run import PEAKS, LogRun

_OF_ANY_PROGRAM = frozenset(("python_exception", "cancelled"))
_OF_A_COMMAND = frozenset(
    (
        "command_missing",
        "module_missing",
        "conda_not_initialised",
        "package_missing",
        "data_missing",
        "build_failed",
        "unreachable",
        "script_error",
    )
)
"""What a shell's command says that a cell runs with `!`, and after which the notebook goes on."""


def only_raised(run: LogRun) -> bool:
    """Whether nothing is known of it but an exception of no known cause, one that a library told and went on, the end of the kernel, or a
    command that failed; it must be settled."""
    tail = run.tail
    is_no_program = tail.is_cell and not (run.formats or run.has_steps or tail.ended_at is not None)
    return (
        is_no_program
        and bool(tail.found)
        and all(
            one.cause.id in _OF_ANY_PROGRAM or one.sign is KERNEL_DIED or _is_of_a_command(one) or is_weakened(one.sign)
            for one in tail.found
        )
    )


def _is_of_a_command(one: Found) -> bool:
    return one.cause.id in _OF_A_COMMAND and not one.is_raised


def begin_next(runs: list[LogRun]) -> None:
    """A cell begins with the last of `runs`: leave out the one before, which counts only where no run follows; a command that failed
    counts less than an exception, and one that is not there not at all where more is told behind it. Where nothing is known of the cells before, the
    formats of their lines, as of a bar, are not those of this one."""
    runs[-1].tail.is_cell = True
    if runs[-1].empty:
        runs[-1].formats.clear()
    if len(runs) > 1 and only_raised(runs[-2]):
        before = runs.pop(-2).tail
        of_command = all(map(_is_of_a_command, before.found))
        is_only_missing = all(one.cause is COMMAND_MISSING for one in before.found)
        is_left_out = is_only_missing or (of_command and before.cell_before is not None)
        runs[-1].tail.cell_before = before.cell_before if is_left_out else before


def give_peaks(runs: Sequence[LogRun]) -> None:
    """Peaks that a cell prints alone, behind that of the training, are those of the run before."""
    for before, run in pairwise(runs):
        is_peak = run.tail.is_cell and not run.has_steps and run.values.keys() <= PEAKS
        if is_peak and before.has_steps and run.formats.keys() <= before.formats.keys():
            before.learn_peaks(run.values)


def as_run(runs: Sequence[LogRun]) -> LogRun | None:
    """Such a cell, where `runs` hold nothing: the last one is the run. Cells that printed behind it ran on in spite of it, so it says
    nothing of the notebook's end."""
    tail = next((run.tail.cell_before for run in reversed(runs) if run.tail.cell_before is not None), None)
    if tail is None:
        return None
    tail.went_on = True
    return LogRun(tail=tail)
