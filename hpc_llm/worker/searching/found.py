"""What a search has found, as its result.json says it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.micro_batches import starting_at
from hpc_llm.records.run import Outcome
from hpc_llm.worker.result import SCHEMA
from hpc_llm.worker.searching.choice import Known, known_at, lengths_of
from hpc_llm.worker.searching.tries import Try, TryOutcome

_OUTCOMES = {
    TryOutcome.MEMORY: Outcome.OOM_DEVICE,
    TryOutcome.CLOSE: Outcome.OOM_DEVICE,
    TryOutcome.HANGS: Outcome.TIMEOUT,
}
"""Where nothing fits and the try itself does not say which memory it was."""


@dataclass(frozen=True)
class Found:
    """How a search ended, and the sentence that says so."""

    outcome: Outcome
    reason: str | None
    sentence: str

    @property
    def exit_code(self) -> int:
        return 0 if self.outcome in (Outcome.COMPLETED, Outcome.INVALID) else 1


def ending(plan: Plan, tries: Sequence[Try], unfinished: str | None) -> Found:
    """The end of a search; `unfinished` says why it ended before all was known."""
    found = [known_at(length, plan, tries) for length in lengths_of(plan)]
    sentence = "; ".join(_sentence(known) for known in found if known.tries) or "nothing was tried"
    if unfinished is not None:
        return Found(Outcome.INVALID, f"{unfinished}; so far: {sentence}", f"{unfinished}; {sentence}")
    if any(known.largest for known in found):
        return Found(Outcome.COMPLETED, None, sentence)
    last = found[0].tries[-1]
    named = last.outcome in (Outcome.OOM_DEVICE.value, Outcome.OOM_HOST.value)
    outcome = Outcome(last.outcome) if named else _OUTCOMES.get(last.verdict, Outcome.FAILED)
    if outcome is Outcome.FAILED:
        return Found(
            outcome, f"no size ran; the last, a micro batch of {last.size}, {last.verdict.value}: {last.why}", sentence
        )
    return Found(outcome, f"not even a micro batch of {last.size} fits: {last.why}", sentence)


def document(plan: Plan, tries: Sequence[Try], end: Found, began: float) -> Mapping[str, Any]:
    """The content of result.json; `began` is Unix time."""
    return {
        "schema": SCHEMA,
        "outcome": end.outcome.value,
        "outcome_reason": end.reason,
        "invalid_reason": end.reason if end.outcome is Outcome.INVALID else None,
        "world_size": plan.parallel.world_size,
        "started_at": datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="seconds"),
        "elapsed_s": time.time() - began,
        "search": [_at(known_at(length, plan, tries), plan) for length in lengths_of(plan)],
        "tries": [_row(one) for one in tries],
    }


def _at(known: Known, plan: Plan) -> dict[str, Any]:
    """What was found at one length: sizes that ran there, and none besides."""
    limit = known.limit
    return {
        "sequence_length": known.length,
        "largest": _figures(known, known.largest, plan),
        "fastest": _figures(known, known.fastest, plan),
        "faster_unconfirmed": _figures(known, next(iter(known.faster_unconfirmed), None), plan),
        "does_not_fit": None if limit is None else {"micro_batch_size": limit, "why": _why(known, limit)},
        "no_larger": _no_larger(known) or None,
    }


def _no_larger(known: Known) -> str:
    """Why no larger size was tried where the largest of all fits; empty where it does not."""
    if known.largest != known.sizes.largest:
        return ""
    kept = known.sizes.share == known.largest
    return "the kept global batch has no more sequences for a rank" if kept else "no larger size is tried"


def _figures(known: Known, size: int | None, plan: Plan) -> dict[str, Any] | None:
    """The longest try of a size, with the batch that it makes."""
    if size is None:
        return None
    ran = [one for one in known.tries if one.size == size and one.verdict is TryOutcome.FITS]
    best = max(ran, key=lambda one: (one.confirms, one.number))
    batch = starting_at(plan, size, known.length).batch
    return {
        "micro_batch_size": size,
        "gradient_accumulation_steps": batch.gradient_accumulation_steps,
        "global_batch_size": batch.global_batch_size,
        "confirmed": best.confirms,
        "try": best.number,
        "tokens_per_second": best.tokens_per_second,
        "step_time_s_mean": best.step_time_s,
        **best.peaks,
    }


def _why(known: Known, size: int) -> str:
    last = next(one for one in reversed(known.tries) if one.size == size and one.verdict is not TryOutcome.FITS)
    return last.verdict.value + (f": {last.why}" if last.why else "")


def _row(one: Try) -> dict[str, Any]:
    return {
        "try": one.number,
        "micro_batch_size": one.size,
        "sequence_length": one.length,
        "confirms": one.confirms,
        "verdict": one.verdict.name,
        "why": one.why,
        "tokens_per_second": one.tokens_per_second,
        "seconds": one.seconds,
        "folder": str(one.folder),
    }


def _sentence(known: Known) -> str:
    """`sequence length 350: largest 14 (confirmed), fastest 8 (1234 tokens/s); 15: out of memory`."""
    largest, fastest = known.largest, known.fastest
    head = f"sequence length {known.length}: "
    if largest is None or fastest is None:
        return f"{head}{_of_none(known)}"
    confirmed = "confirmed" if known.fits(largest, confirms=True) else "not confirmed"
    verdicts = [one.verdict for one in known.tries if one.size == known.limit and one.verdict.is_conclusive]
    limit = f", {known.limit} {(verdicts or [TryOutcome.LOST])[-1].value}" if known.limit is not None else ""
    limit = limit or (f"; {why}" if (why := _no_larger(known)) else "")
    rates = [f"{_digits(known.best_rate(fastest))} tokens/s"]
    rates += [
        f"{size} had {_digits(known.rate(size))} in a short try, not confirmed" for size in known.faster_unconfirmed[:1]
    ]
    return f"{head}largest {largest} ({confirmed}), fastest {fastest} ({'; '.join(rates)}){limit}"


def _of_none(known: Known) -> str:
    """What is said where no size ran: that memory is short only where a try says so."""
    verdicts = {one.verdict for one in known.tries}
    if verdicts & {TryOutcome.MEMORY, TryOutcome.CLOSE}:
        return "none fits"
    if TryOutcome.HANGS in verdicts:
        return "none was over in time"
    last = next((one for one in reversed(known.tries) if one.verdict is TryOutcome.FAILED), None)
    if last is None:
        return "nothing is known, each try was lost or cut off"
    return f"every try failed: {last.why}" if last.why else "every try failed"


def _digits(rate: float) -> str:
    """Four of them, and never a power of ten.

    >>> _digits(3.14159), _digits(19477.21)
    ('3.142', '19477')
    """
    return f"{rate:.4g}" if rate < 1000 else f"{rate:.0f}"
