"""The time of a step: each term worked by hand, what may never happen, and the errors on measured runs as RESULTS.md has them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import time_points
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_llm.errors import RequestError
from hpc_llm.estimating.calibrate import FEWEST, Measured, calibrate, compare, usable
from hpc_llm.estimating.estimate import estimate
from hpc_llm.estimating.rates import Fitted, GpuFacts, Program, Rates, gpu_facts, gpu_kind
from hpc_llm.estimating.step_time import step_time, unknown_because
from hpc_llm.estimating.time_constants import MIN_SPREAD, calibration_from, time_constants
from hpc_llm.estimating.time_terms import StepTerms, collective_bytes, flops, link_bandwidth, step_terms
from hpc_llm.estimating.time_work import Layers, Work, work_of
from hpc_llm.estimating.walltime import proposal
from hpc_llm.planning.draft import Site
from hpc_llm.planning.experiment import Experiment, Plan
from hpc_llm.planning.gpu import actual_gpu
from hpc_llm.planning.method import load_method
from hpc_llm.planning.plan import plan
from hpc_llm.records.metrics import _PEAKS
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.hardware import Hardware

ROOT = Path(__file__).parents[2]
H100 = Hardware("NVIDIA H100 80GB HBM3", "sm_90", 80.0, 8, "nvidia", 16)

LAYERS = Layers(
    number=2, matrices={"a": (10, 20), "b": (20, 10)}, hidden=10, inner=20, attention=10, vocabulary=100, vectors=2
)
WORK = Work(
    layers=LAYERS, tokens=8, length=4, micro_batches=1, width=2, parameters=2400, trained=2400, trains_layers=True, adapters=0,
    adapter_weights=0, quantized_bytes=0.0, recompute=0.0, has_fused_attention=True, engine="plain", cuda_graph=False, compiles=False,
    overlaps=False, fused_optimizer=False, keeps_parameters=False,
    compiles_layers=False, layers_per_unit=1, is_shared=False, is_hybrid=False, sums_in=4, stage=0,
    offloads_optimizer=False, offloads_parameters=False, kept_back=0, streamed_bytes=0.0, optimizer="AdamW",
    ranks=1, ranks_per_node=1, nodes=1,
)  # fmt: skip
RATES = Rates(
    peak=2e6,
    gpu=GpuFacts(memory=2e6, pcie=100e9, peers=4e6),
    fitted=Fitted(matmul=0.5, memory=0.5, launch_s=0.001, link=0.5, host_memory=1e6, between_nodes=1e6),
    program=Program(
        recompute_launches=10, adapter_launches=3, quantized_launches=2, deepspeed_launches=7, stage_launches=5,
        gather_launches=50, peer_launches=20, fsdp_launches=30, step_launches=40, activation_passes=1, compiled_passes=0.5,
        adapter_passes=1,        logit_bytes=8, unpack_bytes=3, optimizer_bytes=40, fused_optimizer_bytes=30,
        packed_optimizer_bytes=20, host_optimizer_bytes=50, transfer_bytes=6,
    ),
)  # fmt: skip


def made(method: str, cluster: str = "local", **said: Any) -> Plan:
    """A plan of that method on eight H100, or of a cluster's own profile."""
    site = Site(scheduler="local", hardware=H100) if cluster == "local" else Site(scheduler="slurm")
    if cluster != "local":
        said = {"account": {"taiwania2": "MST1", "delta": "abcd-delta-gpu"}.get(cluster), **said}
    experiment = Experiment(cluster=cluster, method=method, **{"model": "llama2-7b", **said})
    return plan(experiment, load_cluster(cluster), load_method(method), site).plan


# By hand


