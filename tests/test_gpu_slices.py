"""Slices of GPUs (MIG), of which CUDA shows a process one alone."""

from __future__ import annotations

from typing import Any

import pytest
from rendering import cluster_of, planned

from hpc_llm.errors import PlanError
from hpc_llm.site.cluster import Cluster

SLICED = {"model": "A100-SXM4-40GB MIG 3g.20gb", "memory_gib": 19.5, "per_node": 8}


def sliced(gpu: dict[str, Any] = SLICED, **changes: dict[str, Any]) -> Cluster:
    """The cluster delta with such GPUs."""
    found = cluster_of("delta")
    parts = {name: getattr(found, name).model_copy(update=values) for name, values in {"gpu": gpu, **changes}.items()}
    partitions = [one.model_copy(update={"gpu": None}) for one in found.partitions]
    return found.model_copy(update={**parts, "partitions": partitions})


def test_a_job_on_slices_has_one_rank_a_node_by_default() -> None:
    for profile in (sliced(), sliced(defaults={"gpus_per_node": 4}), sliced({}, request={"gpu_type": "a100_3g.20gb"})):
        found = planned(profile, "z3", nodes=2)
        assert (found.plan.parallel.gpus_per_node, found.plan.parallel.world_size) == (1, 2)
        assert "one slice" in found.origins["gpus_per_node"]
        assert not any("slices" in notice for notice in found.notices)
    assert planned(sliced({"model": "A100-SXM4-40GB"}), "z3").plan.parallel.gpus_per_node > 1


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_ranks_that_would_take_the_same_slice_are_refused(launcher: str) -> None:
    with pytest.raises(
        PlanError, match=r"2 slices of GPUs per node .*would all take the same\. Choose --gpus-per-node 1"
    ):
        planned(sliced(), "z3", gpus_per_node=2, set=(f"launcher={launcher}",))


def test_ranks_with_a_slice_each_are_told_what_nccl_refuses() -> None:
    profile = sliced(launch={"srun_args": ["--gpu-bind=single:1"]})
    for cluster, options in ((profile, ()), (sliced(), ("gpu-bind=single:1",))):
        found = planned(cluster, "z3", gpus_per_node=2, set=("launcher=srun",), sbatch=options)
        assert any("NCCL refuses two that are parts of one GPU" in notice for notice in found.notices)
    with pytest.raises(PlanError, match="would all take the same"):
        planned(profile, "z3", gpus_per_node=2, set=("launcher=torchrun",))
