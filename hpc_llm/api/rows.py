"""Rows of figures as a program holds them: a list that knows how to become a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from hpc_llm.api.find import paths_of_logs
from hpc_llm.api.handle import Named, runs_of
from hpc_llm.errors import HpcLlmError, RequestError, unknown_name
from hpc_llm.records.files import replacing_output

if TYPE_CHECKING:
    import pandas

    from hpc_llm.parsing import Reading, Row, Step

T = TypeVar("T", bound="Row | Step")

SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".md": "markdown", ".txt": "table"}
"""Which format the ending of a file's name means."""
_DTYPES = {"int | None": "Int64", "float | None": "float64", "bool | None": "boolean", "str | None": "string"}
"""Of columns: a count stays a whole number where one is missing, a figure that is missing is NaN."""


class Rows(list[T]):
    """Rows of `parse`; a figure that is not known is None."""

    def __init__(self, rows: Iterable[T], kind: type[T]) -> None:
        super().__init__(rows)
        self._kind: type[T] = kind

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary a row, with the columns of the CSV as keys."""
        return [row.to_dict() for row in self]

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with the columns of the CSV, of the same types whatever is missing.

        Raises:
            HpcLlmError: pandas is not installed here.
        """
        try:
            import pandas
        except ImportError:
            raise HpcLlmError("a DataFrame needs pandas: python -m pip install pandas") from None
        frame = pandas.DataFrame(self.to_dicts(), columns=list(_columns(self._kind)), dtype=object)
        for name, dtype in _columns(self._kind).items():
            try:
                frame[name] = frame[name].astype(dtype)
            except (TypeError, ValueError, OverflowError):
                continue  # a log can print a count that no machine integer holds: it stays as it was read
        return frame

    def write(self, file: str | os.PathLike[str], output_format: str | None = None) -> None:
        """Write them as csv, json, jsonl, markdown or table: as asked, or as the file's name ends. A file that was there
        is replaced once all is written.

        Raises:
            RequestError: there is no such format, or the file is what was read; nothing was written.
        """
        from hpc_llm.parsing import OUTPUT_FORMATS, write_rows

        path = Path(file)
        chosen = output_format or format_of(path)
        if chosen not in OUTPUT_FORMATS:
            raise RequestError(unknown_name("output format", chosen, OUTPUT_FORMATS))
        refuse_what_is_read(path, {row.source for row in self if row.source})
        shown = None if self or chosen in ("markdown", "table") else list(_columns(self._kind))
        with replacing_output(path) as out:
            write_rows(cast("list[Row]", self), chosen, out, shown)


def _columns(kind: type[Any]) -> dict[str, str]:
    """The columns of one row, in order, and the types that they have in a DataFrame."""
    from dataclasses import fields

    return {field.name.removesuffix("_"): _DTYPES[str(field.type)] for field in fields(kind)}


def format_of(file: Path, *, named: str = "", next_step: str = "name a format, as csv") -> str:
    """The format that the ending of a file's name means.

    Raises:
        RequestError: it means none.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise RequestError(
            f"{named}{file}: the ending does not say which format is meant. Valid: {', '.join(SUFFIXES)}; "
            f"or {next_step}, which spreadsheets open."
        )
    return SUFFIXES[file.suffix.lower()]


def parse(
    paths: Named | Iterable[Named],
    *,
    logs: str | os.PathLike[str] | None = None,
) -> Rows[Row]:
    """One row a run of training logs of any known format: files, folders, runs, or names of runs in `logs`.

    Raises:
        RequestError: a path that is not there.
    """
    from hpc_llm.parsing import Row

    return Rows(read_rows(paths, logs=logs), Row)


def parse_steps(
    paths: Named | Iterable[Named],
    *,
    logs: str | os.PathLike[str] | None = None,
) -> Rows[Step]:
    """One row a training step of the same."""
    from hpc_llm.parsing import Step

    return Rows(read_steps(paths, logs=logs), Step)


def results(runs: Named | Iterable[Named] | None = None, *, logs: str | os.PathLike[str] | None = None) -> Rows[Row]:
    """One row a run, with its outcome and its figures; of all in `logs` where none is named."""
    from hpc_llm.parsing import Row, parse_paths

    folders = [run.folder for run in runs_of(runs, logs)]
    return Rows(parse_paths(folders) if folders else (), Row)


def read_rows(
    paths: Named | Iterable[Named],
    *,
    logs: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    on_reading: Callable[[Reading], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Row]:
    """The rows of `parse` as they are read. `on_progress` gets the bytes read since its last call, of `size_of` in all.

    With `verbose`, `on_reading` gets of each input the lines that look like figures and were not taken.
    """
    from hpc_llm.parsing import parse_paths

    named = paths_of_logs(paths, logs)
    return parse_paths(named, verbose=verbose, on_reading=on_reading, on_progress=on_progress)


def read_steps(paths: Named | Iterable[Named], *, logs: str | os.PathLike[str] | None = None) -> Iterator[Step]:
    """The rows of `parse_steps` as they are read."""
    from hpc_llm.parsing import parse_steps

    return parse_steps(paths_of_logs(paths, logs))


def refuse_what_is_read(output: Path, paths: Iterable[str]) -> None:
    """Raise a RequestError where `output` is what is to be read, or a file of a run: the table would replace it."""
    from hpc_llm import parsing

    parsing.refuse_what_is_read(output, paths)


def size_of(paths: Iterable[str]) -> int:
    """Bytes of all files that reading `paths` reads."""
    from hpc_llm.parsing import total_bytes

    return total_bytes(paths)


def columns(*, steps: bool = False) -> tuple[str, ...]:
    """The columns of a row a run, or a row a step, in order."""
    from hpc_llm.parsing import COLUMNS, STEP_COLUMNS

    return STEP_COLUMNS if steps else COLUMNS


def write_rows(rows: Iterable[Row] | Iterable[Step], output_format: str, out: IO[str], names: list[str] | None) -> None:
    """Write rows as they come to an open file; only the columns `names` where some are given."""
    from hpc_llm.parsing import write_rows

    write_rows(rows, output_format, out, names)