def test_fp8_halves_the_products_of_layers_alone_and_rounds_what_enters_them() -> None:
    plain, eight = step_terms(WORK, RATES), step_terms(replace(WORK, fp8=True, recompute=1.0), RATES)
    again = step_terms(replace(WORK, recompute=1.0), RATES)
    # 2 layers of 400 weights, 8 tokens: 4 passes of 2 flops; widths of 60 a layer, 4 thirds of what a step without recompute moves
    assert again.products - eight.products == pytest.approx(4 * 2 * 8 * 800 / 2 / 1e6)
    assert eight.traffic - again.traffic == pytest.approx(2 * 4 / 3 * (5.3 * 8 * 60 + 16.5 * 400) / 1e6)
    assert plain.launches < again.launches == eight.launches


def test_what_bitsandbytes_steps_of_a_whole_model_is_called_for_each_tensor() -> None:
    plain = step_terms(replace(WORK, optimizer="AdamW8bit", trains_layers=False), RATES).optimizer
    whole = step_terms(replace(WORK, optimizer="AdamW8bit"), RATES).optimizer
    # 2 layers of two matrices and two vectors, the embedding and the last norm
    assert whole - plain == pytest.approx(18.4e-12 * 2400 + 79e-6 * 10)
    joined = step_terms(replace(WORK, optimizer="AdamW8bit", engine="deepspeed"), RATES).optimizer
    assert whole - joined == pytest.approx(79e-6 * 10)


def test_pure_bf16_is_one_kernel_for_each_tensor_or_the_host_that_calls_it() -> None:
    small = step_terms(replace(WORK, optimizer="AdamWBF16"), RATES).optimizer
    assert small == pytest.approx(max(2400 * 30 / 1e6, 1.1e-4 * 10))
    many = replace(WORK, optimizer="AdamWBF16", layers=replace(LAYERS, number=10_000))
    assert step_terms(many, RATES).optimizer == pytest.approx(1.1e-4 * (10_000 * 4 + 2))


