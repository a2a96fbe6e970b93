"""What befalls the folders and the clock under a run: a full disk, a lagging file, a clock that is ahead."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

CLOCK_AHEAD = """\
import datetime, os, time
_ahead, _real = float(os.environ["CHAOS_AHEAD"]), time.time
time.time = lambda: _real() + _ahead
time.time_ns = lambda: int(time.time() * 1e9)
class _Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = _Ahead
"""


def clock_ahead(folder: Path, seconds: float) -> dict[str, str]:
    """The environment in which a Python command reads a clock that is `seconds` ahead, or behind where negative."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(CLOCK_AHEAD)
    path = os.pathsep.join(each for each in (str(folder), os.environ.get("PYTHONPATH")) if each)
    return {"PYTHONPATH": path, "CHAOS_AHEAD": str(seconds)}


class SmallDisk:
    """A file system of its own at `folder`, to be filled and made read-only. Mounting it takes root."""

    def __init__(self, folder: Path, size: str = "16m") -> None:
        self.folder = folder
        self._size = size

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir(parents=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self._size}", "none", str(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", "--lazy", str(self.folder))

    def fill(self) -> None:
        """Leave not a byte."""
        with open(self.folder / "ballast", "wb", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(bytes(size))

    def make_room(self) -> None:
        (self.folder / "ballast").unlink()

    def make_read_only(self) -> None:
        # Not `remount,ro`: a job that prints into a file of the disk keeps it busy, a bind mount's flag is its own.
        _run("mount", "--bind", str(self.folder), str(self.folder))
        _run("mount", "-o", "remount,ro,bind", str(self.folder))

    def make_writable(self) -> None:
        _run("umount", "--lazy", str(self.folder))


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


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()}")
