"""Methods: strict files, composition in the paper's letters, and the homework's values."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from rendering import METHODS, planned

from hpc_llm.errors import HpcLlmError, PlanError, ProfileError
from hpc_llm.planning.method import Method, letters_of, load_method, method_names, parse_method
from hpc_llm.planning.optimizers import OptimizerName
from hpc_llm.text.yaml_text import read_yaml

LOGS = ROOT.parent / "shared" / "logs" / "homework_deepspeed"


def changed(method: str, place: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(read_yaml(ROOT / "configs" / f"{method}.yaml"))
    holder: Any = data
    *parts, last = place.split(".")
    for part in parts:
        holder = holder.setdefault(part, {})
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return data


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("recompte", True, "there is no key 'recompte' in the top level: did you mean 'recompute'? Valid: attention,"),
        ("optimizer.learning_rate", 1.0, "there is no key 'learning_rate' in optimizer"),
        ("description", ..., "'description' is missing: text is needed."),
        ("optimizer.lr", "small", "'optimizer.lr' is 'small': a number is needed."),
        ("optimizer.lr", -1.0, "'optimizer.lr' is -1.0: it must be greater than or equal to 0."),
        ("optimizer.betas", [0.9], "'optimizer.betas' is [0.9]: at least 2 values are needed."),
        ("optimizer.type", "adamw", "'optimizer.type' is 'adamw': valid are 'AdamW',"),
        ("optimizer.type", ["AdamW", "lion"], "'optimizer.type.1' is 'lion': valid are 'AdamW',"),
        ("optimizer.type", None, "'optimizer.type' is null: valid are 'AdamW',"),
        ("optimizer.betas", [0.9, 1.0], "'optimizer.betas.1' is 1.0: it must be less than 1."),
        ("optimizer.type", "adamw", "or 'AdamWBF16': did you mean 'AdamW'?"),
        ("optimizer.type", None, "'optimizer.type' is null: valid are 'AdamW', 'Adam', "),
        ("optimizer.type", ["adam8bit"], "'optimizer.type.0' is 'adam8bit': valid are 'AdamW', 'Adam', "),
        ("optimizer.type", [], "'optimizer.type' is []: at least 1 value is needed."),
        ("optimizer.type", "SGD", "valid are 'AdamW', 'Adam', 'AdamW8bit', 'Adam8bit', 'PagedAdamW8bit'"),
        (
            "recompute",
            "yes",
            "'recompute' is 'yes': valid are true, false, auto, or a share of the layers from 0 to 1, as 0.25.",
        ),
        ("attention", "flash", "valid are 'sdpa', 'eager' or 'flash_attention_2'"),
        ("precision", "int4", "valid are 'auto', 'bf16', 'fp16' or 'fp32'"),
        ("quantization", {"kind": "nf5"}, "'quantization.kind' is 'nf5': valid are 'nf4', 'fp4' or 'int8'"),
        ("peft", {"r": 0}, "'peft.r' is 0: it must be greater than 0."),
        (
            "deepspeed.fp16",
            {"enabled": True},
            "deepspeed.fp16.enabled is true, and the precision is bf16: write precision: fp16",
        ),
        ("letters", "z2", "letters is 'z2', but what the file says is 'z3'."),
        (
            "deepspeed.gradient_cliping",
            1,
            "no DeepSpeed key 'gradient_cliping' in deepspeed: did you mean 'gradient_clipping'?",
        ),
        (
            "deepspeed.zero_optimization.stag",
            3,
            "no DeepSpeed key 'stag' in deepspeed, zero_optimization: did you mean 'stage'?",
        ),
        ("deepspeed.zero_optimization.5", 3, "no DeepSpeed key '5' in deepspeed, zero_optimization"),
        ("deepspeed.zero_optimization.stage", 4, "deepspeed, zero_optimization: stage is 4. Valid: 0, 1, 2, 3"),
        ("deepspeed.zero_optimization.stage", "3", "stage is '3'. Valid: 0, 1, 2, 3"),
        ("deepspeed.zero_optimization.stage", True, "stage is True. Valid: 0, 1, 2, 3"),
        ("deepspeed.zero_optimization", None, "deepspeed, zero_optimization: holds None, keys of its own are needed"),
        ("deepspeed.bf16", True, "deepspeed, bf16: holds True, keys of its own are needed"),
        (
            "deepspeed.tensor_parallel",
            {"autotp_size": 2},
            "deepspeed: tensor_parallel.autotp_size is 2: each layer would be split",
        ),
        ("lr_ramp_steps", -1, "'lr_ramp_steps' is -1: it must be greater than or equal to 0."),
        ("deepspeed.train_batch_size", 8, "'train_batch_size' is computed from the rest, leave it out"),
        ("deepspeed.gradient_accumulation_steps", 8, "'gradient_accumulation_steps' is computed from the rest"),
        ("deepspeed.train_micro_batch_size_per_gpu", 8, "'train_micro_batch_size_per_gpu' is computed from the rest"),
        ("deepspeed.optimizer", {"type": "Adam"}, "'optimizer' is computed from the rest, leave it out"),
    ],
)
def test_a_wrong_method_is_told_file_key_and_what_is_allowed(place: str, value: Any, said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_method(changed("z3", place, value), "m.yaml")
    assert str(caught.value).startswith("m.yaml: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", METHODS)
def test_letters_of_the_shipped_methods_tell_what_they_do(name: str) -> None:
    method = load_method(name)
    assert planned("delta", name).plan.letters == letters_of(planned("delta", name).plan) == method.letters


@pytest.mark.parametrize(
    ("name", "letters"),
    [("z2o", "z2+o"), ("z3", "z3"), ("z3o", "z3+o"), ("q", "q"), ("z2", "z2"), ("z1", "z1"), ("ddp", "ddp")],
)
def test_the_shipped_methods_are_what_their_names_say(name: str, letters: str) -> None:
    assert load_method(name).letters == letters


def what_it_does(method: Method) -> dict[str, Any]:
    return method.model_dump(exclude={"name", "description", "source"})


@pytest.mark.parametrize(
    ("composed", "same_as"),
    [("z2+o", "z2o"), ("z3+o", "z3o"), ("o+z3", "z3o"), ("Z3+O", "z3o"), ("z3+o+o", "z3o"), ("z2o+o", "z2o"), ("Q", "q")],
)  # fmt: skip
def test_letters_compose_to_the_shipped_method(composed: str, same_as: str) -> None:
    assert what_it_does(load_method(composed)) == what_it_does(load_method(same_as))


def test_letters_switch_what_they_stand_for_and_nothing_else() -> None:
    assert load_method("z3+fp8+r").letters == "z3+r+fp8" and load_method("fp8").letters == "fp8"
    plain, full = load_method("z3"), load_method("z3+r+f")
    assert (full.recompute, full.attention) == (True, "flash_attention_2")
    assert full.deepspeed == plain.deepspeed and full.optimizer == plain.optimizer
    assert full.name == "z3+r+f" and full.letters == "z3+r+f"
    assert full.description == f"{plain.description}, with activation recomputation, FlashAttention-2"


def test_offload_takes_the_parameters_along_only_with_stage_3() -> None:
    cpu = {"device": "cpu", "pin_memory": True}
    for name, stage in (("z1+o", 1), ("z2+o", 2), ("z3+o", 3)):
        zero = load_method(name).deepspeed["zero_optimization"]
        assert zero["stage"] == stage and zero["offload_optimizer"] == cpu
        assert zero.get("offload_param") == (cpu if stage == 3 else None)


@pytest.mark.parametrize(
    ("name", "letters", "quantized", "lora"),
    [
        ("q+r", "q+r", True, False),
        ("z2+q", "z2+q", True, False),
        ("z2+lora", "z2+lora", False, True),
        ("z2+l", "z2+lora", False, True),
        ("qlora+r", "qlora+r", True, True),
        ("ql", "qlora", True, True),
        ("z3+qlora+o", "z3+o+qlora", True, True),
        ("q+lora", "qlora", True, True),
    ],
)
def test_quantized_bases_and_adapters(name: str, letters: str, quantized: bool, lora: bool) -> None:
    method = load_method(name)
    assert method.letters == letters
    assert bool(method.quantization) == quantized and bool(method.peft) == lora
    if method.quantization:
        assert (method.quantization.kind, method.quantization.double_quant) == ("nf4", True)
    base, *added = name.split("+")
    quantized_later: OptimizerName = "AdamW8bit" if "q" in added else "AdamW"
    assert method.optimizer.type == (["AdamWBF16", "AdamW8bit"] if base == "q" else quantized_later)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("z2+z3", PlanError, "method 'z2+z3': z2 and z3 exclude each other. Keep one of them."),
        ("z2o+z3o+r", PlanError, "z2o and z3o exclude each other"),
        ("o", PlanError, "offload needs ZeRO. Put z1, z2 or z3 in front, as in z2+o."),
        ("ddp+o", PlanError, "offload needs ZeRO"),
        ("q+o", PlanError, "offload needs ZeRO"),
        ("z4", ProfileError, "there is no method 'z4'. Valid: bf16, ddp, int8, q, q-hpc2,"),
        ("z3+x", ProfileError, "there is no method 'x'"),
        ("z3o+rr", ProfileError, "there is no letter 'rr' of a method: did you mean 'r'?"),
        ("", ProfileError, "there is no method ''"),
        ("+", ProfileError, "there is no method '+'"),
        ("z3 o", ProfileError, "With + they take letters, as in z3+o+r: o, r, f,"),
        ("../z3", ProfileError, "there is no method '../z3'"),
    ],
)
def test_contradictions_and_wrong_letters_are_refused(name: str, error: type[HpcLlmError], said: str) -> None:
    with pytest.raises(error) as caught:
        load_method(name)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_letters_on_a_broken_own_file_name_the_file(own_folder: Path) -> None:
    (own_folder / "configs").mkdir()
    (own_folder / "configs" / "mine.yaml").write_text("schema: 1\nname: mine\n")
    with pytest.raises(ProfileError, match=r"mine\.yaml: These are missing: description \(text\), letters \(text\)"):
        load_method("mine+r")


def test_letters_compose_with_an_own_method(own_folder: Path) -> None:
    (own_folder / "configs").mkdir()
    (own_folder / "configs" / "mine.yaml").write_text("extends: z2\ndeepspeed: {gradient_clipping: 0.5}\n")
    method = load_method("mine+o+r")
    assert method.letters == "z2+o+r" and method.deepspeed["gradient_clipping"] == 0.5


# --- the homework's values ------------------------------------------------------------------------------------------

CPU = {"device": "cpu", "pin_memory": True}


def adamw(betas: list[float], weight_decay: float) -> dict[str, Any]:
    return {"type": "AdamW", "params": {"lr": 1e-5, "betas": betas, "eps": 1e-8, "weight_decay": weight_decay}}


BATCH = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "steps_per_print": 1,
}
HOMEWORK: dict[str, dict[str, Any]] = {
    "z2o-hpc2": {
        **BATCH,
        "optimizer": adamw([0.9, 0.999], 0.0),
        "fp16": {"enabled": True, "loss_scale": 1024, "initial_scale_power": 10},
        "zero_optimization": {
            "stage": 2, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 2e8,
            "prefetch_bucket_size": 2e8, "offload_optimizer": CPU,
        },
    },
    "z3-hpc2": {
        **BATCH,
        "optimizer": adamw([0.8, 0.999], 3e-7),
        "fp16": {"enabled": True},
        "zero_optimization": {
            "stage": 3, "reduce_scatter": True, "overlap_comm": True, "round_robin_gradients": True,
            "contiguous_gradients": True, "reduce_bucket_size": 1e8, "allgather_bucket_size": 1e8,
            "allgather_partitions": True, "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5,
            "sub_group_size": 5e7, "ignore_unused_parameters": True, "log_trace_cache_warnings": False,
        },
    },
    "z3o-hpc2": {
        **BATCH,
        "optimizer": adamw([0.8, 0.999], 3e-7),
        "fp16": {"enabled": True, "loss_scale": 20, "loss_scale_window": 1000, "initial_scale_power": 12},
        "zero_optimization": {
            "stage": 3, "allgather_partitions": True, "allgather_bucket_size": 5e8, "reduce_bucket_size": 5e8,
            "overlap_comm": True, "reduce_scatter": True, "contiguous_gradients": True, "sub_group_size": 1e12,
            "ignore_unused_parameters": True, "round_robin_gradients": True, "log_trace_cache_warnings": False,
            "offload_param": CPU, "offload_optimizer": CPU,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HOMEWORK)
def test_the_homeworks_methods_carry_its_values(name: str) -> None:
    """On its machine of eight V100: the clipping apart, which is 0 in words where the homework left it to an old default."""
    config = dict(planned("taiwania2", name).plan.engine.deepspeed)
    assert config.pop("gradient_clipping") == 0.0
    assert config == HOMEWORK[name]


def test_no_method_of_ours_holds_a_block_that_nothing_reads() -> None:
    assert not [name for name in method_names() if "activation_checkpointing" in load_method(name).deepspeed]


def test_the_homeworks_quantization_is_what_its_program_does() -> None:
    method = load_method("q-hpc2")
    assert method.optimizer.model_dump() == {
        "type": "Adam8bit", "lr": 2e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0,
    }  # fmt: skip
    assert method.quantization is not None and method.quantization.model_dump() == {"kind": "nf4", "double_quant": True}
    assert method.recompute and method.precision == "bf16" and method.zero_stage == 0
    assert method.deepspeed["gradient_clipping"] == 1.0
    quantize = method.deepspeed["quantize_training"]
    assert quantize["quantize_bits"] == {"start_bits": 16, "target_bits": 8}
    assert quantize["quantize_schedule"] == {"quantize_period": 100, "schedule_offset": 0}
    assert (quantize["quantize_groups"], quantize["quantize_type"], quantize["quantizer_kernel"]) == (
        8,
        "symmetric",
        True,
    )


def printed_config(path: Path) -> dict[str, Any]:
    """The whole configuration that DeepSpeed prints at its start, from a log."""
    text = path.read_text(encoding="utf-8", errors="replace").split("json = ", 1)[1]
    config: dict[str, Any] = json.loads(text[: text.index("\n}") + 2])
    return config


@pytest.mark.skipif(not LOGS.is_dir(), reason="the homework's real logs are not part of the repository")
@pytest.mark.parametrize(
    ("name", "log", "not_ours"),
    [
        # What is under activation_checkpointing changed nothing in theirs: torch recomputed, and not DeepSpeed.
        # This run also offloaded the parameters, which stage 2 passes over.
        ("z2o-hpc2", "nv_zero_2_offload_nv__3c02986.out", {"offload_param"}),
        ("z3-hpc2", "nv_zero_3__910fb59.out", {"activation_checkpointing"}),
        ("z3o-hpc2", "nv_zero_3_offload__6823c4e.out", set()),
        ("z3o-hpc2", "nv_zero_3_offload__f92dc31.out", set()),
        # Its program builds the optimizer and switches recompute on itself; a V100 has no bf16 units.
        ("q-hpc2", "nv_qr__6823c4e.out", {"optimizer", "gradient_checkpointing", "activation_checkpointing", "bf16"}),
    ],
)
def test_the_homeworks_methods_equal_what_its_runs_printed(name: str, log: str, not_ours: set[str]) -> None:
    theirs = printed_config(LOGS / log)
    for key in not_ours:
        theirs.pop(key, None)
        theirs.get("zero_optimization", {}).pop(key, None)
    ours = dict(planned("taiwania2", name).plan.engine.deepspeed)
    if name == "q-hpc2":
        assert ours.pop("fp16") == {"enabled": True}
    else:
        assert ours.pop("gradient_clipping") == 0.0
    if "gradient_accumulation_steps" not in theirs:
        assert ours.pop("gradient_accumulation_steps") == 1
    assert ours == theirs
