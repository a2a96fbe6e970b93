"""How a format says what its lines mean.

A rule is a pattern in which `<name>` stands for a printed number. The name says where the number goes and in which unit
it is printed: `<step_time_ms>` becomes the column `step_time_s`, `<peak_allocated_gib>` becomes `peak_allocated_bytes`.
Patterns run over whole blocks of bytes, so they should begin with fixed text and must not cross a line without need.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from operator import mul

from hpc_llm.parsing import commas
from hpc_llm.text.labels import WHOSE

Value = int | float | str | bool
Convert = Callable[[bytes], Value | None]
Decode = Callable[["re.Match[bytes]"], "Mapping[str, Value] | None"]

LARGEST = 1 << 62
"""Whole numbers beyond this are noise."""
DIGITS = rb"[-+.,0-9eEinfaN]+"
NUMBER = rb"[-+.,0-9eEinfaN]*[0-9nfNF]"
"""Any printed number, thousands separators, `nan` and `inf` included; its last character keeps a comma after it out."""
WHOLE = rb"[0-9](?:[0-9,]*[0-9])?"
_GROUP_OF_THOUSANDS = rb"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_GROUPED = re.compile(_GROUP_OF_THOUSANDS)
"""A comma anywhere else parts no thousands: in some countries it stands before the decimals."""
_POINTS = re.compile(rb"[-+]?[0-9]{1,3}(?:\.[0-9]{3})+")
"""What may be thousands, or decimals."""
_ALL_GROUPED = re.compile(rb"(?:(?:" + _GROUP_OF_THOUSANDS + rb"|[-+.0-9eEinfaN]*)(?:\n|\Z))*")


class Kind(Enum):
    """What a match means for the run it stands in."""

    STEP = "a training step, or the mean over the steps since the last such line"
    MORE = "more about the step before"
    TICK = "the same, or a step without a number where none stands before it"
    RUN = "a fact or a result of the whole run"
    START = "a program begins: what follows is another run, if this one has steps already"
    SETUP = "a fact that a program prints before its first step: after a step it is one of another run"
    END = "training is over; carries results of the run"


WHOLE_NUMBERS = frozenset(
    """step total_steps num_parameters nodes gpus_per_node world_size micro_batch_size gradient_accumulation_steps
    global_batch_size sequence_length warmup_steps skipped_total skipped_in_line
    tokens_per_step num_examples steps_per_epoch resumed_at data_parallel_ranks tensor_parallel
    nan_in_line measured_steps launched_ranks ended_at_step""".split()
)
UNITS: Mapping[str, tuple[str, int, int]] = {
    "_gib": ("_bytes", 2**30, 0),
    "_mib": ("_bytes", 2**20, 0),
    "_gb": ("_bytes", 1, 9),
    "_ms": ("_s", 1, -3),
    "_pct": ("", 1, -2),
    "_millions": ("", 1, 6),
}
"""Unit that a name ends with -> the column's ending, and what to multiply the printed number with: a factor, and a power
of ten, which is applied to the printed digits so that 6703.7 ms is 6.7037 s."""


SMALL = frozenset(("loss", "eval_loss", "grad_norm", "learning_rate", "mfu"))
"""Columns whose numbers have decimals, and hardly ever thousands."""
LEFT_EMPTY = "left_empty"
"""Under this name `LineFormat.finish` says which figures it did not take, and why."""

EMPTY_COLUMNS = "empty_columns"
"""Under this name it says of which columns it did not take what the steps print."""

STOPS = "stops"
"""Under this name a line says in words how the run stopped, where that is no end of its training."""

EACH_RANK = "printed_by_each_rank"
"""With it a step line is one of several that ranks print of the step, each with the loss of its own samples."""

PAUSES, BEGINS, FIRST_BAR = "pauses", "begins", "first_bar"
"""Under these names a line, or `place`, says that something else than training took place, that another run begins with it, or that it is
a progress bar's first state: of another run where the one before is over."""

TRAINS, EVALUATES, PREDICTS = "trains", "evaluates", "predicts"
"""With these the log shows what a program did that can train: it trained, it evaluated, it answered samples."""
BEFORE_TRAINING = "evaluates_before_training"
"""What it evaluated may have been all, or the first that its training does."""
REPORTED = "reported"  # by the scheduler, whatever the job printed
BELOW, BELOW_SINCE = "steps_below", "steps_below_since"
"""Under these names a run counts the steps that a library below its program printed before the program's first, and since."""

