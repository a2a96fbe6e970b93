"""What the drivers say of GPUs without CUDA or HIP: NVML through pynvml, AMD SMI through amdsmi. No torch.

GPUs are named by PCI address (`0000:3b:00.0`): their order there is not the order in which a process sees them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from hpc_llm.worker.measure.sm_activity import SmActivity


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU at one moment. Unknown is None."""

    utilization: float | None
    """Share of the driver's last sample period (up to a second) in which a kernel ran, 0 to 1."""
    memory_used_bytes: int | None
    """By any process, as nvidia-smi or amd-smi show it."""
    power_w: float | None
    temperature_c: float | None
    sm_clock_hz: float | None = None
    sm_activity: float | None = None
    """Share of the SMs that were busy since the last look, 0 to 1; NVIDIA's from Hopper on."""
    sm_occupancy: float | None = None
    """Share of the warps that the SMs could hold, likewise."""

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)


MEANS = {
    "utilization": "gpu_utilization_mean",
    "power_w": "gpu_power_w_mean",
    "sm_activity": "sm_activity_mean",
    "sm_occupancy": "sm_occupancy_mean",
    "sm_clock_hz": "sm_clock_hz_mean",
}
"""What of a sample the result has as a mean over all GPUs and the measured window, and under which name."""


class Sampler(Protocol):
    """Looks at some GPUs at once."""

    def sample(self) -> Sequence[GpuState]:
        """The state of each GPU, in the order in which they were named."""


class NvmlSampler:
    """NVIDIA GPUs. What a GPU does not tell is None; a driver that fails raises NVMLError."""

    def __init__(self, addresses: Sequence[str]) -> None:
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._gpus = [pynvml.nvmlDeviceGetHandleByPciBusId(address) for address in addresses]
        self._activities = [SmActivity(pynvml, gpu) for gpu in self._gpus]

    def sample(self) -> list[GpuState]:
        return [self._state(*one) for one in zip(self._gpus, self._activities, strict=True)]

    def _state(self, gpu: Any, activity: SmActivity) -> GpuState:
        nvml = self._nvml
        busy, occupied = activity.since_last()
        return GpuState(
            utilization=self._told(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
            memory_used_bytes=self._told(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
            power_w=self._told(lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
            temperature_c=self._told(lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
            sm_clock_hz=self._told(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6),
            sm_activity=busy,
            sm_occupancy=occupied,
        )

    def _told(self, read: Callable[[], Any]) -> Any:
        with contextlib.suppress(self._nvml.NVMLError_NotSupported):  # MIG has no utilization, some cards no power
            return read()
        return None


class AmdSampler:
    """AMD GPUs. amdsmi says "N/A" or raises for a sensor that a card lacks; both are None."""

    def __init__(self, addresses: Sequence[str]) -> None:
        import amdsmi

        self._smi: Any = amdsmi
        amdsmi.amdsmi_init()
        self._gpus = [amdsmi.amdsmi_get_processor_handle_from_bdf(address) for address in addresses]
        self._junction = (amdsmi.AmdSmiTemperatureType.JUNCTION, amdsmi.AmdSmiTemperatureMetric.CURRENT)

    def sample(self) -> list[GpuState]:
        return [self._state(gpu) for gpu in self._gpus]

    def _state(self, gpu: Any) -> GpuState:
        smi = self._smi
        busy = self._number(lambda: smi.amdsmi_get_gpu_activity(gpu)["gfx_activity"])
        used_mib = self._number(lambda: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_used"])
        return GpuState(
            utilization=None if busy is None else busy / 100,
            memory_used_bytes=None if used_mib is None else int(used_mib) << 20,
            power_w=self._power(gpu),
            temperature_c=self._number(lambda: smi.amdsmi_get_temp_metric(gpu, *self._junction)),
            sm_clock_hz=self._clock(gpu),
        )

    def _clock(self, gpu: Any) -> float | None:
        mhz = self._number(lambda: self._smi.amdsmi_get_clock_info(gpu, self._smi.AmdSmiClkType.GFX)["clk"])
        return None if mhz is None else mhz * 1e6

    def _power(self, gpu: Any) -> float | None:
        """The socket's power, averaged by the firmware on older cards, of the moment on newer ones."""
        read = self._smi.amdsmi_get_power_info
        average = self._number(lambda: read(gpu)["average_socket_power"])
        return self._number(lambda: read(gpu)["current_socket_power"]) if average is None else average

    def _number(self, read: Callable[[], Any]) -> float | None:
        with contextlib.suppress(self._smi.AmdSmiLibraryException):
            value = read()
            return value if isinstance(value, (int, float)) else None
        return None


def open_sampler(addresses: Sequence[str], is_rocm: bool) -> Sampler | None:
    """A sampler of the GPUs at these PCI addresses, or None where the Python package for it is not installed.

    Raises whatever the driver's library raises where it does not work, or hides one of the GPUs from this process.
    """
    try:
        return AmdSampler(addresses) if is_rocm else NvmlSampler(addresses)
    except ImportError:
        return None
