"""States of flat units in the host's memory: stepped on the device or on the host as torch's AdamW steps them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import save
from tiny_plans import make_plan
from torch import nn
from worlds import Worlds

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import OptimizerSetup
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.engines.cores import physical
from hpc_llm.worker.engines.flat_units import Unit
from hpc_llm.worker.engines.host_memory import HostMemory, stretches
from hpc_llm.worker.engines.host_states import MEAN, SQUARE, HostStates
from hpc_llm.worker.engines.host_step import HostStep
from hpc_llm.worker.engines.split_numbers import joined, split
from hpc_llm.worker.engines.streamed_step import StreamedStep

pytestmark = pytest.mark.train

CPU = torch.device("cpu")
SETUP = OptimizerSetup(type="AdamW", lr=1e-2, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1)
SIZES = (1, 7, 1003, 65_537)
STEPS = 50


ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
SHAPE = {"precision": "fp32", "optimizer": ADAMW, "steps": 10, "gradient_accumulation_steps": 2, "micro_batch_size": 2}
ONE = {**SHAPE, "gradient_accumulation_steps": 1}
Z2O: dict[str, Any] = {"method": "z2o", "engine": "flat", "offloaded_step": "device"}
ON_HOST: dict[str, Any] = {**Z2O, "offloaded_step": "host"}
Z3O: dict[str, Any] = {"method": "z3o", "engine": "flat", "offloaded_step": "device"}
BF16: dict[str, Any] = {**Z2O, "reduce_precision": "bf16"}
PLANS: dict[str, dict[str, Any]] = {
    "plain": {"method": "ddp", "engine": "plain", **SHAPE},
    "plain-one": {"method": "ddp", "engine": "plain", **ONE},
    "flat-bf16": {"method": "z2", "engine": "flat", "reduce_precision": "bf16"},
    "device": {**Z2O, **SHAPE},
    "device-one": {**Z2O, **ONE},
    "host": {**ON_HOST, **SHAPE},
    "host-one": {**ON_HOST, **ONE, "layers_per_unit": 2},
    "device-bf16": BF16,
    "host-bf16": {**ON_HOST, "reduce_precision": "bf16"},
    "visiting": {**Z3O, **SHAPE, "eval_every": 7},
    "visiting-one": {**Z3O, **ONE, "recompute": True, "fused_loss": True},
    "visiting-host": {**Z3O, **SHAPE, "offloaded_step": "host", "layers_per_unit": 2},
    "visiting-bf16": {**Z3O, "reduce_precision": "bf16"},
    "moments-bf16": {**BF16, "moments_precision": "bf16"},
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


DEEP: dict[str, dict[str, Any]] = {
    "plain-deep": {"method": "ddp", "engine": "plain", **SHAPE},
    "deep": {**Z3O, **SHAPE, "eval_every": 4},
    "deep-recomputed": {**Z3O, **SHAPE, "recompute": True},
}
"""More units than rows on the device, one of which holds the embedding and the head, which are the same."""


def plans(world_size: int, model: Path) -> dict[str, Plan]:
    deep = {name: {**values, "steps": 8, "model": str(model)} for name, values in DEEP.items()}
    return {name: make_plan(world_size=world_size, **values) for name, values in {**PLANS, **deep}.items()}


@pytest.fixture(scope="module", params=[1, 2])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worlds: Worlds) -> Path:
    """The folder with a run of each plan."""
    folder = tmp_path_factory.mktemp(f"offload-{request.param}")
    model = save(tmp_path_factory.mktemp("model") / "qwen2", "qwen2", num_hidden_layers=7)
    wanted = {name: {"plan": plan.to_dict(), "mask": False} for name, plan in plans(request.param, model).items()}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    worlds.must_run("two_ranks", folder, request.param)
    return folder


def column(folder: Path, what: str) -> list[Any]:
    return [json.loads(line)[what] for line in RunPaths(folder).steps.read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return column(folder, "loss")


@pytest.mark.parametrize(
    "how", ["device", "device-one", "host", "host-one", "visiting", "visiting-one", "visiting-host"]
)
def test_losses_and_norms_are_those_of_plain_torch(trained: Path, how: str) -> None:
    expected = trained / ("plain-one" if how.endswith("one") else "plain")
    assert losses(trained / how) == pytest.approx(losses(expected), rel=1e-5)
    assert column(trained / how, "grad_norm") == pytest.approx(column(expected, "grad_norm"), rel=1e-4)


@pytest.mark.parametrize("how", ["deep", "deep-recomputed"])
def test_units_that_take_each_others_place_are_found_again(trained: Path, how: str) -> None:
    assert losses(trained / how) == pytest.approx(losses(trained / "plain-deep"), rel=1e-5)


@pytest.mark.parametrize("how", ["device-bf16", "host-bf16", "moments-bf16", "visiting-bf16"])
def test_in_bf16_it_learns_as_units_on_the_device_do(trained: Path, how: str) -> None:
    assert losses(trained / how)[-1] == pytest.approx(losses(trained / "flat-bf16")[-1], abs=0.05)


def test_the_result_says_what_lies_where(trained: Path) -> None:
    """Halves of 2 bytes and moments of 8 or 4 are split; with a copy in fp32 it is 12."""
    ranks = len(list(trained.glob("device-bf16/held-*.json")))
    for name, width in {"device-bf16": 10, "moments-bf16": 6, "host-bf16": 12}.items():
        count = (read_json(RunPaths(trained / name).result) or {})["num_parameters"]
        held = read_json(trained / name / "held-0.json") or {}
        assert held["optimizer"]["host"] == pytest.approx(width * count / ranks, rel=0.01)
        assert held["parameters"]["host"] == pytest.approx(2 * count, rel=0.01)


def units(dtype: torch.dtype) -> list[Unit]:
    """Of odd sizes; the rank's share is the second half of each."""
    torch.manual_seed(3)
    return [Unit([(f"p{size}", nn.Parameter(torch.randn(size).to(dtype)))], 2, 1, copies=False) for size in SIZES]


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_is_that_of_torch(where: str, dtype: torch.dtype, clips: bool) -> None:
    """Weights in fp32 and moments, after 50 steps, within 1e-6 of the largest."""
    own, memory = units(dtype), HostMemory(CPU)
    expected = [nn.Parameter(unit.own.float().clone()) for unit in own]
    adamw = torch.optim.AdamW(expected, lr=SETUP.lr, betas=(0.9, 0.95), eps=SETUP.eps, weight_decay=SETUP.weight_decay)
    states = HostStates(own, SETUP, memory, torch.float32, whole=where == "host")
    step = HostStep(states, CPU, False, memory) if where == "host" else StreamedStep(states, CPU, False, 1)
    gradients, space, seen = [memory.zeros(unit.own.numel(), dtype) for unit in own], torch.zeros(60_000), []
    for number in range(STEPS):
        for row, one in zip(gradients, expected, strict=True):
            row.copy_(torch.randn(row.numel()) * (number + 1))
            one.grad = row.float().clone()
        factor = torch.tensor([0.37 / (number + 1)]) if clips else None
        if factor is not None:
            for one in expected:
                assert one.grad is not None
                one.grad.mul_(factor)
        adamw.step()
        step(gradients, factor, space, seen.append)
    assert len(seen) == STEPS * len(own)
    with states.in_fp32(changing=False):
        for unit, one in zip(own, expected, strict=True):
            state = states.optimizer.state[unit.share]
            pairs = ((unit.share, one.detach()), *((state[key], adamw.state[one][key]) for key in (MEAN, SQUARE)))
            for found, right in pairs:
                torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6 * float(right.abs().max()))
            assert int(state["step"]) == STEPS
            torch.testing.assert_close(unit.own.float(), one.detach(), rtol=2**-8, atol=1e-7)


