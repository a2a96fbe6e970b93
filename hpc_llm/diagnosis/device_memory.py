"""Who held the memory of a GPU that ran out: this process, unused pieces of its own, or others. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hpc_llm.diagnosis.case import size_bytes
from hpc_llm.text.out_of_memory import SIZE

_HELD = re.compile(rf"(?P<who>this process|Process \d+) has (?P<size>{SIZE}) memory in use")
_SOME = 0.05
"""So much of a GPU in other hands is more than what other ranks' contexts leave there by the way."""
_UNUSED = 0.02
"""A process that has less of the GPU cannot be what filled it."""
_CONTEXT, _LEAST_LEFT_OVER = 1 << 30, 1 << 30
"""What the driver and the libraries take in a process beside torch's own, about; and so much more cannot be theirs."""
_CLEARLY, _RACE = 1.25, 1 << 28
"""The driver rounds up what it is asked for, and what is free is read a moment later: so much more, and 256 MiB, is neither."""
_NEARLY_ALL = 0.9
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_BEFORE_IT = "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"
"""What torch before 2.1 has, which does not start with an option that it does not know."""


def held_by_others(facts: Mapping[str, Any]) -> float | None:
    """Bytes that other processes had of the GPU; None where torch does not say.

    In a container torch knows no process for its own: it is then the smallest that holds what torch had from the driver.
    """
    if facts.get("reserved_total"):
        return _left_over(facts)
    held = {one["who"]: size_bytes(one["size"]) or 0.0 for one in _HELD.finditer(str(facts.get("held") or ""))}
    capacity, free = size_bytes(facts.get("capacity")), size_bytes(facts.get("free"))
    own = held.pop("this process", None)
    if own is not None:
        rest = capacity - free - own if capacity is not None and free is not None else 0.0
        return max(rest, sum(held.values()))
    torch = (size_bytes(facts.get("allocated")) or 0.0) + (size_bytes(facts.get("reserved")) or 0.0)
    large = [size for size in held.values() if size >= torch]
    return sum(held.values()) - min(large) if large else None


def _left_over(facts: Mapping[str, Any]) -> float | None:
    """About the same by the sums of torch before 2.1: what neither torch has reserved nor is free, less this process's own context."""
    capacity, free, reserved = (size_bytes(facts.get(name)) for name in ("capacity", "free", "reserved_total"))
    if capacity is None or free is None or reserved is None:
        return None
    others = capacity - free - reserved - _CONTEXT
    return others if others > _LEAST_LEFT_OVER else None


def is_shared(facts: Mapping[str, Any]) -> bool:
    """Whether others had a part of the GPU that matters."""
    capacity, allocated = size_bytes(facts.get("capacity")), size_bytes(facts.get("allocated"))
    others = size_bytes(facts.get("held_by_others"))
    if not capacity:
        return False
    if others is not None:
        return others > capacity * _SOME
    is_full = (
        size_bytes(facts.get("free")) or 0.0
    ) < capacity / 2  # a card that is empty was asked for too much at once
    return is_full and allocated is not None and allocated < capacity * _UNUSED


def is_filled_by_others(facts: Mapping[str, Any]) -> bool:
    """Whether others had more of it than this process, so that saving memory here is no remedy."""
    capacity, others = size_bytes(facts.get("capacity")), size_bytes(facts.get("held_by_others"))
    if others is None:
        return is_shared(facts)
    return capacity is not None and others > (capacity - (size_bytes(facts.get("free")) or 0.0)) / 2


def is_refused(facts: Mapping[str, Any]) -> bool:
    """Whether clearly more was free than was asked for: the GPU was not full, and something else than that refused it."""
    asked, free = size_bytes(facts.get("asked")), size_bytes(facts.get("free"))
    is_free = asked is not None and free is not None and free > asked * _CLEARLY + _RACE
    return is_free and not _fills_its_share(facts)


def _fills_its_share(facts: Mapping[str, Any]) -> bool:
    """Whether a process may take nearly all of the GPU, and not more (`set_per_process_memory_fraction`), and what it has leaves no room there for
    what it asked for."""
    names = ("asked", "capacity", "allowed", "allocated")
    asked, capacity, allowed, allocated = (size_bytes(facts.get(name)) for name in names)
    if asked is None or capacity is None or allowed is None or allocated is None:
        return False
    return allowed >= capacity * _NEARLY_ALL and allocated + asked > allowed


