"""Each term of the memory estimate as the hand finds it, and what must hold for all of them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering import H100, planned

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.estimating import device, fsdp2
from hpc_llm.estimating.activations import activations_of
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.constants import constants
from hpc_llm.estimating.device import peak_moment
from hpc_llm.estimating.host import host_capacity, host_need, power_of_two
from hpc_llm.estimating.largest import largest_micro_batch, most_nodes, with_batch
from hpc_llm.estimating.memory import at_partition, memory_of
from hpc_llm.estimating.parts import Device, Fit, Need
from hpc_llm.estimating.shapes import sizes_in, sizes_of_model
from hpc_llm.estimating.step_time import unknown_because
from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import PRESETS
from hpc_llm.site import schedulers
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.schedulers import SchedulerFacts

SEVEN = 6_738_415_616
"""Parameters of Llama-2-7B: 32 layers of 4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096, two embeddings of 32000 x 4096, a norm."""


UNFUSED = ("fused_layers=false", "fused_loss=false")


def plan_of(method: str, gpus: int = 1, **asked: Any) -> Plan:
    asked.setdefault("model", "llama2-7b")
    return planned("local", method, gpus_per_node=gpus, hardware=replace(H100, gpus=8), **asked).plan


def case_of(method: str, gpus: int = 1, **asked: Any) -> Case:
    plan = plan_of(method, gpus, **asked)
    return Case(plan, sizes_in(plan))


def terms(method: str, gpus: int = 1, **asked: Any) -> dict[str, int]:
    return peak_moment(case_of(method, gpus, **asked)).terms


def test_each_engine_that_comes_along_is_counted_by_its_own_module() -> None:
    """One that is forgotten would be counted as DeepSpeed, as those from elsewhere are."""
    assert {name: one.__name__ for name, one in device._ENGINES.items()} == {
        name: f"hpc_llm.estimating.{name}" for name in engines.OWN
    }


def test_a_step_of_zero_3_holds_sixteen_bytes_a_number_a_bucket_and_a_sub_group() -> None:
    found = terms("z3", 2, set=("engine=deepspeed",))
    assert found["weights"] == found["gradients"] == 2 * SEVEN // 2
    assert found["optimizer states"] == 12 * SEVEN // 2
    assert found["communication buckets"] == 2 * 500_000_000
    assert found["largest temporary"] == 6 * 1_000_000_000
    assert sum(found.values()) / 2**30 == pytest.approx(56.81, rel=0.002)  # measured


@pytest.mark.parametrize(
    ("method", "model", "gpus", "measured_gib"),
    [  # with the engine of those days
        ("z3-hpc2+r", "llama2-7b", 2, 59.9),
        ("q-hpc2", "llama2-7b", 2, 6.6),
        ("z3-hpc2", "llama3.2-1b", 1, 22.12),
        ("z3+lora", "llama3.2-1b", 1, 4.43),
        ("q-hpc2", "llama3.2-1b", 1, 3.97),
        ("z2+r", "llama3.2-1b", 1, 25.39),
        ("qlora+r", "llama3.2-1b", 1, 1.62),
        ("lora", "llama3.2-1b", 1, 3.47),
    ],
)
def test_runs_that_are_no_points_are_met_as_well(method: str, model: str, gpus: int, measured_gib: float) -> None:
    """Those of RESULTS.md's first tables: fp16, which checks its gradients for overflow, and buckets that are larger than what trains."""
    found = terms(method, gpus, model=model, set=("engine=deepspeed",))
    assert sum(found.values()) / 2**30 == pytest.approx(measured_gib, rel=0.01)


def test_gradients_of_earlier_micro_batches_are_counted() -> None:
    asked: dict[str, Any] = {"micro_batch_size": 8, "sequence_length": 2048, "set": ("engine=deepspeed",)}
    several = terms("ddp", gradient_accumulation_steps=2, **asked)
    assert several["gradients of earlier micro batches"] == 4 * SEVEN
    assert "gradients of earlier micro batches" not in terms("ddp", **asked)


def test_the_sub_group_and_the_bucket_are_those_of_the_config() -> None:
    small = terms("z3", 2, set=("deepspeed.zero_optimization.sub_group_size=1e8",))
    assert small["largest temporary"] == 600_000_000 or "activations" in small
    bucket = terms("z3", 2, set=("deepspeed.zero_optimization.reduce_bucket_size=1e8",))
    assert bucket["communication buckets"] == 200_000_000


