"""DeepSpeed: what the engine prints below any program that trains with it.

It prints no loss, and a first `step=0` before training. Its memory figures are torch bytes divided by 1024**3, although
they say GB. `RunningAvgSamplesPerSec` is its own mean, without the first two steps; the oldest versions print it alone, as
`SamplesPerSec`. With the wall clock breakdown on, a step is the sum of its forward, backward and optimizer time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parse.registry import LineFormat
from hpc_llm.parse.rules import Kind, Value, number, rule


def _setting(name: str, value: str) -> str:
    """A line of the configuration that the engine prints: dots fill the space up to the value."""
    return rf"\]   {name} [. ]*? ?{value}"


def _wall_clock(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The synchronised times of one step's passes; loading data is not among them."""
    parts = [number(part) for part in match.groups()]
    times = [part for part in parts if part is not None]
    return {"step_time_s": sum(times) / 1000} if len(times) == 3 else None


_OFFLOADED = re.compile(r"offload_\w+=\w*\(device=(?:<OffloadDeviceEnum\.)?'?(?:cpu|nvme)|\bcpu_offload\W{1,3}True")


def _finish(values: dict[str, Value]) -> None:
    """Precision and method from the switches that are on; a peak of zero is a rounded one."""
    if values.get("peak_allocated_bytes") == 0:
        del values["peak_allocated_bytes"]
    for precision in ("bf16", "fp16"):
        if values.get(f"{precision}_enabled") == "True":
            values.setdefault("precision", precision)
    stage, config = values.get("zero_stage"), values.get("zero_config")
    if isinstance(stage, str) and stage in "123":
        on_host = isinstance(config, str) and _OFFLOADED.search(config)
        values.setdefault("method", f"z{stage}o" if on_host else f"z{stage}")


FORMAT = LineFormat(
    name="deepspeed",
    hints=(
        b"SamplesPerSec=",
        b"[Rank 0] step=",
        b"[deepspeed.",
        b"DeepSpeedEngine configuration",
        b"see_memory_usage",
        b"[real_accelerator.py",
        b"DeepSpeed info: ",
        b"[Rank 0] time (ms) | ",
        b"_microstep: ",
        b"DeepSpeed Basic Optimizer",
        b"[deepspeed] OVERFLOW!",
        b"[deepscale] OVERFLOW!",
    ),
    precedence=90,
    companion=True,
    rules=(
        rule(
            Kind.STEP,
            r"\[Rank \d+\] step=(?!0,)<step>, skipped=<skipped_total>, lr=\[<learning_rate>",
            literal="] step=",
        ),
        rule(
            Kind.STEP,
            r"/global_step=<step>, RunningAvgSamplesPerSec=<mean_samples_per_second>"
            r", CurrSamplesPerSec=<samples_per_second>"
            r"(?:, MemAllocated=<allocated_gib>GB, MaxMemAllocated=<peak_allocated_gib>GB)?",
            literal="/global_step=",
        ),
        rule(
            Kind.STEP,
            r"stop\] \d+/<step>, RunningAvgSamplesPerSec=<mean_samples_per_second>, CurrSamplesPerSec=<samples_per_second>"
            r"(?:, MemAllocated=<allocated_gib>GB, MaxMemAllocated=<peak_allocated_gib>GB)?",
            literal=", RunningAvgSamplesPerSec=",
        ),
        rule(
            Kind.STEP,
            r"\] \d+/<step>, SamplesPerSec=<mean_samples_per_second>"
            r"(?:, MemAllocated=<allocated_gib>GB, MaxMemAllocated=<peak_allocated_gib>GB)?",
            literal=", SamplesPerSec=",
        ),
        rule(
            Kind.TICK,
            r"time \(ms\) \| (?:fwd|forward): ([\d.]+) \| (?:bwd|backward): ([\d.]+) \|"
            r"[^\n]* step: ([\d.]+)$",
            _wall_clock,
            literal="time (ms) | f",
        ),
        rule(
            Kind.RUN,
            r"\bMA [0-9.]+ GB +Max_MA <peak_allocated_gib> GB",
            literal="Max_MA ",
        ),
        # Only the steps that are printed can be marked as skipped; these lines stand between them.
        rule(Kind.RUN, r"\[deeps(?:peed|cale)\] OVERFLOW! Rank \d+ Skipping step\.", literal="] OVERFLOW! Rank "),
        rule(Kind.RUN, r"DeepSpeed info: version=", literal="DeepSpeed info: version="),
        rule(Kind.START, r"DeepSpeedEngine configuration:", literal="DeepSpeedEngine configuration:"),
        rule(Kind.RUN, _setting("world_size", "<world_size>$"), literal="]   world_size "),
        rule(Kind.RUN, _setting("train_batch_size", "<global_batch_size>$"), literal="]   train_batch_size "),
        rule(
            Kind.RUN,
            _setting("train_micro_batch_size_per_gpu", "<micro_batch_size>$"),
            literal="]   train_micro_batch_size_per_gpu ",
        ),
        rule(
            Kind.RUN,
            _setting("gradient_accumulation_steps", "<gradient_accumulation_steps>$"),
            literal="]   gradient_accumulation_steps ",
        ),
        rule(
            Kind.RUN,
            _setting("zero_optimization_stage", r"(?P<zero_stage>\d)$"),
            literal="]   zero_optimization_stage ",
        ),
        rule(Kind.RUN, _setting("zero_config", r"(?P<zero_config>[^\n]+)$"), literal="]   zero_config "),
        rule(Kind.RUN, _setting("bfloat16_enabled", r"(?P<bf16_enabled>\w+)$"), literal="]   bfloat16_enabled "),
        rule(Kind.RUN, _setting("fp16_enabled", r"(?P<fp16_enabled>\w+)$"), literal="]   fp16_enabled "),
        rule(Kind.RUN, _setting("bfloat16_config", r"enabled=(?P<bf16_enabled>\w+)"), literal="]   bfloat16_config "),
        rule(Kind.RUN, _setting("float16_config", r"enabled=(?P<fp16_enabled>\w+)"), literal="]   float16_config "),
        rule(Kind.RUN, r"'--seq_len(?:gth)?'?[,=] ?'?<sequence_length>'", literal="--seq_len"),
    ),
    finish=_finish,
)
