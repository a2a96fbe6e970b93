"""A checkpoint is what is trained: its first loss is the one that transformers gives it, or nothing is trained at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, first_loss, save
from tiny_plans import RunPlan, make_plan
from transformers import AutoModelForCausalLM

from hpc_llm.errors import ModelFileError, WorkerError
from hpc_llm.records.models import write_manifest
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.model.build import load_model
from hpc_llm.worker.model.giving import source
from hpc_llm.worker.model.weights import _names, load_checkpoint

pytestmark = pytest.mark.train

SHORT = {"precision": "fp32", "steps": 3, "warmup_steps": 0}


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in RunPaths(folder).steps.read_text().splitlines()]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "t5"])
@pytest.mark.parametrize("method", ["z2o", "z3"])
def test_each_family_starts_from_its_weights(family: str, method: str, run_plan: RunPlan, tmp_path: Path) -> None:
    model = save(tmp_path / "model", family, shards=family in ("qwen2", "gpt2"))
    plan = make_plan(method, model=str(model), **SHORT)
    result = run_plan(plan)
    assert result["outcome"] == "COMPLETED", result["outcome_reason"]
    assert result["weights"] == "checkpoint"
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan), rel=1e-5)


@pytest.mark.parametrize("method", ["ddp", "z3o", "lora", "z3lora"])
def test_each_method_starts_from_the_weights(method: str, run_plan: RunPlan, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama", pickled=method in ("ddp", "z3lora"))
    plan = make_plan(method, model=str(model), **SHORT)
    assert run_plan(plan)["outcome"] == "COMPLETED"
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan), rel=1e-5)


@pytest.mark.parametrize("method", ["q", "qlora", "z3qlora"])
def test_quantized_weights_are_near_to_those_of_the_checkpoint(method: str, run_plan: RunPlan, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama")
    plan = make_plan(method, model=str(model), **{**SHORT, "precision": "bf16"})
    assert run_plan(plan)["outcome"] == "COMPLETED"
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan), rel=2e-3)


def damaged(folder: Path, damage: str) -> Path:
    """A checkpoint whose weights are not those of its config.json."""
    from safetensors.torch import load_file, save_file

    save(folder, "llama")
    path = folder / "model.safetensors"
    held = load_file(path)
    if damage == "lacks":
        del held["model.layers.1.mlp.up_proj.weight"]
    elif damage == "also holds":
        held["model.layers.2.mlp.up_proj.weight"] = held["model.layers.1.mlp.up_proj.weight"].clone()
    elif damage == "shape":
        held["model.norm.weight"] = held["model.norm.weight"][:-1].clone()
    save_file(held, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("method", ["z2", "z3", "q"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("lacks", "lacks model.layers.1.mlp.up_proj.weight"),
        ("also holds", "also holds model.layers.2.mlp.up_proj.weight"),
        ("shape", "norm.weight"),
    ],
)
def test_weights_that_do_not_fit_train_nothing(
    method: str, damage: str, said: str, run_plan: RunPlan, tmp_path: Path
) -> None:
    result = run_plan(make_plan(method, model=str(damaged(tmp_path / "model", damage)), **SHORT))
    assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
    assert said in result["outcome_reason"]


@pytest.mark.parametrize("method", ["ddp", "z2", "z3", "z2o", "q", "z3lora"])
def test_a_kept_model_that_does_not_hold_what_was_written_trains_nothing(
    method: str, run_plan: RunPlan, tmp_path: Path
) -> None:
    model = save(tmp_path / "model", "llama", shards=method == "z3")
    write_manifest(model)
    weights = max(model.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\0"))
    result = run_plan(make_plan(method, model=str(model), **SHORT))
    assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
    assert f"{weights.name} does not hold what was written, by its checksum in kept.json" in result["outcome_reason"]


@pytest.mark.parametrize("text", [None, "{", '{"digests": [1]}', '{"digests": {"model.safetensors": 5}}'])
def test_a_record_of_checksums_that_is_damaged_is_told_and_none_is_nothing(text: str | None, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama")
    write_manifest(model)
    load_checkpoint(str(model), torch.float32)
    (model / "kept.json").unlink()
    if text is None or "[" in text:
        (model / "kept.json").write_text(text or "{}")
        load_checkpoint(str(model), torch.float32)
    else:
        (model / "kept.json").write_text(text)
        with pytest.raises(ModelFileError, match=r"kept\.json cannot be read: .* remove kept\.json"):
            load_checkpoint(str(model), torch.float32)


@pytest.mark.parametrize("is_other", [False, True])
def test_a_head_of_its_own_is_not_lost_where_the_config_ties_it(is_other: bool, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save(tmp_path / "model", "llama")
    path, config = folder / "model.safetensors", folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tie_word_embeddings": True}))
    held = load_file(path)
    head = held["lm_head.weight"] if is_other else held["model.embed_tokens.weight"].clone()
    save_file({**held, "lm_head.weight": head}, path, metadata={"format": "pt"})
    if is_other:
        with pytest.raises(ModelFileError, match=r"ties to other weights: lm_head\.weight"):
            load_checkpoint(str(folder), torch.float32)
    else:
        model = load_checkpoint(str(folder), torch.float32)
        assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize("kind", ["int16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.0.self_attn.q_proj.bias"])
def test_whole_numbers_are_no_weights(kind: str, name: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save(tmp_path / "model", "qwen2")
    path = folder / "model.safetensors"
    held = load_file(path)
    save_file({**held, name: held[name].to(getattr(torch, kind))}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=f"whole numbers.*{name}|{name} as whole numbers"):
        load_checkpoint(str(folder), torch.float32)


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.0.self_attn.q_proj.bias"])
@pytest.mark.parametrize("shards", [False, True])
def test_pickled_whole_numbers_are_no_weights(kind: str, name: str, shards: bool, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", "qwen2", pickled=True)
    path = folder / "pytorch_model.bin"
    held = torch.load(path, weights_only=True)
    torch.save({**held, name: held[name].to(getattr(torch, kind))}, path)
    if shards:
        path = path.rename(folder / "part-1.bin")
        index = {"metadata": {}, "weight_map": dict.fromkeys(held, path.name)}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match=f"whole numbers.*{name}|{name} as whole numbers"):
        load_checkpoint(str(folder), torch.float32)


def test_a_pickled_quantized_model_whose_config_does_not_say_so_is_refused(run_plan: RunPlan, tmp_path: Path) -> None:
    """By a method that quantizes, too: whole numbers would be quantized once more."""
    folder = save(tmp_path / "model", "llama", pickled=True)
    path = folder / "pytorch_model.bin"
    held = torch.load(path, weights_only=True)
    torch.save({n: (100 * t).to(torch.int8) if "proj" in n else t for n, t in held.items()}, path)
    for method in ("ddp", "q"):
        result = run_plan(make_plan(method, model=str(folder), **SHORT))
        assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
        assert "as whole numbers (I8), and a model computes with fractions" in result["outcome_reason"]
        shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0},
        {"num_hidden_layers": 10**9},
        {"hidden_size": 65},
        {"hidden_size": 65, "head_dim": None},
    ],
)
@pytest.mark.parametrize("weights", ["random", "checkpoint"])
def test_a_config_that_was_changed_into_nonsense_builds_nothing(
    changes: dict[str, int], weights: str, run_plan: RunPlan, tmp_path: Path
) -> None:
    model = save(tmp_path / "model", "llama")
    plan = make_plan("ddp", model=str(model), weights=weights, **SHORT)
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    result = run_plan(plan)
    assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
    assert f"ModelFileError: {path}: " in result["outcome_reason"] or (
        f"the config.json in {model} cannot be used: The hidden size (65) is not" in result["outcome_reason"]
    )


def test_weights_that_no_memory_here_holds_are_not_built(run_plan: RunPlan, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama")
    config = json.loads((model / "config.json").read_text())
    big = {"num_hidden_layers": 9000, "hidden_size": 65536, "intermediate_size": 65536}
    (model / "config.json").write_text(json.dumps({**config, **big}))
    result = run_plan(make_plan("ddp", model=str(model), weights="random", **SHORT))
    assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
    assert "GiB of host and GPU memory in all: nothing was built" in result["outcome_reason"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "own.py--Model"}, "model_type": "own"}, "cannot be used"),
        ({"model_type": "t5gemma"}, "of these only t5 is trained"),
        ({"model_type": "whatever-comes"}, "cannot be used"),
    ],
)
def test_what_transformers_cannot_load_fails_with_a_sentence(
    config: dict[str, Any], said: str, run_plan: RunPlan, tmp_path: Path
) -> None:
    model = save(tmp_path / "model", "llama")
    (model / "config.json").write_text(json.dumps(config))
    (model / "own.py").write_text("raise SystemExit('code of the folder was run')")
    result = run_plan(make_plan("z2", model=str(model), **SHORT))
    assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
    assert said in result["outcome_reason"]


class Hidden:
    """What a stranger may put into a file of weights: code that whoever reads all of it runs."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("method", ["ddp", "z3", "q"])
