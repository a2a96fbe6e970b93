"""What the forward pass keeps for the backward pass, and what the loss works in.

Counted from the operations of transformers' decoder layers as autograd saves them: a normalisation keeps its input in fp32 and, where
its weight trains, the normalised values; a linear layer its input where its weight trains or an adapter reads it; attention its
queries, keys, values and output (without the scores, but for `eager`); the gated MLP both factors, the gate and their product.
Where norm and MLP are compiled, each for itself or with the whole layer, they keep what enters them and make the rest anew: of a
normalisation its input as it is, of the MLP both factors and their product; and where layers that multiply in fp8 are compiled, no input of
a linear layer is kept besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hpc_llm.corpus.words import DOCUMENTS
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.fused_loss import fused_loss_bytes
from hpc_llm.estimating.sizes import Block

LOSS = 12
"""Bytes for each token and word of the vocabulary: the log of the softmax, its gradient and that of the logits, in fp32."""


@dataclass(frozen=True)
class Activations:
    """Bytes of one micro batch."""

    kept: int
    """From the forward to the backward pass."""
    one_layer: int
    """Of the largest layer, all of it."""
    anew: int
    """Of the layer that is made anew while all that is kept is there: where the last one is."""
    loss: int
    """What the loss works in besides."""


def activations_of(case: Case) -> Activations:
    per_layer = [_layer(case, block) for block in case.sizes.blocks]
    kept = sum(map(partial(_row, case), case.sizes.blocks, per_layer))
    last = case.sizes.blocks[-1].count
    anew = max(per_layer) if last - 1 in case.recomputed(last) else 0
    engine, tokens = case.plan.engine, case.tokens
    # What the head reads for its gradient, or the gradient of that where it is made with the loss.
    end = _norm(case, engine.fused_layers)
    end += case.width * case.sizes.hidden if case.trains_root or engine.fused_loss else 0
    loss = fused_loss_bytes(case) if engine.fused_loss else tokens * LOSS * case.sizes.vocabulary
    return Activations(kept=tokens * (kept + end), one_layer=tokens * max(per_layer), anew=tokens * anew, loss=loss)


def _row(case: Case, block: Block, layer: int) -> int:
    """Bytes a token that layers keep of which each makes `layer` of them: what enters those that are recomputed, all of the others."""
    anew = len(case.recomputed(block.count))
    entering = case.width * case.sizes.hidden + (_inputs(case, block) if case.is_int8 else 0)
    return anew * entering + (block.count - anew) * layer


def _inputs(case: Case, block: Block) -> int:
    """Bytes a token of what enters the matrices of a layer. bitsandbytes keeps them where torch's recompute does not see it."""
    sizes = case.sizes
    return case.width * (sizes.hidden * block.norms + sizes.attention * block.attentions + sizes.inner)


def _norm(case: Case, is_compiled: bool) -> int:
    """Bytes a token of a normalisation: its input in fp32, and what its weight is multiplied with where that trains."""
    if is_compiled:
        return case.width * case.sizes.hidden
    return case.sizes.hidden * (4 + (0 if case.is_adapted else case.width))


def _layer(case: Case, block: Block) -> int:
    """Bytes a token that one layer keeps."""
    sizes, e = case.sizes, case.width
    is_compiled = case.plan.engine.fused_layers or case.plan.engine.compiled_layers
    reads_inputs = _reads_inputs(case)
    if case.plan.model.fp8 and case.plan.engine.compiled_layers:
        reads_inputs = False  # what is rounded is made anew of what norm, attention and MLP keep
    attention = e * (2 * sizes.attention + 2 * sizes.keys) + 4 * sizes.heads
    if (
        case.plan.engine.fused_layers
        and case.is_quantized
        and not case.is_adapted
        and case.plan.batch.micro_batch_size > 1
    ):
        attention += e * sizes.keys  # values of several samples are turned where no adapter has made them whole
    mlp = e * sizes.inner * ((0 if is_compiled else 1) + sizes.gates + (1 if reads_inputs else 0))
    inputs = e * sizes.hidden * block.norms if reads_inputs else 0
    return (
        block.norms * _norm(case, is_compiled)
        + block.attentions * (attention + _scores(case))
        + mlp
        + inputs
        + _adapters(case, block)
    )


def _reads_inputs(case: Case) -> bool:
    """Whether layers keep what enters their matrices. A frozen one needs it for nothing, and an adapter keeps what dropout leaves of it;
    bitsandbytes keeps that of int8 layers all the same."""
    if case.is_int8:
        return True
    return not case.plan.model.peft.dropout if case.plan.model.peft else not case.is_quantized


def possible_scores(case: Case) -> int:
    """Bytes of scores that attention with a bias of its own, as T5's, keeps where the software has no fused kernel for it."""
    if len(case.sizes.blocks) == 1 or case.plan.model.attention == "eager":
        return 0
    kept = sum(block.attentions * (block.count - len(case.recomputed(block.count))) for block in case.sizes.blocks)
    many = kept or max(block.attentions for block in case.sizes.blocks)
    each = case.sizes.heads * case.plan.batch.sequence_length * (4 + case.width)
    return case.tokens * many * each


def _scores(case: Case) -> int:
    """Bytes a token of attention that keeps its scores: the softmax in fp32, and in the precision of the rest where that is another
    program's, keys and values repeated."""
    sizes = case.sizes
    if case.plan.model.attention == "eager":
        each = 4 + case.width
    elif _has_no_kernel(case):
        each = case.width
    else:
        return 0
    repeated = 2 * case.width * (sizes.attention - sizes.keys)
    return sizes.heads * case.plan.batch.sequence_length * each + repeated


def _has_no_kernel(case: Case) -> bool:
    """Whether torch multiplies attention out: of its kernels on a GPU that keep no scores, the one that takes fp32 shares no keys among
    heads. With a mask between documents transformers repeats keys itself, which that one takes."""
    shares_keys = case.sizes.keys < case.sizes.attention
    is_masked = case.plan.training.packing == DOCUMENTS
    return case.width == 4 and shares_keys and not is_masked and case.plan.parallel.gpus_per_node > 0


def _adapters(case: Case, block: Block) -> int:
    """Bytes a token of what lies between the two matrices of each adapter; dropout keeps its mask and what it leaves."""
    peft = case.plan.model.peft
    if peft is None:
        return 0
    wanted = [n for n in block.matrices if isinstance(peft.target_modules, str) or n in peft.target_modules]
    dropped = sum(block.matrices[name][1] for name in wanted) if peft.dropout else 0
    return case.width * peft.r * len(wanted) + dropped * (1 + case.width)
