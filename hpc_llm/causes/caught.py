"""Exceptions that somebody caught and wrote down: a traceback begins at the frame that caught it, one that nobody caught where its process does."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpc_llm.causes.cause import STARTED, Sign
from hpc_llm.causes.nested import outer_heading
from hpc_llm.causes.tracebacks import LONGEST, TRACEBACK
from hpc_llm.text.launches import LAUNCHES

if TYPE_CHECKING:
    from hpc_llm.causes.found import Found

_FRAME = re.compile(rb"File \"(?P<path>[^\"\n]{1,400})\", line (?P<line>\d{1,7}), in (?P<function>[^\n]{1,160})")
_NEAR = 1 << 11
"""Bytes behind a heading in which its first frames stand."""
_CHAINED = re.compile(rb"another exception occurred:|direct cause of the following exception:")
_BETWEEN, _MOST_CHAINED = 300, 16
_THREAD = re.compile(rb"/(?:threading|concurrent/futures/\w{1,20}|asyncio/\w{1,20}|contextlib|functools)\.py$")
"""What runs the function of a thread, and is no part of it."""
_OF_A_PROCESS = re.compile(
    rb"(?:^<frozen (?:runpy|importlib)|^<(?:string|stdin)>$|/runpy\.py$|/multiprocessing/|/torch/distributed/(?:elastic|launch|run)|/ray/_raylet|_raylet\.pyx$"
    rb"|/hydra/_internal/|/bin/[\w.-]{1,80}$|/__main__\.py$|/ipykernel|/IPython/)"
)
"""Where a process begins beside the first line of its script."""
_LIBRARY = re.compile(rb"/(?:site|dist)-packages/")
_OF_A_LOOP = re.compile(
    rb"(?:\bException in callback [^\n]{0,400}|\b(?:Task|Future) exception was never retrieved[^\n]{0,80})\n(?:[a-z_]{1,40}: ?[^\n]{0,400}\n){0,4}[^\n]{0,80}$"
)
"""How asyncio's event loop tells an exception, and goes on."""
_TOLD_BY_A_LOOP = 1200
"""Bytes before a traceback in which it does."""
_ACTOR = re.compile(rb"\(\w{1,60} pid=\d{1,10}[^()\n]{0,60}\) ?$")
"""What Ray writes before each line of a worker: of what ends a task it writes at who had asked for it, and not there."""
_PROCESS = re.compile(r"\(\w{1,60} pid=\d{1,10}[^()\n]{0,60}\)")
"""The same at the beginning of a line: of one process."""
_OFTEN = 3
"""So many times one process raises what it goes on after."""
_OF_ITEMS = 20
"""In so many words one place tells what it caught: each is of another file or sample, and the program goes from one to the next."""
_INDENTED = re.compile(rb"(?:\(\w{1,60} pid=[^()\n]{1,80}\) ?|\[(?:rank)?\d{1,5}\]:? ?|\d{1,5}: )?[ \t]{2}")
_BESIDE = re.compile(
    rb"/(?:wandb|mlflow|tensorboard|tensorboardX|comet_ml|neptune|aim|clearml|codecarbon|trackio|swanlab|jieba)/|/bitsandbytes/(?:cextension|cuda_setup/)"
)
"""Libraries that catch what fails in them, with which the program goes on: those that keep a record of it, one that is asked for later,
and one that does without its cache."""
_SAID_BESIDE = re.compile(
    rb"[^\n\"']{0,120}?\bCould not (?:load bitsandbytes native library|find the bitsandbytes)\b|[^\n\"']{0,120}?\bbitsandbytes library load error: "
)
_WEAK, _CONFIDENCE = 44, 0.7
OF_ONE_CALL = frozenset(
    ("python_exception", "config_error", "data_error", "data_missing", "model_missing", "no_internet", "unreachable")
)
"""What fails for one request, sample or tool, and not for the next."""


def _frames_of(text: bytes, position: int) -> list[re.Match[bytes]]:
    """The first frames of the traceback that ends at `position`; of tracebacks that follow from one another those of the last, in which
    the exception was caught, and of one that stands in the message of another those of that."""
    begin = text.rfind(TRACEBACK, max(0, position - LONGEST), position)
    begin = outer_heading(text, begin) if begin >= 0 else begin
    for _ in range(_MOST_CHAINED):
        following = text.find(TRACEBACK, position, position + LONGEST)
        if following < 0 or _CHAINED.search(text, max(position, following - _BETWEEN), following) is None:
            break
        begin, position = following, following + len(TRACEBACK)
    return list(_FRAME.finditer(text, begin, begin + _NEAR)) if begin >= 0 else []


