"""Printing: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import typer

from hpc_llm.text import pasted, shown
from hpc_llm.text.tables import table, wrapped

_logs: list[Path] = []
"""The folder of runs that the command was given."""


def name_logs(path: Path) -> None:
    """From now on the commands that a message advises name this folder of runs too."""
    _logs[:] = [path]


def note(text: str) -> None:
    """A line for the person at the terminal."""
    from hpc_llm.text.secrecy import redacted

    typer.echo(f"hpc-llm: {redacted(with_logs(text))}", err=True)


def with_logs(text: str) -> str:
    """`text`, in which the commands in backquotes look into the folder of runs that this one was given."""
    return pasted.for_runs_in(_logs[0], text) if _logs else text


def json_text(value: Any) -> str:
    """One JSON document with its newline."""
    return shown.json_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def print_json(value: Any) -> None:
    """One JSON document."""
    typer.echo(json_text(value), nl=False)


def print_table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> None:
    """An aligned table, on a terminal no wider than that; None is an empty cell. Text that looks like a number stays as it is."""
    typer.echo("\n".join(table(as_cells(rows), headers, terminal_width())))


def as_cells(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """The rows as texts of one line each."""
    return [["" if cell is None else shown.one_line(str(cell)) for cell in row] for row in rows]


def print_facts(facts: Sequence[tuple[str, Any]]) -> None:
    """`name  value` lines; a list takes one line each, an empty value is left out."""
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        values = value if isinstance(value, (list, tuple)) else [value]
        for i, item in enumerate(v for v in values if v not in (None, "")):
            typer.echo(
                f"{name if i == 0 else '':<{width}}{wrapped(shown.one_line(str(item)), terminal_width(), width)}"
            )


def is_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty()


def terminal_width(file: IO[str] | None = None) -> int | None:
    """Columns of the terminal that shows `file`, or stdout; None where no person reads it."""
    return shutil.get_terminal_size().columns if (file or sys.stdout).isatty() else None
