"""An estimate as JSON types."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hpc_llm.estimating.parts import Device, Estimate, Need


def document(estimate: Estimate) -> dict[str, Any]:
    """The keys that scripts may rely on; what is not known is null."""
    memory = estimate.memory
    device, host = (memory.device, memory.host) if memory else (None, None)
    time = asdict(estimate.time) if estimate.time else {}
    return {
        "cluster": estimate.cluster,
        "method": estimate.method,
        "run": estimate.run,
        "model": estimate.model,
        "gpu": estimate.gpu,
        "gpus": estimate.gpus,
        "micro_batch_size": estimate.micro_batch_size,
        "sequence_length": estimate.sequence_length,
        "verdict": None if estimate.refused else estimate.verdict.value,
        "refused": estimate.refused,
        "device": device and _device(device),
        "host": host and {"peak_bytes": host.peak, **_shared(host)},
        "checkpoint_bytes": estimate.checkpoint,
        "disk_bytes": estimate.disk,
        "step_time_s": time.get("step_time_s"),
        "tokens_per_second": time.get("tokens_per_second"),
        "time": time or None,
        "interval": {
            "device_bytes": device and [device.low, device.high],
            "host_bytes": host and [host.low, host.high],
            "step_time_s": time.get("interval"),
        },
        "largest_micro_batch_size": estimate.largest_micro_batch,
        "fewest_gpus": estimate.fewest_gpus,
        "recomputed": estimate.recomputed,
        "notes": list(estimate.all_notes),
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "peak_allocated_bytes": device.peak,
        "outside_bytes": device.outside,
        "fragments_bytes": device.fragments,
        "moment": device.moment,
        **_shared(device),
    }


def _shared(need: Need) -> dict[str, Any]:
    known = None if need.capacity is None else need.verdict.value
    return {"capacity_bytes": need.capacity, "verdict": known, "breakdown": dict(need.breakdown)}
