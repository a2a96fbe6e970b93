"""Steps of a program that no format knows, by how their lines look: so many say that it went on after a message."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from hpc_llm.causes import life
from hpc_llm.parsing.matches import stream_of

_NUMBER = re.compile(
    rb"(?i)\b(?:global_?)?(?:step|iter(?:ation)?|num_updates|batch)s?['\"]?[ :=#\[(]{1,12}(\d{1,12})\b"
)
_RECENT = 4


@dataclass
class Lookalikes:
    """Finds them in the pieces of one run's text. What several ranks print of one step counts once, as rank by rank it would
    say of a crash in one that training went on."""

    count: int = 0
    stream: bytes | None = None
    """Prefix of the rank whose lines are counted."""
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Numbers of the last steps, where the lines have them."""

    def of(self, text: bytes) -> list[int]:
        """Their positions in the next piece, rising."""
        found = [start for start in life.steps(text) if self._is_another(text, start)]
        self.count += len(found)
        return found

    def _is_another(self, text: bytes, start: int) -> bool:
        stream = stream_of(text, start)
        if self.stream is None:
            self.stream = stream
        line = text.rfind(b"\n", 0, start) + 1
        end = text.find(b"\n", start)
        number = _NUMBER.search(text, line, end if end >= 0 else len(text))
        if stream != self.stream or (number is not None and number[1] in self.recent):
            return False
        if number is not None:
            self.recent.append(number[1])
        return True
