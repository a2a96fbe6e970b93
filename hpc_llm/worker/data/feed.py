"""From rows to micro batches, which a thread puts together ahead of time."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator, Mapping

import torch

from hpc_llm.worker.data.batch import Batch

_PREFETCH_BATCHES = 8


class _End:
    """Behind the last batch."""


def prefetched_batches(
    rows: Iterator[Mapping[str, torch.Tensor]], micro_batch_size: int, device: torch.device
) -> Iterator[Batch]:
    """Batches that a thread puts together ahead of time, as long as there are rows; an error there is raised here."""
    ready: queue.Queue[Batch | BaseException | _End] = queue.Queue(maxsize=_PREFETCH_BATCHES)

    def produce() -> None:
        try:
            while batch := list(itertools.islice(rows, micro_batch_size)):
                ready.put(_stacked(batch, pin=device.type == "cuda"))
            ready.put(_End())
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=produce, name="data", daemon=True).start()
    while not isinstance(item := ready.get(), _End):
        if isinstance(item, BaseException):
            raise item
        yield {name: tensor.to(device, non_blocking=True) for name, tensor in item.items()}


def _stacked(rows: list[Mapping[str, torch.Tensor]], *, pin: bool) -> Batch:
    stacked = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return {name: tensor.pin_memory() if pin else tensor for name, tensor in stacked.items()}
