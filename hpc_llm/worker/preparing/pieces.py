"""What of a row is learned: its fields as pieces of text, some of which are given and some are to be predicted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpc_llm.corpus.columns import FIELD, Guess, columns_of
from hpc_llm.corpus.sets import COMPLETION, KNOWN_SETS, MESSAGES, PROMPT, TEXT, check_columns
from hpc_llm.errors import DataFileError

_KINDS: Mapping[type, str] = {
    bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list", bytes: "bytes",
}  # fmt: skip
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Piece:
    """A part of a sample."""

    text: str
    is_trained: bool


Chat = Callable[[Sequence[Mapping[str, Any]], str], list[Piece]]
"""Messages in the words of the model's chat template; the second argument is where they are."""


@dataclass(frozen=True)
class Reader:
    """How the rows of one source become samples."""

    columns: Mapping[str, str]
    words: Mapping[str, Mapping[str, str]]
    chat: Chat
    ends_line: bool = False
    """Whether a prompt ends with its line, as where the field's name says what it is."""
    guess: Guess | None = None
    """Where the names of the fields alone say how they are read."""

    @property
    def is_text(self) -> bool:
        """Whether all of a row is to be learned."""
        return TEXT in self.columns

    def told(self, row: Mapping[str, Any]) -> str:
        """As what the fields of a row are read, and which are not."""
        read = [f"{what}: {field}" for what, field in self.columns.items()]
        if self.guess is not None:
            read += [f"system: {self.guess.system}"] * (self.guess.system is not None)
            left = self.guess.left_out(row)
            read += [f"left out: {' '.join(left)}"] * bool(left)
        return ", ".join(read)

    def pieces(self, row: Mapping[str, Any], place: str) -> list[Piece]:
        """The sample of a row; none where it is of no use. Raises DataFileError where it lacks a field."""
        named = self._with_words(row, place)
        if named is None:
            return []
        if MESSAGES in self.columns:
            name = self.columns[MESSAGES]
            messages = _checked_messages(_value(named, name, place), name, place)
            return self.chat([*self._system(named, messages, place), *messages], place)
        if TEXT in self.columns:
            text = _filled(self.columns[TEXT], named, place)
            return [Piece(text, True)] if text.strip() else []
        prompt, answer = (_filled(self.columns[name], named, place) for name in (PROMPT, COMPLETION))
        if not prompt.strip() and not answer.strip():
            return []
        return [Piece(f"{prompt}\n" if self.ends_line else prompt, False), Piece(answer, True)]

    def _with_words(self, row: Mapping[str, Any], place: str) -> Mapping[str, Any] | None:
        """The row with words for what it says in numbers; None where a number has no word."""
        found = dict(row)
        if self.guess is not None:
            self.guess.check(place, row)
            found |= {name: "" for name in self.guess.optional if row.get(name) is None}
        for name, words in self.words.items():
            word = words.get(str(row.get(name)))
            if word is None and name in row:
                return None
            found[name] = word
        return found

    def _system(
        self, row: Mapping[str, Any], messages: Sequence[Mapping[str, str]], place: str
    ) -> list[dict[str, str]]:
        """The system message that stands in a field of its own, unless the messages begin with one."""
        name = self.guess.system if self.guess is not None else None
        if name is None or not row.get(name) or messages[0]["role"] == "system":
            return []
        return [{"role": "system", "content": _text(row[name], name, place)}]


def reader_for(
    asked: Mapping[str, str], known_set: str | None, first: Mapping[str, Any], place: str, chat: Chat
) -> Reader:
    """How to read rows of which `first` is one: as the request says, as the set is known, or as its fields are called.

    Raises:
        RequestError: the request names no such thing, or nothing says what is to be learned.
    """
    if asked:
        check_columns(asked)
        return Reader(asked, {}, chat, ends_line=not FIELD.search(asked.get(PROMPT, "")))
    if known_set is not None:
        one = KNOWN_SETS[known_set]
        return Reader(one.columns, one.words, chat)
    guess = columns_of(place, first)
    return Reader(guess.columns, {}, chat, guess=guess)


def _filled(template: str, row: Mapping[str, Any], place: str) -> str:
    """A field by its name, or a text in which names stand in braces; there a whole number has one way of being written."""
    if not FIELD.search(template):
        return _text(_value(row, template, place), template, place)
    return FIELD.sub(lambda found: _text(_within(_value(row, found[1], place)), found[1], place), template)


def _within(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text(value: Any, name: str, place: str) -> str:
    """The value of a field that is to be text. Raises DataFileError where it is none, or no tokens of a text come of it."""
    if not isinstance(value, str):
        raise DataFileError(
            f"{place} has {_KINDS.get(type(value), type(value).__name__)} and no text in the field '{name}'. Write it as text, or remove "
            "the row."
        )
    if not value.isascii() and _SURROGATE.search(value):
        raise DataFileError(
            f"{place} has half a character in the field '{name}', which is no text. Mend or remove the row."
        )
    if "\0" in value:
        raise DataFileError(f"{place} has a zero byte in the field '{name}', which is no text. Mend or remove the row.")
    return value


def _value(row: Mapping[str, Any], name: str, place: str) -> Any:
    value = row.get(name)
    if value is None:
        if name in row:
            raise DataFileError(f"{place} has nothing in the field '{name}'. Mend or remove the row.")
        raise DataFileError(
            f"{place} has no field '{name}': it has {', '.join(map(str, row)) or 'none'}. Mend the row, or say with --set "
            "columns.… which fields there are."
        )
    return value


def _checked_messages(messages: Any, name: str, place: str) -> list[dict[str, str]]:
    """Messages of role and content, also where they are called `from` and `value`."""
    if not isinstance(messages, list) or not messages:
        raise DataFileError(f"{place}: a list of messages is needed, each with role and content.")
    return [_message(one, name, place) for one in messages]


def _message(one: Any, name: str, place: str) -> dict[str, str]:
    values = one if isinstance(one, Mapping) else {}
    role = values.get("role", values.get("from"))
    content = values.get("content", values.get("value"))
    if not isinstance(role, str) or not isinstance(content, str):
        raise DataFileError(f"{place}: a message has no role or no content of text. Mend or remove the row.")
    role = {"human": "user", "gpt": "assistant"}.get(role, role)
    return {"role": _text(role, name, place), "content": _text(content, name, place)}
