"""Which fields of a row are what: as the request says, as the set is known, or as the fields are called. Standard library only."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpc_llm.corpus.sets import COMPLETION, MESSAGES, PROMPT, TEXT
from hpc_llm.corpus.sources import CSV, JSONL, SourceFile
from hpc_llm.corpus.tables import table_rows
from hpc_llm.errors import DataFileError, DataRequestError, RequestError, notice, unknown_name
from hpc_llm.records.files import open_plain

FIELD = re.compile(r"\{(\w+)\}")
_PAIRS = (
    ("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("instruction", "output"),
    ("instruction", "response"), ("dialogue", "summary"), ("document", "summary"), ("input", "output"), ("source", "target"),
)  # fmt: skip
_TEXTS = ("text", "content")
_CHATS = ("messages", "conversation", "conversations")
_SYSTEMS = ("system", "system_prompt")
_BESIDE = (
    "input", "inputs", "context", "contexts", "history", "passage", "passages", "document", "documents", "article", "paragraph",
    "background", "knowledge", "evidence", "dialogue", "story", "choices", "options", "hint", "premise", "hypothesis", "persona",
    "schema", "examples",
)  # fmt: skip
"""Fields that mostly belong to what is asked: an answer that is learned without them is learned by heart."""
_ASKS = ("instruction", "question", "query")
"""They ask themselves, or a field called prompt says all that they do."""
_BESIDE_CHAT = ("context", "contexts", "documents", "history", "tools", "functions")
_LOOKED_AT = 1 << 20
"""Bytes in which a first row is looked for."""


@dataclass(frozen=True)
class Guess:
    """What the names of the fields say of each row of a source."""

    columns: Mapping[str, str]
    fields: frozenset[str]
    """Those that are read."""
    optional: frozenset[str] = frozenset()
    """Those of them that a row may leave empty, or lack."""
    system: str | None = None
    """The field whose text is a chat's system message."""

    def left_out(self, row: Mapping[str, Any]) -> list[str]:
        """The fields of a row that nothing is learned of."""
        return [str(name) for name in row if name not in self.fields]

    def check(self, place: str, row: Mapping[str, Any]) -> None:
        """Raise RequestError where a row says something in a field that may belong to its prompt, and is not read."""
        unread = [name for name in self._doubtful() if row.get(name) and name not in self.fields]
        if unread:
            raise RequestError(self._refusal(place, row, unread))

    def _doubtful(self) -> Sequence[str]:
        if MESSAGES in self.columns:
            return _BESIDE_CHAT
        if PROMPT not in self.columns:
            return ()
        return _BESIDE if "prompt" in self.fields else (*_BESIDE, *_ASKS)

    def _refusal(self, place: str, row: Mapping[str, Any], unread: Sequence[str]) -> str:
        names = " and ".join(unread)
        if MESSAGES in self.columns:
            return (
                f"{place} has {names} beside its messages, which would be left out. Write it into the messages, or leave it out: "
                f"--set columns.messages={self.columns[MESSAGES]}."
            )
        answer, prompt = self.columns[COMPLETION], self.columns[PROMPT].replace("\n", "\\n")
        more = "".join(f"{{{name}}}\\n" for name in unread)
        is_text = all(isinstance(row[name], str) for name in unread)
        with_it = (
            f"With it: --set columns.prompt=$'{more}{prompt}' --set columns.completion={answer}"
            if is_text
            else "With it: write it as text into a field of its own, and name that in columns.prompt"
        )
        return (
            f"{place} has {names} beside {answer}, which may belong to the prompt, and no name says where. {with_it}; without it: "
            f"--set columns.prompt=$'{prompt}' --set columns.completion={answer}."
        )


