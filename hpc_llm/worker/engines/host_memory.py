"""Memory of the host in blocks of exact size, page-locked where there is a GPU that copies from and to it.

torch rounds each page-locked block up to a power of two: of the states of a 7B that is a sixth more than there are.
"""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress
from typing import Any

import torch

from hpc_llm.errors import WorkerError

_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)


class HostMemory:
    """Gives zeros. What it has page-locked stays so until `close`."""

    def __init__(self, device: torch.device) -> None:
        self._locks = device.type == "cuda"
        self._locked: list[torch.Tensor] = []
        # Memory that is given back while it is locked could not be locked again by whoever gets it next.
        weakref.finalize(self, _unlock, self._locked).atexit = False

    def zeros(self, count: int, dtype: torch.dtype, *, locked: bool = True) -> torch.Tensor:
        """A row of numbers. Raises WorkerError where the host does not give it."""
        size = max(count * dtype.itemsize, 1)
        try:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise WorkerError(f"the host has no {size / 2**30:.2f} GiB more for states: {error}.") from error
        if _HUGE_PAGES is not None:
            with suppress(OSError):  # fewer pages are locked sooner, and found sooner; without them it runs as well
                block.madvise(_HUGE_PAGES)
        row = torch.frombuffer(block, dtype=dtype, count=count) if count else torch.zeros(0, dtype=dtype)
        if self._locks and locked and count:
            self._lock(row)
        return row

    def _lock(self, row: torch.Tensor) -> None:
        size = row.numel() * row.element_size()
        code = int(_cuda_runtime().cudaHostRegister(row.data_ptr(), size, 0))
        if code != 0:
            held = sum(one.numel() * one.element_size() for one in self._locked)
            raise WorkerError(
                f"the driver does not page-lock {size / 2**30:.2f} GiB of host memory beside {held / 2**30:.2f} GiB "
                f"(CUDA error {code}): give the job more memory, or fewer states to this node by more nodes."
            )
        self._locked.append(row)

    def close(self) -> None:
        """Unlock all."""
        _unlock(self._locked)


def _unlock(rows: list[torch.Tensor]) -> None:
    if rows:
        torch.cuda.synchronize()  # nothing may be copying any more
    while rows:
        _cuda_runtime().cudaHostUnregister(rows.pop().data_ptr())


def _cuda_runtime() -> Any:
    return torch.cuda.cudart()


def stretches(count: int, size: int) -> list[slice]:
    """`count` numbers in as few stretches as have no more than `size` each, or 64; each begins where 64 divides.

    >>> stretches(1000, 400)
    [slice(0, 384, None), slice(384, 768, None), slice(768, 1000, None)]
    """
    if count == 0:
        return []
    most = max(size // 64, 1)  # blocks
    number = -(-count // (64 * most))
    each = 64 * -(-count // (64 * number))
    return [slice(begin, min(begin + each, count)) for begin in range(0, count, each)]
