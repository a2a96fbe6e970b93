"""All causes, in the order in which they are listed.

Further ones come from installed packages, by entry points of the group `hpc_llm.causes` that lead to a Cause or to a tuple
of them, as CAUSES of a module, or from a program that calls `register`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from hpc_llm.causes import (
    building,
    communication,
    configuration,
    data,
    environment,
    fabric,
    file_systems,
    gpu_shared,
    gpus,
    internet,
    kernels,
    memory,
    mismatch,
    models,
    node,
    numerics,
    program,
    scheduler,
    surroundings,
)
from hpc_llm.causes.cause import Cause
from hpc_llm.errors import notice
from hpc_llm.registry import Registry

CAUSES: tuple[Cause, ...] = (
    *memory.CAUSES,
    *scheduler.CAUSES,
    *communication.CAUSES,
    *fabric.CAUSES,
    *mismatch.CAUSES,
    *gpus.CAUSES,
    *gpu_shared.CAUSES,
    *kernels.CAUSES,
    *environment.CAUSES,
    *building.CAUSES,
    *models.CAUSES,
    *internet.CAUSES,
    *configuration.CAUSES,
    *data.CAUSES,
    *numerics.CAUSES,
    *node.CAUSES,
    *file_systems.CAUSES,
    *surroundings.CAUSES,
    *program.CAUSES,
)

"""Those that come along."""

BY_ID = {cause.id: cause for cause in CAUSES}

_registry: Registry[Cause | tuple[Cause, ...]] = Registry("cause", BY_ID, lambda: (Cause, tuple), name="id")


def register(cause: Cause) -> None:
    """Make a cause known in this process. Raises ValueError where it cannot be used."""
    why = _why_not(cause, all_causes())
    if why is not None:
        raise ValueError(f"the cause {cause.id} cannot be used: {why}")
    _registry.register(cause)
    all_causes.cache_clear()


@functools.cache
def all_causes() -> Mapping[str, Cause]:
    """By id: ours, then those of other packages. One that cannot be used costs one warning."""
    found = {cause.id: cause for cause in (*CAUSES, *_each(_registry.registered()))}
    for name, brought in _registry.installed():
        for cause in _each((brought,)):
            why = _why_not(cause, found)
            if why is None:
                found[cause.id] = cause
            else:
                notice(f"the cause {getattr(cause, 'id', cause)!r} of {name} cannot be used: {why}. It is left out.")
    return found


def _each(brought: Iterable[Cause | tuple[Cause, ...]]) -> Iterator[Cause]:
    for one in brought:
        yield from one if isinstance(one, tuple) else (one,)


def _why_not(cause: object, taken: Mapping[str, Cause]) -> str | None:
    """What is wrong with a cause that is not ours, in a clause."""
    if not isinstance(cause, Cause):
        return "it is no Cause"
    if cause.id in taken:
        return "there is one of that id already"
    for sign in cause.signs:
        if not sign.literals or not all(sign.literals):
            return f"the sign {sign.source!r} has no text by which it is found"
        try:
            pattern = sign.pattern
        except re.error as error:
            return f"the pattern {sign.source!r} is none: {error}"
        if pattern.search(b""):
            return f"the pattern {sign.source!r} fits every text"
    return None
