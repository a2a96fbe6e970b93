"""Secrets that a shell script hands to a name or to a program other than by an assignment: `read TOKEN <<< …`, a here-document, `printf -v`.

Standard library only. Each look goes a bounded way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from hpc_llm.text.assignments import NAMED, Assigned, is_secret_value
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import kind_of
from hpc_llm.text.secret_values import is_harmless, is_number

_NAME = r"(?P<name>[A-Za-z_]\w{1,119})"
_VALUE = (
    r"""(?:'(?P<single>[^'\n]{1,300})'|"(?P<double>[^"\n]{1,300})"|(?P<bare>[^\s"'$<>()|;&`-][^\s"'()|;&`]{0,299}))"""
)
_FORMAT = r"""(?:["']?%[sbq](?:\\n)?["']?\ {1,4})?"""
_CALLED = rf"""(?<![\w$]){_NAME}\+?=["']?(?:\$\(|`)\ ?"""
"""A name that gets what a command prints."""
_MAY_BE_THERE = late_pattern(r"""<<|printf\ +-v|=["']?(?:\$\(|`)\ ?(?:echo|printf)\ """)
"""Without it nothing of the kind is there, and the patterns need not be made."""
_DOCUMENT = late_pattern(
    r"""^(?P<head>[^\n]{0,400}?)<<-?[ \t]{0,4}(?P<quote>["']?)(?P<end>[A-Za-z_]\w{0,40})(?P=quote)(?P<tail>[^\n]{0,200})\n""",
    re.MULTILINE,
)
"""The line that begins a here-document, and the word by which it ends."""
_INTO = late_pattern(
    r"(?:(?<![\w$])(?P<called>[A-Za-z_]\w{1,119})\+?=[\"']?(?:\$\(|`)[^\n]{0,200}"
    r"|(?<![\w-])(?:read|mapfile|readarray) (?:[^\n|;<]{0,200} )?(?P<read>[A-Za-z_]\w{1,119}) {0,4})\Z"
)
_LINE = late_pattern(r"[ \t]*(?P<said>[^\n]*?)[ \t\r]*(?:\n|\Z)")
_MOST_LINES = 20


def secrets_in_inputs(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand.

    >>> text = "read -r HF_TOKEN <<< hunter22; printf -v DB_PASSWORD %s hunter33"
    >>> [text[start:end] for start, end in secrets_in_inputs(text)]
    ['hunter22', 'hunter33']
    """
    if _MAY_BE_THERE.search(text) is None:
        return
    if NAMED.search(text) is not None:
        yield from _in_lines(text)
    if "<<" in text and "\n" in text:
        yield from _in_documents(text)


@functools.cache
def _of_one_line() -> tuple[re.Pattern[str], ...]:
    forms = (
        rf"""(?<![\w-])(?:read|mapfile|readarray)\ (?:[^\n|;<]{{0,200}}\ )?{_NAME}\ {{0,4}}<<<\ {{0,4}}{_VALUE}""",
        rf"""(?<![\w-])printf\ {{1,4}}-v\ {{1,4}}["']?{_NAME}["']?\ {{1,4}}{_FORMAT}{_VALUE}""",
        rf"""{_CALLED}(?:echo|printf)\ {{1,4}}(?:-[neE]{{1,3}}\ {{1,4}})?{_FORMAT}{_VALUE}""",
        rf"""{_CALLED}[^\n|;<`)]{{0,200}}<<<\ {{0,4}}{_VALUE}""",
    )
    return tuple(late_pattern(form, re.VERBOSE) for form in forms)


@functools.cache
def _asked() -> re.Pattern[str]:
    from hpc_llm.text.program_patterns import ASKING

    return late_pattern(rf"(?<![\w-])(?:{ASKING})(?![\w-])", re.VERBOSE)


def _in_lines(text: str) -> Iterator[tuple[int, int]]:
    for pattern in _of_one_line():
        for found in pattern.finditer(text):
            group = next(name for name in ("single", "double", "bare") if found[name] is not None)
            if _is_secret(found["name"], found[group]):
                yield found.span(group)


def _in_documents(text: str) -> Iterator[tuple[int, int]]:
    for document in _DOCUMENT.finditer(text):
        into = _INTO.search(document["head"])
        lines = list(_lines(text, document.end(), document["end"]))
        if into is not None:
            name = into["called"] or into["read"]
            yield from (span for span in lines if _is_secret(name, text[slice(*span)]))
        elif len(lines) == 1 and any(map(_asked().search, document.group("head", "tail"))):
            yield from (span for span in lines if _is_answer(text[slice(*span)]))


def _lines(text: str, position: int, end: str) -> Iterator[tuple[int, int]]:
    """Where the text of each line of a here-document stands."""
    for _ in range(_MOST_LINES):
        line = _LINE.match(text, position)
        if line is None or position >= len(text) or line["said"] == end:
            return
        if line["said"]:
            yield line.span("said")
        position = line.end()


def _is_secret(name: str, value: str) -> bool:
    one = Assigned(name, value, 0, "tight", is_quoted=True, is_subscript=False, is_query=False)
    return kind_of(name) is not None and is_secret_value(one)


def _is_answer(line: str) -> bool:
    """Whether it is what a program asked for, and no sentence, number or variable."""
    return len(line) > 2 and " " not in line and not (is_harmless(line) or is_number(line))
