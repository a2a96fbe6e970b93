"""What hpc-llm does, as functions: the command line calls these and nothing else.

    runs = submit(cluster="local", method="z3,q", model="tiny", steps=20)
    wait(runs)
    print(results(runs).to_pandas())

Options are those of the command line with underscores, and what an experiment file may say. Errors are those of
`hpc_llm.errors`; what else a caller should know comes as a warning, `errors.Notice`.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING

from hpc_llm.errors import hide_with

if TYPE_CHECKING:
    from hpc_llm.api.answers import WrittenReport, diagnose, report
    from hpc_llm.api.calibrating import Calibrated, calibrate, compared
    from hpc_llm.api.cancelling import cancel
    from hpc_llm.api.catalogue import cluster, clusters, method, methods, model, models
    from hpc_llm.api.cleaning import clean
    from hpc_llm.api.estimating import estimate
    from hpc_llm.api.experiments import Options, plan, prepare, render, submit
    from hpc_llm.api.exporting import export
    from hpc_llm.api.fetching import fetch
    from hpc_llm.api.handle import Run, status, wait
    from hpc_llm.api.printed import Printed, logs
    from hpc_llm.api.reconciling import reconcile
    from hpc_llm.api.rows import Rows, parse, parse_steps, results

_MODULES = {
    "answers": ("WrittenReport", "diagnose", "report"),
    "calibrating": ("Calibrated", "calibrate", "compared"),
    "cancelling": ("cancel",),
    "catalogue": ("cluster", "clusters", "method", "methods", "model", "models"),
    "cleaning": ("clean",),
    "estimating": ("estimate",),
    "exporting": ("export",),
    "experiments": ("Options", "plan", "prepare", "render", "submit"),
    "fetching": ("fetch",),
    "printed": ("Printed", "logs"),
    "reconciling": ("reconcile",),
    "rows": ("Rows", "parse", "parse_steps", "results"),
    "handle": ("Run", "status", "wait"),
}
"""Names are looked up when they are used: a command needs one of them and stays quick."""

__all__ = [
    "Calibrated",
    "Options",
    "Printed",
    "Rows",
    "Run",
    "WrittenReport",
    "calibrate",
    "cancel",
    "clean",
    "cluster",
    "clusters",
    "compared",
    "diagnose",
    "estimate",
    "export",
    "fetch",
    "logs",
    "method",
    "methods",
    "model",
    "models",
    "parse",
    "parse_steps",
    "plan",
    "prepare",
    "reconcile",
    "render",
    "report",
    "results",
    "status",
    "submit",
    "wait",
]


def _without_secrets(sentence: str) -> str:
    from hpc_llm.text.secrecy import redacted

    return redacted(sentence)


hide_with(_without_secrets)  # a program may print or log what is raised here


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            found = getattr(importlib.import_module(f"hpc_llm.api.{module}"), name)
            if isinstance(found, FunctionType):
                from hpc_llm.api.door import guarded

                found = globals()[name] = guarded(found)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
