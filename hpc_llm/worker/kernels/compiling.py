"""Whether this node can compile for its device, and what a compiler leaves as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

_LONGEST = 200
_LOGGER = logging.getLogger("torch._dynamo")


def compiler_lack(device: torch.device) -> str | None:
    """Why nothing can be compiled here, in a clause; None where a small function could be, forward and backward."""
    try:
        x = torch.ones(8, device=device, requires_grad=True)
        with failing():
            torch.compile(_small, dynamic=False)(x).backward()
    except Exception as error:  # whatever a compiler may raise, or the one that it calls
        return one_line(error)
    return None


def failing() -> Any:
    """Inside, what cannot be compiled raises, whatever was said of layers."""
    import torch._dynamo

    return torch._dynamo.config.patch(suppress_errors=False)


def _small(x: torch.Tensor) -> torch.Tensor:
    return (x * x + 1.0).sum()


def one_line(error: BaseException) -> str:
    """What went wrong, as one line of bounded length."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__


class CompiledLayers:
    """Layers that are compiled when they first run; one that cannot be runs as it was made, and a sentence says so."""

    def __init__(self, layers: Iterable[nn.Module], device: torch.device) -> None:
        self.sentences: list[str] = []
        self.is_on = False
        self._listener = _Listener(self)
        lack = compiler_lack(device)
        if lack is not None:
            self.sentences.append(f"The layers run uncompiled, for nothing can be compiled here: {lack}")
            return
        import torch._dynamo

        torch._dynamo.config.suppress_errors = True  # a run that is slower is better than one that died
        _LOGGER.addHandler(self._listener)
        for layer in layers:
            layer.compile()
            self.is_on = True

    def close(self) -> None:
        """Listen to the compiler no more."""
        _LOGGER.removeHandler(self._listener)

    def heard(self, message: str) -> None:
        if not self.sentences:
            self.sentences.append(f"Not all of the layers runs compiled: {message}")


class _Listener(logging.Handler):
    """Hears what the compiler warns of: it tells nobody else that it left something as it was."""

    def __init__(self, layers: CompiledLayers) -> None:
        super().__init__(logging.WARNING)
        self._layers = layers

    def emit(self, record: logging.LogRecord) -> None:
        self._layers.heard((record.getMessage().strip() or record.name).splitlines()[0][:_LONGEST])
