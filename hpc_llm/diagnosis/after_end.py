"""What fails after training has come to its end: saving, another stage, or the ending of the program itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.outlived import TAKEN_DOWN
from hpc_llm.causes.search import Found

_LOOK = "see first whether what it saved is there whole: training need not be run again for it"
_NOTHING_SAVED = "the output does not say that it saved its model"
_OF_A_BENCHMARK = re.compile(r"Successful requests|Throughput: |(?:percentile|Avg) latency: ")
"""In the line with which something ended that measures how fast answers come: nothing is trained there, and nothing saved."""
_IN_ITS_ENDING = frozenset(("segfault", "collective_timeout", "unreachable"))
"""What comes of taking down libraries, threads and process groups."""
_TEARS_DOWN = re.compile(
    r"destroy_process_group|interpreter shutdown|finaliz|terminate called without an active exception"
)
_ORDERLY = (
    "where the model is whole, nothing is lost: wait for all ranks (torch.distributed.barrier()), then call "
    "torch.distributed.destroy_process_group() as the program's last step"
)


def told(cause: str, remedy: str, root: Found | None, logs: Sequence[LogFindings]) -> tuple[str, str] | None:
    """What to say of a failure behind the end of training, and the advice then; None where it is not behind one."""
    log = next((log for log in logs if root is not None and log.file == root.file), None)
    if log is None or root is None or not root.is_root or root.line is None or cause in TAKEN_DOWN:
        return None
    if log.ended_line is None or log.ended_at is None or log.ended_line[0] >= root.line:
        return None
    if _OF_A_BENCHMARK.search(log.ended_line[1]):
        what = f"The measurement had come to its end before that (line {log.ended_line[0]}): its figures are there."
        return what, remedy
    saved = log.saved_line if log.saved_line and log.saved_line[0] < root.line else None
    is_saved = f"line {saved[0]} says what it saved: {saved[1]}" if saved else _NOTHING_SAVED
    is_ending = cause in _IN_ITS_ENDING or _TEARS_DOWN.search(root.text) is not None
    lines = [_LOOK, *([_ORDERLY] if is_ending else []), *([] if is_ending and saved else [remedy])]
    return f"Training had come to its end before that (line {log.ended_line[0]}); {is_saved}.", "\n".join(lines)
