"""What an estimate cannot say it explains: times without a peak, a machine that stands in for another, limits that are too short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rendering import cluster_of, planned

import hpc_llm
from hpc_llm.api import estimating
from hpc_llm.cli import run
from hpc_llm.cli.estimate_text import one_screen
from hpc_llm.estimating.calibrate import Measured, usable
from hpc_llm.estimating.largest import _last
from hpc_llm.estimating.step_time import step_time, unknown_because
from hpc_llm.records import metrics
from hpc_llm.site.hardware import Hardware

PROFILE = """schema: 1
name: {name}
title: a site of one's own
status: {{state: verify, checked: "2026-11"}}
sources: [their pages]
scheduler: slurm
gpu: {{vendor: {vendor}, model: "{gpu}", arch: {arch}, memory_gib: {memory}, per_node: 4,
      capabilities: {{bf16: {new}, tf32: {new}, flash_attention_2: {new}, int8: {new}, nf4: true}}{more}}}
node: {{cpus: 128, mem_gb: 512, cpus_per_gpu: 32}}
partitions: [{{name: gpu, max_time: "36:00:00", max_nodes: 6, default: true}}]
request: {{gpu_style: gres}}
launch: {{single_node: srun, multi_node: srun, allowed: [srun]}}
prelude: {{module_system: none, python: {{kind: current}}}}
"""


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints, in one line."""

    def call(*words: str) -> str:
        assert run(["estimate", *words]) == 0
        return " ".join(capsys.readouterr().out.split())

    return call


@pytest.mark.parametrize(("limit", "own", "found"), [(10**9, 0, 65536), (10**9, 131072, 131072), (41000, 40000, 41000)])
def test_where_looking_ends_is_no_limit(limit: int, own: int, found: int) -> None:
    assert _last(lambda size: size <= limit, own) == found
    [one] = hpc_llm.estimate(cluster="delta", method="z3", model="tiny")
    told = [line for line in one_screen(replace(one, largest_micro_batch=found)) if "largest micro batch" in line]
    assert told == [f"largest micro batch that fits: {found}{' or more' if limit > found else ''}"]


def profile(folder: Path, name: str, gpu: str, more: str = "") -> None:
    memory = {"Tesla V100-SXM2-32GB": 32, "H100 80GB HBM3": 80, "MI210": 64}.get(gpu, 40)
    (folder / "clusters").mkdir(exist_ok=True)
    arch = {"Tesla V100-SXM2-32GB": "sm_70", "H100 80GB HBM3": "sm_90", "MI210": "gfx90a"}.get(gpu, "sm_80")
    facts = {"vendor": "amd" if arch.startswith("gfx") else "nvidia", "arch": arch, "new": str(arch != "sm_70").lower()}
    text = PROFILE.format(name=name, gpu=gpu, memory=memory, more=more, **facts)
    (folder / "clusters" / f"{name}.yaml").write_text(text)


@pytest.mark.parametrize(
    "gpu", ["A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "a100", "Tesla V100-SXM2-32GB", "H100 80GB HBM3", "MI210"]
)
def test_a_gpu_that_the_table_knows_needs_no_peak_in_the_profile(own_folder: Path, gpu: str) -> None:
    profile(own_folder, "theirs", gpu)
    for precision in ("bf16", "fp16", "fp32")["V100" in gpu :]:
        [one] = hpc_llm.plan(cluster="theirs", method="ddp", model="tiny", set={"precision": precision})
        assert one.plan.gpu.peak_flops == metrics.peak_flops(gpu, precision)
    [found] = hpc_llm.estimate(cluster="theirs", method="z3", set={"precision": "fp16"})
    assert found.time is not None and found.untimed is None
    profile(own_folder, "theirs", gpu, ", peak_tflops: {fp16: 7.0}")
    assert hpc_llm.plan(cluster="theirs", method="ddp", set={"precision": "fp16"})[0].plan.gpu.peak_flops == 7e12


def test_where_no_peak_is_known_the_field_is_named_that_gives_it(own_folder: Path, said: Callable[..., str]) -> None:
    profile(own_folder, "theirs", "Unheard-of 1")
    told = "no peak of Unheard-of 1 is known at bf16: gpu.peak_tflops in the profile of cluster theirs gives it, in TFLOP/s ({bf16: NUMBER})"
    assert f"note: no time is given: {told}" in said("--cluster=theirs", "--method=z3")
    table = said("--cluster=theirs,delta", "--method=z3,qlora")
    assert f"no time of theirs z3, theirs qlora: {told}" in table and table.count("no time of") == 1
    profile(own_folder, "theirs", "Unheard-of 1", ", peak_tflops: {bf16: 100}")
    assert "tokens/s" in said("--cluster=theirs", "--method=z3")


def test_this_machine_stands_in_for_one_that_is_whatever_it_is(
    own_folder: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "the profile of cluster colab leaves GPU and memory to the machine that it runs on: this machine stands in for it, with"
    one = said("--cluster=colab", "--method=z3", "--model=tiny")
    assert f"note: {told}" in one
    assert told in said("--cluster=colab,delta", "--method=z3", "--model=tiny")
    for words in (("--cluster=local",), ("--cluster=delta",), ("--cluster=rtx5090",)):
        assert "stands in" not in said(*words, "--method=z3", "--model=tiny")
    t4 = Hardware("Tesla T4", "sm_75", 15.0, 1, "nvidia", 2)
    monkeypatch.setattr("hpc_llm.site.hardware.detect", lambda: t4)
    assert f"{told} 1 x Tesla T4 and " in said("--cluster=colab", "--method=z3", "--model=tiny")
    assert estimating.estimate(cluster="colab", method="z3", model="tiny")[0].stands_in


def test_no_time_is_advised_for_a_run_that_does_not_fit(said: Callable[..., str]) -> None:
    asked = ("--cluster=delta", "--method=ddp", "--model=llama2-7b", "--time=00:00:30")
    lost, fits = said(*asked), said(*asked[:1], "--method=z3", "--model=llama2-7b")
    assert "verdict: does not fit" in lost and "--time" not in lost and "to the first step" in lost
    assert "verdict: fits" in fits and "a time limit that leaves room: --time" in fits


def test_a_time_limit_that_is_too_short_is_told(said: Callable[..., str]) -> None:
    asked = ("--cluster=delta", "--method=z3", "--model=llama2-7b", "--steps=100")
    assert "and its time limit is 00:01:00: --time 00:10:00 leaves room" in said(*asked, "--time=00:01:00")
    assert "its time limit is" not in said(*asked, "--time=00:10:00")


def test_what_trains_nothing_is_not_timed_as_a_step_of_training() -> None:
    """A run that answers queries was shown beside the time of a training step, and would have been calibrated by."""
    trains, answers = (planned("delta", "ddp", task=task, model="llama3.2-1b").plan for task in ("pretrain", "infer"))
    assert unknown_because(trains) is None and step_time(trains, cluster_of("delta")) is not None
    assert (
        unknown_because(answers) == "task infer is not timed beforehand"
        and step_time(answers, cluster_of("delta")) is None
    )
    runs = [
        Measured(run=one.task, plan=one, gpu="NVIDIA H100 80GB HBM3", engine=one.engine.name, step_s=0.1, versions={})
        for one in (trains, answers)
    ]
    assert [[one.run for one in usable(runs)[0]], list(usable(runs)[1])] == [["pretrain"], ["infer"]]
