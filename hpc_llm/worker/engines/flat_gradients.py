"""Gradients of flat units: taken as the backward pass makes them, summed over the ranks unit by unit while it goes on.

A unit's gradients are whole on a rank only from its first one to their sum. They lie in one of a few rows, which the next
units use again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from hpc_llm.worker.engines.beside import Beside
from hpc_llm.worker.engines.flat_units import Piece, Unit

_ROWS = 2
"""One is filled while the other is summed."""


@dataclass
class _Row:
    """Memory for the gradients of a unit, of any of them."""

    numbers: torch.Tensor
    received: torch.Tensor | None
    """Where the sum of a micro batch arrives that is added to those before."""
    summed: torch.cuda.Event | None = None
    """When it may be written again."""
    left: torch.cuda.Event | None = None
    """When what was received may be written again, where that goes on to the host."""
    sums: torch.Tensor | None = None
    """What is added up over micro batches, where that lies on the host."""
    came: torch.cuda.Event | None = None
    """When the sum of those before is there."""


class FlatGradients:
    """This rank's shares of the gradients of `units`, summed over all ranks.

    `dtype` is the precision in which ranks are summed. Where several micro batches are, `accumulates`, they are in fp32.
    """

    def __init__(self, units: Sequence[Unit], dtype: torch.dtype, beside: Beside, *, accumulates: bool) -> None:
        self._units, self._dtype, self._beside, self._accumulates = list(units), dtype, beside, accumulates
        self.shares = [self._make_share(unit, torch.float32 if accumulates else dtype) for unit in units]
        self._largest = max(unit.size for unit in units)
        # In one block, so that between two backward passes the fp32 gradients of any share fit into it.
        block = torch.empty(_ROWS * self._largest, dtype=dtype, device=units[0].device)
        self.space = block.view(torch.float32)
        """Free memory from the end of a backward pass to the beginning of the next one."""
        self._rows = [self._row(numbers) for numbers in block.split(self._largest)]
        self._share_of = dict(zip(map(id, units), self.shares, strict=True))
        for unit in units:
            for piece in unit.pieces:
                piece.parameter.register_post_accumulate_grad_hook(partial(self._take, unit, piece))
        self.begin()

    def _make_share(self, unit: Unit, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros_like(unit.own, dtype=dtype)

    def squares(self) -> torch.Tensor:
        """The sum of the squares of all that this rank has, on the device."""
        norms = [torch.linalg.vector_norm(share, dtype=torch.float32) for share in self.shares]
        return torch.stack(norms).square().sum()

    def begin(self) -> None:
        """Before a backward pass, also where the one before did not come to its end."""
        self._free = deque(self._rows)
        self._taken: dict[int, _Row] = {}
        self._missing = {id(unit): {piece.name: piece for piece in unit.pieces} for unit in self._units}
        for row in self._rows:
            row.summed = row.left = None  # `finish` has waited for it; a graph must not wait for what is outside of it
        for unit in self._units:
            for piece in unit.pieces:
                piece.parameter.grad = None

    def finish(self) -> None:
        """Behind a backward pass: sum what was left, for nothing went through some parameters. Collective."""
        for unit in self._units:
            left = self._missing[id(unit)]
            if left:
                row = self._row_of(unit)
                for piece in left.values():
                    piece.of(row.numbers).zero_()
                self._sum(unit, row)
                left.clear()
        self._beside.join()

    def forget(self) -> None:
        """Behind a step: begin sums anew."""
        if self._accumulates:
            torch._foreach_zero_(self.shares)

    def tensors(self) -> list[torch.Tensor]:
        """All that is held for gradients."""
        rows = [each for row in self._rows for each in (row.numbers, row.received, row.sums) if each is not None]
        return [*self.shares, *rows]

    def _take(self, unit: Unit, piece: Piece, parameter: torch.Tensor) -> None:
        """Called when the gradient of a parameter is whole on this rank."""
        row = self._row_of(unit)
        assert parameter.grad is not None
        piece.of(row.numbers).copy_(parameter.grad.detach())
        parameter.grad = None
        left = self._missing[id(unit)]
        del left[piece.name]
        if not left:
            self._sum(unit, row)

    def _row_of(self, unit: Unit) -> _Row:
        found = self._taken.get(id(unit))
        if found is not None:
            return found
        if not self._free:  # units whose gradients come between those of others
            numbers = torch.empty(self._largest, dtype=self._dtype, device=unit.device)
            self._rows.append(self._row(numbers))
            self._free.append(self._rows[-1])
        row = self._taken[id(unit)] = self._free.popleft()
        self._beside.wait(row.summed)
        for gap in unit.gaps():
            row.numbers[gap].zero_()
        return row

    def _sum(self, unit: Unit, row: _Row) -> None:
        with self._beside.running():
            self._scatter(unit, row)
            row.summed = self._beside.mark()
        del self._taken[id(unit)]
        self._free.append(row)

    def _scatter(self, unit: Unit, row: _Row) -> None:
        share = self._share_of[id(unit)]
        arrived = share if row.received is None else row.received[: share.numel()]
        scatter(row.numbers[: unit.size], arrived, unit)
        if arrived is not share:
            share.add_(arrived)

    def _row(self, numbers: torch.Tensor) -> _Row:
        size = max(share.numel() for share in self.shares)
        return _Row(numbers, numbers.new_empty(size) if self._accumulates else None)


def scatter(whole: torch.Tensor, arrived: torch.Tensor, unit: Unit) -> None:
    """Sum `whole` over all ranks, and put this rank's share of it into `arrived`. Collective."""
    if whole.is_cuda:
        dist.reduce_scatter_tensor(arrived, whole)
    else:  # not every release of gloo can scatter
        dist.all_reduce(whole)
        arrived.copy_(whole[unit.begin : unit.end])
