"""Exceptions in which a rank says that NCCL failed under it, where another rank raised one of its own: that rank was gone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.found import Found
from hpc_llm.causes.outlived import PASSED_ON, SPEAKS_OF_OTHERS

_OF_NCCL = re.compile(
    r"ncclInternalError|ncclRemoteError|\bNCCL error\b.{0,300}\b(?:internal error|remote process exited)|[Ss]ocket recv failed"
)
"""NCCL's words for a peer that does not answer as it should; of a call of the system or of CUDA that failed it has others."""
_TOLD_TO_END = re.compile(r"Interrupt|Signal|Terminat|[Aa]bort")
_NAMED = "python_exception"
_STEP = 1
"""By so much ranks that wait for one another may differ."""


def without_relayed(roots: list[Found]) -> list[Found]:
    """Leave out what a rank says of NCCL where another one has an exception of its own."""
    own = [one for one in roots if _is_own(one)]
    return [one for one in roots if not _is_relayed(one, own)] if own else roots


def _is_own(one: Found) -> bool:
    is_raised = one.rank is not None and one.cause.id == _NAMED and one.is_raised and one.ends_process
    return is_raised and not any(words.search(one.text) for words in (SPEAKS_OF_OTHERS, PASSED_ON, _TOLD_TO_END))


def _is_relayed(one: Found, own: Sequence[Found]) -> bool:
    if one.rank is None or one.cause.id != _NAMED or _OF_NCCL.search(one.text) is None:
        return False
    return any(
        one.rank != other.rank and one.file == other.file and abs(one.steps_after - other.steps_after) <= _STEP
        for other in own
    )
