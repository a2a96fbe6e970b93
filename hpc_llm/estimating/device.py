"""What a run holds in the memory of one GPU, and whether it is there."""

from __future__ import annotations

import re

from hpc_llm.estimating import deepspeed, flat, fsdp2, plain
from hpc_llm.estimating.activations import activations_of, possible_scores
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.constants import constants
from hpc_llm.estimating.cpu import as_on_cpu
from hpc_llm.estimating.parts import Device, Moment
from hpc_llm.site.cluster import Gpu

_ENGINES = {"deepspeed": deepspeed, "plain": plain, "fsdp2": fsdp2, "flat": flat}
_GIB = 2**30
_PIECES = 0.15
"""Of what a graph works in: 1 GiB of 7 was the most that was measured (qlora, 4 x 512, a 3B), most had none."""
_MOST_PIECES = 2 * _GIB
"""Of plain PyTorch's graphs, whose pieces do not grow with the batch: 0.0 to 1.0 GiB of passes that work in 1 to 70."""
_SHOWN_GIB = {
    "A10": 22.4, "A10G": 22.4, "A16": 14.9, "A40": 44.9, "L4": 22.4, "L40": 44.9, "L40S": 44.9, "T4": 14.8, "H200": 140.4,
    "5090": 31.8,
}  # fmt: skip
"""GiB that nvidia-smi shows, of cards that show less than the GB they are sold with: error correction takes a part of GDDR6, and the
driver a larger one of a T4."""


def device_need(case: Case, gpu: Gpu, unknown: float, *, expands: bool = False) -> Device:
    """`unknown` is by how much the interval is wider than for runs like those that were measured: 0.2 is a fifth.

    `expands` says that the allocator's segments can grow, so that pieces of what was freed are of use again.
    """
    known, moment = constants(), peak_moment(case)
    peak = moment.total
    precision = known.precision[case.kind] + unknown
    least, most = (int(size * _GIB) for size in known.outside["several" if case.ranks > 1 else "one rank"])
    stuck = _pieces_of_graphs(case, moment, expands=expands) + (0 if expands else fragments(case))
    slack = known.slack.get(case.plan.engine.name, known.slack["counted"])
    capacity = int((gpu.memory_gib or 0) * _GIB) or None
    paged = case.paged_bytes
    part = known.device_capacity
    return Device(
        breakdown=moment.terms,
        moment=moment.name,
        peak=peak,
        outside=(least + most) // 2 + paged,
        fragments=stuck,
        low=int(peak * max(1 - precision, 0)) + least,
        high=int(peak * (1 + precision + slack)) + possible_scores(case) + stuck + most + paged,
        capacity=capacity and int(capacity * part[1]),
        capacity_low=capacity and int(surely_there(gpu, capacity) * part[0]),
    )


def surely_there(gpu: Gpu, capacity: int) -> int:
    """What a card of that name shows at the least, where a profile may hold the round figure under which it is sold."""
    words = re.split(r"[^A-Z0-9]+", (gpu.model or "").upper())
    shown = next((_SHOWN_GIB[word] for word in words if word in _SHOWN_GIB), None)
    return capacity if shown is None else min(capacity, int(shown * _GIB))


def peak_moment(case: Case) -> Moment:
    """The moment of a step at which the most is held; terms of nothing are left out."""
    engine = _ENGINES.get(case.plan.engine.name, deepspeed)
    moments = engine.moments(case, activations_of(case))
    is_on_gpu = case.plan.parallel.gpus_per_node > 0
    found = max(moments if is_on_gpu else as_on_cpu(case, moments), key=lambda one: one.total)
    terms = {**found.terms, **({"workspaces": constants().workspaces} if is_on_gpu else {})}
    if states := terms.get("optimizer states"):
        terms["optimizer states"] = states - min(states, case.paged_bytes)
    return Moment(name=found.name, terms={name: size for name, size in terms.items() if size})


def _pieces_of_graphs(case: Case, moment: Moment, *, expands: bool) -> int:
    """What a recorded graph's own memory is larger than what lies in it at its fullest: nothing else may use it."""
    if not case.plan.engine.cuda_graph:
        return 0
    passes = moment.terms.get("activations", 0) + moment.terms.get("logits and loss", 0)
    pieces = int(_PIECES * passes)
    if case.plan.engine.name != "plain":
        return pieces
    return max(min(pieces, _MOST_PIECES), 0 if expands else plain.in_holes(case, activations_of(case)))


def fragments(case: Case) -> int:
    """What the allocator keeps of what was freed and cannot use again."""
    return deepspeed.fragments(case) if case.plan.engine.name == "deepspeed" else 0
