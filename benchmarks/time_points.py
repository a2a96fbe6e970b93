"""Predicted step times beside measured ones: fits the constants to one half of points.csv and reports the other half.

    python benchmarks/time_points.py            prints the table of RESULTS.md
    python benchmarks/time_points.py --write    fits all runs and writes hpc_llm/estimating/time_constants.json

The halves are split by model and batch shape, as the fields of a chess board: a model is on both sides, and so is a shape, but
never the same two together. Unseen devices: constants from the runs of one kind of GPU, tried on another's.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from estimate_accuracy import as_measured, settings_of, with_switches

from hpc_llm.estimating.fitting import Constants, descend, loss_of
from hpc_llm.estimating.rates import Fitted, Program, Rates, gpu_facts, gpu_kind, guessed_facts
from hpc_llm.estimating.time_terms import step_terms
from hpc_llm.estimating.time_work import Work, work_of
from hpc_llm.planning.draft import Site
from hpc_llm.planning.experiment import Experiment, Plan
from hpc_llm.planning.method import load_method
from hpc_llm.planning.plan import plan
from hpc_llm.records.metrics import percentile
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.hardware import Hardware

HERE = Path(__file__).parent
DATA = HERE.parent / "hpc_llm" / "estimating" / "time_constants.json"
MODELS = ("llama3.2-1b", "llama3.2-3b", "llama2-7b")
SHAPES = ((1, 350), (1, 2048), (8, 350), (4, 2048), (8, 2048))

MACHINE: dict[str, float] = {
    "matmul": 0.6, "memory": 0.7, "launch_s": 1e-5, "link": 0.6, "host_memory": 148e9, "between_nodes": 12.5e9,
}  # fmt: skip
PROGRAM: dict[str, float] = {
    "recompute_launches": 40, "adapter_launches": 12, "quantized_launches": 5, "deepspeed_launches": 40,
    "stage_launches": 40, "gather_launches": 500, "peer_launches": 200, "fsdp_launches": 150, "step_launches": 500,
    "activation_passes": 1.5, "compiled_passes": 1, "adapter_passes": 2, "logit_bytes": 24, "unpack_bytes": 6, "optimizer_bytes": 40, "fused_optimizer_bytes": 30,
    "packed_optimizer_bytes": 60, "host_optimizer_bytes": 42, "transfer_bytes": 8,
}  # fmt: skip
"""Where the descent begins: what such programs and machines are known to take, to within a factor of two or so."""
MEASURED_ELSEWHERE = ("host_memory", "between_nodes")
"""The points tell nothing of them apart from other constants: the host's memory was measured, the network is a common one."""


@dataclass(frozen=True)
class Point:
    """One measured run."""

    gpu: str
    model: str
    method: str
    shape: tuple[int, int]
    planned: Plan
    work: Work
    step_s: float
    row: dict[str, str]

    @property
    def half(self) -> int:
        return (MODELS.index(self.model) + SHAPES.index(self.shape)) % 2

    @property
    def kind(self) -> str:
        return gpu_kind(self.gpu) or self.gpu


@cache
def points(path: Path = HERE / "points.csv") -> list[Point]:
    """The runs of the file that completed."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_point(row) for row in csv.DictReader(file) if row["outcome"] == "COMPLETED"]


def _point(row: dict[str, str]) -> Point:
    gpus = int(row["num_gpus"])
    shape = (int(row["micro_batch_size"]), int(row["sequence_length"]))
    settings = (f"engine={row['engine']}", *settings_of(row))
    experiment = Experiment(
        cluster="local",
        method=row["method"],
        set=settings,
        steps=8,
        warmup_steps=3,
        gpus_per_node=gpus,
        model=row["model"],
        micro_batch_size=shape[0],
        sequence_length=shape[1],
    )
    hardware = Hardware(row["gpu"], "sm_90", 80.0, gpus, "nvidia", 32)
    planned = with_switches(_planned(experiment, Site(scheduler="local", hardware=hardware)), row["switches"])
    return Point(
        row["gpu"], row["model"], row["method"], shape, planned, work_of(planned), float(row["step_time_s_p50"]), row
    )


def _planned(experiment: Experiment, site: Site) -> Plan:
    return plan(experiment, load_cluster(experiment.cluster), load_method(experiment.method), site).plan


def rates_with(values: Constants, planned: Plan) -> Rates:
    peak = planned.gpu.peak_flops or 0.0
    return Rates(
        peak=peak,
        gpu=gpu_facts(planned.gpu.model or "") or guessed_facts(peak),
        fitted=Fitted(**{name: values[name] for name in MACHINE}),
        program=Program(**{name: values[name] for name in PROGRAM}),
    )


def ratios(values: Constants, runs: Iterable[Point]) -> list[float]:
    """Predicted over measured."""
    known: dict[str, Rates] = {}
    found = []
    for run in runs:
        rates = known.get(run.gpu) or known.setdefault(run.gpu, rates_with(values, run.planned))
        found.append(step_terms(run.work, rates).total / run.step_s)
    return found


def fit(runs: Sequence[Point]) -> dict[str, float]:
    """All constants from those runs."""
    start = {**MACHINE, **PROGRAM}
    names = [name for name in start if name not in MEASURED_ELSEWHERE]
    return descend(start, names, lambda values: loss_of(ratios(values, runs)))


@dataclass(frozen=True)
class Line:
    """One line of the table: errors of step times, as parts of the measured ones."""

    what: str
    runs: int
    median: float
    p90: float
    worst: float


def line(what: str, found: Sequence[float]) -> Line:
    errors = [abs(ratio - 1) for ratio in found]
    return Line(what, len(errors), median(errors), percentile(errors, 90) or 0.0, max(errors))


def homework(path: Path = HERE / "results" / "homework_steps.csv") -> list[tuple[str, Plan, float]]:
    """Machine, plan and seconds of a step of the homework's own runs, which its authors' logs tell."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            experiment = Experiment(
                cluster=row["cluster"],
                method=row["method"],
                model="llama2-7b",
                account="MST1",
                gpus_per_node=int(row["gpus"]),
                set=("engine=deepspeed", *row["settings"].split()),
            )
            planned = _planned(experiment, Site(scheduler="slurm"))
            tokens = planned.batch.global_batch_size * planned.batch.sequence_length
            found.append((row["machine"], planned, tokens / float(row["tokens_per_second"])))
    return found


