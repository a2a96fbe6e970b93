"""Lines that hold what a model has written or read, or a comment: an error in them is nobody's."""

from __future__ import annotations

import re

_PREFIX = rb"(?:\[rank\d+\]: |\(\w{1,60} pid=[^()\n]{1,80}\) | {0,3}\d{1,4}: )?[ \t]{0,20}"
_WORDS = (
    rb"text|prompts?|samples?|inputs?|outputs?|generated(?: text| output)?|generation|responses?|answers?|completions?|questions?|queries|query"
    rb"|instructions?|references?|predictions?|predicted|decoded|examples?|captions?|summary|targets?|user|assistant|human|gpt"
)
_LABELLED = re.compile(
    _PREFIX
    + rb"(?:(?:#|//) |commit [0-9a-f]{3,40}\b"
    + rb"|[\"']?(?i:(?:the |model |eval |test |first |last )?(?:"
    + _WORDS
    + rb"))(?:[ _#]{0,2}\d{1,9})?[\"']?[ \t]{0,8}[:=>][ \t])"
)
_ROW = re.compile(_PREFIX + rb"[\[({]{1,3}[\"'{\[(]")
_FIELD = re.compile(rb"[\"'](?P<name>[A-Za-z][\w -]{0,40})\\{0,2}[\"'][ \t]{0,4}:[ \t]{0,4}[\[({]{0,3}\\{0,2}[\"']")
_OF_ROWS = re.compile(
    rb"(?i)(?:"
    + _WORDS
    + rb"|content|sentences?|documents?|passages?|articles?|dialogues?|conversations?|messages|chosen|rejected|value|labels?)"
)
"""What a field is called that holds what a model reads or writes."""
_LONGEST = 4096
"""Bytes of a row before a place in it that are looked at."""


def is_of_a_sample(text: bytes, position: int) -> bool:
    """Whether the line at `position` begins as a comment, a commit, or with the name of something that a model reads or writes.

    >>> is_of_a_sample(b"Generated: it crashed with RuntimeError: x", 30), is_of_a_sample(b"# RuntimeError: x", 2)
    (True, True)
    >>> is_of_a_sample(b"[rank3]: RuntimeError: output with shape [1] does not match", 9)
    False
    """
    start = text.rfind(b"\n", 0, position) + 1
    return _LABELLED.match(text, start, position) is not None or _is_in_a_row(text, start, position)


def _is_in_a_row(text: bytes, start: int, position: int) -> bool:
    """Whether the line from `start` on is a row of data, as JSON or Python writes it, and `position` is in such a field of it.

    >>> _is_in_a_row(b'{"id": 3, "completion": "ValueError: x"}', 0, 25), _is_in_a_row(b'{"id": 3, "error": "ValueError: x"}', 0, 20)
    (True, False)
    """
    if _ROW.match(text, start, position) is None:
        return False
    name = b""
    for field in _FIELD.finditer(text, max(start, position - _LONGEST), position):
        name = field["name"]
    return _OF_ROWS.fullmatch(name) is not None
