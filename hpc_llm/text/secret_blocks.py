"""Where the value of a secret's name stands on lines of its own below it: `password:` or, as YAML's blocks, `password: |`, then the value.

Standard library only. Each line is looked at once, and a block is followed a bounded way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpc_llm.text.assignments import NAMED, Assigned, is_secret_value
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import kind_of

_LABEL = r"(?:\[?[A-Za-z]{0,10}\d{1,6}\]?:[\ \t])?"
"""What a launcher puts before the lines of a rank."""
_START = rf"""^{_LABEL}(?P<indent>[\ ]{{0,80}}(?:-[\ ]{{1,8}}){{0,4}})["']?(?P<name>[A-Za-z_][\w.-]{{1,119}})["']?[\ \t]{{0,8}}:"""
_REST = r"[\ \t]{0,40}(?:(?<=[\ \t])\#[^\n]{0,200})?\r?\n"
_HEAD = late_pattern(
    _START
    + r"""[\ \t]{1,8}
    (?:![\w!:.,/-]{0,60}[\ ]{1,4}|&\w{1,60}[\ ]{1,4}){0,2}[|>](?:[+-]?[1-9]?|[1-9][+-])"""
    + _REST,
    re.VERBOSE | re.MULTILINE,
)
"""A name, perhaps a tag or an anchor, and `|` or `>` with how the ends of its lines are kept."""
_SAID = r"""(?:"(?P<double>[^"\n]{1,500})"|'(?P<single>[^'\n]{1,500})'|(?P<bare>[^\s"'#|>&!-][^\s]{0,499}(?<![:,])))
    [\ \t]{0,40},?[\ \t]{0,40}(?:(?<=[\ \t])\#[^\n]{0,200})?\r?(?:\n|\Z)"""
_BELOW = late_pattern(
    rf"""{_START}{_REST}(?:[\ \t]{{0,80}}\r?\n){{0,3}}{_LABEL}(?P<deeper>[\ ]{{0,80}})(?P<item>-[\ ]{{1,8}})?{_SAID}""",
    re.VERBOSE | re.MULTILINE,
)
"""A name alone, and the one word, or the quoted words, that the line below is: a value on the next line, or the first of a list."""
_ITEM = late_pattern(rf"{_LABEL}[\ ]{{0,80}}-[\ ]{{1,8}}{_SAID}", re.VERBOSE)
_LINE = late_pattern(rf"{_LABEL}(?P<indent>[\ ]*)(?P<said>[^\n]*?)[\ \t\r]*(?:\n|\Z)")
_NAMED_ABOVE = late_pattern(
    r"""["']?(?:name|key)["']?[ ]{0,8}:[ ]{0,8}["']?([A-Za-z_][\w-]{1,119})["']?[ \t\r]*$""", re.MULTILINE
)
_ABOVE = 300
"""Letters before a `value: |` in which the name of its entry is looked for."""
_MOST_LINES = 500


def secrets_in_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Where the lines of such secrets stand.

    >>> text = "password: |-\\n  hunter22\\nsteps: 3"
    >>> [text[start:end] for start, end in secrets_in_blocks(text)]
    ['hunter22']
    """
    if "\n" not in text or NAMED.search(text) is None:
        return
    yield from _below(text)
    followed = 0
    for head in _HEAD.finditer(text):
        if head.start() < followed:
            continue
        lines = list(_lines(text, head.end(), len(head["indent"])))
        followed = lines[-1][1] if lines else head.end()
        name = _name(text, head)
        if kind_of(name) and any(_is_secret(name, text[start:end]) for start, end in lines):
            yield from lines


def _below(text: str) -> Iterator[tuple[int, int]]:
    for head in _BELOW.finditer(text):
        name, depth = head["name"], len(head["deeper"]) - len(head["indent"])
        if kind_of(name) is None or depth < 0 or (depth == 0 and not head["item"]):
            continue
        line: re.Match[str] | None = head
        while line is not None:
            which = next(group for group in ("double", "single", "bare") if line[group] is not None)
            if _is_secret(name, line[which], is_quoted=which != "bare"):
                yield line.span(which)
            line = _ITEM.match(text, line.end()) if head["item"] else None


def _lines(text: str, position: int, indent: int) -> Iterator[tuple[int, int]]:
    """Where the text of each line stands that is indented further than the name."""
    for _ in range(_MOST_LINES):
        line = _LINE.match(text, position)
        if line is None or position >= len(text) or (line["said"] and len(line["indent"]) <= indent):
            return
        if line["said"]:
            yield line.span("said")
        position = line.end()


def _name(text: str, head: re.Match[str]) -> str:
    """What is called so; of the `value` of an entry, what its `name` says above it."""
    if head["name"].lower() != "value":
        return head["name"]
    above = _NAMED_ABOVE.findall(text[max(0, head.start() - _ABOVE) : head.start()])
    return above[-1] if above else ""


def _is_secret(name: str, line: str, *, is_quoted: bool = True) -> bool:
    how = "tight" if name.isupper() else "spaced"
    return is_secret_value(Assigned(name, line, 0, how, is_quoted, is_subscript=False, is_query=False))
