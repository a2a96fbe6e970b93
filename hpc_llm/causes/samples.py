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


def is_of_a_sample(text: bytes, position: int) -> bool:
    """Whether the line at `position` begins as a comment, a commit, or with the name of something that a model reads or writes.

    >>> is_of_a_sample(b"Generated: it crashed with RuntimeError: x", 30), is_of_a_sample(b"# RuntimeError: x", 2)
    (True, True)
    >>> is_of_a_sample(b"[rank3]: RuntimeError: output with shape [1] does not match", 9)
    False
    """
    start = text.rfind(b"\n", 0, position) + 1
    return _LABELLED.match(text, start, position) is not None
