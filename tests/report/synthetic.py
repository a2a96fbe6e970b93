"""Run folders as a study leaves them: three clusters, seven methods, repeats, and every way of not completing.

The figures are made up, in the proportions that such runs have; a fixed seed makes them the same each time.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpc_llm.records import metrics
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths

GIB = 1 << 30
HOSTILE_CLUSTER = "<script>alert(1)</script>"
HOSTILE_METHOD = '=cmd|" /C calc"!A0'
SCRIPT_END = "echo '</script><img src=x onerror=alert(1)>' # & \"quoted\"\n"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster of the study."""

    name: str
    gpu: str
    gpus_per_node: int
    capacity_gib: float
    precision: str
    peak_tflops: float
    speed: float


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a method costs: tokens/s/GPU on the reference GPU and GiB on eight of them."""

    name: str
    letters: str
    rate: float
    gib: float


SITES = (
    Site(name="taiwania2", gpu="Tesla V100-SXM2-32GB", gpus_per_node=8, capacity_gib=32, precision="fp16",
         peak_tflops=125, speed=1.0),
    Site(name="mi210", gpu="AMD Instinct MI210", gpus_per_node=2, capacity_gib=64, precision="bf16",
         peak_tflops=181, speed=1.35),
    Site(name="delta", gpu="NVIDIA A100-SXM4-40GB", gpus_per_node=4, capacity_gib=40, precision="bf16",
         peak_tflops=312, speed=2.1),
)  # fmt: skip
RECIPES = (
    Recipe(name="z2o", letters="z2+o", rate=52.0, gib=15.8),
    Recipe(name="z3", letters="z3", rate=300.0, gib=27.5),
    Recipe(name="z3o", letters="z3+o", rate=32.0, gib=6.4),
    Recipe(name="q", letters="q", rate=926.0, gib=7.9),
    Recipe(name="qlora", letters="qlora", rate=610.0, gib=9.1),
    Recipe(name="z2", letters="z2", rate=410.0, gib=58.0),
    Recipe(name="ddp", letters="ddp", rate=455.0, gib=108.0),
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """One run to write; None leaves a figure out."""

    run_id: str
    cluster: str
    method: str
    letters: str = ""
    model: str = "llama2-7b"
    gpu: str | None = "Tesla V100-SXM2-32GB"
    nodes: int = 1
    world_size: int = 8
    precision: str = "fp16"
    micro_batch_size: int = 1
    accumulation: int = 1
    sequence_length: int = 350
    rate_per_gpu: float | None = 300.0
    peak_bytes: int | None = 20 * GIB
    mfu: float | None = 0.1
    outcome: str = "COMPLETED"
    reason: str | None = None
    steps: int = 40
    warmup: int = 5
    loss: float = 10.6
    sub_group_size: float = 1e9
    seed: int = 0


def write_run(logs: Path, made: Made) -> Path:
    """Write the folder of one run; returns it."""
    paths = RunPaths(logs / made.run_id)
    write_json(paths.experiment, {
        "schema": 1, "run_id": made.run_id, "plan": _plan(made), "origins": {"method": "flag", "steps": "default"},
        "notices": ["bf16 is not supported by V100, so fp16 is used"] if made.precision == "fp16" else [],
        "versions": {"hpc_llm": "0.1.0"}, "git_commit": "0123456789abcdef", "created_at": "2026-05-01T10:00:00Z",
    })  # fmt: skip
    paths.script.write_text(f"#!/bin/bash\n#SBATCH --job-name={made.method}\n{SCRIPT_END}srun pretrain_llm\n")
    steps = _steps(made)
    paths.steps.write_text("".join(json.dumps(step) + "\n" for step in steps))
    write_json(paths.result, _result(made, steps))
    return paths.root


def study(logs: Path, seed: int = 7) -> list[Path]:
    """The whole study: 77 runs, some of which did not complete."""
    chance = random.Random(seed)
    made = [*_grid(chance), *_scaling(chance), *_odd(chance)]
    return [write_run(logs, replace(one, seed=i)) for i, one in enumerate(made)]


def _grid(chance: random.Random) -> list[Made]:
    found = []
    for site in SITES:
        for recipe in RECIPES:
            for repeat in range(3 if recipe.name in ("z2o", "z3", "q") else 2 if recipe.name == "z3o" else 1):
                found.append(_one(site, recipe, site.gpus_per_node, 1, repeat, chance))
    return found


def _one(site: Site, recipe: Recipe, ranks: int, nodes: int, repeat: int, chance: random.Random) -> Made:
    share = 8 / ranks if recipe.letters.startswith(("z3", "z2")) else 1.0
    gib = recipe.gib * (0.6 + 0.4 * share)
    run_id = f"20260501-10{repeat:02}00-{site.name}-{recipe.name}-llama2-7b-{chance.randrange(16**4):04x}"
    base = Made(
        run_id=run_id, cluster=site.name, method=recipe.name, letters=recipe.letters, gpu=site.gpu, nodes=nodes,
        world_size=ranks, precision=site.precision,
    )  # fmt: skip
    if gib > site.capacity_gib:
        asked = f"CUDA out of memory: tried to allocate 2.00 GiB, {site.capacity_gib:.2f} GiB capacity"
        return replace(base, outcome="OOM_DEVICE", reason=asked, rate_per_gpu=None, peak_bytes=None, mfu=None, steps=0)
    rate = recipe.rate * site.speed * chance.gauss(1, 0.012) * (8 / ranks) ** 0.08
    mfu = None if recipe.letters.startswith("q") else rate * 6 * 6.74e9 / 1e12 / site.peak_tflops
    return replace(base, rate_per_gpu=rate, peak_bytes=int(gib * GIB), mfu=mfu)


def _scaling(chance: random.Random) -> list[Made]:
    found = []
    for site, counts in ((SITES[0], (16, 32)), (SITES[2], (8, 16))):
        for recipe in (RECIPES[1], RECIPES[0]):
            for ranks in counts:
                one = _one(site, recipe, ranks, ranks // site.gpus_per_node, 0, chance)
                assert one.rate_per_gpu is not None
                loss = 0.93 if recipe.name == "z3" else 0.97
                slower = one.rate_per_gpu * loss ** math.log2(ranks / site.gpus_per_node)
                run_id = one.run_id.replace("llama2-7b", f"{ranks}gpus")
                found.append(replace(one, run_id=run_id, rate_per_gpu=slower))
    return found


def _small(site: Site, recipe: Recipe, repeat: int, chance: random.Random) -> Made:
    """A smaller model, which fits everywhere."""
    rate = recipe.rate * site.speed * 4.2 * chance.gauss(1, 0.02)
    return replace(
        _one(site, recipe, site.gpus_per_node, 1, repeat, chance),
        run_id=f"20260502-1{repeat}0000-{site.name}-{recipe.name}-llama3.2-1b-{chance.randrange(16**4):04x}",
        model="llama3.2-1b", rate_per_gpu=rate, peak_bytes=int(recipe.gib / 5 * GIB), sequence_length=2048,
        micro_batch_size=4, outcome="COMPLETED", reason=None, steps=40,
        mfu=None if recipe.letters.startswith("q") else rate * 6 * 1.24e9 / 1e12 / site.peak_tflops,
    )  # fmt: skip


def _odd(chance: random.Random) -> list[Made]:
    """A second model, other endings, missing figures, another setting, hostile names."""
    site = SITES[0]
    z3 = _one(site, RECIPES[1], 8, 1, 7, chance)
    small = [
        _small(place, recipe, repeat, chance)
        for place in SITES
        for recipe in RECIPES[:5]
        for repeat in range(2 if recipe.name == "z3" else 1)
    ]
    return [
        *small,
        replace(z3, run_id="20260503-100000-taiwania2-z3-bigger", sub_group_size=4e9, rate_per_gpu=355.0),
        replace(z3, run_id="20260503-110000-taiwania2-z3-timeout", outcome="TIMEOUT", steps=18,
                reason="stopped at the time limit of 1800 s"),
        replace(z3, run_id="20260503-120000-taiwania2-z3-nan", outcome="INVALID",
                reason="the loss is not a finite number from step 12 on"),
        replace(z3, run_id="20260503-130000-taiwania2-z3-gpu", outcome="INVALID", gpu="Tesla V100-PCIE-16GB",
                reason="it ran on Tesla V100-PCIE-16GB, V100-SXM2-32GB was planned"),
        replace(z3, run_id="20260503-140000-taiwania2-z2o-host", method="z2o", letters="z2+o", outcome="OOM_HOST",
                reason="a process was killed by the kernel: the node's memory was full", rate_per_gpu=None,
                peak_bytes=None, mfu=None, steps=0),
        replace(z3, run_id="20260503-150000-delta-z3-node", cluster="delta", gpu=None, outcome="NODE_FAIL",
                reason="the node went down", rate_per_gpu=None, peak_bytes=None, mfu=None, steps=0),
        replace(z3, run_id="20260503-160000-mi210-q-nomem", cluster="mi210", gpu=SITES[1].gpu, method="q", letters="q",
                world_size=1, rate_per_gpu=880.0, peak_bytes=None, mfu=None),
        replace(z3, run_id="20260504-100000-hostile-a", cluster=HOSTILE_CLUSTER, method="<img src=x onerror=alert(2)>"),
        replace(z3, run_id="20260504-110000-hostile-b", cluster="a|b*c_d\\e", method=HOSTILE_METHOD, rate_per_gpu=301.5),
    ]  # fmt: skip


def _plan(made: Made) -> dict[str, Any]:
    batch = made.micro_batch_size * made.accumulation * made.world_size
    return {
        "task": "pretrain", "cluster": made.cluster, "scheduler": "slurm", "launcher": "srun", "method": made.method,
        "letters": made.letters, "model": made.model, "nodes": made.nodes,
        "gpus_per_node": made.world_size // made.nodes, "tasks_per_node": made.world_size // made.nodes,
        "cpus_per_task": 4, "world_size": made.world_size, "micro_batch_size": made.micro_batch_size,
        "gradient_accumulation_steps": made.accumulation, "global_batch_size": batch,
        "sequence_length": made.sequence_length, "steps": made.steps or 40, "warmup_steps": made.warmup, "seed": 42,
        "precision": made.precision, "attention": "sdpa", "recompute": made.letters.startswith("q"),
        "quantization": None, "peft": None, "optimizer": {"type": "AdamW", "lr": 2e-5}, "data": [],
        "deepspeed": {"train_batch_size": batch, "zero_optimization": {
            "stage": 3 if "z3" in made.letters else 2, "sub_group_size": made.sub_group_size}},
        "expected_gpu": None, "peak_flops": None, "partition": "gp1d", "account": "ACD110018", "time_s": 1800,
        "job_name": made.method, "mem": None, "sbatch": {}, "env": {},
    }  # fmt: skip


def _steps(made: Made) -> list[dict[str, Any]]:
    chance = random.Random(made.seed)
    tokens = made.world_size * made.micro_batch_size * made.accumulation * made.sequence_length
    rate = (made.rate_per_gpu or 100.0) * made.world_size
    found = []
    parts = [chance.gauss(1, 0.02) for _ in range(made.steps)]
    mean = metrics.mean(parts[made.warmup :]) or 1.0  # of the measured ones, which is that of the result
    for step, part in enumerate(parts, start=1):
        time_s = tokens / rate * part / mean * (3 if step == 1 else 1)
        slower = {"q": 1.5, "qlora": 1.25}.get(made.method, 1.0)
        loss: float | None = 7.0 + (made.loss - 7.0) * math.exp(-step / 14 / slower) + chance.gauss(0, 0.04)
        if made.reason and "finite" in made.reason and step >= 12:
            loss = None
        found.append({
            "step": step, "loss": loss, "step_time_s": time_s, "tokens_per_second": tokens / time_s,
            "learning_rate": 2e-5, "grad_norm": 1.0, "allocated_bytes": made.peak_bytes and made.peak_bytes // 2,
            "peak_allocated_bytes": made.peak_bytes, "skipped": False, "warmup": step <= made.warmup,
            "time": 1777629600.0 + step,
        })  # fmt: skip
    return found


def _result(made: Made, steps: list[dict[str, Any]]) -> dict[str, Any]:
    rate = made.rate_per_gpu
    total = rate * made.world_size if rate is not None else None
    tokens = made.world_size * made.micro_batch_size * made.accumulation * made.sequence_length
    mean = tokens / total if total else None
    losses = [s["loss"] for s in steps]
    times = [s["step_time_s"] for s in steps[made.warmup :]]
    failed = made.outcome not in ("COMPLETED", "INVALID")
    return {
        "schema": 1, "gpu": made.gpu, "num_parameters": 6_738_415_616, "world_size": made.world_size,
        "warmup_steps": made.warmup, "measured_steps": max(made.steps - made.warmup, 0),
        "step_time_s_mean": mean, "step_time_s_p50": mean and metrics.percentile(times, 50),
        "step_time_s_p90": mean and metrics.percentile(times, 90),
        "tokens_per_second": total, "tokens_per_second_per_gpu": rate, "mfu": made.mfu,
        "peak_allocated_bytes": made.peak_bytes, "peak_reserved_bytes": made.peak_bytes and int(made.peak_bytes * 1.1),
        "peak_device_bytes": made.peak_bytes and int(made.peak_bytes * 1.1) + GIB // 2, "peak_host_bytes": 60 * GIB,
        "loss_first": losses[0] if losses else None, "loss_last": losses[-1] if losses else None, "elapsed_s": max(600.0, 20.0 + made.steps * (mean or 0.0)),
        "outcome": made.outcome, "outcome_reason": made.reason,
        "invalid_reason": made.reason if made.outcome == "INVALID" else None, "started_at": "2026-05-01T10:00:00+00:00",
        "versions": {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.17.0"},
        "hardware": {"gpu": made.gpu, "host": "gn1101"}, "adaptations": [],
        "error": {"type": "OutOfMemoryError", "message": made.reason, "traceback": "Traceback …\n  File <train>\n"}
        if failed else None,
    }  # fmt: skip
