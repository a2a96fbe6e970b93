"""Where the operators lie that DeepSpeed compiles on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_FOLDER = ".cache/hpc-llm"
_OPERATORS = "torch_extensions"


def operators_of(cluster: str) -> str:
    """The folder as a job's script names it: those of one cluster stay apart."""
    return f"${{HOME}}/{_FOLDER}/{cluster}/{_OPERATORS}"


def operators_folder(home: Path, cluster: str) -> Path:
    """The same folder where that is the home of whoever submits."""
    return home / _FOLDER / cluster / _OPERATORS


def operators_in(home: Path) -> Iterator[tuple[str, Path]]:
    """Each cluster whose jobs have compiled something, and where; what is left of a removal too."""
    for path in sorted((home / _FOLDER).glob(f"*/*{_OPERATORS}*")):
        if path.is_dir() and not path.is_symlink():
            yield path.parent.name, path
