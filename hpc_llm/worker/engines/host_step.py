"""AdamW on the host, in pieces that its caches hold: of each the rounded weights go to the device while the next one is stepped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.optim.adamw import adamw

from hpc_llm.worker.engines.beside import Beside
from hpc_llm.worker.engines.flat_units import Unit
from hpc_llm.worker.engines.host_memory import HostMemory, stretches
from hpc_llm.worker.engines.host_states import HostShare, HostStates

_PIECE = 1 << 22
"""Numbers of a piece: 16 MiB of each row, so that all threads have something to do."""
_SLOTS = 4


@dataclass
class _Slot:
    """Rounded weights on their way to the device."""

    room: torch.Tensor
    free: torch.cuda.Event | None = None


class HostStep:
    """Steps the shares of `states`, whose weights are whole there, as torch's fused AdamW does."""

    def __init__(self, states: HostStates, device: torch.device, overlap: bool, memory: HostMemory) -> None:
        self._states = states
        self._up = Beside(device, overlap)
        self._overlaps = overlap and device.type == "cuda"
        kind = states.shares[0].unit.own.dtype
        self._wide = torch.empty(_PIECE)
        self._slots = [_Slot(memory.zeros(_PIECE, kind)) for _ in range(_SLOTS)]

    def __call__(
        self,
        gradients: Sequence[torch.Tensor],
        factor: torch.Tensor | None,
        space: torch.Tensor,
        stepped: Callable[[Unit], None],
    ) -> None:
        """Change all shares by their gradients times `factor`; see StreamedStep. The host waits for the gradients here."""
        number = self._states.count_step()
        shrinks = 1.0 if factor is None else float(factor)
        if factor is None and space.is_cuda:
            torch.cuda.current_stream().synchronize()
        count = 0
        for share, gradient in zip(self._states.shares, gradients, strict=True):
            for part in stretches(gradient.numel(), _PIECE):
                wide = self._wide[: part.stop - part.start].copy_(gradient[part])
                self._change(share, part, wide.mul_(shrinks) if shrinks != 1.0 else wide, number)
                self._send(self._slots[count % _SLOTS], share, part)
                count += 1
            self._up.join()
            stepped(share.unit)

    def _change(self, share: HostShare, part: slice, gradient: torch.Tensor, number: int) -> None:
        (group,) = self._states.optimizer.param_groups
        assert share.weight is not None
        adamw(
            [share.weight[part]],
            [gradient],
            [share.mean[part]],
            [share.square[part]],
            [],
            [torch.tensor(number - 1.0)],  # which it counts up
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=float(group["lr"]),
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def _send(self, slot: _Slot, share: HostShare, part: slice) -> None:
        assert share.weight is not None
        if slot.free is not None:
            slot.free.synchronize()
        room = slot.room[: part.stop - part.start].copy_(share.weight[part])
        with self._up.running_behind(self._up.here()):
            share.unit.own[part].copy_(room, non_blocking=self._overlaps)
        slot.free = self._up.mark()
