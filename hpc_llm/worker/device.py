"""The device of this rank, how full it is, and what is installed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from hpc_llm.errors import WorkerError, counted

PACKAGES = ("torch", "deepspeed", "transformers", "peft", "bitsandbytes", "accelerate", "flash-attn")


_LOOK_AT = "Look at the job's GPU request, the driver, and CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES."
_NEEDS_BUILD = "Install a build of torch for this GPU into the job's environment, or choose a partition without GPUs."


def torch_release() -> tuple[int, int]:
    """Major and minor version of the torch that is installed."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def visible_gpus(planned_per_node: int) -> int:
    """How many GPUs this process sees; 0 where the plan wants none. Raises WorkerError where it wants some in vain."""
    if planned_per_node == 0:
        return 0
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        build = torch.version.cuda or torch.version.hip or "no GPU support"
        raise WorkerError(
            f"the plan wants {counted(planned_per_node, 'GPU')} per node, torch {torch.__version__} (built for {build}) sees none "
            f"on {socket.gethostname()}. {_LOOK_AT if torch.version.cuda or torch.version.hip else _NEEDS_BUILD}"
        )
    return count


def choose_device(index: int, gpus: int) -> torch.device:
    """The GPU `index` made current, or the CPU where `gpus` is 0. DeepSpeed must not be imported before this."""
    if gpus == 0:
        os.environ["DS_ACCELERATOR"] = "cpu"
        return torch.device("cpu")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def gpu_name(device: torch.device) -> str | None:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def pci_address(device: torch.device) -> str | None:
    """Where the GPU is on this node, as `0000:3b:00.0`; None on the CPU and where torch is too old to say."""
    properties: Any = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    if not hasattr(properties, "pci_bus_id"):
        return None
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def supports_bf16(device: torch.device) -> bool:
    """Whether bf16 runs in hardware; V100 and older only emulate it."""
    # torch itself counts emulation in, and only newer ones can be told not to.
    return device.type == "cpu" or torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= 8


def emulated_bf16(precision: str, device: torch.device) -> list[str]:
    """A sentence where the GPU only emulates bf16; the run goes on, as the homework's did on V100."""
    if precision != "bf16" or supports_bf16(device):
        return []
    return [f"{torch.cuda.get_device_name(device)} emulates bf16 and is slow at it: precision fp16 is made for it."]


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass
class _Beside:
    """What torch's own peaks leave out."""

    hidden: int = 0
    """Bytes that are in use though torch counts them as free."""
    allocated: int = 0
    """The peak until `hidden` was last another number, and what was hidden then with it."""
    reserved: int = 0


_beside = _Beside()


def count_hidden(device: torch.device, size: int) -> None:
    """From now on `size` bytes are in use on the GPU that torch counts as free.

    What a CUDA graph works in is such memory once it is recorded. While it is recorded torch counts it, so that adding it to a peak
    of that time would count it twice: the peak so far is kept, and a new one begins.
    """
    _beside.allocated = peak_allocated_bytes(device) or 0
    _beside.reserved = peak_reserved_bytes(device) or 0
    torch.cuda.reset_peak_memory_stats(device)
    _beside.hidden = size


def free_in_pools(graphs: Iterable[Any]) -> int:
    """Bytes of what recorded CUDA graphs work in, as far as torch counts it as free: no tensor outlives a replay there."""
    pools = {tuple(graph.pool()) for graph in graphs}
    segments = [one for one in torch.cuda.memory_snapshot() if tuple(one.get("segment_pool_id", ())) in pools]
    return sum(one["total_size"] - one["allocated_size"] for one in segments)


def reset_peak_memory(device: torch.device) -> None:
    _beside.allocated = _beside.reserved = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def allocated_bytes(device: torch.device) -> int | None:
    """Bytes of tensors on the GPU now; None on the CPU, where torch does not count them."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def peak_allocated_bytes(device: torch.device) -> int | None:
    """Most bytes of tensors on the GPU since the last reset, with what recorded graphs work in."""
    if device.type != "cuda":
        return None
    return max(_beside.allocated, int(torch.cuda.max_memory_allocated(device)) + _beside.hidden)


def peak_reserved_bytes(device: torch.device) -> int | None:
    """Most bytes that torch's allocator held of the GPU since the last reset."""
    return max(_beside.reserved, torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else None


def used_device_bytes(device: torch.device) -> int | None:
    """Bytes in use on the whole GPU now, by any process, as nvidia-smi or amd-smi shows them."""
    if device.type != "cuda":
        return None
    with contextlib.suppress(Exception):  # NVML or amdsmi may be missing in many ways; torch's own count then serves
        return int(torch.cuda.device_memory_used(device))
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free)


def peak_host_bytes() -> int:
    """Most resident host memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def host_memory_bytes() -> int | None:
    """Memory of this node."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def hardware(device: torch.device) -> dict[str, Any]:
    """What this rank ran on, for the record."""
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "cpu": platform.machine(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "host_memory_bytes": host_memory_bytes(),
        "gpu": gpu_name(device),
        "gpus_visible": 0,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["gpus_visible"] = torch.cuda.device_count()
        facts["gpu_memory_bytes"] = properties.total_memory
        facts["gpu_arch"] = getattr(properties, "gcnArchName", None) or f"sm_{properties.major}{properties.minor}"
    return facts


def versions() -> dict[str, str | None]:
    """Versions of what decides a result; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    found["torch"] = torch.__version__  # with its local part, such as +cu130
    found["cuda"] = torch.version.cuda
    found["rocm"] = torch.version.hip
    nccl: Any = torch.cuda.nccl
    found["nccl"] = ".".join(map(str, nccl.version())) if torch.cuda.is_available() else None
    return found


@dataclass(frozen=True)
class Toolchain:
    """What DeepSpeed could compile its operators with."""

    host: bool
    """A C++ compiler and ninja."""
    device: bool
    """The GPU's compiler beside them."""
    lacks: str | None = None
    """What else is missing, where the compilers are there and cannot be used."""


def find_toolchain() -> Toolchain:
    """Look for the compilers that torch's extension builder would use."""
    from torch.utils import cpp_extension

    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    host = bool(compiler and shutil.which(compiler) and cpp_extension.is_ninja_available())
    home = cpp_extension.ROCM_HOME if torch.version.hip else cpp_extension.CUDA_HOME
    if (
        home is not None and len(home.split()) > 1
    ):  # as under WSL: torch writes it unquoted into the command lines of its builds
        return Toolchain(
            host=False, device=False, lacks=f"a path of the GPU's toolkit without blanks, and it is {home!r}"
        )
    return Toolchain(host=host, device=host and home is not None)
