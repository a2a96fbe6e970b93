"""fp32 numbers in two halves: one that is bf16, as the layers multiply with it, and the 16 bits that it lacks.

Where the layers' own weights lie on the device, only the other half has to come from the host and to go back. Nothing is lost:
both together are the fp32 number, bit by bit. Of two equally near bf16 numbers the larger one is taken, by absolute value;
torch takes the even one.
"""

from __future__ import annotations

import torch

_HALF = 1 << 15
_BITS = 16


def joined(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """The fp32 numbers whose halves are `high`, bf16, and `low`, int16."""
    bits = high.view(torch.int16).to(torch.int32).bitwise_left_shift_(_BITS)
    return bits.add_(low).view(torch.float32)


def split(value: torch.Tensor, high: torch.Tensor, low: torch.Tensor) -> None:
    """Put the halves of fp32 numbers into `high`, bf16, and `low`, int16."""
    bits = value.view(torch.int32)
    upper = bits.add(_HALF).bitwise_right_shift_(_BITS)
    high.view(torch.int16).copy_(upper)
    low.copy_(bits - upper.bitwise_left_shift_(_BITS))
