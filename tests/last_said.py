"""Words of a command that several tests share, with what one of them says otherwise."""

from __future__ import annotations

from collections.abc import Iterable

_SEVERAL = ("--set", "--data", "--sbatch", "--only")
"""Options that may come several times."""


def last_said(words: Iterable[str]) -> list[str]:
    """The words, of an option of one value written `--name=value` the last alone: the command itself refuses a second one.

    >>> last_said(["--method=z2", "--set=a=1", "--method=z3", "--set=b=2"])
    ['--set=a=1', '--method=z3', '--set=b=2']
    """
    given = list(words)
    last = {word.partition("=")[0]: place for place, word in enumerate(given) if word.startswith("--") and "=" in word}
    return [
        word
        for place, word in enumerate(given)
        if word.partition("=")[0] in _SEVERAL or last.get(word.partition("=")[0], place) == place
    ]
