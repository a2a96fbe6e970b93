"""How far a search for the micro batch has come: its try, and the best of those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.planning.experiment import flat_plan
from hpc_llm.records.files import read_json
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs.fields import Fields

_MOST = 1000
"""Tries that are looked at: no search of ours has more, and the folder may be anybody's."""


def search_progress(run: RunPaths) -> str | None:
    """`try 3: micro batch 4 x 64; fastest so far 2 x 64 with 812 tokens/s`, None where there is no try yet."""
    tries = run.search_tries()[-_MOST:]
    if not tries:
        return None
    number, last = tries[-1]
    measured = [(rate, one) for _, one in tries if (rate := _rate(one)) is not None]
    said = f"try {number}: micro batch {_size(last)}"
    if not measured:
        return said
    rate, fastest = max(measured, key=lambda one: one[0])
    return f"{said}; fastest so far {_size(fastest)} with {rate:.0f} tokens/s"


def search_found(result: Mapping[str, Any]) -> str | None:
    """`64 tokens: largest micro batch 8, fastest 4 with 812 tokens/s` of a search that is over, None where it has found nothing."""
    places = result.get("search")
    said = (
        [_found_at(Fields(one)) for one in places[:_MOST] if isinstance(one, dict)] if isinstance(places, list) else []
    )
    return "; ".join(filter(None, said)) or None


def _found_at(place: Fields) -> str | None:
    length = place.whole("sequence_length", least=1)
    found = [place.mapping(name) or {} for name in ("largest", "fastest", "faster_unconfirmed")]
    largest, fastest, faster = map(Fields, found)
    most, best = (one.whole("micro_batch_size", least=1) for one in (largest, fastest))
    if not (length and most and best):
        return None
    pace = _pace(fastest)
    if other := faster.whole("micro_batch_size", least=1):
        pace += f" of those that were confirmed, {other}{_pace(faster)} in a short try"
    elif found[1].get("confirmed") is False:
        pace += " in a short try, not confirmed"
    return f"{length} tokens: largest micro batch {most}, fastest {best}{pace}"


def _pace(one: Fields) -> str:
    rate = one.rate("tokens_per_second")
    return "" if rate is None else f" with {rate:.0f} tokens/s"


def _size(one: RunPaths) -> str:
    """Sequences and tokens of each."""
    plan = (read_json(one.experiment) or {}).get("plan")
    fields = Fields(flat_plan(plan) if isinstance(plan, dict) else {})
    micro, length = (fields.whole(name, least=1) for name in ("micro_batch_size", "sequence_length"))
    return f"{micro or '?'} x {length or '?'}"


def _rate(one: RunPaths) -> float | None:
    """Tokens/s of a try that completed."""
    fields = Fields(read_json(one.result) or {})
    return fields.rate("tokens_per_second") if fields.text("outcome") == Outcome.COMPLETED.value else None
