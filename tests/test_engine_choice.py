"""Which engine a plan gets, what it refuses, and what makes it another one."""

from __future__ import annotations

from typing import Any

import pytest
from rendering import METHODS, planned

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import EngineSetup


def choice(method: str, *settings: str, **asked: Any) -> tuple[Plan, tuple[str, ...]]:
    found = planned("delta", method, set=settings, **asked)
    return found.plan, found.notices


@pytest.mark.parametrize("method", METHODS)
def test_every_method_names_an_engine_that_can_do_it(method: str) -> None:
    plan, _ = choice(method)
    assert plan.engine.name in engines.OWN and plan.engine.module is None
    cannot_be = plan.engine.name == "deepspeed" or plan.optimizer.type == "AdamWBF16"
    assert plan.engine.fallback == (None if cannot_be else "deepspeed")


def test_the_methods_of_the_homework_stay_deepspeed() -> None:
    assert {choice(method)[0].engine.name for method in METHODS if method.endswith("-hpc2")} == {"deepspeed"}


@pytest.mark.parametrize(
    ("engine", "method"),
    [
        ("plain", "ddp"),
        ("plain", "q"),
        ("plain", "lora"),
        ("fsdp2", "z1"),
        ("fsdp2", "z2"),
        ("fsdp2", "z3"),
        ("fsdp2", "z3+l"),
        ("fsdp2", "z3+qlora"),
        ("flat", "z1"),
        ("flat", "z2"),
        ("flat", "z3"),
        ("flat", "z2o"),
        ("flat", "z3o"),
    ],
)
def test_an_engine_can_be_asked_for(engine: str, method: str) -> None:
    plan, notices = choice(method, f"engine={engine}")
    assert (plan.engine.name, notices) == (engine, ())
    assert plan.engine.fallback == ("deepspeed" if method != "q" else None)