def test_memory_that_the_host_or_the_driver_does_not_give_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerError, match=r"the host has no 1073741824\.00 GiB more for states"):
        HostMemory(CPU).zeros(2**60, torch.uint8)
    driver = SimpleNamespace(cudaHostRegister=lambda *_: 2, cudaHostUnregister=lambda _: 0)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    with pytest.raises(
        WorkerError, match=r"page-lock 2\.00 GiB of host memory beside 0\.00 GiB \(CUDA error 2\): give"
    ):
        HostMemory(torch.device("cuda")).zeros(2**31, torch.uint8)


def test_halves_are_the_whole_number_bit_by_bit() -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (200_000,), dtype=torch.int64).to(torch.int32)
    value = torch.cat([bits.view(torch.float32), torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 1e-45, 3e38])])
    value = value[~value.isnan()]
    high, low = torch.empty(len(value), dtype=torch.bfloat16), torch.empty(len(value), dtype=torch.int16)
    split(value.clone(), high, low)
    assert torch.equal(joined(high, low).view(torch.int32), value.view(torch.int32))
    near = value.abs() < 3e38
    apart = (high != value.to(torch.bfloat16)) & near
    assert float(apart.float().mean()) < 1e-3  # of two equally near ones
    assert torch.isnan(_through(torch.tensor([float("nan")])))


