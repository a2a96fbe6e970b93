"""Which models in a folder train or answer as language models that write from left to right, told by their config.json.

transformers makes such a model of an encoder, too, without a word: each place sees those behind it, and the loss falls to nothing.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_llm.errors import ModelRequestError, PlanError
from hpc_llm.text.late_pattern import late_pattern

_ENCODERS = frozenset(
    """albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie esm eurobert flaubert fnet
    funnel ibert layoutlm longformer luke megatron-bert mobilebert modernbert mpnet mra nezha nomic_bert nystromformer qdqbert
    reformer rembert roberta roberta-prelayernorm roc_bert roformer splinter squeezebert xlm xlm-roberta xlm-roberta-xl xlnet xmod
    yoso""".split()
)
"""Families whose models see the whole text at each place, unless the config says is_decoder."""
_OTHER_HEAD = late_pattern(r"(?:For(?!CausalLM|ConditionalGeneration)[A-Z]\w{1,60}|EncoderModel)\Z")
"""How the names of classes end that are made for something else: ForSequenceClassification, ForMaskedLM."""


def check_kind(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ModelRequestError for a model that does not write text from left to right."""
    family = config.get("model_type")
    if family in _ENCODERS and config.get("is_decoder") is not True:
        raise ModelRequestError(
            f"the model in {folder} is an encoder of the family {family}, which sees a text whole and foretells no next token: give one "
            "that writes (the families of GPT, Llama, Qwen or T5, say)."
        )
    named = config.get("architectures")
    classes = [one for one in named if isinstance(one, str)] if isinstance(named, list) else []
    if classes and all(_OTHER_HEAD.search(one) for one in classes):
        raise ModelRequestError(
            f"the model in {folder} is a {classes[0][:80]}, which lacks the layer that foretells tokens: give the folder of the language "
            "model that it was made of."
        )


def check_stored(name: str, config: Mapping[str, Any], planned: tuple[str, bool] | None) -> None:
    """Raise PlanError for weights that are stored quantized in another way than the plan's: they are frozen, however it trains.

    `planned` is the kind of the plan's quantization, and whether its constants are quantized too.
    """
    said = config.get("quantization_config")
    if said is None:
        return
    how = str(said.get("quant_method") or "bitsandbytes") if isinstance(said, Mapping) else "nobody knows what"
    stored = _as_of_bitsandbytes(said) if isinstance(said, Mapping) and how == "bitsandbytes" else None
    if stored is None:
        raise PlanError(
            f"the weights in {name} are quantized with {how[:40]}, which is not trained and not read here: give the folder of the model "
            "that they were made of, which q and ql quantize as it is loaded."
        )
    if planned != stored:
        raise PlanError(
            f"the weights in {name} are quantized to {_words(stored)} by bitsandbytes, and the plan's are {_words(planned)}: "
            "take a method that says the same (q and ql, with --set quantization.kind=… and quantization.double_quant=…), or give the folder "
            "of the model that they were made of."
        )


def _as_of_bitsandbytes(said: Mapping[str, Any]) -> tuple[str, bool] | None:
    kind = said.get("bnb_4bit_quant_type", "fp4")
    if said.get("load_in_8bit") is True:
        return "int8", False
    if said.get("load_in_4bit") is True and kind in ("nf4", "fp4"):
        return kind, said.get("bnb_4bit_use_double_quant") is True
    return None


def _words(how: tuple[str, bool] | None) -> str:
    if how is None:
        return "not quantized"
    kind, is_double = how
    return f"{kind} with double quantization" if is_double else kind
