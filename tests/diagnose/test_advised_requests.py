"""Each request that is advised where memory ran out plans, fits by the estimate, and needs clearly less of what ran out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rendering import CLUSTERS, METHODS, cluster_of, flags_of, planned

from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.less_host import host_oom
from hpc_llm.diagnosis.remedies import device_oom
from hpc_llm.estimating.memory import at_partition, memory_of
from hpc_llm.estimating.parts import Fit, Memory
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.planning.experiment import Plan

_MAIN = (*METHODS, "z3+r", "z3+rauto", "z2+o+r", "lora", "qlora", "z3+o+r", "z2+r0.25")
_SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"micro_batch_size": 8},
    {"micro_batch_size": 4, "sequence_length": 2048, "gpus_per_node": 1},
    {"micro_batch_size": 16, "sequence_length": 2048, "model": "llama3.2-1b"},
)
_OPEN = re.compile(r"too close to call|which may not be enough|which is not enough")
"""Words that say that the request may not be enough."""


def _memory(plan: Plan, cluster: str) -> Memory:
    return memory_of(plan, at_partition(cluster_of(cluster), plan), sizes_in(plan))


def _again(cluster: str, method: str, asked: dict[str, Any], line: str) -> Plan:
    """The plan of the request with what is advised, as planning makes it."""
    new = {**asked, **flags_of(line)}
    return planned(cluster, new.pop("method", method), **new).plan


def _cases(cluster: str) -> list[tuple[str, dict[str, Any]]]:
    """Each method in one of the four shapes, and in each of them on some cluster."""
    place = CLUSTERS.index(cluster)
    return [
        (method, {"model": "llama2-7b", **shape})
        for i, method in enumerate(_MAIN)
        for j, shape in enumerate(_SHAPES)
        if (i + j + place) % 4 == 0
    ]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_is_advised_for_a_full_gpu_fits_and_holds_less_of_it(cluster: str) -> None:
    for method, asked in _cases(cluster):
        plan = planned(cluster, method, **asked).plan
        before = _memory(plan, cluster).device
        lines = device_oom(Case(plan=plan, cluster=cluster_of(cluster)))
        assert lines
        for line in filter(flags_of, lines):
            again = _again(cluster, method, asked, line)
            after = _memory(again, cluster)
            assert before is not None and after.device is not None
            assert after.device.high < 0.95 * before.high, (method, asked, line)
            is_known = before.capacity is not None
            assert not is_known or after.verdict is Fit.FITS or _OPEN.search(line), (method, asked, line, after)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_is_advised_for_a_full_node_fits_and_needs_less_of_what_it_has(cluster: str) -> None:
    for method, asked in _cases(cluster):
        plan = planned(cluster, method, **asked).plan
        before = _memory(plan, cluster).host
        lines = host_oom(Case(plan=plan, cluster=cluster_of(cluster)))
        assert lines
        for line in filter(flags_of, lines):
            again = _again(cluster, method, asked, line)
            after = _memory(again, cluster)
            if before.capacity is not None and after.host.capacity is not None:
                assert after.host.high / after.host.capacity < 0.95 * before.high / before.capacity, (
                    method,
                    asked,
                    line,
                )
            else:
                assert after.host.high < 0.95 * before.high or "mem=0" in line, (method, asked, line)
            for need in (after.host, after.device):
                is_fitting = need is None or need.verdict in (Fit.FITS, Fit.UNKNOWN)
                assert is_fitting or _OPEN.search(line), (method, asked, line, need)


A100 = {"asked": "2.00 GiB", "capacity": "39.39 GiB", "allocated": "36.60 GiB", "reserved": "0.5 GiB"}


def _device(cluster: str, method: str, facts: dict[str, str] = A100, **asked: Any) -> list[str]:
    asked = {"model": "llama2-7b", **asked}
    return device_oom(Case(plan=planned(cluster, method, **asked).plan, cluster=cluster_of(cluster), facts=facts))


def _host(cluster: str, method: str, **asked: Any) -> list[str]:
    asked = {"model": "llama2-7b", **asked}
    return host_oom(Case(plan=planned(cluster, method, **asked).plan, cluster=cluster_of(cluster)))


def test_what_ran_out_of_gpu_memory_is_not_told_to_keep_more_there() -> None:
    lines = _device("delta", "z3o+r")
    assert not any(map(flags_of, lines)), lines
    assert "the estimate gave the run that ran out 6.7 GiB of a GPU at most, which fits" in lines[0]
    assert "nothing that can be changed holds clearly less" in lines[0] and "you decide" in lines[0]


@pytest.mark.parametrize(("micro", "useless"), [(1, "--method z3+r  ("), (8, "--micro-batch-size 4 ")])
def test_what_leaves_the_peak_as_it_was_is_not_called_enough(micro: int, useless: str) -> None:
    lines = _device("delta", "z3", micro_batch_size=micro)
    assert not any(line.startswith(useless) for line in lines), lines
    assert "the quickest of what takes clearly less)" in lines[0] and " GiB of a GPU at most in place of " in lines[0]
    assert "it held something that is not counted, and may do so again" in lines[-1]


@pytest.mark.parametrize(
    ("method", "micro"), [("z3+rauto", 4), ("z3+rauto", 16), ("z2+rauto", 2), ("bf16", 1), ("z2", 1)]
)
def test_what_planning_refuses_or_a_gpu_cannot_hold_is_not_advised(method: str, micro: int) -> None:
    """As few layers as fit would be chosen anew for another batch: the share is named."""
    asked = {"micro_batch_size": micro, "sequence_length": 2048 if micro > 4 else 350}
    lines = _device("delta", method, **asked)
    assert any(map(flags_of, lines))
    for line in filter(flags_of, lines):
        again = _again("delta", method, {"model": "llama2-7b", **asked}, line)
        assert _memory(again, "delta").verdict is Fit.FITS, line
        assert "rauto" not in again.method or "--set recompute=" in line
    assert not any(line.startswith((f"--method {method}+r ", "--method z3+rauto+r")) for line in lines)


def test_what_moves_to_the_node_asks_for_the_memory_that_this_takes() -> None:
    lines = _device("taiwania2", "z3", {**A100, "capacity": "31.74 GiB"}, gpus_per_node=1)
    [first, *_] = filter(flags_of, lines)
    assert first.startswith("--method z3+o+r --sbatch mem=")
    again = _again("taiwania2", "z3", {"model": "llama2-7b", "gpus_per_node": 1}, first)
    assert _memory(again, "taiwania2").host.verdict is Fit.FITS


def test_a_full_node_is_told_no_way_that_brings_nothing() -> None:
    """On Taiwania 2 a job's memory goes with its GPUs, and what is kept on the node does not."""
    lines = _host("taiwania2", "z3o", gpus_per_node=2)
    assert lines[0].startswith("--sbatch mem=0  (") and not any("--gpus-per-node" in line for line in lines), lines
    [whole] = _host("taiwania2", "z3o", model="llama2-70b", nodes=2, gpus_per_node=8)
    assert not flags_of(whole) and "more nodes, each of which then holds a part of it (with 4 " in whole
    assert not any(line.startswith("--method z2  (") for line in _host("delta", "z2o"))  # its GPUs do not hold that
    assert any(line.startswith("--method z3  (") for line in _host("delta", "z2o"))
    close = [line for line in _host("mi210", "z2o") if line.startswith("--method")]
    assert all("which may not be enough" in line for line in close), close


