"""Commands as Python prints them, a list of words: `['curl', '-u', 'me:…']`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable

from hpc_llm.text.late_pattern import late_pattern

_WORD = r"""(?:b?'[^'\\\n]{0,300}'|"[^"\\\n]{0,300}")"""
_LIST = late_pattern(rf"[\[(]({_WORD}(?:,\ ?{_WORD}){{1,60}}),?[\])]")
_ONE = late_pattern(_WORD)


def with_lists_as_commands(text: str, redacted: Callable[[str], str]) -> str:
    """`text`, in which each list of words that holds a secret as a command line is given as `redacted` gives that line.

    >>> with_lists_as_commands("Command '['x', '-p', 'y']' failed", lambda line: line.replace("-p y", "-p (hidden)"))
    "Command '['x', '-p', '(hidden)']' failed"
    """

    def safe(found: re.Match[str]) -> str:
        words = [word.removeprefix("b")[1:-1] for word in _ONE.findall(found[1])]
        line = " ".join(words)
        shown = redacted(line)
        if shown == line:
            return found[0]
        parts = shown.split(" ")
        if len(parts) != len(words):  # a word has blanks: which part is whose cannot be told
            parts = [shown]
        return f"{found[0][0]}{', '.join(map(repr, parts))}{found[0][-1]}"

    return _LIST.sub(safe, text) if "'," in text or '",' in text else text
