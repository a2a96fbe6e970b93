"""GPU memory that TensorFlow did not get, and whether other processes held it, by what it says when it starts and when it asks.

It makes a device of nearly all that is free, and asks for that amount when the first array is needed; where that is refused, for a tenth less
again and again. An amount that is smaller by what it holds already is asked for later.
"""

from __future__ import annotations

import re

from hpc_llm.causes.cause import sign

_BEFORE, _BEHIND = 1 << 16, 1 << 13
_MADE = re.compile(rb"Created (?:TensorFlow )?device [^\n]{0,160} with (\d{1,9}) MB memory")
_REFUSED = re.compile(rb"failed to allocate [^\n(]{1,20}\((\d{1,18}) bytes\) from device")
_AMOUNT = rb"(\d{1,9}(?:\.\d{1,9})?)([KMGT]i?B)"
_FREE = re.compile(
    rb"Found device (\d{1,3}) with properties:[^\n]*\n(?:[^\n]*\n){0,4}?(?i:total ?memory): "
    + _AMOUNT
    + rb"\s{1,4}(?i:free ?memory): "
    + _AMOUNT
)
_ON = re.compile(rb"OOM when allocating tensor[^\n]{0,400}?device:GPU:(\d{1,3})")
_PREFIXES = b"KMGT"


def _bytes(number: bytes, unit: bytes) -> float:
    return float(number) * 1024.0 ** (_PREFIXES.index(unit[:1].upper()) + 1)


def _is_held_by_others(text: bytes, position: int) -> bool:
    """Whether less than half of the GPU was free when it started, or of what it had made a device of when it took it."""
    near = text[max(0, position - _BEFORE) : position + _BEHIND]
    little = {one[1]: _bytes(one[4], one[5]) < _bytes(one[2], one[3]) / 2 for one in _FREE.finditer(near)}
    on = _ON.match(text, position)
    if little and (all(little.values()) if on is None else little.get(on[1])):
        return True
    made = {int(match[1]) for match in _MADE.finditer(near)}
    refused = [int(match[1]) for match in _REFUSED.finditer(near)]
    return bool(refused) and refused[0] >> 20 in made and min(refused) < refused[0] / 2


_REMEDY = (
    "another process held the GPU's memory: `nvidia-smi` or `rocm-smi` on the node shows whose it is: another job, one that an earlier job left "
    "there, or another process of this one\n"
    "where it is another job's: ask for GPUs of your own (sbatch --exclusive takes the whole node)\n"
    "where it is of this job: TensorFlow takes all of every GPU that it sees, so show each process its own (CUDA_VISIBLE_DEVICES), or let "
    "those on one GPU take what they need alone (export TF_FORCE_GPU_ALLOW_GROWTH=true)"
)

HELD_BY_OTHERS = "The GPU's memory ran out, and most of it was in the hands of other processes."
_LITERALS = ("from device:", "OOM when allocating tensor")
_RAN_OUT = r"failed to allocate (?P<asked>[\d.]+[KMGT]i?B?) \(\d+ bytes\) from device|OOM when allocating tensor"

SIGNS = (
    sign(
        _LITERALS,
        _RAN_OUT,
        confidence=0.96,  # more than the driver's words on the same line
        where=_is_held_by_others,
        meaning=HELD_BY_OTHERS,
        remedy=_REMEDY,
    ),
    sign(_LITERALS, _RAN_OUT, confidence=0.9),
)
