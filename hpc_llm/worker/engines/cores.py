"""Cores for the threads of a rank that computes on the host: those of its node are shared out among the ranks that may use the same."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def take_own_cores() -> None:
    """Let this rank's threads run on cores of its own, one each. Collective.

    A launcher may have bound ranks to cores, which are then theirs; where it has not, as torchrun, each takes its part.
    """
    if not hasattr(os, "sched_getaffinity"):
        return
    found: list[tuple[str, list[int]]] = [("", [])] * dist.get_world_size()
    mine = (socket.gethostname(), physical(sorted(os.sched_getaffinity(0))))
    dist.all_gather_object(found, mine)
    own = shared_out(found, dist.get_rank())
    os.sched_setaffinity(0, own)  # threads that begin later inherit it
    torch.set_num_threads(len(own))


def shared_out(found: Sequence[tuple[str, list[int]]], rank: int) -> list[int]:
    """The cores of a rank, from each rank's host and the cores that it may use.

    >>> shared_out([("a", [0, 1, 2, 3]), ("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3])], 1)
    [2, 3]
    >>> shared_out([("a", [0, 1]), ("a", [2, 3])], 1)
    [2, 3]
    """
    alike = [number for number, other in enumerate(found) if other == found[rank]]
    cores, place = found[rank][1], alike.index(rank)
    part = cores[place * len(cores) // len(alike) : (place + 1) * len(cores) // len(alike)]
    return part or cores


def physical(cores: Sequence[int], siblings: str = _SIBLINGS) -> list[int]:
    """One of each two that are threads of the same core."""
    seen: set[str] = set()
    kept = []
    for core in cores:
        try:
            name = Path(siblings.format(core)).read_text(encoding="ascii").strip()
        except OSError:
            name = str(core)
        if name not in seen:
            seen.add(name)
            kept.append(core)
    return kept
