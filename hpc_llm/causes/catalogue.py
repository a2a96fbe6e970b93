"""All causes, in the order in which they are listed."""

from __future__ import annotations

from hpc_llm.causes import (
    building,
    communication,
    configuration,
    environment,
    gpus,
    memory,
    node,
    numerics,
    program,
    scheduler,
)
from hpc_llm.causes.cause import Cause

CAUSES: tuple[Cause, ...] = (
    *memory.CAUSES,
    *scheduler.CAUSES,
    *communication.CAUSES,
    *gpus.CAUSES,
    *environment.CAUSES,
    *building.CAUSES,
    *configuration.CAUSES,
    *numerics.CAUSES,
    *node.CAUSES,
    *program.CAUSES,
)

BY_ID = {cause.id: cause for cause in CAUSES}
