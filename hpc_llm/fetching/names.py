"""What a name means that somebody asks for: a model or a data set, under which name of the Hub, and which part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.errors import RequestError
from hpc_llm.planning.model import ALIASES, PRESETS
from hpc_llm.text.homes import from_home
from hpc_llm.text.secrecy import redacted

MODEL, DATASET = "model", "dataset"

DATASETS = {
    **{name: (one.hub, one.config or "") for name, one in KNOWN_SETS.items()},
    "wikitext-103-raw-v1": ("Salesforce/wikitext", "wikitext-103-raw-v1"),
    "openai/gsm8k": ("openai/gsm8k", "main"),
    "knkarthick/dialogsum": ("knkarthick/dialogsum", ""),
}
"""Data sets that are known without saying that they are: their name on the Hub, and the folder there that is meant."""
_HUB_PRESETS = {preset: hub_name for hub_name, preset in ALIASES.items()}
_SITE = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn)/")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,95})(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?")


@dataclass(frozen=True)
class Wanted:
    """What is to be fetched."""

    asked: str
    """As somebody asked for it."""
    kind: str
    """`model` or `dataset`."""
    name: str
    """Its name on the Hub."""
    folder: str = ""
    """The one folder of a data set that is meant; empty where it is all."""
    is_sure: bool = True
    """Whether the name itself says which kind it is."""


def read_name(asked: str) -> Wanted:
    """What `asked` means: a preset, a name of the Hub, `datasets/NAME`, a known data set, or the address of a page.

    Raises:
        RequestError: it can be none of these.

    >>> read_name("llama2-7b").name, read_name("glue/sst2").folder, read_name("datasets/a/b/c").folder
    ('meta-llama/Llama-2-7b-hf', 'sst2', 'c')
    """
    name = _SITE.sub("", asked.strip()).removeprefix("models/")
    name = re.sub(r"/(?:tree|blob|resolve)/.*|/files$", "", name.rstrip("/"))
    if name in PRESETS:
        return Wanted(asked, MODEL, _of_preset(name))
    marked = name.removeprefix("datasets/")
    if marked in DATASETS:
        hub_name, folder = DATASETS[marked]
        return Wanted(asked, DATASET, hub_name, folder)
    if marked != name:
        parts = marked.split("/")
        return Wanted(asked, DATASET, _checked("/".join(parts[:2]), asked), "/".join(parts[2:]))
    return Wanted(asked, MODEL, _checked(name, asked), is_sure=False)


def is_name(text: object) -> bool:
    """Whether a hub can have a model or data set of that name; what is no name, or a secret, is nowhere shown as one.

    >>> is_name("org/rows"), is_name("../../rows"), is_name(None)
    (True, False, False)
    """
    return isinstance(text, str) and bool(_NAME.fullmatch(text)) and ".." not in text and redacted(text) == text


def _of_preset(name: str) -> str:
    if name not in _HUB_PRESETS:
        raise RequestError(
            f"{name} is a preset that stands for no published model, so there is nothing to fetch: --model {name} trains it "
            f"from random weights. Presets that are on the Hub: {', '.join(sorted(_HUB_PRESETS))}."
        )
    return _HUB_PRESETS[name]


def _checked(name: str, asked: str) -> str:
    if _NAME.fullmatch(name) and ".." not in name and name not in ("datasets", "models"):
        return name
    if asked.strip() and from_home(asked).exists():
        raise RequestError(
            f"{asked} is here already: give it as --model or --data. To copy it and check the copy: "
            f"hpc-llm fetch NAME --from {asked} --to DIR."
        )
    raise RequestError(
        f"'{asked}' is no name of a model or data set. Valid: OWNER/NAME as on the Hub, a preset that `hpc-llm models` lists, "
        f"datasets/OWNER/NAME, or one of {', '.join(DATASETS)}."
    )
