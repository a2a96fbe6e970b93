"""Printing: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer

from hpc_llm.text import shown


def note(text: str) -> None:
    """A line for the person at the terminal."""
    typer.echo(f"hpc-llm: {text}", err=True)


def json_text(value: Any) -> str:
    """One JSON document with its newline."""
    return shown.json_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def print_json(value: Any) -> None:
    """One JSON document."""
    typer.echo(json_text(value), nl=False)


def print_table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> None:
    """An aligned table; None is an empty cell. Text that looks like a number stays as it is."""
    cells = [["" if cell is None else shown.one_line(str(cell)) for cell in row] for row in rows]
    right = [how == "right" for how in _alignment(cells, headers)] or [False] * len(headers)
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    widths = [max(width, len(header) + 2) for width, header in zip(widths, headers, strict=True)]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in (list(headers), ["-" * width for width in widths], *cells)
    ]
    typer.echo("\n".join(lines))


def _alignment(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> list[str]:
    columns = [[row[i] for row in rows if row[i]] for i in range(len(headers))]
    return ["right" if cells and all(_is_figure(c) for c in cells) else "left" for cells in columns] if rows else []


def _is_figure(cell: str) -> bool:
    return cell[0].isdigit() and not any(c.isalpha() for c in cell)


def print_facts(facts: Sequence[tuple[str, Any]]) -> None:
    """`name  value` lines; a list takes one line each, an empty value is left out."""
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        values = value if isinstance(value, (list, tuple)) else [value]
        for i, item in enumerate(v for v in values if v not in (None, "")):
            typer.echo(f"{name if i == 0 else '':<{width}}{shown.one_line(str(item))}")


def is_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty()
