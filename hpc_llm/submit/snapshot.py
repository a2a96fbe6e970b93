"""The code that travels with a run: the job's Python may be somebody else's environment and hold nothing of ours.

It is copied once per content to `logs/.code/<digest>/hpc_llm/`, and the job script puts that folder on PYTHONPATH.
A later edit or upgrade of the checkout does not reach jobs that are still queued.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hpc_llm

_PACKAGE = Path(hpc_llm.__file__).parent
_MODULES = (
    "__init__", "errors", "run", "out_of_memory", "experiment", "metrics", "model", "checkpoint", "optimizers", "synthetic",
    "deepspeed_config", "deepspeed_limits",
)  # fmt: skip
"""What the worker may import besides itself; nothing in them needs more than the standard library."""


def _sources(package: Path) -> Iterator[Path]:
    """Paths relative to the package, in a fixed order."""
    yield from (Path(f"{name}.py") for name in _MODULES)
    yield from sorted(path.relative_to(package) for path in (package / "worker").rglob("*.py"))


def code_digest(package: Path = _PACKAGE) -> str:
    """12 hexadecimal digits that change with any byte or name of the carried code."""
    digest = hashlib.sha256()
    for source in _sources(package):
        content = (package / source).read_bytes()
        digest.update(f"{source.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def code_snapshot(logs: Path, package: Path = _PACKAGE) -> Path:
    """The folder for PYTHONPATH; made on first use and completed if a site's clean-up took some of its files."""
    target = logs.absolute() / ".code" / code_digest(package)
    for source in _sources(package):
        copy = target / "hpc_llm" / source
        if not copy.exists():
            _copy_whole(package / source, copy)
    return target


def _copy_whole(source: Path, target: Path) -> None:
    """Copy so that nobody ever sees half a file, whoever else copies it at the same time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=target.parent)
    os.close(handle)
    shutil.copyfile(source, name)
    os.chmod(name, 0o644)
    os.replace(name, target)
