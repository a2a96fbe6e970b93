"""The secrets that this process holds in variables of its environment, and text without them: a library may tell a password in
an error, which no shape gives away. Standard library only."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

from hpc_llm.text.secret_names import of_variable
from hpc_llm.text.secret_values import HIDDEN, is_kept

_LEAST = 4
"""Letters of a value that is looked for."""
_ANYWHERE = 12
"""From so many on it is found within a word as well."""


def without_own_secrets(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` in which the values of variables of the environment are hidden whose names say that they hold a secret.

    >>> without_own_secrets("no login to db://u:fair%2Fplay@h with 'fair/play'", {"DB_PASSWORD": "fair/play", "USER": "u"})
    "no login to db://u:(hidden)@h with '(hidden)'"
    """
    held = os.environ if environ is None else environ
    found = {
        way for name, value in held.items() if is_kept(of_variable(name), value.strip()) for way in _ways(value.strip())
    }
    ways = sorted((one for one in found if len(one) >= _LEAST), key=len, reverse=True)
    return re.sub("|".join(map(_pattern, ways)), HIDDEN, text) if ways else text


def _ways(value: str) -> Iterator[str]:
    """How a value is written in a text: as it is, in a literal of Python or JSON, in an address."""
    with_bytes = value.encode("utf-8", "surrogateescape")
    yield from (value, repr(value)[1:-1], repr(with_bytes)[2:-1], json.dumps(value)[1:-1])
    yield from (quote(with_bytes), quote(with_bytes, safe=""), quote_plus(with_bytes))


def _pattern(way: str) -> str:
    """A short one counts as whole words, for it may be part of any."""
    before = "(?<![A-Za-z0-9])" if way[0].isalnum() and len(way) < _ANYWHERE else ""
    behind = "(?![A-Za-z0-9])" if way[-1].isalnum() and len(way) < _ANYWHERE else ""
    return f"{before}{re.escape(way)}{behind}"
