"""What plain PyTorch and FSDP2 share: the optimizer of the plan, fp32 copies of what it trains, loss scaling, clipping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.errors import WorkerError, unknown_name
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import NAMES, PURE_BF16, bitsandbytes_name
from hpc_llm.planning.parts import OptimizerSetup
from hpc_llm.worker.compiled_late import compiled_when_called
from hpc_llm.worker.device import torch_release
from hpc_llm.worker.engines.engine import StepEnd
from hpc_llm.worker.engines.held import Bytes, bytes_of, optimizer_tensors
from hpc_llm.worker.engines.pure_bf16 import AdamWBF16


def make_optimizer(setup: OptimizerSetup, parameters: Sequence[torch.Tensor], seed: int = 0) -> torch.optim.Optimizer:
    """The optimizer that the plan names, over `parameters`; `seed` is for what it rounds at random.

    Adam decays weights as AdamW does, as it does in DeepSpeed: with the same plan all engines train the same.
    """
    shared: dict[str, Any] = {
        "lr": setup.lr,
        "betas": tuple(setup.betas),
        "eps": setup.eps,
        "weight_decay": setup.weight_decay,
    }
    if setup.type in ("AdamW", "Adam"):
        fused = all(parameter.is_cuda for parameter in parameters)
        return torch.optim.AdamW(parameters, fused=fused or None, **shared)
    if setup.type in PURE_BF16:
        return AdamWBF16(parameters, seed=seed, **shared)
    return bitsandbytes_optimizer(setup.type, parameters, shared)


def bitsandbytes_optimizer(
    kind: str, parameters: Sequence[torch.Tensor], values: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """An optimizer that keeps its moments in 8 bits. Raises WorkerError where there is none of that name."""
    name = bitsandbytes_name(kind)
    if name is None:
        raise WorkerError(unknown_name("optimizer", kind, NAMES))
    try:
        with compiled_when_called():
            import bitsandbytes
    except ImportError as error:
        raise WorkerError(f"the optimizer {kind} needs bitsandbytes, which cannot be imported: {error}.") from error
    build: Any = getattr(bitsandbytes.optim, name)
    optimizer: torch.optim.Optimizer = build(parameters, **values)
    return optimizer


SCALE = "scale"
"""By what losses are multiplied in fp16, as every engine says it."""


class Masters:
    """fp32 copies of parameters in a lower precision: a small update would be rounded away there.

    A parameter that is in fp32 is its own copy; where there are to be no `copies`, each is.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], copies: bool = True) -> None:
        lows = [low for low in parameters if copies and low.dtype != torch.float32]
        self._pairs = [(low, low.detach().float().requires_grad_()) for low in lows]
        masters = {id(low): master for low, master in self._pairs}
        self.parameters: list[torch.Tensor] = [masters.get(id(parameter), parameter) for parameter in parameters]

    @property
    def has_copies(self) -> bool:
        """Whether a parameter is in a lower precision."""
        return bool(self._pairs)

    def collect(self) -> None:
        """Add the gradients of the parameters to those of their copies, in fp32, and forget them."""
        for low, master in self._pairs:
            if low.grad is None:
                continue
            master.grad = low.grad.float() if master.grad is None else master.grad.add_(low.grad)
            low.grad = None

    def write_back(self) -> None:
        """Round the copies into the parameters."""
        if self._pairs:
            with torch.no_grad():
                torch._foreach_copy_([low for low, _ in self._pairs], [master for _, master in self._pairs])


_NEVER = 2**31 - 1
"""Steps after which a scale grows that is fixed."""


Clip = Callable[[Sequence[torch.Tensor], float], torch.Tensor]
"""From parameters with gradients and the largest norm, 0 for none, to the norm of all gradients, which are made shorter."""


