"""Slips that the YAML parser notices late and tells in its own words: the line where each began, and what to write."""

from __future__ import annotations

import re
from typing import Any


def slip(error: Any, text: str) -> tuple[int, str] | None:
    """The line, from 0, and the sentence; None where the parser's own words have to do."""
    problem, mark, begun = (getattr(error, name, None) for name in ("problem", "problem_mark", "context_mark"))
    context = getattr(error, "context", None) or ""
    if begun is not None and "quoted scalar" in context and "end of stream" in str(problem):
        return begun.line, "a quote is opened here and never closed: close it"
    if begun is not None and str(problem).startswith("could not find expected ':'"):
        return begun.line, "a key without its colon: write KEY: VALUE, with a colon and a blank after it"
    if mark is None:
        return None
    lines = text.split("\n")
    here = lines[mark.line] if mark.line < len(lines) else ""
    if "found a tab character" in str(problem) or (
        "cannot start any token" in str(problem) and here[mark.column : mark.column + 1] == "\t"
    ):
        return mark.line, "a tab: YAML is indented by blanks, so write blanks in its place"
    if not str(problem).startswith("mapping values are not allowed"):
        return None
    if behind := re.match(r"[\s-]*([\w.-]{1,60})[ \t]*\{", here):
        return mark.line, f"a key without its colon: write {behind[1]}: {{...}}"
    if here.count(": ") + here.rstrip().endswith(":") > 1:
        return mark.line, 'a second colon in one line: quote the value, as in KEY: "a: b"'
    before = lines[mark.line - 1] if mark.line else ""
    if ":" in before and ": " not in before and not before.rstrip().endswith(":"):
        return mark.line - 1, "a blank is needed after the colon, as in KEY: VALUE"
    return None
