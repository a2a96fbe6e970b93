"""Printing: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from hpc_llm.text import shown

_ABOUT_RUNS = re.compile(r"`(hpc-llm (?:status|logs|cancel|reconcile|diagnose)\b[^`\n]{0,200})`")
_logs: list[str] = []
"""The folder of runs that the command was given, where a command without it would look into another one."""


def name_logs(path: Path) -> None:
    """From now on the commands that a message advises name this folder of runs too."""
    default = os.environ.get("HPC_LLM_LOGS") or "logs"
    _logs[:] = [] if path == Path(default) else [shlex.quote(str(path))]


def note(text: str) -> None:
    """A line for the person at the terminal."""
    typer.echo(f"hpc-llm: {with_logs(text)}", err=True)


def with_logs(text: str) -> str:
    """`text`, in which the commands in backquotes look into the folder of runs that this one was given."""
    return _ABOUT_RUNS.sub(lambda found: f"`{found[1]} --logs {_logs[0]}`", text) if _logs else text


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