class Stepper:
    """Clips, scales and steps one optimizer."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups

    def held(self, model: nn.Module) -> dict[str, Bytes]:
        """Bytes of gradients and optimizer on this rank; the first are seen at the end of a step."""
        found = {"optimizer": bytes_of(optimizer_tensors(self.optimizer, model))}
        return found if self._gradients is None else {"gradients": self._gradients, **found}

    def steering(self) -> dict[str, Any]:
        """What the loss scaler knows."""
        return {} if self._scaler is None else {SCALE: self._scaler.get_scale(), "scaler": self._scaler.state_dict()}

    def take_steering(self, found: Mapping[str, Any]) -> None:
        """Go on with the scale of another run; nothing where one of the two has no scaler: the precision may be another now."""
        if self._scaler is None or SCALE not in found or self._scaler.get_growth_interval() == _NEVER:
            return
        since = found.get("scaler", {}).get("_growth_tracker", 0)
        self._scaler.load_state_dict({**self._scaler.state_dict(), SCALE: found[SCALE], "_growth_tracker": since})

    def __init__(
        self,
        plan: Plan,
        parameters: Sequence[torch.Tensor],
        device: torch.device,
        clip: Clip | None = None,
        group: Any = None,
    ) -> None:
        """`clip` gives the norm of the gradients and makes them shorter; left out, torch's does.

        `group` is of the ranks that have other gradients, and skip a step together; none where no rank skips one alone.
        """
        self._parameters, self._group = list(parameters), group
        self._clips = clip or _clip
        self._largest_norm = float(plan.engine.deepspeed.get("gradient_clipping") or 0.0)
        self.optimizer = make_optimizer(plan.optimizer, self._parameters, plan.workload.seed)
        self._scaler = _scaler(plan, device)
        self._gradients: Bytes | None = None

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss from which gradients are to be taken: larger, where fp16 would lose small ones."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def step(self) -> StepEnd:
        """Change the parameters by their gradients and forget these."""
        if self._gradients is None:
            self._gradients = bytes_of(each.grad for each in self._parameters if each.grad is not None)
        if self._scaler is None:
            norm = self._clips(self._parameters, self._largest_norm)
            self.optimizer.step()
            skipped = False
        else:
            self._scaler.unscale_(self.optimizer)
            self._agree()
            norm = self._clips(self._parameters, self._largest_norm)
            before = self._scaler.get_scale()
            self._scaler.step(self.optimizer)
            self._scaler.update()
            skipped = self._scaler.get_scale() < before
        self.optimizer.zero_grad(set_to_none=True)
        return StepEnd(norm, skipped)

    def _agree(self) -> None:
        """Let the scaler skip the step where a gradient of any rank of the group has overflowed. Collective."""
        if self._group is not None and self._scaler is not None:
            for found in self._scaler._found_inf_per_device(self.optimizer).values():
                dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self._group)


def _clip(parameters: Sequence[torch.Tensor], largest: float) -> torch.Tensor:
    norm = nn.utils.clip_grad_norm_(parameters, largest or float("inf"))
    whole = getattr(norm, "full_tensor", None)  # of gradients that are split among ranks
    return norm if whole is None else whole()


def _scaler(plan: Plan, device: torch.device) -> Any:
    """A loss scaler with the settings of DeepSpeed's fp16 block, whose defaults are meant where it is silent."""
    if plan.model.precision != "fp16":
        return None
    block = plan.engine.deepspeed.get("fp16") or {}
    fixed = float(block.get("loss_scale") or 0.0)
    if fixed:
        return _grad_scaler(device, init_scale=fixed, growth_interval=_NEVER, backoff_factor=1.0 - 1e-9)
    return _grad_scaler(
        device,
        init_scale=2.0 ** float(block.get("initial_scale_power", 16)),
        growth_interval=int(block.get("loss_scale_window", 1000)),
    )


def _grad_scaler(device: torch.device, **values: Any) -> Any:
    if torch_release() >= (2, 3):
        return torch.amp.GradScaler(device.type, **values)
    if device.type != "cuda":
        raise WorkerError(f"torch {torch.__version__} scales no losses on the CPU: choose precision bf16 or fp32.")
    return torch.cuda.amp.GradScaler(**values)
