"""What the values of a JSON text would take in memory, told before any is made: `[{},{},…]` takes forty times its own length.

Standard library only. It takes a time that grows like the text, and little memory of its own.
"""

from __future__ import annotations

MOST = 80 << 20
"""Bytes that a text and its values may take: with what else a command has, that keeps within the 150 MB of `parse` and `diagnose`."""
_SMALL = 1 << 18
"""Bytes of a text whose values are not counted: they cannot be that many."""
_SLICE = 1 << 18
_MOST_ESCAPES = 1 << 12
"""Backslashes in a row: a text with more holds nothing that is looked for."""
_OBJECT, _LIST, _ITEM, _TEXT = 200, 72, 48, 64
"""Bytes that CPython takes of each, about: an object with some fields, a list, a value in one of them, a text without its letters."""


def is_too_heavy(text: bytes, most: int = MOST) -> bool:
    """Whether the text and what it would become take more than `most` bytes.

    >>> is_too_heavy(b"[" + b"{}," * 1_000_000 + b"{}]"), is_too_heavy(b'["' + b"{}," * 1_000_000 + b'"]')
    (True, False)
    """
    return len(text) > _SMALL and len(text) * (2 + _width(text)) + _values(text, most) > most


def _width(text: bytes) -> int:
    """Bytes of each letter in memory: the widest decides for all."""
    if text.isascii():
        return 1
    kinds = text.translate(None, bytes(range(0xC4)))  # what begins a letter beyond Latin-1
    return 4 if kinds and max(kinds) >= 0xF0 else 2 if kinds else 1


def _values(text: bytes, most: int) -> int:
    """Bytes of all values without the letters of texts; what is written in texts is not counted."""
    found, inside, start = 0, 0, 0
    while start < len(text) and found <= most:
        end = _between_escapes(text, start + _SLICE)
        if end is None:
            return most + 1
        parts = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[inside::2])
        quotes = len(parts) - 1
        inside, start = (inside + quotes) % 2, end
        texts = max(0, (quotes + 1) // 2 - outside.count(b":"))  # the names of fields are kept once
        found += (
            _OBJECT * outside.count(b"{") + _LIST * outside.count(b"[") + _ITEM * outside.count(b",") + _TEXT * texts
        )
    return found


def _between_escapes(text: bytes, end: int) -> int | None:
    """The same place, or one a little before it, with no backslash before it; None where there are too many."""
    if end >= len(text):
        return len(text)
    return next((at for at in range(end, end - _MOST_ESCAPES, -1) if text[at - 1] != ord("\\")), None)
