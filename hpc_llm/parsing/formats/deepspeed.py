"""DeepSpeed: what the engine prints below any program that trains with it.

Its timer counts steps from the start of the process, its own line those of the whole run, loaded with a checkpoint.
It prints no loss, and a first `step=0` before training. Its memory figures are torch bytes divided by 1024**3, although
they say GB. `RunningAvgSamplesPerSec` is its own mean, without the first two steps; the oldest versions print it alone, as
`SamplesPerSec`; `CurrSamplesPerSec` is that of the printed step alone. Its timer runs from a forward pass of its own engine to the end of
the step: what other engines of the program do stands outside, and micro batches before the last one where the program does not call
it for them. The clock of its lines shows that. With the wall clock breakdown on, a step is the sum of its forward, backward and optimizer time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, number, rule
from hpc_llm.parsing.run import EARLY_PEAK


def _setting(name: str, value: str) -> str:
    """A line of the configuration that the engine prints: dots fill the space up to the value."""
    return rf"\]   {name} [. ]*? ?{value}"


def _wall_clock(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The synchronised times of one step's passes; loading data is not among them."""
    parts = [number(part) for part in match.groups()]
    times = [part for part in parts if part is not None]
    return {"step_time_s": sum(times) / 1000} if len(times) == 3 else None


def _stamped(words: str) -> str:
    """What stands before a step's number, with the clock that its logger writes at the beginning."""
    return rf"(?:\[(?P<engine_stamp>20\d\d-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d,\d{{3}})\] \[\w{{1,10}}\] \[{words})?"


def _clock(found: dict[str, Value]) -> dict[str, Value]:
    """The stamp as seconds, with the number of the step that it is of."""
    stamp = found.pop("engine_stamp", None)
    if not isinstance(stamp, str) or "step" not in found:
        return found
    try:
        when = datetime.strptime(f"{stamp}+0000", "%Y-%m-%d %H:%M:%S,%f%z")
    except ValueError:
        return found
    return {**found, "engine_stamp_s": when.timestamp(), "engine_step": found["step"]}


_ON_HOST = frozenset(("cpu", "gloo", "ccl"))
"""Accelerators, and backends of the ranks' communication, that say that the model is in the host's memory."""
_FREED = 1.2
"""A process does not give back so much of its memory between two steps; an allocator on a device does."""


def _device_has_it(known: Mapping[str, Value], allocated: object, peak: float) -> bool | None:
    """Whether the engine counts a device's memory; on a CPU it prints the resident memory of the process instead."""
    where = known.get("accelerator", known.get("backend"))
    if where is not None:
        return str(where).lower() not in _ON_HOST
    if "gpu" in known or (isinstance(allocated, (int, float)) and peak >= _FREED * allocated > 0):
        return True
    return None


def _place(values: Mapping[str, Value], known: Mapping[str, Value], has_steps: bool) -> Mapping[str, Value]:
    """The columns of the engine's memory figures. What its report says before training is no peak of training."""
    found = _clock(dict(values))
    if "report_peak_bytes" in found:
        peak = found.pop("report_peak_bytes")
        return {**found, ("engine_peak_bytes" if has_steps else EARLY_PEAK): peak}
    if "engine_peak_bytes" not in found:
        return found
    peak, allocated = found.pop("engine_peak_bytes"), found.pop("engine_allocated_bytes", None)
    is_device = _device_has_it(known, allocated, float(peak))
    if is_device is None:
        return {**found, "engine_peak_bytes": peak}
    if not is_device:
        return {**found, "peak_host_bytes": peak}
    return {**found, "peak_allocated_bytes": peak, **({} if allocated is None else {"allocated_bytes": allocated})}


