"""Data sets that are known by name: where they are, which of their splits are used, and what of a row is prompt and answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpc_llm.errors import RequestError, unknown_name

TEXT, PROMPT, COMPLETION, MESSAGES = COLUMNS = ("text", "prompt", "completion", "messages")
"""What the fields of a row can be; see `columns`."""


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """One data set of the Hub."""

    hub: str
    """Its name there."""
    config: str | None = None
    train: str = "train"
    """Name of the split that is trained on."""
    validation: str | None = "validation"
    """Name of the split that is evaluated."""
    columns: Mapping[str, str]
    """What is learned, from which fields of a row: a field's name, or a text with names in braces."""
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For a field that is a number: the word that stands for each; a row with another number is left out."""


KNOWN_SETS: dict[str, KnownSet] = {
    "wikitext-2-raw-v1": KnownSet(hub="Salesforce/wikitext", config="wikitext-2-raw-v1", columns={TEXT: "text"}),
    "gsm8k": KnownSet(
        hub="openai/gsm8k",
        config="main",
        validation="test",
        columns={PROMPT: "Question: {question}\nAnswer:", COMPLETION: " {answer}"},
    ),
    "glue/sst2": KnownSet(
        hub="nyu-mll/glue",
        config="sst2",
        columns={PROMPT: "Review: {sentence}\nSentiment:", COMPLETION: " {label}"},
        words={"label": {"0": "negative", "1": "positive"}},
    ),
    "mosaicml/instruct-v3": KnownSet(
        hub="mosaicml/instruct-v3", validation="test", columns={PROMPT: "prompt", COMPLETION: "response"}
    ),
    "dialogsum": KnownSet(
        hub="knkarthick/dialogsum", columns={PROMPT: "summarize: {dialogue}\n", COMPLETION: "summary"}
    ),
    "smangrul/ultrachat-10k-chatml": KnownSet(
        hub="smangrul/ultrachat-10k-chatml", validation="test", columns={MESSAGES: "messages"}
    ),
}
"""The sets of the projects that this program took its methods from."""


def check_columns(columns: Mapping[str, str]) -> None:
    """Raise RequestError where the names are not those of one kind of sample."""
    for name in columns:
        if name not in COLUMNS:
            raise RequestError(unknown_name("column", name, COLUMNS, where="columns"))
    if set(columns) not in ({TEXT}, {PROMPT, COMPLETION}, {MESSAGES}):
        raise RequestError(
            f"columns names {', '.join(columns)}: either text alone, or prompt and completion, or messages alone says what a row is."
        )
