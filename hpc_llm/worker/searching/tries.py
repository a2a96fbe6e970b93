"""What the tries of a search have shown, as their folders say it.

A try is a training of its own, in a folder of a run. The next one is decided from these folders alone, so a search that was
interrupted goes on with what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.micro_batches import plan_of_try
from hpc_llm.records.files import read_json
from hpc_llm.records.possible import is_possible, possible
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.worker.signals import EXIT_AFTER_SIGTERM

_MOST_BEFORE = 50
"""Searches that went on from one another."""


class TryOutcome(str, Enum):
    """What a try says of its micro batch; the words go into the log of the whole job, whose end no try is."""

    FITS = "fits"
    CLOSE = "leaves less than the margin"
    MEMORY = "does not fit"
    HANGS = "was not over in time"
    FAILED = "failed"
    CUT = "cut off"
    """The job was told to end: that says nothing of the size."""
    LOST = "lost"
    """The job came to an end without a word, or somebody ended the ranks alone, which may have been done for this try."""

    @property
    def is_conclusive(self) -> bool:
        return self not in (TryOutcome.CUT, TryOutcome.LOST)


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try that is over."""

    number: int
    folder: Path
    size: int
    """Sequences of a micro batch."""
    length: int
    """Tokens of a sequence."""
    confirms: bool
    """Whether it is a longer one of a size that fits."""
    verdict: TryOutcome
    outcome: str | None = None
    why: str | None = None
    """One sentence of its end, where it did not fit."""
    tokens_per_second: float | None = None
    step_time_s: float | None = None
    seconds: float | None = None
    """From its start to its end."""
    peaks: Mapping[str, int | None]


def tries_of(run: RunPaths, plan: Plan) -> list[Try]:
    """Those of the run, and of the searches that it goes on from as far as they tried what it would, in the order of their numbers."""
    found = list(_of_folder(run, plan))
    for before in _before(plan):
        found += [one for one in _of_folder(before, plan) if _is_same(one, plan)]
    return sorted(found, key=lambda one: one.number)


def last_number(tries: list[Try], run: RunPaths) -> int:
    """The highest number that is taken."""
    return max([one.number for one in tries] + [number for number, _ in run.search_tries()], default=0)


def _before(plan: Plan) -> Iterator[RunPaths]:
    """The runs that the search goes on from, the last one first."""
    seen: set[Path] = set()
    resume = plan.tuning.resume
    while resume is not None and len(seen) < _MOST_BEFORE and Path(resume) not in seen:
        seen.add(Path(resume))
        run = RunPaths(Path(resume))
        yield run
        workload = ((read_json(run.experiment) or {}).get("plan") or {}).get("workload") or {}
        resume = workload.get("resume")


def _is_same(one: Try, plan: Plan) -> bool:
    """Whether the plan would try the very same: then what was found holds."""
    mine = plan_of_try(plan, one.size, one.length, confirms=one.confirms).to_dict()
    theirs = (read_json(RunPaths(one.folder).experiment) or {}).get("plan") or {}
    return {**mine, "job": None} == {**theirs, "job": None}


def _of_folder(run: RunPaths, plan: Plan) -> Iterator[Try]:
    for number, folder in run.search_tries():
        asked = (read_json(folder.experiment) or {}).get("search")
        # Else the job was ended while it was written, or somebody wrote what none of ours would: nothing is known to be tried.
        if isinstance(asked, dict) and _is_whole(asked):
            yield _read(number, folder, asked, plan)


def _is_whole(asked: Mapping[str, Any]) -> bool:
    sizes = all(is_possible(name, asked.get(name)) for name in ("micro_batch_size", "sequence_length"))
    return sizes and is_possible("elapsed_s", asked.get("limit_s")) and isinstance(asked.get("confirms"), bool)


def _read(number: int, folder: RunPaths, asked: Mapping[str, Any], plan: Plan) -> Try:
    """What a try showed; of its figures those that can be, as whoever can write the folder may have written them."""
    result, end = possible(read_json(folder.result) or {}), read_json(folder.exit)
    verdict, why = _verdict(result, end, float(asked["limit_s"]), plan)
    began, ended = (_number((end or {}).get(name)) for name in ("started_at", "ended_at"))
    return Try(
        number=number,
        folder=folder.root,
        size=asked["micro_batch_size"],
        length=asked["sequence_length"],
        confirms=asked["confirms"],
        verdict=verdict,
        outcome=result.get("outcome"),
        why=why,
        tokens_per_second=result.get("tokens_per_second"),
        step_time_s=result.get("step_time_s_mean"),
        seconds=None if began is None or ended is None else max(0.0, ended - began),
        peaks={name: result.get(name) for name in ("peak_allocated_bytes", "peak_device_bytes", "peak_host_bytes")},
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _verdict(
    result: Mapping[str, Any], end: Mapping[str, Any] | None, limit_s: float, plan: Plan
) -> tuple[TryOutcome, str | None]:
    """What the worker says of memory wins over how its processes ended: a rank may hang because another ran out of it."""
    outcome, said = result.get("outcome"), result.get("outcome_reason")
    if outcome == Outcome.COMPLETED.value:
        short = _short_of(result, plan)
        return (TryOutcome.FITS, None) if short is None else (TryOutcome.CLOSE, short)
    if outcome in (Outcome.OOM_DEVICE.value, Outcome.OOM_HOST.value):
        return TryOutcome.MEMORY, said
    if end is None:
        return TryOutcome.LOST, "its job left no record of its end"
    if end.get("signal"):
        if (_number(end.get("time_limit_s")) or 0) >= limit_s and "time limit" in str(end.get("reason")):
            return TryOutcome.HANGS, f"it was not over after {limit_s:g} s"
        return TryOutcome.CUT, f"SIG{end['signal']} came"
    if outcome == Outcome.INVALID.value:
        return TryOutcome.FAILED, result.get("invalid_reason")
    if end.get("exit_code") == 137 and (_number(end.get("oom_kills")) or 0) > 0:
        return TryOutcome.MEMORY, "the kernel of its node killed a process for lack of memory"
    if outcome == Outcome.UNKNOWN.value or end.get("exit_code") == EXIT_AFTER_SIGTERM:
        return TryOutcome.LOST, said or "its ranks were told to end, and its job was not"
    killed = ", as by the system where memory runs out" if end.get("exit_code") == 137 else ""
    return TryOutcome.FAILED, said or f"it ended with exit code {end.get('exit_code')}{killed}"


def _short_of(result: Mapping[str, Any], plan: Plan) -> str | None:
    """What is left too little of, as a sentence; None where enough is left, or nobody knows how much there is."""
    hardware, free = result.get("hardware") or {}, 1 - plan.tuning.margin
    host = result.get("peak_host_bytes")
    needs = {
        "a GPU": (_held(result), _number(hardware.get("gpu_memory_bytes"))),
        "the node": (host and host * plan.parallel.tasks_per_node, _number(hardware.get("host_memory_bytes"))),
    }
    for place, (needed, there) in needs.items():
        if needed and there and needed > free * there:
            return f"it took {needed / there:.1%} of the memory of {place}, the margin is {plan.tuning.margin:.0%}"
    return None


def _held(result: Mapping[str, Any]) -> int | None:
    """Bytes of the GPU that nothing can do without: tensors, and what lies outside of torch's allocator, whose cache can be given up."""
    allocated, reserved, device = (result.get(f"peak_{what}_bytes") for what in ("allocated", "reserved", "device"))
    if allocated is None:
        return None
    outside = max(0, device - reserved) if device is not None and reserved is not None else 0
    return int(allocated) + outside