def on_homework(values: Constants, machine: str) -> list[float]:
    """Predicted over measured."""
    return [
        step_terms(work_of(planned), rates_with(values, planned)).total / seconds
        for name, planned, seconds in homework()
        if name == machine
    ]


def recorded(path: Path = HERE / "results" / "leads.csv") -> list[tuple[Plan, float]]:
    """Plan and seconds of a step of runs whose forward and backward pass is one CUDA graph, as the plain engine has it."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["program"] == "ours" and row["variant"] == "cuda graph"]
    return [(_of_lead(row), float(row["step_ms_p50"]) / 1000) for row in rows]


def _of_lead(row: dict[str, str]) -> Plan:
    experiment = Experiment(
        cluster="local",
        method=row["method"],
        model=row["model"],
        set=("engine=plain", "cuda_graph=true"),
        micro_batch_size=int(row["micro_batch_size"]),
        sequence_length=int(row["sequence_length"]),
    )
    hardware = Hardware(row["gpu"], "sm_90", 80.0, int(row["gpus"]), "nvidia", 16)
    return as_measured(_planned(experiment, Site(scheduler="local", hardware=hardware)), cuda_graph=True)


def on_recorded(values: Constants) -> list[float]:
    """Predicted over measured."""
    return [step_terms(work_of(one), rates_with(values, one)).total / seconds for one, seconds in recorded()]


def table(runs: Sequence[Point]) -> list[Line]:
    """Errors on what the constants were not fitted to."""
    halves = [[run for run in runs if run.half == side] for side in (0, 1)]
    first = fit(halves[0])
    kinds = {kind: [run for run in runs if run.kind == kind] for kind in ("H100", "H200")}
    return [
        line("the half that was fitted", ratios(first, halves[0])),
        line("the other half", ratios(first, halves[1])),
        line("recorded steps (CUDA graphs) of other days, fitted on that half", on_recorded(first)),
        line("H200, fitted on H100 alone", ratios(fit(kinds["H100"]), kinds["H200"])),
        line("H100, fitted on H200 alone", ratios(fit(kinds["H200"]), kinds["H100"])),
        line("8x V100, fitted on that half", on_homework(first, "V100")),
        line("2x MI210, fitted on that half", on_homework(first, "MI210")),
    ]


def constants_document(values: Constants, runs: Sequence[Point]) -> dict[str, Any]:
    """What time_constants.json holds."""
    names = ("python", "torch", "deepspeed", "transformers", "bitsandbytes")
    return {
        "record": {
            "runs": len(runs),
            "gpus": sorted({run.kind for run in runs}),
            "engines": sorted({run.row["engine"] for run in runs}),
            "date": max(run.row["started_at"] for run in runs)[:10],
            "versions": {name: runs[-1].row[name] for name in names},
            "made_by": "python benchmarks/time_points.py --write",
        },
        "machine": {name: _rounded(values[name]) for name in MACHINE},
        "program": {name: _rounded(values[name]) for name in PROGRAM},
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="fit all runs and write the constants that come along")
    runs = points()
    if parser.parse_args().write:
        document = constants_document(fit(runs), runs)
        DATA.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return 0
    print("| step times of | runs | median error | 90 % within | largest |\n|---|---:|---:|---:|---:|")
    for one in table(runs):
        print(f"| {one.what} | {one.runs} | {one.median:.1%} | {one.p90:.1%} | {one.worst:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
