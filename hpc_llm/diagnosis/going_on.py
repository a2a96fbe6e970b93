"""How a run of ours that kept a checkpoint goes on: as it is, or with what it needs so that it does not end so again."""

from __future__ import annotations

import re

from hpc_llm.diagnosis.diagnosis import Diagnosis
from hpc_llm.diagnosis.environment import FIRST

_OPTIONS = re.compile(r"((?:--[a-z][\w-]*(?: (?!-)[^\s(]+)? ?)+?)(?: +(\(.*))?")
"""A line of advice that is nothing but options, and why."""
_ANOTHER_SHAPE = re.compile(r"--set peft\.|…|[A-Z]{4}")
"""Options with which a checkpoint cannot be loaded, or that are not written out."""


def with_way_on(made: Diagnosis, submit: str, step: int) -> str:
    """The remedy that says to go on behind the step by that command.

    Where the same job would end so again, the command has the change that comes first, or stands behind what comes first.
    """
    way = f"go on behind step {step} with `{submit}"
    lines = made.remedy.splitlines()
    before = next((n for n, line in enumerate(lines) if not line.startswith(FIRST)), 0)
    if made.retry or made.is_in_doubt or not lines:
        return "\n".join([f"it kept what it had trained: {way}`", *lines])
    found = _OPTIONS.fullmatch(lines[before])
    if found and not _ANOTHER_SHAPE.search(found[1]):
        why = f"  {found[2]}" if found[2] else ""
        first = f"it kept what it had trained: {way} {found[1].strip()}`{why}"
    else:
        first = f"{lines[before]}; then, as it kept what it had trained, {way}`"
    return "\n".join([*lines[:before], first, *lines[before + 1 :]])
