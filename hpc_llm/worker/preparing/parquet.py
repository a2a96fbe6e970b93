"""The rows of a parquet file, so few at once that they have room: a file of a few bytes can stand for any size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from hpc_llm.corpus.reading import said_encoding
from hpc_llm.errors import DataFileError
from hpc_llm.records.files import open_plain
from hpc_llm.worker.preparing.packages import needed

LONGEST_ROW = 2**28
_ROWS, _AT_ONCE, _AS_PYTHON = 1024, 2**29, 2**26
"""Most rows, and about the most bytes, that are held of a file at once; of as many fewer still are made Python's at once."""
_MOST_TIMES, _ALWAYS = 200, 2**28
"""So many times the size of the file, and always so many bytes, its rows may hold: text is packed to a twentieth at the most, and a few
bytes that stand for a value over and over would fill the disk with tokens."""
_DICTIONARY_PAGE, _DICTIONARIES = b"\x15\x04\x15", ("PLAIN_DICTIONARY", "RLE_DICTIONARY")
_LONGEST_HEADER = 16
_AROUND = 64
"""Bytes beside one that is no UTF-8, by which its encoding is guessed."""


def parquet_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The place and the fields of each row. Raises DataFileError where one cannot be read."""
    parquet = needed("pyarrow.parquet", "parquet files")
    arrow = needed("pyarrow", "parquet files")
    number = 0
    try:
        with open_plain(path) as opened, open_plain(path) as headers, parquet.ParquetFile(opened) as table:
            _check_names(table, path)
            unpacked, most = 0, max(_ALWAYS, _MOST_TIMES * os.fstat(opened.fileno()).st_size)
            for group in range(table.num_row_groups):
                at_once = _rows_at_once(table.metadata.row_group(group), headers)
                for batch in table.iter_batches(batch_size=at_once, row_groups=[group]):
                    for row in _rows(batch, path, number):
                        number += 1
                        unpacked += _letters(row)
                        if unpacked > most:
                            raise DataFileError(_too_much(path, number))
                        yield f"{path} row {number}", row
    except arrow.ArrowException as error:
        raise DataFileError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}.") from None


def _letters(value: Any) -> int:
    """Of all text in a row; arrow would count what a dictionary stands for once."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_letters, value.values()))
    return sum(map(_letters, value)) if isinstance(value, (list, tuple)) else 8


def _too_much(path: str, number: int) -> str:
    return (
        f"{path} unpacks to more than {_MOST_TIMES} times its size up to row {number}: its rows say the same over and over. "
        "Write it as JSONL where all of them are meant."
    )


def _check_names(table: Any, path: str) -> None:
    try:
        names: Sequence[str] = table.schema_arrow.names
    except UnicodeDecodeError:
        raise DataFileError(f"{path} names a column in no UTF-8. Write the file anew.") from None
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataFileError(f"{path} has two columns '{twice}', and each row has one field of a name. Rename one.")


def _rows_at_once(group: Any, headers: IO[bytes]) -> int:
    """How many rows of a group have room: each is as large as they are on the mean, or as all of a dictionary."""
    size = 1.0
    for number in range(group.num_columns):
        column = group.column(number)
        size += column.total_uncompressed_size / max(1, group.num_rows)
        if column.physical_type == "BYTE_ARRAY":
            # A row that is a list has more than one value.
            size += _dictionary(column, headers) * max(1, column.num_values / max(1, group.num_rows))
    return max(1, min(_ROWS, int(_AT_ONCE / size)))


def _dictionary(column: Any, headers: IO[bytes]) -> int:
    """Bytes of the dictionary of a column, of which each value can be as long; none where it has no dictionary.

    The table of contents does not tell them, the header of the first page does: in Thrift's compact form its kind, then its size."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < start:
        start = column.dictionary_page_offset
    headers.seek(max(0, start))
    header = headers.read(_LONGEST_HEADER)
    if header.startswith(_DICTIONARY_PAGE):
        return _whole_number(header[len(_DICTIONARY_PAGE) :])
    return column.total_uncompressed_size if set(column.encodings) & set(_DICTIONARIES) else 0


def _whole_number(data: bytes) -> int:
    """A positive number as Thrift writes it: seven bits a byte, the lowest first, the sign behind the lowest bit."""
    found = 0
    for place, byte in enumerate(data):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return found >> 1


def _rows(batch: Any, path: str, before: int) -> Iterator[Mapping[str, Any]]:
    """The rows of a batch, before which the file has so many. Where they are large, one at a time is made Python's."""
    parts = [batch] if batch.nbytes <= _AS_PYTHON else (batch.slice(first, 1) for first in range(len(batch)))
    for part in parts:
        if len(part) == 1 and part.nbytes > LONGEST_ROW:
            raise DataFileError(
                f"{path} row {before + 1} holds {part.nbytes >> 20} MiB, and at most {LONGEST_ROW >> 20} MiB are read of "
                "a row. Split or remove it."
            )
        try:
            yield from part.to_pylist()
        except (ValueError, OverflowError) as error:
            raise _no_value(part, path, before, error) from None
        before += len(part)


def _no_value(batch: Any, path: str, before: int, error: Exception) -> DataFileError:
    """What is wrong with the first value that Python has none for: text that is no UTF-8, a time that is out of its range."""
    for number in range(len(batch)):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column[number].as_py()
            except UnicodeDecodeError as found:
                near = found.object[max(0, found.start - _AROUND) :][: 2 * _AROUND]
                return DataFileError(
                    f"{path} row {before + number + 1} is not written in UTF-8 in the column '{name}', "
                    f"{said_encoding(near)}. Write the file anew with its text in UTF-8, or without that row."
                )
            except (ValueError, OverflowError) as found:
                return DataFileError(
                    f"{path} row {before + number + 1} cannot be read in the column '{name}': {found}. Write the file anew "
                    "without that column or that row."
                )
    return DataFileError(f"{path} cannot be read as parquet: {error}.")
