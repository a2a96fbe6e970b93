"""What planning knows of families is what the transformers that is here has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, __version__
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from hpc_llm.estimating import family_facts
from hpc_llm.estimating.family_facts import facts_of
from hpc_llm.estimating.shapes import sizes_of_model
from hpc_llm.planning import families
from hpc_llm.planning.encoder_decoder import _BY_DEFAULT
from hpc_llm.planning.model import MODEL_TYPES


def test_no_family_is_refused_of_which_there_is_a_language_model() -> None:
    assert not families._WITHOUT & {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    if __version__ == families.RELEASE:
        assert {*CONFIG_MAPPING_NAMES} - {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - families._WITHOUT == {"t5"}


def test_families_with_an_encoder_and_a_decoder_have_both_by_default() -> None:
    made_of_others = {"encoder-decoder"}
    assert all(
        CONFIG_MAPPING[name]().is_encoder_decoder for name in (_BY_DEFAULT & {*CONFIG_MAPPING_NAMES}) - made_of_others
    )


SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 4000,
}
COUNTED = sorted((family_facts._TWO_MATRICES | family_facts._GATED) & {*CONFIG_MAPPING_NAMES})


UNMADE = {"hunyuan_v1_dense", "ministral"}
"""Of which transformers makes no model from its own defaults."""


@pytest.mark.parametrize("family", sorted({*COUNTED} - {*MODEL_TYPES} - UNMADE))
def test_the_parameters_of_a_family_are_those_of_its_model(family: str, tmp_path: Path) -> None:
    values = SIZES | ({"num_key_value_heads": 2} if hasattr(CONFIG_MAPPING[family](), "num_key_value_heads") else {})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **values}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**values, pad_token_id=0))
    model.tie_weights()
    held = sum(one.numel() for one in model.parameters())
    assert sizes_of_model(str(tmp_path)).parameters == pytest.approx(held, rel=0.01)


def test_the_defaults_of_each_family_are_those_of_its_config() -> None:
    for family in COUNTED:
        config, facts = CONFIG_MAPPING[family](**SIZES), facts_of(family)
        assert facts is not None and config.tie_word_embeddings is facts.is_tied, family
        if __version__ == families.RELEASE:
            assert (getattr(config, "head_dim", None) or 128) == (facts.head_dim or 128), family
