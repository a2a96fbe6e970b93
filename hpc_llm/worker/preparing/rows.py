"""The rows of a source, one after the other: a mapping of fields, and a name for its place that a user finds it by."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from hpc_llm.corpus.reading import NO_TEXT, holds_no_text, no_utf8, sure_encoding
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.corpus.sources import CSV, HUB, JSONL, PARQUET, PDF, SourceFile
from hpc_llm.corpus.tables import table_rows
from hpc_llm.corpus.words import TRAIN
from hpc_llm.errors import DataFileError, WorkerError
from hpc_llm.records.files import open_plain
from hpc_llm.worker.preparing.packages import needed
from hpc_llm.worker.preparing.parquet import LONGEST_ROW, parquet_rows
from hpc_llm.worker.preparing.pdf import pdf_documents

LONGEST_TEXT = LONGEST_ROW
"""Bytes, or characters, of one line of a file of text and of one row of a table, as of a row of parquet."""
_PIECE_CHARACTERS = 2**20
_AROUND = 64
"""Bytes beside one that is no UTF-8, by which its encoding is guessed."""

Row = tuple[str, Mapping[str, Any]]
"""Where it is, and its fields."""


def rows_of(file: SourceFile) -> Iterator[Row]:
    """The rows of a file that has rows. Raises DataFileError where one cannot be read."""
    readers = {JSONL: _of_jsonl, CSV: _of_csv, PARQUET: _of_parquet, PDF: _of_pdf, HUB: _of_hub}
    try:
        yield from readers[file.kind](file)
    except OSError as error:
        raise DataFileError(f"{file.path} cannot be read: {error.strerror or error}.") from error


def _of_jsonl(file: SourceFile) -> Iterator[Row]:
    with open_plain(file.path) as lines:
        number = 0
        while line := lines.readline(LONGEST_TEXT + 1):
            number += 1
            place = f"{file.path} line {number}"
            if len(line) > LONGEST_TEXT:
                raise too_long(place)
            if not line.strip():
                continue
            try:
                row = json.loads(_decoded(line, file.path, number).rstrip("\r\n"), object_pairs_hook=_object)
            except (ValueError, RecursionError) as error:
                why = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
                raise DataFileError(f"{place} is no JSON: {why}. One JSON object a line is needed.") from None
            if not isinstance(row, dict):
                raise DataFileError(
                    f"{place} holds {type(row).__name__} and no JSON object: one object a line is needed."
                )
            yield place, row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError where a name stands twice: of the two one would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {next(name for name in names if names.count(name) > 1)!r} stands twice in an object"
        )
    return found


def _decoded(line: bytes, path: str, number: int) -> str:
    """A line in UTF-8, a byte order mark in front of the first one left out. Raises DataFileError where it is none."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        if holds_no_text(line):
            raise DataFileError(f"{path} {NO_TEXT}") from None
        raise DataFileError(no_utf8(path, number, line[max(0, error.start - _AROUND) :][: 2 * _AROUND])) from None
    if "\0" in text and sure_encoding(line):
        raise DataFileError(no_utf8(path, number, line))
    return text


def no_text(path: Path) -> DataFileError:
    """What is wrong with a file that is not in UTF-8: the first line that is not."""
    with open_plain(path) as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_TEXT), b""), 1):
            try:
                _decoded(line, str(path), number)
            except DataFileError as error:
                return error
    return DataFileError(f"{path} {NO_TEXT}")


def too_long(place: str) -> DataFileError:
    """A line, or a row of several, that is too long to be held in memory."""
    return DataFileError(
        f"{place} is longer than {LONGEST_TEXT >> 20} MiB, and at most so much is read of one line or row. Is it what was meant? "
        "Break it into lines."
    )


def text_lines(text: IO[str], path: str) -> Iterator[str]:
    """The lines of an open file as they stand there, none of them longer than can be held.

    Raises:
        DataFileError: one is longer, or a long one holds a zero byte, as a hole in a file does.
    """
    number = 0
    while line := text.readline(_PIECE_CHARACTERS):
        number += 1
        pieces, length = [line], len(line)
        while len(pieces[-1]) == _PIECE_CHARACTERS and pieces[-1][-1] != "\n":
            if "\0" in pieces[-1]:
                raise no_text(Path(path))
            pieces.append(text.readline(_PIECE_CHARACTERS))
            length += len(pieces[-1])
            if length > LONGEST_TEXT:
                raise too_long(f"{path} line {number}")
        yield "".join(pieces)


def _of_csv(file: SourceFile) -> Iterator[Row]:
    with io.TextIOWrapper(open_plain(file.path), encoding="utf-8-sig", newline="") as text:
        try:
            for line, row in table_rows(text_lines(text, file.path), file.path, LONGEST_TEXT):
                yield f"{file.path} line {line}", row
        except UnicodeDecodeError:
            raise no_text(Path(file.path)) from None


def _of_parquet(file: SourceFile) -> Iterator[Row]:
    return parquet_rows(file.path)


def _of_pdf(file: SourceFile) -> Iterator[Row]:
    for place, text in pdf_documents(file.path):
        yield place, {"text": text}


def _of_hub(file: SourceFile) -> Iterator[Row]:
    """The rows of a set of the Hub, which `datasets` brings to this machine and keeps in its own cache."""
    datasets = needed("datasets", f"{file.path} from the Hub")
    one = KNOWN_SETS[file.path]
    split = one.train if file.split == TRAIN else one.validation
    try:
        found = datasets.load_dataset(one.hub, one.config, split=split)
    except Exception as error:  # of the network, of the Hub, of what is there: each library has its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WorkerError(
            f"the data set {one.hub} cannot be had from the Hub: {reason}. Bring it from where there is a way out, `hpc-llm fetch "
            f"{file.path} --to DIR`, then --data {file.path}=DIR."
        ) from error
    for number, row in enumerate(found, 1):
        yield f"{file.path} {split} row {number}", row
