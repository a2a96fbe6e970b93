"""How near estimates of memory are to measured runs: `points.csv` and
`results/fused_h100.csv` against `hpc_llm.estimating`, as a table for RESULTS.md.

    python benchmarks/estimate_accuracy.py
    python benchmarks/estimate_accuracy.py --rows

The halves are split by model and shape of the batch, like the fields of a chessboard: what was fitted has seen every model and every
shape, and no pair of the other half.
"""

from __future__ import annotations

import argparse
import csv
import functools
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from hpc_llm.estimating.estimate import estimate
from hpc_llm.estimating.parts import Estimate, Fit
from hpc_llm.planning.experiment import Experiment, Plan
from hpc_llm.planning.gpu import actual_gpu
from hpc_llm.planning.method import Method, load_method
from hpc_llm.planning.parts import EngineSetup
from hpc_llm.planning.plan import Site, plan
from hpc_llm.site.cluster import Cluster, load_cluster
from hpc_llm.site.hardware import Hardware

RESULTS = Path(__file__).parent / "results"
POINTS = (Path(__file__).with_name("points.csv"), RESULTS / "fused_h100.csv")
OTHERS = RESULTS / "other_estimators.csv"
FAMILIES = Path(__file__).with_name("models")
"""Folders with the config.json of published models that are no presets, each by the name that it has in results/families.csv."""
MODELS = ("llama3.2-1b", "llama3.2-3b", "llama2-7b")
SHAPES = ("1x350", "1x2048", "8x350", "4x2048", "8x2048")
_GIB = 2**30
_MEMORY = {"H100": 79.65, "H200": 140.4}
"""GiB of one, as nvidia-smi says it."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured run. Sizes in bytes; None where it died before they were known."""

    engine: str
    method: str
    model: str
    gpu: str
    gpus: int
    micro_batch: int
    length: int
    outcome: str
    device: int | None
    reserved: int | None
    host: int | None
    settings: tuple[str, ...] = ()
    """What `--set` said besides the engine."""
    step_s: float | None = None
    """Seconds of a step, the median."""
    switches: str = ""
    """What the engine had on, NAME=VALUE; empty for runs of before there was a choice."""

    @property
    def shape(self) -> str:
        return f"{self.micro_batch}x{self.length}"

    @property
    def is_fitted(self) -> bool:
        """Whether constants were fitted to it."""
        return (MODELS.index(self.model) + SHAPES.index(self.shape)) % 2 == 0

    @property
    def ran(self) -> bool:
        return self.outcome == "COMPLETED"

    @property
    def died_of_memory(self) -> bool:
        return self.outcome == "OOM_DEVICE"


@dataclass(frozen=True)
class Pair:
    """A run and what was said of it."""

    point: Point
    estimate: Estimate

    @property
    def device_error(self) -> float | None:
        """Relative; None where the run did not come to its peak."""
        memory = self.estimate.memory
        if not self.point.ran or not self.point.device or memory is None or memory.device is None:
            return None
        return memory.device.peak / self.point.device - 1

    @property
    def host_error(self) -> float | None:
        memory = self.estimate.memory
        if not self.point.ran or not self.point.host or memory is None:
            return None
        return memory.host.peak / (self.point.host * self.point.gpus) - 1

    @property
    def verdict(self) -> Fit:
        """On the device: what else the machine held is not in the file."""
        assert self.estimate.memory is not None and self.estimate.memory.device is not None
        return self.estimate.memory.device.verdict


def points(*paths: Path) -> list[Point]:
    """The measured runs of the files that came to an end of their own, with the program as it is.

    One that multiplied the head's gradient as a whole, in fp32, took more (until 2026-11-25): its runs tell of times alone.
    """
    found = []
    for path in paths or POINTS:
        with path.open(newline="", encoding="utf-8") as file:
            found += [
                _point(row)
                for row in csv.DictReader(file)
                if row.get("recompute") or "fused_loss=true" not in row["switches"]
            ]
    return [row for row in found if row.ran or row.died_of_memory]


