"""Rows of figures as a program holds them: a list that knows how to become a table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hpc_llm.api.handle import Named, runs_of
from hpc_llm.errors import HpcLlmError

if TYPE_CHECKING:
    import pandas

    from hpc_llm.parsing import Row, Step

T = TypeVar("T", "Row", "Step")


class Rows(list[T]):
    """Rows of `parse`; a figure that is not known is None."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary a row, with the columns of the CSV as keys."""
        return [row.to_dict() for row in self]

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with the columns of the CSV.

        Raises:
            HpcLlmError: pandas is not installed here.
        """
        try:
            import pandas
        except ImportError:
            raise HpcLlmError("a DataFrame needs pandas: python -m pip install pandas") from None
        from hpc_llm.parsing import COLUMNS, STEP_COLUMNS, Step

        columns = STEP_COLUMNS if self and isinstance(self[0], Step) else COLUMNS
        return pandas.DataFrame(self.to_dicts(), columns=list(columns))

    def write(self, file: str | os.PathLike[str], output_format: str | None = None) -> None:
        """Write them as csv, json, jsonl, markdown or table: as asked, or as the file's name ends.

        Raises:
            RequestError: there is no such format.
        """
        from hpc_llm.parsing import write_rows

        path = Path(file)
        with path.open("w", encoding="utf-8", newline="") as out:
            write_rows(self, output_format or path.suffix.removeprefix("."), out)


def parse(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    logs: str | os.PathLike[str] = "logs",
) -> Rows[Row]:
    """One row a run of training logs of any known format: files, folders, run folders, or names of runs in `logs`.

    Raises:
        RequestError: a path that is not there.
    """
    from hpc_llm.parsing import parse_paths

    return Rows(parse_paths(_paths(paths, logs)))


def parse_steps(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    logs: str | os.PathLike[str] = "logs",
) -> Rows[Step]:
    """One row a training step of the same."""
    from hpc_llm.parsing import parse_steps

    return Rows(parse_steps(_paths(paths, logs)))


def results(runs: Named | Iterable[Named] | None = None, *, logs: str | os.PathLike[str] = "logs") -> Rows[Row]:
    """One row a run, with its outcome and its figures; of all in `logs` where none is named."""
    from hpc_llm.parsing import parse_paths

    folders = [run.folder for run in runs_of(runs, logs)]
    return Rows(parse_paths(folders)) if folders else Rows()


def _paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], logs: str | os.PathLike[str]) -> list[str]:
    from hpc_llm.api.find import paths_of

    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return paths_of([os.fspath(path) for path in given], Path(logs))
