"""What the tests submit. Not in conftest.py: each folder of tests has one, and only one can be imported by that name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import hpc_llm

ASKED = {"cluster": "local", "model": "tiny", "sequence-length": 32, "micro-batch-size": 2, "steps": 6}
"""As an experiment file would say it."""


@dataclass(frozen=True)
class Trained:
    """What was submitted, and where."""

    logs: Path
    good: list[hpc_llm.Run]
    bad: hpc_llm.Run

    @property
    def all(self) -> list[hpc_llm.Run]:
        return [*self.good, self.bad]
