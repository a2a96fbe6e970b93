"""A small file system of its own, to be filled and made read-only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

# It ends with the process that holds its stdin, however that ends: no mount outlives a session that was killed.
KEEPER = 'cat; while umount --lazy "$1"; do :; done'


class CannotMount(RuntimeError):
    """Mounting takes root, and a container may forbid it even so."""


class SmallDisk:
    """A file system of `size` at `folder`, gone when this process is."""

    def __init__(self, folder: Path, size: str = "16m") -> None:
        self.folder = folder
        self._size = size

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir(parents=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self._size}", "none", str(self.folder))
        self._keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "sh", str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.communicate()
        assert not os.path.ismount(self.folder)

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


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotMount(f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()}")
