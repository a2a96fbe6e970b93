"""Which rank holds which numbers of what trains: the same view of every engine, by the names of the parameters.

An engine steps parameters themselves, copies of them in fp32, or flat tensors that hold stretches of many parameters.
However that is, each number that trains has a place in a parameter of some name, and its moments lie beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from hpc_llm.worker.engines.held import local
from hpc_llm.worker.engines.pieces import ALL_OF_IT, Piece, Place

STEP = "step"
"""What every optimizer calls the number of its steps."""
WHOLE = "whole parameters"
_COUNTS_WITH_ONE = "FusedAdam"
"""DeepSpeed's counts the steps of all parameters of a group with the state of one of them."""


@dataclass(frozen=True)
class Part:
    """A stretch of one parameter that the optimizer of this rank steps."""

    name: str
    """Of the parameter, as the model calls it."""
    begin: int
    """Where it begins in the parameter, all numbers in one row; of a layer that ranks share, in what this rank has of it."""
    count: int
    owner: torch.Tensor
    """What the optimizer steps."""
    offset: int = 0
    """Where it begins in what this rank has of `owner`."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The stretch of `owner`, or of a moment of it; what is written there is written to it."""
        return local(tensor).view(-1)[self.offset : self.offset + self.count]


@dataclass(frozen=True)
class Copies:
    """Which ranks hold the same as this one, so that each of them writes some of it."""

    own: int = 0
    """Which of them this one is."""
    count: int = 1
    name: int = 0
    """The same for all of them, and for no other rank."""


ALL_APART = Copies()


@dataclass(frozen=True)
class Layout:
    """All that trains on this rank."""

    parts: list[Part]
    optimizer: torch.optim.Optimizer
    shares: str = WHOLE
    """How it is cut among the ranks, in words."""
    copies: Copies = ALL_APART
    places: Mapping[str, Place] = field(default_factory=dict)
    """Where what this rank has of a parameter lies in the whole; one that is not named is whole."""

    def piece(self, part: Part) -> Piece:
        """Where the numbers of a part lie."""
        return Piece(part.begin, part.count, self.place(part.name))

    def place(self, name: str) -> Place:
        """Where what this rank has of the parameter lies in the whole."""
        return self.places.get(name, ALL_OF_IT)

    @property
    def owners(self) -> list[torch.Tensor]:
        """What the optimizer steps, each once."""
        return list({id(part.owner): part.owner for part in self.parts}.values())

    def state_of(self, owner: torch.Tensor) -> dict[str, Any]:
        """What the optimizer knows of `owner`; empty before its first step."""
        state: dict[str, Any] = self.optimizer.state.get(owner, {})
        return state

    def moments(self, owner: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The states that have one number for each of `owner`."""
        size = local(owner).numel()
        for key, value in self.state_of(owner).items():
            if key != STEP and isinstance(value, torch.Tensor) and local(value).numel() == size:
                yield key, value

    def steps(self, owner: torch.Tensor) -> int:
        """How often `owner` was stepped."""
        if type(self.optimizer).__name__ == _COUNTS_WITH_ONE:
            return max((int(self.state_of(one).get(STEP, 0)) for one in self.owners), default=0)
        return int(self.state_of(owner).get(STEP, 0))

    def set_steps(self, owner: torch.Tensor, steps: int) -> None:
        """Let the optimizer take it that `owner` was stepped so often."""
        state = self.state_of(owner)
        if isinstance(state.get(STEP), torch.Tensor):
            state[STEP].fill_(steps)
        elif STEP in state:
            state[STEP] = steps


def make_states(layout: Layout) -> None:
    """Have the optimizer make its states, which it does at the first step: by one with no gradient and no rate."""
    groups = layout.optimizer.param_groups
    try:
        for owner in layout.owners:
            if layout.state_of(owner):
                continue
            before, owner.grad = owner.grad, torch.zeros_like(owner)
            layout.optimizer.param_groups = [{**groups[0], "params": [owner], "lr": 0.0}]
            layout.optimizer.step()
            owner.grad = before
    finally:
        layout.optimizer.param_groups = groups
