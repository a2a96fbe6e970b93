"""Batches in which a different number of tokens is to be predicted each time, and sometimes none."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.worker.data import MASKED, Batch


def masked(stream: Iterator[Batch], rank: int) -> Iterator[Batch]:
    """The batches of `rank` with the first labels masked, all of them in every fifth batch."""
    for number, batch in enumerate(stream):
        labels = batch["input_ids"].clone()
        length = labels.shape[1]
        hidden = length if number % 5 == 4 else (37 * number + 23 * rank) % (length - 2)
        labels[:, :hidden] = MASKED
        yield {**batch, "labels": labels}
