"""Whose prepared data are taken from a folder that several people may share. Standard library only.

Tokens decide what a model becomes, and nobody sees it by them: what was not named by the user is taken only where nobody else
can have written it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hpc_llm.corpus.facts import CorpusFacts, read_facts
from hpc_llm.corpus.format import FACTS, SplitFiles
from hpc_llm.errors import DataRequestError
from hpc_llm.records.files import OTHERS_MAY_WRITE, reason_of


def own_facts(folder: Path) -> CorpusFacts:
    """The prepared data in a folder that only its place among the caches says to be those that are meant.

    Raises:
        RequestError: somebody else can have written them, they are other ones, or they are not whole.
    """
    _check_ours(folder, (folder, folder / FACTS))
    found = read_facts(folder)
    _check_ours(folder, _files(found))
    if found.key != folder.name:
        raise DataRequestError(
            f"the prepared data in {folder} are other ones, {found.key}: remove the folder and prepare them anew."
        )
    return found


def facts_of(folder: Path, sources: Sequence[str]) -> CorpusFacts:
    """The prepared data of a run: those that its `sources` name, and else its user's own. Raises RequestError."""
    is_named = any(os.path.abspath(source) == os.path.abspath(folder) for source in sources)
    return read_facts(folder) if is_named else own_facts(folder)


def _files(facts: CorpusFacts) -> Iterator[Path]:
    for split in facts.splits:
        files = SplitFiles(facts.folder, split)
        yield from (files.tokens, files.ends, files.starts)


def _check_ours(folder: Path, paths: Iterable[Path]) -> None:
    """Raise RequestError where one of them is a link, or somebody else's, or can be written by others."""
    for path in paths:
        try:
            found = os.lstat(path)
        except OSError as error:
            raise DataRequestError(
                f"the prepared data in {folder} cannot be read: {path.name}: {reason_of(error)}."
            ) from None
        if stat.S_ISLNK(found.st_mode) or found.st_uid not in (os.geteuid(), 0) or found.st_mode & OTHERS_MAY_WRITE:
            raise DataRequestError(
                f"the prepared data in {folder} are not taken, as somebody else can have written {path.name}: set HPC_LLM_CACHE to a "
                f"folder of your own and prepare them there, or name them with --data {folder} where you trust whose they are."
            )
