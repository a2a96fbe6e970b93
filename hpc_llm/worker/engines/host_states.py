"""Moments, and what the weights lack of fp32, in the host's memory: of each unit this rank's share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hpc_llm.planning.parts import OptimizerSetup
from hpc_llm.worker.engines.flat_units import Unit
from hpc_llm.worker.engines.host_memory import HostMemory
from hpc_llm.worker.engines.layout import STEP
from hpc_llm.worker.engines.split_numbers import joined, split

MEAN, SQUARE = "exp_avg", "exp_avg_sq"
"""What torch's AdamW calls its moments."""


@dataclass
class HostShare:
    """What the host holds of a unit's share; `low` or `weight` where the share is not in fp32 itself."""

    unit: Unit
    mean: torch.Tensor
    square: torch.Tensor
    low: torch.Tensor | None = None
    """The 16 bits of each weight that bf16 has no room for."""
    weight: torch.Tensor | None = None
    """The whole weights in fp32."""

    @property
    def kept(self) -> list[torch.Tensor]:
        """All of it."""
        return [each for each in (self.mean, self.square, self.low, self.weight) if each is not None]


class HostStates:
    """The states of AdamW over the shares of `units`, whose weights are not moved.

    With `whole` each share has a copy in fp32 on the host, for a step that is done there; else the half that it lacks.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        setup: OptimizerSetup,
        memory: HostMemory,
        moments: torch.dtype,
        *,
        whole: bool,
    ) -> None:
        self._memory = memory
        self.shares = [self._share(unit, moments, whole) for unit in units]
        owners = [each.weight if each.weight is not None else each.unit.own for each in self.shares]
        self.optimizer = torch.optim.AdamW(
            owners,
            lr=setup.lr,
            betas=(setup.betas[0], setup.betas[1]),
            eps=setup.eps,
            weight_decay=setup.weight_decay,
        )
        """Knows rates and states under torch's own names; its `step` is never called."""
        for share, owner in zip(self.shares, owners, strict=True):
            share.unit.share = owner
            self.optimizer.state[owner] = {STEP: torch.zeros(()), MEAN: share.mean, SQUARE: share.square}

    def _share(self, unit: Unit, moments: torch.dtype, whole: bool) -> HostShare:
        count = unit.own.numel()
        made = HostShare(unit, *(self._memory.zeros(count, moments, locked=not whole) for _ in range(2)))
        if whole:
            made.weight = self._memory.zeros(count, torch.float32, locked=False)
            made.weight.copy_(unit.own)
        elif unit.own.dtype != torch.float32:
            made.low = self._memory.zeros(count, torch.int16)
        return made

    def count_step(self) -> int:
        """Begin one more step; its number."""
        steps = [state[STEP] for state in self.optimizer.state.values()]
        torch._foreach_add_(steps, 1)
        return int(steps[0])

    @contextmanager
    def in_fp32(self, *, changing: bool) -> Iterator[None]:
        """Inside, all that is stepped can be read in fp32 as the units' shares; with `changing` what is written there is taken.

        The host needs 4 bytes more for each number meanwhile, where it holds halves.
        """
        halves = [share for share in self.shares if share.low is not None]
        for share in halves:
            assert share.low is not None
            self._hand_over(share, joined(share.unit.own.to("cpu"), share.low))
        try:
            yield
        finally:
            for share in halves:
                assert share.low is not None
                if changing:
                    high = torch.empty_like(share.low, dtype=torch.bfloat16)
                    split(share.unit.share, high, share.low)
                    share.unit.own.copy_(high)
                self._hand_over(share, share.unit.own)
            for share in self.shares:
                if changing and share.weight is not None:
                    share.unit.own.copy_(share.weight)

    def _hand_over(self, share: HostShare, owner: torch.Tensor) -> None:
        """Let another tensor be what is stepped, for those who look."""
        state = self.optimizer.state.pop(share.unit.share)
        self.optimizer.state[owner] = state
        share.unit.share = owner
        (group,) = self.optimizer.param_groups
        group["params"] = [each.unit.share for each in self.shares]