def caught_at(text: bytes, position: int, is_told: bool = False) -> str | None:
    """The place in the program where the exception was caught and written down; None where nobody caught it, or nothing tells. `is_told`
    where a logger wrote it.

    >>> log = b'Traceback (most recent call last):\\n  File "/e/site-packages/verl/tool.py", line 7, in call\\n    f()\\nValueError: x'
    >>> caught_at(log, len(log) - 5), caught_at(log.replace(b"in call", b"in <module>"), len(log) - 5)
    ('/e/site-packages/verl/tool.py:7', None)
    """
    frames = _frames_of(text, position)
    if not frames:
        return None
    heading = text.rfind(TRACEBACK, 0, frames[0].start())
    before = text[text.rfind(b"\n", 0, heading) + 1 : heading]
    is_of_a_loop = _OF_A_LOOP.search(text[max(0, heading - _TOLD_BY_A_LOOP) : heading]) is not None
    if not is_of_a_loop and (frames[0]["function"].startswith(b"<module>") or _is_of_a_process(frames[0]["path"])):
        return None
    if not is_told and not is_of_a_loop and _LIBRARY.search(frames[0]["path"]) is None and _ACTOR.match(before) is None:
        return None
    return f"{frames[0]['path'].decode('utf-8', 'replace')}:{int(frames[0]['line'])}"


def program_of(text: bytes, position: int) -> str | None:
    """The script with whose first lines the traceback that ends at `position` begins; None where it begins in a library or a launcher."""
    first = next(iter(_frames_of(text, position)), None)
    if first is None or not first["function"].startswith(b"<module>") or _LIBRARY.search(first["path"]):
        return None
    return None if _is_of_a_process(first["path"]) else first["path"].decode("utf-8", "replace")


def _is_of_a_process(path: bytes) -> bool:
    return _OF_A_PROCESS.search(path) is not None or _THREAD.search(path) is not None


def is_beside(text: bytes, position: int) -> bool:
    """Whether a library without which the program goes on says it of itself.

    >>> log = b'Traceback (most recent call last):\\n  File "/e/wandb/sdk/sender.py", line 7, in send\\n    f()\\nCommError: x'
    >>> is_beside(log, len(log) - 5), is_beside(log.replace(b"/e/wandb/sdk/sender", b"/w/train"), len(log) - 5)
    (True, False)
    """
    line = text.rfind(b"\n", 0, position) + 1
    if _SAID_BESIDE.match(text, line):
        return True
    if not _INDENTED.match(text, text.rfind(b"\n", 0, max(line - 1, 0)) + 1, line):
        return False  # it is not the line of an exception, which stands right below its frames
    frames = (frame for frame in _frames_of(text, position) if not _THREAD.search(frame["path"]))
    first = next(frames, None)
    return first is not None and _BESIDE.search(first["path"]) is not None


def first_launch(text: bytes) -> int:
    """Where a launcher first begins its processes; -1 where none does."""
    return min((at for at in map(text.find, LAUNCHES) if at >= 0), default=-1)


def is_before_launch(text: bytes, position: int, launch: int) -> bool:
    """Whether a traceback ends there, before the first launch: the script went on with that.

    >>> log = b'Traceback (most recent call last):\\n  File "report.py", line 7, in <module>\\n    f()\\nKeyError: x\\n'
    >>> launch = b"W0503 run.py:851] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\\n"
    >>> is_before_launch(log + launch, len(log) - 5, first_launch(log + launch)), is_before_launch(log, len(log) - 5, first_launch(log))
    (True, False)
    """
    line = text.rfind(b"\n", 0, position) + 1
    return position < launch and _INDENTED.match(text, text.rfind(b"\n", 0, max(line - 1, 0)) + 1, line) is not None


def weakened(one: Sign) -> Sign:
    """The sign as one that counts where nothing else is known, and that the next step takes back."""
    precedence = _WEAK if one.precedence is None else min(one.precedence, _WEAK)
    return replace(one, precedence=precedence, confidence=min(one.confidence, _CONFIDENCE), survived_after=STARTED)


def is_weakened(one: Sign) -> bool:
    """Whether it is one of those, with which a program mostly goes on."""
    return one.precedence is not None and one.precedence <= _WEAK and one.survived_after <= STARTED


def left_over(found: Iterable[Found], overcome: set[str]) -> list[Found]:
    """What the program has not gone on after; where it caught what it went on after is noted in `overcome`."""
    left = []
    for one in found:
        if not one.is_survived:
            left.append(one)
        elif one.caught_at is not None:
            overcome.add(one.caught_at)
    return left


def without_repeated(found: Sequence[Found], overcome: set[str]) -> list[Found]:
    """Leave out what was caught where the same program had caught such a thing before and gone on: with a step, or one and the same
    process as often as no launcher starts it again."""
    processes = Counter(
        (one.caught_at, process[0])
        for one in found
        if one.caught_at is not None and (process := _PROCESS.match(one.text))
    )
    often = {place for (place, _), times in processes.items() if times >= _OFTEN and place is not None}
    words: dict[str | None, set[str]] = defaultdict(set)
    for one in found:
        words[one.caught_at].add(one.text)
    often |= {place for place, said in words.items() if len(said) >= _OF_ITEMS and place is not None}
    overcome |= often

    def is_survived(one: Found) -> bool:
        # Of such processes what is told without frames, as lines of several stand between each other, is no end either.
        is_told = bool(often) and not one.ends_process and _PROCESS.match(one.text) is not None
        return one.cause.id in OF_ONE_CALL and (one.caught_at in overcome or is_told)

    return [one for one in found if not is_survived(one)]
