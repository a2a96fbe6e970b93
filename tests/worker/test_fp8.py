"""Linear layers in fp8 compute the products of rounded numbers, and a model that trains with them learns as in bf16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save
from tiny_plans import RunPlan, make_plan
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.worker.kernels.fp8 import fp8_layers

pytestmark = pytest.mark.train

CPU = torch.device("cpu")
FINE, WIDE = torch.float8_e4m3fn, torch.float8_e5m2


def rounded(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """The numbers that fp8 has in place of `x`, in fp32."""
    scale = x.float().abs().max() / torch.finfo(kind).max
    return (x.float() / scale).to(kind).float() * scale


def layer(inputs: int, outputs: int, bias: bool) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(inputs, outputs, bias=bias)).bfloat16()


def passed(model: Any, x: torch.Tensor, above: torch.Tensor) -> list[torch.Tensor]:
    """What comes out, the gradient of the input and those of all parameters."""
    x = x.detach().requires_grad_()
    model.zero_grad()
    out = model(x)
    out.backward(above)
    return [out.detach(), x.grad, *(each.grad for each in model.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("shape", "bias", "size"), [((2, 24), False, 1.0), ((3, 7), True, 1.0), ((1, 5), True, 1e-9), ((48,), True, 1e4)]
)
def test_products_are_those_of_rounded_numbers_however_many_there_are(
    shape: tuple[int, ...], bias: bool, size: float
) -> None:
    model = layer(64, 32, bias)
    x, above = torch.randn(*shape, 64).bfloat16(), size * torch.randn(*shape, 32).bfloat16()
    assert fp8_layers([model], CPU) is None
    out, of_x, of_weight, *of_bias = passed(model, x, above)
    weight, rows, upper = (model[0].weight.detach(), x.flatten(0, -2), above.flatten(0, -2))
    w8, x8, g8 = rounded(weight, FINE), rounded(rows, FINE), rounded(upper, WIDE)
    expected = [x8 @ w8.t() + (model[0].bias.detach().float() if bias else 0), g8 @ w8, g8.t() @ x8]
    for found, right in zip((out.flatten(0, -2), of_x.flatten(0, -2), of_weight), expected, strict=True):
        assert found.dtype == torch.bfloat16 and found.shape == right.shape
        torch.testing.assert_close(found.float(), right, rtol=1e-2, atol=float(right.abs().max()) * 4e-3)
    for found in of_bias:
        torch.testing.assert_close(found.float(), upper.float().sum(0), rtol=2e-2, atol=2e-2 * size)


def test_what_a_compiler_sees_computes_the_same_without_a_break() -> None:
    model = nn.Sequential(*layer(64, 32, True), nn.SiLU(), *layer(32, 16, False)).bfloat16()
    x, above = torch.randn(2, 9, 64).bfloat16(), torch.randn(2, 9, 16).bfloat16()
    fp8_layers([model], CPU)
    expected = passed(model, x, above)
    model.compile(backend="aot_eager", fullgraph=True)
    for found, right in zip(passed(model, x, above), expected, strict=True):
        assert torch.equal(found, right)


def test_zeros_stay_zeros_and_what_is_no_number_is_seen() -> None:
    model = layer(16, 16, False)
    fp8_layers([model], CPU)
    assert not any(each.any() for each in passed(model, torch.zeros(4, 16).bfloat16(), torch.zeros(4, 16).bfloat16()))
    for wrong in (float("nan"), float("inf")):
        assert not model(torch.full((4, 16), wrong).bfloat16()).isfinite().any()


def test_widths_that_16_does_not_divide_stay_in_bf16_and_that_is_said() -> None:
    odd, even = layer(24, 32, False), layer(32, 16, False)
    said = fp8_layers([nn.Sequential(*odd, *even)], CPU)
    assert said == "1 of 2 linear layers multiply in bf16, for fp8 needs widths that 16 divides."
    assert "forward" not in vars(odd[0]) and "forward" in vars(even[0])
    with pytest.raises(WorkerError, match=r"has widths that 16 divides, as fp8 needs\. Leave fp8 out of the method\."):
        fp8_layers([layer(24, 32, False)], CPU)


def test_where_nothing_can_be_multiplied_in_fp8_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*args: Any, **how: Any) -> torch.Tensor:
        raise RuntimeError("torch._scaled_mm is only supported on CUDA devices with\ncompute capability >= 9.0 or 8.9")

    monkeypatch.setattr(torch, "_scaled_mm", lacks)
    with pytest.raises(WorkerError, match=r"in fp8 here: torch._scaled_mm .* >= 9.0 or 8.9. Leave fp8 out"):
        fp8_layers([layer(16, 16, False)], CPU)


def test_sixty_steps_learn_as_in_bf16_and_the_result_says_which(run_plan: RunPlan, tmp_path: Path) -> None:
    """A seed of its own moves the last loss by 0.03 nats."""
    shape = {"engine": "plain", "steps": 60, "optimizer": {"type": "AdamW", "lr": 1e-3}}
    found = []
    for fp8 in (False, True):
        found.append(run_plan(make_plan("ddp", **shape, fp8=fp8)))
        (tmp_path / "run").rename(tmp_path / str(fp8))
    plain, eight = found
    assert (plain["fused"], eight["fused"]) == ([], ["fp8"]) and eight["adaptations"] == []
    assert plain["loss_last"] < plain["loss_first"] - 4
    assert 0 < abs(eight["loss_last"] - plain["loss_last"]) < 0.02
    assert eight["parameter_types"] == plain["parameter_types"] == {"trained": ["bfloat16"], "frozen": []}


def test_a_model_of_odd_widths_trains_with_some_layers_in_bf16(run_plan: RunPlan, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama", hidden_size=32, intermediate_size=40)
    ended = run_plan(make_plan("z3", engine="flat", model=str(model), steps=6, fp8=True))
    assert ended["outcome"] == "COMPLETED" and ended["fused"] == ["fp8"]
    assert ended["adaptations"][-1].startswith("6 of 14 linear layers multiply in bf16")
