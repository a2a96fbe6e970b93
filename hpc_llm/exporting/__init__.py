"""The trackers to which finished runs can be sent: one module each, that defines TRACKER and is imported when it is asked for.

One of another package is named by an entry point of the group `hpc_llm.trackers`.
"""

from __future__ import annotations

from hpc_llm.exporting.tracker import Tracker
from hpc_llm.registry import Modules, Registry

__all__ = ["OWN", "Tracker", "find", "names"]

OWN = ("wandb", "mlflow", "tensorboard")
"""Those that come along."""
_registry: Registry[Tracker] = Registry("tracker", Modules(__name__, "TRACKER", OWN), lambda: Tracker)
names, find = _registry.names, _registry.find
