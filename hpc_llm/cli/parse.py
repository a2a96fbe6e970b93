"""hpc-llm parse: training logs of any known format to one row a run, or one row a step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.options import LogsOption, output_file
from hpc_llm.cli.output import is_terminal, note, terminal_width
from hpc_llm.cli.terminal import steered
from hpc_llm.text.tables import fits, table, wrapped

if TYPE_CHECKING:
    from hpc_llm.parsing import Reading, Row

GIB = 2**30
_SETTINGS = ("cluster", "kind", "model", "GPU", "ranks", "batch", "sequence", "precision", "steps", "outcome")
"""Columns that are said once, where all rows have the same and there is little room."""
_LESS_NEEDED = ("first loss", "host peak GiB", "MFU")
"""Columns that are left out where there is still too little, the first of them first."""
SHOWN_FROM_BYTES = 64 * 2**20
"""Less than this is read within a second."""


def register(app: typer.Typer) -> None:
    app.command("parse")(parse_command)


def parse_command(
    paths: Annotated[list[str], typer.Argument(metavar="PATH|RUN…", help="Log files, folders, runs, or - for stdin.")],
    steps: Annotated[bool, typer.Option("--steps", help="One row a step instead of one row a run.")] = False,
    output: Annotated[
        Optional[Path],
        typer.Option(
            "-o", "--output", metavar="FILE", callback=output_file, help="Write there; the ending says the format."
        ),
    ] = None,
    output_format: Annotated[
        Optional[str],
        typer.Option(
            "--format", metavar="csv|json|jsonl|markdown|table", help="Default: table on a terminal, else csv."
        ),
    ] = None,
    columns: Annotated[Optional[str], typer.Option(metavar="NAME[,…]", help="Only these columns.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Tell which lines look like metrics and were not parsed.")
    ] = False,
    logs: LogsOption = Path("logs"),
) -> None:
    """Turn training logs of any known format into one row a run."""
    from hpc_llm.api.find import paths_of_logs
    from hpc_llm.api.rows import read_rows, read_steps, refuse_what_is_read, write_rows

    chosen = output_format or _default_format(output)
    names = _columns(columns, steps)
    paths = paths_of_logs(paths, logs)
    if output is not None:
        refuse_what_is_read(output, paths)
    with _destination(output) as file:
        if steps:
            write_rows(_told_if_none(read_steps(paths), paths, "step of a run"), chosen, file, names)
            return
        summary = chosen == "table" and names is None
        waits = summary or output is not None or not is_terminal()  # else the rows themselves show how far it is
        with _progress(paths, wanted=waits) as on_progress:
            rows: Any = read_rows(
                paths, verbose=verbose, on_reading=_tell if verbose else None, on_progress=on_progress
            )
            rows = _told_if_none(rows, paths, "run or log")
            if summary:
                rows = list(rows)
            else:
                write_rows(rows, chosen, file, names)
        if summary:
            file.write(summary_table(rows, terminal_width(file)))


def _told_if_none(rows: Iterable[Any], paths: list[str], what: str) -> Iterator[Any]:
    """The rows; where there are none the table is its header alone, which does not say that nothing was found."""
    has_any = False
    for row in rows:
        has_any = True
        yield row
    if not has_any:
        note(f"there is no {what} in {', '.join(paths)}")


@contextmanager
def _progress(paths: list[str], *, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """One bar over all files on a terminal's stderr; None where nobody would see it, or it is over at once."""
    if not wanted or not sys.stderr.isatty() or "-" in paths:
        yield None
        return
    from hpc_llm.api.rows import size_of

    total = size_of(paths)
    if total < SHOWN_FROM_BYTES:
        yield None
        return
    with typer.progressbar(length=total, label="Reading logs", file=steered(sys.stderr)) as bar:
        yield bar.update


def summary_table(rows: list[Row], width: int | None = None) -> str:
    """What people want to know, in their units, in lines of at most `width`; a column that no row fills is left out. GiB is
    2^30 bytes."""
    cells = [_summary(row) for row in rows]
    headers = [name for name in (cells[0] if cells else {}) if any(cell[name] for cell in cells)]
    if len({cell["kind"] for cell in cells} - {""}) < 2:  # what all rows are need not be said
        headers = [name for name in headers if name != "kind"]
    shared: dict[str, str] = {}
    left_out: list[str] = []
    if width is not None and len(cells) > 1:
        headers, shared, left_out = _fitted(headers, cells, width)
    lines = table([[cell[name] for name in headers] for cell in cells], headers, width)
    if shared:
        said = ", ".join(f"{name} {value}" for name, value in shared.items())
        lines = [*wrapped(f"all: {said}", width, 2).split("\n"), "", *lines]
    if left_out:
        said = f"no room for {', '.join(left_out)}: a wider terminal shows them, and -o FILE.csv holds all"
        lines += ["", *wrapped(said, width, 2).split("\n")]
    return "".join(f"{line}\n" for line in lines)


