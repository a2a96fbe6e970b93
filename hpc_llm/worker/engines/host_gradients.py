"""Gradients of flat units that leave for the host while the backward pass goes on: the device keeps those of a few units alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hpc_llm.worker.engines.beside import Beside
from hpc_llm.worker.engines.flat_gradients import FlatGradients, _Row, scatter
from hpc_llm.worker.engines.flat_units import Unit
from hpc_llm.worker.engines.host_memory import HostMemory


class HostGradients(FlatGradients):
    """As FlatGradients, with the shares in `memory`. Their squares are summed on the way.

    The sum over several micro batches comes back for each of them and leaves again, in fp32.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        dtype: torch.dtype,
        beside: Beside,
        memory: HostMemory,
        *,
        accumulates: bool,
        overlap: bool,
    ) -> None:
        device = units[0].device
        self._memory = memory
        self._leaving, self._coming = Beside(device, overlap), Beside(device, overlap)
        self._squares = torch.zeros(len(units), device=device)
        self._place = {id(unit): number for number, unit in enumerate(units)}
        self._has_sums: set[int] = set()
        super().__init__(units, dtype, beside, accumulates=accumulates)

    def squares(self) -> torch.Tensor:
        return self._squares.sum()

    def finish(self) -> None:
        super().finish()
        self._leaving.join()

    def forget(self) -> None:
        self._has_sums.clear()

    def _make_share(self, unit: Unit, dtype: torch.dtype) -> torch.Tensor:
        return self._memory.zeros(unit.own.numel(), dtype)

    def _row_of(self, unit: Unit) -> _Row:
        is_new = id(unit) not in self._taken
        row = super()._row_of(unit)
        if is_new and row.sums is not None and id(unit) in self._has_sums:
            share = self._share_of[id(unit)]
            with self._coming.running_behind(row.left or self._coming.here()):
                row.sums[: share.numel()].copy_(share, non_blocking=True)
            row.came = self._coming.mark()
        return row

    def _scatter(self, unit: Unit, row: _Row) -> None:
        share = self._share_of[id(unit)]
        assert row.received is not None
        arrived = row.received[: share.numel()]
        self._beside.wait(row.left)
        scatter(row.numbers[: unit.size], arrived, unit)
        if row.sums is not None:
            arrived = self._added(arrived, row.sums[: share.numel()], id(unit), row)
        torch.linalg.vector_norm(arrived, dtype=torch.float32, out=self._squares[self._place[id(unit)]])
        self._squares[self._place[id(unit)]].square_()
        with self._leaving.running():
            share.copy_(arrived, non_blocking=True)
        row.left = self._leaving.mark()

    def _added(self, arrived: torch.Tensor, sums: torch.Tensor, unit: int, row: _Row) -> torch.Tensor:
        """The sum of all micro batches so far."""
        if unit not in self._has_sums:
            self._has_sums.add(unit)
            return sums.copy_(arrived)
        self._beside.wait(row.came)
        return sums.add_(arrived)

    def _row(self, numbers: torch.Tensor) -> _Row:
        size = max(share.numel() for share in self.shares)
        sums = numbers.new_empty(size, dtype=torch.float32) if self._accumulates else None
        return _Row(numbers, numbers.new_empty(size), sums=sums)
