"""The tasks that a run can have: one module each. Standard library only; it travels.

A task from elsewhere is one module that defines KIND, named by an entry point of its package in the group `hpc_llm.tasks`
or handed to `register`. On the nodes nobody asks for it: the job script names its worker, and its sources travel there.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpc_llm.errors import RequestError
from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.tasks.task import OF_EVERY_TASK, TaskKind
from hpc_llm.registry import Modules, Registry

__all__ = [
    "OF_EVERY_TASK", "TaskKind", "carried_modules", "check_settings", "find", "further_packages", "names", "register",
    "required_packages",
]  # fmt: skip

_OWN = ("pretrain", "finetune", "prepare", "infer", "tune")
_registry: Registry[TaskKind] = Registry("task", Modules(__name__, "KIND", _OWN), lambda: TaskKind)
register, names, find = _registry.register, _registry.names, _registry.find


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
    found = [find(plan.task).carried for plan in plans]
    found += [engines.find(plan.engine.name).carried for plan in plans if find(plan.task).trains]
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
