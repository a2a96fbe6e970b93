"""Which layers are recomputed, and that training is the same whichever they are, with every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save
from tiny_plans import make_plan
from torch import nn
from worlds import Worlds

from hpc_llm.planning.recompute import Share
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.model.prepare import recompute
from hpc_llm.worker.model.shapes import layers_of

pytestmark = pytest.mark.train

LAYERS = 5
ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
SHAPE = {"precision": "fp32", "optimizer": ADAMW, "steps": 4, "warmup_steps": 1, "micro_batch_size": 2}
WHOLE = {"engine": "plain", "deepspeed": {"zero_optimization": {"stage": 0}}}
UNITS = {"layers_per_unit": 2, "gradient_accumulation_steps": 2}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ddp", WHOLE),
    "lora": ("lora", WHOLE),
    "fsdp2": ("z3", {"engine": "fsdp2", **UNITS}),
    "fsdp2-kept": ("z3", {"engine": "fsdp2", **UNITS, "keeps_parameters": True, "fused_loss": True}),
    "deepspeed": ("z3", {}),
    "flat": ("z3", {"engine": "flat", **UNITS}),
    "visiting": ("z3o", {"engine": "flat", "offloaded_step": "device"}),
}
"""A method and an engine that trains it, by what is special."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, worlds: Worlds) -> Path:
    """The folder with two runs of each kind on two ranks, one of which recomputes two of its five layers."""
    folder = tmp_path_factory.mktemp("shares")
    model = str(save(tmp_path_factory.mktemp("model") / "llama", "llama", num_hidden_layers=LAYERS))
    plans = {
        f"{name}-{share}": make_plan(method, 2, **{**SHAPE, **changes}, model=model, recompute=share)
        for name, (method, changes) in KINDS.items()
        for share in (False, 0.4)
    }
    wanted = {name: {"plan": plan.to_dict(), "mask": False} for name, plan in plans.items()}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    worlds.must_run("two_ranks", folder, 2)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_without(trained: Path, kind: str) -> None:
    kept, recomputed = (column(trained / f"{kind}-{share}") for share in (False, 0.4))
    assert recomputed == pytest.approx(kept, rel=1e-7)
    assert kept[0] > kept[-1]
    result = read_json(RunPaths(trained / f"{kind}-0.4").result) or {}
    assert (result["outcome"], result["recompute"]) == ("COMPLETED", 0.4)


def column(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in RunPaths(folder).steps.read_text().splitlines()]


def passes(model: Any, share: Share) -> tuple[list[int], torch.Tensor]:
    """How often each layer computes in a forward and a backward pass, and the sum of all gradients."""
    torch.manual_seed(1)  # of dropout
    model.train()
    if share:
        recompute(model, share)
    layers = list(layers_of(model))
    found = [0] * len(layers)
    for number, layer in enumerate(layers):
        inner = next(one for one in layer.modules() if isinstance(one, nn.Linear))
        inner.register_forward_pre_hook(lambda module, given, at=number: found.__setitem__(at, found[at] + 1))
    ids = torch.arange(16)[None]
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return found, torch.stack([one.grad.abs().sum() for one in model.parameters()]).sum()


@pytest.mark.parametrize(
    ("family", "share", "expected"),
    [
        ("llama", 0.25, [2, 1, 1, 1, 1]),
        ("llama", 0.6, [2, 2, 1, 2, 1]),
        ("llama", True, [2] * 5),
        ("t5", 0.4, [2, 1, 1, 2, 1, 1]),
    ],
)
def test_of_each_row_of_layers_a_share_is_computed_twice(
    family: str, share: Share, expected: list[int], tmp_path: Path
) -> None:
    sizes = (
        {"num_layers": 3, "num_decoder_layers": 3, "dropout_rate": 0.1} if family == "t5" else {"num_hidden_layers": 5}
    )
    folder = save(tmp_path / "model", family, **sizes)
    once, gradients = passes(load(folder, family), False)
    found, again = passes(load(folder, family), share)
    assert once == [1] * len(expected) and torch.equal(again, gradients)
    assert found == expected


def load(folder: Path, family: str) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    kind: Any = AutoModelForSeq2SeqLM if family == "t5" else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32)