def test_activations_of_a_layer_are_counted_from_its_operations() -> None:
    found = activations_of(case_of("ddp", set=UNFUSED))
    # Two norms with input in fp32, normalised and result in bf16; queries, keys, values, output; the MLP's four; 32 sums of scores.
    layer = 2 * (4 + 2 + 2) * 4096 + 4 * 2 * 4096 + 4 * 2 * 11008 + 4 * 32
    assert found.one_layer == 350 * layer
    assert found.kept == 350 * (32 * layer + (4 + 2 + 2) * 4096)
    assert found.loss == 350 * 12 * 32000


def test_compiled_parts_keep_what_enters_them() -> None:
    """Norms their input in bf16 and what they make; queries, keys, values, output; the MLP's two factors and their product."""
    layer = 2 * (2 + 2) * 4096 + 4 * 2 * 4096 + 3 * 2 * 11008 + 4 * 32
    assert activations_of(case_of("ddp")).kept == 350 * (32 * layer + (2 + 2) * 4096)
    # A layer that is compiled whole keeps the same; the norm behind all of them is none.
    found = activations_of(case_of("z3", 2, set=("engine=flat", "compiled_layers=true", "fused_layers=false")))
    assert found.kept == 350 * (32 * layer + (4 + 2 + 2) * 4096)


def test_attention_in_fp32_keeps_its_scores_where_heads_share_keys() -> None:
    """As torch 2.11 allocated it on an H200: of its kernels for fp32 none takes shared keys, and softmax and repeated keys are kept."""
    in_fp32 = ("precision=fp32",)
    shared = {"model": "llama3.2-1b", "micro_batch_size": 2, "sequence_length": 700}
    allocated = 2_741_043_200 + 1_468_006_400 + 734_003_200 + 378_655_200 + 2 * 183_500_800 + 11_468_800
    assert activations_of(case_of("ddp", set=in_fp32, **shared)).kept == pytest.approx(allocated, rel=0.001)
    scores = 16 * 1400 * (32 * 700 * 4 + 2 * 4 * (2048 - 512))
    counted = activations_of(case_of("ddp", set=(*in_fp32, "attention=eager"), **shared)).kept
    assert counted - activations_of(case_of("ddp", set=in_fp32, **shared)).kept == 16 * 1400 * 32 * 700 * 4
    # A model whose heads have keys of their own, and all models in bf16, go by a kernel that keeps none.
    own = [activations_of(case_of("ddp", set=(*in_fp32, f"attention={one}"))).kept for one in ("sdpa", "eager")]
    assert own[1] - own[0] == 32 * 350 * 32 * 350 * 8
    bf16 = activations_of(case_of("ddp", set=("precision=bf16",), **shared)).kept
    assert bf16 < allocated // 2 - scores // 2 + 2**26


def test_the_loss_with_the_head_is_counted_from_its_two_passes() -> None:
    head = 32000 * 4096
    # One part: the head's gradient is multiplied where it lies, a piece at a time in fp32.
    assert activations_of(case_of("ddp")).loss == 2 * head + 350 * 2 * 4096 + 4 * 2**22
    # Several: beside the sum and a part of it, the gradients of the logits before, in 2 bytes, and 2 + 4 + 4 of this part.
    forward, backward = (4 + 2) * head + 12 * 1024 * 32000, (4 + 2) * head + 2800 * 2 * 4096 + 4 * 2**22
    for graph in ("false", "true"):
        several = activations_of(case_of("ddp", micro_batch_size=8, set=(f"cuda_graph={graph}",)))
        assert several.loss == max(forward, backward)
    frozen = activations_of(case_of("lora", micro_batch_size=8)).loss
    assert frozen == max(12 * 1024 * 32000, 2800 * 2 * 4096 + 4 * 2**22)