@pytest.mark.parametrize(
    ("method", "asked", "flags"),
    [
        ("lora", {"model": "tiny", "set": ("peft.r=1000000000000",)}, "--set peft.r=8"),
        ("lora", {"model": "tiny", "micro_batch_size": 100_000_000}, "--micro-batch-size"),
    ],
)
def test_what_can_never_fit_is_told_what_to_change_as_before_submission(
    method: str, asked: dict[str, Any], flags: str
) -> None:
    """`--force` submits it all the same."""
    lines = _host("local", method, hardware=None, **asked)
    assert lines and any(flags in line for line in lines), lines
    assert "another node type" not in "".join(lines)


@pytest.mark.parametrize(
    ("method", "asked", "changed"),
    [
        ("z1", 2_000_000_000, ["allgather_bucket_size", "reduce_bucket_size"]),
        ("z3", 1_000_000_000, ["reduce_bucket_size", "stage3_prefetch_bucket_size"]),
        ("z3", 1_000_000_002, []),
        ("z3", 4096, []),
    ],
)
def test_memory_that_a_bucket_asked_for_is_saved_by_a_smaller_bucket(
    method: str, asked: int, changed: list[str]
) -> None:
    made = planned("delta", method, model="tiny", gpus_per_node=1).plan
    lines = host_oom(Case(plan=made, cluster=cluster_of("delta"), facts={"asked": str(asked)}))
    settings = re.findall(r"--set deepspeed\.zero_optimization\.(\w+)=(\d+)", lines[0])
    assert [name for name, _ in settings] == changed, lines
    if changed:
        again = planned(
            "delta",
            method,
            model="tiny",
            gpus_per_node=1,
            set=[one.removeprefix("--set ") for one in re.findall(r"--set \S+", lines[0])],
        ).plan
        zero = again.engine.deepspeed["zero_optimization"]
        assert all(zero[name] == int(size) for name, size in settings)


def test_memory_that_is_refused_where_the_node_has_it_may_be_a_limit_of_the_process() -> None:
    made = planned("delta", "z3", model="tiny", gpus_per_node=1, sbatch=("mem=200G",)).plan
    refused = host_oom(Case(plan=made, cluster=cluster_of("delta"), facts={"asked": "123456789"}))
    assert any("ulimit -v" in line for line in refused), refused
    killed = host_oom(Case(plan=made, cluster=cluster_of("delta"), facts={"used": "9", "limit": "8"}))
    assert not any("ulimit -v" in line for line in killed), killed
