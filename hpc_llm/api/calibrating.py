"""What finished runs say of the machines of a cluster: kept in the user's own folder, and used by every estimate for it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import RequestError, notice

if TYPE_CHECKING:
    from hpc_llm.api.handle import Named
    from hpc_llm.estimating.calibrate import Compared, Measured
    from hpc_llm.estimating.time_constants import Calibration
    from hpc_llm.planning.experiment import Plan
    from hpc_llm.records.run import RunPaths
    from hpc_llm.runs.looks import Look

SCHEMA = 1
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
"""What a profile may call a cluster."""
_STRANGE = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
"""What a plan can lead to that somebody edited: numbers may be words, or too large for any machine."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """One cluster: its constants, where they are kept, and how near they bring what was measured."""

    calibration: Calibration
    file: Path
    runs: list[Compared]

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {**asdict(self.calibration), "file": str(self.file), "record": [asdict(one) for one in self.runs]}


def calibrate(paths: Named | Iterable[Named], *, logs: str | os.PathLike[str] | None = None) -> list[Calibrated]:
    """Fit the constants of each cluster to its finished runs, and keep them for the estimates to come.

    `paths` are folders of runs, or runs. Only runs that were completed on GPUs count; those of other users only where they
    are named themselves.

    Raises:
        RequestError: a path is no such thing, or a cluster has too few runs, or such as nothing fits; nothing was kept then.
    """
    from datetime import datetime, timezone

    from hpc_llm.estimating.calibrate import calibrate as fit
    from hpc_llm.records.files import write_json

    today = datetime.now(timezone.utc).date().isoformat()
    made = [
        Calibrated(calibration=found, file=calibration_file(cluster), runs=rows)
        for cluster, runs in _by_cluster(paths, logs).items()
        for found, rows in (fit(cluster, runs, today),)
    ]
    for one in made:
        _check_kept(one)
    for one in made:
        write_json(one.file, {"schema": SCHEMA, **one.to_dict()})
    return made


def _check_kept(one: Calibrated) -> None:
    """Raise RequestError where no estimate would take up what is to be kept: it would replace what may be good."""
    from hpc_llm.estimating.time_constants import calibration_from

    try:
        calibration_from(one.to_dict())
    except _STRANGE:
        off = max(one.runs, key=_distance)
        raise RequestError(
            f"the runs on {one.calibration.cluster} are too far from each other to calibrate by: the farthest from its prediction is "
            f"{off.run}, {off.measured_s:.3g} s a step where {off.predicted_s:.3g} s is predicted. Leave out what was not measured right; "
            "nothing was kept."
        ) from None


def _distance(one: Compared) -> float:
    return abs(math.log(one.measured_s) - math.log(one.predicted_s))


def compared(paths: Named | Iterable[Named], *, logs: str | os.PathLike[str] | None = None) -> list[Compared]:
    """Predicted beside measured step times of finished runs, as estimates are made today; nothing is kept.

    Raises:
        RequestError: a path is no such thing, or holds no run that can be compared.
    """
    from hpc_llm.estimating.calibrate import compare

    groups = _by_cluster(paths, logs)
    return [row for cluster, runs in groups.items() for row in compare(runs, calibration_of(cluster))]


def calibration_file(cluster: str) -> Path:
    """Where what is known of a cluster's speed is kept."""
    from hpc_llm.site.profiles import user_config

    return user_config() / "calibration" / f"{cluster}.json"


def calibration_of(cluster: str) -> Calibration | None:
    """What is kept of that cluster; None where nothing is, or nothing that can be read."""
    from hpc_llm.estimating.time_constants import calibration_from
    from hpc_llm.records.files import load_json
    from hpc_llm.text.json_text import DamagedRecordError

    file = calibration_file(cluster)
    if not file.exists():
        return None
    try:
        return calibration_from(load_json(file) or {})
    except (OSError, DamagedRecordError, *_STRANGE):
        notice(
            f"{file} is no calibration that can be read, so estimates go without it: `hpc-llm estimate --calibrate` makes it anew"
        )
        return None


def _by_cluster(paths: Named | Iterable[Named], logs: str | os.PathLike[str] | None) -> dict[str, list[Measured]]:
    """The runs that tell something, by the names of their clusters."""
    from hpc_llm.estimating.calibrate import usable

    given = list(_runs(paths, logs))
    runs, refused = usable(list(_measured(given)))
    if not runs:
        why = f": {next(iter(refused.values()))}" if refused else ""
        raise RequestError(
            f"of {len(given)} runs none can be used{why}. Runs count that were completed on GPUs and measured their steps."
        )
    for why in dict.fromkeys(refused.values()):
        notice(f"left out: {', '.join(run for run, because in refused.items() if because == why)}: {why}")
    groups: dict[str, list[Measured]] = {}
    for one in runs:
        groups.setdefault(one.plan.cluster, []).append(one)
    return groups


def _runs(paths: Named | Iterable[Named], logs: str | os.PathLike[str] | None) -> Iterator[RunPaths]:
    from hpc_llm.api.find import paths_of_logs
    from hpc_llm.records.run import RunPaths, is_run, iter_runs

    for text in paths_of_logs(paths, logs):
        path = Path(text).absolute()
        if not path.is_dir():
            raise RequestError(f"{text} is no folder: name a run, or a folder of runs.")
        if is_run(path):
            yield RunPaths(path)  # whoever made it: it was named
        else:
            yield from _own_of(iter_runs(path))


def _own_of(runs: Iterable[RunPaths]) -> Iterator[RunPaths]:
    """Those that nobody else made: what is kept steers all estimates to come, and nobody sees by it whose runs it is of."""
    from hpc_llm.runs.ownership import other_owner, say_whose

    owners = []
    for run in runs:
        owners.append(other_owner(run))
        if owners[-1] is None:
            yield run
    say_whose(owners, "left out, as others wrote their figures; name the folder of each that you trust, and it counts")


def _measured(runs: Iterable[RunPaths]) -> Iterator[Measured]:
    from hpc_llm.runs.looks import look

    for found in look(runs):
        if (one := _of(found)) is not None:
            yield one


def _of(found: Look) -> Measured | None:
    """The run, where it was completed, measured its steps, and its plan can be read."""
    from hpc_llm.estimating.calibrate import Measured, compare
    from hpc_llm.records.possible import figure_of
    from hpc_llm.records.run import Outcome

    result = found.records.result
    if found.judgement.outcome is not Outcome.COMPLETED or result is None:
        return None
    seconds, gpu, engine = (figure_of(result.values, "step_time_s_p50"), *map(result.values.get, ("gpu", "engine")))
    plan = _plan(found.records.experiment)
    if plan is None or seconds is None or not isinstance(gpu, str) or not isinstance(engine, str):
        return None
    versions = _texts(result.values.get("versions"))
    one = Measured(run=found.run.run_id, plan=plan, gpu=gpu, engine=engine, step_s=seconds, versions=versions)
    try:
        return one if 0 < compare([one])[0].predicted_s < float("inf") else None
    except RequestError:
        return one  # `usable` says why
    except _STRANGE:
        return None


def _plan(experiment: Mapping[str, Any]) -> Plan | None:
    from hpc_llm.planning.experiment import Plan

    try:
        plan = Plan.from_dict(experiment["plan"])
        return plan if _CLUSTER.fullmatch(plan.cluster) else None  # it names a file
    except (RequestError, *_STRANGE):
        return None


def _texts(values: object) -> dict[str, str]:
    return {str(k): v for k, v in values.items() if isinstance(v, str)} if isinstance(values, dict) else {}
