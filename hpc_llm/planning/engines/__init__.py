"""The engines that can carry out training steps, as planning knows them. Standard library only.

One module each, that defines FACTS. An engine from elsewhere is named by an entry point of its package in the group
`hpc_llm.engines` or handed to `register`. On the nodes nobody asks for it: the plan names its module, and its sources
travel there.
"""

from __future__ import annotations

from hpc_llm.errors import RequestError
from hpc_llm.planning.engines.facts import Chosen, EngineFacts, Wanted, offload_place, zero_stage
from hpc_llm.registry import Modules, Registry

__all__ = [
    "OWN",
    "Chosen",
    "EngineFacts",
    "Wanted",
    "find",
    "names",
    "offload_place",
    "register",
    "unregister",
    "zero_stage",
]

OWN = ("deepspeed", "plain", "fsdp2", "flat")
"""Those that come along."""
_registry: Registry[EngineFacts] = Registry("engine", Modules(__name__, "FACTS", OWN), lambda: EngineFacts)
register, unregister, names = _registry.register, _registry.unregister, _registry.names


def find(name: str) -> EngineFacts:
    """The engine of that name. Raises RequestError where there is none, or where it cannot be used."""
    facts = _registry.find(name)
    if facts.fallback is not None and facts.fallback not in OWN:
        raise RequestError(
            f"the engine {name} cannot be used: its fallback {facts.fallback} is none of {', '.join(OWN)}."
        )
    return facts