OTHER_NAMES = {"words_per_second_per_gpu": "tokens_per_second_per_gpu"}
"""What older versions of a program call a column; a pattern may hold both."""


def number(text: bytes) -> float | None:
    """The printed number, thousands separators allowed; None when it is none after all, as with a decimal comma.

    >>> number(b"6,344"), number(b"1.507E-05"), number(b"-."), number(b"6,2556"), number(b"4.683,37"), number(b"2_9.0")
    (6344.0, 1.507e-05, None, None, None, None)
    """
    try:
        return float(text) if b"_" not in text else None  # Python takes 2_9 for 29
    except ValueError:
        return float(text.replace(b",", b"")) if _GROUPED.fullmatch(text) else None


def small(text: bytes) -> float | None:
    """The printed number of what is never thousands and whole, such as a loss: there `6,256` may be six and a part.

    >>> small(b"6.256"), small(b"1,234.5"), small(b"6,256")
    (6.256, 1234.5, None)
    """
    return None if b"," in text and b"." not in text else number(text)


def whole(text: bytes) -> int | None:
    """The printed whole number, thousands separators allowed."""
    try:
        value = int(text.replace(b",", b"") if _GROUPED.fullmatch(text) else text)
    except ValueError:
        return None
    return value if value < LARGEST and b"_" not in text else None


@dataclass(frozen=True)
class Scaled:
    """Converter for numbers printed in another unit than the column's."""

    factor: int
    power: int
    to_int: bool

    def __call__(self, text: bytes) -> Value | None:
        # The power goes into the text: 6703.7 * 1e-3 is not the number that is nearest to 6.7037.
        value = number(text + f"e{self.power}".encode()) if self.power else number(text)
        if value is None:  # it has an exponent already
            value = number(text)
            value = value * 10.0**self.power if value is not None else None
        if value is None or not math.isfinite(value):
            return None
        value *= self.factor
        if not self.to_int:
            return value
        return round(value) if abs(value) < LARGEST else None


def floats(convert: Convert, texts: Sequence[bytes]) -> list[float]:
    """What `convert` gives for each of very many texts, those left out for which it gives none."""
    if convert is small and not any(b"," in text for text in texts):
        convert = number
    if convert is number or isinstance(convert, Scaled):
        values = _numbers(texts)
        if values is not None and convert is number:
            return values
        if values is not None and isinstance(convert, Scaled):
            return list(map(mul, values, repeat(convert.factor * 10.0**convert.power)))
    found = map(convert, filter(None, texts))
    return [float(value) for value in found if value is not None and not isinstance(value, str)]


def _numbers(texts: Sequence[bytes]) -> list[float] | None:
    """The numbers, thousands separators or not; None where one is none."""
    try:
        return list(map(float, texts))
    except ValueError:
        pass
    together = b"\n".join(texts)
    try:
        return list(map(float, together.replace(b",", b"").split(b"\n"))) if _ALL_GROUPED.fullmatch(together) else None
    except ValueError:
        return None


def plain_text(text: bytes) -> str | None:
    """Text of a group that is no number."""
    return text.decode("utf-8", "replace").strip() or None


@functools.cache
def column_of(name: str) -> tuple[str, Convert | None]:
    """Column and converter for a group's name; the converter is None for a plain number.

    >>> column_of("step_time_ms")[0], column_of("peak_allocated_gib")[0], column_of("loss")[0]
    ('step_time_s', 'peak_allocated_bytes', 'loss')
    """
    if name in WHOLE_NUMBERS:
        return name, whole
    if name in SMALL:
        return name, small
    if name in OTHER_NAMES:
        return OTHER_NAMES[name], None
    for ending, (column_ending, factor, power) in UNITS.items():
        if name.endswith(ending):
            column = name.removesuffix(ending) + column_ending
            return column, Scaled(factor, power, to_int=column_ending == "_bytes" or column in WHOLE_NUMBERS)
    return name, None


# Characters and escaped ones, as they are or repeated in a way that cannot be mistaken.
_FIXED = r"(?<!\(\?)(?P<before>(?:'\?|[\w:/=,' -]| \+|\\[\[\](){}|.]){4,})<(?P<name>[a-z][a-z0-9_]*)>(?P<after>.?)"
_TEXT_GROUP = r"\(\?P<(?P<text>\w+)>"
_NUMBER_GROUP = r"(?<!\(\?P)<(?P<number>[a-z][a-z0-9_]*)>"


