"""Where what jobs compile on the nodes of a cluster lies. Standard library only.

PyTorch's own place for compiled graphs is `/tmp/torchinductor_USER`, which anybody on the node may have made before: what lies
there is unpickled and run. The caches tell architectures and versions apart by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_FOLDER = ".cache/hpc-llm"
_PLACES = {
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
}


def caches_of(cluster: str, home: str = "${HOME}") -> dict[str, str]:
    """Variable -> folder, as a job's script names it: those of one cluster stay apart."""
    return {variable: f"{home}/{_FOLDER}/{cluster}/{name}" for variable, name in _PLACES.items()}


def compiled_folder(home: Path, cluster: str) -> Path:
    """That of the operators which DeepSpeed compiles; the others lie beside it."""
    return home / _FOLDER / cluster / _PLACES["TORCH_EXTENSIONS_DIR"]


def compiled_in(home: Path) -> Iterator[tuple[str, Path]]:
    """Each cluster whose jobs have compiled something, and where; what is left of a removal too."""
    for path in sorted((home / _FOLDER).glob("*/*")):
        if any(name in path.name for name in _PLACES.values()) and path.is_dir() and not path.is_symlink():
            yield path.parent.name, path
