"""What a run starts from and how fast it learns, where the request leaves it open."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from made_runs import tensors
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


WHOLE = tensors({"model.norm.weight": 16}, "BF16")


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
    model = folder(tmp_path / "m", config, model__safetensors=WHOLE)
    assert weights(model) == ("checkpoint", "computed: the folder holds weights")
    assert weights(model, "weights=random")[0] == "random"


def test_shards_are_all_there_or_the_folder_is_refused(tmp_path: Path) -> None:
    held = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    index = json.dumps({"metadata": {}, **held}).encode()
    model = folder(tmp_path / "m", LLAMA, one__safetensors=WHOLE, model__safetensors__index__json=index)
    assert f"{model}/two.safetensors cannot be read: No such file or directory. `hpc-llm fetch" in refused(model)
    folder(tmp_path / "m", LLAMA, two__safetensors=b"")
    assert "two.safetensors are an empty file" in refused(model)
    folder(tmp_path / "m", LLAMA, two__safetensors=b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "are a pointer of Git LFS: run `git lfs pull`" in refused(model)
    folder(tmp_path / "m", LLAMA, two__safetensors=WHOLE)
    assert weights(model)[0] == "checkpoint"
    folder(tmp_path / "m", LLAMA, model__safetensors__index__json=json.dumps(held).encode())
    assert 'index.json has no "metadata", without which transformers loads no weights in parts' in refused(model)
    folder(tmp_path / "m", LLAMA, model__safetensors__index__json=b"[1]")
    assert "does not say which files hold the weights" in refused(model)


@pytest.mark.parametrize("name", ["../out.safetensors", "/etc/hostname", "a/../../b", "", ".", "a\0b"])
def test_an_index_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    index = json.dumps({"metadata": {}, "weight_map": {"a": "one.safetensors", "b": name}}).encode()
    (tmp_path / "out.safetensors").write_bytes(b"x")
    model = folder(tmp_path / "m", LLAMA, one__safetensors=WHOLE, model__safetensors__index__json=index)
    assert "index.json names weights that are not in its folder" in refused(model)
    pickled = folder(tmp_path / "p", LLAMA, one__bin=b"x", pytorch_model__bin__index__json=index)
    assert "index.json names weights that are not in its folder" in refused(pickled)


@pytest.mark.parametrize("name", ["../out.safetensors", "other.safetensors", 3])
def test_a_config_that_names_other_weights_is_refused(tmp_path: Path, name: object) -> None:
    """transformers would load these in place of those that are looked at."""
    config = {**LLAMA, "transformers_weights": name}
    model = folder(tmp_path / "m", config, model__safetensors=WHOLE, other__safetensors=WHOLE)
    assert "names its weights by transformers_weights" in refused(model)
    config["transformers_weights"] = "model.safetensors"
    assert weights(folder(tmp_path / "m", config))[0] == "checkpoint"


def test_a_tokenizer_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text("{}")
    model = folder(tmp_path / "m", LLAMA, model__safetensors=WHOLE, tokenizer__json=b"{}")
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
        (LLAMA, {"adapter_config__json": b"{}", "model__safetensors": WHOLE}, "merge it into its model"),
        (LLAMA, {"consolidated__00__pth": b"x"}, "in the format of Meta"),
        (
            {"model_type": "bart", "is_encoder_decoder": True},
            {"model__safetensors": WHOLE},
            "of the family bart: of these only t5",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_says_why(
    config: dict[str, Any] | None, files: dict[str, bytes], said: str, tmp_path: Path
) -> None:
    assert said in refused(folder(tmp_path / "m", config, **files))


def test_a_folder_of_which_a_part_is_the_model_names_that_part(tmp_path: Path) -> None:
    """The folder of a run in place of its model/, a folder of checkpoints, the folder of runs."""
    run = tmp_path / "logs" / "run-1"
    (run / "checkpoints" / "step-5").mkdir(parents=True)
    (run / "experiment.json").write_text("{}")
    assert "is that of a run that kept no model: a run keeps one with --save-every N." in refused(str(run))
    model = folder(run / "model", LLAMA, model__safetensors=WHOLE)
    for one in (run, run / "checkpoints", run / "checkpoints" / "step-5"):
        assert refused(str(one)).endswith(f"its model is in {model}: give that folder.")
    assert refused(str(run.parent)).endswith(f"holds no model itself; one is in {model}: give that folder.")
    (run / "model" / "config.json").rename(run / "model" / "adapter_config.json")
    assert "kept an adapter of PEFT" in refused(str(run)) and "--resume run-1" in refused(str(run))
    (tmp_path / "out").mkdir()
    several = [folder(tmp_path / "out" / f"checkpoint-{n}", LLAMA, model__safetensors=WHOLE) for n in (10, 20)]
    assert refused(str(tmp_path / "out")).endswith(f"models are in {several[0]}, {several[1]}: give one of these.")
    assert weights(several[0])[0] == "checkpoint"
    assert refused(f"{several[0]}/config.json").endswith(f"is a file: give its folder, {several[0]}.")


def test_an_entry_of_the_hubs_cache_names_the_folder_within(tmp_path: Path) -> None:
    (tmp_path / "models--a--b" / "snapshots").mkdir(parents=True)
    inner = folder(tmp_path / "models--a--b" / "snapshots" / "0123", LLAMA, model__safetensors=WHOLE)
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
    assert f"there is no folder {elsewhere} here. If only the machine has it on which the run starts, say what it holds: --set weights=checkpoint" in refused(elsewhere)  # fmt: skip
    found = planned("taiwania2", "z3", model=elsewhere, set=("weights=checkpoint",))
    assert (found.plan.model.weights, found.plan.job.name, found.plan.optimizer.lr) == ("checkpoint", "only-z3", 2e-5)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"x")
    assert "is a file: give the folder that holds it" in refused(str(file))


def test_text_for_loaded_weights_needs_their_tokenizer(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", LLAMA, model__safetensors=WHOLE)
    text = str(tmp_path / "a.txt")
    assert f"--data {text}: the folder {model} holds no tokenizer" in refused(model, data=(text,))
    assert planned("local", "z3", model=model, data=(text,), set=("weights=random",), sequence_length=32)
    folder(tmp_path / "m", LLAMA, vocab__json=b"{}", merges__txt=b"")
    assert planned("local", "z3", model=model, data=(text,), sequence_length=32).plan.model.weights == "checkpoint"


def test_a_sequence_longer_than_a_checkpoint_takes_is_refused(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", GPT2, model__safetensors=WHOLE)
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


def test_a_t5_takes_any_length_whatever_it_was_trained_with(tmp_path: Path) -> None:
    """Its positions are relative; n_positions is written into each T5 and limits nothing."""
    sizes = {
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 512,
        "n_positions": 512,
    }
    model = folder(tmp_path / "m", {"model_type": "t5", **sizes})
    found = planned("local", "z3", model=model, sequence_length=1024, set=("weights=random",))
    assert found.plan.batch.sequence_length == 1024
    small = folder(tmp_path / "g", {**GPT2, "n_positions": 512}, model__safetensors=WHOLE)
    with pytest.raises(HpcLlmError, match="takes 512 tokens at most"):
        planned("local", "z3", model=small, sequence_length=1024)


def test_a_t5_is_refused_flash_attention_and_warned_of_fp16() -> None:
    with pytest.raises(RequestError, match="leave f out, or --set attention=sdpa"):
        planned("delta", "ddp+f", model="flan-t5-base")
    assert any(
        "in fp16 its numbers can overflow" in one for one in planned("taiwania2", "z2", model="flan-t5-base").notices
    )
    assert not planned("delta", "z2", model="flan-t5-base").notices


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, it must be a whole number from 1 to 10000"),
        ({"num_key_value_heads": 10**25}, "num_key_value_heads is 10000000000000000000000000, it must be a whole number from 1 to 100000"),
        ({"num_hidden_layers": 3.5}, "num_hidden_layers is 3.5, it must be a whole number"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers is '3', it must be a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, it must be a whole number"),
        ({"num_hidden_layers": [1, 2]}, r"num_hidden_layers is \[1, 2\], it must be"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, it must be a whole number from 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"hidden_size": -8}, "hidden_size is -8"),
        ({"hidden_size": 9}, "the hidden size 9 is no multiple of the 2 attention heads"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "num_attention_heads 4 is no multiple of num_key_value_heads 3"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings is 'long'"),
        ({"rope_theta": "big"}, "rope_theta is 'big', it must be a number above 0"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', it must be true or false"),
        ({"num_hidden_layers": 9000, "hidden_size": 10**6, "intermediate_size": 10**6}, "a model of these sizes has more than 9e[+]15 parameters"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("weights", ["checkpoint", "random"])
def test_a_config_whose_sizes_no_model_has_is_refused(
    changes: dict[str, Any], said: str, weights: str, tmp_path: Path
) -> None:
    model = folder(tmp_path / "m", {**LLAMA, **changes}, model__safetensors=WHOLE)
    sentence = refused(model, f"weights={weights}")
    assert re.search(said, sentence) and f"{model}/config.json" in sentence


def test_sizes_that_a_family_may_have_are_taken(tmp_path: Path) -> None:
    own = {"model_type": "other", "num_hidden_layers": 2, "intermediate_size": [8, 16], "hidden_size": 9}
    for number, config in enumerate(
        (own, {**LLAMA, "hidden_size": 9, "head_dim": 4}, {**LLAMA, "num_key_value_heads": None})
    ):
        assert weights(folder(tmp_path / f"m{number}", config, model__safetensors=WHOLE))[0] == "checkpoint"


def with_table(table: object, data: bytes = b"x" * 16) -> bytes:
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head + data


A = {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x", "would take 120 bytes, and the file has 1"),
        ((10**6).to_bytes(8, "little") + b"{}", "would take 1000000 bytes, and the file has 10"),
        (with_table([1]), "is no JSON object"),
        (with_table({"a.weight": 3}), "gives no type, shape and place of a.weight"),
        (with_table({"a.weight": {**A, "shape": [-8]}}), "gives no type, shape and place of a.weight"),
        (with_table({"a.weight": {**A, "data_offsets": [16, 0]}}), "gives no type, shape and place of a.weight"),
        (with_table({"a.weight": {**A, "shape": [10**9]}}), "a.weight takes 16 bytes, and its type and shape 2000000000"),
        (with_table({"a.weight": {**A, "shape": [4], "data_offsets": [8, 16]}}), "a.weight begins at byte 8 of the data, where byte 0 is next"),
        (with_table({"a.weight": A, "b.weight": A}), "b.weight begins at byte 0 of the data, where byte 16 is next"),
        (with_table({"a.weight": A}, b"x" * 15), "is of 16 bytes of data, and the file has 15"),
        (tensors({"a.norm.weight": 16}, "I16"), r"hold a.norm.weight as whole numbers \(I16\)"),
        (tensors({"a.norm.weight": 16}, "U8"), r"hold a.norm.weight as whole numbers \(U8\)"),
    ],
)  # fmt: skip
def test_weights_whose_table_cannot_be_true_are_refused_by_name(content: bytes, said: str, tmp_path: Path) -> None:
    model = folder(tmp_path / "m", LLAMA, model__safetensors=content)
    sentence = refused(model)
    assert re.search(said, sentence) and f"the weights {model}/model.safetensors " in sentence


def test_whole_numbers_are_taken_where_they_are_no_weights_or_the_model_is_quantized(tmp_path: Path) -> None:
    masks = tensors({"h.0.attn.bias": 16}, "U8")
    assert weights(folder(tmp_path / "m", GPT2, model__safetensors=masks))[0] == "checkpoint"
    config = {**LLAMA, "quantization_config": {"load_in_8bit": True}}
    packed = folder(tmp_path / "q", config, model__safetensors=tensors({"a.weight": 16}, "I8"))
    found = planned(
        "local",
        "ql",
        model=packed,
        sequence_length=32,
        set=("quantization.kind=int8", "quantization.double_quant=false"),
    )
    assert found.plan.model.weights == "checkpoint"


NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


@pytest.mark.parametrize(
    ("method", "how", "said"),
    [
        ("z3", {"quant_method": "gptq", "bits": 4}, "are quantized with gptq, which is not trained and not read here: give the folder"),
        ("ql", {"quant_method": "awq"}, "are quantized with awq"),
        ("q", {"quant_method": "fp8"}, "are quantized with fp8"),
        ("ddp", "4 bits", "are quantized with nobody knows what"),
        ("ddp", NF4, "are quantized to nf4 by bitsandbytes, and the plan's are not quantized: take a method that says the same"),
        ("ql", NF4, "are quantized to nf4 by bitsandbytes, and the plan's are nf4 with double quantization"),
        ("int8", NF4, "are quantized to nf4 by bitsandbytes, and the plan's are int8"),
    ],
)  # fmt: skip
def test_weights_that_are_stored_otherwise_than_the_plan_says_are_refused(
    method: str, how: Any, said: str, tmp_path: Path
) -> None:
    """They stay frozen, whatever the plan says: a run of `ddp` would train nothing but its norms."""
    model = folder(tmp_path / "m", {**LLAMA, "quantization_config": how}, model__safetensors=WHOLE)
    with pytest.raises(HpcLlmError, match=re.escape(said)):
        planned("local", method, model=model, sequence_length=32)
    assert (
        planned("local", method, model=model, sequence_length=32, set=("weights=random",)).plan.model.weights
        == "random"
    )


def test_weights_that_are_stored_as_the_plan_says_are_taken(tmp_path: Path) -> None:
    how = {**NF4, "bnb_4bit_use_double_quant": True}
    model = folder(tmp_path / "m", {**LLAMA, "quantization_config": how}, model__safetensors=WHOLE)
    assert planned("local", "ql", model=model, sequence_length=32).plan.model.weights == "checkpoint"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "is an encoder of the family bert"),
        ({"model_type": "xlm-roberta"}, "is an encoder of the family xlm-roberta"),
        ({"model_type": "roberta", "is_decoder": False}, "is an encoder of the family roberta"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "is a LlamaForSequenceClassification, which lacks the layer"),
        ({"architectures": ["T5EncoderModel"]}, "is a T5EncoderModel"),
        ({"architectures": ["Qwen2ForRewardModel"]}, "is a Qwen2ForRewardModel"),
    ],
)  # fmt: skip
def test_a_model_that_writes_no_text_is_refused(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    model = folder(tmp_path / "m", {**LLAMA, **more}, model__safetensors=WHOLE)
    assert said in refused(model) and said in refused(model, "weights=random")


@pytest.mark.parametrize(
    "more",
    [
        {"model_type": "bert", "is_decoder": True}, {"architectures": ["LlamaForCausalLM"]}, {"architectures": ["LlamaModel"]}, {"architectures": 3},
        {"architectures": ["LlamaForSequenceClassification", "LlamaForCausalLM"]}, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
    ],
)  # fmt: skip
def test_a_model_that_writes_text_is_taken(more: dict[str, Any], tmp_path: Path) -> None:
    assert weights(folder(tmp_path / "m", {**LLAMA, **more}, model__safetensors=WHOLE))[0] == "checkpoint"


def test_a_sequence_in_which_nothing_is_foretold_is_refused() -> None:
    with pytest.raises(
        HpcLlmError, match=r"sequence_length 1: each token is foretold .* Ask for 2 at least with --sequence-length"
    ):
        planned("local", "z3", sequence_length=1)
    assert planned("local", "z3", sequence_length=2).plan.batch.sequence_length == 2
