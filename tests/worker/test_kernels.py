"""What is fused computes what it stands for: losses and gradients, with masks, packing, accumulation and evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, save
from tiny_plans import RunPlan, make_plan
from torch import nn

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.data.batch import MASKED
from hpc_llm.worker.kernels import compiling, fuse, head_loss
from hpc_llm.worker.loss import summed_loss

pytestmark = pytest.mark.train

ADAMW = {"type": "AdamW", "lr": 3e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
CLIPPED = {"zero_optimization": {"stage": 0}, "gradient_clipping": 0.1}
CPU = torch.device("cpu")


@pytest.mark.parametrize("places", [7, head_loss._PLACES, 2 * head_loss._PLACES + 3])
@pytest.mark.parametrize("learns", [(True, True), (True, False), (False, True)])
def test_the_loss_in_parts_is_that_of_all_logits(places: int, learns: tuple[bool, bool]) -> None:
    torch.manual_seed(0)
    targets = torch.randint(0, 31, (places,))
    targets[::3] = MASKED
    found = []
    for compute in (head_loss.summed_loss_of_hidden, _whole):
        torch.manual_seed(1)
        hidden = torch.randn(places, 16, requires_grad=learns[0])
        weight = torch.randn(31, 16, requires_grad=learns[1])
        loss = compute(hidden, weight, targets)
        (loss * 0.37).backward()
        found.append((loss.detach(), *(each.grad for each in (hidden, weight) if each.requires_grad)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-6, atol=5e-6)


def _whole(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(hidden @ weight.t(), targets, ignore_index=MASKED, reduction="sum")


def test_a_part_without_targets_adds_nothing_and_a_scaled_loss_of_fp16_does_not_overflow() -> None:
    hidden = torch.randn(9, 4, dtype=torch.float16, requires_grad=True)
    weight = torch.randn(6, 4, dtype=torch.float16)
    loss = head_loss.summed_loss_of_hidden(hidden, weight, torch.full((9,), MASKED))
    assert loss.item() == 0.0
    loss = head_loss.summed_loss_of_hidden(hidden, weight, torch.zeros(9, dtype=torch.int64))
    (loss * 1e-3 * 65536.0).backward()
    assert hidden.grad is not None and hidden.grad.isfinite().all() and hidden.grad.abs().max() > 1


@pytest.mark.parametrize("places", [5, head_loss._PLACES + 3])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_gradients_are_multiplied_piece_by_piece_as_they_would_be_whole(
    monkeypatch: pytest.MonkeyPatch, places: int, kind: torch.dtype
) -> None:
    targets, found = torch.randint(0, 31, (places,)), []
    for numbers in (1 << 30, 40):  # three rows of 16 columns come out uneven
        monkeypatch.setattr(head_loss, "_NUMBERS", numbers)
        torch.manual_seed(1)
        hidden, weight = (torch.randn(each, 16).to(kind).requires_grad_() for each in (places, 31))
        (head_loss.summed_loss_of_hidden(hidden, weight, targets) * 0.37).backward()
        found.append((hidden.grad, weight.grad))
    for whole, pieces in zip(*found, strict=True):
        assert pieces is not None and pieces.dtype == kind
        assert torch.equal(whole, pieces)


def test_no_second_pass_goes_back_through_gradients_that_were_multiplied_where_they_lay() -> None:
    hidden, weight = torch.randn(5, 16, requires_grad=True), torch.randn(31, 16, requires_grad=True)
    loss = head_loss.summed_loss_of_hidden(hidden, weight, torch.zeros(5, dtype=torch.int64))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def plan_of(name: str, model: Path, **changes: Any) -> Plan:
    """A plan for the CPU whose `fused_…` are as `changes` say."""
    method, more = {
        "ddp": ("ddp", {}),
        "lora": ("lora", {}),
        "lora+r": ("lora", {"recompute": True}),
        "qlora": ("qlora", {}),
    }[name]
    quantized = (
        {"quantization": {"kind": "nf4", "double_quant": True, "compute_dtype": "fp32"}} if name == "qlora" else {}
    )
    shape = {
        "precision": "fp32",
        "optimizer": ADAMW,
        "steps": 20,
        "gradient_accumulation_steps": 2,
        "eval_every": 10,
        "deepspeed": CLIPPED,
    }
    return make_plan(method, engine="plain", model=str(model), **{**shape, **quantized, **more, **changes})


ALL = {"fused_dequantization": True, "fused_lora": True, "fused_loss": True, "fused_layers": True}


def trained(run_plan: RunPlan, folder: Path, plan: Plan) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """The result of a run, and loss and norm of each step."""
    ended = run_plan(plan)
    assert ended["outcome"] == "COMPLETED", ended["error"]
    rows = [json.loads(line) for line in RunPaths(folder / "run").steps.read_text().splitlines()]
    (folder / "run").rename(folder / f"run-{len(list(folder.iterdir()))}")
    return ended, [(row["loss"], row["grad_norm"]) for row in rows]


@pytest.mark.parametrize(
    ("name", "family", "parts"),
    [
        ("ddp", "llama", ["fused_loss", "fused_layers"]),
        ("ddp", "qwen2", ["fused_loss", "fused_layers"]),
        ("lora", "llama", ["fused_lora", "fused_loss", "fused_layers"]),
        ("lora+r", "qwen3", ["fused_lora", "fused_loss", "fused_layers"]),
        ("qlora", "llama", ["fused_dequantization", "fused_lora", "fused_loss", "fused_layers"]),
    ],
)
def test_twenty_steps_lose_the_same(
    run_plan: RunPlan, tmp_path: Path, name: str, family: str, parts: list[str]
) -> None:
    model = save(tmp_path / "model", family)
    plain, expected = trained(run_plan, tmp_path, plan_of(name, model))
    fused, found = trained(run_plan, tmp_path, plan_of(name, model, **ALL))
    assert (plain["fused"], fused["fused"], fused["evaluations"]) == ([], parts, 2)
    assert fused["eval_loss"] == pytest.approx(plain["eval_loss"], rel=1e-6)
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=1e-6)
    assert [norm for _, norm in found] == pytest.approx([norm for _, norm in expected], rel=1e-4)
    assert expected[-1][0] < expected[0][0] - 0.1 and max(norm for _, norm in expected) > 0.1


def small(family: str = "llama", **lora: Any) -> Any:
    """A model in training, with LoRA where something is said of it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **FAMILIES[family])
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **lora))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_B." in name:  # an adapter that has learned something
                    parameter.normal_(std=0.1)
    return model.train()


