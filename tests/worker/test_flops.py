"""FLOPs per token against what torch counts in the products of a real forward and backward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import FAMILIES
from torch.utils.flop_counter import FlopCounterMode

from hpc_llm.worker.model.flops import model_flops_per_token

pytestmark = pytest.mark.train

LENGTH = 32


def model_of(family: str, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**FAMILIES[family], **changes})
    # Eager attention multiplies whole squares, as the convention counts.
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def counted(model: Any) -> float:
    """FLOPs of one token, forward and backward."""
    tokens = torch.arange(2 * LENGTH).view(2, LENGTH)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    return counter.get_total_flops() / tokens.numel()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "t5"])
def test_products_are_counted_as_torch_counts_them(family: str) -> None:
    """Grouped queries, tied and untied heads, heads wider than the hidden size, learned positions."""
    model = model_of(family)
    flops = model_flops_per_token(model, LENGTH)
    # Rotary positions are worked out by tiny products of their own.
    assert flops is not None and flops == pytest.approx(counted(model), rel=2e-3)


@pytest.mark.parametrize("trained", [("embed_tokens", "norm", "lm_head"), ("embed_tokens", "down_proj", "lm_head")])
def test_frozen_weights_are_counted_as_torch_counts_them(trained: tuple[str, ...]) -> None:
    model = model_of("llama")
    for name, parameter in model.named_parameters():
        parameter.requires_grad = any(part in name for part in trained)
    assert model_flops_per_token(model, LENGTH) == pytest.approx(counted(model), rel=2e-3)


def test_adapters_are_counted_nearly_as_torch_counts_them() -> None:
    """Nothing below the first adapter needs a gradient, which is not taken off: with 2 layers that shows."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model_of("llama", num_hidden_layers=8), LoraConfig(r=4, target_modules="all-linear"))
    flops = model_flops_per_token(model, LENGTH)
    assert flops is not None and flops == pytest.approx(counted(model), rel=0.05)


def test_recomputed_activations_do_not_count() -> None:
    model = model_of("llama")
    before = model_flops_per_token(model, LENGTH)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    assert model_flops_per_token(model, LENGTH) == before
    assert counted(model) > 1.1 * (before or 0.0)


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
        ("mamba", {"state_size": 8}),
    ],
)
def test_an_architecture_that_the_formula_does_not_describe_has_no_figure(family: str, shape: dict[str, Any]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2} if family == "mixtral" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, **heads, **shape))
    assert model_flops_per_token(model, LENGTH) is None
