"""Keys in base64, as scripts hold them that decode them where they use them, and the logins of registries, `"auth": "…"`. Standard library only."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_shapes import OF_A_SERVICE, SHAPES

_WORD = late_pattern(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{20,2000}={0,2}(?![A-Za-z0-9+/=_-])")
_LOGIN = late_pattern(
    r"""(?<![A-Za-z0-9])(?i:auth)[\\"']{0,6}\s{0,20}[:=]\s{0,20}[\\"']{0,6}([A-Za-z0-9+/]{8,400}={0,2})(?![A-Za-z0-9+/=])"""
)


def secrets_encoded(text: str) -> Iterator[tuple[int, int]]:
    """Where a word stands that is base64 of a key whose form is known, or behind `auth` of a user and a password.

    >>> text = "echo aGZfQWJjRGVmR2hpSmtsTW5vUHFyU3R1MTIK | base64 -d; cat QWxsIHRoYXQgaXMgZ29sZCBpcyBub3Q="
    >>> [text[start:end] for start, end in secrets_encoded(text)]
    ['aGZfQWJjRGVmR2hpSmtsTW5vUHFyU3R1MTIK']
    """
    yield from (found.span() for found in _WORD.finditer(text) if _is_key(found[0]))
    yield from (found.span(1) for found in _LOGIN.finditer(text) if is_login(found[1]))


def is_login(word: str) -> bool:
    """Whether it is `user:password` in base64."""
    user, colon, password = _plain(word).partition(":")
    return bool(user and colon and password) and (user + password).isprintable()


def is_text(word: str) -> bool:
    """Whether it is text in base64 that is no login."""
    return _plain(word).isprintable() and _plain(word) != "" and not is_login(word)


def _plain(word: str) -> str:
    """What it says; "" for most words of that length, which are sums, names and paths."""
    try:
        return base64.b64decode(word, validate=True).decode("utf-8")
    except ValueError:
        return ""


def _is_key(word: str) -> bool:
    plain = _plain(word)
    return SHAPES.search(plain) is not None or OF_A_SERVICE.search(plain) is not None
