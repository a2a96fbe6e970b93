"""Writing rows: csv, json, jsonl, markdown or an aligned table."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.parsing.rows import COLUMNS, STEP_COLUMNS, Row, Step
from hpc_llm.text import shown
from hpc_llm.text.secrecy import redacted
from hpc_llm.text.tables import table

OUTPUT_FORMATS = ("csv", "json", "jsonl", "markdown", "table")

_DIGITS = 6


def write_rows(
    rows: Iterable[Row] | Iterable[Step], output_format: str, file: IO[str], columns: Sequence[str] | None = None
) -> None:
    """Write `rows` to `file`; csv, json and jsonl as they come, markdown and table when all are there.

    Without `columns`, csv, json and jsonl have all of them, and markdown and table those that any row fills. Raises
    RequestError for an unknown output format.
    """
    if output_format not in OUTPUT_FORMATS:
        raise RequestError(unknown_name("output format", output_format, OUTPUT_FORMATS))
    if output_format == "csv":
        _write_csv(rows, file, columns)
    elif output_format in ("json", "jsonl"):
        _write_json(rows, file, columns, one_document=output_format == "json")
    else:
        _write_table(rows, file, columns, "pipe" if output_format == "markdown" else "simple")


def _records(
    rows: Iterable[Row] | Iterable[Step], columns: Sequence[str] | None
) -> tuple[Sequence[str], Iterable[dict[str, Any]]]:
    """The columns to write and the rows as dictionaries; with no row at all, the columns of runs."""
    iterator: Iterator[Row | Step] = iter(rows)
    first = next(iterator, None)
    if first is None:
        return columns or COLUMNS, ()
    names = columns or (STEP_COLUMNS if isinstance(first, Step) else COLUMNS)
    everything: Iterable[Row | Step] = chain((first,), iterator)
    return names, map(_without_secrets, everything)


def _without_secrets(row: Row | Step) -> dict[str, Any]:
    """Its columns; names of files and words of logs may hold one."""
    return {name: redacted(value) if isinstance(value, str) else value for name, value in row.to_dict().items()}


def _write_csv(rows: Iterable[Row] | Iterable[Step], file: IO[str], columns: Sequence[str] | None) -> None:
    names, records = _records(rows, columns)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(record[name]) for name in names] for record in records)


def _write_json(
    rows: Iterable[Row] | Iterable[Step], file: IO[str], columns: Sequence[str] | None, *, one_document: bool
) -> None:
    names, records = _records(rows, columns)
    separator = "[\n" if one_document else ""
    for record in records:
        text = json.dumps({name: _finite(record[name]) for name in names}, ensure_ascii=False)
        file.write(separator + shown.json_text(text))
        separator = ",\n" if one_document else "\n"
    if one_document:
        file.write("\n]\n" if separator.startswith(",") else "[]\n")
    elif separator:
        file.write("\n")


def _cell(value: Any) -> Any:
    """Texts come from logs: none is a formula; figures stay figures."""
    return shown.safe_text(shown.one_line(value)) if isinstance(value, str) else _finite(value)


def _finite(value: Any) -> Any:
    """JSON has no NaN, and an empty cell says the same."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_table(
    rows: Iterable[Row] | Iterable[Step], file: IO[str], columns: Sequence[str] | None, style: str
) -> None:
    names, records = _records(rows, columns)
    kept = list(records)
    if columns is None:
        names = [name for name in names if any(record[name] is not None for record in kept)]
    cells = [[_shown(record[name], style) for name in names] for record in kept]
    if style == "simple":
        width = shutil.get_terminal_size().columns if file.isatty() else None
        file.write("".join(f"{line}\n" for line in table(cells, names, width)))
        return
    from tabulate import tabulate

    file.write(tabulate(cells, headers=list(names), tablefmt=style, disable_numparse=True) + "\n")


def _shown(value: Any, style: str) -> str:
    if value is None:
        return ""
    text = f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)
    if style == "pipe":
        return shown.markdown_text(text) if isinstance(value, str) else text
    return shown.one_line(text)