@pytest.mark.parametrize(
    ("model", "gpus", "method", "batch", "length", "measured_gib"),
    [
        ("llama2-7b", 2, "z3", 1, 350, 59.71),
        ("llama2-7b", 2, "z3", 8, 2048, 124.217),
        ("llama2-7b", 2, "z3+r", 8, 2048, 64.48),
        ("llama3.2-3b", 2, "z3", 4, 2048, 51.64),
        ("llama3.2-1b", 1, "z3", 4, 2048, 31.82),
    ],
)
def test_flat_units_are_met(model: str, gpus: int, method: str, batch: int, length: int, measured_gib: float) -> None:
    """As they were measured, the first on H100, the others on H200: recorded where the batch is small, whole layers compiled where it is large."""
    asked: dict[str, Any] = {"micro_batch_size": batch, "sequence_length": length, "set": ("engine=flat",)}
    assert sum(terms(method, gpus, model=model, **asked).values()) / 2**30 == pytest.approx(measured_gib, rel=0.01)


def test_recompute_keeps_what_enters_each_layer() -> None:
    found = activations_of(case_of("ddp+r", set=UNFUSED))
    assert found.kept == 350 * (32 * 2 * 4096 + 8 * 4096)
    assert found.one_layer == activations_of(case_of("ddp", set=UNFUSED)).one_layer


@pytest.mark.parametrize(("share", "layers"), [("0.25", 8), ("0.99", 32), ("0.001", 1)])
def test_recompute_of_a_share_keeps_all_of_the_other_layers(share: str, layers: int) -> None:
    layer = activations_of(case_of("ddp", set=UNFUSED)).one_layer
    found = activations_of(case_of(f"ddp+r{share}", set=UNFUSED))
    assert found.kept == 350 * (layers * 2 * 4096 + 8 * 4096) + (32 - layers) * layer
    assert found.anew == (layer if layers == 32 else 0)  # the last layer's are given up before others are made anew


@pytest.mark.parametrize(("share", "kept"), [("", -7), ("+r0.25", -5), ("+r0.5", -3), ("+r", 1)])
def test_a_unit_is_summed_when_all_of_its_layers_are_done(share: str, kept: int) -> None:
    """In layers, beside all that is kept to the end of the forward pass: of eight, of which the first one is still there."""
    case = case_of(f"z3{share}", 2, micro_batch_size=8, sequence_length=2048, set=("engine=fsdp2", "layers_per_unit=8"))
    whole = activations_of(case)
    backward = next(one for one in fsdp2.moments(case, whole) if one.name == "backward")
    assert backward.terms["activations"] == whole.kept + kept * whole.one_layer


def test_what_is_quantized_takes_half_a_byte_and_its_scales() -> None:
    case = case_of("q")
    packed = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert case.packed == packed
    assert case.packed_bytes == pytest.approx(packed * (0.5 + 1 / 64), rel=1e-3)
    assert case.trained == SEVEN - packed
    single = case_of("q", set=("quantization.double_quant=false",))
    assert single.packed_bytes == packed * 9 // 16


@pytest.mark.parametrize(("kind", "bytes_of_a_number"), [("qlora", 0.516), ("int8", 1.0)])
def test_what_a_quantized_t5_keeps_whole_is_counted_so(kind: str, bytes_of_a_number: float) -> None:
    """Its `wo`, whose type transformers looks at: 48 of 5120 x 2048, beside two embeddings of 32128 x 2048."""
    case = case_of(kind, model="flan-t5-xl", gpus=1)
    layers = 24 * (4 * 2048**2 + 2 * 2048 * 5120) + 24 * (8 * 2048**2 + 2 * 2048 * 5120)
    assert case.packed == layers
    assert case.packed_bytes / layers == pytest.approx(bytes_of_a_number, rel=0.003)
    whole = case.frozen if kind == "qlora" else case.trained
    assert whole == pytest.approx(48 * 5120 * 2048 + 2 * 32128 * 2048, rel=0.001)


def test_adapters_are_two_thin_matrices_on_each_linear_layer() -> None:
    case = case_of("lora")
    assert case.trained == case.adapters == 32 * 8 * (4 * 8192 + 3 * (4096 + 11008))
    some = case_of("lora", set=("peft.target_modules=[q_proj,v_proj]",))
    assert some.adapters == 32 * 8 * 2 * 8192


@pytest.mark.parametrize(
    ("method", "engine", "bytes_a_number"), [("z3", "fsdp2", 4), ("z3", "deepspeed", 2), ("ddp", "plain", 2 * 8)]
)
def test_at_most_one_rank_of_those_that_share_a_model_copies_its_checkpoint(
    method: str, engine: str, bytes_a_number: int
) -> None:
    plan = plan_of(method, 8, set=(f"engine={engine}",))
    random, loaded = (
        host_need(Case(one, sizes_in(plan)), None).high for one in (plan, plan.changed(weights="checkpoint"))
    )
    assert loaded - random == bytes_a_number * SEVEN