def _fitted(headers: list[str], cells: list[dict[str, str]], width: int) -> tuple[list[str], dict[str, str], list[str]]:
    """The columns for so narrow a terminal, what all rows share and is said once, and the columns that are left out.

    A table that fits stays whole; one that is too wide even so has all its columns, on several lines a row.
    """
    if _fits(headers, cells, width):
        return headers, {}, []
    shared = {name: cells[0][name] for name in headers if name in _SETTINGS and len({c[name] for c in cells}) == 1}
    headers = [name for name in headers if name not in shared]
    fewer = headers
    for count in range(len(_LESS_NEEDED) + 1):
        fewer = [name for name in headers if name not in _LESS_NEEDED[:count]]
        if _fits(fewer, cells, width):
            return fewer, shared, [name for name in headers if name not in fewer]
    return headers, shared, []


def _fits(headers: list[str], cells: list[dict[str, str]], width: int) -> bool:
    return fits([[cell[name] for name in headers] for cell in cells], headers, width)


def _summary(row: Row) -> dict[str, str]:
    from hpc_llm.text.shown import one_line

    cells: dict[str, Any] = {
        "run": row.run_id,
        "study run": row.study_run,
        "cluster": row.cluster,
        "kind": row.kind,
        "method": row.method,
        "model": row.model,
        "GPU": row.gpu,
        "ranks": row.world_size,
        "batch": row.global_batch_size,
        "sequence": row.sequence_length,
        "precision": row.precision,
        "steps": row.measured_steps,
        "tokens/s": _rounded(row.tokens_per_second, 1),
        "MFU": _rounded(row.mfu, 3),
        "GPU peak GiB": _gib(row.peak_allocated_bytes),
        "host peak GiB": _gib(row.peak_host_bytes),
        "first loss": _rounded(row.loss_first, 3),
        "last loss": _rounded(row.loss_last, 3),
        "held-out loss": _rounded(row.eval_loss, 3),
        "size": "smoke" if row.smoke else None,
        "outcome": row.outcome,
        "expected": row.expect,
        "why": row.invalid_reason,
    }
    return {name: "" if value is None else one_line(str(value)) for name, value in cells.items()}


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _gib(value: int | None) -> str | None:
    return None if value is None else f"{value / GIB:.2f}"


def _default_format(output: Path | None) -> str:
    from hpc_llm.api.rows import format_of

    if output is not None:
        return format_of(output, named="-o ", next_step="name one with --format, as in --format csv")
    return "table" if is_terminal() else "csv"


def _columns(text: str | None, steps: bool) -> list[str] | None:
    from hpc_llm.api.rows import columns
    from hpc_llm.errors import RequestError, unknown_name

    if text is None:
        return None
    valid = columns(steps=steps)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise RequestError(
            f"--columns {text}: it names none. Valid: {', '.join(valid[:8])} and {len(valid) - 8} others."
        )
    for name in names:
        if name not in valid:
            raise RequestError(unknown_name("column", name, valid, where="--columns"))
    return names


@contextmanager
def _destination(output: Path | None) -> Iterator[IO[str]]:
    """stdout, or a file that is replaced only when it is whole."""
    if output is None:
        yield sys.stdout
        return
    from hpc_llm.records.files import replacing_output

    with replacing_output(output) as file:
        yield file
    note(f"written to {output}")


def _tell(reading: Reading) -> None:
    """Lines that look like metrics and were not parsed, and figures that were not taken."""
    for what in reading.left_empty:
        note(f"{reading.source}: left empty: {what}")
    if commas := reading.unparsed.commas:
        said = f"{commas} lines hold numbers" if commas > 1 else "1 line holds a number"
        note(f"{reading.source}: left empty: {said} with a decimal comma, such as:")
        typer.echo(f"  {reading.unparsed.comma_example}", err=True)
    if reading.unparsed.count:
        count = reading.unparsed.count
        said = f"{count} lines look like metrics and were" if count > 1 else "1 line looks like a metric and was"
        note(f"{reading.source}: {said} not parsed, such as:")
        for line in reading.unparsed.examples:
            typer.echo(f"  {line}", err=True)
