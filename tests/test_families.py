"""A folder of a family of which transformers makes no language model of text is refused where it is planned, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

from hpc_llm.errors import HpcLlmError

SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
    "max_position_embeddings": 512,
}  # fmt: skip


def asked(at: Path, config: dict[str, Any], **more: Any) -> str:
    """What is said of it; nothing where it is planned."""
    at.mkdir(exist_ok=True)
    (at / "config.json").write_text(json.dumps({**SIZES, **config}))
    try:
        planned("local", "ddp", **{"model": str(at), "set": ("weights=random",), **more})
    except HpcLlmError as error:
        assert error.exit_code == 2
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"depth": 2}},
         "is of the family qwen2_5_vl (Qwen2_5_VLForConditionalGeneration), which takes pictures, and transformers has no causal"),
        ({"model_type": "paligemma", "vision_config": {"depth": 2}}, "is of the family paligemma, which takes pictures, and"),
        ({"model_type": "qwen2_audio", "audio_config": {"d_model": 8}}, "is of the family qwen2_audio, which takes sound, and"),
        ({"model_type": "siglip", "architectures": ["SiglipModel"]}, "is of the family siglip (SiglipModel) and transformers"),
        ({"model_type": "mistral3", "architectures": 3}, "is of the family mistral3 and transformers has no"),
        ({"model_type": "albert", "is_decoder": True}, "is of the family albert and transformers has no"),
        ({"model_type": "patchtst"}, "is of the family patchtst and"),
        ({"model_type": "whisper"}, "is an encoder and decoder of the family whisper: of these only t5 is trained"),
        ({"model_type": "mt5"}, "is an encoder and decoder of the family mt5"),
        ({"model_type": "pegasus", "is_encoder_decoder": True}, "is an encoder and decoder of the family pegasus"),
    ],
)  # fmt: skip
def test_a_family_without_a_language_model_of_text_is_refused(
    config: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in asked(tmp_path / "m", config)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {}, "text_config": SIZES},
        {"model_type": "mllama", "vision_config": {"depth": 2}}, {"model_type": "bart", "is_encoder_decoder": False},
        {"model_type": "a_family_of_next_year", "architectures": ["OursForConditionalGeneration"], "vision_config": {"depth": 2}},
        {"model_type": 7}, {"model_type": "modernbert-decoder"},
    ],
)  # fmt: skip
def test_what_may_run_is_planned(config: dict[str, Any], tmp_path: Path) -> None:
    assert asked(tmp_path / "m", config) == ""


def test_vllm_makes_its_models_itself(tmp_path: Path) -> None:
    how = {"task": "infer", "set": ("engine=vllm", "weights=random")}
    assert asked(tmp_path / "m", {"model_type": "qwen2_vl"}, **how) == ""
    assert "is of the family qwen2_vl" in asked(tmp_path / "m", {"model_type": "qwen2_vl"}, task="infer")