def test_page_locked_blocks_on_the_host_are_powers_of_two() -> None:
    assert [power_of_two(size) for size in (1, 3, 4, 5)] == [1, 4, 4, 8]
    need = host_need(case_of("z2o", set=("engine=deepspeed",)), None)
    gib = {name: size / 2**30 for name, size in need.breakdown.items()}
    # 25.1 GiB of fp32 copies are 32, as the gradients; the moments are not locked; 12.6 GiB of weights are 16.
    assert gib["gradients"] == 32
    assert gib["weights"] == 16
    assert gib["optimizer states"] == pytest.approx(32 + 2 * 25.1, rel=0.01)
    free = host_need(
        case_of("z2o", set=("engine=deepspeed", "deepspeed.zero_optimization.offload_optimizer.pin_memory=false")), None
    )
    assert free.breakdown["gradients"] == 4 * SEVEN


def test_the_seven_billion_offload_does_not_fit_a_node_of_128_gib() -> None:
    assert host_need(case_of("z2o-hpc2"), 128 * 2**30).verdict is Fit.DOES_NOT_FIT
    assert host_need(case_of("z2o-hpc2"), 192 * 2**30).verdict is Fit.FITS


@pytest.mark.parametrize("form", ["mem=100G", "mem-per-gpu=25G"])
def test_the_memory_that_a_job_asks_for_is_what_it_has(form: str) -> None:
    cluster = load_cluster("delta")
    plan = planned(cluster, "z3", gpus_per_node=4, sbatch=(form,)).plan
    assert host_capacity(Case(plan, sizes_in(plan)), cluster, cluster.node) == 100 * 2**30
    plan = planned(cluster, "z3", gpus_per_node=2).plan
    assert host_capacity(Case(plan, sizes_in(plan)), cluster, cluster.node) == pytest.approx(2 * 62.5e9, rel=1e-4)


def test_whose_processes_are_of_one_machine_has_its_memory_by_whatever_scheduler() -> None:
    class OfABench(SchedulerFacts):
        name, title, is_this_machine = "bench", "the bench", True

        def is_here(self) -> bool:
            return True

    cluster = load_cluster("delta")
    plan = planned(cluster, "z3", gpus_per_node=2).plan
    there = replace(plan, job=replace(plan.job, scheduler="bench", mem=None))
    schedulers.register(OfABench())
    try:
        assert cluster.node.mem_gb is not None
        assert host_capacity(Case(there, sizes_in(there)), cluster, cluster.node) == int(cluster.node.mem_gb * 1e9)
        assert most_nodes(cluster, there) == 1 != most_nodes(cluster, plan)
    finally:
        schedulers.unregister("bench")


@pytest.mark.parametrize("more", [(), ("exclusive",)])
def test_the_node_alone_is_not_its_memory(more: tuple[str, ...]) -> None:
    """--exclusive gives all CPUs and GPUs; memory is what the site gives a job that asks for none."""
    cluster = load_cluster("taiwania2")
    plan = planned(cluster, "z3", gpus_per_node=1, sbatch=more).plan
    case = Case(plan, sizes_in(plan))
    assert host_capacity(case, cluster, cluster.node) == 90e9
    silent = cluster.node.model_copy(update={"mem_gb_per_gpu": None})
    assert host_capacity(case, cluster, silent) is None


def test_who_has_all_gpus_of_a_node_has_its_memory_where_that_follows_the_gpus() -> None:
    cluster = load_cluster("taiwania2")
    silent = cluster.model_copy(update={"node": cluster.node.model_copy(update={"mem_gb_per_gpu": None})})
    of_all, of_one = (planned(cluster, "z3", gpus_per_node=n).plan for n in (8, 1))
    assert silent.request.memory == "omit" and silent.node.mem_gb is not None
    assert host_capacity(Case(of_all, sizes_in(of_all)), silent, silent.node) == silent.node.mem_gb * 1e9
    assert host_capacity(Case(of_one, sizes_in(of_one)), silent, silent.node) is None


