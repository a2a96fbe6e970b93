"""The losses of a run: the first and the last, and where one was no finite number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpc_llm.causes.cause import Sign
from hpc_llm.causes.found import SHOWN, Found
from hpc_llm.causes.numerics import NAN_LOSS
from hpc_llm.causes.verdict import Verdict
from hpc_llm.parsing.told import Told

TOLD_EPOCH = "told_epoch"
"""The epoch in a line that tells its step, too."""


@dataclass
class Losses:
    """Those that were seen so far."""

    first: float | None = None
    last: float | None = None
    not_finite_at: float | None = None
    """The first step whose loss is not a finite number."""
    not_finite_line: str = ""
    """What the log prints of it, where that was kept."""
    ends_not_finite: bool | None = None
    """Whether that of the last step is none; None where no loss was printed."""
    unread: bool = False
    """Whether one was printed that is no number to us: then those that are may be neither the first nor the last."""
    told: Told = field(default_factory=Told)

    def count(self, losses: list[float], steps: Sequence[float | None], epoch: object = None) -> None:
        """The next losses, of these steps; of one alone the epoch may be told, too."""
        self.told.add(losses, steps, epoch if isinstance(epoch, float) else None)
        self.ends_not_finite = not math.isfinite(losses[-1]) if losses else self.ends_not_finite
        if not math.isfinite(sum(losses)):
            for loss, step in zip(losses, steps, strict=False):
                if not math.isfinite(loss):
                    self.note_step(step)
            losses = [loss for loss in losses if math.isfinite(loss)]
        if losses:
            if self.first is None:
                self.first = losses[0]
            self.last = losses[-1]

    def note_step(self, step: float | None) -> None:
        """The loss of this step is no finite number."""
        if self.not_finite_at is None:
            self.not_finite_at = step

    def note_line(self, line: bytes) -> None:
        """Keep the first line of a step whose loss is not a finite number."""
        if not self.not_finite_line and self.not_finite_at is None:
            self.not_finite_line = line[:SHOWN].decode("utf-8", "replace").strip()

    def merge(self, later: Losses) -> None:
        """Go on with those of the next piece of the log."""
        self.unread = self.unread or later.unread
        self.told.merge(later.told)
        if self.first is None:
            self.first = later.first
        if later.last is not None:
            self.last = later.last
        if self.not_finite_at is None:
            self.not_finite_at, self.not_finite_line = later.not_finite_at, later.not_finite_line
        if later.ends_not_finite is not None:
            self.ends_not_finite = later.ends_not_finite

    def reason(self, last: float | None, counts_steps: bool) -> str | None:
        """Where one was none, in words; `last` is the number of the run's last step, or its epoch."""
        at = self.not_finite_at
        if at is None:
            return None
        later = ", and was finite again later" if self.ends_not_finite is False and at != last else ""
        return f"the loss is not a finite number at {'step' if counts_steps else 'epoch'} {at:g}{later}"

    def verdict(self, said: Verdict, reason: str | None) -> Verdict:
        """How a run with these losses ended, of which its messages say so much."""
        if not self.ends_not_finite or (said.root is not None and said.cause is not NAN_LOSS):
            return said
        shown, line = reason or "the loss is not a finite number", self.not_finite_line
        root = Found(NAN_LOSS, Sign("", (), confidence=0.9), line or shown, 0 if line else -1, line=None, reason=shown)
        return Verdict(NAN_LOSS, root.sign.confidence, root, (NAN_LOSS,))
