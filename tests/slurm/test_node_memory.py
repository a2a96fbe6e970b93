"""A profile that does not say how much memory a node has: what Slurm says of it decides whether a run can fit."""

from __future__ import annotations

import pytest
from login_node import LoginNode

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize("of_partition", [{}, {"node": {"cpus": 64}}])
def test_what_no_node_can_hold_is_refused_by_slurms_own_word(node: LoginNode, of_partition: dict[str, object]) -> None:
    node.add_cluster(
        "cpus",
        schema=1,
        title="nodes without GPUs",
        status={"state": "active", "checked": "2026-11"},
        sources=["me"],
        scheduler="slurm",
        gpu={"vendor": "none"},
        partitions=[{"name": "gpuA100x4", "max_time": "1:00:00", "default": True, **of_partition}],
        request={"gpu_style": "none"},
        launch={"single_node": "torchrun", "multi_node": "torchrun", "allowed": ["torchrun"]},
        prelude={"module_system": "none", "python": {"kind": "current"}},
        defaults={"time": "00:10:00", "gpus_per_node": 0},
    )
    asked = ("submit", "--dry-run", "--cluster=cpus", "--method=z2")
    done = node.ask(*asked, "--model=llama2-70b")
    assert done.returncode == 2 and "of a node's memory, which has 250 GiB" in done.stderr, done.stderr
    done = node.ask(*asked, "--model=tiny")
    assert done.returncode == 0 and "node.mem_gb" not in done.stderr, done.stderr
