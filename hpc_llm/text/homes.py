"""Paths that begin at somebody's home. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def from_home(path: str | os.PathLike[str]) -> Path:
    """The path with `~` and `~user` replaced by that home; as it is where nobody has that name, which pathlib ends the program for.

    >>> from_home("~nobody-has-this-name/x"), from_home("a/~") == Path("a/~")
    (PosixPath('~nobody-has-this-name/x'), True)
    """
    return Path(os.path.expanduser(path))
