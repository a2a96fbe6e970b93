"""What this machine has, asked without torch: for clusters that say `gpu.vendor: auto`.

This is an effect; the planner takes its result as an argument.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """GPUs and CPU cores of this machine. `gpu_model` is None where there is no GPU."""

    gpu_model: str | None = None
    arch: str | None = None
    memory_gib: float | None = None
    """Of one GPU, GiB."""
    gpus: int = 0
    vendor: str = "none"
    cpus: int = 1


def detect() -> Hardware:
    """Ask nvidia-smi, then rocm-smi, then settle for the CPU."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _nvidia(cpus) or _amd(cpus) or Hardware(cpus=cpus)


def _output(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    import subprocess  # takes as long as the rest of this module, and planning imports it

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _nvidia(cpus: int) -> Hardware | None:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    return parse_nvidia_smi(_output(query), cpus)


def parse_nvidia_smi(text: str, cpus: int) -> Hardware | None:
    """Hardware from `nvidia-smi --query-gpu=name,memory.total,compute_cap --format=csv,noheader,nounits`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.count(",") == 2]
    if not rows:
        return None
    name, mib, capability = rows[0]
    memory = round(float(mib) / 1024, 1) if mib.replace(".", "").isdigit() else None
    return Hardware(name, "sm_" + capability.replace(".", ""), memory, len(rows), "nvidia", cpus)


def _amd(cpus: int) -> Hardware | None:
    return parse_rocm_smi(_output(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--csv"]), cpus)


def parse_rocm_smi(text: str, cpus: int) -> Hardware | None:
    """Hardware from `rocm-smi --showproductname --showmeminfo vram --csv`."""
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or "device" not in lines[0]:
        return None
    row = dict(zip(lines[0], lines[1], strict=False))
    total = row.get("VRAM Total Memory (B)", "")
    name = row.get("Card Series") or row.get("Card series") or row.get("Card model")
    memory = round(int(total) / 2**30, 1) if total.isdigit() else None
    return Hardware(name, row.get("GFX Version") or None, memory, len(lines) - 1, "amd", cpus)
