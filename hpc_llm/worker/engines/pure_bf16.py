"""AdamW that keeps nothing in fp32: weights and both moments are in bf16, 8 bytes a parameter with the gradient in place of 16.

bf16 has 8 bits of a number: a change by less than 1/256 of a weight would be rounded away each time, and so would the decay of
the second moment. So each value is rounded up or down at random, as often as it is near to either: the mean of many
small changes is kept, at the price of noise. What is drawn follows from seed, step and place alone: the ranks stay equal, a run
that goes on draws what it would have drawn, and the step can be compiled into one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
        """Change the parameters by their gradients. What is sent to the device for one of many small ones takes longer than its change,
        so it is sent for all of them at once."""
        stepped = [
            (group, one, self._next(one))
            for group in self.param_groups
            for one in group["params"]
            if one.grad is not None
        ]
        if not stepped:
            return
        numbers = [number for _, one, number in stepped for _ in range(-(-one.numel() // _chunk(one)))]
        places = [(self._seed, number, drawn) for drawn, number in enumerate(numbers, 1)]
        salts = iter(_salts(places, stepped[0][1].device))
        known: dict[tuple[int, int], torch.Tensor] = {}
        for group, parameter, number in stepped:
            if (id(group), number) not in known:
                known[id(group), number] = _rates(group, number, parameter.device)
            state = self.state[parameter]
            kept = (
                parameter.view(-1),
                parameter.grad.reshape(-1),
                state["exp_avg"].view(-1),
                state["exp_avg_sq"].view(-1),
            )
            for piece in zip(*(each.split(_chunk(parameter)) for each in kept), strict=True):
                self._change(*piece, known[id(group), number], next(salts))

    def _next(self, parameter: torch.Tensor) -> int:
        """The number of the parameter's step that begins; what it keeps is made for the first one."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return int(state["step"])

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
    return _sent(torch.tensor(values, dtype=torch.float32), device)


def _sent(made: torch.Tensor, device: torch.device) -> torch.Tensor:
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made


def _chunk(parameter: torch.Tensor) -> int:
    return _CHUNK.get(parameter.device.type, _CHUNK_OF_OTHERS)


def _salts(places: Sequence[tuple[int, int, int]], device: torch.device) -> Sequence[torch.Tensor]:
    """One for each place, sent to the device at once; each begins at 16 bytes of its own, or a compiled kernel would copy it first."""
    rows = torch.zeros((len(places), 4), dtype=torch.int32)
    rows[:, 0] = torch.tensor([salt_of(*place) for place in places], dtype=torch.int64)
    salts: Sequence[torch.Tensor] = _sent(rows, device)[:, 0].unbind()
    return salts


def salt_on(device: torch.device, seed: int, number: int, drawn: int) -> torch.Tensor:
    """That of one place, on a device."""
    return torch.full((), salt_of(seed, number, drawn), dtype=torch.int32, device=device)


def salt_of(seed: int, number: int, drawn: int) -> int:
    """From what the noise of a piece follows: a number of 32 bits with its sign."""
    mixed = ((seed * 1_000_003 + number) * 1_000_033 + drawn) * _MIX & 0xFFFF_FFFF
    return mixed - (mixed >> 31 << 32)


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