def _point(row: dict[str, str]) -> Point:
    size = {
        name: int(row[f"peak_{name}_bytes"]) if row[f"peak_{name}_bytes"] else None
        for name in ("allocated", "reserved", "host")
    }
    return Point(
        engine=row["engine"],
        method=row["method"],
        model=row["model"],
        gpu=row["gpu"],
        gpus=int(row["num_gpus"]),
        micro_batch=int(row["micro_batch_size"]),
        length=int(row["sequence_length"]),
        outcome=row["outcome"],
        device=size["allocated"],
        reserved=size["reserved"],
        host=size["host"],
        settings=settings_of(row),
        step_s=float(row["step_time_s_p50"]) if row.get("step_time_s_p50") else None,
        switches=row["switches"],
    )


def settings_of(row: Mapping[str, str]) -> tuple[str, ...]:
    """What was set besides the engine, of what still changes a plan: how the engine was made up stands in `switches`."""
    own = {one.name for one in fields(EngineSetup)}
    return tuple(one for one in row["settings"].split() if one.partition("=")[0] not in own)


def apart(settings: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """What `--set` says, and what is an option of its own: how many ranks share each layer."""
    shared = [one for one in settings if one.startswith("tensor_parallel=")]
    values: dict[str, Any] = {name: int(value) for name, _, value in (one.partition("=") for one in shared)}
    return [one for one in settings if one not in shared], values


def planned(point: Point, micro_batch: int | None = None) -> tuple[Plan, Cluster]:
    """What that run was, on the machine that it ran on."""
    cluster, method = _ground(point.method)
    hardware = Hardware(
        gpu_model=point.gpu,
        arch="sm_90",
        memory_gib=next(size for name, size in _MEMORY.items() if name in point.gpu),
        gpus=point.gpus,
        vendor="nvidia",
        cpus=16 * point.gpus,
    )
    # Runs of before torch's allocator was told to let its segments grow.
    old = () if "expandable_segments=true" in point.switches else ("env.PYTORCH_CUDA_ALLOC_CONF=",)
    settings, options = apart(point.settings)
    experiment = Experiment(
        cluster="local",
        method=point.method,
        model=str(FAMILIES / point.model) if (FAMILIES / point.model).is_dir() else point.model,
        micro_batch_size=micro_batch or point.micro_batch,
        sequence_length=point.length,
        gpus_per_node=point.gpus,
        steps=8,
        warmup_steps=3,
        set=(f"engine={point.engine}", *old, *settings),
        **options,
    )
    site = Site(scheduler="local", hardware=hardware)
    there = cluster.model_copy(update={"gpu": actual_gpu(cluster.gpu, hardware)})
    return with_switches(plan(experiment, cluster, method, site).plan, point.switches), there


def with_switches(planned: Plan, switches: str) -> Plan:
    """The plan as its run was carried out: with what its engine had on, or as all runs of before there was a choice."""
    if not switches:
        return as_measured(planned)
    said = (one.split("=") for one in switches.split())
    own = {one.name for one in fields(EngineSetup)}  # of another release the file may hold more
    values = {name: yaml.safe_load(value) for name, value in said if name in own}
    return replace(planned, engine=replace(planned.engine, **values))


def as_measured(planned: Plan, *, cuda_graph: bool = False) -> Plan:
    """The plan of a run that is older than fused layers and units of several layers, and than most graphs."""
    plain: dict[str, Any] = {
        "cuda_graph": cuda_graph, "fused_lora": False, "fused_loss": False, "fused_layers": False,
        "layers_per_unit": 1, "keeps_parameters": False, "reduce_precision": "fp32", "compiled_layers": False,
    }  # fmt: skip
    return replace(planned, engine=replace(planned.engine, **plain))


@functools.cache
def _ground(method: str) -> tuple[Cluster, Method]:
    return load_cluster("local"), load_method(method)


def pairs(runs: Sequence[Point]) -> list[Pair]:
    return [Pair(point, estimate(*planned(point))) for point in runs]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def summary(found: Sequence[Pair]) -> dict[str, float]:
    """What the table says; errors in percent, without their sign."""
    device = [100 * abs(e) for one in found if (e := one.device_error) is not None]
    host = [100 * abs(e) for one in found if (e := one.host_error) is not None]
    return {
        "runs": len(found),
        "died": sum(one.point.died_of_memory for one in found),
        "device median": statistics.median(device),
        "device p95": quantile(device, 0.95),
        "device worst": max(device),
        "host median": statistics.median(host),
        "host p95": quantile(host, 0.95),
        "called fits and died": sum(one.verdict is Fit.FITS and one.point.died_of_memory for one in found),
        "called does not fit and ran": sum(one.verdict is Fit.DOES_NOT_FIT and one.point.ran for one in found),
        "too close to call": sum(one.verdict is Fit.TOO_CLOSE for one in found),
    }


def _said(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.1f}"


def rows(found: Sequence[Pair]) -> Iterator[str]:
    """One line a run."""
    for one in sorted(
        found, key=lambda pair: (pair.point.engine, pair.point.method, pair.point.model, pair.point.gpus)
    ):
        point, memory = one.point, one.estimate.memory
        assert memory is not None and memory.device is not None
        yield (
            f"{point.engine:9} {point.method:8} {point.model:12} {point.gpu[7:11]} x{point.gpus} {point.shape:7} "
            f"measured {(point.device or 0) / _GIB:7.2f} said {memory.device.peak / _GIB:7.2f} {_said(one.device_error):>6} % "
            f"{memory.device.moment:16.16} host {_said(one.host_error):>6} % {one.verdict.value:12} {'' if point.ran else 'DIED'}"
        )


_KINDS = {
    "z1, z2": ("z1", "z2"),
    "z2o": ("z2o",),
    "z3, z3+r": ("z3", "z3+r"),
    "z3o": ("z3o",),
    "ddp, ddp+r": ("ddp", "ddp+r"),
    "q, q+r": ("q", "q+r"),
    "lora, lora+r": ("lora", "lora+r"),
    "qlora, qlora+r": ("qlora", "qlora+r"),
}


def table(fitted: Sequence[Pair], other: Sequence[Pair]) -> Iterator[str]:
    """The lines of RESULTS.md's table."""
    yield "| runs | half | how many | device: median % | 95th percentile % | worst % | host: median % | 95th percentile % |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for half, found in (("fitted", fitted), ("other", other)):
        yield _line("all", half, found)
    for name, methods in _KINDS.items():
        yield _line(name, "other", [one for one in other if one.point.method in methods])
    for engine in ("deepspeed", "fsdp2", "plain", "flat"):
        yield _line(f"engine {engine}", "other", [one for one in other if one.point.engine == engine])


def _line(name: str, half: str, found: Sequence[Pair]) -> str:
    device = [100 * abs(e) for one in found if (e := one.device_error) is not None]
    host = [100 * abs(e) for one in found if (e := one.host_error) is not None]
    figures = [
        statistics.median(device),
        quantile(device, 0.95),
        max(device),
        statistics.median(host),
        quantile(host, 0.95),
    ]
    return f"| {name} | {half} | {len(device)} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |"


def verdicts(found: Sequence[Pair]) -> Iterator[str]:
    """The lines of a table of what was said of runs that ran and that died of the device's memory."""
    yield "| verdict | ran | died |"
    yield "|---|---:|---:|"
    for verdict in (Fit.FITS, Fit.TOO_CLOSE, Fit.DOES_NOT_FIT):
        of_it = [one.point for one in found if one.verdict is verdict]
        yield f"| {verdict.words} | {sum(one.ran for one in of_it)} | {sum(one.died_of_memory for one in of_it)} |"


def beside(found: Sequence[Pair]) -> Iterator[str]:
    """The lines of a table of what other tools say of the same runs, errors with their sign."""
    yield "| tool | runs | its median % | its range % | ours on the same: median % | range % |"
    yield "|---|---:|---:|---|---:|---|"
    with OTHERS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for tool in dict.fromkeys(row["tool"] for row in rows):
        said = {_key(row): int(row["device_bytes"]) for row in rows if row["tool"] == tool}
        pairs_ = [(one, said[key]) for one in found if (key := _key(vars(one.point))) in said]
        theirs = [100 * (size / one.point.device - 1) for one, size in pairs_ if one.point.device and one.point.ran]
        ours = [100 * e for one, _ in pairs_ if (e := one.device_error) is not None]
        cells = (f"{statistics.median(all_):+.1f} | {min(all_):+.1f} to {max(all_):+.1f}" for all_ in (theirs, ours))
        yield f"| {tool} | {len(theirs)} | " + " | ".join(cells) + " |"


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("engine", "method", "model", "gpus"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="store_true", help="one line a run, before the tables")
    arguments = parser.parse_args()
    fitted, other = (pairs([one for one in points() if one.is_fitted is half]) for half in (True, False))
    if arguments.rows:
        print("\n".join(rows([*fitted, *other])))
    for lines in (table(fitted, other), verdicts([*fitted, *other]), beside(other)):
        print("\n".join(lines), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
