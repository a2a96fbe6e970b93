"""Which samples are for training and which for validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hpc_llm.corpus.key import file_digest
from hpc_llm.corpus.sources import PDF, SourceFile, fraction_of
from hpc_llm.corpus.words import TRAIN, VALIDATION


class Chooser:
    """Deals out samples, up to the most of each split."""

    def __init__(self, most: Mapping[str, int | None]) -> None:
        self._most = most
        self._count = dict.fromkeys(most, 0)

    def split(self, said: str, fraction: float, number: int) -> str | None:
        """The split of row `number` of a source; None where that one is full. Rows for validation lie evenly among the others."""
        is_validation = said == VALIDATION or int((number + 1) * fraction) > int(number * fraction)
        split = VALIDATION if is_validation else TRAIN
        if self._is_full(split):
            return None
        self._count[split] += 1
        return split

    def is_full(self, said: str, fraction: float) -> bool:
        """Whether no further row of the source is taken."""
        return self._is_full(said) and (not fraction or self._is_full(VALIDATION))

    def _is_full(self, split: str) -> bool:
        most = self._most[split]
        return most is not None and self._count[split] >= most


def split_files(
    files: Sequence[SourceFile], asked: float | None, caches: Path | None
) -> list[tuple[SourceFile, float]]:
    """The files with their splits, and which part of the rows of each is for validation. Raises RequestError."""
    fraction = fraction_of(files, asked)
    documents = [file for file in files if file.kind == PDF]
    if not fraction or len(documents) < 2:
        return [(file, fraction) for file in files]
    # By file, for pages of one document tell of each other; in an order that the names of the files do not decide.
    chosen = sorted(documents, key=lambda file: file_digest(file, caches))[: max(1, round(len(documents) * fraction))]
    return [
        (_for_validation(file), 0.0) if file in chosen else (file, 0.0 if file.kind == PDF else fraction)
        for file in files
    ]


def _for_validation(file: SourceFile) -> SourceFile:
    return SourceFile(file.path, file.kind, VALIDATION, file.known_set)
