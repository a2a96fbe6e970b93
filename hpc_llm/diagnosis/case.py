"""A run of ours that failed, with what its remedies are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpc_llm.diagnosis.host_memory import MARGIN, HostMemory, asked_memory, flag
from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import Cluster, Node, Partition
from hpc_llm.site.schedulers import scheduler_of


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run of ours that failed: what it asked for, what is known of its end, and its cluster's profile."""

    plan: Plan
    facts: Mapping[str, Any] = field(default_factory=dict)
    cluster: Cluster | None = None
    """None where its profile is not here any more."""
    nodes: tuple[str, ...] = ()
    """Names of the job's nodes in the scheduler's order; empty where nobody says."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Node of each rank that left a record of its failure."""

    @property
    def partition(self) -> Partition | None:
        return self.cluster.partition(self.plan.job.partition) if self.cluster else None

    @property
    def node(self) -> Node | None:
        return self.cluster.node_of(self.partition) if self.cluster else None

    @property
    def gpu_bytes(self) -> float | None:
        """Memory of one GPU: what the message says, else what the profile says."""
        told = size_bytes(self.facts.get("capacity") or self.facts.get("capacity_old"))
        if told is not None or self.cluster is None or not self.plan.parallel.gpus_per_node:
            return told
        gib = self.cluster.gpu_of(self.partition).memory_gib
        return gib * 2**30 if gib else None

    @property
    def host_memory(self) -> HostMemory:
        """What the job had of a node's memory, as it asked for it."""
        return asked_memory(self.plan, self.cluster)

    @property
    def node_bytes(self) -> float | None:
        """Memory of one node, as far as the job could ask for it."""
        node = self.node.mem_gb * 1e9 if self.node and self.node.mem_gb else None
        return node if self.may_ask_memory else self.host_room

    @property
    def host_room(self) -> float | None:
        """Memory of one node that the job had, where it says so."""
        return self.host_memory.on_node(self.plan) or None

    @property
    def may_ask_memory(self) -> bool:
        """Whether the job may say how much memory it has."""
        refused = self.cluster.request.forbid if self.cluster else ()
        return takes_options(self.plan) and not {"mem", self.host_memory.form} & set(refused)

    def memory_flags(self, need: int | None, plan: Plan | None = None) -> str | None:
        """What has to be added so that a node of `plan` holds so many bytes; None where it cannot."""
        if need is None or (self.host_room or self.node_bytes or math.inf) > need:
            return ""
        if (self.node_bytes or math.inf) <= need or not self.may_ask_memory:
            return None
        return f" {flag(self.host_memory, plan or self.plan, need * MARGIN, self.node_bytes)}"


def takes_options(plan: Plan) -> bool:
    """Whether a job of it has partitions and options of sbatch."""
    return "sbatch" in scheduler_of(plan.job.scheduler).requests


_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def size_bytes(text: str | None) -> float | None:
    """Bytes of an amount as torch prints it.

    >>> size_bytes("1.50 GiB"), size_bytes("9" * 5000 + " GiB")
    (1610612736.0, None)
    """
    number, _, unit = (text or "").partition(" ")
    try:
        size = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        return None
    return size if math.isfinite(size) else None
