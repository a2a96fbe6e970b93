"""What a card shows of its memory is what is counted on, whatever figure it is sold with."""

from __future__ import annotations

import pytest
from rendering import CLUSTERS, cluster_of

from hpc_llm.estimating.constants import constants
from hpc_llm.estimating.device import surely_there

GIB = 2**30
SEEN_BY_TORCH = {
    "A40": (48, 44.34), "NVIDIA A10G": (24, 21.99), "NVIDIA L4": (24, 21.96), "NVIDIA L40S": (48, 44.39), "Tesla T4": (16, 14.56),
    "NVIDIA GeForce RTX 5090": (32, 31.36), "NVIDIA H200": (141, 139.7), "V100-SXM2-32GB": (32, 31.73), "A100-SXM4-40GB": (40, 39.39),
    "H100 80GB HBM3": (80, 79.1), "MI210": (64, 63.98),
}  # fmt: skip
"""The figure of the vendor, and what torch finds, GiB."""


@pytest.mark.parametrize("model", SEEN_BY_TORCH)
def test_what_is_surely_there_is_no_more_than_torch_finds(model: str) -> None:
    sold, seen = SEEN_BY_TORCH[model]
    gpu = cluster_of("delta").gpu_of(None).model_copy(update={"model": model, "memory_gib": sold})
    sure = surely_there(gpu, sold * GIB) * constants().device_capacity[0] / GIB
    assert 0.95 * seen < sure <= seen


@pytest.mark.parametrize("name", CLUSTERS)
def test_profiles_say_what_is_shown(name: str) -> None:
    cluster = cluster_of(name)
    for gpu in (cluster.gpu_of(partition) for partition in (None, *cluster.partitions)):
        if gpu.memory_gib:
            assert surely_there(gpu, int(gpu.memory_gib * GIB)) >= 0.997 * gpu.memory_gib * GIB
