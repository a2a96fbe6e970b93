"""Keys and values of a batch, in memory that is there from the beginning and never grows: so a pass can be recorded.

It is its own and none of transformers' static caches: those count on the host where a sliding window is full, which a recorded
pass would not see. Here every layer keeps all places, and the mask alone says what is seen.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache


class FixedCache(Cache):  # type: ignore[misc]
    """Places for `size` tokens of each sequence of a batch. A prompt fills the first ones, each token behind it one more."""

    def __init__(self, size: int, device: torch.device) -> None:
        # What transformers' class would set up is a list of its own layers, and differs from release to release.
        self.layers: list[Any] = []
        self.size = size
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        """Where the next token's go."""
        self.reads_prompt = True
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}

    def begin(self, prompt_length: int) -> None:
        """Forget the batch before. Values that no mask shows are multiplied by 0 all the same, so none may be infinite."""
        for kept in (*self._keys.values(), *self._values.values()):
            kept.zero_()
        self.place.fill_(prompt_length)
        self.reads_prompt = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep these of one layer, and give those that its queries may see."""
        if layer_idx not in self._keys:
            self._keys[layer_idx], self._values[layer_idx] = (self._room(one) for one in (key_states, value_states))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        if self.reads_prompt:
            keys[:, :, : key_states.shape[2]] = key_states
            values[:, :, : value_states.shape[2]] = value_states
            return key_states, value_states
        keys.index_copy_(2, self.place, key_states)
        values.index_copy_(2, self.place, value_states)
        return keys, values

    def _room(self, like: torch.Tensor) -> torch.Tensor:
        batch, heads, _, width = like.shape
        return torch.zeros(batch, heads, self.size, width, dtype=like.dtype, device=like.device)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nobody needs it: positions and masks are given. 0 is what it is before a prompt."""
        return 0

    def get_max_cache_shape(self, *_: Any) -> int:
        return self.size

    @property
    def is_empty(self) -> bool:
        """Whether no pass has used it."""
        return not self._keys
