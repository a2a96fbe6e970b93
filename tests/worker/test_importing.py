"""Imports beside other work: what they name is there, and the collector is as it was behind them."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec

import pytest
import torch

from hpc_llm.worker.importing import importing, uncollected
from hpc_llm.worker.tasks.training import needed_soon
from tests.worker.tiny_plans import make_plan


def test_imports_go_on_beside_what_is_inside_and_are_done_behind_it() -> None:
    sys.modules.pop("wave", None)
    with importing(["no_such_module_of_anybody", "wave"]):
        assert not gc.isenabled()
    assert "wave" in sys.modules and gc.isenabled()


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_left_as_it_was(is_on: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if is_on else gc.disable)()
        with pytest.raises(ValueError), uncollected():
            raise ValueError
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_needed_soon_is_there(device: str) -> None:
    planned = make_plan("z3").changed(engine="flat", fused_layers=True)
    names = needed_soon(planned, torch.device(device))
    assert all(find_spec(name) for name in names) and ("torch._dynamo" in names) is (device == "cuda")
