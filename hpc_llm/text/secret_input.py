"""Secrets that a script hands to a program or a variable as its input: behind `<<<` and in a document behind `<<EOF`.

Standard library only. What takes the input says whether it is one: a variable by its name, a program that asks for a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpc_llm.text.program_words import ASKING
from hpc_llm.text.secret_names import tells
from hpc_llm.text.secret_values import is_harmless, is_number

_VARIABLE = r"""(?:\bread\ (?:-[a-zA-Z]{1,4}\ (?:[0-9.]{1,6}\ )?){0,3}(?P<read>[A-Za-z_]\w{0,119})|(?P<name>[A-Za-z_]\w{0,119})\+?=["']?\$\(\ {0,3}(?:</dev/stdin|cat|printf\ %s)\ {0,3})"""
_HEAD = re.compile(
    rf"""(?:{_VARIABLE}|(?<![\w.-]){ASKING}(?![\w-])[^\n|;<]{{0,200}})\ {{0,3}}
    <<(?:-?\ {{0,3}}["'\\]?(?P<end>[A-Za-z_]\w{{0,40}})["']?[^\n]{{0,200}}\n|<\ {{0,3}}(?P<string>'[^'\n]{{1,300}}'|"[^"\n]{{1,300}}"|[^\s"'<>|;&()][^\s"'<>|;&)]{{0,299}}))""",
    re.VERBOSE,
)
_PRINTED = re.compile(
    r"""\bprintf -v (?P<name>[A-Za-z_]\w{0,119}) (?:'%s[^'\n]{0,9}'|"%s[^"\n]{0,9}"|%s) (?P<string>'[^'\n]{1,300}'|"[^"\n]{1,300}"|[^\s"'<>|;&)(][^\s"'<>|;&)]{0,299})"""
)
_MOST = 4000
"""Letters of a document that are looked at: a longer one is no secret's."""


def secrets_in_input(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand.

    >>> text = "read -r HF_TOKEN <<EOF\\n9f8e7d6c5b4a\\nEOF\\nread -r LINE <<< hunter22; kinit me <<< 'hunter33'"
    >>> [text[start:end] for start, end in secrets_in_input(text)]
    ['9f8e7d6c5b4a', 'hunter33']
    """
    for found in _PRINTED.finditer(text) if "printf -v" in text else ():
        if tells(found["name"]) in ("surely", "likely"):
            yield from _said(text, found.span("string"))
    if "<<" not in text:
        return
    for head in _HEAD.finditer(text):
        name = head["read"] or head["name"]
        if name is not None and tells(name) not in ("surely", "likely"):
            continue
        yield from (_said(text, head.span("string")) if head["string"] else _document(text, head))


def _document(text: str, head: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The lines of a document up to the word that ends it."""
    position = head.end()
    for line in text[position : position + _MOST].split("\n"):
        if line.strip() == head["end"]:
            return
        yield from _said(text, (position, position + len(line)))
        position += len(line) + 1


def _said(text: str, place: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The place of a value without its quotes and blanks, where it can be a secret."""
    value = text[slice(*place)]
    bare = value.strip().strip("\"'")
    if len(bare) >= 4 and not is_harmless(bare) and not is_number(bare):
        start = place[0] + value.index(bare)
        yield start, start + len(bare)