def who_refuses(facts: Mapping[str, Any]) -> list[str]:
    """Where to look for what refuses memory that is free."""
    if facts.get("allowed"):
        return [
            f"the program limits itself to {facts['allowed']} of the GPU: raise or leave out what sets it "
            "(torch.cuda.set_per_process_memory_fraction, or per_process_memory_fraction of PYTORCH_CUDA_ALLOC_CONF)"
        ]
    return [
        "see `nvidia-smi` or `rocm-smi` on the node while it starts: another process may have held the rest for a moment, and a MIG slice "
        "or a virtual GPU gives less than it shows",
        "look for a limit of the process: torch.cuda.set_per_process_memory_fraction in the program, `ulimit -v` and the memory of the "
        "job or container on the host",
        "on Windows: let the system manage the page file, or make it larger; in WSL raise memory= in .wslconfig",
    ]


def one_too_large(facts: Mapping[str, Any]) -> list[str]:
    """What helps where a single array was asked for of which not even half has room on the GPU; nothing where it is smaller."""
    asked, capacity = size_bytes(facts.get("asked")), size_bytes(facts.get("capacity"))
    room = max(size_bytes(facts.get("free")) or 0.0, (capacity or 0.0) / 2)
    if not asked or not capacity or asked <= max(capacity, 2 * room):
        return []
    part = 1 << math.ceil(math.log2(asked / room))
    return [
        f"one array of {facts['asked']} was asked for, and the GPU has {facts['capacity']}: the frames above the message say which it is; what else lies there may be "
        "recomputed or partitioned, and it is still too large",
        f"of activations no more than 1/{part} of it has room: so much smaller must batch times length be, where it grows with both",
        "scores of attention are never stored with attn_implementation='sdpa' or flash attention; logits can be made in pieces (a loss in chunks, or one fused with "
        "the last layer as Liger's)",
        "where it is all parameters or states in one piece, as ZeRO-1 and -2 make at the start: ZeRO-3 or FSDP, or more GPUs",
        "where its shape is none that was meant (a broadcast, a wrong length), correct that call",
    ]


def is_in_pieces(facts: Mapping[str, Any]) -> bool:
    """Whether more was reserved and unused than was asked for: it lay in pieces that were too small."""
    asked, reserved = size_bytes(facts.get("asked")), size_bytes(facts.get("reserved"))
    return bool(asked and reserved and reserved > asked)


def against_pieces(facts: Mapping[str, Any]) -> str:
    """The allocator's option that the torch has which wrote the amounts: before 2.1 it gave the sum of what it had reserved."""
    return _BEFORE_IT if facts.get("reserved_total") else EXPANDABLE


def who_else() -> list[str]:
    """How to find out who had the rest, and the usual reason."""
    return [
        "another process held the GPU's memory: `nvidia-smi` or `rocm-smi` on the node shows whose it is: another job, "
        "one that an earlier job left there, or another rank",
        "one rank a GPU: each takes the device of its LOCAL_RANK (torch.cuda.set_device) before anything touches the GPU, "
        "and as many ranks start on a node as it has GPUs",
        "where it is another job's: ask for GPUs of your own (sbatch --exclusive takes the whole node)",
    ]


_WORDS = {
    "NPU": {
        "`nvidia-smi` or `rocm-smi`": "`npu-smi info`",
        "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
        "torch.cuda.": "torch.npu.",
    },
    "XPU": {
        "`nvidia-smi` or `rocm-smi`": "`xpu-smi`",
        "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_ALLOC_CONF",
        "torch.cuda.": "torch.xpu.",
    },
}
"""What the tools and settings of NVIDIA's and AMD's GPUs are called elsewhere."""


def in_words_of_vendor(line: str, vendor: str | None) -> str:
    """The line with the vendor's own tools and settings."""
    for word, other in _WORDS.get(vendor or "", {}).items():
        line = line.replace(word, other)
    return line


def elsewhere(facts: Mapping[str, Any]) -> list[str]:
    """What the amounts say of a run of which no plan is known; nothing where they say nothing of their own."""
    refused = is_refused(facts)
    lines = who_else() if is_shared(facts) and not refused else []
    if is_in_pieces(facts):
        lines.append(
            f"export {against_pieces(facts)}  (where it is not set: {facts['reserved']} were reserved and unused, "
            f"in pieces smaller than the {facts['asked']} that were asked for)"
        )
    return [*lines, *who_refuses(facts)] if refused else lines
