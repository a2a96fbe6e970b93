"""What was generated, a line a query: whole or not at all, for half of it would be taken for all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import replacing
from hpc_llm.worker.preparing.encoding import BYTE_END


@dataclass(frozen=True)
class Output:
    """The answer to one query."""

    query: int
    """Its place among all queries, from 0."""
    prompt: list[int]
    generated: list[int]
    """Tokens, the end included."""


def write_outputs(path: Path, outputs: Iterable[Output], plan: Plan) -> None:
    """Write them in the order of the queries, with their texts where the tokens are those of a text.

    Raises:
        OSError: the disk is full, or the folder gone. Nothing is left there then.
    """
    text_of = _reader(plan)
    with replacing(path) as file:
        for one in sorted(outputs, key=lambda output: output.query):
            row: dict[str, Any] = {"query": one.query, "prompt_tokens": one.prompt, "generated_tokens": one.generated}
            if text_of is not None:
                row |= {"prompt": text_of(one.prompt), "generated": text_of(one.generated)}
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _reader(plan: Plan) -> Any:
    """What makes text of tokens; None where they were made up."""
    from hpc_llm.corpus.facts import read_facts
    from hpc_llm.corpus.key import BYTES

    if plan.inference.corpus is None:
        return None
    if read_facts(Path(plan.inference.corpus)).tokenizer == BYTES:
        return text_of_bytes
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(plan.model.name, local_files_only=True, trust_remote_code=False)
    return lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True)


def text_of_bytes(tokens: list[int]) -> str:
    """The text of tokens that are bytes; what stands for no byte is left out."""
    return bytes(token for token in tokens if token < BYTE_END).decode("utf-8", "replace")
