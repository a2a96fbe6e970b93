"""How a run of ours that kept a checkpoint goes on: as it is, or with what it needs so that it does not end so again."""

from __future__ import annotations

import re

from hpc_llm.diagnosis.diagnosis import Diagnosis
from hpc_llm.diagnosis.environment import FIRST

_OPTIONS = re.compile(r"((?:--[a-z][\w-]*(?: (?!-)[^\s(]+)? ?)+?)(?: +(\(.*))?")
"""A line of advice that is nothing but options, and why."""
_ANOTHER_SHAPE = re.compile(r"--set peft\.|…|[A-Z]{4}")
"""Options with which a checkpoint cannot be loaded, or that are not written out."""


def from_the_beginning(made: Diagnosis, lost: int, is_its_start: bool) -> str:
    """The remedy that says to begin anew, where all that was kept came of step `lost`, whose loss is not a finite number, or led to it.

    `is_its_start`: that is the first step behind a checkpoint that the run went on from, which is no better.
    """
    again = "begin the training anew, without --resume" if is_its_start else "submit it again as it was submitted"
    what = f"do not go on from what it kept, for the loss is not a finite number from step {lost} on: {again}, with what follows"
    return "\n".join([what, *made.remedy.splitlines()])


def with_way_on(made: Diagnosis, submit: str, step: int, lost: int | None) -> str:
    """The remedy that says to go on behind the step by that command; `lost` is the first one whose loss is not a finite number.

    Where the same job would end so again, the command has the change that comes first, or stands behind what comes first. Other changes
    are commands of their own, for what is advised of a run that goes on is not true of one that begins anew.
    """
    place = f"step {step}" if lost is None else f"step {step}, from before the loss that is not finite (step {lost}),"
    way = f"it kept what it had trained: go on behind {place} with "
    lines = made.remedy.splitlines()
    before = next((n for n, line in enumerate(lines) if not line.startswith(FIRST)), 0)
    if made.retry or made.is_in_doubt or not lines:
        before, first, rest = 0, f"{way}`{submit}`", lines
    elif whole := _whole(lines[before], submit):
        first, rest = f"{way}{whole}", lines[before + 1 :]
    else:
        first = f"{lines[before]}; then, as it kept what it had trained, go on behind {place} with `{submit}`"
        rest = lines[before + 1 :]
    others = (f"or with {whole}" if (whole := _whole(line, submit)) else line for line in rest)
    return "\n".join([*lines[:before], first, *others])


def _whole(line: str, submit: str) -> str | None:
    """The command with the options of a line of advice, and why; None where the line is not such, or a checkpoint does not take them."""
    found = _OPTIONS.fullmatch(line)
    if found is None or _ANOTHER_SHAPE.search(found[1]):
        return None
    why = f"  {found[2]}" if found[2] else ""
    return f"`{submit} {found[1].strip()}`{why}"
