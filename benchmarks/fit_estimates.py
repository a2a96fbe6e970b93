"""Fit the few constants of estimates of memory to half of the measured runs, and keep them with their record.

    python benchmarks/fit_estimates.py            # prints what it would write
    python benchmarks/fit_estimates.py --write

What is fitted: the workspaces on a device, the size of the program on the host, and how far predictions are off, by kind of run.
What is not: the terms themselves, which are counted, what lies outside
the allocator, and what a machine keeps for itself; these were read off the measured runs and the messages of those that died.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from estimate_accuracy import POINTS, Pair, pairs, planned, points

from hpc_llm.estimating import constants as kept
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.host import compiling
from hpc_llm.estimating.shapes import sizes_in

_LEAST = 0.02
"""Nothing is promised to be nearer."""
_MARGIN = 1.5
"""Runs that were not fitted may be further off than those that were."""
_MARGIN_OF_FEW, _MANY = 3, 10
"""The same where fewer runs than these were fitted."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"into {kept.FILE.name}")
    arguments = parser.parse_args()
    document = fitted()
    text = json.dumps(document, indent=2) + "\n"
    if arguments.write:
        kept.FILE.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


def fitted() -> dict[str, Any]:
    """The document of the constants, fitted anew."""
    runs = [point for point in points() if point.is_fitted and point.ran]
    document = json.loads(kept.FILE.read_text(encoding="utf-8"))
    found = pairs(runs)
    document["workspaces"] += round(statistics.median(_residues(found)))
    document["host_program"] = round(statistics.median(_host(found, lambda case: not case.stage)))
    made = [size - of_model for size, of_model in _made(found)]
    document["host_start"] = round(statistics.median(made))
    with _using(document):
        found = pairs(runs)
    document["precision"] = _precision(found, lambda pair: pair.device_error)
    document["host_precision"] = _precision(found, _host_off)
    document["record"] = _record(len(runs))
    return dict(document)


@contextmanager
def _using(document: dict[str, Any]) -> Iterator[None]:
    """Inside, estimates are made with these constants."""
    now = kept.constants()
    before = dict(vars(now))
    try:
        for name in ("workspaces", "host_program", "host_start"):
            object.__setattr__(now, name, document[name])
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(now, name, value)


def _case(pair: Pair) -> Case:
    plan, _ = planned(pair.point)
    return Case(plan, sizes_in(plan))


def _residues(found: Sequence[Pair]) -> Iterator[int]:
    """Bytes that were measured and not counted, of runs of the best known kind."""
    for one in found:
        memory = one.estimate.memory
        if memory and memory.device and one.point.device and _case(one).kind == "counted":
            yield one.point.device - memory.device.peak


def _host(found: Sequence[Pair], is_wanted: Callable[[Case], bool]) -> Iterator[int]:
    for one in found:
        if one.point.host and is_wanted(_case(one)):
            yield one.point.host


def _made(found: Sequence[Pair]) -> Iterator[tuple[int, int]]:
    """Bytes of the host, and of a rank's share of the model that was made there, of DeepSpeed's ZeRO-3 that keeps nothing there."""
    for one in found:
        case = _case(one)
        if one.point.host and case.stage == 3 and case.kind == "counted" and one.point.engine == "deepspeed":
            yield one.point.host, case.width * case.sizes.parameters // case.ranks


def _host_off(pair: Pair) -> float | None:
    """None where a compiler that had made nothing before took what is allowed for it."""
    memory, point = pair.estimate.memory, pair.point
    if memory is None or point.host is None:
        return None
    over = point.host * point.gpus - memory.host.peak
    return None if 0 < over <= compiling(_case(pair)) * point.gpus else pair.host_error


def _precision(found: Sequence[Pair], error: Callable[[Pair], float | None]) -> dict[str, float]:
    """Kind of run -> the worst error with its margin, as a share."""
    errors: dict[str, list[float]] = {}
    for one in found:
        off = error(one)
        if off is not None:
            errors.setdefault(_case(one).kind, []).append(abs(off))
    margins = {kind: _MARGIN if len(all_) >= _MANY else _MARGIN_OF_FEW for kind, all_ in errors.items()}
    return {kind: max(round(max(all_) * margins[kind], 3), _LEAST) for kind, all_ in sorted(errors.items())}


def _record(runs: int) -> dict[str, Any]:
    rows = [row for path in POINTS for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    versions = {
        name: sorted({row[name] for row in rows if row.get(name)})
        for name in ("gpu", "torch", "deepspeed", "transformers", "bitsandbytes")
    }
    return {
        "program": "benchmarks/fit_estimates.py",
        "runs": runs,
        "of": "benchmarks/points.csv and results/fused_h100.csv, the fields of one colour of models and shapes",
        "date": date.today().isoformat(),
        **versions,
    }


if __name__ == "__main__":
    sys.exit(main())
