"""Which fields of a row are what: as the request says, as the set is known, or as the fields are called. Standard library only."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpc_llm.corpus.sets import COMPLETION, MESSAGES, PROMPT, TEXT
from hpc_llm.corpus.sources import CSV, JSONL, SourceFile
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.records.files import open_plain

FIELD = re.compile(r"\{(\w+)\}")
_PAIRS = (
    ("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("instruction", "output"),
    ("instruction", "response"), ("dialogue", "summary"), ("document", "summary"), ("input", "output"), ("source", "target"),
)  # fmt: skip
_TEXTS = ("text", "content")
_CHATS = ("messages", "conversation", "conversations")
_LOOKED_AT = 1 << 20
"""Bytes in which a first row is looked for."""


def guessed_columns(row: Mapping[str, Any]) -> dict[str, str] | None:
    """What the names of the fields say; None where they say nothing."""
    chat = next((name for name in _CHATS if isinstance(row.get(name), list)), None)
    if chat is not None:
        return {MESSAGES: chat}
    for prompt, answer in _PAIRS:
        if prompt in row and answer in row:
            more = "\n{input}" if prompt == "instruction" and "input" in row else ""
            return {PROMPT: f"{{{prompt}}}{more}\n", COMPLETION: answer}
    text = next((name for name in _TEXTS if name in row), None)
    return None if text is None else {TEXT: text}


def columns_of(place: str, row: Mapping[str, Any]) -> dict[str, str]:
    """The same. Raises RequestError where they say nothing."""
    columns = guessed_columns(row)
    if columns is None:
        raise RequestError(
            f"{place} has the fields {', '.join(map(str, row)) or 'of nothing'}, and none of them says by its name what is to be "
            "learned. Name them: --set columns.text=FIELD, or --set columns.prompt=FIELD and --set columns.completion=FIELD, or "
            "--set columns.messages=FIELD."
        )
    return columns


def check_first_rows(files: Sequence[SourceFile], asked: Mapping[str, str]) -> None:
    """Raise RequestError where the first row of a file lacks a field that is asked for, or its fields say nothing.

    What cannot be read so fast is left to the program that prepares the data.
    """
    for file in files:
        found = _first_row(file)
        if found is None or (file.known_set is not None and not asked):
            continue
        place, row = found
        if not asked:
            columns_of(place, row)
        for name, template in asked.items():
            for field in FIELD.findall(template) or [template]:
                if field not in row:
                    raise RequestError(
                        f"--set columns.{name}={template}: " + unknown_name("field", field, map(str, row), where=place)
                    )


def _first_row(file: SourceFile) -> tuple[str, Mapping[str, Any]] | None:
    """The first row and its place; None where the beginning of the file shows none."""
    if file.kind not in (JSONL, CSV):
        return None
    try:
        with open_plain(file.path) as opened:
            text = opened.read(_LOOKED_AT).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    lines = text.split("\n")
    if file.kind == CSV:
        try:
            row = next(csv.DictReader(io.StringIO(text)), None)
        except csv.Error:
            return None
        return (f"{file.path} line 1", {key: value for key, value in row.items() if key is not None}) if row else None
    number = next((number for number, line in enumerate(lines, 1) if line.strip()), None)
    try:
        first = json.loads(lines[number - 1]) if number is not None else None
    except (ValueError, RecursionError):
        return None
    return (f"{file.path} line {number}", first) if isinstance(first, dict) else None