def test_what_is_more_than_a_node_fits_no_job_of_it() -> None:
    cluster = load_cluster("taiwania2")
    silent = cluster.node.model_copy(update={"mem_gb_per_gpu": None})
    small = silent.model_copy(update={"mem_gb": 64.0})
    plan = planned(cluster, "z3o", gpus_per_node=1, model="llama2-7b").plan
    tight = silent.model_copy(update={"mem_gb": memory_of(plan, cluster, sizes_in(plan)).host.peak / 1e9})
    for node, verdict in ((silent, Fit.UNKNOWN), (small, Fit.DOES_NOT_FIT), (tight, Fit.TOO_CLOSE)):
        there = cluster.model_copy(update={"node": node})
        assert memory_of(plan, there, sizes_in(plan)).host.verdict is verdict


def need(low: int, high: int, capacity: int | None) -> Fit:
    return Need(breakdown={}, peak=low, low=low, high=high, capacity=capacity).verdict


def test_only_what_is_certain_is_called_so() -> None:
    assert need(5, 8, 8) is Fit.FITS
    assert need(5, 9, 8) is Fit.TOO_CLOSE
    assert need(9, 12, 8) is Fit.DOES_NOT_FIT
    assert need(9, 12, None) is Fit.UNKNOWN


METHODS = ("ddp", "z1", "z2", "z2o", "z3", "z3o", "lora", "qlora", "q", "z3+lora")
MODELS = tuple(sorted(PRESETS))


def peak(plan: Plan) -> int:
    return peak_moment(Case(plan, sizes_in(plan))).total


def test_where_each_node_holds_a_whole_model_a_rank_holds_what_it_would_on_one_node() -> None:
    def states(nodes: int, *settings: str) -> int:
        how = ("engine=fsdp2", "keeps_parameters=false", *settings)
        plan = planned("delta", "z3", set=how, model="llama2-7b", nodes=nodes, gpus_per_node=4).plan
        return peak_moment(Case(plan, sizes_in(plan))).terms["optimizer states"]

    assert states(2, "hybrid_sharding=true") == states(1) == pytest.approx(2 * states(2), rel=1e-6)


