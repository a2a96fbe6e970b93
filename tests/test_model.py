"""Presets, their parameter counts, and how a name becomes an architecture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpc_llm.errors import RequestError
from hpc_llm.planning.model import PRESETS, Architecture, Shape, architecture, is_checkpoint, num_parameters

PUBLISHED = {
    "llama-68m": 68_030_208,
    "tinyllama-1.1b": 1_100_048_384,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "mistral-7b": 7_248_023_552,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "flan-t5-small": 76_961_152,
    "flan-t5-base": 247_577_856,
    "flan-t5-large": 783_150_080,
    "flan-t5-xl": 2_849_757_184,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_presets_have_the_published_number_of_parameters(name: str, count: int) -> None:
    assert num_parameters(PRESETS[name]) == count


def test_parameters_worked_by_hand() -> None:
    # hidden 128, 4 heads of 32, 2 key-value heads (width 64), MLP 384, 2 layers, vocabulary 512, untied
    attention = 128 * 128 + 2 * 128 * 64 + 128 * 128
    mlp = 3 * 128 * 384
    norms = 2 * 128
    total = 2 * 512 * 128 + 2 * (attention + mlp + norms) + 128
    assert num_parameters(PRESETS["tiny"]) == total == 524_928


@pytest.mark.parametrize("name", PRESETS)
def test_transformers_counts_the_same(name: str) -> None:
    import torch

    from hpc_llm.worker.model.shapes import hf_config
    from hpc_llm.worker.model.weights import model_class

    arch = replace(PRESETS[name], num_hidden_layers=2)  # each layer is the same; two show it and build fast
    config = hf_config(arch)
    with torch.device("meta"):
        model = model_class(config).from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters(arch)
    if isinstance(arch, Architecture):
        assert model.config.rope_parameters["rope_theta"] == arch.rope_theta


def test_a_hub_name_means_its_preset_unless_such_a_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert architecture("meta-llama/Llama-2-7b-hf") == PRESETS["llama2-7b"]
    write_config(tmp_path / "meta-llama" / "Llama-2-7b-hf", PRESETS["tiny"])
    assert architecture("meta-llama/Llama-2-7b-hf").hidden_size == 128
    (tmp_path / "tiny").mkdir()
    assert not is_checkpoint("tiny")  # a preset's own name stays the preset


def test_a_checkpoint_folder_is_read(tmp_path: Path) -> None:
    folder = write_config(tmp_path / "checkpoint", PRESETS["qwen2-0.5b"])
    found = architecture(str(folder))
    assert num_parameters(found) == PUBLISHED["qwen2-0.5b"]
    assert found.source == str(folder / "config.json")


def write_config(folder: Path, arch: Shape) -> Path:
    folder.mkdir(parents=True)
    values = {**arch.config_values(), "model_type": arch.model_type}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_an_unknown_model_names_the_closest_and_all() -> None:
    with pytest.raises(RequestError, match=r"no model 'llama2-7': did you mean 'llama2-7b'\? Valid: .*tiny") as error:
        architecture("llama2-7")
    assert "folder" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no config.json"),
        ("{", "is not JSON"),
        ("[]", "must hold one JSON object"),
        ('{"model_type": "bert"}', "is of the family bert; layer by layer only llama, "),
        ('{"model_type": "llama"}', "lacks or misspells 'num_attention_heads'"),
    ],
)
def test_a_folder_that_is_no_checkpoint_says_what_is_wrong(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(RequestError, match=message):
        architecture(str(tmp_path))
