"""Causal attention by a flag and not by a mask, where a batch is of whole samples.

transformers looks into a batch to see that no mask is needed, and where a CUDA stream is recorded it cannot look: it makes a mask of
(length, length) there, with which attention takes another and slower kernel, and compiled layers are compiled anew in mid-recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hpc_llm.planning.engines.facts import KNOWN_FAMILIES

_IMPLEMENTATION = "sdpa"
_whole = False


@contextmanager
def whole_samples() -> Iterator[None]:
    """Within, each sample of a batch is one sequence without padding: who knows that says it, and nobody looks."""
    global _whole
    _install()
    before, _whole = _whole, True
    try:
        yield
    finally:
        _whole = before


def _install() -> None:
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    except ImportError:  # releases before it make their masks elsewhere, and are left alone
        return
    before = ALL_MASK_ATTENTION_FUNCTIONS[_IMPLEMENTATION]
    if not isinstance(before, _Masks):
        AttentionMaskInterface.register(_IMPLEMENTATION, _Masks(before))


class _Masks:
    """What makes the masks for torch's attention, told when there need be none."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return None if _whole and _is_causal(kwargs) else self._library(*args, **kwargs)


def _is_causal(asked: Mapping[str, Any]) -> bool:
    """Whether attention's own flag says all that the mask would: of the families that are known, with keys as many as queries."""
    places, keys, window = asked.get("q_length"), asked.get("kv_length"), asked.get("local_size")
    if places is None and asked.get("cache_position") is not None:  # as older releases say it
        places = len(asked["cache_position"])
    family = getattr(asked.get("config"), "model_type", None)
    if family not in KNOWN_FAMILIES or asked.get("attention_mask") is not None or "allow_is_causal_skip" not in asked:
        return False
    return places is not None and places == keys and places > 1 and (window is None or keys < window)
