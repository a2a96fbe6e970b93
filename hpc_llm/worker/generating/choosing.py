"""Which token comes next: the likeliest, or one that is drawn. Nothing here waits for the device or depends on the rest of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

_PRIME = 1_000_003


@dataclass(frozen=True)
class Choice:
    """How a token is chosen."""

    temperature: float
    """0 takes the likeliest."""
    top_p: float

    def __call__(self, scores: torch.Tensor, drawn: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The next token of each sequence, from its scores (batch, vocabulary) and, where it is drawn, numbers in [0, 1) (batch, 1)."""
        if self.temperature == 0:
            return scores.argmax(dim=-1)
        likely = torch.softmax(scores.float() / self.temperature, dim=-1)
        ordered, tokens = likely.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered
        kept = ordered.masked_fill(before >= self.top_p, 0.0)  # the likeliest one always stays
        upto = kept.cumsum(dim=-1)
        place = (upto <= drawn() * upto[:, -1:]).sum(dim=-1, keepdim=True)
        last = (kept > 0).sum(dim=-1, keepdim=True) - 1
        return tokens.gather(1, torch.minimum(place, last)).squeeze(1)


def draws(seed: int, query: int, count: int) -> torch.Tensor:
    """Numbers in [0, 1) for the tokens of one query: the same in any batch and on any rank."""
    generator = torch.Generator().manual_seed(seed * _PRIME + query)
    return torch.rand(count, generator=generator)
