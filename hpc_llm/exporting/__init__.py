"""The trackers to which finished runs can be sent: one module each, that defines TRACKER and is imported when it is asked for.

One of another package is named by an entry point of the group `hpc_llm.trackers`.
"""

from __future__ import annotations

from importlib import import_module

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.exporting.tracker import Tracker
from hpc_llm.outside import Group

__all__ = ["OWN", "Tracker", "find", "names"]

OWN = ("wandb", "mlflow", "tensorboard")
"""Those that come along."""
_OUTSIDE = Group(name="hpc_llm.trackers", what="tracker", kind=Tracker)


def names() -> tuple[str, ...]:
    """Of all trackers, ours first."""
    return tuple(dict.fromkeys((*OWN, *_OUTSIDE.names())))


def find(name: str) -> Tracker:
    """The tracker of that name. Raises RequestError where there is none, or where it cannot be used."""
    if name in OWN:
        own: Tracker = import_module(f"{__name__}.{name}").TRACKER
        return own
    try:
        found: Tracker = _OUTSIDE.load(name)
    except KeyError:
        raise RequestError(unknown_name("tracker", name, names())) from None
    return found
