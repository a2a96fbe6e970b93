"""Foreign text as it may be shown: names, messages and lines of logs hold whatever somebody wrote into them.

`shown` is for people's eyes, the others for one kind of file each. Nothing that they give steers a terminal, hides or
reorders what stands beside it, or is run by the program that opens the file.
"""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern

# CSI, OSC and the other strings of a terminal, with either spelling of their introducer; then all other two-byte ones.
# No string goes over the introducer of another, so that each letter is looked at from one beginning only.
_SEQUENCE = late_pattern(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x9c-\x9f\x90\x98\n]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{0,8}[0-~]"
)
# Controls but newline and tab; soft hyphen; zero-width, directional and line-separating characters; tags; lone surrogates.
_HIDDEN = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff"
)
_HIDDEN_ONE = late_pattern(f"[{_HIDDEN}]")
_RETURN = late_pattern(r"\r+\n?")
_HALF = late_pattern(r"[\ud800-\udfff]")
_FORMULA = "[=+@\\-\t\r\uff1d\uff0b\uff0d\uff20]"
# Programs that part cells at a semicolon or a tab look for a formula behind it, too.
_CELL = r"(?:(?<![\s\S])|(?<=[;\"\t\r\n]))( *)"
_LIVE = late_pattern(f"{_CELL}('*{_FORMULA})")
_GUARDED = late_pattern(f"{_CELL}'('*{_FORMULA})")
# What begins a heading, a list or a rule; figures with a sign or a point do not.
_BLOCK = late_pattern(r"^(?:#(?=#{0,5}(?:\s|$))|(?P<n>[0-9]{1,9})(?P<end>[.)])(?=\s|$)|[-+](?=\s|$)|[-=](?=[-= ]*$))")
_FIGURE = late_pattern(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def shown(text: str) -> str:
    r"""`text` without what a terminal obeys, or nobody sees; a carriage return ends a line, instead of writing over it.

    >>> shown("a\x1b[31mb\x1b]0;title\x07c\u202ed\rz")
    'abcd\nz'
    """
    if text.isascii() and text.isprintable():
        return text
    if "\x1b" in text or not text.isascii():
        text = _SEQUENCE.sub("", text)
    if "\r" in text:
        text = _RETURN.sub("\n", text)
    return _HIDDEN_ONE.sub("", text)


def whole_text(text: str) -> str:
    r"""`text` with the sign for what cannot be read in place of each half of a character, which nothing can write.

    >>> whole_text("a\udc80b") == "a\ufffdb"
    True
    """
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def one_line(text: str) -> str:
    r"""`shown` in one line.

    >>> one_line("a\tb\n c")
    'a b c'
    """
    text = shown(text)
    return text if text.isprintable() else " ".join(text.split())


def json_text(document: str) -> str:
    r"""A JSON document in which hidden characters stand as escapes; it means the same.

    >>> json_text('"a\u202eb"')
    '"a\\u202eb"'
    """
    if document.isascii() and "\x7f" not in document:
        return document
    return _HIDDEN_ONE.sub(_escaped, document)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    return f"\\u{0xD800 + (number - 0x10000 >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def safe_text(value: str) -> str:
    """`value` as a cell that no spreadsheet takes for a formula, however it parts cells: figures stay as they are.

    >>> safe_text("=HYPERLINK(1)"), safe_text("-1.5e3"), safe_text("a;=1")
    ("'=HYPERLINK(1)", '-1.5e3', "a;'=1")
    """
    return value if _FIGURE.fullmatch(value) else _LIVE.sub(r"\1'\2", value)


def plain_text(value: str) -> str:
    """The text that `safe_text` was given."""
    return _GUARDED.sub(r"\1\2", value)


def markdown_text(value: str) -> str:
    r"""`value` as text of a Markdown document, in a table's cell or elsewhere, whatever it holds.

    >>> markdown_text("<b>|"), markdown_text("# a"), markdown_text("[x](y)")
    ('&lt;b&gt;\\|', '\\# a', '\\[x\\](y)')
    """
    value = one_line(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    value = re.sub(r"([\\|*`\[\]~$])|(?<!\w)_|_(?!\w)", lambda m: f"\\{m[0]}", value)
    return _BLOCK.sub(lambda m: f"{m['n']}\\{m['end']}" if m["end"] else f"\\{m[0]}", value)
