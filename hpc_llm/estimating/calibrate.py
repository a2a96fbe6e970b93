"""The constants of one cluster's machines, from runs that came to their end there. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from hpc_llm.errors import RequestError
from hpc_llm.estimating.fitting import Constants, descend, loss_of
from hpc_llm.estimating.rates import Fitted, Rates, gpu_kind
from hpc_llm.estimating.step_time import rates_of, unknown_because
from hpc_llm.estimating.time_constants import MIN_SPREAD, Calibration, time_constants
from hpc_llm.estimating.time_terms import step_terms
from hpc_llm.estimating.time_work import Work, work_of
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.metrics import percentile

FEWEST = 3
"""Runs that a calibration needs: fewer say more of themselves than of the machine."""
_FOLDS = 8
_SPRING = 0.1
"""Of all runs together: machines differ by half in a constant, runs on one by a seventh."""
_MOST = dict.fromkeys(("matmul", "memory", "link"), 1.0)
"""Parts of what a maker states: nothing reaches more."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run that came to its end, as it really was."""

    run: str
    """Its name."""
    plan: Plan
    gpu: str
    """That was found."""
    engine: str
    """That trained."""
    step_s: float
    """Median of the measured steps."""
    versions: Mapping[str, str]

    @property
    def ran(self) -> Plan:
        """The plan with the engine and the GPU that it got."""
        engine = replace(
            self.plan.engine,
            name=self.engine,
            cuda_graph=self.plan.engine.cuda_graph and self.engine == self.plan.engine.name,
        )
        return replace(self.plan, engine=engine, gpu=replace(self.plan.gpu, model=self.gpu))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One run: what was measured, what would have been predicted, and what the calibration makes of that. Seconds of a step."""

    run: str
    method: str
    gpu: str
    measured_s: float
    predicted_s: float
    calibrated_s: float | None = None
    """Predicted with constants to which this run did not contribute."""


def usable(runs: Sequence[Measured]) -> tuple[list[Measured], dict[str, str]]:
    """Those that tell something, and why the others do not."""
    refused = {one.run: why for one in runs if (why := unknown_because(one.ran)) is not None}
    return [one for one in runs if one.run not in refused], refused


def compare(runs: Sequence[Measured], calibration: Calibration | None = None) -> list[Compared]:
    """Predicted beside measured, with the constants that are in use."""
    return [
        Compared(
            run=one.run,
            method=one.plan.method,
            gpu=one.gpu,
            measured_s=one.step_s,
            predicted_s=step_terms(work_of(one.ran), rates_of(one.ran, calibration)).total,
        )
        for one in runs
    ]


def calibrate(cluster: str, runs: Sequence[Measured], date: str) -> tuple[Calibration, list[Compared]]:
    """The constants of a cluster, and how near they bring runs that they were not fitted to.

    Raises:
        RequestError: too few of the runs tell something.
    """
    if len(runs) < FEWEST:
        raise RequestError(
            f"{len(runs)} finished runs of cluster {cluster} can be used, and a calibration needs {FEWEST}: runs of several methods and "
            "batch sizes say most."
        )
    cases = [_Case.of(one) for one in runs]
    names = _told_of(cases)
    without = _held_out(cases, names)
    spread = math.exp(percentile([abs(math.log(ratio)) for ratio in without], 90) or 0.0)
    values = _fit(cases, names)
    made = Calibration(
        cluster=cluster,
        values={name: float(f"{min(values[name], _MOST.get(name, math.inf)):.4g}") for name in names},
        gpus=tuple(sorted({gpu_kind(one.gpu) or one.gpu for one in runs})),
        offloaded="host_memory" in names,
        several_nodes="between_nodes" in names,
        spread=round(max(MIN_SPREAD, spread), 3),
        runs=tuple(one.run for one in runs),
        date=date,
        versions=dict(runs[-1].versions),
    )
    pairs = zip(compare(runs), without, cases, strict=True)
    return made, [replace(row, calibrated_s=ratio * case.step_s) for row, ratio, case in pairs]


@dataclass(frozen=True)
class _Case:
    work: Work
    rates: Rates
    step_s: float

    @classmethod
    def of(cls, measured: Measured) -> _Case:
        return cls(work_of(measured.ran), rates_of(measured.ran, None), measured.step_s)

    def ratio(self, values: Constants) -> float:
        """Predicted over measured."""
        return step_terms(self.work, replace(self.rates, fitted=Fitted(**values))).total / self.step_s


def _told_of(cases: Sequence[_Case]) -> list[str]:
    """The constants that the runs depend on."""
    names = ["matmul", "memory", "launch_s"]
    if any(case.work.ranks > 1 and case.work.nodes == 1 for case in cases):
        names.append("link")
    if any(case.work.offloads_optimizer for case in cases):
        names.append("host_memory")
    if any(case.work.nodes > 1 for case in cases):
        names.append("between_nodes")
    return names


def _fit(cases: Sequence[_Case], names: Sequence[str]) -> dict[str, float]:
    def loss(values: Constants) -> float:
        return loss_of(case.ratio(values) for case in cases)

    return descend(asdict(time_constants().fitted), names, loss, _SPRING / len(cases))


def _held_out(cases: Sequence[_Case], names: Sequence[str]) -> list[float]:
    """Predicted over measured of each run, with constants from others."""
    folds = min(_FOLDS, len(cases))
    found = [0.0] * len(cases)
    for fold in range(folds):
        values = _fit([case for place, case in enumerate(cases) if place % folds != fold], names)
        for place in range(fold, len(cases), folds):
            found[place] = cases[place].ratio(values)
    return found
