"""How near estimates are to the memory that runs on the CPU took: `results/cpu_memory.csv` against `hpc_llm.estimating`.

    hpc-llm submit benchmarks/cpu_memory.yaml --logs DIR --wait
    python benchmarks/cpu_memory.py DIR…        # adds them to the CSV, in place of rows of the same runs and versions
    python benchmarks/cpu_memory.py             # the table for RESULTS.md

Memory is exact whatever else the machine does; it differs by a few percent from run to run.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

import hpc_llm
from hpc_llm.estimating.memory import memory_of
from hpc_llm.estimating.parts import Need
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.run import RunPaths
from hpc_llm.site.cluster import load_cluster

ROWS = Path(__file__).parent / "results" / "cpu_memory.csv"
_VERSIONS = ("torch", "transformers", "deepspeed", "bitsandbytes")


@dataclass(frozen=True)
class Measured:
    """A run that completed."""

    peak_bytes: int
    """Most bytes of a rank's memory."""
    method: str
    engine: str
    model: str
    precision: str
    tasks_per_node: int
    micro_batch_size: int
    sequence_length: int
    gradient_accumulation_steps: int
    versions: str

    @cached_property
    def plan(self) -> Plan:
        [planned] = hpc_llm.plan(
            cluster="local", method=self.method, model=self.model, micro_batch_size=self.micro_batch_size,
            sequence_length=self.sequence_length, gradient_accumulation_steps=self.gradient_accumulation_steps,
            set={"engine": self.engine, "precision": self.precision, "tasks_per_node": self.tasks_per_node}, steps=4, warmup_steps=1,
        )  # fmt: skip
        return planned.plan

    @property
    def said(self) -> Need:
        """Of its node."""
        return memory_of(self.plan, load_cluster("local"), sizes_in(self.plan)).host

    @property
    def error(self) -> float:
        """Of what was said of a rank, as a part of what it took: less is negative."""
        return self.said.peak / self.tasks_per_node / self.peak_bytes - 1

    @property
    def is_inside(self) -> bool:
        return self.said.low <= self.peak_bytes * self.tasks_per_node <= self.said.high

    @property
    def build(self) -> str:
        """Of torch: `cpu`, or that for a GPU which is not there, as `cu130`."""
        return self.versions.partition(",")[0].partition("+")[2]

    @property
    def title(self) -> str:
        parts = [self.model, self.method, f"{self.micro_batch_size} x {self.sequence_length}", self.engine]
        if self.build != "cpu":
            parts.append(self.build)
        if self.tasks_per_node > 1:
            parts.append(f"{self.tasks_per_node} ranks")
        if self.gradient_accumulation_steps > 1:
            parts.append(f"{self.gradient_accumulation_steps} micro batches")
        return ", ".join([*parts, *([self.precision] if self.precision != "bf16" else [])])


def rows() -> list[Measured]:
    """Those of the CSV."""
    with ROWS.open(newline="", encoding="utf-8") as file:
        return [
            Measured(**{name: int(value) if value.isdigit() else value for name, value in row.items()})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


def table(measured: Sequence[Measured]) -> Iterator[str]:
    """Rows of Markdown."""
    yield "| run | took, GB a rank | said, GB | error | inside the interval |"
    yield "|---|---:|---:|---:|---|"
    for one in measured:
        said = one.said.peak / one.tasks_per_node / 1e9
        inside = "yes" if one.is_inside else "no"
        yield f"| {one.title} | {one.peak_bytes / 1e9:.2f} | {said:.2f} | {100 * one.error:+.1f}% | {inside} |"


def collected(folders: Sequence[str]) -> Iterator[Measured]:
    """Of the runs in these folders."""
    for folder in folders:
        for run in map(RunPaths, sorted(Path(folder).glob("[0-9]*"))):
            result = json.loads(run.result.read_text()) if run.result.exists() else {}
            if result.get("outcome") == "COMPLETED":
                plan = Plan.from_dict(json.loads(run.experiment.read_text())["plan"])
                known = result["versions"]
                yield Measured(
                    peak_bytes=result["peak_host_bytes"], method=plan.method, engine=result["engine"], model=plan.model.name,
                    precision=plan.model.precision, tasks_per_node=plan.parallel.tasks_per_node,
                    micro_batch_size=plan.batch.micro_batch_size, sequence_length=plan.batch.sequence_length,
                    gradient_accumulation_steps=plan.batch.gradient_accumulation_steps,
                    versions=", ".join(f"{name} {known[name]}" for name in _VERSIONS if known.get(name)),
                )  # fmt: skip


def main() -> None:
    if folders := sys.argv[1:]:
        known = {(one.title, one.versions): one for one in (*rows(), *collected(folders))}
        with ROWS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Measured)])
            writer.writeheader()
            writer.writerows(asdict(one) for one in known.values())
    print("\n".join(table(rows())))


if __name__ == "__main__":
    main()
