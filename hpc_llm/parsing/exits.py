"""Processes of which DeepSpeed's launcher says that they ended well: where they are all that it started, the program came to its end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpc_llm.parsing.rules import Value

_LITERAL = b" exits successfully"
_EXIT = re.compile(rb"\bProcess (\d{1,10}) exits successfully\b")
"""The launcher prints it of exit code 0 alone."""


@dataclass
class Exits:
    """Those behind the last step."""

    processes: set[bytes] = field(default_factory=set)

    def look(self, text: bytes, since: int) -> None:
        """Take in what `text` says from there on."""
        if _LITERAL in text:
            self.processes.update(_EXIT.findall(text, since))

    def are_of_all(self, facts: Mapping[str, Value]) -> bool:
        """Whether so many ended well as the launcher had started, on all nodes, as far as it says how many."""
        started = facts.get("launched_ranks")
        return isinstance(started, int) and 0 < started <= len(self.processes)
