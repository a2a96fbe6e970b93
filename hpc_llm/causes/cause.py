"""What a cause of failure is: data, so that a new one is an entry in one of the modules beside this one.

Patterns run over blocks of bytes with `^` and `$` at lines; they must not cross a line. Where words follow `^`, the labels that
launchers write before a line are passed over. A named group becomes a detail of the diagnosis.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from hpc_llm.records.run import Outcome
from hpc_llm.text.labels import behind_labels

TRAINED_ON = 8
"""So many training steps after a message say that the program went on in spite of it."""
STARTED = 1
"""For messages from before training: one step says that the program could do without."""


class Role(str, Enum):
    """What a message says about the end of a run."""

    ROOT = "root"
    """It can be what everything else follows from."""
    CASCADE = "cascade"
    """It follows from something else: another rank died first, or the job was taken down."""
    CONFIRMATION = "confirmation"
    """It says that something died, and not of what."""


@dataclass(frozen=True)
class Sign:
    """A text by which a cause shows."""

    source: str
    """The pattern, compiled when one of the literals was seen: most logs need few."""
    literals: tuple[bytes, ...]
    """Every match contains one of these texts: a quick way to skip a block."""
    role: Role = Role.ROOT
    confidence: float = 0.95
    """How sure the cause is from this text alone, 0 to 1."""
    precedence: int | None = None
    """Instead of the cause's own, for a text that says more or less than the others."""
    survived_after: int = TRAINED_ON
    """So many training steps after it say that it did no harm."""
    remedy: str | None = None
    """Instead of the cause's own, where this text tells more."""
    retry: bool | None = None
    after: bytes | None = None
    """Counts only where this stands in the few lines before it, as in the code that a traceback quotes."""
    not_after: bytes | None = None
    """Counts only where this does not stand before it."""
    where: Callable[[bytes, int], bool] | None = None
    """Counts only where this says so of the text and the position in it."""
    at_any_time: bool = False
    """Speaks of all the time before it: training that came to its end did so in spite of it."""
    ends_job: bool = False
    """Says that the job, or a program that it started, ended with an error: also where training had come to its end before."""
    explains_later: frozenset[str] = frozenset()
    """Causes besides those of its own cause that follow from this text where their messages come after it."""
    meaning: str | None = None
    """Instead of the cause's own, where this text says another thing."""

    @functools.cached_property
    def pattern(self) -> re.Pattern[bytes]:
        return re.compile(behind_labels(self.source).encode(), re.MULTILINE)


@dataclass(frozen=True, repr=False)
class Cause:
    """One way for a run to fail."""

    id: str
    title: str
    meaning: str
    """What it means, in one or two sentences."""
    remedy: str
    """What to do, with the exact flags; one action a line, the first one first."""
    retry: bool
    """Whether the same job may be submitted again as it is."""
    precedence: int
    """Of several causes in one log the one with the highest number is the root."""
    outcome: Outcome = Outcome.FAILED
    """How a run is listed that ended of this."""
    signs: tuple[Sign, ...] = ()
    explains: frozenset[str] = frozenset()
    """Causes that follow from this one even when their messages come first."""
    explains_later: frozenset[str] = frozenset()
    """Causes that follow from this one where their messages come after its own, and not where they come first."""
    undone_by_end: bool = True
    """Whether a run that reached its end after the messages has nothing to complain of."""

    def __repr__(self) -> str:
        return f"<Cause {self.id}>"  # its signs fill pages, and what else it says stands in a diagnosis

    def __reduce__(self) -> tuple[Callable[[str], Cause], tuple[str]]:
        return _listed, (self.id,)  # what another process read is of the same causes


def _listed(cause_id: str) -> Cause:
    from hpc_llm.causes.catalogue import all_causes  # it lists what this module defines

    return all_causes()[cause_id]


def sign(
    literals: str | tuple[str, ...],
    pattern: str | None = None,
    *,
    role: Role = Role.ROOT,
    confidence: float = 0.95,
    precedence: int | None = None,
    survived_after: int = TRAINED_ON,
    remedy: str | None = None,
    retry: bool | None = None,
    after: str | None = None,
    not_after: str | None = None,
    where: Callable[[bytes, int], bool] | None = None,
    at_any_time: bool = False,
    ends_job: bool = False,
    explains_later: frozenset[str] = frozenset(),
    meaning: str | None = None,
) -> Sign:
    """A sign; without a pattern the literals themselves are it."""
    texts = (literals,) if isinstance(literals, str) else literals
    return Sign(
        pattern or "|".join(map(re.escape, texts)),
        tuple(t.encode() for t in texts),
        role,
        confidence,
        precedence,
        survived_after,
        remedy,
        retry,
        after.encode() if after else None,
        not_after.encode() if not_after else None,
        where,
        at_any_time,
        ends_job,
        explains_later,
        meaning,
    )
