"""Tests that act as somebody else need root; CI has it, so there nothing may be left out in silence."""

from __future__ import annotations

import os
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from small_disk import CannotMount, SmallDisk

GROUP = 12321
"""Of users who share a folder."""


def needs_root(why: str) -> None:
    """Leave the test out where this is not root; fail in CI. `why` follows "only root can"."""
    if os.geteuid() == 0:
        return
    if os.environ.get("CI"):
        pytest.fail(f"only root can {why}, and CI is to run this")
    pytest.skip(f"only root can {why}")


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[SmallDisk]:
    """A disk for a test, which is left out where nothing can be mounted, and fails there in CI."""
    needs_root("mount a file system")
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(SmallDisk(folder, size))
        except CannotMount as refused:
            pytest.fail(str(refused)) if os.environ.get("CI") else pytest.skip(str(refused))
        yield disk


@contextmanager
def mounted_again(folder: Path, again: Path) -> Iterator[Path]:
    """A folder at a second place, by a mount of its own, for a test; left out and failing where `mounted` is."""
    needs_root("mount a file system")
    again.mkdir()
    made = subprocess.run(["mount", "--bind", str(folder), str(again)], capture_output=True, text=True, check=False)
    if made.returncode:
        why = f"mount --bind does not work here: {made.stderr.strip()}"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    try:
        yield again
    finally:
        subprocess.run(["umount", "--lazy", str(again)], check=True)


def as_user(user: int, work: Callable[[], object], umask: int = 0o022) -> int:
    """Do `work` in a process of its own as a user of the group; 0 where it went well.

    What it imports must be imported before: such a user need not be able to read this Python.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([GROUP])
            os.setgid(user)
            os.setuid(user)
            os.umask(umask)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
