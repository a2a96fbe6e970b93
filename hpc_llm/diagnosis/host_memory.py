"""What a job asked of a node's memory, and more of it in the form in which it asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import Cluster, Node
from hpc_llm.site.sbatch_sizes import memory_bytes

FORMS = ("mem", "mem-per-cpu", "mem-per-gpu")
"""Options of sbatch that say how much memory a job has, of which a job has one."""
MARGIN = 1.15
"""What is counted is what is kept; buffers and the program itself come on top."""
_GROWTH = 2
"""A process that was killed at its limit would have gone on: how far nobody saw."""
_LEAST_RANK_BYTES = 2 << 30
"""A rank that has imported torch and made a tiny model is near one GiB."""
_WHOLE_NODE = 0.97
"""Share of a node's memory from which on no more is to be had."""
_PER = {"mem": "", "mem-per-cpu": " per CPU", "mem-per-gpu": " per GPU"}


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """What a job had of each node."""

    form: str
    """Which of `FORMS`."""
    text: str | None = None
    """Its value, None where the job did not say any."""

    def on_node(self, plan: Plan) -> int | None:
        """Bytes of a node, 0 for all; None where the job left it to the site."""
        size = memory_bytes(self.text) if self.text else None
        return None if size is None else size * _times(self.form, plan)

    def said(self, plan: Plan) -> str:
        """What it had, in words: a number alone is per CPU or GPU, and in MiB."""
        size = memory_bytes(self.text or "") or 0
        whole = f", {_shown(size * _times(self.form, plan))} on a node" if _PER[self.form] else ""
        return f"{_shown(size)}{_PER[self.form]}{whole}"


def asked_memory(plan: Plan, cluster: Cluster | None) -> HostMemory:
    """The memory that a run's job asked for, whoever decided it."""
    own = next((name for name in FORMS if name in plan.job.sbatch), None)
    if own is not None:
        return HostMemory(form=own, text=plan.job.sbatch[own])
    style = cluster.request.memory if cluster else "mem"
    return HostMemory(form=style if style in FORMS else "mem", text=plan.job.mem)


def flag(had: HostMemory, plan: Plan, size: float, there: float | None = None) -> str:
    """The option that gives a run of `plan` at least so many bytes of a node, in the form in which it asked for them.

    All of the node where that comes near the bytes `there`.
    """
    enough = HostMemory(form=had.form, text=_amount(size / _times(had.form, plan)))
    if there and (enough.on_node(plan) or 0) >= _WHOLE_NODE * there:
        return WHOLE_NODE
    return f"--sbatch {enough.form}={enough.text}"


def same(had: HostMemory, plan: Plan, size: int) -> str:
    """The option by which a run of `plan` gets so many bytes of a node and no more."""
    return f"--sbatch {had.form}={_exact(size // _times(had.form, plan))}"


WHOLE_NODE = "--sbatch mem=0"
"""The option for all of a node's memory."""


def _instead(had: HostMemory) -> str:
    """What of the request all of the node's memory stands in the place of."""
    return "" if had.form == "mem" or had.text is None else f"instead of {had.form}: "


def more(had: HostMemory, plan: Plan, node: Node | None, kept: int | None, facts: Mapping[str, str]) -> str | None:
    """The line that asks for more memory; None where the job had all that is there.

    `kept` is what the method keeps on the host, in bytes; `facts` may hold `used_bytes`, what was seen in use.
    """
    before, there = had.on_node(plan), node.mem_gb * 1e9 if node and node.mem_gb else None
    if before == 0 or (before and there and before >= _WHOLE_NODE * there):
        return None
    if before is None:
        return f"{WHOLE_NODE}  (all of the node's memory: the job asked for none, and had what the site gives)"
    need, why = _need(before, plan, node, kept, facts)
    option = flag(had, plan, need, there)
    if option == WHOLE_NODE:
        return f"{option}  ({_instead(had)}all of the node's memory, it had {had.said(plan)})"
    enough = HostMemory(form=had.form, text=option.partition("=")[2])
    return f"{option}  ({enough.said(plan)}: {why}; it had {had.said(plan)})"


def _need(before: int, plan: Plan, node: Node | None, kept: int | None, facts: Mapping[str, str]) -> tuple[float, str]:
    """Bytes of a node to ask for, and why so many: the largest of what is known."""
    share = (node.mem_gb_per_gpu or 0) * 1e9 * plan.parallel.gpus_per_node if node else 0
    seen = max(before, int(facts.get("used_bytes") or 0))
    reasons = [
        (seen * _GROWTH, f"{_GROWTH} times what it reached"),
        (float(_LEAST_RANK_BYTES * plan.parallel.tasks_per_node), "what a rank takes before it trains"),
        (share if share > before else 0, "the site's share for the GPUs"),
        ((kept or 0) * MARGIN, "what the method keeps on the host, and a margin"),
    ]
    return max(reasons)


def _times(form: str, plan: Plan) -> int:
    """How often an amount of that form counts on a node."""
    cores = (plan.job.cpus_per_task or 1) * plan.parallel.tasks_per_node
    return max({"mem": 1, "mem-per-cpu": cores, "mem-per-gpu": plan.parallel.gpus_per_node}[form], 1)


def _amount(size: float) -> str:
    """An amount as sbatch reads it, rounded up.

    >>> _amount(210 << 20), _amount(4.2 * 2**30)
    ('256M', '5G')
    """
    if size >= 4 << 30:
        return f"{math.ceil(size / 2**30)}G"
    return f"{math.ceil(size / 2**26) * 64}M"


def _exact(size: int) -> str:
    """
    >>> _exact(64 << 30), _exact(1500 << 20)
    ('64G', '1500M')
    """
    return f"{size >> 20}M" if size % 2**30 else f"{size >> 30}G"


def _shown(size: float) -> str:
    """
    >>> _shown(105 << 20), _shown(3 << 29)
    ('105 MiB', '1.5 GiB')
    """
    return f"{size / 2**20:.0f} MiB" if size < 2**30 else f"{size / 2**30:.3g} GiB"
