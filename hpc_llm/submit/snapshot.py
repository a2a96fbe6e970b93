"""The code that travels with a run: the job's Python may be somebody else's environment and hold nothing of ours.

It is copied once per content and user to `logs/.code/<digest>-<user id>/hpc_llm/`, and the job script puts that folder on
PYTHONPATH. A later edit or upgrade of the checkout does not reach jobs that are still queued.

Others may be able to write where runs live, so a copy is used only while it is exactly what its digest says: here before
a job is submitted, and by the script itself before it runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import hpc_llm
from hpc_llm.errors import SubmissionError
from hpc_llm.record_files import make_shared_folder, reason_of

_PACKAGE = Path(hpc_llm.__file__).parent
_MODULES = (
    "__init__", "env_file", "errors", "json_text", "record_files", "run", "out_of_memory", "secrecy", "experiment", "metrics", "model", "checkpoint",
    "optimizers", "synthetic", "deepspeed_config", "deepspeed_limits",
)  # fmt: skip
"""What the worker may import besides itself; nothing in them needs more than the standard library."""
_NO_CACHE = "__pycache__"
"""An empty file of this name keeps Python from leaving compiled files, which it would run unseen the next time."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def code_folder(logs: Path, package: Path = _PACKAGE) -> Path:
    """Where the copy of this code belongs; each user has one, for nobody else's can be trusted to stay as it is."""
    return logs.absolute() / ".code" / f"{code_digest(package)[:12]}-{os.geteuid()}"


def code_digest(package: Path = _PACKAGE) -> str:
    """SHA-256 of the carried code, 64 hexadecimal digits: any other byte, name, link or further file changes it.

    It is what `(find . -type f -exec sha256sum {} +; find . ! -type f) | LC_ALL=C sort | sha256sum` prints in the copy.
    """
    contents = _contents(package)
    folders = {parent for path in contents for parent in path.parents}
    lines = [f"{hashlib.sha256(content).hexdigest()}  ./{path.as_posix()}" for path, content in contents.items()]
    lines += ["." if folder == Path() else f"./{folder.as_posix()}" for folder in folders]
    return _digest_of(lines)


def code_snapshot(logs: Path, package: Path = _PACKAGE) -> Path:
    """The folder for PYTHONPATH, made on first use and made anew where it is not, or no longer, what it should be.

    Raises:
        SubmissionError: it cannot be written, or something that is in its place cannot be removed.
    """
    target = code_folder(logs, package)
    if _is_intact(target, package):
        return target
    made = target.parent / f".{uuid4()}"
    try:
        make_shared_folder(target.parent)
        _write(made, _contents(package))
        with contextlib.suppress(FileNotFoundError):
            # It is renamed before it is removed: nobody finds half of it.
            os.rename(target, made.with_suffix(".old"))
        with contextlib.suppress(FileExistsError):  # of two commands at a time one wins
            os.rename(made, target)
    except OSError as error:
        raise SubmissionError(
            f"the code that travels with the runs cannot be written to {target}: {reason_of(error)}. "
            "Use another --logs, in a folder of your own."
        ) from error
    finally:
        for left in (made, made.with_suffix(".old")):
            _remove(left)
    if not _is_intact(target, package, is_new=True):
        raise SubmissionError(
            f"{target} does not stay as it was written: others write there. Use another --logs, in a folder of your own."
        )
    return target


def _contents(package: Path) -> dict[Path, bytes]:
    """Path in the copy -> bytes, of every file of it."""
    sources = [Path(f"{name}.py") for name in _MODULES]
    sources += sorted(path.relative_to(package) for path in (package / "worker").rglob("*.py"))
    contents = {Path("hpc_llm", source): (package / source).read_bytes() for source in sources}
    return {**contents, **{folder / _NO_CACHE: b"" for folder in {path.parent for path in contents}}}


def _write(folder: Path, contents: dict[Path, bytes]) -> None:
    """Make the files anew; what others may do to them follows the umask, except that they may never write."""
    for path, content in contents.items():
        place = folder / path
        for parent in reversed(place.relative_to(folder.parent).parents[:-1]):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder.parent / parent, 0o755)
        handle = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


def _is_intact(folder: Path, package: Path, is_new: bool = False) -> bool:
    """Whether the folder holds the code, nothing else, and nobody else can write there.

    Right after it was made (`is_new`) owner and permissions tell nothing more: a file system may not keep them.
    """
    try:
        entries = list(_entries(folder, folder))
        if not is_new and any(_is_open_to_others(os.lstat(folder / path)) for path, _ in entries):
            return False
        return _digest_of(line for _, line in entries) == code_digest(package)
    except OSError:
        return False


def _entries(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Each thing under `root` with its line of the digest; a link is never followed."""
    name = folder.relative_to(root)
    yield name, "." if folder == root else f"./{name.as_posix()}"
    if folder.is_symlink():
        raise NotADirectoryError(f"{folder} is a link")
    for entry in os.scandir(folder):
        path = Path(entry.path)
        name = path.relative_to(root)
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(path, root)
        elif entry.is_file(follow_symlinks=False):
            yield name, f"{hashlib.sha256(path.read_bytes()).hexdigest()}  ./{name.as_posix()}"
        else:
            yield name, f"./{name.as_posix()}"


def _digest_of(lines: Iterator[str] | list[str]) -> str:
    encoded = sorted(os.fsencode(line) for line in lines)
    return hashlib.sha256(b"".join(line + b"\n" for line in encoded)).hexdigest()


def _is_open_to_others(found: os.stat_result) -> bool:
    return found.st_uid != os.geteuid() or bool(found.st_mode & _OTHERS_MAY_WRITE)


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder, as far as that is allowed."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
