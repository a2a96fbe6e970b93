"""hpc-llm clean: show what of runs takes room, and remove of it what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from hpc_llm.api.cleaning import Cleaned


def register(app: typer.Typer) -> None:
    app.command("clean")(clean_command)


def clean_command(
    runs: Annotated[
        Optional[list[str]], typer.Argument(metavar="[RUN]…", help="Runs to look at; default: all.")
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints", help="Remove checkpoints: all where the whole model is kept, else all but the newest."
        ),
    ] = False,
    models: Annotated[bool, typer.Option("--models", help="Remove models of runs that have a checkpoint.")] = False,
    code: Annotated[
        bool, typer.Option("--code", help="Remove the programs that travelled, when all runs are over.")
    ] = False,
    caches: Annotated[
        bool,
        typer.Option(
            "--caches", help="Remove prepared data and compiled operators, when the runs that want them are over."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> int:
    """Show what runs have kept; remove what is asked for, never the last good state, nothing of a run that is not over."""
    from hpc_llm.api.cleaning import clean

    asked = {"checkpoints": checkpoints, "model": models, "code": code, "caches": caches}
    kinds = [kind for kind, is_asked in asked.items() if is_asked]
    found = clean(runs or None, remove=kinds, logs=logs, dry_run=dry_run)
    deed = "would go" if dry_run else "removed"
    if as_json:
        left = _with_checkpoints(found)
        print_json({"items": [_document(one, deed, kinds, left) for one in found]})
    elif found:
        headers = ["run", "what", "MiB", "path", "state"]
        left = _with_checkpoints(found)
        print_table([_row(one, deed, kinds, logs, left) for one in found], headers)
        _sum_up(found, deed, bool(kinds))
    else:
        note("nothing is kept here")
    return 1 if any(one.problem for one in found) else 0


def _state(one: Cleaned, deed: str) -> str:
    if one.problem is not None:
        return f"not removed: {one.problem}"
    if one.is_chosen:
        return deed
    return f"stays: {one.taken.stays}" if one.taken.stays else "may go"


def _with_checkpoints(found: list[Cleaned]) -> set[str | None]:
    """The runs of which a whole checkpoint is left."""
    whole = (one for one in found if one.taken.kind == "checkpoints" and one.taken.is_whole)
    return {one.taken.run_id for one in whole if not one.is_chosen or one.problem is not None}


def _is_all(one: Cleaned, kinds: list[str], left: set[str | None]) -> bool:
    """Whether it stays although it may go: what was asked for leaves nothing else that was trained."""
    taken = one.taken
    is_kept = one.problem is None and not one.is_chosen and not taken.stays
    return is_kept and (taken.kind in kinds or (taken.kind == "model" and taken.run_id not in left))


_ALL = "with its checkpoints gone it is all that was trained"
_NOT_ASKED = "it may go, and was not asked for: {} removes it"


def _row(one: Cleaned, deed: str, kinds: list[str], logs: Path, left: set[str | None]) -> list[object]:
    taken = one.taken
    path = taken.path.relative_to(logs.absolute()) if taken.path.is_relative_to(logs.absolute()) else taken.path
    state = f"stays: {_ALL}" if _is_all(one, kinds, left) else _state(one, deed)
    return [taken.run_id or _users(taken.wanted_by), taken.kind, f"{taken.size_bytes / 2**20:.1f}", path, state]


def _why(one: Cleaned, kinds: list[str], left: set[str | None]) -> str:
    """Why it is where it is, or went."""
    if reason := one.problem or one.taken.stays:
        return reason
    if one.is_chosen:
        return f"{_FLAGS[one.taken.kind]} was asked for"
    return _ALL if _is_all(one, kinds, left) else _NOT_ASKED.format(_FLAGS[one.taken.kind])


_FLAGS = {"checkpoints": "--checkpoints", "model": "--models", "code": "--code", "caches": "--caches"}


def _users(run_ids: Sequence[str]) -> str | None:
    """The runs that have used what several share."""
    return f"{run_ids[-1]} and {len(run_ids) - 1} more" if len(run_ids) > 1 else next(iter(run_ids), None)


def _sum_up(found: list[Cleaned], deed: str, is_asked: bool) -> None:
    gone = sum(one.taken.size_bytes for one in found if one.is_chosen and one.problem is None)
    every = sum(one.taken.size_bytes for one in found)
    note(f"{every / 2**20:.1f} MiB in all" + (f", {gone / 2**20:.1f} MiB {deed}" if is_asked else ""))
    if not is_asked:
        note(
            "nothing was removed: --checkpoints, --models, --code and --caches say what is to go, --dry-run what would"
        )


def _document(one: Cleaned, deed: str, kinds: list[str], left: set[str | None]) -> dict[str, object]:
    taken = one.taken
    return {
        "run_id": taken.run_id,
        "kind": taken.kind,
        "path": str(taken.path),
        "size_bytes": taken.size_bytes,
        "state": deed.replace(" ", "_") if one.is_chosen and one.problem is None else "stays",
        "why": _why(one, kinds, left),
        "wanted_by": list(taken.wanted_by),
    }