_FREE = r"(?<!\w)(?<!\w-)"
"""No letter, digit or `_` stands right before, nor a `-` that joins words: what follows is a name of its own."""
_NO_WORD = r"(?![A-Za-z0-9_])"
"""A number at which a word begins at once is cut: another process wrote into the line."""
_UNIT_FOLLOWS = re.compile(r"(?:\(\?:|\(\?[!=]|\(\?P<\w+>|\||\))*(?:[A-Za-z_]|\[|\\[wSBb])")
"""What stands behind a number in a pattern where a unit belongs to it, or may."""
_OPENING = re.compile(
    r"(?P<lookbehind>(?:\(\?<![^()]*\))*)(?:\\b)?(?P<words>(?:[\w:/=,' -]|\\[\[\](){}|.*])+(?![?*+{]))"
)
_OPENS_WITH_WORD = re.compile(r"(?:\(\?<![^()]*\))*(?:\\b|\(\?:|\(\?P<\w+>)*\w")


def _whole_name(text: str) -> str:
    """The pattern, so that it does not match at the end of a longer name: `tensor size: 2` in `encoder-tensor size: 2`.

    >>> _whole_name("loss: <loss>"), _whole_name("(?:a|b): <loss>")
    ('loss: (?<!\\\\wloss: )(?<!\\\\w-loss: )<loss>', '(?<!\\\\w)(?<!\\\\w-)(?:a|b): <loss>')
    """
    if not _OPENS_WITH_WORD.match(text):
        return text
    opening = _OPENING.match(text)
    if opening is None or _is_choice(text):
        return _FREE + text
    words = opening["words"]
    # Behind the fixed text: a pattern that begins with it is found several times as fast.
    looked_back = rf"(?<!\w{words})(?<!\w-{words})"
    return f"{opening['lookbehind']}{words}{looked_back}{text[opening.end() :]}"


def _is_choice(text: str) -> bool:
    """Whether the pattern is one of several, outside of any group."""
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "", text)
    while (inner := re.sub(r"\([^()]*\)", "", plain)) != plain:
        plain = inner
    return "|" in plain


