"""hpc-llm: run the same LLM experiment on any Slurm/module cluster.

The functions of `hpc_llm.api` are to be had from here; nothing of them is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_llm.api import (
        Calibrated,
        Options,
        Printed,
        Rows,
        Run,
        WrittenReport,
        calibrate,
        cancel,
        clean,
        cluster,
        clusters,
        compared,
        diagnose,
        estimate,
        export,
        fetch,
        logs,
        method,
        methods,
        model,
        models,
        parse,
        parse_steps,
        plan,
        prepare,
        reconcile,
        render,
        report,
        results,
        status,
        submit,
        wait,
    )

__version__ = "0.1.0"
__all__ = [
    "Calibrated",
    "Options",
    "Printed",
    "Rows",
    "Run",
    "WrittenReport",
    "__version__",
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


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("hpc_llm.errors")
    if name in __all__:
        return getattr(importlib.import_module("hpc_llm.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, "errors"})
