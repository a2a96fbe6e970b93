"""AdamW on the device over states that lie on the host: a piece comes while the one before is stepped and an earlier one goes back.

What bounds it is the link in both directions, or the host's memory behind it: the device would do the step alone in a
hundredth of the time. It works in memory that is free between two backward passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpc_llm.worker.engines.beside import Beside
from hpc_llm.worker.engines.flat_units import Unit
from hpc_llm.worker.engines.host_memory import stretches
from hpc_llm.worker.engines.host_states import HostShare, HostStates
from hpc_llm.worker.engines.pure_bf16 import noise, rounded, salt_on
from hpc_llm.worker.engines.split_numbers import joined, split

_SLOTS = 4
"""Pieces on the device: one that comes, one that is stepped, one that goes, and one for what is late."""
_SMALLEST = 64
"""Numbers of a piece."""
_LEAST = 4096
"""Bytes of a slot."""


@dataclass(frozen=True)
class Rates:
    """What a step multiplies by."""

    betas: tuple[float, float]
    eps: float
    rate: float
    root: float
    """One over the root of what the second moment lacks of its mean."""
    decay: float
    factor: torch.Tensor | None
    """Of the gradients, one number on the device."""


def rates_of(group: dict[str, Any], step: int, factor: torch.Tensor | None) -> Rates:
    """Those of a step of torch's AdamW with these settings."""
    beta, beta_of_square = group["betas"]
    return Rates(
        betas=(beta, beta_of_square),
        eps=group["eps"],
        rate=group["lr"] / (1 - beta**step),
        root=(1 - beta_of_square**step) ** -0.5,
        decay=1 - group["lr"] * group["weight_decay"],
        factor=factor,
    )


@dataclass
class OnDevice:
    """Some numbers on the device, all of one length."""

    own: torch.Tensor
    """The weights as the layers have them."""
    gradient: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor
    low: torch.Tensor | None
    """What they lack of fp32."""


def change(piece: OnDevice, rates: Rates, salt: torch.Tensor | None) -> None:
    """AdamW's step in fp32, as torch does it. Moments in bf16 are rounded at random, as `salt` decides, which there is for them alone."""
    wide = piece.gradient.float()
    if rates.factor is not None:
        wide = wide * rates.factor
    mean, square = piece.mean.float(), piece.square.float()  # themselves where they are in fp32
    mean.lerp_(wide, 1 - rates.betas[0])
    square.mul_(rates.betas[1]).addcmul_(wide, wide, value=1 - rates.betas[1])
    value = piece.own if piece.low is None else joined(piece.own, piece.low)
    spread = square.sqrt().mul_(rates.root).add_(rates.eps)
    value.mul_(rates.decay).addcdiv_(mean, spread, value=-rates.rate)
    if piece.low is not None:
        split(value, piece.own, piece.low)
    if salt is not None:
        bits = noise(mean.numel(), salt)
        piece.mean.copy_(rounded(mean, bits))
        piece.square.copy_(rounded(square, bits >> 16))


@dataclass
class _Slot:
    """Room for a piece of any unit."""

    room: torch.Tensor
    """Bytes."""
    free: torch.cuda.Event | None = None

    def like(self, rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors of these lengths and kinds in the slot's room, the widest numbers first."""
        found, begin = [], 0
        for row in rows:
            size = row.numel() * row.element_size()
            found.append(self.room[begin : begin + size].view(row.dtype))
            begin += -(-size // 16) * 16
        return found


class StreamedStep:
    """Steps the shares of `states` in pieces."""

    def __init__(self, states: HostStates, device: torch.device, overlap: bool, seed: int) -> None:
        self._states, self._seed = states, seed
        self._up, self._down = Beside(device, overlap), Beside(device, overlap)

    def __call__(
        self,
        gradients: Sequence[torch.Tensor],
        factor: torch.Tensor | None,
        space: torch.Tensor,
        stepped: Callable[[Unit], None],
    ) -> None:
        """Change all shares by their gradients times `factor`, which lie on the host; `space` is free until the end.

        `stepped` is called behind each unit.
        """
        number = self._states.count_step()
        (group,) = self._states.optimizer.param_groups
        rates = rates_of(group, number, factor)
        slots = _slots(space, self._up.here())
        count, rounds = 0, any(share.mean.dtype != torch.float32 for share in self._states.shares)
        for share, gradient in zip(self._states.shares, gradients, strict=True):
            rows = _rows(share, gradient)
            longest = len(slots[0].room) // (sum(row.element_size() for row in rows) or 1) - _SMALLEST
            for part in stretches(gradient.numel(), longest):
                salt = salt_on(space.device, self._seed, number, count) if rounds else None
                self._step(slots[count % _SLOTS], share, [row[part] for row in rows], part, rates, salt)
                count += 1
            stepped(share.unit)
        self._down.join()

    def _step(
        self,
        slot: _Slot,
        share: HostShare,
        rows: list[torch.Tensor],
        part: slice,
        rates: Rates,
        salt: torch.Tensor | None,
    ) -> None:
        there = slot.like(rows)
        with self._up.running_behind(slot.free):
            for to, at in zip(there, rows, strict=True):
                to.copy_(at, non_blocking=True)
        self._up.wait(self._up.mark())
        own = there[2] if share.unit.on_host else share.unit.own[part]
        low = there[-2] if share.low is not None else None
        change(OnDevice(own, there[-1], there[0], there[1], low), rates, salt)
        with self._down.running_behind(self._up.here()):
            for to, at in zip(rows[:-1], there[:-1], strict=True):
                to.copy_(at, non_blocking=True)
        slot.free = self._down.mark()


def _rows(share: HostShare, gradient: torch.Tensor) -> list[torch.Tensor]:
    """What comes: the moments, the weights and what they lack if it lies here, and as the last one what does not go back."""
    assert share.weight is None, "whole weights are stepped on the host"
    weights = [share.unit.own] if share.unit.on_host else []
    return [share.mean, share.square, *weights, *([] if share.low is None else [share.low]), gradient]


def _slots(space: torch.Tensor, free: torch.cuda.Event | None) -> list[_Slot]:
    room = space.view(torch.uint8)
    if len(room) < _SLOTS * _LEAST:
        room = room.new_empty(_SLOTS * _LEAST)
    size = len(room) // _SLOTS // 64 * 64
    return [_Slot(room[begin * size : (begin + 1) * size], free) for begin in range(_SLOTS)]
