"""What fails after training has come to its end: saving, another stage, or the ending of the program itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hpc_llm.causes.found import Found
from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.outlived import TAKEN_DOWN
from hpc_llm.parsing.streams import pairs

_LOOK = "see first whether what it saved last is there whole: if so training need not be run again, else it goes on from the last checkpoint that is"
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
    if root is None or not root.is_root or root.line is None or cause in TAKEN_DOWN:
        return None
    log = _ended_before(root, logs)
    if log is None or log.ended_line is None:
        return None
    is_elsewhere = log.file != root.file
    place = f"line {log.ended_line[0]}{f' of {Path(log.file).name}' if is_elsewhere else ''}"
    if _OF_A_BENCHMARK.search(log.ended_line[1]):
        return f"The measurement had come to its end before that ({place}): its figures are there.", remedy
    saved = log.saved_line if log.saved_line and (is_elsewhere or log.saved_line[0] < root.line) else None
    is_saved = f"line {saved[0]} says what it saved: {saved[1]}" if saved else _NOTHING_SAVED
    is_ending = cause in _IN_ITS_ENDING or _TEARS_DOWN.search(root.text) is not None
    lines = [_LOOK, *([_ORDERLY] if is_ending else []), *([] if is_ending and saved else [remedy])]
    return f"Training had come to its end before that ({place}); {is_saved}.", "\n".join(lines)


def _ended_before(root: Found, logs: Sequence[LogFindings]) -> LogFindings | None:
    """The log in which training came to its end before what failed: the same one, or the output where this stands in the errors alone.

    Which line of two files came first nobody says. But what ends a program ends its training, so a training that came to
    its end had done so before; unless the errors show another one.
    """
    own = next((log for log in logs if log.file == root.file), None)
    if own is None or root.line is None:
        return None
    if own.ended_line is not None and own.ended_at is not None:
        return own if own.ended_line[0] < root.line else None
    output = pairs(Path(log.file) for log in logs).get(own.file)
    found = next((log for log in logs if log.file == output and log.ended_at is not None), None)
    return None if own.has_steps else found
