"""What a run holds where the host is the device: an optimizer's step in single operations, and of buffers what is written to.

Held to runs of a Llama of 68 million parameters and a T5 of 77 million with torch 2.11 and DeepSpeed 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hpc_llm.estimating.case import Case
from hpc_llm.estimating.constants import constants
from hpc_llm.estimating.deepspeed import held, sub_group
from hpc_llm.estimating.parts import Moment
from hpc_llm.planning.optimizers import PURE_BF16

_QUOTIENT = 8
"""Bytes of a number while torch's AdamW divides: the root of the second moment, and what it is divided into."""
_IN_8_BITS = 24
"""The same where bitsandbytes unpacks weight, gradient and both moments."""
_IN_PIECES = 140_000_000
"""What the step of AdamWBF16 takes while it goes over the tensors in pieces of a million numbers."""
_DEEPSPEED = 100_000_000
"""What its modules take more."""
_ENCODER_DECODER = 100_000_000
"""What runs of T5 took more than those of Llama, whatever the method."""


def program_on_cpu(case: Case) -> int:
    """Bytes of the process before it has a model, with torch's build for CPUs."""
    has_two_stacks = any(block.attentions > 1 for block in case.sizes.blocks)
    more = (_DEEPSPEED if case.plan.engine.name == "deepspeed" else 0) + (_ENCODER_DECODER if has_two_stacks else 0)
    return constants().cpu_program + more


def as_on_cpu(case: Case, counted: Iterable[Moment]) -> Iterator[Moment]:
    """The moments of an engine as they are there."""
    for moment in counted:
        terms = dict(moment.terms)
        if "communication buckets" in terms:  # pages that nothing is written to take no memory
            terms["communication buckets"] = min(terms["communication buckets"], case.width * case.trained)
        yield replace(moment, terms=terms)
    yield Moment(name="optimizer step", terms=_stepping(case))


def _stepping(case: Case) -> dict[str, int]:
    """While parameters change. What of the optimizer is offloaded, the host's terms hold."""
    if case.plan.engine.name == "deepspeed" and case.stage > 0:
        return _of_deepspeed(case)
    ranks = case.shares if case.plan.engine.name == "fsdp2" else 1
    in_fp32 = case.width < 4 and case.plan.optimizer.type not in PURE_BF16
    terms = {
        **held(case),
        "optimizer states": case.trained * (case.moments_width + (4 if in_fp32 else 0)) // ranks,
        "gradients": case.trained * (4 if in_fp32 else case.width) // ranks,
        "largest temporary": _temporary(case) // ranks,
    }
    if ranks > 1:
        terms["weights"] //= ranks
    elif case.ranks > 1:
        terms["communication buckets"] = case.width * case.trained
    return terms


def _of_deepspeed(case: Case) -> dict[str, int]:
    """What a rank steps is one tensor, or a few."""
    own = case.trained // case.ranks
    terms = {
        **held(case),
        "communication buckets": case.width * case.trained,
        "largest temporary": _bytes_of_a_number(case) * (sub_group(case) if case.stage == 3 else own),
    }
    if case.stage == 3:
        terms["weights"] = 0 if case.offloads("param") else terms["weights"] // case.ranks
        terms["gathered parameters"] = case.width * case.trained
    if not case.offloads("optimizer"):
        terms["optimizer states"] = own * (case.moments_width + 4)
        terms["gradients"] = own * (4 + (case.width if case.stage == 3 else 0))
    return terms


def _largest(case: Case) -> int:
    """Numbers of the largest tensor that is stepped."""
    return case.sizes.embedding if case.trains_root else min(case.adapters, case.sizes.largest_matrix)


def _temporary(case: Case) -> int:
    """What is there besides while a tensor is stepped."""
    if case.plan.optimizer.type in PURE_BF16:
        return min(_IN_PIECES, _IN_8_BITS * _largest(case))
    return _bytes_of_a_number(case) * _largest(case)


def _bytes_of_a_number(case: Case) -> int:
    """That are there besides while a tensor is stepped as a whole."""
    return _IN_8_BITS if "8bit" in case.plan.optimizer.type.lower() else _QUOTIENT
