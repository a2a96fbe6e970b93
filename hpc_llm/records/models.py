"""Whether what a run kept for use is whole: of that, all earlier states of a training may go. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from hpc_llm.errors import ModelRequestError
from hpc_llm.records.checkpoints import has_size
from hpc_llm.records.digests import digest_of_piece, digests_of, share_of
from hpc_llm.records.files import load_json, write_json
from hpc_llm.records.weight_files import table_of
from hpc_llm.text.json_text import DamagedRecordError

MANIFEST = "kept.json"
"""In the folder of a model, written last: every file with its size and checksums."""
_WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
_INDEX = "model.safetensors.index.json"
_CONFIGS = {
    "model.safetensors": "config.json",
    _INDEX: "config.json",
    "adapter_model.safetensors": "adapter_config.json",
}


def write_manifest(folder: Path) -> None:
    """Write down what is in the folder, behind everything else."""
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    digests = {name: digests_of(folder / name) for name in sizes}
    write_json(folder / MANIFEST, {"schema": 1, "files": sizes, "digests": digests})


def is_whole_model(folder: Path) -> bool:
    """Whether the folder holds all weights of a model, or of an adapter, as far as names, sizes and tables tell.

    That its files have the sizes with which they were written, where it says them, is not enough: the tables at the beginning
    of the weights must agree with their sizes as well. What nobody can look through, as pickled weights, is not proven.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        return _has_what_was_written(folder) and _has_weights(folder)
    except (OSError, ValueError, RecursionError):
        return False


def check_contents(folder: Path, files: Iterable[Path], part: int = 0, parts: int = 1) -> None:
    """Look at one of `parts` shares of these files of a model that a run kept, by the checksums with which they were written.

    Of other folders, and of earlier versions, nothing is known. Raises ModelRequestError where a file holds something else.
    """
    try:
        said = (load_json(folder / MANIFEST) or {}).get("digests") or {}
        names = (path.relative_to(folder).as_posix() for path in files)
        digests = {name: list(said[name]) for name in names if name in said}
    except (DamagedRecordError, TypeError, KeyError) as error:
        raise _not_as_written(folder, f"{MANIFEST} cannot be read: {error}") from None
    for name, number, digest in share_of(digests, part, parts):
        if digest_of_piece(folder / name, number) != digest:
            raise _not_as_written(folder, f"{name} does not hold what was written, by its checksum in {MANIFEST}")


def _not_as_written(folder: Path, why: str) -> ModelRequestError:
    return ModelRequestError(
        f"the model {folder} is damaged: {why}. Copy it anew from its run, or keep it again from a checkpoint with --resume; where you "
        f"wrote other weights there yourself, remove {MANIFEST}."
    )


def stays_within(name: object) -> bool:
    """Whether a name that a file of a model gives to another one means one in the model's own folder.

    What lies elsewhere is no part of the model: nobody fetched it with the model, and no checksum of the model's is of it.

    >>> stays_within("part-1.safetensors"), stays_within("../part-1.safetensors"), stays_within("/etc/hosts"), stays_within("")
    (True, False, False, False)
    """
    if not isinstance(name, str) or "\0" in name:
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _has_what_was_written(folder: Path) -> bool:
    found = load_json(folder / MANIFEST)
    if found is None:  # of an earlier version
        return True
    sizes = found.get("files")
    return (
        isinstance(sizes, dict)
        and bool(sizes)
        and all(stays_within(n) and has_size(folder / n, sizes[n]) for n in sizes)
    )


def _has_weights(folder: Path) -> bool:
    first = next((name for name in (*_WEIGHTS, _INDEX) if (folder / name).exists()), None)
    if first is None or not load_json(folder / _CONFIGS[first]):
        return False
    if first != _INDEX:
        return bool(_names_in(folder / first))
    wanted = (load_json(folder / _INDEX) or {}).get("weight_map")
    if not isinstance(wanted, dict) or not wanted or not all(_is_plain(file) for file in wanted.values()):
        return False
    held = {file: _names_in(folder / file) for file in set(wanted.values())}
    return all(name in held[file] for name, file in wanted.items())


def _is_plain(name: Any) -> bool:
    return isinstance(name, str) and name == Path(name).name


def _names_in(path: Path) -> frozenset[str]:
    """The tensors in a file of safetensors. Raises DamagedRecordError where the file is not as long as its table says."""
    if path.is_symlink():
        raise DamagedRecordError("it is a link")
    try:
        return frozenset(table_of(path))
    except ModelRequestError as error:
        raise DamagedRecordError(str(error)) from None