@pytest.mark.parametrize(
    "kind", ["code", "code beside weights", "old format", "shards", "a training's state", "no dictionary", "cut off"]
)
def test_pickled_weights_with_more_than_tensors_are_refused_in_a_sentence_of_ours(
    method: str, kind: str, run_plan: RunPlan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, mark = save(tmp_path / "model", "llama", pickled=True), tmp_path / "ran"
    path = model / "pytorch_model.bin"
    held = torch.load(path, weights_only=True)
    if kind == "shards":
        path = path.rename(model / "part-1.bin")
        index = {"metadata": {}, "weight_map": dict.fromkeys(held, path.name)}
        (model / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    content: Any = {
        "code": Hidden(mark),
        "a training's state": {"model": held, "step": 3},
        "no dictionary": list(held.values()),
        "cut off": held,
    }.get(kind, {**held, "more": Hidden(mark)})
    torch.save(content, path, _use_new_zipfile_serialization=kind != "old format")
    if kind == "cut off":
        path.write_bytes(path.read_bytes()[:1000])
    result = run_plan(make_plan(method, model=str(model), **SHORT))
    assert (result["outcome"], result["measured_steps"], mark.exists()) == ("FAILED", 0, False)
    assert (
        f"ModelFileError: the model {model} is " in result["outcome_reason"] and path.name in result["outcome_reason"]
    )
    printed = capfd.readouterr()
    left = (path.read_text() for path in (tmp_path / "run").rglob("*.json"))
    assert not any("weights_only" in text or "Weights only" in text for text in (printed.out, printed.err, *left))


@pytest.mark.parametrize("format", ["today's", "old"])
def test_pickled_weights_of_either_format_are_loaded(format: str, run_plan: RunPlan, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama", pickled=True)
    path = model / "pytorch_model.bin"
    torch.save(torch.load(path, weights_only=True), path, _use_new_zipfile_serialization=format != "old")
    plan = make_plan("ddp", model=str(model), **SHORT)
    assert run_plan(plan)["outcome"] == "COMPLETED"
    assert losses(tmp_path / "run")[0] == pytest.approx(first_loss(model, plan), rel=1e-5)


@pytest.mark.parametrize("name", ["../out.safetensors", "{folder}/out.safetensors", "sub/../../out.safetensors"])
def test_weights_outside_the_models_folder_train_nothing(name: str, run_plan: RunPlan, tmp_path: Path) -> None:
    """The index may have been changed since the run was planned."""
    model = save(tmp_path / "model", "llama")
    (model / "sub").mkdir()
    held = _names(model / "model.safetensors")
    (model / "model.safetensors").rename(tmp_path / "out.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(held, name.format(folder=tmp_path))}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    result = run_plan(make_plan("ddp", model=str(model), **SHORT))
    assert (result["outcome"], result["measured_steps"]) == ("FAILED", 0)
    assert (
        "ModelFileError: " in result["outcome_reason"]
        and "weights that are not in its folder" in result["outcome_reason"]
    )


def test_a_folder_that_the_node_does_not_see_is_named(run_plan: RunPlan, tmp_path: Path) -> None:
    result = run_plan(make_plan("z3", model=str(tmp_path / "none")))
    assert result["outcome"] == "FAILED"
    assert f"the folder {tmp_path / 'none'} holds no config.json" in result["outcome_reason"]


@pytest.mark.parametrize("method", ["z2", "z3", "q"])
def test_a_shape_alone_is_trained_from_random_weights_where_that_is_planned(
    method: str, run_plan: RunPlan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model", "llama")
    (model / "model.safetensors").unlink()
    result = run_plan(make_plan(method, model=str(model), weights="random"))
    assert (result["outcome"], result["weights"]) == ("COMPLETED", "random")
    assert f"pretrain_llm: random weights in the shape of {model}, on synthetic tokens" in capfd.readouterr().out
    assert result["loss_floor_nats"] < result["loss_last"] < result["loss_first"] - 0.2


@pytest.mark.parametrize("table", [b"no json", b"[1, 2]", b"[" * 5000, b'{"a": '])
def test_a_table_of_weights_that_is_none_is_said_to_be_damaged(table: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(table).to_bytes(8, "little") + table)
    with pytest.raises(WorkerError, match="are damaged: the table at their beginning"):
        _names(path)


@pytest.mark.parametrize("stored", ["bfloat16", "float16", "float32"])
def test_what_is_given_to_other_ranks_stays_in_its_files(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped into memory as it is written: a copy of it all, in another type at that, no host has to hold."""
    model = save(tmp_path / "model", "llama")
    AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, stored)).save_pretrained(model)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    given = source(make_plan("z3", model=str(model)), torch.float32) or {}
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    places = [tuple(int(end, 16) for end in line[0].split("-")) for line in maps if line[-1].endswith(".safetensors")]
    weights = {name: each for name, each in given.items() if isinstance(each, torch.nn.Parameter)}
    assert len(weights) == 21
    for name, weight in weights.items():
        assert weight.dtype == getattr(torch, stored), name
        assert any(begin <= weight.data_ptr() < end for begin, end in places), name


def test_a_checkpoint_comes_to_its_device_without_help(tmp_path: Path) -> None:
    """Where accelerate is not installed, or the device is none that it loads to: here one without memory."""
    model = save(tmp_path / "model", "qwen2")
    loaded = load_model(make_plan("ddp", model=str(model)), {}, torch.device("meta"))
    assert all(each.is_meta for each in (*loaded.parameters(), *loaded.buffers()))
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
