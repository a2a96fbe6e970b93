"""Amounts of a profile that no machine has are of another unit: each is refused with the one that was likely meant."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MOST_GPU_GIB, _MOST_TFLOPS, _MOST_NODE_GB = 2000, 50_000, 50_000


def gpu_gib(size: float | None) -> float | None:
    """Memory of a GPU. Raises ValueError beyond what any has."""
    if size is not None and size > _MOST_GPU_GIB:
        unit, scale = ("MiB", 1024) if size < _MOST_GPU_GIB * 1024 else ("bytes", 2**30)
        raise ValueError(f"{size:g} GiB are more than any GPU has; if these are {unit}, write {size / scale:g}")
    return size


def node_gb(size: float | None) -> float | None:
    """Memory of a node. Raises ValueError beyond what any has."""
    if size is not None and size > _MOST_NODE_GB:
        unit, scale = ("MB", 1e3) if size < _MOST_NODE_GB * 1e3 else ("bytes", 1e9)
        raise ValueError(f"{size:g} GB are more than any node has; if these are {unit}, write {size / scale:g}")
    return size


def tflops(peaks: Mapping[str, float]) -> Mapping[str, float]:
    """Peaks by precision. Raises ValueError for none, and beyond what any GPU does."""
    for name, peak in peaks.items():
        if not peak > 0:
            raise ValueError(f"{name}: {peak:g} TFLOP/s are none: give the peak of the data sheet, or leave {name} out")
        if peak > _MOST_TFLOPS:
            unit, scale = ("FLOP/s", 1e12) if peak > 1e9 else ("GFLOP/s", 1e3)
            raise ValueError(
                f"{name}: {peak:g} TFLOP/s are more than any GPU does; if these are {unit}, write {peak / scale:g}"
            )
    return peaks


def is_slice(name: str | None) -> bool:
    """Whether the name, or the type by which Slurm knows it, is of a part of a GPU (MIG).

    >>> is_slice("A100-SXM4-40GB MIG 3g.20gb"), is_slice("a100_3g.20gb"), is_slice("A100-SXM4-40GB"), is_slice(None)
    (True, True, False, False)
    """
    return re.search(r"\bMIG\b|(?<![a-z0-9])\d{1,2}g\.\d+gb", name or "", re.IGNORECASE) is not None


def check_named_size(model: str | None, memory_gib: float | None) -> None:
    """Raise ValueError where a name with a size, as A100-SXM4-40GB, is of a card that shows another; of a part of one (MIG) it may be."""
    said = re.search(r"(\d+) ?GB\b", model or "", re.IGNORECASE)
    if said is None or not memory_gib or is_slice(model):
        return
    size = int(said[1])
    if not size / 1.5 <= memory_gib <= size * 1.5:
        raise ValueError(
            f"memory_gib is {memory_gib:g}, and a {model} has about {size}: write what nvidia-smi or rocm-smi shows, in GiB"
        )
