"""The tasks that a run can have: one module each. Standard library only; it travels.

A task from elsewhere is one module that defines KIND, named by an entry point of its package in the group `hpc_llm.tasks`
or handed to `register`. On the nodes nobody asks for it: the job script names its worker, and its sources travel there.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.outside import Group
from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.tasks.task import OF_EVERY_TASK, TaskKind

__all__ = [
    "OF_EVERY_TASK", "TaskKind", "carried_modules", "check_settings", "find", "further_packages", "names", "register",
    "required_packages",
]  # fmt: skip

_OWN = ("pretrain", "finetune", "prepare", "infer", "tune")
_OUTSIDE = Group(name="hpc_llm.tasks", what="task", kind=TaskKind)
_registered: dict[str, TaskKind] = {}


def register(kind: TaskKind) -> None:
    """Make a task known in this process. Raises ValueError where there is one of that name."""
    if kind.name in names():
        raise ValueError(f"there is a task {kind.name} already")
    _registered[kind.name] = kind


def names() -> tuple[str, ...]:
    """Of all tasks, ours first."""
    return tuple(dict.fromkeys((*_OWN, *_registered, *_OUTSIDE.names())))


def find(name: str) -> TaskKind:
    """The task of that name. Raises RequestError where there is none, or where it cannot be used."""
    if name in _OWN:
        kind: TaskKind = import_module(f"{__name__}.{name}").KIND
        return kind
    if name in _registered:
        return _registered[name]
    try:
        found: TaskKind = _OUTSIDE.load(name)
    except KeyError:
        raise RequestError(unknown_name("task", name, names())) from None
    return found


def required_packages(plans: Sequence[Plan]) -> tuple[str, ...]:
    """What the job's Python must be able to import for each of `plans`, which share one job script."""
    first, *others = [find(plan.task).packages(plan) for plan in plans]
    return tuple(name for name in first if all(name in other for other in others))


def further_packages(plans: Sequence[Plan]) -> dict[tuple[str, ...], list[int]]:
    """What some of `plans` need beyond what each of them needs -> the places of those plans."""
    common = required_packages(plans)
    found: dict[tuple[str, ...], list[int]] = {}
    for place, plan in enumerate(plans):
        more = tuple(name for name in find(plan.task).packages(plan) if name not in common)
        if more:
            found.setdefault(more, []).append(place)
    return found


def carried_modules(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Top-level modules that must travel with the runs of `plans`, besides what travels with every run."""
    found = [kind.carried for plan in plans for kind in (find(plan.task), engines.find(plan.engine.name))]
    return tuple(dict.fromkeys(module for carried in found for module in carried))


def check_settings(task: TaskKind, settings: Sequence[tuple[str, str]]) -> None:
    """Raise RequestError for the first of the settings, as they were said and by their short names, that the task would not heed."""
    for said, field in settings:
        if field not in _heeded(task):
            others = [name for name in _OWN if field in _heeded(find(name))]
            those = f", --task {' or '.join(others)} does" if others else ""
            raise RequestError(f"{said}: task {task.name} does not heed {field}{those}. Leave it out.")


def _heeded(task: TaskKind) -> frozenset[str]:
    return frozenset((*task.plan_fields, *OF_EVERY_TASK, *task.own_fields))
