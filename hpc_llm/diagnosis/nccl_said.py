"""Advice to let NCCL say what failed, where it did so already: its line in place of that."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.log import LogFindings
from hpc_llm.text.secrecy import redacted

_ASKS = re.compile(
    r"\bNCCL_DEBUG=\w{1,20}[^\n]{0,300}(?:NCCL WARN|which call failed)|NCCL WARN[^\n]{0,300}\bNCCL_DEBUG="
)
_WORDS = re.compile(r"NCCL WARN (.+)")


def instead_of_asking(remedy: str, logs: Sequence[LogFindings]) -> tuple[str, tuple[str, int, str] | None]:
    """The remedy, and of the line that stands there in place of the advice its file, number and text; None where none does."""
    log = next((one for one in logs if one.nccl_line is not None), None)
    if log is None or log.nccl_line is None or not _ASKS.search(remedy):
        return remedy, None
    number, text = log.nccl_line
    words = _WORDS.search(text)
    told = f"NCCL says in line {number} what failed: {redacted(words[1] if words else text)}"
    lines = [told if _ASKS.search(line) else line for line in remedy.splitlines()]
    return "\n".join(dict.fromkeys(lines)), (log.file, number, text)
