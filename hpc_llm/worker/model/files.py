"""Which files a model is loaded from, looked at again where it is loaded. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hpc_llm.errors import ModelFileError, RequestError
from hpc_llm.planning.checkpoint import read_checkpoint
from hpc_llm.records.models import check_contents


def check_kept(folder: str, files: Iterable[Path], part: int = 0, parts: int = 1) -> None:
    """Raise ModelFileError where this share of the weights is not what a run wrote, of a model that one kept."""
    try:
        check_contents(Path(folder), files, part, parts)
    except RequestError as error:
        raise ModelFileError(str(error)) from None


def files_of(folder: str) -> tuple[Path, ...]:
    """The files of weights in `folder`. Raises ModelFileError where there are none, or what planning would refuse."""
    try:
        found = read_checkpoint(Path(folder))
    except RequestError as error:
        raise ModelFileError(str(error)) from None
    if not found.weights:
        raise ModelFileError(f"the folder {folder} holds no weights, and the plan says that it does.")
    return found.weights
