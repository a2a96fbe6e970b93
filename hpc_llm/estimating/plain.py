"""What plain PyTorch holds on a device: the whole model on each rank, with copies in fp32 of what trains."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.estimating.activations import Activations
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.deepspeed import head_gradient, held, unpacked
from hpc_llm.estimating.fused_loss import has_parts
from hpc_llm.estimating.parts import Moment
from hpc_llm.planning.optimizers import PURE_BF16

_BUCKET = 2**26
"""Numbers of gradients that are averaged at a time (`worker/engines/plain.py`)."""


def moments(case: Case, kept: Activations) -> Iterator[Moment]:
    """The moments of a step at which the most may be held."""
    has_copies = case.width < 4 and case.plan.optimizer.type not in PURE_BF16
    states = {**held(case), "optimizer states": case.trained * (case.moments_width + (4 if has_copies else 0))}
    if case.ranks > 1:
        states["communication buckets"] = _buckets(case, has_copies)
    loss, backward = _passes(case, kept)
    gradients = {"gradients": case.trained * (4 if has_copies else case.width)}
    if case.plan.engine.cuda_graph:
        if case.accumulates and not has_copies:
            states["gradients of earlier micro batches"] = case.width * case.trained
        # It keeps what it works in, and writes the gradients there: those in fp32 are copies of them.
        written = {"gradients": case.width * case.trained + _of_both_ends(case, has_copies)}
        passes = max(loss, backward, written, key=lambda one: sum(one.values()))
        copies = {"gradients in fp32": gradients["gradients"]} if has_copies else {}
        yield Moment(name="optimizer step", terms={**states, **passes, **copies})
        return
    before = {**states, **case.sum_of_gradients(gradients["gradients"])}
    yield Moment(name="loss", terms={**before, **loss})
    yield Moment(name="backward", terms={**before, **backward})
    yield Moment(name="optimizer step", terms={**states, **gradients, "largest temporary": _copying(case, has_copies)})


def _buckets(case: Case, has_copies: bool) -> int:
    """DDP has memory for all gradients; those that a graph left are averaged a bucket at a time, or a matrix that is larger than one."""
    if not case.plan.engine.cuda_graph:
        return case.width * case.trained
    largest = case.sizes.embedding if case.trains_root else 0
    return (4 if has_copies else case.width) * min(max(_BUCKET, largest), case.trained)


def _passes(case: Case, kept: Activations) -> tuple[dict[str, int], dict[str, int]]:
    """What the loss, and the backward pass behind it, hold besides what is there all the time."""
    temporary = unpacked_in_graph(case, kept) if case.plan.engine.cuda_graph else unpacked(case)
    return {"activations": kept.kept, "logits and loss": kept.loss}, {
        "activations": kept.kept + kept.anew,
        "gradients": head_gradient(case),
        "largest temporary": temporary,
    }


def in_holes(case: Case, kept: Activations) -> int:
    """What a graph's memory is larger, where its segments cannot grow, than what lies in it: loss and backward pass may each have their
    own, and the forward pass of a layer of which nothing is kept."""
    forward = kept.one_layer if kept.anew else 0
    return forward + min(sum(one.values()) - kept.kept for one in _passes(case, kept))


def unpacked_in_graph(case: Case, kept: Activations) -> int:
    """What a graph needs behind the loss for packed layers: gradients as large as what a layer keeps, and its weights as they multiply. One
    matrix of them, where what the loss or a layer made anew gave up serves for the others. Held to runs of q and qlora."""
    if not case.is_quantized:
        return 0
    at_once = case.sizes.largest_layer if has_parts(case) and not kept.anew else case.sizes.largest_matrix
    return case.width * at_once + kept.one_layer


def _of_both_ends(case: Case, has_copies: bool) -> int:
    """Gradients of a matrix that embeds and is the head: those of the head wait for those of the embedding, and where they are the
    optimizer's own in low precision, their sum has a place besides."""
    if not case.trains_root or not case.sizes.is_tied:
        return 0
    return case.width * case.sizes.embedding * (1 if has_copies or case.width == 4 else 2)


def _copying(case: Case, has_copies: bool) -> int:
    """What is there besides the gradients in fp32 while they are copied one after the other: those in low precision that are left."""
    if not has_copies or not case.trains_root:
        return 0
    embedding = case.sizes.embedding
    if case.ranks > 1:  # they lie in the buckets
        return case.width * embedding if case.is_quantized else 0
    last = 0 if case.sizes.is_tied else case.width * embedding
    at_first = case.width * case.trained + 4 * embedding
    return max(last, at_first - 4 * case.trained)
