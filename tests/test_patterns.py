"""Every pattern of the package takes a time that grows like the text: nobody's log can make a command hang.

All patterns are collected, those of causes and formats from their registries and all others from the modules, and timed on
texts that repeat what they look for.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from typing import Any

import hpc_llm
from hpc_llm.causes.catalogue import CAUSES
from hpc_llm.parsing import facts
from hpc_llm.parsing.registry import LineFormat, formats

SHORT, LONG = 1500, 24_000
SLOW_S = 0.08
"""A text of that length takes a linear pattern a hundredth of it."""
QUADRATIC = (LONG / SHORT) ** 1.5
ANYTHING = [
    "=",
    "'",
    "a",
    " ",
    "0",
    "(",
    ".",
    "-",
    "\t",
    "\n",
    " \n",
    "a.",
    "1,",
    "a ",
    "1/1 [",
    '"a": ',
    "\x1b[",
    "\x1b]",
    "\x1b]a",
    "\x1b[0",
]


def patterns() -> dict[tuple[Any, int], tuple[str, re.Pattern[Any]]]:
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any]]] = {}
    for name, value in (*_registered(), *_in_modules()):
        for one in (
            value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else [value]
        ):
            if isinstance(one, re.Pattern):
                found.setdefault((one.pattern, one.flags), (name, one))
    return found


def _registered() -> Iterator[tuple[str, Any]]:
    for cause in CAUSES:
        for sign in cause.signs:
            yield f"cause {cause.id}", sign.pattern
    for rule in facts.RULES:
        yield "facts", rule.pattern
    for one in formats():
        for rule in (*one.rules, *filter(None, [one.bulk])) if isinstance(one, LineFormat) else ():
            yield f"format {one.name}", [rule.pattern, rule.identity, *rule.alone.values()]


def _in_modules() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.walk_packages(hpc_llm.__path__, "hpc_llm."):
        if not module.name.startswith("hpc_llm.worker"):  # it reads no text of others
            for name, value in vars(importlib.import_module(module.name)).items():
                yield f"{module.name}.{name}", value


def texts_for(pattern: re.Pattern[Any]) -> list[str]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("utf-8", "replace")
    words = sorted(set(re.findall(r"[A-Za-z][A-Za-z ':=,./_-]{2,30}", source)), key=len)[-3:]
    return [*ANYTHING, *words, *(word + more for word in words[-2:] for more in (" ", "a", "0", "="))]


def seconds(pattern: re.Pattern[Any], text: str, length: int) -> float:
    whole = (text * (length // len(text) + 1))[:length]
    data: Any = whole if isinstance(pattern.pattern, str) else whole.encode()
    begin = time.process_time()
    for _ in pattern.finditer(data):
        pass
    return time.process_time() - begin


def is_slow(pattern: re.Pattern[Any], text: str) -> bool:
    if seconds(pattern, text, LONG) < SLOW_S:
        return False
    short = min(seconds(pattern, text, SHORT) for _ in range(3))
    return bool(seconds(pattern, text, LONG) > QUADRATIC * max(short, 1e-5))


def test_no_pattern_takes_more_than_linear_time() -> None:
    known = patterns()
    assert len(known) > 400
    slow = [(name, text) for name, one in known.values() for text in texts_for(one) if is_slow(one, text)]
    assert slow == []


def test_a_quadratic_pattern_would_be_found() -> None:
    assert is_slow(re.compile(r"=+ Serving"), "=")
    assert is_slow(re.compile(rb"^\s*x", re.MULTILINE), "\n")
    assert not is_slow(re.compile(rb"={1,80} Serving"), "=")
