"""What a run starts from and how fast it learns, where the request leaves it open."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

from hpc_llm.corpus.key import tokenizer_digest
from hpc_llm.errors import HpcLlmError, ModelRequestError, RequestError
from hpc_llm.planning.method import load_method
from hpc_llm.planning.recipe import ramp_steps
from hpc_llm.planning.synthetic import LOSS_FLOOR_NATS

LLAMA = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 512, "max_position_embeddings": 64,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}


def folder(root: Path, config: dict[str, Any] | None = LLAMA, **files: bytes) -> str:
    """A model's folder; `files` by name, __ standing for a dot."""
    root.mkdir(exist_ok=True)
    if config is not None:
        (root / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, content in files.items():
        (root / name.replace("__", ".")).write_bytes(content)
    return str(root)


def refused(model: str, *settings: str, **asked: Any) -> str:
    with pytest.raises(HpcLlmError) as caught:
        planned("local", "z3", model=model, set=settings, sequence_length=32, **asked)
    assert caught.value.exit_code == 2
    return str(caught.value)


def weights(model: str, *settings: str) -> tuple[str, str]:
    found = planned("local", "z3", model=model, set=settings, sequence_length=32)
    return found.plan.model.weights, found.origins["weights"]


def test_a_preset_is_random_and_says_so() -> None:
    assert weights("tiny") == ("random", "computed: a preset has no weights")
    assert "tiny is a preset, which has the shape of a model and no weights. Give a folder" in refused(
        "tiny", "weights=checkpoint"
    )
    assert "no weights. `hpc-llm fetch llama2-7b --to DIR` brings them, then --model DIR." in refused(
        "llama2-7b", "weights=checkpoint"
    )


@pytest.mark.parametrize("config", [LLAMA, GPT2, {"model_type": "some-new-model"}])
def test_a_folder_with_weights_is_loaded_whatever_the_family(config: dict[str, Any], tmp_path: Path) -> None:
    model = folder(tmp_path / "m", config, model__safetensors=b"x")
    assert weights(model) == ("checkpoint", "computed: the folder holds weights")
    assert weights(model, "weights=random")[0] == "random"


def test_shards_are_all_there_or_the_folder_is_refused(tmp_path: Path) -> None:
    index = json.dumps(
        {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    ).encode()
    model = folder(tmp_path / "m", LLAMA, one__safetensors=b"x", model__safetensors__index__json=index)
    assert f"{model}/two.safetensors cannot be read: No such file or directory. `hpc-llm fetch" in refused(model)
    folder(tmp_path / "m", LLAMA, two__safetensors=b"")
    assert "two.safetensors are an empty file" in refused(model)
    folder(tmp_path / "m", LLAMA, two__safetensors=b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "are a pointer of Git LFS: run `git lfs pull`" in refused(model)
    folder(tmp_path / "m", LLAMA, two__safetensors=b"x")
    assert weights(model)[0] == "checkpoint"
    folder(tmp_path / "m", LLAMA, model__safetensors__index__json=b"[1]")
    assert "does not say which files hold the weights" in refused(model)


@pytest.mark.parametrize("name", ["../out.safetensors", "/etc/hostname", "a/../../b", "", ".", "a\0b"])
def test_an_index_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    index = json.dumps({"weight_map": {"a": "one.safetensors", "b": name}}).encode()
    (tmp_path / "out.safetensors").write_bytes(b"x")
    model = folder(tmp_path / "m", LLAMA, one__safetensors=b"x", model__safetensors__index__json=index)
    assert "index.json names weights that are not in its folder" in refused(model)
    pickled = folder(tmp_path / "p", LLAMA, one__bin=b"x", pytorch_model__bin__index__json=index)
    assert "index.json names weights that are not in its folder" in refused(pickled)


@pytest.mark.parametrize("name", ["../out.safetensors", "other.safetensors", 3])
def test_a_config_that_names_other_weights_is_refused(tmp_path: Path, name: object) -> None:
    """transformers would load these in place of those that are looked at."""
    config = {**LLAMA, "transformers_weights": name}
    model = folder(tmp_path / "m", config, model__safetensors=b"x", other__safetensors=b"x")
    assert "names its weights by transformers_weights" in refused(model)
    config["transformers_weights"] = "model.safetensors"
    assert weights(folder(tmp_path / "m", config))[0] == "checkpoint"


def test_a_tokenizer_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text("{}")
    model = folder(tmp_path / "m", LLAMA, model__safetensors=b"x", tokenizer__json=b"{}")
    settings = Path(model) / "tokenizer_config.json"
    for key, name in (
        ("tokenizer_file", f"{tmp_path}/words.json"),
        ("vocab_file", os.path.relpath(tmp_path / "words.json")),
    ):
        settings.write_text(json.dumps({key: name}))
        assert f"names a file that is not in its folder, {key}" in refused(model)
        with pytest.raises(ModelRequestError, match="names a file that is not in its folder"):
            tokenizer_digest(model)
    stale = {
        "tokenizer_file": "/home/who/saved/it.json",
        "special_tokens_map_file": str(tmp_path / "words.json"),
        "vocab_file": None,
    }
    settings.write_text(json.dumps({**stale, "merges_file": f"{model}/merges.txt", "name_or_path": str(tmp_path)}))
    assert weights(model)[0] == "checkpoint" and tokenizer_digest(model)


def test_a_config_alone_is_random_only_when_that_is_said(tmp_path: Path) -> None:
    model = folder(tmp_path / "m")
    assert "holds a config.json and no weights. To train its shape from random weights, add --set weights=random" in refused(model)  # fmt: skip
    assert "holds a config.json and no weights" in refused(model, "weights=checkpoint")
    assert weights(model, "weights=random") == ("random", "request: set")


@pytest.mark.parametrize(
    ("config", "files", "said"),
    [
        (None, {}, "holds no config.json, so it is no checkpoint"),
        (LLAMA, {"adapter_config__json": b"{}"}, "holds an adapter of PEFT beside the config of a model"),
        (LLAMA, {"adapter_config__json": b"{}", "model__safetensors": b"x"}, "merge it into its model"),
        (LLAMA, {"consolidated__00__pth": b"x"}, "in the format of Meta"),
        (
            {"model_type": "bart", "is_encoder_decoder": True},
            {"model__safetensors": b"x"},
            "of the family bart: of these only t5",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_says_why(
    config: dict[str, Any] | None, files: dict[str, bytes], said: str, tmp_path: Path
) -> None:
    assert said in refused(folder(tmp_path / "m", config, **files))


def test_an_entry_of_the_hubs_cache_names_the_folder_within(tmp_path: Path) -> None:
    (tmp_path / "models--a--b" / "snapshots").mkdir(parents=True)
    inner = folder(tmp_path / "models--a--b" / "snapshots" / "0123", LLAMA, model__safetensors=b"x")
    assert refused(str(tmp_path / "models--a--b")).endswith(f"the model is in {inner}: give that folder.")


@pytest.mark.parametrize(
    "name", ["./here", "../m", "~nobody/m", "~/m", "a/b/c", "models/llama/", "a/../b", "org/.hidden"]
)
def test_only_what_the_hub_can_have_is_to_be_downloaded(name: str) -> None:
    said = refused(name)
    assert said.startswith("there is no folder /") and "Give the full path" in said
    assert "download" not in said and "~/" not in said


@pytest.mark.parametrize("name", ["meta-llama/Llama-2-7b-hf", "gpt2/large", "models/llama"])
def test_a_name_of_the_hub_or_a_path_of_elsewhere_is_refused_with_the_way(name: str) -> None:
    said = refused(name)
    assert f"there is no such folder as '{name}' here. " in said
    fetched = f"`hpc-llm fetch {name} --to DIR`, then --model DIR." in said
    assert fetched == (not name.startswith((".", "~")))
    assert ("--model llama2-7b is its shape with random weights." in said) == name.startswith("meta-llama")


def test_a_name_without_a_slash_is_a_preset_or_wrong() -> None:
    assert "there is no model 'tin': did you mean 'tiny'?" in refused("tin")
    assert "there is no model 'gpt2'" in refused("gpt2")


def test_a_folder_of_the_cluster_alone_needs_the_users_word(tmp_path: Path) -> None:
    elsewhere = "/work/on/the/cluster/only"
    assert f"there is no folder {elsewhere} here. If only the cluster has it, say what it holds: --set weights=checkpoint" in refused(elsewhere)  # fmt: skip
    found = planned("taiwania2", "z3", model=elsewhere, set=("weights=checkpoint",))
    assert (found.plan.model.weights, found.plan.job.name, found.plan.optimizer.lr) == ("checkpoint", "only-z3", 2e-5)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"x")
    assert "is a file: give the folder that holds it" in refused(str(file))


def test_text_for_loaded_weights_needs_their_tokenizer(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", LLAMA, model__safetensors=b"x")
    text = str(tmp_path / "a.txt")
    assert f"--data {text}: the folder {model} holds no tokenizer" in refused(model, data=(text,))
    assert planned("local", "z3", model=model, data=(text,), set=("weights=random",), sequence_length=32)
    folder(tmp_path / "m", LLAMA, vocab__json=b"{}", merges__txt=b"")
    assert planned("local", "z3", model=model, data=(text,), sequence_length=32).plan.model.weights == "checkpoint"


def test_a_sequence_longer_than_a_checkpoint_takes_is_refused(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", GPT2, model__safetensors=b"x")
    with pytest.raises(RequestError, match="takes 1024 tokens at most"):
        planned("local", "z3", model=model, sequence_length=1025)


@pytest.mark.parametrize(
    ("model", "rate"),
    [("tiny", 8e-4), ("llama-68m", 1e-4), ("llama3.2-1b", 5e-5), ("llama2-7b", 2e-5), ("llama2-13b", 2e-5), ("llama2-70b", 1e-5)],
)  # fmt: skip
def test_the_default_learning_rate_goes_down_with_the_width(model: str, rate: float) -> None:
    found = planned("local", "z3", model=model)
    assert found.plan.optimizer.lr == found.plan.engine.deepspeed["optimizer"]["params"]["lr"] == rate
    assert f"lr: default for {model}: 0.1 / hidden size" in found.origins["optimizer"]


def test_a_learning_rate_that_is_said_stands() -> None:
    assert planned("local", "z3", set=("optimizer.lr=3e-4",)).plan.optimizer.lr == 3e-4
    assert planned("local", "z3-hpc2").plan.optimizer.lr == 1e-5
    assert planned("local", "z3-hpc2").plan.training.lr_ramp_steps == 0
    lora = planned("local", "z2+lora", model="llama2-7b")
    assert lora.plan.optimizer.lr == 2e-4
    assert (
        lora.origins["optimizer"]
        == "method z2+lora, lr: default for LoRA on llama2-7b: 1 / hidden size 4096, rounded to one digit"
    )
    assert planned("local", "z2+lora", model="/elsewhere", set=("weights=checkpoint",)).plan.optimizer.lr == 2e-4
    quantized = planned("delta", "q", model="llama2-7b")
    assert quantized.plan.optimizer.lr == 2e-4 and "a quantized base" in quantized.origins["optimizer"]
    assert load_method("z3").optimizer.lr is None


@pytest.mark.parametrize(("steps", "ramp"), [(3, 1), (8, 4), (30, 5), (60, 6), (200, 20), (100_000, 2000)])
def test_the_learning_rate_rises_over_the_first_steps(steps: int, ramp: int) -> None:
    assert ramp_steps(steps) == ramp
    assert planned("local", "z3", steps=steps).plan.training.lr_ramp_steps == ramp


def test_one_thing_sets_the_learning_rate() -> None:
    scheduler = "deepspeed.scheduler={type: WarmupLR, params: {warmup_num_steps: 5}}"
    assert planned("local", "z3", set=(scheduler,)).plan.training.lr_ramp_steps == 0
    with pytest.raises(RequestError, match=r"deepspeed\.scheduler sets the learning rate too"):
        planned("local", "z3", set=(scheduler, "lr_ramp_steps=5"))


def test_the_plan_says_what_can_be_learned_of_its_data(tmp_path: Path) -> None:
    assert planned("local", "z3").plan.training.loss_floor_nats == pytest.approx(1.2130, abs=1e-4) == LOSS_FLOOR_NATS
    assert planned("local", "z3", data=(str(tmp_path / "a.txt"),)).plan.training.loss_floor_nats is None


@pytest.mark.parametrize(
    ("model", "targets", "said"),
    [
        ("llama2-7b", "[q_proj, self_attn.v_proj]", None),
        ("llama2-7b", "[q_proj, v]", "no layer 'v' in peft.target_modules for llama2-7b"),
        ("llama2-7b", "[]", "peft.target_modules is empty. Layers of llama2-7b: q_proj"),
        ("flan-t5-base", "[q, v]", None),
        ("flan-t5-base", "[q_proj]", "Valid: k, lm_head, o, q"),
    ],
)
def test_adapters_are_put_on_layers_that_are_there(model: str, targets: str, said: str | None) -> None:
    def ask() -> Any:
        return planned("local", "ddp+lora", model=model, set=(f"peft.target_modules={targets}",)).plan.model.peft

    if said is None:
        assert ask().target_modules == targets.strip("[]").split(", ")
        return
    with pytest.raises(RequestError, match=re.escape(said)):
        ask()


def test_a_t5_is_refused_flash_attention_and_warned_of_fp16() -> None:
    with pytest.raises(RequestError, match="leave f out, or --set attention=sdpa"):
        planned("delta", "ddp+f", model="flan-t5-base")
    assert any(
        "in fp16 its numbers can overflow" in one for one in planned("taiwania2", "z2", model="flan-t5-base").notices
    )
    assert not planned("delta", "z2", model="flan-t5-base").notices