def _through(value: torch.Tensor) -> torch.Tensor:
    high, low = torch.empty(len(value), dtype=torch.bfloat16), torch.empty(len(value), dtype=torch.int16)
    split(value.clone(), high, low)
    assert torch.equal(torch.isnan(high), torch.isnan(value))
    return joined(high, low)


def test_moments_in_bf16_keep_their_mean() -> None:
    """Each change of the second moment is smaller than a bf16 number resolves: rounded to the nearest it would stand still."""
    own, memory = units(torch.bfloat16)[-1:], HostMemory(CPU)
    states = HostStates(own, SETUP, memory, torch.bfloat16, whole=False)
    states.optimizer.param_groups[0].update(betas=(0.9, 0.999), lr=0.0)
    step, gradient = StreamedStep(states, CPU, False, 5), memory.zeros(own[0].own.numel(), torch.bfloat16)
    for number in range(300):
        gradient.fill_(1.0 if number < 200 else 0.5)
        step([gradient], None, torch.zeros(400_000), lambda unit: None)
    right = (1 - 0.999**200) * 0.999**100 + 0.25 * (1 - 0.999**100)
    assert float(states.shares[0].square.float().mean()) == pytest.approx(right, rel=2e-3)
    assert states.shares[0].square.float().std() > 0


def test_stretches_cover_all_and_begin_where_kernels_read() -> None:
    for count in (1, 63, 64, 65, 1000, 4097):
        found = stretches(count, 200)
        assert found[0].start == 0 and found[-1].stop == count
        assert all(a.stop == b.start for a, b in pairwise(found))
        assert all(each.start % 64 == 0 and each.stop - each.start <= 200 for each in found)
    assert stretches(0, 10) == []


def test_threads_of_one_core_are_counted_once(tmp_path: Path) -> None:
    for core, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}.items():
        (tmp_path / str(core)).write_text(siblings + "\n")
    assert physical([0, 1, 2, 3], str(tmp_path / "{}")) == [0, 1]
    assert physical([5, 6], str(tmp_path / "{}")) == [5, 6]


def test_memory_is_unlocked_when_nobody_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held: set[int] = set()
    driver = SimpleNamespace(cudaHostRegister=lambda place, *_: held.add(place) or 0, cudaHostUnregister=held.remove)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    memory = HostMemory(torch.device("cuda"))
    row = memory.zeros(100, torch.float32)
    assert held == {row.data_ptr()} and not row.any()
    del memory
    assert not held
