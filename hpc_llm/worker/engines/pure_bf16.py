"""AdamW that keeps nothing in fp32: weights and both moments are in bf16, 8 bytes a parameter with the gradient in place of 16.

bf16 has 8 bits of a number: a change by less than 1/256 of a weight would be rounded away each time, and so would the decay of
the second moment. So each value is rounded up or down at random, as often as it is near to either: the mean of many
small changes is kept, at the price of noise. Each rank draws the same random numbers, so that the ranks stay equal; they follow from
seed and step, so that a run that goes on draws what it would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

_CHUNK = 2**24
"""Numbers that are in fp32 at once."""
_LOW_BITS = 0xFFFF


_Optimizer: Any = torch.optim.Optimizer  # whose types mypy does not follow


class AdamWBF16(_Optimizer):  # type: ignore[misc]
    """Over parameters in bf16."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        seed: int,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._seed = seed

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Change the parameters by their gradients."""
        noise: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for parameter in (each for each in group["params"] if each.grad is not None):
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                state["step"] += 1
                number = int(state["step"])
                if parameter.device not in noise:
                    noise[parameter.device] = torch.Generator(parameter.device).manual_seed(
                        self._seed * 1_000_003 + number
                    )
                kept = (parameter, state["exp_avg"], state["exp_avg_sq"])
                pieces = zip(*(each.view(-1).split(_CHUNK) for each in kept), strict=True)
                slopes = parameter.grad.reshape(-1).split(_CHUNK)
                for (weight, first, second), slope in zip(pieces, slopes, strict=True):
                    _change(weight, slope, first, second, number, group, noise[parameter.device])


def _change(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    number: int,
    group: dict[str, Any],
    noise: torch.Generator,
) -> None:
    """AdamW's step of one piece, computed in fp32."""
    beta1, beta2 = group["betas"]
    slope = gradient.float()
    mean = first.float().lerp_(slope, 1 - beta1)
    square = second.float().mul_(beta2).addcmul_(slope, slope, value=1 - beta2)
    round_into(first, mean, noise)
    round_into(second, square, noise)
    spread = square.div_(1 - beta2**number).sqrt_().add_(group["eps"])
    value = weight.float().mul_(1 - group["lr"] * group["weight_decay"])
    round_into(weight, value.addcdiv_(mean, spread, value=-group["lr"] / (1 - beta1**number)), noise)


def round_into(low: torch.Tensor, value: torch.Tensor, noise: torch.Generator) -> None:
    """Put fp32 values into a bf16 tensor, each rounded up or down at random so that its mean is kept."""
    bits = torch.randint(0, _LOW_BITS + 1, value.shape, dtype=torch.int32, device=value.device, generator=noise)
    bits.add_(value.view(torch.int32)).bitwise_and_(~_LOW_BITS)
    # Noise must not turn what is no number into one.
    low.copy_(torch.where(value.isfinite(), bits.view(torch.float32), value))
