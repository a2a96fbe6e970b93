"""What cannot fit is refused before it is queued, and what may not is told."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import batch, planned

from hpc_llm.api.fit import as_asked, check_fit, gib, memory_there, with_memory
from hpc_llm.diagnosis.suffices import first_that_fits, seconds
from hpc_llm.errors import Notice, PlanError
from hpc_llm.estimating.parts import Fit, Need
from hpc_llm.planning.study import StudyRun
from hpc_llm.site.cluster import Cluster, load_cluster, parse_cluster
from hpc_llm.site.profiles import bundled

THIRTEEN: dict[str, Any] = {
    "partition": "gpuA100x8",
    "model": "llama2-13b",
    "micro_batch_size": 2,
    "sequence_length": 2048,
}
"""Full training on eight A100 of 40 GB."""


ONE_PROCESS: dict[str, Any] = {
    "launch": {"single_node": "python", "multi_node": "torchrun", "allowed": ["python", "torchrun"]}
}


def changed(**changes: Any) -> Cluster:
    """Delta with another node, or without partitions."""
    data = yaml.safe_load((bundled("clusters") / "delta.yaml").read_text())
    for part in data["partitions"]:
        part.pop("node", None)
        part.pop("gpu", None)
    return parse_cluster({**data, **changes}, Path("delta.yaml"))


def test_thirteen_billion_on_eight_cards_of_forty_gb_is_refused_with_what_fits() -> None:
    with pytest.raises(
        PlanError, match=r"needs at least \d+ GiB of a GPU .* has 40 GiB\. The first step that fits: .*--force"
    ):
        check_fit([batch("delta", "z3", **THIRTEEN)])


@pytest.mark.parametrize("less", [0.02, 0.2])
def test_what_is_a_little_too_large_is_told_with_digits_that_show_it(less: float) -> None:
    asked: dict[str, Any] = {"model": "llama3.2-1b", "gpus_per_node": 1, "set": ("engine=deepspeed",)}
    memory = memory_there(planned("delta", "z3", **asked).plan, load_cluster("delta"))
    assert memory is not None and memory.device is not None
    gpu = {
        **load_cluster("delta").gpu.model_dump(),
        "model": "A100 MIG",
        "memory_gib": memory.device.low / 2**30 - less,
    }
    with pytest.raises(PlanError) as caught:
        check_fit([batch(changed(gpu=gpu), "z3", **asked)])
    need, there = re.findall(r"at least ([\d.]+) GiB of a GPU .*?, which has ([\d.]+) GiB", str(caught.value))[0]
    assert float(need) > float(there)


def test_what_is_hardly_slower_comes_before_a_way_that_needs_the_host() -> None:
    asked: dict[str, Any] = {"model": "llama2-7b", "sequence_length": 4096}
    cluster = load_cluster("delta")
    step = first_that_fits(planned("delta", "z3", **asked, micro_batch_size=16).plan, cluster)
    assert step is not None and step.flags.startswith("--method z3+r --micro-batch-size 2 ")
    other = planned("delta", "z3+o", **asked, micro_batch_size=1, gradient_accumulation_steps=16).plan
    of_step, of_other = seconds(step.plan, cluster), seconds(other, cluster)
    assert of_step and of_other and of_other < of_step < 1.05 * of_other


def test_force_submits_what_does_not_fit_and_says_so() -> None:
    with pytest.warns(Notice, match="--force, although"):
        check_fit([batch("delta", "z3", **THIRTEEN)], force=True)


def test_seven_billion_with_deepspeeds_own_offload_is_refused_on_a_node_of_128_gib() -> None:
    node = {"cpus": 64, "mem_gb": 137.43, "cpus_per_gpu": 64, "mem_gb_per_gpu": 137.43}
    with pytest.raises(PlanError, match="of a node's memory, which has 128 GiB"):
        check_fit([batch(changed(node=node), "z2o-hpc2", model="llama2-7b", gpus_per_node=1)])


@pytest.mark.parametrize(
    ("mem_gb", "method", "asked", "step"),
    [
        (60.0, "z3o", {"gpus_per_node": 4, "model": "llama2-7b"}, "--method z3 "),
        (60.0, "z2o-hpc2", {"gpus_per_node": 4, "model": "llama2-7b"}, "--method z3"),
        (20.0, "z3", {"model": "tiny", "micro_batch_size": 65536, "hardware": None}, "--micro-batch-size"),
    ],
)
def test_what_a_node_cannot_hold_is_refused_with_the_first_step_that_fits(
    mem_gb: float, method: str, asked: dict[str, Any], step: str
) -> None:
    on_cpu = {"gpu": {"vendor": "none"}, "request": {"gpu_style": "none"}, "scheduler": "local"} | ONE_PROCESS
    on_cpu = on_cpu if "hardware" in asked else {}
    node = {"cpus": 64, "mem_gb": mem_gb, "cpus_per_gpu": 16, "mem_gb_per_gpu": mem_gb / 4}
    cluster = changed(node=node, **on_cpu)
    with pytest.raises(PlanError) as refused:
        check_fit([batch(cluster, method, **asked)])
    told = str(refused.value)
    assert "of a node's memory, which has" in told and f". The first step that fits: {step}" in told, told


def test_a_share_of_the_node_that_is_too_small_is_told_with_what_to_ask_for() -> None:
    with pytest.raises(PlanError, match=r"A node has 250 GB: ask for enough with --sbatch mem=1[34][0-9]G"):
        check_fit([batch("delta", "z2o-hpc2", model="llama2-7b", gpus_per_node=2)])
    check_fit([batch("delta", "z2o-hpc2", model="llama2-7b", gpus_per_node=2, sbatch=("mem=200G",))])


def test_what_is_too_close_is_told_and_submitted() -> None:
    with pytest.warns(Notice, match="too close to call"):
        check_fit([batch("taiwania2", "z2", model="llama2-7b")])


@pytest.mark.filterwarnings("error::hpc_llm.errors.Notice")
def test_what_fits_passes_without_a_word() -> None:
    check_fit([batch("delta", "z3", "q", model="llama2-7b")])
    check_fit([batch("taiwania2", "z3o", model="llama2-7b")])


def test_a_study_may_want_to_see_a_run_die() -> None:
    made = batch("delta", "ddp", model="llama2-7b")
    expected = replace(made.planned[0], study=StudyRun(study="s", name="n", expect="OOM_DEVICE"))
    check_fit([replace(made, planned=(expected,))])
    with pytest.raises(PlanError):
        check_fit([made])


def test_memory_is_asked_for_where_nothing_else_says_how_much() -> None:
    cluster = changed(gpu={"vendor": "none"}, request={"gpu_style": "none", "memory": "mem"})
    one = planned(cluster, "z3", model="llama-68m", hardware=None)
    assert one.plan.job.mem is None
    asked = with_memory(one, cluster)
    assert asked.plan.job.mem is not None
    assert int(asked.plan.job.mem.removesuffix("M")) >= 4096
    assert "estimated" in asked.origins["mem"]
    own = planned(cluster, "z3", model="llama-68m", hardware=None, sbatch=("mem=9G",))
    assert with_memory(own, cluster) is own
    said = planned("delta", "z3", model="llama2-7b")
    assert with_memory(said, load_cluster("delta")) is said


def test_what_may_be_more_than_a_node_has_does_not_fit_for_certain() -> None:
    """Nobody says what a job gets that asks for nothing; more than the whole node it is not."""

    def host(mem_gb: float) -> Need:
        cluster = changed(request={"gpu_style": "gres", "memory": "omit"}, node={"cpus": 64, "mem_gb": mem_gb})
        memory = memory_there(planned(cluster, "z3o", model="llama2-7b", gpus_per_node=2).plan, cluster)
        assert memory is not None
        return memory.host

    found = host(4000)
    assert found.verdict is Fit.UNKNOWN
    assert host((found.low + found.high) / 2e9).verdict is Fit.TOO_CLOSE
    assert host(found.low / 2e9).verdict is Fit.DOES_NOT_FIT


@pytest.mark.filterwarnings("error::hpc_llm.errors.Notice")
@pytest.mark.parametrize(
    ("mem_gb", "style", "verdict"), [(250, "mem", "FITS"), (None, "mem", "UNKNOWN"), (250, "omit", "UNKNOWN")]
)
def test_what_is_asked_for_by_estimate_is_not_all_that_there_is(mem_gb: int | None, style: str, verdict: str) -> None:
    """The plan before it asks, after it, and the submission have one answer."""
    node = {"cpus": 64, "mem_gb": mem_gb} if mem_gb else {"cpus": 64}
    cluster = changed(gpu={"vendor": "none"}, request={"gpu_style": "none", "memory": style}, node=node)
    one = planned(cluster, "z3", model="tinyllama-1.1b", hardware=None)
    asked = with_memory(one, cluster)
    assert (asked.plan.job.mem is not None) == (style == "mem")
    for plan in (one.plan, as_asked(asked)):
        memory = memory_there(plan, cluster)
        assert memory is not None and memory.host.verdict is Fit[verdict]
        assert memory.host.capacity == (250e9 if verdict == "FITS" else None)
    made = batch(cluster, "z3", model="tinyllama-1.1b", hardware=None)
    check_fit([replace(made, planned=(asked,))])


def test_an_amount_that_was_asked_for_counts_as_such() -> None:
    cluster = changed(
        gpu={"vendor": "none"}, request={"gpu_style": "none", "memory": "mem"}, node={"cpus": 64, "mem_gb": 250}
    )
    one = planned(cluster, "z3", model="tinyllama-1.1b", hardware=None, sbatch=("mem=20G",))
    memory = memory_there(as_asked(one), cluster)
    assert memory is not None and memory.host.capacity == 20 << 30


CASES = [
    ("delta", "z3", "llama2-7b", 10, 2048, 4), ("delta", "z2", "llama2-7b", 1, 350, 4), ("delta", "ddp", "llama2-7b", 1, 350, 4),
    ("delta", "ddp", "llama3.2-3b", 1, 350, 4), ("delta", "z3", "llama3.2-1b", 64, 2048, 4), ("delta", "lora", "llama2-7b", 16, 2048, 1),
    ("taiwania2", "z3", "llama2-7b", 16, 2048, 8), ("p4d", "z3", "llama2-13b", 8, 2048, 8), ("runpod", "z3", "llama2-7b", 64, 2048, 2),
    ("runpod", "ddp", "llama3.2-3b", 64, 2048, 1), ("runpod", "q", "llama2-7b", 64, 2048, 1), ("mi210", "z2", "llama2-7b", 8, 2048, 2),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "method", "model", "micro", "length", "gpus"), CASES)
def test_what_is_advised_fits_once_it_is_asked_for(
    cluster: str, method: str, model: str, micro: int, length: int, gpus: int
) -> None:
    """The flags alone, added to the request, make the plan that was judged."""
    asked: dict[str, Any] = {"micro_batch_size": micro, "sequence_length": length, "model": model}
    plan = planned(cluster, method, gpus_per_node=gpus, **asked).plan
    step = first_that_fits(plan, load_cluster(cluster))
    assert step is not None
    words = step.flags.replace("--set ", "--set=").split()
    settings = tuple(word.removeprefix("--set=") for word in words if word.startswith("--set="))
    pairs = [word for word in words if not word.startswith("--set=")]
    said = {name[2:].replace("-", "_"): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    new = said.pop("method", method)
    again = planned(
        cluster,
        new,
        gpus_per_node=gpus,
        set=settings,
        **{**asked, **{name: int(value) for name, value in said.items()}},
    ).plan
    assert again.engine == step.plan.engine
    memory = memory_there(again, load_cluster(cluster))
    assert memory is not None and memory.verdict in (Fit.FITS,), (step.flags, memory)


def test_the_least_costly_change_is_advised_with_its_price() -> None:
    cluster = load_cluster("delta")
    plan = planned(cluster, "z2", model="llama2-7b", gpus_per_node=4).plan
    step = first_that_fits(plan, cluster)
    assert step is not None and step.flags == "--method z3"  # nothing is recomputed in vain
    plan = planned(cluster, "z3", model="llama2-7b", gpus_per_node=4, micro_batch_size=16, sequence_length=2048).plan
    step = first_that_fits(plan, cluster)
    assert step is not None and step.plan.batch.global_batch_size == plan.batch.global_batch_size
    huge = planned(cluster, "ddp", model="llama2-70b").plan
    assert first_that_fits(huge, cluster) is None


def test_an_engine_that_was_asked_for_stays_in_what_is_advised() -> None:
    cluster = load_cluster("delta")
    plan = planned(
        cluster,
        "z3",
        model="llama2-7b",
        gpus_per_node=4,
        micro_batch_size=16,
        sequence_length=2048,
        set=("engine=fsdp2",),
    ).plan
    step = first_that_fits(plan, cluster)
    assert step is not None and step.plan.engine.name == "fsdp2"


def test_what_moves_to_a_host_of_unknown_memory_says_so_and_comes_last() -> None:
    cluster = load_cluster("rtx5090")
    step = first_that_fits(planned(cluster, "ddp", model="llama3.1-8b").plan, cluster)
    assert step is not None and step.flags == "--method z3+o" and "nobody says how much it has" in step.why
    known = cluster.model_copy(update={"node": cluster.node.model_copy(update={"mem_gb": 512.0})})
    step = first_that_fits(planned(known, "ddp", model="llama3.1-8b").plan, known)
    assert step is not None and "nobody says" not in step.why
    tight = planned(cluster, "ddp", model="llama3.2-1b", micro_batch_size=64, sequence_length=1024).plan
    step = first_that_fits(tight, cluster)
    assert step is not None and "+o" not in step.flags and "nobody says" not in step.why


def test_where_only_more_gpus_help_they_are_the_step_and_it_fits() -> None:
    asked = {**THIRTEEN, "micro_batch_size": 4, "partition": None}
    with pytest.raises(PlanError, match=r"The first step that fits: --nodes 2 .*the global batch is 32"):
        check_fit([batch("delta", "z3+r", **asked)])
    check_fit([batch("delta", "z3+r", **asked, nodes=2)])


@pytest.mark.parametrize(
    ("most", "method", "step", "asked"),
    [
        (128, "z3", "--nodes 10 (", {"nodes": 10}),
        (128, "z2", "--nodes 10 --method z3 (", {"nodes": 10}),
        (79, "z3", "--nodes 7 --method z3+r (", {"nodes": 7}),
        (8, "z3", None, {}),
    ],
)
def test_more_gpus_than_a_job_there_may_have_are_no_step(
    most: int, method: str, step: str | None, asked: dict[str, int]
) -> None:
    data = yaml.safe_load((bundled("clusters") / "taiwania2.yaml").read_text())
    for partition in data["partitions"]:
        partition |= {"max_gpus": most, "max_nodes": 64}
    cluster = parse_cluster(data, Path("taiwania2.yaml"))
    with pytest.raises(PlanError) as refused:
        check_fit([batch(cluster, method, model="llama2-70b")])
    told = str(refused.value)
    assert f"The first step that fits: {step}" in told if step else "first step" not in told, told
    assert (step is not None and most > 79) == ("; --nodes 7 --method z3+r takes 56 GPUs in place of 80)" in told), told
    if step:
        check_fit([batch(cluster, "z3+r" if "z3+r" in step else "z3", model="llama2-70b", **asked)])


def test_less_than_a_gib_is_told_in_mib() -> None:
    """Two sizes of which one is too small for the other do not read alike."""
    assert (gib(300 << 20), gib(320 << 20), gib(3 << 29)) == ("300 MiB", "320 MiB", "1.5 GiB")


def test_of_nodes_whose_memory_nobody_knows_one_notice_says_what_to_write_where() -> None:
    cluster = changed(gpu={"vendor": "none"}, request={"gpu_style": "none"}, node={"cpus": 64})
    with pytest.warns(Notice) as told:
        check_fit([batch(cluster, "z2", model="llama2-70b", hardware=None)])
    said = [str(one.message) for one in told if "node.mem_gb" in str(one.message)]
    assert len(said) == 1 and "cannot be judged: write node.mem_gb" in said[0] and "delta.yaml" in said[0]
    with warnings.catch_warnings(record=True) as others:
        check_fit([batch(cluster, "z2", model="tiny", hardware=None)])
    assert not any("node.mem_gb" in str(one.message) for one in others)
