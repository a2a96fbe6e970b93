"""From sequences to micro batches, which a thread puts together ahead of time."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator

import torch

from hpc_llm.worker.data.batch import Batch

_PREFETCH_BATCHES = 8


def prefetched_batches(
    sequences: Iterator[torch.Tensor], micro_batch_size: int, device: torch.device
) -> Iterator[Batch]:
    """Batches that a thread puts together ahead of time; an error there is raised here."""
    ready: queue.Queue[torch.Tensor | BaseException] = queue.Queue(maxsize=_PREFETCH_BATCHES)

    def produce() -> None:
        try:
            while True:
                batch = torch.stack(list(itertools.islice(sequences, micro_batch_size)))
                ready.put(batch.pin_memory() if device.type == "cuda" else batch)
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=produce, name="data", daemon=True).start()
    while True:
        item = ready.get()
        if isinstance(item, BaseException):
            raise item
        yield {"input_ids": item.to(device, non_blocking=True)}
