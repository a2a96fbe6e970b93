"""What each token may see: no padding, nothing behind itself, and nothing beyond the layer's window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from hpc_llm.errors import WorkerError

FULL, SLIDING = "full_attention", "sliding_attention"

Mask: TypeAlias = "torch.Tensor | dict[str, torch.Tensor]"


class Masks:
    """The masks of one model, of the kinds that its layers need, as its attention takes them."""

    def __init__(self, config: Any, attention: str, dtype: torch.dtype) -> None:
        self._kinds = _kinds(config)
        self._window: int | None = getattr(config, "sliding_window", None)
        self._adds = attention == "eager"
        self._dtype = dtype

    def of_prompt(self, real: torch.Tensor) -> Mask:
        """For all tokens of prompts at once; `real` (batch, length) is False where one is padded on its left.

        What is padded sees itself, so that its own values stay finite.
        """
        places = torch.arange(real.shape[1], device=real.device)
        query, key = places[:, None], places[None, :]
        seen = (key <= query) & (real[:, None, :] | (key == query))
        return self._all(seen[:, None], lambda: query - key)

    def of_token(self, seen: torch.Tensor, place: torch.Tensor) -> Mask:
        """For one token at `place`; `seen` (batch, places) says which places hold a token."""
        return self._all(seen[:, None, None], lambda: place - torch.arange(seen.shape[1], device=seen.device))

    def _all(self, seen: torch.Tensor, behind: Callable[[], torch.Tensor]) -> Mask:
        """`behind` tells by how many tokens each key is older than its query; only a window asks."""
        found = {
            kind: self._as_taken(self._within(seen, behind()) if kind == SLIDING else seen) for kind in self._kinds
        }
        return found if len(found) > 1 else found[self._kinds[0]]

    def _within(self, seen: torch.Tensor, behind: torch.Tensor) -> torch.Tensor:
        assert self._window is not None
        return seen & (behind < self._window)

    def _as_taken(self, seen: torch.Tensor) -> torch.Tensor:
        if not self._adds:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros_like(seen, dtype=self._dtype).masked_fill_(~seen, lowest)


def _kinds(config: Any) -> tuple[str, ...]:
    """The kinds of the model's layers. Raises WorkerError where one keeps something else than keys and values."""
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = tuple(dict.fromkeys(getattr(config, "layer_types", None) or (SLIDING if window else FULL,)))
    other = [kind for kind in kinds if kind not in (FULL, SLIDING)]
    if other or getattr(config, "is_encoder_decoder", False):
        what = f"layers of the kind {other[0]}" if other else "an encoder"
        raise WorkerError(
            f"a model of the family {config.model_type} has {what}, and answers are timed only where each layer attends to the keys and "
            "values of all tokens before, or of a window of them."
        )
    return kinds if window else (FULL,)
