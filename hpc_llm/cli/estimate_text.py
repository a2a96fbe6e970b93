"""Estimates for reading, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hpc_llm.cli.time_text import WIDTH, time_lines, wrapped
from hpc_llm.text.shown import one_line
from hpc_llm.text.tables import fits, table

if TYPE_CHECKING:
    from hpc_llm.estimating.parts import Estimate, Memory, Need

_GIB = 2**30
_SAID_ONCE = ("cluster", "GPUs")
"""Columns that stand above a table that is too wide, where all rows have the same there."""


def gib(size: float | None) -> str:
    """In GiB, with as many digits as tell something."""
    if size is None:
        return "unknown"
    value = size / _GIB
    return f"{value:.0f} GiB" if value >= 100 else f"{value:.1f} GiB" if value >= 1 else f"{value:.2f} GiB"


def one_screen(estimate: Estimate) -> Iterator[str]:
    """Everything about one run."""
    yield from wrapped(_title(estimate))
    memory = estimate.memory
    if memory is None:
        yield from wrapped(f"refused: {estimate.refused}")
        return
    if memory.device:
        device = memory.device
        yield ""
        yield _place("device, each GPU", device)
        yield from _terms(device)
        yield f"  {'outside the allocator, about':<34}{gib(device.outside):>10}"
        if device.fragments:
            yield f"  {'in pieces that may be of no use':<34}{gib(device.fragments):>10}"
        yield f"  the peak is at: {device.moment}"
    yield ""
    yield _place("host, each node", memory.host)
    yield from _terms(memory.host)
    yield ""
    if estimate.recomputed is not None:
        yield from wrapped(f"recomputed: {estimate.recomputed}")
    if estimate.checkpoint is not None:
        yield f"a checkpoint takes {gib(estimate.checkpoint)}, the run keeps up to {gib(estimate.disk)}"
    if estimate.largest_micro_batch is not None:
        more = " or more" if estimate.is_unlimited else ""
        yield f"largest micro batch that fits: {estimate.largest_micro_batch or 'none'}{more}"
    if estimate.fewest_gpus is not None:
        yield f"fewest GPUs for this batch: {estimate.fewest_gpus}"
    if estimate.time:
        yield ""
        yield from time_lines(estimate.time, can_run=estimate.verdict.value != "does_not_fit")
    for note in estimate.all_notes:
        yield from wrapped(f"note: {note}")
    yield f"verdict: {estimate.verdict_words}"


def places(memory: Memory) -> Iterator[str]:
    """A line for the GPU, where there is one, and one for the host."""
    if memory.device:
        yield _place("device, each GPU", memory.device)
    yield _place("host, each node", memory.host)


def _title(estimate: Estimate) -> str:
    gpus = f"{estimate.gpus} x {estimate.gpu}" if estimate.gpu else "the CPU"
    return one_line(
        f"{estimate.model}, {estimate.method}, {estimate.micro_batch_size} x {estimate.sequence_length} on {gpus} "
        f"({estimate.cluster})"
    )


def _place(what: str, need: Need) -> str:
    size = f"{gib(need.low)} to {gib(need.high)}"
    if need.capacity is None and need.of_node is not None:
        return f"{what}: {size} of {gib(need.of_node)} (a job's share is not said)"
    if need.capacity is None:
        return f"{what}: {size} (nobody says how much there is)"
    least = need.capacity_low
    is_short = need.verdict.value == "too_close" and least is not None and least < need.capacity
    left = f"\n  no more than {gib(least)} of that may be free" if is_short else ""
    return f"{what}: {need.verdict.words}, {size} of {gib(need.capacity)}{left}"


def _terms(need: Need) -> Iterator[str]:
    for name, size in sorted(need.breakdown.items(), key=lambda one: -one[1]):
        yield f"  {name:<34}{gib(size):>10}"
    yield f"  {'together':<34}{gib(need.peak):>10}"


def ranking(found: Sequence[Estimate]) -> Iterator[str]:
    """What the runs have in common, one line a run, and why there can be no such run below."""
    kept = [one for one in found if not one.refused]
    has_one_model, has_one_batch = len({one.model for one in kept}) == 1, len({_batch(one) for one in kept}) == 1
    where = "each GPU" if any(one.gpu for one in kept) else "the CPU"
    if has_one_model:
        yield from wrapped(f"{kept[0].model}{f', {_batch(kept[0])} on {where}' if has_one_batch else ''}")
    first = "run" if any(one.run for one in kept) else "method"
    # A table of other models or batches says which, as their speeds are not to be compared.
    headers = ["cluster", first, "GPUs", "verdict", "GiB", "host", "tokens/s", "GPU-h", "model", "batch"]
    rows = [[*_row(one), "" if has_one_model else one.model, "" if has_one_batch else _batch(one)] for one in kept]
    said = [column for column in range(len(headers)) if any(row[column] for row in rows)]
    if len(rows) > 1 and not fits([[row[i] for i in said] for row in rows], [headers[i] for i in said], WIDTH):
        shared = [i for i in said if headers[i] in _SAID_ONCE and len({row[i] for row in rows}) == 1]
        said = [i for i in said if i not in shared]
        if shared:
            yield from wrapped("all: " + ", ".join(f"{headers[i]} {rows[0][i]}" for i in shared))
    yield from table([[row[i] for i in said] for row in rows], [headers[i] for i in said], WIDTH)
    legend = {"GiB": "of each GPU", "host": "GiB of each node", "GPU-h": "GPU-hours for a billion tokens"}
    if told := [f"{headers[i]}: {legend[headers[i]]}" for i in said if headers[i] in legend]:
        yield from wrapped("; ".join(told))
    chosen = [(one, one.recomputed) for one in kept if one.recomputed and "," in one.recomputed]  # with its reason
    yield from _by_reason("recomputed by", chosen)
    yield from _by_reason("fits the GPUs of", [(one, one.unsaid) for one in kept])
    yield from _by_reason("no time of", [(one, one.untimed) for one in kept])
    yield from _rough(kept)
    stand_ins = dict.fromkeys(one.stands_in for one in kept if one.stands_in)
    for sentence in stand_ins:
        yield from wrapped(sentence)
    yield from _by_reason("not", [(one, one.refused) for one in found])


def _by_reason(what: str, reasons: Sequence[tuple[Estimate, str | None]]) -> Iterator[str]:
    """One sentence a reason, which names all runs that it holds for."""
    runs: dict[str, list[str]] = {}
    for one, why in reasons:
        if why:
            runs.setdefault(why, []).append(f"{one.cluster} {one.run or one.method}")
    for why, names in runs.items():
        yield from wrapped(f"{what} {', '.join(names)}: {why}")


def _rough(found: Sequence[Estimate]) -> Iterator[str]:
    """How far off the times of a table may be, where that is more than a figure may go without saying."""
    off = [one.time.interval[1] / one.time.step_time_s for one in found if one.time and one.time.notes]
    if off:
        yield from wrapped(
            f"times are rough where nothing like a run was measured: up to {max(off):.1f} times longer or shorter here; estimate one run to see its interval, and why"
        )


def _row(one: Estimate) -> list[str]:
    device, host = (one.memory.device, one.memory.host) if one.memory else (None, None)
    rate = f"{one.time.tokens_per_second:.0f}" if one.time else ""
    hours = f"{one.gpus * 1e9 / 3600 / one.time.tokens_per_second:.0f}" if one.time else ""
    verdict = "too close" if one.verdict.value == "too_close" else one.verdict.words
    verdict = "fits GPUs" if one.unsaid else verdict
    gpus = f"{one.gpus}x {one.gpu}" if one.gpu else ""
    sizes = [str(-(-need.high // _GIB)) if need else "" for need in (device, host)]
    return [one.cluster, one.run or one.method, gpus, verdict, *sizes, rate, hours]


def _batch(one: Estimate) -> str:
    return f"{one.micro_batch_size} x {one.sequence_length}"