def test_runs_in_fp8_take_what_was_said_of_them() -> None:
    with (ROOT / "benchmarks" / "results" / "fp8.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        batch = {name: int(row[name]) for name in ("micro_batch_size", "sequence_length")}
        card = H100 if "H100" in row["gpu"] else replace(H100, gpu_model=row["gpu"], memory_gib=140.4)
        cluster = load_cluster("local").model_copy(update={"gpu": actual_gpu(load_cluster("local").gpu, card)})
        switches = [one for one in row["switches"].split() if one.startswith(("keeps_parameters", "layers_per_unit"))]
        keeps = switches if row["engine"] == "fsdp2" else []
        asked = made(row["method"], gpus_per_node=2, set=(f"engine={row['engine']}", *keeps), **batch)
        said = estimate(asked, cluster)
        assert said.time is not None and said.memory.device is not None
        low, high = said.time.interval
        assert low < float(row["step_time_s_mean"]) < high
        assert said.memory.device.peak == pytest.approx(
            int(row["peak_allocated_bytes"]), rel=0.02 if "keeps_parameters=true" in switches else 0.01
        )
    assert len(rows) == 16


def test_products_are_two_flops_a_weight_and_pass_and_attention_its_lower_half() -> None:
    # 2 layers of 400 weights and a head of 1000, 8 tokens: 2 x 8 x 1800 forward, twice that backward;
    # scores: 4 x 8 tokens x 4 long x 10 wide x 2 layers, half of it, 3.5 passes
    assert flops(WORK) == 3 * 2 * 8 * 1800 + 4 * 8 * 4 * 10 * 2 / 2 * 3.5


def test_recomputing_adds_a_forward_pass_of_the_layers_and_none_of_the_head() -> None:
    again = 2 * 8 * 800 + 4 * 8 * 4 * 10 * 2 / 2
    assert flops(replace(WORK, recompute=1.0)) - flops(WORK) == again
    assert flops(replace(WORK, recompute=0.25)) - flops(WORK) == again / 4


def test_frozen_layers_need_no_gradients_of_their_own() -> None:
    frozen = replace(WORK, trains_layers=False)
    assert flops(WORK) - flops(frozen) == 2 * 8 * 800
    adapted = replace(frozen, adapters=2, adapter_weights=60)
    # adapters: 60 weights a layer in three passes; the head is frozen then
    assert flops(adapted) - flops(frozen) == 3 * 2 * 8 * 2 * 60 - 2 * 8 * 1000


def test_the_terms_of_a_plain_step() -> None:
    terms = step_terms(WORK, RATES)
    assert terms.products == pytest.approx(flops(WORK) / 1e6)
    elements = 10 * 10 + 4 * 20 + 4 * 10
    moved = 2 * 2 * (8 * elements * 3 + 3 * 400) + 8 * 100 * 8 + 3 * 2 * 1000
    assert terms.traffic == pytest.approx(moved / 1e6)
    assert terms.launches == pytest.approx((2 * 100 + 40) * 0.001)
    assert terms.optimizer == pytest.approx(2400 * 40 / 1e6)
    assert (terms.unpacking, terms.communication, terms.host_optimizer, terms.transfers) == (0, 0, 0, 0)


def test_what_an_engine_adds_to_a_layer() -> None:
    def launches(**changes: Any) -> float:
        return round(step_terms(replace(WORK, **changes), RATES).launches / 0.001 - 40) / 2

    assert launches() == 100
    assert launches(engine="deepspeed") == 107
    assert launches(engine="deepspeed", stage=2) == 112
    assert launches(engine="deepspeed", stage=3) == 150
    assert launches(engine="deepspeed", stage=3, ranks=2, ranks_per_node=2) == 170
    assert launches(engine="fsdp2", stage=3) == 130
    assert launches(engine="flat", stage=3) == 100
    assert launches(recompute=1.0) == 110
    assert launches(adapters=2) == 106
    assert launches(quantized_bytes=0.5) == 100 + 2 * 2 * 2
    assert launches(engine="somebody's") == 107


def test_compiled_parts_and_one_pass_of_the_optimizer_move_fewer_bytes() -> None:
    plain, few = step_terms(WORK, RATES), step_terms(replace(WORK, compiles=True, fused_optimizer=True), RATES)
    elements = 10 * 10 + 4 * 20 + 4 * 10
    assert plain.traffic - few.traffic == pytest.approx(2 * 2 * 8 * elements * 3 * 0.5 / 1e6)
    assert few.optimizer == pytest.approx(2400 * 30 / 1e6)


def test_flat_gathers_beside_the_optimizer() -> None:
    flat = replace(WORK, engine="flat", stage=3, ranks=2, ranks_per_node=2)
    alone, beside = (step_terms(replace(flat, overlaps=overlaps), RATES).communication for overlaps in (False, True))
    assert alone == pytest.approx(2 * beside) == pytest.approx(2 * 2400 * 2 / 2 / 2e6)


def test_published_steps_on_many_nodes_lie_in_the_interval() -> None:
    """PyTorch's blog of FSDP2: a Llama-2-7B on 128 A100, 3700 tokens/s a GPU at 2 x 4096, which is 2.2 s a step."""
    said: dict[str, Any] = {"nodes": 32, "gpus_per_node": 4, "micro_batch_size": 2, "sequence_length": 4096}
    for engine in ("fsdp2", "deepspeed"):
        found = step_time(made("z3", "delta", set=(f"engine={engine}",), **said), load_cluster("delta"))
        assert found is not None and found.interval[0] < 2 * 4096 / 3700 < found.interval[1], (engine, found)


def test_a_fast_network_between_the_nodes_is_within_the_interval() -> None:
    """torchtitan's docs/performance.md: a Llama-3.1-70B on 64 A100 with a fast card each, 331 tokens/s a GPU at 1 x 8192, which is 24.7 s."""
    said: dict[str, Any] = {
        "nodes": 16,
        "gpus_per_node": 4,
        "micro_batch_size": 1,
        "sequence_length": 8192,
        "model": "llama3.1-70b",
    }
    found = step_time(made("z3+r", "delta", set=("engine=fsdp2",), **said), load_cluster("delta"))
    assert found is not None and found.interval[0] < 8192 / 331 < found.interval[1], found
    assert found.interval[0] < found.step_time_s < found.interval[1] and found.run_interval[0] < found.run_time_s


@pytest.mark.parametrize(
    ("method", "measured_s"), [("z2+lora+r", 0.390), ("z3+lora+r", 1.507), ("z2+qlora+r", 0.502), ("z3+qlora+r", 1.895)]
)
def test_adapters_under_zero_take_what_they_took(method: str, measured_s: float) -> None:
    """benchmarks/results/runs.csv: a 3B at 4 x 512 on one H100, adapters on the four matrices of attention."""
    of_attention = ("peft.target_modules=[q_proj, k_proj, v_proj, o_proj]", "precision=fp16")
    said: dict[str, Any] = {"model": "llama3.2-3b", "micro_batch_size": 4, "sequence_length": 512, "set": of_attention}
    found = step_time(made(method, gpus_per_node=1, **said), load_cluster("local"))
    assert found is not None and found.step_time_s == pytest.approx(measured_s, rel=0.2)


def test_zero_3_fetches_around_the_modules_of_adapters_too() -> None:
    zero = replace(WORK, engine="deepspeed", stage=3, trains_layers=False)
    without, adapted = (step_terms(replace(zero, adapters=number), RATES).launches for number in (0, 2))
    assert adapted - without == pytest.approx(0.001 * 2 * (2 * 3 + 50 * 2 * 4 / 13))


def test_a_recorded_step_asks_for_nothing_but_the_step() -> None:
    assert step_terms(replace(WORK, cuda_graph=True), RATES).launches == pytest.approx(0.04)


def test_quantized_layers_are_unpacked_once_a_pass() -> None:
    quantized = replace(WORK, quantized_bytes=0.5, trains_layers=False)
    assert step_terms(quantized, RATES).unpacking == pytest.approx(2 * 800 * 3 / 1e6)
    assert step_terms(replace(quantized, recompute=1.0), RATES).unpacking == pytest.approx(3 * 800 * 3 / 1e6)


def test_micro_batches_repeat_the_passes_and_not_the_optimizer() -> None:
    one, four = step_terms(WORK, RATES), step_terms(replace(WORK, micro_batches=4), RATES)
    assert four.products == pytest.approx(4 * one.products)
    assert four.optimizer == one.optimizer
    assert four.launches == pytest.approx((4 * 200 + 40) * 0.001)


def test_collectives() -> None:
    pair = replace(WORK, ranks=2, ranks_per_node=2)
    assert collective_bytes(pair) == 2 * 2400 * 4  # an all-reduce of gradients in fp32
    deepspeed = replace(pair, engine="deepspeed")
    assert collective_bytes(deepspeed) == 2 * 2400 * 2
    assert collective_bytes(replace(deepspeed, stage=1)) == 2400 * 2 + 2400 * 2
    assert collective_bytes(replace(deepspeed, stage=2, micro_batches=3)) == 3 * 2400 * 2 + 2400 * 2
    assert collective_bytes(replace(deepspeed, stage=3)) == 2 * 2400 * 2 + 2400 * 2
    assert collective_bytes(replace(deepspeed, stage=3, recompute=1.0)) == 3 * 2400 * 2 + 2400 * 2
    assert step_terms(pair, RATES).communication == pytest.approx(2 * 2400 * 4 / 2 / (4e6 * 0.5))


def test_the_slowest_link_counts() -> None:
    assert link_bandwidth(replace(WORK, ranks=4, ranks_per_node=4), RATES) == 2e6
    assert link_bandwidth(replace(WORK, ranks=8, ranks_per_node=4, nodes=2), RATES) == 1e6
    no_bridge = replace(RATES, gpu=replace(RATES.gpu, peers=None))
    assert link_bandwidth(replace(WORK, ranks=4, ranks_per_node=4), no_bridge) == 100e9 * 0.5


def test_an_optimizer_on_the_host_shares_its_memory_among_the_ranks() -> None:
    offloaded = replace(WORK, engine="deepspeed", stage=2, offloads_optimizer=True)
    alone, pair = step_terms(offloaded, RATES), step_terms(replace(offloaded, ranks=2, ranks_per_node=2), RATES)
    assert alone.optimizer == 0
    assert alone.host_optimizer == pair.host_optimizer == pytest.approx(2400 * 50 / 1e6)
    assert alone.transfers == pytest.approx(2400 * 6 / 100e9)
    assert pair.transfers == pytest.approx(1200 * 6 / 100e9)
    two_nodes = step_terms(replace(offloaded, ranks=2, ranks_per_node=1, nodes=2), RATES)
    assert two_nodes.host_optimizer == pytest.approx(alone.host_optimizer / 2)


def test_hosts_of_an_older_bus_are_slower_by_what_ddr4_is() -> None:
    offloaded = replace(WORK, engine="deepspeed", stage=2, offloads_optimizer=True)
    old = replace(RATES, gpu=replace(RATES.gpu, pcie=16e9))
    assert step_terms(offloaded, old).host_optimizer == pytest.approx(step_terms(offloaded, RATES).host_optimizer / 0.6)


def test_parameters_on_the_host_cross_the_bus_in_each_pass() -> None:
    kept = replace(WORK, engine="deepspeed", stage=3, offloads_optimizer=True)
    both = replace(kept, offloads_parameters=True, micro_batches=3)
    more = step_terms(both, RATES).transfers - step_terms(kept, RATES).transfers
    assert more == pytest.approx(2 * 3 * 2 * 2400 / 100e9)


def test_the_slower_of_gpu_and_host_decides() -> None:
    def passes(device: float, launches: float) -> float:
        nothing = dict.fromkeys(
            ("traffic", "unpacking", "communication", "optimizer", "host_optimizer", "transfers"), 0.0
        )
        return StepTerms(products=device, launches=launches, **nothing).passes

    assert passes(10, 1) == pytest.approx(10, rel=1e-3)
    assert passes(1, 10) == passes(10, 1)
    assert 10 < passes(10, 10) < 12


# What may never happen


METHODS = ("ddp", "z1", "z2", "z3", "z2o", "z3o", "q", "z2+lora", "qlora")


@settings(max_examples=40, deadline=None)
@given(
    method=st.sampled_from(METHODS),
    batch=st.sampled_from((1, 2, 4, 8)),
    length=st.sampled_from((128, 350, 2048)),
    gpus=st.sampled_from((1, 2, 8)),
)
def test_more_work_never_takes_less_time(method: str, batch: int, length: int, gpus: int) -> None:
    def seconds(**changes: Any) -> float:
        said = {"micro_batch_size": batch, "sequence_length": length, "gpus_per_node": gpus, **changes}
        said["set"] = (
            "engine=deepspeed",
            *changes.get("set", ()),
        )  # another engine may be chosen where less is needed, and be faster
        found = step_time(made(method, **said), load_cluster("local"))
        assert found is not None
        assert found.interval[0] < found.step_time_s < found.interval[1]
        assert all(value >= 0 for value in found.terms.values())
        return found.step_time_s

    once = seconds()
    assert seconds(micro_batch_size=batch * 2) >= once
    assert seconds(sequence_length=length * 2) >= once
    assert seconds(gradient_accumulation_steps=2) >= once
    assert seconds(set=("recompute=true",)) >= once


@pytest.mark.parametrize("method", METHODS)
def test_a_larger_model_takes_longer(method: str) -> None:
    found = [
        step_time(made(method, model=name), load_cluster("local"))
        for name in ("llama3.2-1b", "llama2-7b", "llama2-70b")
    ]
    times = [one.step_time_s for one in found if one]
    assert times == sorted(times) and len(times) == 3


def test_a_profile_of_each_kind_of_gpu_is_timed() -> None:
    for cluster, gpu in (("taiwania2", "V100"), ("mi210", "MI210"), ("delta", "A100")):
        found = step_time(made("z3", cluster), load_cluster(cluster))
        assert found is not None and 0.1 < found.step_time_s < 20
        assert any(f"no run on {gpu}" in note for note in found.notes)
        assert found.interval[1] / found.step_time_s >= 1.8


def test_what_was_never_measured_widens_the_interval_and_is_said() -> None:
    def width(**said: Any) -> tuple[float, tuple[str, ...]]:
        found = step_time(made(**said), load_cluster("local"))
        assert found is not None
        return found.interval[1] / found.step_time_s, found.notes

    known, notes = width(method="z3")
    assert notes == () and known == pytest.approx(1.5)
    for said, word in (
        ({"method": "z3o"}, "host"),
        ({"method": "ddp", "model": "flan-t5-xl"}, "encoder"),
        ({"method": "q", "set": ("quantization.kind=int8", "engine=deepspeed")}, "8 bits"),
        ({"method": "bf16"}, "pure bf16"),
    ):
        factor, notes = width(**said)
        assert factor > known
        assert any(word in note for note in notes), notes
    two = made("z3", "taiwania2", nodes=2)
    found = step_time(two, load_cluster("taiwania2"))
    assert found is not None and any("network" in note for note in found.notes)


def test_what_is_kept_back_of_an_offload_takes_longer_than_on_the_host_as_measured() -> None:
    """Fifteen runs with and without `offload_optimizer.ratio` on an H100, with the constants that come along."""
    runs = time_points.points(ROOT / "benchmarks/results/partial_offload.csv")
    assert len(runs) == 15 and sum(run.work.kept_back > 0 for run in runs) == 13
    for run in runs:
        found = step_time(run.planned, load_cluster("local"))
        assert found is not None and 0.8 <= found.step_time_s / run.step_s <= 1.1, run.row["settings"]
        assert any("a part of the optimizer" in note for note in found.notes) == (run.work.kept_back > 0)
        assert found.terms["host_optimizer"] > 0
    in_fp32 = made(
        "z3+o",
        set=("engine=deepspeed", "model.precision=fp32", "deepspeed.zero_optimization.offload_optimizer.ratio=0.5"),
    )
    assert "fp32" in (unknown_because(in_fp32) or "")


def test_runs_of_t5_lie_within_their_bounds() -> None:
    """Four on an H100, of which nothing was fitted; their steps are not recorded."""
    runs = time_points.points(ROOT / "benchmarks/results/t5.csv")
    assert len(runs) == 4
    for run in runs:
        found = step_time(run.planned, load_cluster("local"))
        assert not run.work.cuda_graph and found is not None
        assert found.interval[0] <= run.step_s <= found.interval[1], run.row["method"]
        assert any("encoder and decoder" in note for note in found.notes)


def test_what_cannot_be_said_is_not_said() -> None:
    on_cpu = plan(
        Experiment(cluster="local", method="ddp"), load_cluster("local"), load_method("ddp"), Site(scheduler="local")
    ).plan
    assert step_time(on_cpu, load_cluster("local")) is None
    assert "CPU" in (unknown_because(on_cpu) or "")
    unheard = replace(made("ddp"), gpu=replace(made("ddp").gpu, peak_flops=None, model="Abacus 3"))
    assert step_time(unheard, load_cluster("local")) is None
    assert "Abacus 3" in (unknown_because(unheard) or "")
    strange = made("ddp")
    strange = replace(strange, model=replace(strange.model, name="/no/such/folder"))
    assert step_time(strange, load_cluster("local")) is None
    assert "layers" in (unknown_because(strange) or "")


def test_a_gpu_that_no_table_has_is_timed_by_its_peak() -> None:
    one = made("z3")
    found = step_time(replace(one, gpu=replace(one.gpu, model="Abacus 3")), load_cluster("local"))
    assert found is not None and any("guessed" in note for note in found.notes)


def test_each_gpu_whose_peak_is_known_has_its_bandwidths() -> None:
    for name, *_ in _PEAKS:
        assert gpu_facts(name) is not None, name
        assert gpu_kind(name) == name or name in ("A100",)


# Wall time


@pytest.mark.parametrize(("seconds", "limit"), [(0, 600), (479, 600), (481, 900), (3600, 4500), (86400, 108000)])
def test_the_proposed_limit_leaves_a_margin(seconds: float, limit: int) -> None:
    assert proposal(seconds) == limit >= seconds


def test_the_run_is_its_start_and_its_steps() -> None:
    short, long = (step_time(made("z3", steps=steps, gpus_per_node=8), load_cluster("local")) for steps in (100, 1100))
    assert short is not None and long is not None
    assert long.run_time_s - short.run_time_s == pytest.approx(1000 * short.step_time_s)
    assert short.run_time_s == pytest.approx(short.time_to_first_step_s + 100 * short.step_time_s)
    assert short.run_interval[0] < short.run_time_s < short.run_interval[1] < short.proposed_time_s
    assert short.gpu_hours == pytest.approx(short.run_time_s * 8 / 3600)


def test_a_limit_of_the_site_is_kept_and_said() -> None:
    steps = 1_000_000
    found = step_time(made("z3", "taiwania2", steps=steps, partition="gtest"), load_cluster("taiwania2"))
    assert found is not None and found.is_over_limit and found.proposed_time_s == 1800


def test_checkpoints_take_their_time() -> None:
    without, often = (
        step_time(made("z3", task="pretrain", steps=100, save_every=every), load_cluster("local"))
        for every in (None, 10)
    )
    assert without is not None and often is not None
    assert often.run_time_s > without.run_time_s


# Measured


@pytest.fixture(scope="module")
def runs() -> list[time_points.Point]:
    return time_points.points()


def test_errors_on_runs_that_were_not_fitted(runs: list[time_points.Point]) -> None:
    halves = [[run for run in runs if run.half == side] for side in (0, 1)]
    assert min(map(len, halves)) > 80
    values = time_points.fit(halves[0])
    other = time_points.line("", time_points.ratios(values, halves[1]))
    assert other.median <= 0.08 and other.p90 <= 0.20
    assert f"| the other half | {other.runs} | {other.median:.1%} | {other.p90:.1%} |" in results()
    for machine, limit in (("V100", 0.40), ("MI210", 0.40)):
        found = time_points.line("", time_points.on_homework(values, machine))
        assert found.median <= limit
        assert f"| {found.runs} | {found.median:.1%} | {found.p90:.1%} |" in results()
    graphs = time_points.line("", time_points.on_recorded(values))
    assert graphs.median <= 0.20 and f"| {graphs.runs} | {graphs.median:.1%} |" in results()


def test_errors_on_a_device_that_was_not_fitted(runs: list[time_points.Point]) -> None:
    on = {kind: [run for run in runs if run.kind == kind] for kind in ("H100", "H200")}
    found = time_points.line("", time_points.ratios(time_points.fit(on["H100"]), on["H200"]))
    assert found.median <= 0.20
    assert f"| H200, fitted on H100 alone | {found.runs} | {found.median:.1%} |" in results()


def test_nine_of_ten_measured_runs_lie_within_what_is_promised(runs: list[time_points.Point]) -> None:
    inside = 0
    for run in runs:
        found = step_time(run.planned, load_cluster("local"))
        assert found is not None
        inside += found.interval[0] <= run.step_s <= found.interval[1]
    assert inside >= 0.9 * len(runs)


def test_most_runs_of_machines_that_nobody_measured_lie_within_what_is_promised() -> None:
    found = [
        (step_time(planned, load_cluster(planned.cluster)), seconds) for _, planned, seconds in time_points.homework()
    ]
    inside = sum(one is not None and one.interval[0] <= seconds <= one.interval[1] for one, seconds in found)
    assert inside >= 0.8 * len(found)


def test_the_constants_that_come_along_are_of_these_runs(runs: list[time_points.Point]) -> None:
    record = time_constants().record
    assert (record.runs, set(record.gpus)) == (len(runs), {run.kind for run in runs})
    document = json.loads(time_points.DATA.read_text(encoding="utf-8"))
    known = {**document["machine"], **document["program"]}
    found = time_points.line("", time_points.ratios(known, runs))
    assert found.median <= 0.07


def results() -> str:
    return (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")


# Calibration


def measured(runs: list[time_points.Point], factor: float = 1.0) -> list[Measured]:
    return [
        Measured(
            run=f"run-{number}",
            plan=run.planned,
            gpu=run.gpu,
            engine=run.row["engine"],
            step_s=run.step_s * factor,
            versions={"torch": run.row["torch"]},
        )
        for number, run in enumerate(runs)
    ]


def test_a_calibration_brings_predictions_nearer_and_says_by_how_much(runs: list[time_points.Point]) -> None:
    slow = measured([run for run in runs if run.kind == "H100"][:24], 1.6)  # a machine that is slower throughout
    made_of, rows = calibrate("mine", slow, "2026-11-22")
    before = [abs(row.predicted_s / row.measured_s - 1) for row in rows]
    after = [abs((row.calibrated_s or 0) / row.measured_s - 1) for row in rows]
    assert sorted(after)[12] < sorted(before)[12] / 2
    assert made_of.gpus == ("H100",) and made_of.spread >= MIN_SPREAD and len(made_of.runs) == 24
    here = step_time(slow[0].plan, load_cluster("local"), calibration=made_of)
    there = step_time(slow[0].plan, load_cluster("local"))
    assert here is not None and there is not None and here.step_time_s > 1.2 * there.step_time_s
    assert [row.predicted_s for row in compare(slow[:1], made_of)] == [pytest.approx(here.step_time_s)]


def test_few_runs_say_little(runs: list[time_points.Point]) -> None:
    with pytest.raises(RequestError, match="2 finished runs of cluster mine"):
        calibrate("mine", measured(runs[: FEWEST - 1]), "2026-11-22")


def test_runs_that_tell_nothing_are_named() -> None:
    one = measured(time_points.points()[:1])[0]
    on_cpu = replace(one, plan=replace(one.plan, parallel=replace(one.plan.parallel, gpus_per_node=0)))
    good, refused = usable([one, replace(on_cpu, run="on-cpu")])
    assert [run.run for run in good] == ["run-0"]
    assert "CPU" in refused["on-cpu"]


@pytest.mark.parametrize(
    "change",
    [
        {"values": {"matmul": -1}},
        {"values": {"matmul": "x"}},
        {"values": {"speed": 2}},
        {"spread": 0.5},
        {"spread": 1e9},
    ],
)
def test_a_calibration_that_is_none_is_refused(change: dict[str, Any]) -> None:
    whole = {
        "cluster": "mine", "values": {"matmul": 0.5}, "gpus": ["H100"], "offloaded": False, "several_nodes": False,
        "spread": 1.3, "runs": ["a"], "date": "2026-11-22", "versions": {},
    }  # fmt: skip
    assert calibration_from(whole).values == {"matmul": 0.5}
    with pytest.raises((KeyError, TypeError, ValueError)):
        calibration_from({**whole, **change})


# Cost


def test_a_prediction_is_cheap() -> None:
    planned, cluster = made("z3"), load_cluster("local")
    step_time(planned, cluster)
    began = time.process_time()
    for _ in range(100):
        step_time(planned, cluster)
    assert (time.process_time() - began) / 100 < 0.005


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, hpc_llm.estimating.step_time; print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_work_of_a_t5_is_of_both_halves() -> None:
    work = work_of(made("ddp", model="flan-t5-xl"))
    assert work.layers.number == 48 and work.layers.share == 0.5
    # all weights but embeddings and norms are in products, as far as rounding of the shared attention goes
    assert work.layers.number * work.layers.weights == pytest.approx(work.parameters - 2 * 32128 * 2048, rel=0.01)
