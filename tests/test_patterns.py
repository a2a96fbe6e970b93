"""Every pattern of the package takes a time that grows like the text: nobody's log can make a command hang.

All patterns are collected, those of causes and formats from their registries and all others from the modules, and timed on
texts that repeat what they look for.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pace import slowness

import hpc_llm
from hpc_llm.causes import life
from hpc_llm.causes.catalogue import CAUSES
from hpc_llm.causes.found import LOUD, SHARED
from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.tracebacks import TRACEBACK, exceptions_in
from hpc_llm.diagnosis import diagnose_stream
from hpc_llm.parsing import facts
from hpc_llm.parsing.registry import LineFormat, formats
from hpc_llm.parsing.scan import Scanner
from hpc_llm.text.blocks import Block
from hpc_llm.text.late_pattern import LatePattern
from hpc_llm.text.program_patterns import COMMAND, TAKEN
from hpc_llm.text.secrecy import is_secret, redacted
from hpc_llm.text.shown import shown

CORPUS = Path(__file__).parent / "diagnose" / "corpus"

SHORT, LONG = 1500, 24_000
SLOW_S = 0.08
"""A text of that length takes a linear pattern a hundredth of it."""
QUADRATIC = (LONG / SHORT) ** 1.5
GROWS = 5.5
"""So many times as long takes four times the text: 4 times where the time grows like it, and 6.4 at least where the whole is quadratic."""
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
    "\x9b",
    "\x9d",
    "\x90a",
]


def patterns() -> dict[tuple[Any, int], tuple[str, re.Pattern[Any]]]:
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any]]] = {}
    for name, value in (*_registered(), *_in_modules()):
        for one in (
            value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else [value]
        ):
            if isinstance(one, (re.Pattern, LatePattern)):
                found.setdefault((one.pattern, one.flags), (name, cast(re.Pattern[Any], one)))
    return found


def _registered() -> Iterator[tuple[str, Any]]:
    for cause in CAUSES:
        for sign in cause.signs:
            yield f"cause {cause.id}", sign.pattern
    for rule in facts.RULES:
        yield "facts", rule.pattern
    for one in formats():
        for rule in (*one.rules, *filter(None, [one.bulk])) if isinstance(one, LineFormat) else ():
            yield f"format {one.name}", list(rule.alone.values())
        yield f"format {one.name}", list(_held(one))


def _held(value: Any) -> Iterator[Any]:
    """The patterns in whatever attribute of a format, or of what it is made of."""
    if isinstance(value, (re.Pattern, LatePattern)):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _held(getattr(value, field.name))
    elif isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _held(one)


def _in_modules() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.walk_packages(hpc_llm.__path__, "hpc_llm."):
        if not module.name.startswith("hpc_llm.worker"):  # it reads no text of others
            for name, value in vars(importlib.import_module(module.name)).items():
                yield f"{module.name}.{name}", value


def texts_for(pattern: re.Pattern[Any]) -> list[str]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("utf-8", "replace")
    words = sorted(set(re.findall(r"[A-Za-z][A-Za-z ':=,./_-]{2,30}", source)), key=len)[-3:]
    return [*ANYTHING, *words, *(word + more for word in words[-2:] for more in (" ", "a", "0", "="))]


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """What the pattern, or its beginnings, would match: repeated, each begins it anew."""
    flags = pattern.flags & ~re.DEBUG
    return sorted({text for text in _beginnings(_parser.parse(pattern.pattern, flags)) if 2 < len(text) < 200})


_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_MEANS = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_SPACE": "1"}


def _beginnings(items: Iterable[Any]) -> list[str]:
    """A text for each place of a pattern at which a search could have to give up."""
    found, text = [], ""
    for item in items:
        name, value = str(item[0]), item[1]
        if name == "BRANCH":
            choices = [_beginnings(one) for one in value[1]]
            found += [text + one for choice in choices for one in choice]
            text += choices[0][-1] if choices[0] else ""
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "SUBPATTERN", "ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
            inner = _beginnings(value if name == "ATOMIC_GROUP" else value[-1])
            found += [text + one for one in inner]
            text += (inner[-1] if inner else "") * (max(value[0], 1) if name.endswith("REPEAT") else 1)
        else:
            text += _letter(name, value)
        found.append(text)
    return found


def _letter(name: str, value: Any) -> str:
    if name == "LITERAL":
        return chr(value)
    if name in ("ANY", "NOT_LITERAL"):
        return "a"
    if name != "IN" or str(value[0][0]) == "NEGATE":
        return "a" if name == "IN" else ""
    kind, what = str(value[0][0]), value[0][1]
    return _MEANS.get(str(what), "a") if kind == "CATEGORY" else chr(what[0] if kind == "RANGE" else what)


def seconds(pattern: re.Pattern[Any], text: str, length: int) -> float:
    whole = (text * (length // len(text) + 1))[:length]
    data: Any = whole if isinstance(pattern.pattern, str) else whole.encode()
    begin = time.process_time()
    for _ in pattern.finditer(data):
        pass
    return time.process_time() - begin


def is_slow(pattern: re.Pattern[Any], text: str) -> bool:
    # Of an eighth what grows like the third power takes a part in 512, of a quarter one in 64.
    if seconds(pattern, text, LONG // 8) < SLOW_S / 512:
        return False
    quarter = seconds(pattern, text, LONG // 4)
    if quarter < SLOW_S / 64:
        return False
    if quarter < GROWS * seconds(pattern, text, SHORT) or seconds(pattern, text, LONG) < SLOW_S:
        return False
    short = min(seconds(pattern, text, SHORT) for _ in range(3))
    return bool(seconds(pattern, text, LONG) > QUADRATIC * max(short, 1e-5))


MOST_S_A_MB = 12.0
"""What a command may take for a text that somebody made to keep it busy, on a machine as `pace` has it that others use meanwhile."""


def test_no_pattern_takes_more_than_linear_time() -> None:
    known = patterns()
    assert len(known) > 400
    slow = [(name, text) for name, one in known.values() for text in texts_for(one) if is_slow(one, text)]
    assert slow == []


def test_no_pattern_of_a_format_takes_longer_where_what_it_looks_for_is_repeated() -> None:
    known = [(name, one) for name, one in patterns().values() if name.startswith("format ")]
    confirming = [one.confirm.pattern for one in formats() if isinstance(one, LineFormat) and one.confirm]
    assert {one.pattern for _, one in known} > set(confirming) > set()
    assert [(name, text) for name, one in known for text in pieces(one) if is_slow(one, text)] == []


ASSIGNED = [
    "key=",
    "key: ",
    "a_key1=",
    "KEY=",
    "token=",
    "password=",
    "pwd=",
    "pass:",
    "pw=",
    "password ='",
    "?key=a&",
    "key|",
]
"""Names that each begin a value, which goes on over all names behind it."""


def commands() -> list[str]:
    """Each program that takes a secret, and the beginnings of what it takes."""
    taken = {piece for one in TAKEN.values() for piece in pieces(one) if len(piece) > 3}
    return [*(f"{text.rstrip()} " for text in pieces(cast(Any, COMMAND))), *sorted(taken)[::8]]


@pytest.mark.parametrize("search", [redacted, is_secret, shown])
def test_a_text_that_repeats_what_is_looked_for_in_it_takes_seconds_a_megabyte(search: Callable[[str], Any]) -> None:
    units = [*ASSIGNED, *commands(), *ANYTHING]
    assert {"openssl enc ", "curl "} < set(units)

    def least(unit: str, times: int, length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]
        taken = []
        for _ in range(times):
            begin = time.process_time()
            search(text)
            taken.append(time.process_time() - begin)
        return min(taken) * 1e6 / length

    most = MOST_S_A_MB * slowness()
    doubtful = [unit for unit in units if least(unit, 1, LONG // 4) > most]
    assert [unit for unit in doubtful if least(unit, 5, LONG // 4) > most] == []
    # a line that is long is looked at from each name in it, and not from its beginning
    assert [unit for unit in ASSIGNED[:1] + ASSIGNED[5:7] if least(unit, 1, 300_000) > most] == []


def test_a_quadratic_pattern_would_be_found() -> None:
    assert is_slow(re.compile(r"=+ Serving"), "=")
    assert is_slow(re.compile(rb"^\s*x", re.MULTILINE), "\n")
    assert not is_slow(re.compile(rb"={1,80} Serving"), "=")
    repeats = re.compile(rb"step: +\d+ +loss: +\S+ +(?:\w+: +\S+ +)*memory:")
    assert any(is_slow(repeats, text) for text in pieces(repeats))


def _units() -> list[bytes]:
    """What the signs of failures look for, each text of which a line can be full."""
    corpus = b"\n".join(path.read_bytes() for path in sorted(CORPUS.rglob("*")) if path.is_file())
    found = [text for cause in CAUSES for sign in cause.signs for text in sign.literals]
    matches = (sign.pattern.search(corpus) for cause in CAUSES for sign in cause.signs)
    found += [match[0][:200].replace(b"\n", b" ") for match in matches if match]
    return sorted({*found, *LOUD, *SHARED, TRACEBACK + b":"})


NINES = "9" * 5000
"""More digits than Python reads."""


def numbers_beyond_reading(pattern: re.Pattern[Any]) -> Iterator[bytes]:
    """Texts that it matches, one number of each being endless."""
    for text in pieces(pattern):
        for one in re.finditer("[0-9]+", text):
            endless = text[: one.start()] + NINES + text[one.end() :]
            if pattern.search(endless if isinstance(pattern.pattern, str) else cast(Any, endless.encode())):
                yield endless.encode()


def test_a_number_that_nobody_can_mean_stops_no_diagnosis() -> None:
    known = [sign.pattern for cause in CAUSES for sign in cause.signs] + [
        one for one in vars(life).values() if isinstance(one, re.Pattern)
    ]
    texts = [text for one in known if (text := b"\n".join(numbers_beyond_reading(one)))]
    texts += [b"x\nStep %s/%s" % (NINES.encode(), NINES.encode())]
    assert len(texts) > 100
    for text in texts:
        assert (
            diagnose_stream(io.BytesIO(text + b"\nslurmstepd: error: Detected 1 oom-kill event(s)\n")).cause in CAUSES
        )


def test_a_number_that_nobody_can_mean_stops_no_parse() -> None:
    for one in formats():
        rules = one.rules if isinstance(one, LineFormat) else ()
        texts = [text for rule in rules for text in numbers_beyond_reading(rule.pattern)]
        hints = b"\n".join(one.hints) if isinstance(one, LineFormat) else b""
        for text in texts:
            scanner = Scanner((one,) if isinstance(one, LineFormat) else ())
            scanner.feed(b"%s\n%s\n" % (hints, text))
            scanner.finish()


def diagnosed_s(line: bytes, length: int, between: bytes) -> float:
    """Seconds that a log takes which repeats a text, on one line or on many."""
    text = (line + between) * (length // (len(line) + len(between)) + 1)
    begin = time.process_time()
    LogFindings("log").read([Block(text, text, 1, 0)])
    return time.process_time() - begin


WHOLE, MOST_S = 50_000, 0.4
"""Bytes of a block of which many are in a log of a few megabytes, and what is too long for one."""


def may_be_slow(line: bytes, between: bytes, most_s: float = MOST_S) -> bool:
    """Whether a whole block would take most of the most, if it grows on as from a sixteenth of it to a quarter."""
    quarter = diagnosed_s(line, WHOLE // 4, between)
    if quarter < most_s / 64:  # what grows like the third power takes no longer than the most then
        return False
    growth = quarter / max(diagnosed_s(line, WHOLE // 16, between), 1e-5)
    return quarter * max(growth, 4.0) > most_s * 3 / 4


@pytest.mark.parametrize("between", [b"", b" ", b"\n", b"\n  x: "], ids=["together", "a blank", "lines", "labels"])
def test_a_log_that_repeats_a_sign_takes_a_time_that_grows_like_it(between: bytes) -> None:
    units = _units()
    assert len(units) > 1000
    # That a line is long is what is dangerous: each unit makes one, with or without blanks, and some make many lines.
    units = {b"": units[::2], b" ": units[1::2], b"\n": units[::6]}.get(between, units[3::6])
    # A block is read as a whole, so that what takes a second takes a minute in a log of a few megabytes.
    most_s = MOST_S * slowness()
    doubtful = [unit for unit in units if may_be_slow(unit, between, most_s)]
    slow = [unit for unit in doubtful if all(diagnosed_s(unit, WHOLE, between) > most_s for _ in range(3))]
    assert slow == []


def test_a_text_that_takes_too_long_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for power, whole_s in ((2, 2 * MOST_S), (3, 2 * MOST_S), (1, 2 * MOST_S)):
        monkeypatch.setitem(
            globals(), "diagnosed_s", lambda line, length, between, p=power, s=whole_s: s * (length / WHOLE) ** p
        )
        assert may_be_slow(b"x", b"")
    monkeypatch.setitem(globals(), "diagnosed_s", lambda line, length, between: MOST_S / 3 * length / WHOLE)
    assert not may_be_slow(b"x", b"")


@pytest.mark.parametrize(
    "line", [b"%d: Traceback (most recent call last):", b"[rank%d]: Traceback (most recent call last):\n  x"]
)
def test_tracebacks_without_an_end_are_looked_through_a_few_times(line: bytes) -> None:
    def seconds_of(count: int) -> float:
        text = b"".join(line % number + b"\n" for number in range(count))
        begin = time.process_time()
        assert list(exceptions_in(text)) == []
        return time.process_time() - begin

    assert seconds_of(12_000) < max(0.5, 8 * seconds_of(3_000))
