"""The rows of a table in CSV, of which each has what the header names: no field too many, none too few. Standard library only.

A comma that no quotes stand around shifts all fields behind it, and a quote that is not closed takes the lines that follow into
its field: what is learned then is wrong and looks right, so such a table is refused by line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from hpc_llm.errors import DataFileError, counted

_LARGEST_FIELD = 2**31 - 1
_QUOTING = "A text with commas, quotes or line ends in it stands between quotes, each quote in it written twice"


def table_rows(lines: Iterable[str], path: str, most: int = _LARGEST_FIELD) -> Iterator[tuple[int, dict[str, str]]]:
    """The line on which each row begins, and its fields; rows that are blank are passed over. A row has `most` characters at most.

    Raises:
        DataFileError: it is no table.
    """
    names: list[str] | None = None
    for line, fields in _records(lines, path, most):
        if not any(map(str.strip, fields)):
            continue
        if names is None:
            names = _header(fields, f"{path} line {line}")
            continue
        _check_row(fields, names, f"{path} line {line}")
        yield line, dict(zip(names, fields, strict=True))


def _records(lines: Iterable[str], path: str, most: int) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LARGEST_FIELD)
    row = _Row(lines, path, most)
    reader, begin = csv.reader(row, strict=True), 1
    try:
        for fields in reader:
            yield begin, fields
            begin = row.begin = reader.line_num + 1
            row.length = 0
    except csv.Error as error:
        place = f"{path} line {begin}"
        if "unexpected end of data" in str(error):
            raise DataFileError(f"{place} opens a quote that nothing closes. {_QUOTING}.") from None
        raise DataFileError(f"{place} is no CSV: {error}. {_QUOTING}.") from None


class _Row:
    """Gives lines, and counts what of them belongs to one row: a quote that nothing closes takes all that follow."""

    def __init__(self, lines: Iterable[str], path: str, most: int) -> None:
        self._lines, self._path, self._most = iter(lines), path, most
        self.length, self.begin = 0, 1

    def __iter__(self) -> _Row:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.length += len(line)
        if self.length > self._most:
            raise DataFileError(
                f"{self._path} line {self.begin} begins a row of more than {self._most >> 20} MiB, and at most so much is read of one. "
                f"Is there a quote that nothing closes? {_QUOTING}."
            )
        return line


def _header(fields: Sequence[str], place: str) -> list[str]:
    names = [name.strip() for name in fields]
    other = next((mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        shown = "tabs" if other == "\t" else f"'{other}'"
        raise DataFileError(
            f"{place} is one name, '{names[0]}': its fields are separated by {shown}, and commas are read. Write it with commas, or as JSONL."
        )
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise DataFileError(f"{place} names two columns '{twice}', and each row has one field of a name. Rename one.")
    return names


def _check_row(fields: Sequence[str], names: Sequence[str], place: str) -> None:
    if len(fields) != len(names):
        raise DataFileError(
            f"{place} has {counted(len(fields), 'field')}, and the header names {len(names)}. {_QUOTING}. Mend or remove the row."
        )
    # A column in front may have no name, as row numbers do. One at the end holds what a row has too much.
    for name, text in zip(reversed(names), reversed(fields), strict=True):
        if name:
            return
        if text.strip():
            raise DataFileError(
                f"{place} has a field behind those that the header names. {_QUOTING}. Mend or remove the row."
            )
