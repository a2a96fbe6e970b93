"""The engines that can carry out training steps, as planning knows them. Standard library only.

One module each, that defines FACTS. An engine from elsewhere is named by an entry point of its package in the group
`hpc_llm.engines` or handed to `register`. On the nodes nobody asks for it: the plan names its module, and its sources
travel there.
"""

from __future__ import annotations

from importlib import import_module

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.outside import Group
from hpc_llm.planning.engines.facts import Chosen, EngineFacts, Wanted, zero_stage

__all__ = ["OWN", "Chosen", "EngineFacts", "Wanted", "find", "names", "register", "zero_stage"]

OWN = ("deepspeed", "plain", "fsdp2", "flat")
"""Those that come along."""
_OUTSIDE = Group(name="hpc_llm.engines", what="engine", kind=EngineFacts)
_registered: dict[str, EngineFacts] = {}


def register(facts: EngineFacts) -> None:
    """Make an engine known in this process. Raises ValueError where there is one of that name."""
    if facts.name in names():
        raise ValueError(f"there is an engine {facts.name} already")
    _registered[facts.name] = facts


def names() -> tuple[str, ...]:
    """Of all engines, ours first."""
    return tuple(dict.fromkeys((*OWN, *_registered, *_OUTSIDE.names())))


def find(name: str) -> EngineFacts:
    """The engine of that name. Raises RequestError where there is none, or where it cannot be used."""
    if name in OWN:
        own: EngineFacts = import_module(f"{__name__}.{name}").FACTS
        return own
    if name in _registered:
        return _registered[name]
    try:
        facts: EngineFacts = _OUTSIDE.load(name)
    except KeyError:
        raise RequestError(unknown_name("engine", name, names())) from None
    if facts.fallback is not None and facts.fallback not in OWN:
        raise RequestError(
            f"the engine {name} cannot be used: its fallback {facts.fallback} is none of {', '.join(OWN)}."
        )
    return facts
