"""Where the value of a secret's name stands on lines of its own below it, as YAML's block scalars do: `password: |`, then the value.

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
_HEAD = late_pattern(
    rf"""^{_LABEL}(?P<indent>[\ ]{{0,80}}(?:-[\ ]{{1,8}}){{0,4}})["']?(?P<name>[A-Za-z_][\w.-]{{1,119}})["']?[\ \t]{{0,8}}:[\ \t]{{1,8}}
    (?:![\w!:.,/-]{{0,60}}[\ ]{{1,4}}|&\w{{1,60}}[\ ]{{1,4}}){{0,2}}[|>](?:[+-]?[1-9]?|[1-9][+-])[\ \t]{{0,40}}(?:(?<=[\ \t])\#[^\n]{{0,200}})?\r?\n""",
    re.VERBOSE | re.MULTILINE,
)
"""A name, perhaps a tag or an anchor, and `|` or `>` with how the ends of its lines are kept."""
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
    followed = 0
    for head in _HEAD.finditer(text):
        if head.start() < followed:
            continue
        lines = list(_lines(text, head.end(), len(head["indent"])))
        followed = lines[-1][1] if lines else head.end()
        name = _name(text, head)
        if kind_of(name) and any(_is_secret(name, text[start:end]) for start, end in lines):
            yield from lines


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


def _is_secret(name: str, line: str) -> bool:
    how = "tight" if name.isupper() else "spaced"
    return is_secret_value(Assigned(name, line, 0, how, is_quoted=True, is_subscript=False, is_query=False))
