"""What planning knows of families is what the transformers that is here has."""

from __future__ import annotations

from transformers import __version__
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from hpc_llm.planning import families
from hpc_llm.planning.encoder_decoder import _BY_DEFAULT


def test_no_family_is_refused_of_which_there_is_a_language_model() -> None:
    assert not families._WITHOUT & {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    if __version__ == families.RELEASE:
        assert {*CONFIG_MAPPING_NAMES} - {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - families._WITHOUT == {"t5"}


def test_families_with_an_encoder_and_a_decoder_have_both_by_default() -> None:
    made_of_others = {"encoder-decoder"}
    assert all(
        CONFIG_MAPPING[name]().is_encoder_decoder for name in (_BY_DEFAULT & {*CONFIG_MAPPING_NAMES}) - made_of_others
    )
