"""What pypdf says of a PDF file while it reads it: by its warnings it goes on without what it cannot find."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("pypdf")

_HARMLESS = re.compile(
    "|".join(
        (
            # Of the file's form: nothing of what it holds is lost. An object at offset 0 is one that the file has not; where a page
            # needs it all the same, that is said of the page.
            r"^Ignoring wrong pointing object \d+ \d+ \(offset 0\)",
            r"^Multiple definitions in dictionary",
            r"^Overwriting cache for",
            r"^Superfluous whitespace",
            r"^invalid pdf header",
            r"^EOF marker not at start of line",
            r"^EOF marker seems truncated",
            r"^Duplicate %%EOF marker",
            r"^startxref on same line as offset",
            r"^Xref table not zero-indexed",
            r"^/Prev=0 in the trailer",
            r"^Ignoring (?:non-string first|malformed) /ID entry",
            r"^Illegal character in NameObject",
            r"^Unexpected escaped string",
            r"^(?:NumberObject\(.*\) invalid|.*FloatObject \(.*\) invalid|Invalid FloatObject)",
            r"^Expected four values, got",
            r"^Found trailing newline in stream data",
            # Of how it is encrypted: what could not be decrypted is an exception.
            r"^ignore '/Perms' verify failed",
            r"^Ignoring non-boolean /EncryptMetadata",
            r"^SASLprep normalization failed",
            r"^RC4 is not supported by the current OpenSSL",
            # Of a font: the letters of a kind that pypdf knows no table for, and widths, by which spaces are set.
            r"^Advanced encoding .* not implemented",
            r"^fontTools is required",
            r"^Could not open font file",
            r"^Optional font table",
            r"^Expected an array for /Widths",
            r"^Expected numeric value for width",
            r"^Invalid font width definition",
            r"^Ignoring invalid (?:/FirstChar|character codes)",
            r"^Failed to get .* in ",
            r"^Got invalid hex string",
            # Of what is no text.
            r"^Unknown inline image key",
            r"^Early EOD in RunLengthDecode of inline image",
            r"^Annotations are not an array",
        )
    ),
    re.DOTALL,
)
"""What pypdf warns of that sound files give too. Any other warning is damage: a text with a hole counts as a whole one."""


@contextmanager
def damage_heard() -> Iterator[list[str]]:
    """The warnings of damage that pypdf gives within."""
    listener = _Listener()
    # A level that the environment sets for every logger would make us deaf.
    level, kept = _LOGGER.level, _LOGGER.getEffectiveLevel() > logging.WARNING
    if kept:
        _LOGGER.setLevel(logging.WARNING)
    _LOGGER.addHandler(listener)
    try:
        yield listener.damage
    finally:
        _LOGGER.removeHandler(listener)
        if kept:
            _LOGGER.setLevel(level)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.damage: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if not _HARMLESS.search(said) and not self.damage:
            self.damage.append(said)
