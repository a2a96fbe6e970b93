"""hpc-llm fetch: bring a model or data set to this file system."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.options import JsonOption
from hpc_llm.cli.output import note, print_json
from hpc_llm.cli.terminal import steered
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.fetching.fetch import Fetched
    from hpc_llm.fetching.progress import Progress

_ROOM_FOR_A_LINE = 20
_INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    app.command("fetch")(fetch_command)


def fetch_command(
    name: Annotated[
        str, typer.Argument(metavar="MODEL|DATASET", help="Preset, OWNER/NAME on the Hub, or datasets/OWNER/NAME.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder that will hold it.")],
    source: Annotated[
        str, typer.Option("--from", metavar="hub|modelscope|PATH", help="Where it comes from; a PATH is copied.")
    ] = "hub",
    revision: Annotated[
        Optional[str], typer.Option(metavar="NAME", help="Branch, tag or commit; default: what is newest.")
    ] = None,
    only: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="PATTERN", help="Files to fetch, e.g. 'sst2/*', instead of all that a run needs (repeatable)."
        ),
    ] = None,
    env_file: Annotated[
        Optional[str], typer.Option(metavar="FILE", help="File of your own with the line HF_TOKEN=…; mode 600.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Bring a model or data set to this file system: checked, going on where an earlier try ended, whole or not there."""
    from hpc_llm.api import fetch

    show = _Rewriting() if sys.stderr.isatty() else _Telling()
    try:
        done = fetch(
            name, to=to, source=source, revision=revision, only=only or (), env_file=env_file, on_update=show.update
        )
    except KeyboardInterrupt:
        show.close()
        kept = (
            "What was fetched is kept: the same command goes on with it."
            if show.here
            else "The same command begins again."
        )
        note(f"interrupted. {kept}")
        return _INTERRUPTED
    finally:
        show.close()
    print_json(_document(done)) if as_json else _print(done)
    return 0


def _document(done: Fetched) -> dict[str, Any]:
    return {
        "name": done.name,
        "kind": done.kind,
        "folder": str(done.folder),
        "commit": done.commit,
        "files": done.files,
        "bytes": done.size,
        "received_bytes": done.received,
        "elapsed_s": round(done.elapsed_s, 3),
    }


def _print(done: Fetched) -> None:
    commit = f" at {done.commit[:12]}" if done.commit else ""
    was = "is in" if done.received else "was already in"
    typer.echo(one_line(f"{done.name}{commit} {was} {done.folder}: {done.files} files, {_sized(done.size)}"))
    way = "--model" if done.kind == "model" else "--data"
    note(f"a run takes it by {way} {shlex.quote(str(done.folder))}")


def progress_line(state: Progress) -> str:
    """`2/12 files · 4.2 GB of 13.5 GB · 112 MB/s · 1 min 23 s left`."""
    parts = (
        [f"{state.files_done}/{state.files} files · {_sized(state.done)} of {_sized(state.size)}"]
        if state.files
        else []
    )
    if state.note:
        return " · ".join([*parts, state.note])
    rate = state.received / state.elapsed_s if state.elapsed_s > 1 else 0.0
    if rate > 0:
        parts += [f"{_sized(rate)}/s", f"{_duration((state.size - state.done) / rate)} left"]
    return " · ".join(parts)


def _sized(size: float) -> str:
    from hpc_llm.api.fetching import sized

    return sized(size)


def _duration(seconds: float) -> str:
    """`1 h 5 min`, `1 min 23 s`, `9 s`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _Rewriting:
    """One line on a terminal that is written over."""

    here = 0
    """Bytes that have come, now or in an earlier try."""

    def update(self, state: Progress) -> None:
        self.here = state.done
        width = max(shutil.get_terminal_size().columns - 1, _ROOM_FOR_A_LINE)
        steered(sys.stderr).write(f"\r\x1b[K{one_line(progress_line(state))[:width]}")
        sys.stderr.flush()

    def close(self) -> None:
        steered(sys.stderr).write("\r\x1b[K")
        sys.stderr.flush()


class _Telling:
    """Elsewhere: only what is waited for, each thing once in a row."""

    def __init__(self) -> None:
        self._told = ""
        self.here = 0

    def update(self, state: Progress) -> None:
        self.here = state.done
        if state.note and state.note != self._told:
            note(state.note)
            self._told = state.note

    def close(self) -> None:
        """Nothing is left open."""