@dataclass(frozen=True, eq=False)
class Rule:
    """One kind of line. Its patterns are compiled when they are needed: most logs need few formats."""

    kind: Kind
    text: str
    """The pattern as it was written, `<name>` for numbers and `(?P<name>…)` for text."""
    decode: Decode | None = None
    """For lines that need more than groups; gives the columns, or None where the line is no metric after all."""
    literal: bytes | None = None
    """Text without which the pattern cannot match, if there is one: a quick way to skip a block."""
    pauses: bool = False
    """It says that something else than training took place: the time of the next step line is not that of its steps alone."""
    identity: re.Pattern[bytes] | None = None
    """For what is printed over and over, as a progress bar is: its group tells one from another. Of the states of one that
    goes on, the last says all."""

    aside: bool = False
    """Whoever loads the library prints it: by itself it shows neither a program nor what it does."""
    counts_anew: bool = False
    """Its steps are counted from the start of the process, where another line of the same step counts those of the whole run."""

    def latest(self, chunk: bytes) -> Iterator[re.Match[bytes]]:
        """The last match of each identity in `chunk`; all matches, where one begins anew in between."""
        assert self.identity is not None
        texts = set(self.identity.findall(chunk))
        if any(b" 0" + text in chunk for text in texts):  # a bar at 0: another of the same length has begun
            yield from self.pattern.finditer(chunk)
            return
        for text in texts:
            match = self.pattern.match(chunk, chunk.rfind(b"\n", 0, chunk.rfind(text)) + 1)
            if match is None:  # the text stands in a line that is none: the last real one is before it
                yield from (m for m in self.pattern.finditer(chunk) if text in m[0])
            else:
                yield match

    @functools.cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Finds the lines."""

        def expand(match: re.Match[str]) -> str:
            if match["text"]:
                return match[0]
            name = match["number"]
            end = "" if _UNIT_FOLLOWS.match(match.string, match.end()) else _NO_WORD
            return f"(?P<{name}>{(WHOLE if name in WHOLE_NUMBERS else NUMBER).decode()}){end}"

        # Of a step the prefix tells whose it is, so that one must stand before what matches.
        is_anchored = self.text.startswith("^") and self.kind in (Kind.RUN, Kind.START, Kind.SETUP, Kind.END)
        text = f"^{WHOSE}{self.text[1:]}" if is_anchored else _whole_name(self.text)
        compiled = re.compile(re.sub(f"{_TEXT_GROUP}|{_NUMBER_GROUP}", expand, text).encode(), re.MULTILINE)
        if self.decode is None and compiled.groups != len(self.columns):
            raise ValueError(f"every group of the pattern needs a name: {self.text}")
        return compiled

    @functools.cached_property
    def columns(self) -> tuple[tuple[str, Convert], ...]:
        """Column and converter of each group, in order."""
        found: list[tuple[str, Convert]] = []
        for match in re.finditer(f"{_TEXT_GROUP}|{_NUMBER_GROUP}", self.text):
            column, convert = column_of(match["text"] or match["number"])
            found.append((column, convert or (plain_text if match["text"] else number)))
        return tuple(found)

    @functools.cached_property
    def alone(self) -> dict[str, re.Pattern[bytes]]:
        """For a number behind four or more fixed characters a pattern of only these two, by column."""
        found: dict[str, re.Pattern[bytes]] = {}
        for match in re.finditer(_FIXED, self.text):
            # Where no comma can follow, the quicker way to find the end of a number will do.
            value = WHOLE if match["name"] in WHOLE_NUMBERS else NUMBER if match["after"] in ",'" else DIGITS
            # A search for text that begins with a letter is several times as fast as one for repeated blanks.
            before = re.sub(r"^[ +]*", "", match["before"])
            found.setdefault(
                column_of(match["name"])[0], re.compile(_whole_name(f"{before}({value.decode()})").encode())
            )
        return found

    def values(self, match: re.Match[bytes]) -> Mapping[str, Value] | None:
        """The columns that the line gives; None where it is no metric after all."""
        if self.decode is not None:
            return self._decoded(match)
        found: dict[str, Value] = {}
        for (name, convert), text in zip(self.columns, match.groups(), strict=True):
            value = None if text is None else convert(text)
            if value is not None:
                found[name] = value
            elif text is not None and b"," in text:
                return self._beside_commas(match)
        return found

    def _beside_commas(self, match: re.Match[bytes]) -> Mapping[str, Value]:
        """Those of a line in which a comma stands before decimals: there a point may part thousands, and `6,210` is no thousands."""
        given = [
            (name, convert, text)
            for (name, convert), text in zip(self.columns, match.groups(), strict=True)
            if text is not None and _POINTS.fullmatch(text) is None and b"," not in text
        ]
        found = {name: value for name, convert, text in given if (value := convert(text)) is not None}
        is_unread = any(name == "loss" and b"," in text and name not in found for name, _, text in given)
        return {**found, commas.LOSS_UNREAD: 1} if is_unread else found

    def leaves_commas(self, match: re.Match[bytes]) -> bool:
        """Whether the line has a number that is none to us for its comma."""
        if self.decode is not None:
            return any(number(text) is None for text in commas.IN_A_NUMBER.findall(match[0]))
        pairs = zip(self.columns, match.groups(), strict=True)
        return any(text is not None and b"," in text and convert(text) is None for (_, convert), text in pairs)

    def _decoded(self, match: re.Match[bytes]) -> Mapping[str, Value] | None:
        assert self.decode is not None
        try:
            found = self.decode(match)
        except (ValueError, OverflowError, RecursionError):  # digits without end, nesting without end
            return None
        found = found and commas.certain(found, match[0])
        return found and {name: value for name, value in found.items() if _is_sane(value)}


def _is_sane(value: Value) -> bool:
    """Whether a number can be one that was measured or counted."""
    return not isinstance(value, int) or -LARGEST < value < LARGEST


def leave_empty(values: dict[str, Value], what: str, column: str = "") -> None:
    """Note that a figure is printed and not taken, because the log does not say which of its meanings it has.

    With `column` it is one that the steps have given a mean.
    """
    said = str(values.get(LEFT_EMPTY, ""))
    values[LEFT_EMPTY] = f"{said}; {what}" if said else what
    values[EMPTY_COLUMNS] = f"{values.get(EMPTY_COLUMNS, '')} {column}"


def rule(
    kind: Kind,
    pattern: str,
    decode: Decode | None = None,
    literal: str | None = None,
    identity: str | None = None,
    pauses: bool = False,
    counts_anew: bool = False,
    aside: bool = False,
) -> Rule:
    """A rule from a pattern with `<name>` for numbers and `(?P<name>…)` for text."""
    same = re.compile(identity.encode()) if identity else None
    return Rule(kind, pattern, decode, literal.encode() if literal else None, pauses, same, aside, counts_anew)


def keep_larger(values: dict[str, Value], name: str, value: Value) -> None:
    """Take `value` where nothing as large is known."""
    if (known := values.get(name)) is None or float(value) > float(known):
        values[name] = value
