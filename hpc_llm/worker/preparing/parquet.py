"""The rows of a parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpc_llm.corpus.reading import guessed_encoding
from hpc_llm.errors import DataFileError
from hpc_llm.records.files import open_plain
from hpc_llm.worker.preparing.packages import needed

_ROWS = 1024
_AROUND = 64
"""Bytes beside one that is no UTF-8, by which its encoding is guessed."""


def parquet_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The place and the fields of each row. Raises DataFileError where one cannot be read."""
    parquet = needed("pyarrow.parquet", "parquet files")
    arrow = needed("pyarrow", "parquet files")
    number = 0
    try:
        with open_plain(path) as opened, parquet.ParquetFile(opened) as table:
            _check_names(table, path)
            for batch in table.iter_batches(batch_size=_ROWS):
                for row in _rows(batch, path, number):
                    number += 1
                    yield f"{path} row {number}", row
    except arrow.ArrowException as error:
        raise DataFileError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}.") from None


def _check_names(table: Any, path: str) -> None:
    try:
        names: Sequence[str] = table.schema_arrow.names
    except UnicodeDecodeError:
        raise DataFileError(f"{path} names a column in no UTF-8. Write the file anew.") from None
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataFileError(f"{path} has two columns '{twice}', and each row has one field of a name. Rename one.")


def _rows(batch: Any, path: str, before: int) -> Sequence[Mapping[str, Any]]:
    """The rows of a batch, before which the file has so many."""
    try:
        rows: Sequence[Mapping[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        raise _no_value(batch, path, before, error) from None
    return rows


def _no_value(batch: Any, path: str, before: int, error: Exception) -> DataFileError:
    """What is wrong with the first value that Python has none for: text that is no UTF-8, a time that is out of its range."""
    for number in range(len(batch)):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column[number].as_py()
            except UnicodeDecodeError as found:
                near = found.object[max(0, found.start - _AROUND) :][: 2 * _AROUND]
                return DataFileError(
                    f"{path} row {before + number + 1} is not written in UTF-8 in the column '{name}', it looks like "
                    f"{guessed_encoding(near)}. Write the file anew with its text in UTF-8, or without that row."
                )
            except (ValueError, OverflowError) as found:
                return DataFileError(
                    f"{path} row {before + number + 1} cannot be read in the column '{name}': {found}. Write the file anew "
                    "without that column or that row."
                )
    return DataFileError(f"{path} cannot be read as parquet: {error}.")
