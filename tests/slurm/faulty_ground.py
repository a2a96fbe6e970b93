"""What befalls the folders and the clock under a run: a lagging file, another user's folder, a clock that is ahead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CLOCK_AHEAD = """\
import datetime, os, sys, time
_ahead, _real, _class = float(os.environ["CHAOS_AHEAD"]), time.time, datetime.datetime
time.time = lambda: _real() + _ahead
time.time_ns = lambda: int(time.time() * 1e9)
class _Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = _Ahead
for _module in list(sys.modules.values()):  # of a copy, which has imported them
    if getattr(_module, "datetime", None) is _class:
        _module.datetime = _Ahead
"""


def clock_ahead(folder: Path, seconds: float) -> dict[str, str]:
    """The environment in which a Python command reads a clock that is `seconds` ahead, or behind where negative."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(CLOCK_AHEAD)
    path = os.pathsep.join(each for each in (str(folder), os.environ.get("PYTHONPATH")) if each)
    return {"PYTHONPATH": path, "CHAOS_AHEAD": str(seconds)}


@contextlib.contextmanager
def hidden(files: Iterable[Path], aside: Path) -> Iterator[None]:
    """The files are not there yet, as on a shared file system that lags; afterwards they are."""
    aside.mkdir(parents=True)
    moved = {file: aside / str(number) for number, file in enumerate(sorted(set(files))) if file.exists()}
    for file, place in moved.items():
        os.rename(file, place)
    try:
        yield
    finally:
        for file, place in moved.items():
            _move_into_place(place, file)


def _move_into_place(source: Path, target: Path) -> None:
    """Rename a file or a folder; a command may have made the folder anew meanwhile."""
    if target.is_dir() and not source.is_symlink():
        for child in source.iterdir():
            _move_into_place(child, target / child.name)
    else:
        os.replace(source, target)


def as_an_ordinary_user() -> list[str]:
    """The command under which root's right to read everybody's files is gone; nothing where there is none."""
    if os.geteuid() != 0:
        return []
    lost = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}"]


def make_foreign(folder: Path) -> None:
    """Nobody but root may look into it, as into another user's folder of mode 0700."""
    folder.chmod(0)