def guessed_columns(row: Mapping[str, Any]) -> Guess | None:
    """What the names of the fields say; None where they say nothing."""
    system = next((name for name in _SYSTEMS if name in row), None)
    chat = next((name for name in _CHATS if isinstance(row.get(name), list)), None)
    if chat is not None:
        return Guess({MESSAGES: chat}, frozenset(filter(None, (chat, system))), system=system)
    for prompt, answer in _PAIRS:
        if prompt in row and answer in row:
            before, after = _around(prompt, row)
            parts = [*filter(None, (system,)), *before, prompt, *after]
            columns = {PROMPT: "".join(f"{{{name}}}\n" for name in parts), COMPLETION: answer}
            return Guess(columns, frozenset((*parts, answer)), frozenset(parts) - {prompt})
    text = next((name for name in _TEXTS if name in row), None)
    return None if text is None else Guess({TEXT: text}, frozenset((text,)))


def _around(prompt: str, row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The fields whose text stands before and behind a prompt, as the sets write them that made the names known."""
    if prompt == "question":
        return [name for name in ("context",) if name in row], []
    behind = [name for name in ("context", "input") if name in row] if prompt == "instruction" else []
    return [], behind if len(behind) < 2 else []


def columns_of(place: str, row: Mapping[str, Any]) -> Guess:
    """The same. Raises RequestError where they say nothing, or leave open what belongs to a prompt."""
    guess = guessed_columns(row)
    chat = next((name for name in _CHATS if name in row), None)
    if guess is None and chat is not None:
        check_messages(row[chat], chat, place)
    if guess is None:
        raise RequestError(
            f"{place} has the fields {', '.join(map(str, row)) or 'of nothing'}, and none of them says by its name what is to be "
            "learned. Name them: --set columns.text=FIELD, or --set columns.prompt=FIELD and --set columns.completion=FIELD, or "
            "--set columns.messages=FIELD."
        )
    guess.check(place, row)
    return guess


_KINDS = {dict: "a mapping", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}
"""Types of JSON in words."""


def check_messages(value: Any, name: str, place: str) -> None:
    """Raise DataRequestError where a chat's field holds no list of messages, whose first is looked at alone."""
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, Mapping):
        return
    holds = (
        "an empty list"
        if value == []
        else _KINDS.get(type(value), "nothing")
        if first is None
        else "a list of something else"
    )
    raise DataRequestError(
        f"--data {place}: the field '{name}' holds {holds}, and a list of messages is needed, as in "
        '[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}].'
    )


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
            guess = columns_of(place, row)
            _tell_left_out(file, guess.left_out(row))
            _check_first_chat(guess.columns, place, row)
        for name, template in asked.items():
            for field in FIELD.findall(template) or [template]:
                if field not in row:
                    raise RequestError(
                        f"--set columns.{name}={template}: " + unknown_name("field", field, map(str, row), where=place)
                    )
        _check_first_chat(asked, place, row)


def _check_first_chat(columns: Mapping[str, str], place: str, row: Mapping[str, Any]) -> None:
    name = columns.get(MESSAGES)
    if name is not None and row.get(name) is not None:  # a row without it is told, with its number, where all are read
        check_messages(row[name], name, place)


def _tell_left_out(file: SourceFile, names: Sequence[str]) -> None:
    if names:
        notice(f"{file.path}: nothing is learned of {', '.join(names)}; --set columns.… says what is")


def _first_row(file: SourceFile) -> tuple[str, Mapping[str, Any]] | None:
    """The first row and its place; None where the beginning of the file shows none."""
    if file.kind not in (JSONL, CSV):
        return None
    try:
        with open_plain(file.path) as opened:
            data = opened.read(_LOOKED_AT)
            text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    if file.kind == CSV:
        return _first_of_table(text, file.path, is_whole=len(data) < _LOOKED_AT)
    lines = text.split("\n")
    number = next((number for number, line in enumerate(lines, 1) if line.strip()), None)
    try:
        first = json.loads(lines[number - 1]) if number is not None else None
    except (ValueError, RecursionError):
        return None
    return (f"{file.path} line {number}", first) if isinstance(first, dict) else None


def _first_of_table(text: str, path: str, *, is_whole: bool) -> tuple[str, Mapping[str, Any]] | None:
    try:
        found = next(table_rows(io.StringIO(text, newline=""), path), None)
    except DataFileError as error:
        if is_whole:  # else what is seen of it may be cut off
            raise DataRequestError(f"--data {error}") from None
        return None
    return None if found is None else (f"{path} line {found[0]}", found[1])