def test_flat_units_hold_of_a_number_what_bf16_lacks_of_it_and_two_moments_in_blocks_of_exact_size() -> None:
    def host(method: str, *settings: str) -> dict[str, int]:
        return dict(host_need(case_of(method, 2, set=("engine=flat", *settings)), None).breakdown)

    found = host("z2o")
    assert found["optimizer states"] == pytest.approx(10 * SEVEN, rel=1e-6)
    assert found["gradients"] == pytest.approx(2 * SEVEN, rel=1e-6) and "weights" not in found
    assert host("z2o", "offloaded_step=host")["optimizer states"] == pytest.approx(12 * SEVEN, rel=1e-6)
    assert host("z2o", "moments_precision=bf16")["optimizer states"] == pytest.approx(6 * SEVEN, rel=1e-6)
    assert host("z2o", "gradient_accumulation_steps=4")["gradients"] == pytest.approx(4 * SEVEN, rel=1e-6)
    assert host("z3o")["weights"] == pytest.approx(2 * SEVEN, rel=1e-6)
    kept = "fp32 weights of a checkpoint"  # host_states.in_fp32 joins both halves while one is written or read
    saved = dict(host_need(case_of("z2o", 2, set=("engine=flat",), save_every=10), None).breakdown)
    assert kept not in found and saved[kept] == pytest.approx(4 * SEVEN, rel=1e-6)
    whole = case_of("z2o", 2, set=("engine=flat", "offloaded_step=host"), save_every=10)
    assert kept not in host_need(whole, None).breakdown
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    on_device = terms("z2o", 2, set=("engine=flat", "recompute=true"))
    assert (on_device["weights"], on_device["communication buckets"]) == (2 * SEVEN, 2 * (2 * layer + 2 * layer // 2))
    assert terms("z3o", 2, set=("engine=flat", "recompute=true"))["gathered parameters"] == 5 * 2 * layer
    assert host_need(case_of("z2o", 2, set=("engine=flat",)), 128 * 2**30).verdict is Fit.FITS


@pytest.mark.parametrize("cluster", ["delta", "p4d"])
@pytest.mark.parametrize("method", ["z1", "z2", "z3", "z3+r", "z3+lora"])
def test_what_fits_as_it_is_planned_fits_on_more_nodes(cluster: str, method: str) -> None:
    """Of the engine and of what stays gathered nothing is asked for: what planning chooses is no worse where there are more ranks."""
    site = load_cluster(cluster)
    for model, batch, length in itertools.product(("llama3.2-3b", "llama2-7b"), (1, 3, 16), (350, 2048)):
        asked: dict[str, Any] = {"model": model, "micro_batch_size": batch, "sequence_length": length}
        said = []
        for nodes in (1, 2, 4, 8):
            plan = planned(cluster, method, nodes=nodes, **asked).plan
            device = memory_of(plan, at_partition(site, plan), sizes_in(plan)).device
            assert device is not None
            said.append(device.verdict)
        assert said == sorted(said, key=lambda one: one is Fit.FITS), (asked, said)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(METHODS),
    model=st.sampled_from(MODELS),
    gpus=st.integers(2, 7),
    batch=st.integers(1, 9),
    length=st.sampled_from((64, 350, 2048)),
    engine=st.sampled_from(("deepspeed", "fsdp2", "plain", "flat")),
)
def test_what_saves_memory_never_costs_any(
    method: str, model: str, gpus: int, batch: int, length: int, engine: str
) -> None:
    wanted = {
        "fsdp2": ("z3", "z3+lora"),
        "flat": ("z1", "z2", "z3", "z2o", "z3o"),
        "plain": ("ddp", "lora", "q", "qlora"),
    }.get(engine, METHODS)
    if method not in wanted or ("flan" in model and method not in ("ddp", "z1", "z2", "z2o", "z3", "z3o")):
        return
    # That parameters stay gathered costs memory, and is chosen where there is enough of it.
    how = (f"engine={engine}", *(("keeps_parameters=false", "layers_per_unit=1") if engine == "fsdp2" else ()))
    given = {"model": model, "micro_batch_size": batch, "sequence_length": length, "set": how}
    try:
        plan = plan_of(method, gpus, **given)
    except PlanError as error:  # its states alone are too many for so few GPUs
        assert engine == "flat" and "keeps whole parameters on each rank" in str(error)
        return
    assert peak(with_batch(plan, batch + 1)) >= peak(plan)
    assert peak(plan_of(method, gpus + 1, **given)) <= peak(plan)
    assert peak(plan_of(f"{method}+r", gpus, **given)) <= peak(plan)
    # Of a model of two layers, or a T5, the rows that are on their way to the host are all of it.
    has_few_rows = engine == "flat" and (model == "tiny" or "flan" in model)
    if method in ("z2", "z3") and engine in ("deepspeed", "flat") and not has_few_rows:
        assert peak(plan_of(f"{method}o", gpus, **given)) <= peak(plan)


@pytest.mark.parametrize("model", MODELS)
def test_the_sizes_are_those_of_all_parameters(model: str) -> None:
    sizes = sizes_in(plan_of("ddp", model=model))
    assert sizes.root >= sizes.embedding * (1 if sizes.is_tied else 2)
    rest = sizes.root - sizes.embedding * (1 if sizes.is_tied else 2)
    assert 0 < rest <= 100 * sizes.hidden  # the norms at the end, a T5's biases of distances


def test_the_largest_micro_batch_is_the_last_that_fits() -> None:
    cluster = load_cluster("delta")
    plan = planned(cluster, "z3+r", gpus_per_node=4, model="llama2-7b").plan
    sizes = sizes_in(plan)
    largest = largest_micro_batch(plan, cluster, sizes)
    assert largest is not None
    assert largest > 1
    assert memory_of(with_batch(plan, largest), cluster, sizes).verdict is Fit.FITS
    assert memory_of(with_batch(plan, largest + 1), cluster, sizes).verdict is not Fit.FITS


def test_what_was_never_measured_is_said_and_widens_the_interval() -> None:
    cluster = load_cluster("delta")
    plan = planned(cluster, "z3", gpus_per_node=4).plan
    eager = planned(cluster, "z3", gpus_per_node=4, set=("attention=eager",)).plan
    one, other = (memory_of(each, cluster, sizes_in(each)) for each in (plan, eager))
    assert isinstance(one.device, Device)
    assert isinstance(other.device, Device)
    assert not one.notes
    assert any("eager" in note for note in other.notes)
    assert (other.device.high - other.device.low) / other.device.peak > (
        one.device.high - one.device.low
    ) / one.device.peak


def test_of_a_part_of_an_offload_the_rest_stays_on_the_device() -> None:
    """Four sub-groups of 1e9 numbers a rank and a smaller one: DeepSpeed leaves as many of the first as the ratio does not take, rounded down."""
    own = SEVEN // 2
    for ratio, groups in ((1.0, 0), (0.9, 0), (0.7, 1), (0.5, 2), (0.1, 3)):
        case = case_of(
            "z3+o", 2, set=("engine=deepspeed", f"deepspeed.zero_optimization.offload_optimizer.ratio={ratio}")
        )
        found, host = peak_moment(case).terms, host_need(case, None).breakdown
        assert found.get("optimizer states", 0) == pytest.approx(12e9 * groups, rel=0.03)
        assert found.get("gradients", 0) == pytest.approx(4e9 * groups, rel=0.03)
        assert host["optimizer states"] >= 2 * 8 * (own - 1.03e9 * groups)
    assert "few such runs were measured" in " ".join(memory_of(case.plan, load_cluster("local"), case.sizes).notes)
    assert unknown_because(case.plan) is None


@pytest.mark.parametrize(
    ("model", "settings", "measured"),
    [
        ("llama3.2-1b", ("ratio=0.5",), 19.68),
        ("llama3.2-3b", ("ratio=0.5",), 35.77),
        ("llama3.2-3b", ("ratio=0.1",), 50.77),
        ("llama3.2-1b", ("ratio=0.5", "sub_group_size=200000000"), 14.52),
        # measured after the terms were written
        ("llama3.2-1b", ("ratio=0.1", "sub_group_size=200000000"), 20.86),
        ("llama3.2-3b", ("ratio=0.5", "sub_group_size=400000000"), 29.77),
    ],
)
def test_what_stays_on_the_device_of_an_offload_is_as_measured(
    model: str, settings: tuple[str, ...], measured: float
) -> None:
    """GiB that torch had allocated on one H100, DeepSpeed 0.19.8, 1 x 350; rows of benchmarks/results/partial_offload.csv."""
    names = {"ratio": "offload_optimizer.ratio", "sub_group_size": "sub_group_size"}
    paths = (
        f"deepspeed.zero_optimization.{names[name]}={value}"
        for name, _, value in (one.partition("=") for one in settings)
    )
    found = terms("z3+o", model=model, micro_batch_size=1, sequence_length=350, set=("engine=deepspeed", *paths))
    assert sum(found.values()) / 2**30 == pytest.approx(measured, rel=0.03)


def test_a_model_whose_shape_cannot_be_seen_is_refused_in_words() -> None:
    plan = planned("delta", "z3", gpus_per_node=4, model="/nowhere/model", set=("weights=random",)).plan
    with pytest.raises(RequestError, match="no estimate without the shape of the model"):
        sizes_in(plan)


def test_the_constants_say_what_they_were_fitted_to() -> None:
    assert set(constants().precision) == {"counted", "optimizer offloaded", "parameters offloaded"}


UNLIKE = {
    "hybrid_override_pattern": "M-M*-", "layers_block_type": ["mamba", "attention"], "block_types": ["recurrent", "attention"],
    "layer_types": ["full_attention", "linear_attention"], "mamba_d_state": 64, "lru_width": 2560, "kv_lora_rank": 512,
    "num_mem_blocks": 2, "laurel_rank": 64, "num_local_experts": 8,
}  # fmt: skip


def folder_of(folder: Path, **more: object) -> str:
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 512,
    }
    (folder / "config.json").write_text(json.dumps({"model_type": "another", **sizes, **more}))
    return str(folder)


@pytest.mark.parametrize("key", UNLIKE)
def test_layers_that_are_unlike_llamas_are_not_counted_as_if_they_were(tmp_path: Path, key: str) -> None:
    said = {"layers_block_type": "mamba", "layer_types": "linear_attention"}.get(key, key)
    with pytest.raises(RequestError, match=rf"no estimate without the shape of the model: .*\({said}\)"):
        sizes_of_model(folder_of(tmp_path, **{key: UNLIKE[key]}))


def test_kinds_of_attention_are_counted(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"]
    assert sizes_of_model(folder_of(tmp_path, layer_types=kinds, mamba_d_state=None)).layers == 2


def test_a_family_that_counts_in_other_words_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "vocab_size": 50257})
    )
    with pytest.raises(RequestError, match=r"counts in other words \(n_embd, n_layer\)"):
        sizes_of_model(str(tmp_path))
