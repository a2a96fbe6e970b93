"""Micro batches: made up or of prepared data, ready before the step that uses them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch

from hpc_llm.corpus.order import endless_rows
from hpc_llm.corpus.words import TRAIN, VALIDATION
from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import MASKED, Batch, count_targets, model_inputs
from hpc_llm.worker.data.corpus import Row, RowsOfTensors, numbered, open_rows, without_labels
from hpc_llm.worker.data.feed import prefetched_batches
from hpc_llm.worker.data.held_out import MADE_UP_SEQUENCES, nobodys_share, passes
from hpc_llm.worker.data.share import Share, own_part, share_of
from hpc_llm.worker.data.synthetic import synthetic_sequences
from hpc_llm.worker.ranks import Ranks

__all__ = ["MASKED", "Batch", "batches", "count_targets", "epoch_sequences", "evaluation_batches", "model_inputs"]


def batches(plan: Plan, vocab_size: int, ranks: Ranks, device: torch.device, used: int = 0) -> Iterator[Batch]:
    """Endless micro batches of this rank, of the plan's data or made up.

    `used` is how many sequences all ranks together have trained on already: the batches go on behind them, of prepared data
    exactly, whatever the number of ranks was.
    """
    share = share_of(plan, ranks)
    return prefetched_batches(_rows(plan, vocab_size, share, used), plan.batch.micro_batch_size, device)


def _rows(plan: Plan, vocab_size: int, share: Share, used: int) -> Iterator[Mapping[str, torch.Tensor]]:
    if plan.training.corpus is not None:
        rows = open_rows(plan, TRAIN, vocab_size)
        if not len(rows):
            raise WorkerError(
                f"the data in {plan.training.corpus} fill no sequence of {plan.batch.sequence_length} tokens."
            )
        order = endless_rows(len(rows), plan.workload.seed, share.index, share.count, used)
        return numbered(rows, order)
    _refuse_unprepared(plan)
    return ({"input_ids": tokens} for tokens in own_part(synthetic_sequences(plan, vocab_size, share), share, used))


def _refuse_unprepared(plan: Plan) -> None:
    if plan.training.data:
        named = ", ".join(plan.training.data)
        raise WorkerError(f"the plan names data, {named}, and not where they were prepared: submit it anew.")


def evaluation_batches(
    plan: Plan, vocab_size: int, ranks: Ranks, device: torch.device, split: str = VALIDATION
) -> Iterator[Batch | None]:
    """One pass over what is held out: each sequence once over all groups of ranks, as many batches on each rank.

    A rank that has nothing left while others have gets None, or of prepared data rows without labels.
    Raises RequestError where the prepared data have no such split.
    """
    size = plan.batch.micro_batch_size
    if plan.training.corpus is not None:
        rows = open_rows(plan, split, vocab_size, is_evaluated=True)
        return prefetched_batches(_one_pass(rows, share_of(plan, ranks), size), size, device)
    _refuse_unprepared(plan)
    made_up = synthetic_sequences(plan, vocab_size, nobodys_share())
    return passes(itertools.islice(made_up, MADE_UP_SEQUENCES), plan, ranks, device)


def epoch_sequences(plan: Plan, vocab_size: int) -> int | None:
    """Sequences that all groups together train on before one comes again; None where none does."""
    return None if plan.training.corpus is None else len(open_rows(plan, TRAIN, vocab_size))


def _one_pass(rows: RowsOfTensors, share: Share, micro_batch_size: int) -> Iterator[Row]:
    all_at_once = share.count * micro_batch_size
    for place in range(share.index, -(-len(rows) // all_at_once) * all_at_once, share.count):
        yield rows.row(place) if place < len(rows) else without_labels(rows.row(0))
