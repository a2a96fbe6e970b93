"""How much of a GPU works: the share of its SMs that are busy, and of their warps. NVML's GPM, on Hopper and newer. No torch.

`utilization` of the driver says only that some kernel ran. GPM counts between two samples, so the first look says nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any


class SmActivity:
    """Counts of one GPU. `nvml` is the module pynvml. Where the GPU, its driver or pynvml has no such counters, nothing is told."""

    def __init__(self, nvml: Any, gpu: Any) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._last: Any = None
        self._spare: Any = None
        self._is_there = self._is_supported()

    def _is_supported(self) -> bool:
        if not hasattr(self._nvml, "nvmlGpmQueryDeviceSupport"):  # pynvml before 11.520
            return False
        with contextlib.suppress(self._nvml.NVMLError):  # a driver before 520 lacks the function
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._gpu).isSupportedDevice)
        return False

    def since_last(self) -> tuple[float | None, float | None]:
        """Busy SMs and active warps since the last call, 0 to 1 each; None at the first call and where they are not told."""
        if not self._is_there:
            return None, None
        try:
            return self._told()
        except self._nvml.NVMLError:  # counters that are for administrators: asked once
            self._is_there = False
            return None, None

    def _told(self) -> tuple[float | None, float | None]:
        nvml = self._nvml
        sample = nvml.nvmlGpmSampleGet(self._gpu, self._spare or nvml.nvmlGpmSampleAlloc())
        before, self._last, self._spare = self._last, sample, self._last
        if before is None:
            return None, None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        asked.sample1, asked.sample2 = before, sample
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        asked.metrics[1].metricId = nvml.NVML_GPM_METRIC_SM_OCCUPANCY
        nvml.nvmlGpmMetricsGet(asked)
        return self._share(asked.metrics[0]), self._share(asked.metrics[1])

    def _share(self, metric: Any) -> float | None:
        """Of percent; each metric has an error of its own."""
        is_number = metric.nvmlReturn == self._nvml.NVML_SUCCESS and 0 <= metric.value <= 100
        return metric.value / 100 if is_number else None