_DIVIDES = (
    (" STAGE=", r"RANK=\d+ STAGE=\d+"),
    ("CONFIG: micro_batches=", "CONFIG: micro_batches="),
    ("Partitioning pipeline stages", "Partitioning pipeline stages"),
    ("odel parallel ", r"\b[Mm]odel parallel (?:rank [1-9]|with size (?:[2-9]|[1-9]\d))"),
    ("tp_size", r"\b(?:auto)?tp_size[ .=:\"']{1,40}(?:[2-9]|[1-9]\d)"),
    (
        "_parallel_size",
        r"\b(?:tensor|pipeline|sequence|model)(?:_model)?_parallel_size[ .=:\"']{1,40}(?:[2-9]|[1-9]\d)",
    ),
)
"""What shows that ranks share a batch; the configuration's world size is then the number of groups that do not."""


ASSUMED = "ranks_assumed"
"""With it the number of ranks is that of data parallelism, as nothing of the engine's shows that ranks share a batch."""


def _ranks(match: re.Match[bytes]) -> Mapping[str, Value]:
    """As many as there are places in the topology."""
    return {"ranks_of_topology": match[1].count(b"ProcessCoord(")}


def _count_ranks(values: dict[str, Value]) -> None:
    ranks = values.get("ranks_of_topology", None if "divided" in values else values.get("data_parallel_ranks"))
    if "world_size" in values:
        return
    if ranks is not None:
        values["world_size"] = ranks
        if "ranks_of_topology" not in values:
            values[ASSUMED] = 1
    elif "data_parallel_ranks" in values:
        leave_empty(values, "world size: DeepSpeed's is that of data parallelism, and ranks share a batch")


_OFFLOADED = re.compile(
    r"offload_\w{1,40}=\w{0,80}\(device=(?:<OffloadDeviceEnum\.)?'?(?:cpu|nvme)|\bcpu_offload\W{1,3}True"
)


def _finish(values: dict[str, Value]) -> None:
    """Precision and method from the switches that are on, and where the memory is that the engine counts."""
    _place_peak(values)
    _count_ranks(values)
    for precision in ("bf16", "fp16"):
        if values.get(f"{precision}_enabled") == "True":
            values.setdefault("precision", precision)
    stage, config = values.get("zero_stage"), values.get("zero_config")
    if isinstance(stage, str) and stage in "123":
        on_host = isinstance(config, str) and _OFFLOADED.search(config)
        values.setdefault("method", f"z{stage}o" if on_host else f"z{stage}")


