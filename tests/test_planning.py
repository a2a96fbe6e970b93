"""plan(): every value decided, with its origin, and what cannot be done refused before anything is queued."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import pytest
from rendering import ACCOUNTS, CLUSTERS, H100, METHODS, planned

from hpc_llm.errors import HpcLlmError, PlanError, RequestError
from hpc_llm.planning.experiment import PATHS, Experiment, Plan, PlanWithOrigins
from hpc_llm.planning.method import load_method
from hpc_llm.planning.plan import Site, plan
from hpc_llm.site.cluster import Cluster, load_cluster, parse_cluster
from hpc_llm.site.hardware import Hardware

CPU = Hardware(cpus=8)
V100 = Hardware("Tesla V100-SXM2-32GB", "sm_70", 32.0, 8, "nvidia", 40)


def refused(error: type[HpcLlmError], said: str, cluster: str | Cluster, method: str = "z3", **asked: Any) -> None:
    with pytest.raises(error) as caught:
        planned(cluster, method, **asked)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def variant(base: str, **changes: Any) -> Cluster:
    """A shipped profile with some of its mappings changed."""
    data = load_cluster(base).model_dump(mode="python", by_alias=True)
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) and isinstance(data.get(key), dict) else value
    return parse_cluster(data, "variant.yaml")


# --- every combination ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_planned_on_every_cluster_with_all_origins(cluster: str, method: str) -> None:
    found = planned(cluster, method)
    assert set(found.origins) == set(found.plan.flat()) <= set(PATHS)
    assert all(found.origins.values())
    assert Plan.from_dict(found.plan.to_dict()) == found.plan
    config = found.plan.engine.deepspeed
    assert config["train_batch_size"] == found.plan.batch.global_batch_size
    assert config.get(found.plan.model.precision, {}).get("enabled") is True
    assert not {"fp16", "bf16", "bfloat16"} - {found.plan.model.precision} & set(config)


@pytest.mark.parametrize(
    ("model", "weights"), [("llama2-7b", "random"), ("org/name", "random"), ("/work/m", "checkpoint")]
)
def test_a_plan_of_before_is_read_as_it_was_meant(model: str, weights: str) -> None:
    older = {**planned("taiwania2", "z3").plan.flat(), "model": model}
    for name in ("data_parallel", "weights", "lr_ramp_steps", "loss_floor_nats"):
        del older[name]
    plan = Plan.from_dict(older)
    assert (plan.parallel.data, plan.model.weights, plan.training.lr_ramp_steps, plan.training.loss_floor_nats) == (
        8,
        weights,
        0,
        None,
    )


def test_planning_the_same_twice_gives_the_same() -> None:
    asked: dict[str, Any] = {"nodes": 2, "set": ("optimizer.lr=1e-3", "env.A=b"), "sbatch": ("qos=high",)}
    assert planned("taiwania2", "z3+o+r", **asked) == planned("taiwania2", "z3+o+r", **asked)


def test_planning_changes_nothing_that_it_is_given() -> None:
    cluster, method = load_cluster("delta"), load_method("z3o")
    before = cluster.model_dump(), method.model_dump()
    experiment = Experiment(
        cluster="delta", method="z3o", account="a-delta-gpu", set=("deepspeed.zero_optimization.sub_group_size=5",)
    )
    plan(experiment, cluster, method, Site(scheduler="slurm"))
    assert (cluster.model_dump(), method.model_dump()) == before


def test_planning_asks_neither_clock_nor_environment_nor_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poisoned(dict[str, str]):
        def _touched(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("planning looked at the environment")

        __getitem__ = get = __contains__ = __iter__ = keys = items = _touched

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("planning is not pure")

    pairs = [(load_cluster(c), load_method(m)) for c in CLUSTERS for m in METHODS]

    def plan_all() -> None:
        for cluster, method in pairs:
            scheduler = "local" if cluster.scheduler == "local" else "slurm"
            experiment = Experiment(cluster=cluster.name, method=method.name, account=ACCOUNTS.get(cluster.name))
            plan(experiment, cluster, method, Site(scheduler=scheduler, hardware=H100))

    plan_all()  # pydantic builds its models on their first use, and looks for plugins of its own then
    for module, name in [
        (time, "time"), (time, "monotonic"), (time, "time_ns"), (subprocess, "Popen"), (subprocess, "run"),
        (os, "getenv"), (os, "system"), (os, "getpid"), (os, "urandom"),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, forbidden)
    monkeypatch.setattr(os, "environ", Poisoned())
    try:
        plan_all()
    finally:
        monkeypatch.undo()


# --- origins --------------------------------------------------------------------------------------------------------


def test_each_value_says_where_it_comes_from() -> None:
    cluster, method = load_cluster("taiwania2"), load_method("z3")
    experiment = Experiment(
        cluster="taiwania2",
        method="z3",
        steps=7,
        model="tiny",
        nodes=2,
        account="ACD1",
        set=("seed=3",),
        sbatch=("qos=a",),
    )
    sources = {"steps": "--steps", "model": "mine.yaml", "account": "--account", "nodes": "mine.yaml", "set": "--set", "sbatch": "mine.yaml"}  # fmt: skip
    origins = plan(experiment, cluster, method, Site(scheduler="slurm"), sources).origins
    assert origins == {
        **origins,
        "steps": "--steps",
        "model": "mine.yaml",
        "nodes": "mine.yaml",
        "account": "--account",
        "seed": "--set",
        "sbatch": "mine.yaml",
        "sequence_length": "default",
        "time_s": "cluster taiwania2: defaults",
        "partition": "cluster taiwania2: default partition",
        "gpus_per_node": "cluster taiwania2: gpu.per_node",
        "tasks_per_node": "computed: one rank per GPU",
        "launcher": "cluster taiwania2: launch.multi_node",
        "cpus_per_task": "cluster taiwania2: node.cpus_per_gpu",
        "recompute": "method z3",
        "optimizer": "method z3, lr: default for tiny: 0.1 / hidden size 128, rounded to one digit",
        "lr_ramp_steps": "default: a tenth of the steps, at least 5, at most half of them and 2000",
        "weights": "computed: a preset has no weights",
        "data_parallel": "computed: each rank trains on samples of its own",
        "precision": "bf16 becomes fp16: V100-SXM2-32GB (sm_70) has no bf16 units",
        "global_batch_size": "computed: micro_batch_size x gradient_accumulation_steps x data_parallel",
        "data": "default: synthetic tokens",
    }


def test_origins_of_a_machine_without_a_gpu_name_none() -> None:
    found = planned("local", "z3", hardware=Hardware(cpus=4))
    assert found.origins["gpus_per_node"] == "cluster local: defaults says 1, there is no GPU"
    assert found.origins["tasks_per_node"] == "computed: one rank, for there is no GPU"


# --- precision and what GPUs can do ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "method", "hardware", "precision", "notice"),
    [
        ("taiwania2", "z3", H100, "fp16", "bf16 becomes fp16: V100-SXM2-32GB (sm_70) has no bf16 units"),
        ("taiwania2", "z3-hpc2", H100, "fp16", ""),
        ("taiwania2", "q-hpc2", H100, "fp16", "bf16 becomes fp16: V100-SXM2-32GB (sm_70) has no bf16 units"),
        ("delta", "z3", H100, "bf16", ""),
        ("delta", "z3-hpc2", H100, "fp16", ""),
        ("mi210", "q", H100, "bf16", ""),
        ("local", "z3", H100, "bf16", ""),
        ("local", "z3", V100, "fp16", "bf16 becomes fp16: Tesla V100-SXM2-32GB (sm_70) has no bf16 units"),
        ("local", "z3", CPU, "bf16", ""),
        ("local", "z3-hpc2", CPU, "bf16", "fp16 becomes bf16: the CPU cannot train in fp16 (method z3-hpc2)"),
    ],
)
def test_precision_follows_the_gpu_and_says_so(
    cluster: str, method: str, hardware: Hardware, precision: str, notice: str
) -> None:
    found = planned(cluster, method, hardware=hardware)
    assert found.plan.model.precision == precision
    assert found.notices == ((notice,) if notice else ())


def test_a_precision_of_ones_own_silences_the_notice() -> None:
    found = planned("taiwania2", "z3", set=("precision=fp32",))
    assert found.plan.model.precision == "fp32" and found.notices == ()
    assert "fp16" not in found.plan.engine.deepspeed and "bf16" not in found.plan.engine.deepspeed
    assert found.plan.gpu.peak_flops == 15.7e12


@pytest.mark.parametrize(
    ("cluster", "asked", "hardware", "said"),
    [
        (
            "taiwania2",
            {"method": "z3+f"},
            H100,
            "FlashAttention-2 does not run on V100-SXM2-32GB (sm_70) of cluster taiwania2. Use PyTorch's fused attention instead: leave f out, or --set attention=sdpa.",
        ),
        ("taiwania2", {"method": "z3", "set": ("attention=flash_attention_2",)}, H100, "FlashAttention-2 does not run"),
        ("local", {"method": "z3+f"}, CPU, "FlashAttention-2 runs on GPUs only. Use sdpa"),
        *(
            (
                cluster,
                {"method": "z3+fp8"},
                H100,
                f"fp8 does not run on {gpu} of cluster {cluster}: {why}. Leave fp8 out",
            )
            for cluster, gpu, why in (
                ("taiwania2", "V100-SXM2-32GB (sm_70)", "NVIDIA's GPUs have it from compute capability 8.9 (sm_89) on"),
                ("p4d", "A100-SXM4-40GB (sm_80)", "NVIDIA's GPUs have it from compute capability 8.9 (sm_89) on"),
                ("mi210", "MI210 (gfx90a)", "it was made for NVIDIA's GPUs alone"),
            )
        ),
        (
            "local",
            {"method": "z3+lora+fp8"},
            H100,
            "fp8 multiplies weights that train, and LoRA freezes them. Leave fp8",
        ),
        ("local", {"method": "q+fp8"}, H100, "weights that train, and a quantized base freezes them. Leave fp8 out"),
        ("local", {"method": "ddp+fp8", "set": ("precision=fp16",)}, H100, "the precision is fp16. Leave fp8 out"),
        ("local", {"method": "ddp+fp8", "task": "infer"}, H100, "multiplies in fp8 as training does, and task infer"),
        (
            "local",
            {"method": "z3+fp8", "set": ("engine=deepspeed",)},
            H100,
            "engine deepspeed multiplies in no fp8, which the method asks for. Engines that can: fsdp2, flat.",
        ),
        ("local", {"method": "z3+f"}, V100, "FlashAttention-2 does not run on Tesla V100-SXM2-32GB"),
        (
            "taiwania2",
            {"method": "q", "set": ("quantization.kind=int8",)},
            H100,
            "bitsandbytes int8 does not run on V100-SXM2-32GB (sm_70) of cluster taiwania2. Use --set quantization.kind=nf4.",
        ),
        (
            "taiwania2",
            {"method": "z3", "set": ("precision=bf16",)},
            H100,
            "bf16 does not run on V100-SXM2-32GB (sm_70) of cluster taiwania2. Use --set precision=fp16.",
        ),
        (
            "local",
            {"method": "z3", "set": ("precision=fp16",)},
            CPU,
            "fp16 does not train on a CPU. Use --set precision=bf16 or fp32.",
        ),
        (
            "delta",
            {"method": "z3+q"},
            H100,
            "a quantized base under ZeRO-3 has no trainable linear layers to split. Use qlora with z3, or q alone.",
        ),
    ],
)
def test_what_a_gpu_cannot_do_is_refused_with_reason_and_alternative(
    cluster: str, asked: dict[str, Any], hardware: Hardware, said: str
) -> None:
    refused(PlanError, said, cluster, asked.pop("method"), hardware=hardware, **asked)


@pytest.mark.parametrize(
    ("cluster", "method"), [("delta", "z3+f"), ("mi210", "z3+o+r+f"), ("local", "z3+f"), ("mi210", "q")]
)
def test_what_a_gpu_can_do_is_planned(cluster: str, method: str) -> None:
    found = planned(cluster, method, set=("quantization.kind=int8",) if method == "q" else ())
    assert found.plan.model.attention == ("flash_attention_2" if "f" in method.split("+") else "sdpa")


def test_peak_and_expected_gpu_follow_partition_and_precision() -> None:
    plan = planned("delta", "z3", partition="gpuH200x8").plan
    assert (plan.gpu.model, plan.gpu.peak_flops, plan.parallel.gpus_per_node, plan.job.cpus_per_task) == (
        "H200",
        989e12,
        8,
        12,
    )
    cpu = planned("local", "z3", hardware=CPU).plan
    assert (cpu.gpu.model, cpu.gpu.peak_flops, cpu.parallel.gpus_per_node, cpu.parallel.world_size) == (
        None,
        None,
        0,
        1,
    )
    assert planned("delta", "z3", set=("peak_flops=1e14",)).plan.gpu.peak_flops == 1e14
    refused(RequestError, "peak_flops=0", "delta", set=("peak_flops=0",))
    refused(RequestError, "peak_flops", "delta", set=("peak_flops=many",))


@pytest.mark.parametrize(
    ("cluster", "method", "engine", "peak"),
    [
        ("runpod", "z3+fp8", "flat", 1978.9e12),
        ("runpod", "ddp+r+fp8", "plain", 1978.9e12),
        ("delta", "z2+o+fp8", "flat", 1978.9e12),
        ("rtx5090", "z3+fp8", "fsdp2", 419e12),
        ("local", "z3+fp8", "flat", None),
    ],
)
def test_fp8_is_judged_by_its_own_peak_and_compiled_where_there_is_a_gpu(
    cluster: str, method: str, engine: str, peak: float | None
) -> None:
    partition = {"partition": "gpuH200x8"} if cluster == "delta" else {}
    found = planned(cluster, method, hardware=CPU, **partition)
    assert found.plan.model.fp8 and "fp8" in found.plan.letters.split("+")
    assert (found.plan.engine.name, found.plan.gpu.peak_flops, found.plan.engine.fallback) == (engine, peak, None)
    assert found.plan.engine.compiled_layers == (peak is not None)
    assert found.origins["fp8"] == f"method {method}"
    few = planned(cluster, method, hardware=CPU, micro_batch_size=1, sequence_length=350, **partition)
    many = planned(cluster, method, hardware=CPU, micro_batch_size=2, sequence_length=2048, **partition)
    told = ["fp8 will hardly pay with 350 tokens" in " ".join(one.notices) for one in (few, many)]
    assert told == [peak is not None, False]


def test_what_fp8_keeps_less_counts_where_an_engine_is_chosen() -> None:
    asked: dict[str, Any] = {"micro_batch_size": 1, "sequence_length": 4096, "gpus_per_node": 2, "model": "llama2-7b"}
    local = variant("local", gpu={"vendor": "nvidia", "model": H100.gpu_model, "arch": "sm_90", "memory_gib": 79.2, "per_node": 8,
                                  "capabilities": {"bf16": True, "flash_attention_2": True, "int8": True, "nf4": True}})  # fmt: skip
    found = {method: planned(local, method, **asked) for method in ("z3", "z3+fp8")}
    assert {method: one.plan.engine.name for method, one in found.items()} == {"z3": "fsdp2", "z3+fp8": "flat"}
    assert "GiB with states and batch are more than 94% of the GPU's 79.2 GiB" in found["z3"].origins["engine"]


@pytest.mark.parametrize(
    ("asked", "why", "way"),
    [
        ({"tensor_parallel": 2, "gpus_per_node": 2}, "fsdp2 was not tried with fp8 in layers that ranks share", "without --tensor-parallel fsdp2, flat can."),
        ({"model": "flan-t5-large"}, "flat knows nothing of the layers of t5, which are to multiply in fp8",
         "Without fp8 in the method deepspeed, fsdp2, flat can."),
    ],
)  # fmt: skip
def test_where_no_engine_can_it_is_said_why_none_of_them_and_what_can(
    asked: dict[str, Any], why: str, way: str
) -> None:
    with pytest.raises(PlanError, match=r"^no engine can do this: deepspeed multiplies in no fp8") as caught:
        planned("runpod", "z3+fp8", **asked)
    assert why in str(caught.value) and str(caught.value).endswith(way)


def test_an_unknown_gpu_has_no_peak_rather_than_a_guess() -> None:
    plan = planned("local", "z3", hardware=Hardware("NVIDIA Something 9000", "sm_200", 10.0, 1, "nvidia", 4)).plan
    assert plan.gpu.peak_flops is None and plan.gpu.model == "NVIDIA Something 9000" and plan.model.precision == "bf16"


# --- batch shape ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "asked", "world", "batch"),
    [
        ("taiwania2", {}, 8, 8),
        ("taiwania2", {"nodes": 3, "micro_batch_size": 2, "gradient_accumulation_steps": 4}, 24, 192),
        ("delta", {"gpus_per_node": 2, "micro_batch_size": 5}, 2, 10),
        ("local", {"gpus_per_node": 4}, 4, 4),
        ("local", {"set": ("tasks_per_node=2",), "gpus_per_node": 2}, 2, 2),
    ],
)
def test_batch_numbers_are_computed(cluster: str, asked: dict[str, Any], world: int, batch: int) -> None:
    plan = planned(cluster, "z3", **asked).plan
    assert (plan.parallel.world_size, plan.batch.global_batch_size) == (world, batch)
    assert plan.engine.deepspeed["train_batch_size"] == batch
    assert plan.engine.deepspeed["train_micro_batch_size_per_gpu"] == plan.batch.micro_batch_size
    assert plan.engine.deepspeed["gradient_accumulation_steps"] == plan.batch.gradient_accumulation_steps


@pytest.mark.parametrize(
    "name", ["nodes", "micro_batch_size", "gradient_accumulation_steps", "sequence_length", "steps"]
)
@pytest.mark.parametrize("value", [0, -3])
def test_counts_are_at_least_one_however_they_are_given(name: str, value: int) -> None:
    given: dict[str, Any] = {name: value}
    refused(RequestError, f"{name} is {value}, it must be at least 1.", "local", **given)
    if name != "nodes":
        refused(RequestError, f"{name} is {value}, it must be at least 1.", "local", set=(f"{name}={value}",))


def test_the_rest_of_the_shape_is_checked_too() -> None:
    refused(RequestError, "tasks_per_node is 0, it must be at least 1", "local", set=("tasks_per_node=0",))
    refused(RequestError, "seed is -1, it must be between 0 and 4294967295", "local", seed=-1)
    refused(
        RequestError,
        "warmup_steps is 5 of 7 steps: at least 3 steps must be measured",
        "local",
        steps=7,
        warmup_steps=5,
    )
    refused(RequestError, "warmup_steps is -1, it must be at least 0", "local", warmup_steps=-1)
    refused(PlanError, "tasks_per_node is 9 with 8 GPUs per node: each rank needs a GPU of its own", "taiwania2", set=("tasks_per_node=9",))  # fmt: skip
    refused(
        PlanError, "sequence_length 4097: model llama2-7b takes 4096 tokens at most", "taiwania2", sequence_length=4097
    )


def test_few_steps_leave_something_to_measure() -> None:
    refused(RequestError, "warmup_steps is 0 of 2 steps: at least 3 steps must be measured", "local", steps=2)
    assert planned("local", "z3", steps=3).plan.workload.warmup_steps == 0
    assert planned("local", "z3", steps=6).plan.workload.warmup_steps == 3
    assert planned("local", "z3", steps=100).plan.workload.warmup_steps == 5


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (3, "of 3 steps no warm-up step is left out of the measurement, 5 are usual: the first steps are slow and count."),
        (4, "of 4 steps 1 warm-up step is left out"),
        (7, "of 7 steps 4 warm-up steps are left out of the measurement, 5 are usual: the first steps are slow and count. "
            "--steps 8 or more leaves 5 out"),
    ],
)  # fmt: skip
def test_few_steps_say_that_the_slow_first_ones_count(steps: int, said: str) -> None:
    for asked in ({"steps": steps}, {"set": (f"steps={steps}",)}):
        found = planned("local", "z3", **asked)
        [notice] = [one for one in found.notices if "warm-up" in one]
        assert notice.startswith(said.replace("--steps 8", "--set steps=8") if "set" in asked else said)
        assert found.origins["warmup_steps"] == f"computed: of {steps} steps at least 3 are measured, 5 is the default"


@pytest.mark.parametrize(
    "asked", [{"steps": 8}, {"steps": 3, "warmup_steps": 0}, {"steps": 6, "set": ("warmup_steps=1",)}]
)
def test_a_warm_up_that_is_whole_or_chosen_is_no_news(asked: dict[str, Any]) -> None:
    found = planned("local", "z3", **asked)
    assert not any("warm-up" in one for one in found.notices)
    assert not found.origins["warmup_steps"].startswith("computed")


# --- accounts, times, partitions, nodes, launchers ------------------------------------------------------------------


def test_a_missing_or_wrong_account_is_refused() -> None:
    refused(
        PlanError,
        "cluster taiwania2 needs an account. Give --account NAME (in Python account=) or set SBATCH_ACCOUNT. `wallet` lists yours. To look",
        "taiwania2",
        account=None,
    )
    refused(PlanError, "account 'lab1' does not fit cluster taiwania2, whose accounts match ^(ACD|MST|GOV|ENT)[0-9]+$. `wallet`", "taiwania2", account="lab1")  # fmt: skip
    refused(PlanError, "account 'bbka-delta-cpu' does not fit cluster delta", "delta", account="bbka-delta-cpu")
    refused(RequestError, "account is empty (request). Give --account NAME, or leave it out.", "taiwania2", account="")
    refused(RequestError, "account 'ACD1\\n#SBATCH -w x' (request) holds a line break or another control character", "taiwania2", account="ACD1\n#SBATCH -w x")  # fmt: skip


def test_the_account_comes_from_flag_environment_or_profile() -> None:
    cluster, method = load_cluster("taiwania2"), load_method("z3")

    def account(given: str | None, environment: str | None, profile: Cluster = cluster) -> tuple[Any, str]:
        experiment = Experiment(cluster="taiwania2", method="z3", account=given)
        found = plan(
            experiment, profile, method, Site(scheduler="slurm", account=environment), {"account": "--account"}
        )
        return found.plan.job.account, found.origins["account"]

    mine = variant("taiwania2", account={"default": "ACD3"})
    assert account("ACD1", "ACD2", mine) == ("ACD1", "--account")
    assert account(None, "ACD2", mine) == ("ACD2", "environment: SBATCH_ACCOUNT")
    assert account(None, None, mine) == ("ACD3", "cluster taiwania2: account.default")


def test_a_time_over_the_limit_is_refused_and_the_right_partition_named() -> None:
    refused(
        PlanError,
        "time 01:00:00: partition gtest of cluster taiwania2 allows 00:30:00. Ask for less with --time, "
        "or take a partition that allows it: gp1d, gp2d, gp4d, express.",
        "taiwania2",
        partition="gtest",
        time="01:00:00",
    )
    refused(
        PlanError,
        "Ask for less with --time, since no partition here allows it.",
        "taiwania2",
        time="5-00:00:00",
    )
    refused(RequestError, "time 'tomorrow' is not a time.", "taiwania2", time="tomorrow")
    refused(RequestError, "time '0' is no time at all.", "taiwania2", time="0")
    assert planned("taiwania2", "z3", partition="gtest", time="30").plan.job.time_s == 1800
    assert planned("taiwania2", "z3", partition="gp4d", time="4-00:00:00").plan.job.time_s == 345600


def test_a_default_time_gives_way_to_the_partitions_limit() -> None:
    cluster = variant("taiwania2", defaults={"time": "10:00:00"})
    found = planned(cluster, "z3", partition="gtest")
    assert found.plan.job.time_s == 1800 and found.origins["time_s"] == "cluster taiwania2: limit of the partition"
    assert (
        "time is 00:30:00, the limit of the partition, in place of 10:00:00 (cluster taiwania2: defaults)"
        in found.notices
    )
    assert planned(cluster, "z3").plan.job.time_s == 36000


def test_partitions_nodes_and_gpus_are_held_to_their_limits() -> None:
    refused(
        PlanError, "there is no partition 'gp3d' in cluster taiwania2: did you mean 'gp", "taiwania2", partition="gp3d"
    )
    refused(RequestError, "partition is empty (request). Give --partition NAME", "mi210", partition="")
    refused(PlanError, "9 GPUs per node: partition gp2d of cluster taiwania2 has 8 x V100-SXM2-32GB per node. Choose --gpus-per-node 1..8.", "taiwania2", gpus_per_node=9)  # fmt: skip
    refused(PlanError, "0 GPUs per node: every job on partition gp2d of cluster taiwania2 asks for a GPU. Choose --gpus-per-node 1..8.", "taiwania2", gpus_per_node=0)  # fmt: skip
    refused(PlanError, "3 GPUs per node: cluster rtx5090 has 1 x RTX 5090 per node. Choose --gpus-per-node 0 or 1.", "rtx5090", gpus_per_node=3)  # fmt: skip
    refused(PlanError, "6 x 8 = 48 GPUs: partition gp2d of cluster taiwania2 allows 40 per user", "taiwania2", nodes=6)
    refused(
        PlanError,
        "2 nodes: partition gpuH200x8 of cluster delta allows 1 per job",
        "delta",
        partition="gpuH200x8",
        nodes=2,
    )
    refused(
        PlanError, "2 nodes: cluster local runs on this machine, without a scheduler. Use --nodes 1.", "local", nodes=2
    )
    refused(PlanError, "1 GPU per node: cluster local has no GPU per node. Leave --gpus-per-node out.", "local", hardware=CPU, gpus_per_node=1)  # fmt: skip
    assert planned("taiwania2", "z3", partition="express", nodes=32).plan.parallel.world_size == 256
    assert planned("delta", "z3", partition="gpuA100x8").plan.parallel.gpus_per_node == 8
    assert planned("mi210", "z3", partition="whatever").plan.job.partition == "whatever"


def test_launchers_follow_nodes_ranks_and_the_site() -> None:
    assert planned("taiwania2", "z3").plan.job.launcher == "mpirun"
    assert planned("taiwania2", "z3", nodes=2).plan.job.launcher == "torchrun"
    assert planned("delta", "z3", gpus_per_node=1).plan.job.launcher == "srun"
    assert planned("delta", "z3", set=("launcher=torchrun",)).plan.job.launcher == "torchrun"
    one = planned("local", "z3", gpus_per_node=1)
    assert (one.plan.job.launcher, one.origins["launcher"]) == ("python", "computed: one rank needs no launcher")
    refused(
        PlanError,
        "there is no launcher 'mpirun' in cluster delta: did you mean 'srun'? Valid: srun, torchrun.",
        "delta",
        set=("launcher=mpirun",),
    )
    refused(PlanError, "launcher python starts one rank, the plan has 2. Launchers for several: torchrun, mpirun.", "local", gpus_per_node=2, set=("launcher=python",))  # fmt: skip
    refused(PlanError, "launcher srun needs Slurm, cluster mi210 runs on this machine", "mi210", scheduler="local", set=("launcher=srun",))  # fmt: skip


def test_what_has_no_meaning_without_a_scheduler_is_said() -> None:
    found = planned("mi210", "z3", scheduler="local", partition="p", account="a", sbatch=("qos=x", "nice"))
    assert (found.plan.job.partition, found.plan.job.account, found.plan.job.sbatch) == (None, None, {})
    assert found.notices == (
        "partition p has no meaning without a scheduler and is left out",
        "--sbatch qos, nice has no meaning without a scheduler and is left out",
        "account a has no meaning without a scheduler and is left out",
    )


@pytest.mark.parametrize(
    ("style", "node", "mem"),
    [
        ("omit", {}, None),
        ("mem", {}, f"{int(2 * 90e9 / 2**20)}M"),
        ("mem-per-gpu", {}, f"{int(90e9 / 2**20)}M"),
        ("mem-per-cpu", {}, f"{int(22.5e9 / 2**20)}M"),
    ],
)
def test_memory_is_asked_for_in_the_sites_style(style: str, node: dict[str, Any], mem: str | None) -> None:
    cluster = variant("taiwania2", request={"memory": style}, node=node)
    assert planned(cluster, "z3", gpus_per_node=2).plan.job.mem == mem


def test_deltas_memory_stays_under_the_share_that_is_charged() -> None:
    plan = planned("delta", "z3", gpus_per_node=1).plan
    assert plan.job.mem is not None and 62e9 < int(plan.job.mem.removesuffix("M")) * 2**20 <= 62.5e9


# --- --sbatch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "error", "said"),
    [
        ("output=/tmp/x", RequestError, "--sbatch output: hpc-llm sets --output itself, because tracking relies on it."),
        ("error=x", RequestError, "--sbatch error: hpc-llm sets"),
        ("overcommit", RequestError, "--sbatch overcommit: Slurm then counts the CPUs of the job once a node"),
        ("O", RequestError, "--sbatch overcommit: Slurm then counts"),
        ("open-mode=truncate", RequestError, "--sbatch open-mode: hpc-llm sets"),
        ("array=0-9", RequestError, "--sbatch array: hpc-llm sets"),
        ("export=ALL", RequestError, "--sbatch export: hpc-llm sets"),
        ("parsable", RequestError, "--sbatch parsable: hpc-llm sets"),
        ("test-only", RequestError, "--sbatch test-only"),
        ("wait", RequestError, "--sbatch wait"),
        ("clusters=x", RequestError, "--sbatch clusters"),
        ("signal=B:USR1@90", RequestError, "--sbatch signal: nothing in the job acts on a signal before the end. Leave it out, and ask for enough time with --time; with --save-every N a run saves when it comes."),
        ("signal=B:HUP@90", RequestError, "--sbatch signal=B:HUP@90: a run saves on USR1 or TERM so many seconds before its end, as in B:USR1@300."),
        ("signal=B:USR1", RequestError, "--sbatch signal=B:USR1: a run saves on USR1 or TERM"),
        ("sig=TERM@9", RequestError, "--sbatch sig: sbatch reads it as the beginning of --signal."),
        ("nodes=4", RequestError, "--sbatch nodes: the plan has to know it. Use --nodes."),
        ("time=99:00:00", RequestError, "--sbatch time: the plan has to know it. Use --time."),
        ("partition=gp4d", RequestError, "Use --partition."),
        ("account=x", RequestError, "Use --account."),
        ("job-name=x", RequestError, "Use --name."),
        ("ntasks-per-node=2", RequestError, "Use --gpus-per-node, or --set tasks_per_node=N"),
        ("gres=gpu:1", RequestError, "--sbatch gres: the plan has to know it. Use --gpus-per-node."),
        ("gpus-per-node=1", RequestError, "Use --gpus-per-node."),
        ("part=gp4d", RequestError, "--sbatch part: sbatch reads it as the beginning of --partition. Write options in full."),
        ("out=/tmp/x", RequestError, "as the beginning of --output"),
        ("exp=ALL", RequestError, "as the beginning of --export"),
        ("N=4", RequestError, "--sbatch nodes: the plan has to know it. Use --nodes."),
        ("-N 4", RequestError, "--sbatch nodes: the plan has to know it."),
        ("-N4", RequestError, "--sbatch nodes: the plan has to know it."),
        ("--nodes=4", RequestError, "--sbatch nodes: the plan has to know it."),
        ("nod=4", RequestError, "--sbatch nod: sbatch reads it as the beginning of --nodefile or --nodelist or --nodes."),
        ("-t 99:0", RequestError, "--sbatch time: the plan has to know it. Use --time."),
        ("time-min=1", RequestError, "--sbatch time-min: the plan has to know it."),
        ("J=x", RequestError, "--sbatch job-name: the plan has to know it. Use --name."),
        ("-o x", RequestError, "--sbatch output: hpc-llm sets"),
        ("-M x", RequestError, "--sbatch clusters: hpc-llm sets"),
        ("export-file=x", RequestError, "--sbatch export-file: hpc-llm sets"),
        ("gpus=1", RequestError, "--sbatch gpus: the plan has to know it. Use --gpus-per-node."),
        ("G=1", RequestError, "--sbatch gpus: the plan has to know it."),
        ("gpus-per-socket=1", RequestError, "Use --gpus-per-node."),
        ("gres=lustre:1,gpu:v100:1", RequestError, "--sbatch gres: the plan has to know it."),
        ("tres-per-node=gres/gpu=8", RequestError, "--sbatch tres-per-node: the plan has to know it."),
        ("tres-per-task=gpu:1", RequestError, "--sbatch tres-per-task: the plan has to know it."),
        ("ntasks=1", RequestError, "Use --gpus-per-node, or --set tasks_per_node=N"),
        ("ntasks-per-gpu=1", RequestError, "Use --gpus-per-node."),
        ("cpus-per-gpu=1", RequestError, "Use --sbatch cpus-per-task=N."),
        ("q high", RequestError, "--sbatch 'q high': not a long sbatch option. Write it as in sbatch's manual, e.g. qos=high."),
        ("q=high", RequestError, "--sbatch q: write options in full, qos=VALUE."),
        ("-H", RequestError, "--sbatch -H: write options in full, hold."),
        ("qo=high", RequestError, "--sbatch qo: sbatch reads it as the beginning of --qos. Write options in full."),
        ("QOS=high", RequestError, "--sbatch 'QOS': not a long sbatch option."),
        ("mem_per_cpu=3G", RequestError, "--sbatch 'mem_per_cpu': not a long sbatch option."),
        ("qos", RequestError, "--sbatch qos: sbatch needs a value there. Write qos=VALUE."),
        ("qos= ", RequestError, "--sbatch qos: sbatch needs a value there."),
        ("requeue=yes", RequestError, "--sbatch requeue=yes: sbatch takes no value there. Write requeue alone."),
        ("mem=5.5G", RequestError, "--sbatch mem=5.5G: not an amount."),
        ("mem=2T", PlanError, "--sbatch mem=2T asks for 2048G on a node: partition gp2d of cluster taiwania2 has 670G there. Ask for at most mem=686645M."),
        ("mem-per-gpu=100G", PlanError, "--sbatch mem-per-gpu=100G asks for 800G on a node"),
        ("mem-per-cpu=30G", PlanError, "--sbatch mem-per-cpu=30G asks for 960G on a node"),
        ("q\nos=x", RequestError, "--sbatch 'q\\nos'"),
        ("comment=a\nb", RequestError, "--sbatch comment 'a\\nb' is empty or holds a control character"),
        ("=x", RequestError, "--sbatch '=x': write it as KEY=VALUE."),
        ("", RequestError, "--sbatch '': write it as KEY=VALUE."),
        ("cpus-per-task=many", RequestError, "--sbatch cpus-per-task=many: a whole number is needed."),
        ("cpus-per-task=5", PlanError, "--sbatch cpus-per-task=5 asks for 40 cores: cluster taiwania2 has 32 cores per node. Ask for 4 at most."),
        ("mail-type=WHENEVER", RequestError, "--sbatch mail-type=WHENEVER: sbatch does not know that. Valid: NONE, BEGIN, END, FAIL"),
        ("exclusive=true", RequestError, "--sbatch exclusive=true: sbatch does not know that. Valid: exclusive alone, exclusive=user, exclusive=mcs, exclusive=topo."),
        ("no-kill=yes", RequestError, "Valid: no-kill alone, no-kill=off."),
        ("propagate=stack", RequestError, "Valid: propagate alone, ALL, NONE, or some of AS, CORE"),
        ("tmp=64GiB", RequestError, "--sbatch tmp=64GiB: sbatch does not know that. Valid: a whole number, of MB or with one of K, M, G and T"),
        ("begin=soon", RequestError, "--sbatch begin=soon: sbatch does not know that. Valid: now+30minutes, now+2hours, now+1day, tomorrow, 16:00"),
    ],
)  # fmt: skip
def test_sbatch_options_that_would_overrule_the_plan_are_refused(
    pair: str, error: type[HpcLlmError], said: str
) -> None:
    refused(error, said, "taiwania2", sbatch=(pair,))


def test_a_signal_is_refused_without_a_scheduler_too() -> None:
    refused(RequestError, "--sbatch signal: nothing", "mi210", scheduler="local", sbatch=("signal=USR1@60",))


@pytest.mark.parametrize("value", ["B:USR1@300", "USR1@60", "SIGTERM@90", "RB:SIGUSR1@1"])
def test_a_run_that_keeps_checkpoints_may_be_told_before_its_end(value: str) -> None:
    one = planned("taiwania2", "z2", sbatch=(f"signal={value}",), save_every=10)
    assert one.plan.job.sbatch == {"signal": value}


@pytest.mark.parametrize(("changes", "said"), [
    ({"save_every": 0}, "save_every is 0, it must be at least 1."),
    ({"save_every": 5, "set": ("keep=0",)}, "keep is 0, it must be at least 1."),
    ({"set": ("save_every=often",)}, "save_every is 'often': a whole number is needed."),
    ({"set": ("save_every=true",)}, "save_every is True: a whole number is needed."),
    ({"set": ("resume=/x",)}, "--set resume: resume cannot be set: use --resume."),
])  # fmt: skip
def test_what_is_kept_is_a_number_of_steps(changes: dict[str, Any], said: str) -> None:
    refused(RequestError, said, "taiwania2", **changes)


def test_sbatch_options_that_the_site_forbids_are_refused() -> None:
    cluster = variant("mi210", request={"forbid": ["mem-per-cpu", "exclusive"]})
    refused(
        PlanError,
        "--sbatch exclusive: cluster mi210 refuses --exclusive. Leave it out.",
        cluster,
        sbatch=("exclusive",),
    )
    refused(RequestError, "as the beginning of --exclusive", cluster, sbatch=("exclus",))
    refused(PlanError, "cluster mi210 refuses --mem-per-cpu", cluster, sbatch=("--mem-per-cpu=1G",))
    assert planned(cluster, "z3", sbatch=("mem=10G",)).plan.job.sbatch == {"mem": "10G"}


def test_the_ratio_of_cores_to_gpus_is_enforced_where_the_site_does() -> None:
    refused(PlanError, "asks for 8 cores: cluster taiwania2 has 4 cores for 1 GPUs", "taiwania2", gpus_per_node=1, sbatch=("cpus-per-task=8",))  # fmt: skip
    found = planned("taiwania2", "z3", sbatch=("cpus-per-task=2",))
    instead = "request, instead of cpus-per-task=4 (cluster taiwania2: node.cpus_per_gpu)"
    assert (found.plan.job.cpus_per_task, found.origins["cpus_per_task"]) == (2, instead)
    # torchrun is one task for Slurm, so its cores are shared by the ranks that it starts.
    assert planned("taiwania2", "z3", nodes=2, sbatch=("cpus-per-task=32",)).plan.job.cpus_per_task == 4


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (("qos=a", "qos=b"), "--sbatch qos is given twice: qos=a and qos=b. Keep one of them."),
        (("qos=a", "--qos=a"), "--sbatch qos is given twice: qos=a and qos=a."),
        (("requeue", "no-requeue"), "--sbatch requeue and no-requeue exclude each other."),
        (("mem=1G", "mem-per-gpu=1G"), "--sbatch mem and mem-per-gpu exclude each other."),
        (("exclusive", "oversubscribe"), "--sbatch exclusive and oversubscribe exclude each other."),
    ],
)
def test_of_two_sbatch_options_none_wins_silently(pairs: tuple[str, ...], said: str) -> None:
    refused(RequestError, said, "taiwania2", sbatch=pairs)


def test_the_limits_hold_where_slurm_chooses_the_partition() -> None:
    parts = [p.model_dump() | {"default": False} for p in load_cluster("taiwania2").partitions]
    cluster = variant("taiwania2", partitions=parts)
    assert planned(cluster, "z3", time="4-00:00:00", nodes=32).plan.job.partition is None
    refused(PlanError, "time 4-00:01:00: cluster taiwania2 allows 4-00:00:00.", cluster, time="4-00:01:00")
    refused(PlanError, "33 x 8 = 264 GPUs: cluster taiwania2 allows 256 per user.", cluster, nodes=33)


def test_more_nodes_than_any_cluster_has_are_refused() -> None:
    for cluster in ("delta", "mi210"):
        refused(PlanError, "100000 nodes: no cluster has so many. Ask for fewer with --nodes.", cluster, nodes=100_000)
    assert planned("delta", "z3", nodes=2000).plan.parallel.nodes == 2000


def test_a_partition_without_a_limit_takes_what_slurm_can_count() -> None:
    parts = [{"name": "long", "max_time": "UNLIMITED", "default": True}, {"name": "short", "max_time": "01:00:00"}]
    cluster = variant("taiwania2", partitions=parts)
    assert planned(cluster, "z3", time="365-00:00:00").plan.job.time_s == 365 * 86400
    refused(RequestError, "time '24856-00:00:00': Slurm counts to 24855 days. Ask for less with --time.", cluster, time="24856-00:00:00")  # fmt: skip
    refused(PlanError, "allows 01:00:00. Ask for less with --time, or take a partition that allows it: long.", cluster, partition="short", time="02:00:00")  # fmt: skip
    for word in ("UNLIMITED", "infinite", " Unlimited "):
        refused(RequestError, "is not a time that can be planned with. Write how long it may take", cluster, time=word)


def test_other_sbatch_options_pass() -> None:
    plan = planned(
        "delta", "z3", sbatch=("qos=high", "exclusive", "constraint=projects", "comment=a b=c", "gres=lustre:1")
    ).plan
    assert plan.job.sbatch == {
        "qos": "high",
        "exclusive": "",
        "constraint": "projects",
        "comment": "a b=c",
        "gres": "lustre:1",
    }


# --- names ----------------------------------------------------------------------------------------------------------


def test_the_job_name_is_one_line() -> None:
    assert planned("local", "z3+o", model="tiny").plan.job.name == "tiny-z3-o"
    assert planned("local", "z3", name="my job; rm -rf ~").plan.job.name == "my job; rm -rf ~"
    for name in ("", "a\nb", "a\x1fb", "a\x7f"):
        said = (
            "holds a line break or another control character"
            if name
            else "name is empty. Give --name NAME, or leave it out."
        )
        refused(RequestError, said, "local", name=name)
    refused(RequestError, "there is no task 'pretrian': did you mean 'pretrain'?", "local", task="pretrian")


def test_a_plan_with_origins_is_what_comes_out() -> None:
    assert isinstance(planned("local", "z3"), PlanWithOrigins)


@pytest.mark.parametrize(("rate", "is_told"), [("1e5", True), ("0.1", True), ("1e-2", False), ("1e-5", False)])
def test_a_learning_rate_beyond_all_that_is_usual_is_told(rate: str, is_told: bool) -> None:
    made = planned("local", "ddp", set=(f"optimizer.lr={rate}",))
    assert any("the loss runs away" in one for one in made.notices) == is_told


@pytest.mark.parametrize(
    ("cluster", "hardware", "asked", "expected"),
    [
        ("local", V100, {}, "expandable_segments:True"),
        ("local", V100, {"sequence_length": 2048}, "expandable_segments:True"),
        ("local", V100, {"micro_batch_size": 2, "sequence_length": 2048}, None),  # longer steps
        ("local", V100, {"task": "tune"}, None),  # it looks for large batches
        ("local", H100, {"task": "infer"}, None),
        ("local", V100, {"set": ("env.PYTORCH_CUDA_ALLOC_CONF=",)}, ""),
        ("local", CPU, {}, None),
        ("local", Hardware("AMD Instinct MI210", "gfx90a", 64.0, 4, "amd", 64), {}, None),
        ("delta", None, {}, None),  # its profile says so
    ],
)
def test_segments_grow_on_a_gpu_of_nvidia_that_was_found(
    cluster: str, hardware: Hardware | None, asked: dict[str, Any], expected: str | None
) -> None:
    method = "bf16" if asked.get("task") == "infer" else "z3"
    assert planned(cluster, method, hardware=hardware, **asked).plan.job.env.get("PYTORCH_CUDA_ALLOC_CONF") == expected
