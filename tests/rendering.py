"""From a few words to a rendered script, as the command line goes, in one process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from hpc_llm.job.batch import Batch, Ground, make_batches
from hpc_llm.job.support import Support
from hpc_llm.planning.experiment import Experiment, PlanWithOrigins
from hpc_llm.planning.method import Method, load_method, method_names
from hpc_llm.planning.plan import Site, plan
from hpc_llm.site.cluster import Cluster, cluster_names, load_cluster
from hpc_llm.site.hardware import Hardware
from hpc_llm.site.profiles import bundled, search_path

_P = TypeVar("_P", bound=BaseModel)

ACCOUNTS = {"taiwania2": "ACD110018", "delta": "bbka-delta-gpu"}
H100 = Hardware("NVIDIA H100 80GB HBM3", "sm_90", 79.6, 4, "nvidia", 16)
LOGS = Path("/work/someone/logs")
SUPPORT = Support(path=LOGS / ".code" / "0123456789ab-1000.sh", digest="0123456789ab" + "0" * 52, text="")
PYTHON = Path("/opt/env/bin/python")
CLUSTERS = tuple(cluster_names())
METHODS = tuple(name for name in method_names() if name not in ("bf16", "int8"))
"""Those for any GPU: not each has bf16, or 8-bit products."""


def cluster_of(name: str) -> Cluster:
    """What `load_cluster` gives."""
    return _read("clusters", load_cluster, name)


def _method_of(name: str) -> Method:
    return _read("configs", load_method, name)


def _read(kind: str, load: Callable[[str], _P], name: str) -> _P:
    """A file that hpc-llm brings is read once: thousands of plans are made of a few."""
    brought = bundled(kind).resolve()
    if any(folder.is_dir() and folder.resolve() != brought for folder in search_path(kind)):
        return load(name)
    found: _P = _kept(load, name).model_copy(deep=True)  # nobody changes another one's
    return found


@cache
def _kept(load: Callable[[str], _P], name: str) -> _P:
    return load(name)


def site(cluster: Cluster, scheduler: str | None = None, hardware: Hardware | None = H100, **more: Any) -> Site:
    """What the machine would say; `auto` is a login node with sbatch."""
    found = scheduler or ("slurm" if cluster.scheduler == "auto" else cluster.scheduler)
    return Site(scheduler=found, hardware=hardware, **more)


def planned(
    cluster: str | Cluster, method: str, *, scheduler: str | None = None, hardware: Hardware | None = H100, **asked: Any
) -> PlanWithOrigins:
    """The plan of an experiment on a cluster, given by name or as a profile."""
    profile = cluster_of(cluster) if isinstance(cluster, str) else cluster
    asked.setdefault("account", ACCOUNTS.get(profile.name))
    experiment = Experiment(cluster=profile.name, method=method, **asked)
    return plan(experiment, profile, _method_of(method), site(profile, scheduler, hardware))


def flags_of(line: str) -> dict[str, Any]:
    """The keywords of the request that a line of advice adds; empty where it gives no command."""
    if not line.startswith("--"):
        return {}
    words = iter(shlex.split(line.partition("  (")[0]))
    asked: dict[str, Any] = {}
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        value = next(words)
        if name in ("set", "sbatch"):
            asked[name] = (*asked.get(name, ()), value)
        else:
            asked[name] = int(value) if value.isdecimal() else value
    return asked


def batch(
    cluster: str | Cluster,
    *methods: str,
    run_id: str = "RUN-ID",
    logs: Path = LOGS,
    support: Support = SUPPORT,
    python: Path = PYTHON,
    **asked: Any,
) -> Batch:
    """What one submission of these methods would send."""
    profile = cluster_of(cluster) if isinstance(cluster, str) else cluster
    plans = [planned(profile, method, **asked) for method in methods]
    ids = [run_id] if len(methods) == 1 else [f"{run_id}-{method}" for method in methods]
    ground = Ground(cluster=profile, logs=logs, support=support, python=python)
    [made] = make_batches(ground, plans, ids, lambda k: run_id)
    return made


def script(cluster: str | Cluster, method: str, **asked: Any) -> str:
    """The text of the script of one run."""
    return batch(cluster, method, **asked).scripts[0].text


def explained_lines(text: str) -> list[tuple[str, str]]:
    """(line, origin) of what --explain folds into rows."""
    found: list[tuple[str, str]] = []
    for row in text.splitlines():
        assert len(row) <= 100, row
        arrow = re.search(r"(?:^|  ) *<- (.+)$", row)
        body, origin = (row[: arrow.start()].rstrip(), arrow[1]) if arrow else (row, "")
        if found and (row.startswith("… ") or (arrow and not body)):
            found[-1] = (found[-1][0] + body[2:], origin)
        else:
            found.append((body, origin))
    return found
