"""AdamW on a row of numbers in one pass over memory: clipped, stepped and rounded, where torch makes a pass of each."""

from __future__ import annotations

from typing import Any

import torch

from hpc_llm.worker.kernels.compiling import one_line


class RowStep:
    """Steps shares with the states of `optimizer`, torch's AdamW, as that would."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.sentences: list[str] = []
        """Why it is not one pass, where that is so."""
        self._optimizer = optimizer
        self._run: Any = torch.compile(_row, dynamic=False)
        self._numbers: torch.Tensor | None = None

    def begin(self, factor: torch.Tensor | None) -> bool:
        """Count a step of all shares, whose gradients are taken times `factor`; False before torch has made their states."""
        (group,) = self._optimizer.param_groups
        states = [self._optimizer.state.get(share) for share in group["params"]]
        if not all(states):
            return False
        steps = [state["step"] for state in states if state]
        torch._foreach_add_(steps, 1)
        self._numbers = _numbers(group, steps[0], factor).to(group["params"][0].device)
        return True

    def __call__(self, share: torch.Tensor, low: torch.Tensor, gradient: torch.Tensor) -> None:
        """Change a share, and `low`, which is the same in low precision."""
        (group,), state = self._optimizer.param_groups, self._optimizer.state[share]
        given = (
            share,
            low,
            gradient,
            state["exp_avg"],
            state["exp_avg_sq"],
            self._numbers,
            *group["betas"],
            group["eps"],
        )
        try:
            self._run(*given)
        except Exception as error:  # whatever a compiler may raise: nothing was changed yet
            if self._run is _row:
                raise
            self._run = _row
            self.sentences.append(
                f"The optimizer's passes are not one, for they cannot be compiled here: {one_line(error)}"
            )
            self._run(*given)


def _numbers(group: dict[str, Any], step: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
    """What differs from step to step, on the device: the gradients' factor, the rate, the scale of the root, the decay.

    In double precision first: of 1 - 0.999 single precision keeps five digits.
    """
    first, second = (1 - torch.pow(beta, step.double()) for beta in group["betas"])
    shrinks = torch.ones_like(first) if factor is None else factor.reshape(()).double().to(first.device)
    decay = torch.full_like(first, 1 - group["lr"] * group["weight_decay"])
    return torch.stack((shrinks, group["lr"] / first, second.rsqrt(), decay)).float()


def _row(
    share: torch.Tensor,
    low: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    numbers: torch.Tensor,
    beta: float,
    beta_of_square: float,
    eps: float,
) -> None:
    factor, rate, root, decay = numbers.unbind()
    wide = gradient.float() * factor
    mean.lerp_(wide, 1 - beta)
    square.mul_(beta_of_square).addcmul_(wide, wide, value=1 - beta_of_square)
    share.mul_(decay).sub_(rate * mean / (square.sqrt() * root + eps))
    low.copy_(share)
