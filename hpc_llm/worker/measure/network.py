"""Which network NCCL takes between the nodes, from what it says itself: it falls back to sockets without a word in the log of a run."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_text
from hpc_llm.worker.ranks import Ranks

_USING = re.compile(r"NCCL INFO Using network ([^\n]{1,60}?)[ \t]*$", re.MULTILINE)
_MOST = 2**20
"""Bytes of the log that are looked at; the choice stands in the first few thousand."""


def listen(plan: Plan, ranks: Ranks, path: Path, environment: MutableMapping[str, str]) -> None:
    """Let NCCL write down on rank 0 what it chooses, unless somebody has said what it is to tell. Before it begins."""
    if plan.parallel.nodes < 2 or not plan.parallel.gpus_per_node or ranks.rank or "NCCL_DEBUG" in environment:
        return
    environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT", NCCL_DEBUG_FILE=str(path))


def chosen(path: Path) -> str | None:
    """The network by NCCL's own name (`IB`, `Socket`, `AWS Libfabric`); None where it said none, or several."""
    found = set(_USING.findall(read_text(path, _MOST) or ""))
    return found.pop() if len(found) == 1 else None
