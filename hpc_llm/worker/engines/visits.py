"""Units whose parameters lie on the host and visit the device: each comes shortly before its layers compute, forward and backward.

Every rank brings its own share, and a row is gathered of all of them. A row on the device is used by one unit after another;
what a layer keeps for its backward pass of its weights is therefore not kept, but found again in the unit's row of then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.worker.engines.beside import Beside
from hpc_llm.worker.engines.flat_units import Named, Unit, gather
from hpc_llm.worker.engines.host_memory import HostMemory

_AHEAD = 2
"""Units that are asked for while one computes."""
_ROWS = _AHEAD + 3
"""These, the one that computes, the one before it, and one whose place is taken."""


class HostUnit(Unit):
    """A unit of which each rank has its share on the host. Between visits its parameters have a shape and no memory."""

    on_host = True

    def __init__(self, named: Sequence[Named], ranks: int, rank: int, memory: HostMemory) -> None:
        self._memory = memory
        super().__init__(named, ranks, rank, copies=False)

    def _take_over(self, first: torch.Tensor) -> torch.Tensor:
        row = torch.zeros(self.size, dtype=first.dtype, device=first.device)
        self._nothing = torch.zeros(1, dtype=first.dtype, device=first.device)
        with torch.no_grad():
            for piece in self.pieces:
                piece.of(row).copy_(piece.parameter)
        self.leave()
        own = self._memory.zeros(self.end - self.begin, first.dtype)
        return own.copy_(row[self.begin : self.end])

    def enter(self, row: torch.Tensor) -> None:
        """Let the parameters lie in a row, of which the unit is the beginning."""
        for piece in self.pieces:
            piece.parameter.data = piece.of(row)

    def leave(self) -> None:
        """Let the parameters have no memory."""
        for piece in self.pieces:
            piece.parameter.data = self._nothing.expand(piece.parameter.shape)

    def gather(self) -> None:
        """Nothing: it is gathered where it is needed."""

    def held(self) -> list[torch.Tensor]:
        return [self.own]


@dataclass(eq=False)
class _Row:
    numbers: torch.Tensor
    unit: HostUnit | None = None
    ready: torch.cuda.Event | None = None
    """When the unit is there."""
    used: torch.cuda.Event | None = None
    """When the device needs it no more."""


@dataclass(frozen=True)
class _Kept:
    """A tensor that lay in a unit's row when a layer wanted to keep it."""

    unit: HostUnit
    shape: Sequence[int] = field(repr=False)
    strides: Sequence[int] = field(repr=False)
    begin: int


class Visits:
    """Brings the units of a model when its modules are about to compute."""

    def __init__(self, model: nn.Module, units: Sequence[HostUnit], beside: Beside, overlap: bool) -> None:
        self._units, self._beside = list(units), beside
        self._up = Beside(units[0].device, overlap)
        largest, first = max(unit.size for unit in units), units[0]
        kinds = {unit.own.dtype for unit in units}
        if len(kinds) > 1:
            raise WorkerError(
                f"parameters of this model are in {' and '.join(sorted(map(str, kinds)))}, and engine flat brings those of one "
                "type alone from the host: --set engine=deepspeed."
            )
        count = min(_ROWS, len(units) + 1)
        self._rows = [_Row(torch.zeros(largest, dtype=first.own.dtype, device=first.device)) for _ in range(count)]
        self._by_storage = {row.numbers.untyped_storage().data_ptr(): row for row in self._rows}
        self._place = {id(unit): number for number, unit in enumerate(units)}
        self._of = {id(piece.parameter): (unit, piece) for unit in units for piece in unit.pieces}
        self._last: list[HostUnit] = []
        self._direction = 1
        for module in model.modules():
            needed = {id(unit): unit for unit, _ in map(self._found, module.parameters(recurse=False))}
            if needed:
                module.register_forward_pre_hook(partial(_call_need, self.need, list(needed.values())))

    def _found(self, parameter: nn.Parameter) -> Any:
        return self._of[id(parameter)]

    def tensors(self) -> list[torch.Tensor]:
        """What is on the device for it."""
        return [row.numbers for row in self._rows]

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Inside, what is kept for a backward pass of a unit's parameters is found again where they are then."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield

    def begin(self, *, backward: bool) -> None:
        """Say which way the units will be needed from now on."""
        self._direction = -1 if backward else 1
        self._pass_on()
        self._last = []

    def forget(self) -> None:
        """The shares on the host are others now."""
        for row in self._rows:
            self._beside.wait(row.ready)
            if row.unit is not None:
                row.unit.leave()
            row.unit, row.ready, row.used = None, None, self._up.here()
        self._last = []

    def need(self, unit: HostUnit) -> None:
        """Have a unit on the device, for what is asked for next. Collective."""
        if self._last and self._last[-1] is unit:
            return
        self._pass_on()
        self._last = [*self._last[-1:], unit]
        row = self._come(unit)
        for ahead in self._next(unit):
            self._come(ahead)
        self._beside.wait(row.ready)

    def _pass_on(self) -> None:
        """Mark until when the unit is used that was needed last: all that was asked for of it is behind this point."""
        for row in self._rows:
            if self._last and row.unit is self._last[-1]:
                row.used = self._up.here()

    def whole(self, parameter: nn.Parameter) -> torch.Tensor:
        """A copy of all of a parameter. Collective."""
        unit, piece = self._found(parameter)
        self.need(unit)
        found: torch.Tensor = piece.of(self._come(unit).numbers).clone()
        return found

    def _next(self, unit: HostUnit) -> list[HostUnit]:
        place = self._place[id(unit)]
        places = [place + self._direction * step for step in range(1, _AHEAD + 1)]
        return [self._units[each] for each in places if 0 <= each < len(self._units)]

    def _come(self, unit: HostUnit) -> _Row:
        found = next((row for row in self._rows if row.unit is unit), None)
        return found or self._load(unit)

    def _load(self, unit: HostUnit) -> _Row:
        kept = [*self._last, *(self._next(self._last[-1]))]
        row = next(row for row in self._rows if row.unit is None or row.unit not in kept)
        if row.unit is not None:
            row.unit.leave()
        self._rows.remove(row)
        self._rows.append(row)  # the one that came first is the first to go
        row.unit = unit
        whole = row.numbers[: unit.size]
        own = whole[unit.begin : unit.end]
        with self._up.running_behind(row.used or row.ready or self._up.here()):
            own.copy_(unit.own, non_blocking=True)
        row.used = None
        with self._beside.running_behind(self._up.mark()):
            gather(whole, own)
        row.ready = self._beside.mark()
        unit.enter(row.numbers)
        return row

    def _pack(self, tensor: torch.Tensor) -> Any:
        row = self._by_storage.get(tensor.untyped_storage().data_ptr())
        if row is None or row.unit is None:
            return tensor
        return _Kept(row.unit, tensor.shape, tensor.stride(), tensor.storage_offset())

    def _unpack(self, kept: Any) -> torch.Tensor:
        if not isinstance(kept, _Kept):
            found: torch.Tensor = kept
            return found
        self.need(kept.unit)
        return torch.as_strided(self._come(kept.unit).numbers, kept.shape, kept.strides, kept.begin)


def _call_need(need: Any, units: Sequence[HostUnit], module: nn.Module, arguments: Any) -> None:
    for unit in units:
        need(unit)
