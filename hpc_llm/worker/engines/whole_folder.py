"""A folder that all ranks write together, and that is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from hpc_llm.errors import WorkerError
from hpc_llm.records.files import reason_of


class Made:
    """The folder while it is made, under another name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finish: Callable[[], None] = lambda: None
        """Done on the first rank, once all have written."""

    def __truediv__(self, name: str) -> Path:
        return self.path / name


@contextmanager
def whole_folder(folder: Path, *, replace: bool = False) -> Iterator[Made]:
    """What the ranks write inside becomes `folder` when each of them has written its part. Collective.

    With `replace` it takes the place of a folder that is there, which stays until then.
    Raises WorkerError on all ranks where one of them failed; what was written is gone then. A rank that never comes to its
    end leaves nothing under the name of `folder`.
    """
    made = Made(folder.with_name(f".{folder.name}.part"))
    what = f"the folder {folder} cannot be written"
    together(lambda: _begin(folder, made.path, replace), only_rank=0, what=what)
    problem: Exception | None = None
    try:
        yield made
    except Exception as error:
        problem = error
    try:
        together(lambda: _raise(problem), only_rank=None, what=what)
        together(lambda: _flush(made.path), only_rank=None, what=what)  # when nobody writes any more
        together(lambda: _end(made, folder), only_rank=0, what=what)
    except WorkerError:
        if dist.get_rank() == 0:
            shutil.rmtree(made.path, ignore_errors=True)
        raise


def together(deed: Callable[[], None], *, only_rank: int | None, what: str) -> None:
    """Do it on that rank, or on all, and raise on all of them what went wrong on one; `what` begins the sentence. Collective."""
    problem: tuple[type[WorkerError], str] | None = None
    try:
        if only_rank in (None, dist.get_rank()):
            deed()
    except WorkerError as error:
        problem = type(error), str(error)
    except OSError as error:
        problem = WorkerError, f"{what}: {reason_of(error)}."
    except Exception as error:
        problem = WorkerError, f"{what}: {type(error).__name__}: {error}"
    everyone: list[tuple[type[WorkerError], str] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, problem)
    for each in everyone:
        if each is not None:
            kind, sentence = each
            raise kind(sentence)


def _raise(problem: Exception | None) -> None:
    if problem is not None:
        raise problem


def _begin(folder: Path, made: Path, replace: bool) -> None:
    if folder.is_symlink() or (folder.exists() and not replace):
        raise WorkerError(f"{folder} is there already, and nothing is written over it: choose another name.")
    shutil.rmtree(made, ignore_errors=True)  # what an earlier try could not finish
    (made / "engine").mkdir(0o755, parents=True)


def _end(made: Made, folder: Path) -> None:
    made.finish()
    if not any((made / "engine").iterdir()):
        (made / "engine").rmdir()
    _open_to_readers(made.path)
    for path in (*made.path.glob("*.json"), *(path for path in made.path.rglob("*") if path.is_dir()), made.path):
        _flush_one(path)
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
    os.rename(made.path, folder)
    shutil.rmtree(old, ignore_errors=True)
    _flush_one(folder.parent)


def _open_to_readers(folder: Path) -> None:
    """The umask decides who may read it, and only its owner writes: some libraries make files that nobody else can read."""
    mask = os.umask(0o022)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o755 if path.is_dir() else 0o644) & ~mask)


def _flush(folder: Path) -> None:
    """Bring what this node has written to the disk; one rank of each node does so."""
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        for path in folder.rglob("*"):
            if path.is_file():
                _flush_one(path)


def _flush_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
