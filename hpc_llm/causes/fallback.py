"""torch's warning of a driver that is too old: what it cannot do then is to use the GPU, and a program may well do without."""

from __future__ import annotations

import re
from functools import lru_cache

_WARNED = re.compile(rb"UserWarning: CUDA initialization: [^\n]*\n(?:[ \t][^\n]*\n?)?")
_SPEAKS_OF_IT = re.compile(
    rb"(?im)^(?![^\n]{0,300}Warning: )[^\n]{0,300}?(?:error|exception|failed)\b[^\n]{0,300}?"
    rb"(?:cuda|gpu|\bdevices?\b|nvidia|driver|nccl|accelerator)"
)
"""An error of a program that wanted a GPU."""
_SAID = re.compile(rb"(?m)^(?!srun: |slurmstepd: |[^\n]{0,300}Warning: |[ \t])[^\n]*\S")
"""A line that the program printed."""


def needs_a_gpu(text: bytes, position: int) -> bool:
    """Whether the program did not show that it went on without a GPU: it printed nothing more, or failed of what a GPU is needed for.

    >>> log = b"x.py:1: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old.\\n  return 0\\n"
    >>> needs_a_gpu(log, 50), needs_a_gpu(log + b"cpu\\n", 50), needs_a_gpu(log + b"ValueError: no device\\n", 50)
    (True, False, True)
    """
    warned = _WARNED.search(text, text.rfind(b"\n", 0, position) + 1)
    if warned is None or warned.start() > position:
        return True
    said, spoke = _last(text)
    return said < warned.end() or spoke >= warned.end()


@lru_cache(maxsize=1)
def _last(text: bytes) -> tuple[int, int]:
    """Where the program last printed a line, and where it last failed for want of a GPU; -1 where it never did."""
    said, spoke = (max((one.start() for one in of.finditer(text)), default=-1) for of in (_SAID, _SPEAKS_OF_IT))
    return said, spoke
