"""What a run did otherwise than planned because of the node that it ran on, as its result tells it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpc_llm.text.secrecy import redacted
from hpc_llm.text.shown import one_line

_BESIDE = re.compile(r"\btelemetry\b|^ROUGE ")
"""Sentences on what is none of the training."""
_ASIDE = re.compile(r" \([^()]*\)")
_LONGEST = 110


def adaptations_of(result: Mapping[str, Any]) -> list[str]:
    """The sentences on the training itself."""
    given = result.get("adaptations")
    return [one for one in given if isinstance(one, str) and not _BESIDE.search(one)] if isinstance(given, list) else []


def in_short(sentence: str) -> str:
    """One of them without its full stop, and no longer than part of a line.

    >>> in_short("deepspeed runs in place of fsdp2, for it needs torch 2.6.")
    'deepspeed runs in place of fsdp2, for it needs torch 2.6'
    """
    text = one_line(redacted(sentence[: 8 * _LONGEST])).strip().rstrip(".")
    text = _ASIDE.sub("", text) if len(text) > _LONGEST else text
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


def adapted(result: Mapping[str, Any]) -> str | None:
    """The first of them in short, and how many more there are; None where nothing was adapted."""
    found = adaptations_of(result)
    more = f"; and {len(found) - 1} more in its result.json" if len(found) > 1 else ""
    return f"{in_short(found[0])}{more}" if found else None