def wanting(*parts: str) -> Plan:
    return make_plan("ddp", engine="plain", **dict.fromkeys(parts, True))


BATCHES: dict[str, dict[str, torch.Tensor]] = {
    "plain": {},
    "padded": {"attention_mask": (torch.arange(24) < 17).long().expand(2, 24)},
    "packed": {"position_ids": (torch.arange(24) % 9).expand(2, 24)},
}


@pytest.mark.parametrize("kind", list(BATCHES))
def test_masks_and_packed_rows_give_the_same_loss_and_gradients(kind: str) -> None:
    tokens = torch.arange(48).view(2, 24) * 7 % 512
    labels = torch.where(torch.arange(24) % 5 == 0, MASKED, tokens)
    batch = {"input_ids": tokens, "labels": labels, **BATCHES[kind]}
    model = small(r=4)
    expected = summed_loss(model(**{**batch, "labels": None}, use_cache=False).logits, batch)
    expected.backward()
    gradients = {name: each.grad for name, each in model.named_parameters() if each.requires_grad}
    model.zero_grad(set_to_none=True)
    fused = fuse(model, wanting("fused_lora", "fused_loss"), CPU)
    assert fused.head_loss is not None and not fused.sentences
    loss = fused.head_loss(model, batch)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    for name, each in model.named_parameters():
        if each.requires_grad:
            torch.testing.assert_close(each.grad, gradients[name], rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(fused.head_loss(model, batch), expected.detach(), rtol=1e-6, atol=0)


def test_a_fused_model_is_saved_and_asked_as_before() -> None:
    from peft import get_peft_model_state_dict

    model, tokens = small(r=4), torch.arange(12).view(1, 12)
    whole, saved = model(tokens).logits, get_peft_model_state_dict(model)
    names = [name for name, _ in model.named_parameters()]
    with model.disable_adapter():
        base = model(tokens).logits
    fuse(model, wanting("fused_lora", "fused_loss"), CPU)
    assert names == [name for name, _ in model.named_parameters()]
    assert saved.keys() == get_peft_model_state_dict(model).keys()
    torch.testing.assert_close(model(tokens).logits, whole, rtol=1e-5, atol=1e-5)
    with model.disable_adapter():
        torch.testing.assert_close(model(tokens).logits, base, rtol=0, atol=0)
    model.eval()
    assert model.generate(input_ids=tokens, max_new_tokens=2, do_sample=False).shape == (1, 14)


@pytest.mark.parametrize(
    ("family", "lora", "said"),
    [
        (
            "gpt2",
            {"r": 4},
            ["LoRA runs unfused in 8 of 8", "nothing is known of the head of a GPT2LMHeadModel", "run unfused"],
        ),
        ("llama", {"r": 4, "lora_dropout": 0.1}, ["LoRA runs unfused in 14 of 14"]),
        ("llama", {"r": 4, "use_dora": True}, ["LoRA runs unfused in 14 of 14"]),
        ("llama", {}, ["LoRA runs unfused in 0 of 0"]),
    ],
)
def test_what_is_not_known_stays_as_it_is_and_is_told(family: str, lora: dict[str, Any], said: list[str]) -> None:
    parts = ("fused_lora", "fused_loss", "fused_layers") if family == "gpt2" else ("fused_lora",)
    fused = fuse(small(family, **lora), wanting(*parts), CPU)
    assert not fused.parts and len(fused.sentences) == len(said)
    for sentence, words in zip(fused.sentences, said, strict=True):
        assert words in sentence


def test_a_model_that_bounds_its_logits_keeps_them() -> None:
    model = small()
    model.config.final_logit_softcapping = 30.0
    assert fuse(model, wanting("fused_loss"), CPU).sentences == [
        "The loss is computed from whole logits, for the model bounds its logits."
    ]


def test_where_nothing_can_be_compiled_the_layers_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no compiler was found\nand more")

    monkeypatch.setattr(torch, "compile", refused)
    fused = fuse(small(), wanting("fused_layers"), CPU)
    assert (fused.parts, len(fused.sentences)) == ([], 1)
    assert fused.sentences[0].endswith("cannot be compiled here: no compiler was found and more")


def packed(kind: str, nested: bool, dtype: torch.dtype = torch.bfloat16) -> Any:
    from bitsandbytes.nn import Linear4bit, Params4bit

    torch.manual_seed(5)
    how: dict[str, Any] = {"compress_statistics": nested, "quant_type": kind}
    layer = Linear4bit(256, 192, bias=False, compute_dtype=dtype, device="meta", **how)
    layer.weight = Params4bit(torch.randn(192, 256, dtype=dtype), requires_grad=False, **how).to("cpu")
    return layer


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [True, False])
def test_weights_in_4_bits_are_unpacked_as_bitsandbytes_does(
    monkeypatch: pytest.MonkeyPatch, kind: str, nested: bool
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    layer = packed(kind, nested)
    fused = fuse(nn.Sequential(layer), wanting("fused_dequantization"), CPU)
    assert (fused.parts, fused.sentences) == (["fused_dequantization"], [])
    x = torch.randn(3, 5, 256, dtype=torch.bfloat16, requires_grad=True)
    ours, theirs = layer(x), type(layer).forward(layer, x)
    assert torch.equal(ours, theirs)
    slopes = [torch.autograd.grad(out.float().square().sum(), x)[0] for out in (ours, theirs)]
    assert torch.equal(*slopes) and float(slopes[0].abs().max()) > 0
    assert fuse(packed(kind, nested, torch.float32), wanting("fused_dequantization"), CPU).parts


def test_weights_that_are_packed_otherwise_are_left_to_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    layer = packed("nf4", nested=True)
    layer.weight.quant_state.code = layer.weight.quant_state.code.flip(0)  # what its kernels do not ask
    fused = fuse(nn.Sequential(layer), wanting("fused_dequantization"), CPU)
    assert not fused.parts and "another way than is known here" in fused.sentences[0]
    assert not hasattr(layer, "unpack")


def test_what_was_put_into_the_library_is_taken_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama as library

    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    before, model, tokens = library.apply_rotary_pos_emb, small(), torch.arange(12).view(1, 12)
    expected = model(tokens).logits
    fused = fuse(model, wanting("fused_layers"), CPU)
    assert library.apply_rotary_pos_emb is not before and fused.parts == ["fused_layers"]
    torch.testing.assert_close(model(tokens).logits, expected, rtol=1e-5, atol=1e-5)
    fused.undo()
    assert library.apply_rotary_pos_emb is before


def split(engine: str, **changes: Any) -> Plan:
    return make_plan("z3", engine=engine, precision="fp32", optimizer=ADAMW, steps=6, **changes)


@pytest.mark.parametrize("engine", ["fsdp2", "flat"])
def test_compiled_layers_lose_the_same(run_plan: RunPlan, tmp_path: Path, engine: str) -> None:
    _, expected = trained(run_plan, tmp_path, split(engine))
    ended, found = trained(run_plan, tmp_path, split(engine, compiled_layers=True))
    assert (ended["fused"], ended["adaptations"]) == (["compiled_layers"], [])
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=1e-5)


def test_an_optimizer_in_one_pass_learns_the_same(run_plan: RunPlan, tmp_path: Path) -> None:
    how = {"engine": "flat", "reduce_precision": "bf16", "layers_per_unit": 2, "steps": 6}
    _, expected = trained(run_plan, tmp_path, make_plan("z3", **how))
    ended, found = trained(run_plan, tmp_path, make_plan("z3", fused_optimizer=True, **how))
    assert (ended["fused"], ended["adaptations"]) == (["fused_optimizer"], [])
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=1e-3)


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def test_a_layer_that_cannot_be_compiled_runs_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the compiler of this node is broken")

    layer = Doubled(4, 4)
    compiled = compiling.CompiledLayers([layer], CPU)
    assert compiled.is_on and not compiled.sentences
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", refused)
    torch.testing.assert_close(layer(torch.ones(3, 4)), nn.Linear.forward(layer, torch.ones(3, 4)) * 2)
    compiled.close()
    assert "Not all of the layers runs compiled" in compiled.sentences[0]
    torch._dynamo.reset()
    unable = compiling.CompiledLayers([layer], CPU)
    assert not unable.is_on and "the compiler of this node is broken" in unable.sentences[0]
