"""What this machine has, asked without torch: for clusters that say `gpu.vendor: auto`.

This is an effect; the planner takes its result as an argument.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from dataclasses import dataclass

from hpc_llm.text.numbers import whole_number

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


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


_NVIDIA_FIELDS = ("name", "memory.total", "compute_cap")


def _nvidia(cpus: int) -> Hardware | None:
    # Drivers before 510 do not know compute_cap and answer nothing at all when asked for it.
    for fields in (_NVIDIA_FIELDS, _NVIDIA_FIELDS[:2]):
        query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        found = parse_nvidia_smi(_output(query), cpus)
        if found is not None:
            return found
    return None


def parse_nvidia_smi(text: str, cpus: int) -> Hardware | None:
    """Hardware from `nvidia-smi --query-gpu=name,memory.total[,compute_cap] --format=csv,noheader,nounits`.

    What the driver does not know, it writes as [N/A] or [Not Supported]; here it is None.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.count(",") in (1, 2)]
    if not rows:
        return None
    name, mib, *capability = rows[0]
    memory = round(float(mib) / 1024, 1) if _NUMBER.fullmatch(mib) else None
    arch = "sm_" + capability[0].replace(".", "") if capability and _NUMBER.fullmatch(capability[0]) else None
    return Hardware(name, arch, memory, len(rows), "nvidia", cpus)


def _amd(cpus: int) -> Hardware | None:
    return parse_rocm_smi(_output(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--csv"]), cpus)


def parse_rocm_smi(text: str, cpus: int) -> Hardware | None:
    """Hardware from `rocm-smi --showproductname --showmeminfo vram --csv`, which may begin with warnings."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if line.startswith("device,")), len(lines))
    cards = [row for row in csv.DictReader(lines[start:]) if (row["device"] or "").startswith("card")]
    if not cards:
        return None
    row = {key.casefold(): value for key, value in cards[0].items() if key and value and value != "N/A"}
    name = row.get("card series") or row.get("card model")
    total = whole_number(row.get("vram total memory (b)", ""))
    memory = None if total is None else round(total / 2**30, 1)
    return Hardware(name, row.get("gfx version"), memory, len(cards), "amd", cpus)