def _place_peak(values: dict[str, Value]) -> None:
    peak = values.get("engine_peak_bytes")
    if not isinstance(peak, int):
        return
    is_device = "peak_allocated_bytes" in values or _device_has_it(values, None, peak)
    if is_device is None:
        leave_empty(values, "DeepSpeed's memory: the log does not say whether it is a GPU's or the process's")
        return
    column = "peak_allocated_bytes" if is_device else "peak_host_bytes"
    values[column] = max(peak, int(float(str(values.get(column, 0)))))


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
        b"] dist_world_size=",
        b"[Rank 0] time (ms) | ",
        b"_microstep: ",
        b"DeepSpeed Basic Optimizer",
        b"[deepspeed] OVERFLOW!",
        b"[deepscale] OVERFLOW!",
    ),
    precedence=90,
    companion=True,
    single=True,
    rules=(
        rule(
            Kind.STEP,
            r"\[Rank \d+\] step=(?!0,)<step>, skipped=<skipped_total>, lr=\[<learning_rate>",
            literal="] step=",
        ),
        rule(
            Kind.STEP,
            _stamped(r"[\w.:]{1,60}\] epoch=\d{1,9}/micro_step=\d{1,12}")
            + r"/global_step=<step>, RunningAvgSamplesPerSec=<mean_samples_per_second>"
            r", CurrSamplesPerSec=<samples_per_second>"
            r"(?:, MemAllocated=<engine_allocated_gib>GB, MaxMemAllocated=<engine_peak_gib>GB)?",
            literal="/global_step=",
            counts_anew=True,
        ),
        rule(
            Kind.STEP,
            _stamped(r"[\w.]{1,40}:\d{1,5}:")
            + r"stop\] \d+/<step>, RunningAvgSamplesPerSec=<mean_samples_per_second>, CurrSamplesPerSec=<samples_per_second>"
            r"(?:, MemAllocated=<engine_allocated_gib>GB, MaxMemAllocated=<engine_peak_gib>GB)?",
            literal=", RunningAvgSamplesPerSec=",
            counts_anew=True,
        ),
        rule(
            Kind.STEP,
            _stamped(r"[\w.:]{1,60}") + r"\] \d+/<step>, SamplesPerSec=<mean_samples_per_second>"
            r"(?:, MemAllocated=<engine_allocated_gib>GB, MaxMemAllocated=<engine_peak_gib>GB)?",
            literal=", SamplesPerSec=",
            counts_anew=True,
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
            r"\bMA [0-9.]+ GB +Max_MA <report_peak_gib> GB",
            literal="Max_MA ",
        ),
        # Only the steps that are printed can be marked as skipped; these lines stand between them.
        rule(
            Kind.RUN,
            r"\[deeps(?:peed|cale)\] OVERFLOW! Rank \d+ (?P<trains>Skipping) step\.",
            literal="] OVERFLOW! Rank ",
        ),
        rule(
            Kind.RUN,
            r"DeepSpeed Basic Optimizer = (?P<trains>(?!None|Dummy)\w+)",
            literal="DeepSpeed Basic Optimizer = ",
        ),
        rule(Kind.SETUP, r"DeepSpeed info: version=", literal="DeepSpeed info: version="),
        rule(Kind.START, r"DeepSpeedEngine configuration:", literal="DeepSpeedEngine configuration:"),
        rule(Kind.SETUP, _setting("world_size", "<data_parallel_ranks>$"), literal="]   world_size "),
        rule(Kind.SETUP, r"Using topology: \{(ProcessCoord\([^\n]*)", _ranks, literal="Using topology: {"),
        *(rule(Kind.RUN, rf"(?P<divided>{text})", literal=literal) for literal, text in _DIVIDES),
        rule(Kind.SETUP, _setting("train_batch_size", "<global_batch_size>$"), literal="]   train_batch_size "),
        rule(
            Kind.SETUP,
            _setting("train_micro_batch_size_per_gpu", "<micro_batch_size>$"),
            literal="]   train_micro_batch_size_per_gpu ",
        ),
        rule(
            Kind.SETUP,
            _setting("gradient_accumulation_steps", "<gradient_accumulation_steps>$"),
            literal="]   gradient_accumulation_steps ",
        ),
        rule(
            Kind.SETUP,
            _setting("zero_optimization_stage", r"(?P<zero_stage>\d)$"),
            literal="]   zero_optimization_stage ",
        ),
        rule(Kind.SETUP, _setting("zero_config", r"(?P<zero_config>[^\n]+)$"), literal="]   zero_config "),
        rule(Kind.SETUP, _setting("bfloat16_enabled", r"(?P<bf16_enabled>\w+)$"), literal="]   bfloat16_enabled "),
        rule(Kind.SETUP, _setting("fp16_enabled", r"(?P<fp16_enabled>\w+)$"), literal="]   fp16_enabled "),
        rule(Kind.SETUP, _setting("bfloat16_config", r"enabled=(?P<bf16_enabled>\w+)"), literal="]   bfloat16_config "),
        rule(Kind.SETUP, _setting("float16_config", r"enabled=(?P<fp16_enabled>\w+)"), literal="]   float16_config "),
        rule(Kind.RUN, r"Setting (?:ds_)?accelerator to (?P<accelerator>\w+)", literal="ccelerator to ", aside=True),
        rule(Kind.RUN, r"\bdist_world_size=<launched_ranks>$", literal="dist_world_size=", aside=True),
        rule(
            Kind.SETUP,
            r"Initializing TorchBackend in DeepSpeed with backend (?P<backend>\w+)",
            literal="Initializing TorchBackend in DeepSpeed with backend ",
        ),
        rule(Kind.RUN, r"'--seq_len(?:gth)?'?[,=] ?'?<sequence_length>'", literal="--seq_len"),
    ),
    place=_place,
    finish=_finish,
)
