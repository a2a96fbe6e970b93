"""How a DeepSpeed config is fitted to the device, without starting DeepSpeed."""

from __future__ import annotations

import copy
import importlib.util
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_plans import make_plan

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.worker.compiled_late import compiled_when_called
from hpc_llm.worker.device import Toolchain, find_toolchain
from hpc_llm.worker.engines import deepspeed
from hpc_llm.worker.engines.deepspeed import COMPILE_ON_CPU, adapt_config

NOTHING = Toolchain(host=False, device=False)
HOST_ONLY = Toolchain(host=True, device=False)
ALL = Toolchain(host=True, device=True)


def test_on_the_cpu_nothing_is_compiled_or_pinned() -> None:
    plan = make_plan("z3o")
    before = copy.deepcopy(plan.engine.deepspeed)
    adapted = adapt_config(plan, "cpu", ALL)
    zero = adapted.config["zero_optimization"]
    assert zero["offload_optimizer"]["pin_memory"] is False
    assert zero["offload_param"]["pin_memory"] is False
    assert adapted.config["optimizer"]["params"]["torch_adam"] is True
    assert len(adapted.sentences) == 2
    assert plan.engine.deepspeed == before


def test_the_cpu_compiles_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILE_ON_CPU, "1")
    assert "torch_adam" not in adapt_config(make_plan("z2"), "cpu", HOST_ONLY).config["optimizer"]["params"]
    assert "torch_adam" in adapt_config(make_plan("z2"), "cpu", NOTHING).config["optimizer"]["params"]


def test_a_toolkit_whose_path_has_blanks_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import cpp_extension

    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/mnt/c/Program Files/CUDA/v13.0")
    found = find_toolchain()
    assert not found.host and not found.device
    adapted = adapt_config(make_plan("z2o"), "cuda", found)
    assert adapted.config["optimizer"]["params"]["torch_adam"]
    assert "without blanks, and it is '/mnt/c/Program Files/CUDA/v13.0'" in " ".join(adapted.sentences)


def test_on_a_gpu_with_compilers_the_config_is_the_plans() -> None:
    plan = make_plan("z3o")
    adapted = adapt_config(plan, "cuda", ALL)
    assert adapted.config == plan.engine.deepspeed
    assert adapted.sentences == ()


@pytest.mark.parametrize(
    ("method", "toolchain", "missing"),
    [
        ("z3", HOST_ONLY, "FusedAdam, which needs the GPU's compiler"),
        ("z3", NOTHING, "FusedAdam, which needs a C\\+\\+ compiler"),
        ("z2o", NOTHING, "DeepSpeedCPUAdam, which needs a C\\+\\+ compiler"),
        ("z2o", HOST_ONLY, None),
    ],
)
def test_a_gpu_without_compilers_falls_back_and_says_so(method: str, toolchain: Toolchain, missing: str | None) -> None:
    adapted = adapt_config(make_plan(method), "cuda", toolchain)
    assert ("torch_adam" in adapted.config["optimizer"]["params"]) == (missing is not None)
    assert len(adapted.sentences) == (missing is not None)
    if missing:
        assert re.search(missing, adapted.sentences[0])


def test_fp16_on_the_cpu_says_what_to_choose() -> None:
    with pytest.raises(WorkerError, match="choose precision bf16 or fp32"):
        adapt_config(make_plan(precision="fp16"), "cpu", ALL)


def test_an_unknown_key_names_the_closest() -> None:
    with pytest.raises(RequestError, match=r"no DeepSpeed key 'gradient_cliping'.*did you mean 'gradient_clipping'"):
        adapt_config(make_plan(deepspeed={"gradient_cliping": 1.0}), "cpu", ALL)


def test_8_bit_optimizers_are_handed_over_and_allowed() -> None:
    plan = make_plan("z2o", optimizer={"type": "AdamW8bit", "lr": 1e-3})
    config = adapt_config(plan, "cuda", ALL).config
    assert "optimizer" not in config
    assert config["zero_allow_untested_optimizer"] is True
    assert config["zero_force_ds_cpu_optimizer"] is False


def test_what_the_installed_deepspeed_dropped_is_left_out() -> None:
    plan = make_plan("q", deepspeed={"quantize_training": {"enabled": True}})
    adapted = adapt_config(plan, "cpu", ALL, {"quantize_training": "removed"})
    assert "quantize_training" not in adapted.config
    assert "quantize_training" in adapted.sentences[0]
    plan = make_plan("z2", deepspeed={"sparse_gradients": False, "elasticity": {"enabled": False}})
    adapted = adapt_config(plan, "cpu", ALL, {"sparse_gradients": "removed", "elasticity": "removed"})
    assert "sparse_gradients" not in adapted.config and "elasticity" not in adapted.config
    assert [one.split()[5] for one in adapted.sentences[:2]] == ["elasticity", "sparse_gradients"]


def test_deepspeed_is_imported_without_mlflow_which_can_be_had_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """`worlds.py` looks whether the real one brings it."""
    found: list[Any] = []
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    fake = SimpleNamespace(import_module=lambda name: found.append(importlib.util.find_spec("mlflow")))
    monkeypatch.setattr("hpc_llm.worker.engines.deepspeed.importlib", fake)
    deepspeed.imported.__wrapped__()
    assert found == [None] and "mlflow" not in sys.modules


def test_what_is_handed_to_the_compiler_while_deepspeed_is_built_is_compiled_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[tuple[str, dict[str, Any]]] = []

    def compile_now(model: Any, **options: Any) -> Any:
        compiled.append((type(model).__name__, options))
        return lambda number: model(number) + 1

    monkeypatch.setattr(torch, "compile", compile_now)

    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    with compiled_when_called():
        plain, with_options = torch.compile(double), torch.compile(dynamic=True)(double)
        torch.compile(torch.nn.Identity())
    assert torch.compile is compile_now and compiled == [("Identity", {})]
    assert [plain(3), plain(4), with_options(5)] == [7, 9, 11] and plain.__doc__ == "Twice."
    assert compiled[1:] == [("function", {}), ("function", {"dynamic": True})]
