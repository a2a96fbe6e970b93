"""The barrier with which torch ends the making of a process group: all ranks add one to a number in its store."""

from __future__ import annotations

import re

from hpc_llm.causes.cause import sign

NOT_ALL_CAME = (
    "the ranks did not all meet: see that every node started as many as the others wait for, and their own output\n"
    "see that the address is reachable from the other nodes: --set env.NCCL_SOCKET_IFNAME=… and env.GLOO_SOCKET_IFNAME=…\n"
    "otherwise submit it again, without the node that did not come: --sbatch exclude={other_node}"
)
_CAME = re.compile(rb"\(world_size=(\d{1,9}), (?:worker_count|num_workers_joined)=(\d{1,9})\b")


def _some_are_missing(text: bytes, position: int) -> bool:
    """Whether fewer ranks had come to the barrier than there are; more come where a store has the number of an earlier one."""
    end = text.find(b"\n", position)
    said = _CAME.search(text, position, end if end >= 0 else len(text))
    return said is not None and int(said[2]) < int(said[1])


NOT_ALL_AT_BARRIER = sign(
    "in store based barrier on ",
    r"\bTimed out initializing process group in store based barrier on rank:? ?\d{1,9}\b[^\n]{0,160}?"
    r"\(world_size=(?P<expected>\d{1,9}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,9})\b",
    where=_some_are_missing,
    remedy=NOT_ALL_CAME,
)
