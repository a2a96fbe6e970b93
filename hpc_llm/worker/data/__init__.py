"""Micro batches: made up or from text, ready before the step that uses them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import MASKED, Batch, count_targets, model_inputs
from hpc_llm.worker.data.feed import prefetched_batches
from hpc_llm.worker.data.held_out import MADE_UP_SEQUENCES, nobodys_share, passes
from hpc_llm.worker.data.share import Share, own_part, share_of
from hpc_llm.worker.data.synthetic import synthetic_sequences
from hpc_llm.worker.data.text import held_out_sequences, packed_sequences, trained_count
from hpc_llm.worker.data.tokenizer import find_tokenizer
from hpc_llm.worker.ranks import Ranks

__all__ = ["MASKED", "Batch", "batches", "count_targets", "epoch_sequences", "evaluation_batches", "model_inputs"]


def batches(plan: Plan, vocab_size: int, ranks: Ranks, device: torch.device, used: int = 0) -> Iterator[Batch]:
    """Endless micro batches of this rank, from the plan's text files or made up.

    `used` is how many sequences all ranks together have trained on already: the batches go on behind them.
    """
    share = share_of(plan, ranks)
    sequences = own_part(_sequences(plan, vocab_size, share), share, used)
    return prefetched_batches(sequences, plan.batch.micro_batch_size, device)


def evaluation_batches(plan: Plan, vocab_size: int, ranks: Ranks, device: torch.device) -> Iterator[Batch | None]:
    """One pass over what is held out, each sequence once over all groups of ranks; None where only others have some left."""
    if not plan.training.data:
        made_up = synthetic_sequences(plan, vocab_size, nobodys_share())
        return passes(itertools.islice(made_up, MADE_UP_SEQUENCES), plan, ranks, device)
    tokenize, end = find_tokenizer(plan.model.name, vocab_size, loaded=plan.model.weights == "checkpoint")
    return passes(held_out_sequences(plan, tokenize, end), plan, ranks, device)


def epoch_sequences(plan: Plan, vocab_size: int) -> int | None:
    """Sequences that all groups together train on before one comes again; None where none does, or nobody has counted them."""
    if not plan.training.data or plan.training.eval_every is None:
        return None
    tokenize, end = find_tokenizer(plan.model.name, vocab_size, loaded=plan.model.weights == "checkpoint")
    return trained_count(plan, tokenize, end)


def _sequences(plan: Plan, vocab_size: int, share: Share) -> Iterator[torch.Tensor]:
    if not plan.training.data:
        return synthetic_sequences(plan, vocab_size, share)
    tokenize, end = find_tokenizer(plan.model.name, vocab_size, loaded=plan.model.weights == "checkpoint")
    return packed_sequences(plan, tokenize, end, share)
