"""Commands as lists of words, in records and as Python prints them: `['curl', '-u', 'me:…']`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

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


_MOST_WORDS = 500


def as_command(words: Sequence[Any]) -> str:
    """A list of words as the line that a shell would have been given; "" for a list without options, which is none, but of `login`.

    >>> as_command(["x", "--name", "two words"]), as_command(["a", "b"])
    ("x --name 'two words'", '')
    """
    plain = [str(word) for word in words[:_MOST_WORDS] if isinstance(word, (str, int, float))]
    is_command = "login" in plain[1:3] or any(word.startswith("-") for word in plain)
    if len(plain) < 2 or len(plain) != len(words[:_MOST_WORDS]) or not is_command:
        return ""
    return " ".join(f"'{word}'" if " " in word else word for word in plain)


def hidden_words(words: list[Any], redacted: Callable[[str], str], hidden: str) -> list[Any]:
    """The words of a command without those that are secrets where they stand.

    >>> hidden_words(["x", "-p", "y"], lambda line: line.replace("-p y", "-p (hidden)"), "(hidden)")
    ['x', '-p', '(hidden)']
    """
    line = as_command(words)
    if not line or (safe := redacted(line)) == line:
        return words
    return [hidden if line.count(str(word)) > safe.count(str(word)) else word for word in words]
