"""Functions that others hand to torch.compile are compiled when they are first called.

torch loads its whole compiler as soon as a function is handed to it, called or not: a sixth of the start of a rank.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def compiled_when_called() -> Iterator[None]:
    """For code that decorates functions which may never be called; modules are compiled at once, as always."""
    compile_now = torch.compile
    torch.compile = functools.partial(_when_called, compile_now)
    try:
        yield
    finally:
        torch.compile = compile_now


def _when_called(compile_now: Callable[..., Any], model: Any = None, **options: Any) -> Any:
    if model is None:  # a decorator with options
        return functools.partial(_when_called, compile_now, **options)
    if not inspect.isfunction(model):
        return compile_now(model, **options)
    compiled = functools.cache(lambda: compile_now(model, **options))

    @functools.wraps(model)
    def called(*arguments: Any, **named: Any) -> Any:
        return compiled()(*arguments, **named)

    return called
