"""Host memory that was refused at once: a bucket of DeepSpeed's, whose size no model and no batch changes, or a limit of the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpc_llm.diagnosis.case import Case
from hpc_llm.planning.experiment import Plan

_BUCKETS = ("reduce_bucket_size", "allgather_bucket_size", "prefetch_bucket_size", "stage3_prefetch_bucket_size")
_WIDTHS = (2, 4)
"""Bytes of a number of gradients and parameters."""
_LESS = 10
_SMALL = 1 << 20
"""What is asked for in so few bytes is anybody's."""


def refused_bucket(case: Case) -> Iterator[str]:
    """The buckets of the plan that have the size that was refused, as settings a tenth as large."""
    asked = refused_bytes(case.facts)
    found = {} if asked is None or asked < _SMALL else _of_size(case.plan, asked)
    if not found:
        return
    flags = " ".join(
        f"--set deepspeed.zero_optimization.{name}={size // _LESS}" for name, (size, _) in sorted(found.items())
    )
    size, width = next(iter(found.values()))
    yield (
        f"{flags}  (the {asked} bytes that were refused are {size} numbers of {width} bytes, the size of that bucket, which is the same for each model: "
        "a smaller one takes more messages, and trains the same)"
    )


def _of_size(plan: Plan, asked: int) -> dict[str, tuple[int, int]]:
    """Elements and width of each bucket of that size, by its name."""
    zero = plan.engine.deepspeed.get("zero_optimization") or {}
    found = {}
    for name in _BUCKETS:
        size = zero.get(name)
        if isinstance(size, (int, float)) and not isinstance(size, bool) and asked in (int(size) * w for w in _WIDTHS):
            found[name] = int(size), asked // int(size)
    return found


def refused_bytes(facts: Mapping[str, Any]) -> int | None:
    """Bytes that the process asked for and did not get; None where it was killed, or nobody says how many."""
    asked = str(facts.get("asked") or "").removesuffix(" bytes")
    return int(asked) if asked.isdigit() and len(asked) < 19 else None
