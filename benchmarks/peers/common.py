"""What the programs beside which ours is timed have in common. They share no code with hpc_llm: they are what a user would write."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

GIB = 2**30


def read_arguments(about: str | None, *flags: str) -> argparse.Namespace:
    """The flags that all peers take, and those of one alone, which are switches."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model-config", type=Path, required=True, help="JSON with the values of LlamaConfig")
    parser.add_argument("--micro-batch-size", type=int, default=1)
    parser.add_argument("--sequence-length", type=int, default=350)
    parser.add_argument("--steps", type=int, default=23, help="all steps, warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=42)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def own_device() -> torch.device:
    """The GPU of this rank; the CPU where there is none, so that the program can be tried."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def llama_config(path: Path) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**json.loads(path.read_text()), use_cache=False)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(step: Callable[[], Any], device: torch.device, steps: int, warmup: int) -> dict[str, Any]:
    """Median time of a step in ms behind the warm-up, the device waited for on both sides, largest memory, the last loss, and
    when the first step was done, in seconds since 1970."""
    times, loss, first_step_at = [], None, None
    for number in range(steps):
        if number == warmup and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        wait(device)
        began = time.perf_counter()
        loss = step()
        wait(device)
        first_step_at = first_step_at or time.time()
        if number >= warmup:
            times.append(time.perf_counter() - began)
    return {
        "step_ms": 1e3 * statistics.median(times),
        "first_step_at": first_step_at,
        "loss_last": None if loss is None else float(loss),
        **peak(device),
    }


def peak(device: torch.device) -> dict[str, float | None]:
    """Largest memory of tensors, and of the allocator, which holds what a CUDA graph works in."""
    if device.type != "cuda":
        return {"allocated_gib": None, "reserved_gib": None}
    allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return {"allocated_gib": allocated / GIB, "reserved_gib": reserved / GIB}


def tell(found: dict[str, Any]) -> None:
    """The first rank's result, as the last line."""
    if int(os.environ.get("RANK", "0")) == 0:
        print("RESULT " + json.dumps(found), flush=True)
