"""Which node, or which ranks, the others waited for without an answer.

The rank that reports the silence runs on another node, so the silent one is named only where the evidence proves which it is.

A remedy names it as `{other_node}`; where it is not known `{silent_ranks}` are the ranks that left no word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hpc_llm.causes.found import Found
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.details import is_of_all_ranks

_MOST_NODES = 4096
_HOST = re.compile(r"[A-Za-z][\w-]{0,62}")


def of_others(own: Mapping[str, str], case: Case | None, root: Found, found: Sequence[Found]) -> dict[str, str]:
    """What `own`, the facts of the evidence alone, and the case tell of the node or the ranks that were silent."""
    if "{other_node}" not in (root.sign.remedy or root.cause.remedy):
        return {}
    if named := own.get("node"):
        return {"other_node": named}
    if case is None:
        return {}
    if case.plan.parallel.nodes == 1:
        return {"other_node": case.facts["node"]} if case.facts.get("node") else {}
    if host := _HOST.match(own.get("address", "").strip("([ '")):
        return {"other_node": host[0]} if host[0] in case.nodes else {}
    if root.cause.id != "collective_timeout":
        return {}
    silent = _silent_ranks(own, case, root, found)
    nodes = {_node_of(rank, case) for rank in silent}
    node = nodes.pop() if len(nodes) == 1 else None
    if node is not None:
        return {"other_node": node}
    return {"silent_ranks": f"rank{'s' * (len(silent) > 1)} {_ranges(silent)}"} if silent else {}


def _silent_ranks(own: Mapping[str, str], case: Case, root: Found, found: Sequence[Found]) -> list[int]:
    """The rank that the others name, else all that left no word; none where only a part of the ranks waited for each other."""
    named = own.get("silent_rank", "")
    world = case.plan.parallel.world_size
    if named.isdecimal():
        return [int(named)] if int(named) < world else []
    if named or not is_of_all_ranks(root, found):
        return []
    spoke = {one.rank for one in (root, *found) if one.rank is not None} | set(case.hosts)
    return [rank for rank in range(world) if rank not in spoke] if spoke else []


def _node_of(rank: int, case: Case) -> str | None:
    """The node of a rank: they stand in blocks on the job's nodes, where what others say of themselves agrees with that."""
    per_node, hosts = case.plan.parallel.tasks_per_node, case.hosts
    if rank in hosts:
        return hosts[rank]
    if len(case.nodes) != case.plan.parallel.nodes or not hosts or "distribution" in case.plan.job.sbatch:
        return None
    agrees = all(one // per_node < len(case.nodes) and case.nodes[one // per_node] == hosts[one] for one in hosts)
    return case.nodes[rank // per_node] if agrees and rank // per_node < len(case.nodes) else None


def _ranges(ranks: Sequence[int]) -> str:
    """
    >>> _ranges([4, 5, 6, 9]), _ranges([3])
    ('4-6, 9', '3')
    """
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def node_names(text: str) -> tuple[str, ...]:
    """The names in Slurm's list of a job's nodes, in its order; none where it cannot be read.

    >>> node_names("gn[01-02,7],login"), node_names("a1"), node_names("a[1-2]b[1-3]"), node_names("n[1-99999999]")
    (('gn01', 'gn02', 'gn7', 'login'), ('a1',), (), ())
    """
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        known = re.fullmatch(r"([\w.-]{1,64})(?:\[([\d,-]{1,4096})\])?", part)
        if known is None:
            return ()
        for ends in known[2].split(",") if known[2] else [""]:
            first, _, last = ends.partition("-")
            if known[2] and not (first.isdecimal() and (last or first).isdecimal() and len(first + last) <= 16):
                return ()
            numbers = range(int(first), int(last or first) + 1) if known[2] else range(1)
            if len(numbers) + len(names) > _MOST_NODES:
                return ()
            names += [f"{known[1]}{one:0{len(first)}d}" if known[2] else known[1] for one in numbers]
    return tuple(names)
