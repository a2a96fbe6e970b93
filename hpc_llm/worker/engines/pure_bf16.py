"""AdamW that keeps nothing in fp32: weights and both moments are in bf16, 8 bytes a parameter with the gradient in place of 16.

bf16 has 8 bits of a number: a change by less than 1/256 of a weight would be rounded away each time, and so would the decay of
the second moment. So each value is rounded up or down at random, as often as it is near to either: the mean of many
small changes is kept, at the price of noise. What is drawn follows from seed, step and place alone: the ranks stay equal, a run
that goes on draws what it would have drawn, and the step can be compiled into one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from hpc_llm.worker.kernels.compiling import failing, one_line

_CHUNK = {"cpu": 2**20}
"""Numbers that are in fp32 at once where the step is not compiled, by device: what they become stays in the caches of a CPU."""
_CHUNK_OF_OTHERS = 2**24
_LOW_BITS = 0xFFFF
_MIX = 0x9E3779B1
"""2**32 over the golden ratio: what differs by 1 lies far apart once multiplied by it."""

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
        self._compiled: Any = None
        """The change of a piece as one kernel; `change` itself where it is not compiled."""
        self.sentences: list[str] = []
        """Why it is not, where that is so."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Change the parameters by their gradients."""
        drawn = 0
        for group in self.param_groups:
            for parameter in (each for each in group["params"] if each.grad is not None):
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                state["step"] += 1
                number = int(state["step"])
                rates = _rates(group, number, parameter.device)
                kept = (parameter, state["exp_avg"], state["exp_avg_sq"])
                chunk = _CHUNK.get(parameter.device.type, _CHUNK_OF_OTHERS)
                pieces = zip(*(each.view(-1).split(chunk) for each in kept), strict=True)
                slopes = parameter.grad.reshape(-1).split(chunk)
                for (weight, first, second), slope in zip(pieces, slopes, strict=True):
                    drawn += 1
                    self._change(weight, slope, first, second, rates, salt_of(self._seed, number, drawn, rates.device))

    def _change(self, *piece: torch.Tensor) -> None:
        if self._compiled is None:
            self._compiled = change
            if piece[0].is_cuda:
                self._compile()
        self._compiled(*piece)

    def _compile(self) -> None:
        """Take one kernel for all sizes, if it can be made here."""
        try:
            self._compiled = _tried()
        except Exception as error:  # whatever a compiler may raise: the same is done in single operations
            self.sentences.append(
                f"AdamWBF16 steps in single operations, for nothing can be compiled here: {one_line(error)}"
            )


def _tried() -> Any:
    """`change`, compiled and called. Raises what a compiler raises."""
    made = torch.compile(change, dynamic=True)
    weight = torch.ones(48, dtype=torch.bfloat16, device="cuda")
    rates = torch.full((8,), 0.5, device="cuda")
    with failing():
        made(weight, weight.clone(), weight.clone(), weight.clone(), rates, rates[0].int())
    return made


def _rates(group: dict[str, Any], number: int, device: torch.device) -> torch.Tensor:
    """What the step multiplies by, as a tensor: numbers of Python's own would be compiled in, and change with each step."""
    beta1, beta2 = group["betas"]
    lr = float(group["lr"])
    values = (
        1 - beta1, beta2, 1 - beta2, 1 / (1 - beta2**number), group["eps"], 1 - lr * group["weight_decay"],
        -lr / (1 - beta1**number), 0.0,
    )  # fmt: skip
    made = torch.tensor(values, dtype=torch.float32)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made


def salt_of(seed: int, number: int, drawn: int, device: torch.device) -> torch.Tensor:
    """From what the noise of a piece follows: a number of 32 bits with its sign."""
    mixed = ((seed * 1_000_003 + number) * 1_000_033 + drawn) * _MIX & 0xFFFF_FFFF
    return torch.full((), mixed - (mixed >> 31 << 32), dtype=torch.int32, device=device)


def change(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    rates: torch.Tensor,
    salt: torch.Tensor,
) -> None:
    """AdamW's step of one piece, computed in fp32."""
    slope, mean, square = gradient.float(), first.float(), second.float()
    mean = mean + (slope - mean) * rates[0]
    square = square * rates[1] + slope * slope * rates[2]
    spread = (square * rates[3]).sqrt() + rates[4]
    value = weight.float() * rates[5] + mean / spread * rates[6]
    bits, other = noise(weight.numel(), salt), noise(weight.numel(), salt ^ -1)
    first.copy_(rounded(mean, bits))
    second.copy_(rounded(square, bits >> 16))
    weight.copy_(rounded(value, other))


def noise(count: int, salt: torch.Tensor) -> torch.Tensor:
    """`count` numbers of 32 bits that look drawn at random, and are another row for another `salt`."""
    mixed = torch.arange(count, dtype=torch.int32, device=salt.device) * (_MIX - 2**32) + salt
    for factor in (0x7FEB352D, 0x2C1B3C6D):  # odd: nothing is lost
        mixed = (mixed ^ ((mixed >> 15) & 0x1FFFF)) * factor
    return mixed ^ ((mixed >> 16) & _LOW_BITS)


def rounded(value: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """fp32 values in bf16, each rounded up or down by the low 16 of its `bits` so that the mean is kept."""
    found = ((bits & _LOW_BITS) + value.view(torch.int32)) & ~_LOW_BITS
    # Noise must not turn what is no number into one.
    return torch.where(value.isfinite(), found.view(torch.float32), value).to(torch.bfloat16)
