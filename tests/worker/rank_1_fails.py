"""The training program, but rank 1 breaks in its fourth step."""

from __future__ import annotations

import os
from typing import Any

from hpc_llm.worker import loop
from hpc_llm.worker.pretrain_llm import command

step, calls = loop.take_step, []


def failing(*arguments: Any) -> Any:
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 4:
        raise ValueError("broken on purpose")
    return step(*arguments)


loop.take_step = failing
command()
