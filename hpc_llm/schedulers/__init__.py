"""From a rendered script to a run under way: the run folder, the carried code, Slurm and the local queue.

Its names are looked up when they are used: printing a script needs one of them and stays quick, and submitit is imported
where something is really submitted.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_llm.schedulers.local.submit import submit_local
    from hpc_llm.schedulers.runs import NewRun, create_runs, discard_run, new_run_id, take_back
    from hpc_llm.schedulers.scheduler import UnclearAnswer
    from hpc_llm.schedulers.slurm.submit import submit_slurm
    from hpc_llm.schedulers.snapshot import code_digest, code_snapshot, support_of
    from hpc_llm.schedulers.submission import Submission

_MODULES = {
    "local.submit": ("submit_local",),
    "runs": ("NewRun", "create_runs", "discard_run", "new_run_id", "take_back"),
    "scheduler": ("UnclearAnswer",),
    "slurm.submit": ("submit_slurm",),
    "snapshot": ("code_digest", "code_snapshot", "support_of"),
    "submission": ("Submission",),
}

__all__ = [
    "NewRun",
    "Submission",
    "UnclearAnswer",
    "code_digest",
    "code_snapshot",
    "create_runs",
    "discard_run",
    "new_run_id",
    "submit_local",
    "submit_slurm",
    "support_of",
    "take_back",
]


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"hpc_llm.schedulers.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