@pytest.mark.parametrize(
    ("engine", "method", "said"),
    [
        ("plain", "z3", "engine plain holds the whole model on each rank, and cannot split it. Engines that can: deepspeed, fsdp2, flat."),
        ("plain", "z2", "Engines that can: deepspeed, fsdp2, flat."),
        ("plain", "z2o", "Engines that can: deepspeed, flat."),
        ("fsdp2", "z2o", "engine fsdp2 keeps everything on the device, and cannot offload. Engines that can: deepspeed, flat."),
        ("fsdp2", "z2+qlora", "splits a quantized base with ZeRO-3 alone. Engines that can: deepspeed."),
        ("fsdp2", "ddp", "Engines that can: deepspeed, plain."),
        ("fsdp2", "z3o", "cannot offload"),
        ("flat", "ddp", "engine flat splits among all ranks what trains, and this method splits nothing. Engines that can: deepspeed, plain."),
        ("flat", "z3+l", "engine flat trains all parameters, and here some are frozen. Engines that can: deepspeed, fsdp2."),
        ("flat", "z3+qlora", "here some are frozen"),
        ("fsdp2", "int8", "splits no weights of 8 bits. Engines that can: deepspeed."),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_do_is_refused_with_those_that_can(engine: str, method: str, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        bits = ("quantization.kind=int8",) if method == "int8" else ()
        choice("z3+qlora" if bits else method, f"engine={engine}", *bits)
    assert said in str(caught.value)


def test_parameters_that_cannot_be_whole_are_refused_where_that_is_known() -> None:
    with pytest.raises(PlanError) as caught:
        choice("z3", "engine=flat", model="llama2-7b", gpus_per_node=1)
    said = "engine flat keeps whole parameters on each rank, and 100.4 GiB with their states are more than the GPU's 40.0 GiB."
    assert f"{said} Engines that can: deepspeed, fsdp2." in str(caught.value)
    assert (
        planned("delta", "z3", model="llama2-7b", nodes=4, gpus_per_node=4, set=("engine=flat",)).plan.engine.name
        == "flat"
    )
    assert planned("local", "z3", hardware=None, set=("engine=flat",)).plan.engine.name == "flat"


def test_loss_scaling_is_refused_by_flat_units() -> None:
    with pytest.raises(
        PlanError, match=r"engine flat scales no losses, as fp16 needs. Engines that can: deepspeed, fsdp2"
    ):
        choice("z3", "engine=flat", "precision=fp16")


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"engine 'megatron'.*deepspeed, flat, fsdp2, plain"):
        choice("z3", "engine=megatron")


@pytest.mark.parametrize(
    "setting", ["deepspeed.zero_optimization.overlap_comm=false", "deepspeed.communication_data_type=fp32"]
)
def test_a_setting_that_only_deepspeed_heeds_selects_it_and_says_so(setting: str) -> None:
    plan, notices = choice("z3", "engine=fsdp2", setting)
    assert plan.engine.name == "deepspeed"
    path = setting.partition("=")[0]
    assert f"engine fsdp2 becomes deepspeed: {path} is set, which only it heeds" in notices


def test_a_setting_that_all_heed_selects_nothing() -> None:
    plan, notices = choice("z3", "engine=fsdp2", "deepspeed.gradient_clipping=0.5")
    assert (plan.engine.name, notices) == ("fsdp2", ())


@pytest.mark.parametrize(
    ("method", "settings", "recorded", "why"),
    [
        ("lora", ("engine=plain",), True, "whose steps have one shape"),
        ("q", ("engine=plain",), True, "whose steps have one shape"),
        ("q", ("engine=plain", "quantization.kind=int8"), False, "int8 layers were not compared"),
        ("ddp", ("attention=eager",), False, "mask is brought from the host"),
        ("lora", ("engine=plain", "cuda_graph=false"), False, "set"),
        ("lora", ("engine=deepspeed",), False, "it records no steps"),
        ("z3", ("engine=fsdp2",), False, "it records no steps"),
        ("z3", ("engine=flat",), True, "whose steps have one shape"),
        ("z3", ("engine=flat", "cuda_graph=false"), False, "set"),
    ],
)
def test_the_plan_says_whether_steps_are_recorded_and_why(
    method: str, settings: tuple[str, ...], recorded: bool, why: str
) -> None:
    found = planned("delta", method, set=settings)
    assert found.plan.engine.cuda_graph is recorded
    assert why in found.origins["cuda_graph"] or why == found.origins["cuda_graph"]


@pytest.mark.parametrize(
    ("method", "settings", "fused"),
    [
        ("lora", (), (True, True, True)),
        ("qlora", (), (True, True, True)),
        ("q", (), (False, True, True)),
        ("ddp", (), (False, True, True)),
        ("lora", ("fused_lora=false", "fused_loss=false", "fused_layers=false"), (False, False, False)),
        ("lora", ("peft.dropout=0.1",), (False, True, True)),
        ("qlora", ("quantization.kind=int8",), (False, True, True)),
        ("lora", ("engine=deepspeed",), (False, False, False)),
        ("z3", (), (False, True, True)),
        ("z3", ("engine=deepspeed",), (False, False, False)),
        ("z3", ("engine=fsdp2",), (False, True, False)),
        ("z3", ("engine=flat",), (False, True, True)),
    ],
)
def test_the_plan_says_what_is_fused(method: str, settings: tuple[str, ...], fused: tuple[bool, bool, bool]) -> None:
    engine = planned("delta", method, set=settings, model="llama3.2-1b").plan.engine
    assert (engine.fused_lora, engine.fused_loss, engine.fused_layers) == fused


def test_weights_in_4_bits_are_unpacked_at_once_on_gpus_that_were_tried() -> None:
    nvidia, amd = (planned(cluster, "qlora", set=("engine=plain",)) for cluster in ("delta", "mi210"))
    assert nvidia.plan.engine.fused_dequantization and not amd.plan.engine.fused_dequantization
    assert "NVIDIA" in amd.origins["fused_dequantization"]
    assert "nothing is packed" in planned("delta", "lora").origins["fused_dequantization"]


def test_the_plan_says_why_something_is_not_fused() -> None:
    dropping, whole = planned("delta", "lora", set=("peft.dropout=0.1",)), planned("delta", "ddp")
    encoder = planned("delta", "lora", model="flan-t5-small")
    assert "drops what it sees at random" in dropping.origins["fused_lora"]
    assert "there is no LoRA" in whole.origins["fused_lora"]
    assert "nothing is known of the modules of t5" in encoder.origins["fused_loss"]
    assert "there is no GPU" in planned("local", "lora", hardware=None).origins["fused_layers"]
    with pytest.raises(PlanError, match=r"fused_lora=true: with engine plain it cannot be, for each adapter drops"):
        choice("lora", "peft.dropout=0.1", "fused_lora=true")


@pytest.mark.parametrize("method", ["ddp", "q", "lora", "qlora", "lora+r", "q+r"])
def test_what_splits_nothing_is_plain_unless_something_of_deepspeed_is_asked(method: str) -> None:
    assert (choice(method)[0].engine.name, choice(method)[1]) == ("plain", ())
    plan, notices = choice(method, "deepspeed.communication_data_type=fp32")
    assert plan.engine.name == "deepspeed" and "engine plain becomes deepspeed" in notices[0]
    assert choice(method, "engine=deepspeed")[0].engine.name == "deepspeed"


def test_without_a_gpu_nothing_is_recorded() -> None:
    found = planned("local", "lora", hardware=None, set=("engine=plain",))
    assert not found.plan.engine.cuda_graph


@pytest.mark.parametrize("settings", [("engine=deepspeed",), ("engine=plain", "quantization.kind=int8")])
def test_to_record_what_cannot_be_recorded_is_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match="cuda_graph=true: with engine"):
        choice("q", *settings, "cuda_graph=true")


DEEPSPEED = "engine=deepspeed"
FSDP2 = "engine=fsdp2"


@pytest.mark.parametrize(
    ("method", "model", "asked", "keeps", "layers", "why"),
    [
        ("z3", "llama3.2-1b", {"gpus_per_node": 4}, True, 8, "no more than half of 40.0 GiB"),
        ("z3", "llama2-7b", {"gpus_per_node": 4}, False, 1, "GiB of states and whole parameters are more than half"),
        ("z3", "llama2-7b", {"nodes": 4, "gpus_per_node": 4}, True, 8, "no more than half"),
        (
            "z3",
            "llama2-7b",
            {"nodes": 4, "micro_batch_size": 16},
            False,
            1,
            "with whole parameters and the batch are more than 94% of",
        ),
        ("z2", "llama2-7b", {"gpus_per_node": 4}, True, 8, "ZeRO-2 splits no parameters"),
        ("z3", "/not/here", {"gpus_per_node": 4}, False, 1, "nobody knows whether there is room"),
    ],
)
def test_parameters_are_kept_where_half_of_the_gpu_holds_them_and_the_batch_has_room(
    method: str, model: str, asked: dict[str, Any], keeps: bool, layers: int, why: str
) -> None:
    unseen = ("weights=checkpoint",) if model.startswith("/") else ()
    found = planned("delta", method, model=model, set=(FSDP2, *unseen), **asked)
    assert (found.plan.engine.keeps_parameters, found.plan.engine.layers_per_unit) == (keeps, layers)
    assert why in found.origins["keeps_parameters"]


def test_how_layers_are_split_can_be_said_piece_by_piece() -> None:
    settings = ("keeps_parameters=false", "layers_per_unit=4", "reduce_precision=fp32", "compiled_layers=false")
    plan, _ = choice("z3", FSDP2, *settings)
    engine = plan.engine
    found = (engine.keeps_parameters, engine.layers_per_unit, engine.reduce_precision, engine.compiled_layers)
    assert found == (False, 4, "fp32", False)


def test_each_node_may_hold_a_whole_model() -> None:
    asked: dict[str, Any] = {"model": "llama2-7b", "nodes": 2, "gpus_per_node": 4}
    split = planned("delta", "z3", set=(FSDP2,), **asked)
    assert not split.plan.engine.hybrid_sharding and "nobody has measured it" in split.origins["hybrid_sharding"]
    assert planned("delta", "z3", set=(FSDP2, "hybrid_sharding=true"), **asked).plan.engine.hybrid_sharding


def test_how_rows_are_carried_out_can_be_said_piece_by_piece() -> None:
    def setup(*settings: str) -> EngineSetup:
        return choice("z3", "engine=flat", *settings, model="llama3.2-1b")[0].engine

    assert (setup().overlap, setup().layers_per_unit, setup().reduce_precision) == (True, 2, "bf16")
    assert not setup("overlap=false").overlap and setup("compiled_layers=true").compiled_layers
    assert setup().fused_optimizer and not setup("fused_optimizer=false").fused_optimizer
    assert not setup("precision=fp32").fused_optimizer and not setup("optimizer.type=AdamW8bit").fused_optimizer
    on_cpu = planned("local", "z3", hardware=None, set=("engine=flat",)).plan.engine
    assert not on_cpu.overlap and not on_cpu.fused_optimizer


def test_states_on_the_host_are_stepped_where_the_plan_says() -> None:
    def setup(*settings: str, cluster: str = "delta", **asked: Any) -> EngineSetup:
        return planned(cluster, "z2o", set=("engine=flat", *settings), **asked).plan.engine

    found = setup()
    assert (found.offloaded_step, found.moments_precision, found.layers_per_unit) == ("device", "fp32", 1)
    assert (found.cuda_graph, found.fused_optimizer, found.fused_loss) == (False, False, False)
    assert setup(micro_batch_size=8, sequence_length=2048).fused_loss
    assert setup("offloaded_step=host").offloaded_step == "host"
    assert setup("moments_precision=bf16").moments_precision == "bf16"
    assert setup(cluster="local", hardware=None).offloaded_step == "host"
    visiting = planned("delta", "z3o", model="llama2-70b", set=("engine=flat",)).plan.engine
    assert (visiting.offloaded_step, visiting.compiled_layers, visiting.layers_per_unit) == ("device", False, 1)
    of_deepspeed = planned("delta", "z2o", set=("engine=deepspeed",)).plan.engine
    assert of_deepspeed.offloaded_step == "none"  # it sees to that itself


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("z2o", ("offloaded_step=host", "moments_precision=bf16"), "moments are rounded at random on the device alone"),
        ("z3o", ("compiled_layers=true",), "engine flat does not heed it"),
        ("z2o", ("offloaded_step=none",), "valid are device, host"),
        ("z3", ("offloaded_step=host",), "engine flat does not heed it"),
        ("z2o", ("fused_optimizer=true",), "engine flat does not heed it"),
        ("z2o", ("optimizer.type=AdamW8bit",), "offloads the states of AdamW alone, and not of AdamW8bit"),
    ],
)
def test_what_cannot_be_offloaded_so_is_refused(method: str, settings: tuple[str, ...], said: str) -> None:
    with pytest.raises((PlanError, RequestError)) as caught:
        choice(method, "engine=flat", *settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "method", "settings", "reduces", "compiles"),
    [
        ("delta", "z3", (), "bf16", True),
        ("delta", "z3", ("precision=fp32",), "fp32", True),
        ("delta", "z3+qlora", (), "bf16", False),
        ("taiwania2", "z3", (), "fp32", True),  # its GPUs have no bf16
        ("mi210", "z3", (), "bf16", False),
    ],
)
def test_gradients_are_summed_in_the_precision_of_the_run_and_layers_compiled_where_that_was_measured(
    cluster: str, method: str, settings: tuple[str, ...], reduces: str, compiles: bool
) -> None:
    engine = planned(cluster, method, set=(FSDP2, *settings)).plan.engine
    assert (engine.reduce_precision, engine.compiled_layers) == (reduces, compiles)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((DEEPSPEED, "layers_per_unit=8"), "--set layers_per_unit=8: engine deepspeed does not heed it."),
        ((DEEPSPEED, "compiled_layers=true"), "--set compiled_layers=true: engine deepspeed does not heed it."),
        ((FSDP2, "overlap=true"), "--set overlap=true: engine fsdp2 does not heed it."),
        (("engine=flat", "keeps_parameters=true"), "--set keeps_parameters=true: engine flat does not heed it."),
        (("engine=flat", "hybrid_sharding=true"), "--set hybrid_sharding=true: engine flat does not heed it."),
        ((FSDP2, "hybrid_sharding=true"), "splits among the ranks of each node, and the plan has one node."),
        ((FSDP2, "layers_per_unit=0"), "layers_per_unit is 0, it must be at least 1."),
        ((FSDP2, "reduce_precision=fp16"), "valid are fp32, bf16"),
        ((DEEPSPEED, "fused_loss=true"), "engine deepspeed it cannot be, for it fuses nothing"),
    ],
)
def test_what_an_engine_does_not_heed_is_refused(settings: tuple[str, ...], said: str) -> None:
    with pytest.raises((PlanError, RequestError)) as caught:
        choice("z3", *settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("method", ["z2", "z3+r", "z1+lora"])
@pytest.mark.parametrize("key", ["partition_activations", "cpu_checkpointing", "number_checkpoints"])
def test_deepspeeds_own_recomputation_is_refused_where_nothing_heeds_it(method: str, key: str) -> None:
    with pytest.raises(PlanError, match=rf"activation_checkpointing\.{key} has no effect: .*--set recompute=true"):
        planned("local", method, model="tiny", set=(f"deepspeed.activation_checkpointing.{key}=1",))
    assert planned("local", method, model="tiny", set=("recompute=true",)).plan.model.recompute


def test_a_method_takes_the_first_of_its_engines_that_suits() -> None:
    """Whole parameters where they fit beside the batch, on GPUs where that was measured; DeepSpeed elsewhere, and the plan says why."""

    def engine(cluster: str = "runpod", model: str = "llama2-7b", **changes: Any) -> tuple[str, str]:
        found = planned(cluster, changes.pop("method", "z3"), model=model, **changes)
        return found.plan.engine.name, found.origins["engine"]

    assert engine(gpus_per_node=2) == ("flat", "method z3")
    assert engine(gpus_per_node=2, method="z2")[0] == engine(gpus_per_node=2, method="z1")[0] == "flat"
    too_large: list[tuple[dict[str, Any], str]] = [
        ({"gpus_per_node": 1}, "more than the GPU's 80.0 GiB"),
        ({"gpus_per_node": 2, "micro_batch_size": 8, "sequence_length": 2048}, "more than 94%"),
    ]
    for changed, word in too_large:
        name, why = engine(**changed)
        assert name == "fsdp2" and word in why, (changed, why)
        assert engine(**changed, method="z2")[0] == "deepspeed"
    others: list[tuple[dict[str, Any], str]] = [
        ({"gpus_per_node": 2, "tensor_parallel": 2}, "flat has whole layers"),
        ({"gpus_per_node": 2, "method": "z3+lora"}, "some are frozen"),
        ({"cluster": "mi210"}, "NVIDIA's GPUs alone"),
        ({"cluster": "taiwania2"}, "fp16"),
    ]
    for changed, word in others:
        name, why = engine(**changed)
        assert name == "deepspeed" and word in why, (changed, why)
    assert engine(gpus_per_node=2, set=("engine=fsdp2",)) == ("fsdp2", "request: set")
    asked = planned("runpod", "z3", model="llama2-7b", gpus_per_node=2, set=("deepspeed.zero_optimization.stage=2",))
    assert asked.plan.engine.name == "deepspeed" and "which only it heeds" in asked.notices[0]
    assert engine(gpus_per_node=2, method="z3-hpc2")[0] == "deepspeed"


def test_a_large_batch_compiles_whole_layers_and_a_small_one_is_recorded() -> None:
    def engine(size: int) -> Any:
        return planned(
            "runpod", "z3", model="llama3.2-1b", gpus_per_node=2, micro_batch_size=size, sequence_length=1024
        ).plan.engine

    small, large = engine(1), engine(8)
    assert small.name == large.name == "flat"
    assert (small.cuda_graph, small.fused_layers, small.compiled_layers) == (True, True, False)
    assert (large.cuda_graph, large.fused_layers, large.compiled_layers) == (False, False, True)
