"""Every error that hpc-llm raises on purpose.

    HpcLlmError                  exit 1: it failed
    ├── RequestError             exit 2: the request was wrong and nothing was changed
    │   ├── ProfileError         a cluster, method or experiment file that is not valid
    │   ├── PlanError            the request is well formed, the cluster or GPU cannot do it
    │   │   └── AccountError     the site charges an account, and none is named
    │   ├── DataRequestError     data that are not there, or cannot be taken as they are
    │   └── ModelRequestError    the same of files of a model
    ├── SubmissionError          the scheduler refused or could not be reached
    ├── FetchError               a download came to no end; what was fetched is kept
    └── WorkerError              the training program cannot go on
        ├── DataFileError        a file of data is damaged, or a row of it is not as it should be
        └── ModelFileError       a file of a model, a tokenizer or a checkpoint is

A message says what is wrong, where, which choices are valid and what to do next, in this order. Library code raises;
only the command line prints and exits.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from types import FrameType

OURS = f"{__name__}."
"""Stands before the name of an error of ours in a traceback."""
_READABLE = 30
"""Longest list of valid names that a message carries whole."""
_SHORTEST_PART = 2
"""Letters of a part of a name that say which is meant."""


_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PYTHONS = os.path.dirname(os.path.abspath(os.__file__)) + os.sep

_LONGEST_NUMBER = 60
_ENDLESS = (
    (re.compile(rf"(?<!\w)[-+]?[0-9][0-9_.]{{{_LONGEST_NUMBER},}}(?!\w)"), 30),
    (re.compile(r"[\w+-]{256,}"), 100),
    (re.compile(r"(?<=')[^'/\n]{400,}(?=')"), 100),
)
"""What is cut short, and how much of it is kept. No name of a file has more than 255 letters; paths stay whole."""
_FIRST_WIDE = 0xA0
"""No control character is a blank from here on."""
_hide: list[Callable[[str], str]] = []
"""What takes the secrets out of a sentence; it lies above this module, so it is handed in."""


def hide_with(hide: Callable[[str], str]) -> None:
    """Let all errors and warnings that are made from now on say what `hide` makes of their sentences."""
    _hide[:] = [hide]


def _shortened(text: str) -> str:
    """The sentence without most of what nobody reads to its end: numbers of hundreds of digits, words and quotations of pages.

    >>> _shortened(f"steps is {'9' * 300}, it must be at most 7")[:70]
    'steps is 999999999999999999999999999999…, it must be at most 7'
    """
    if len(text) <= _LONGEST_NUMBER:
        return text
    for pattern, kept in _ENDLESS:
        text = pattern.sub(lambda said, kept=kept: f"{said[0][:kept]}…", text)  # type: ignore[misc]
    return text


def _hidden(text: str) -> str:
    r"""The sentence in one line, for it quotes names and words of others that would look like a line of ours, or steer a terminal.

    >>> _hidden("there is no run a\nb\x1b[2J\0c\u202ed")
    'there is no run a b\\x1b[2J\\x00c\\u202ed'
    """
    text = _shortened(_hide[0](text) if _hide else text)
    return text if text.isprintable() else "".join(map(_visible, " ".join(text.splitlines())))


def _visible(letter: str) -> str:
    is_blank = letter == "\t" or (letter.isspace() and ord(letter) >= _FIRST_WIDE)
    return letter if letter.isprintable() or is_blank else letter.encode("unicode_escape", "surrogatepass").decode()


class HpcLlmError(Exception):
    """Base of all errors of hpc-llm; `exit_code` is what the command line exits with."""

    exit_code = 1

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(_hidden(one) if isinstance(one, str) else one for one in arguments))


class RequestError(HpcLlmError):
    """The request was wrong; nothing was changed."""

    exit_code = 2


class ProfileError(RequestError):
    """A cluster, method or experiment file is not valid."""


class PlanError(RequestError):
    """The cluster, its GPU or the method cannot do what was asked."""


class AccountError(PlanError):
    """The site charges an account, and none is named."""


class DataRequestError(RequestError):
    """The data that were asked for are not there, or cannot be taken as they are: the files are at fault, and no setting."""


class ModelRequestError(RequestError):
    """The same of the files of a model."""


class SubmissionError(HpcLlmError):
    """The scheduler refused the job or could not be reached."""


class FetchError(HpcLlmError):
    """A download came to no end; what was fetched is kept, and the same command goes on with it."""


class WorkerError(HpcLlmError):
    """The training program cannot go on."""


class DataFileError(WorkerError):
    """A file of data is damaged, or a row of it is not as it should be; `diagnose` knows the cause by the name of this class."""


class ModelFileError(WorkerError):
    """A file of a model, a tokenizer or a checkpoint is damaged, missing or that of another one; known by its name, too."""


def unknown_name(
    kind: str, name: str, valid: Iterable[str], where: str = "", next_step: str = "", meant: Iterable[str] = ()
) -> str:
    """Sentence for a name that does not exist: what may be meant first, then all valid ones, or the nearest of many.

    `meant` are valid names that the caller takes it for, by what the name means and not by its letters.

    >>> unknown_name("method", "z3oo", ["z3", "z3o"])
    "there is no method 'z3oo': did you mean 'z3o'? Valid: z3, z3o."
    """
    names = sorted(valid)
    close = [one for one in meant if one in names]
    place = f" in {where}" if where else ""
    hint = _asking(close) or did_you_mean(name, names) or "."
    tail = f" {next_step}" if next_step else ""
    return f"there is no {kind} '{name}'{place}{hint} Valid: {_listed(name, names)}.{tail}"


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """What ends a sentence on a wrong name: which one may be meant; "" where none is near.

    >>> did_you_mean("bf61", ["bf16", "fp32"]), did_you_mean("LOCAL", ["local", "delta"]), did_you_mean("x", ["bf16"])
    (": did you mean 'bf16'?", ": did you mean 'local'?", '')
    """
    return _asking(_close(name, sorted(valid)))


def _asking(names: list[str]) -> str:
    return ": did you mean " + " or ".join(f"'{one}'" for one in names) + "?" if names else ""


def _close(name: str, names: list[str]) -> list[str]:
    """The name that is nearly the same, else those of which this one is a part, as `oom` is of `host_oom`."""
    lower = {one.lower(): one for one in reversed(names)}
    if name.lower() in lower:
        return [lower[name.lower()]]
    nearest = _as_near(name, difflib.get_close_matches(name, names, n=3))
    nearest = nearest or [lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=1)]
    if nearest or len(name) < _SHORTEST_PART:
        return nearest
    return [one for one in names if name.lower() in one.lower()][:3]


def _as_near(name: str, close: list[str]) -> list[str]:
    """The first, and those that go on where the name ends and are as near, as `gpuA100x4` and `gpuA100x8` are to `gpuA100`."""
    alike = [one for one in close if one.startswith(name) and len(one) == len(close[0])]
    return sorted(alike) if alike and close[0] in alike else close[:1]


def _listed(name: str, names: list[str]) -> str:
    """All names, or the nearest ones where nobody would read them all."""
    if not names:
        return "none"
    if len(names) <= _READABLE:
        return ", ".join(names)
    nearest = difflib.get_close_matches(name, names, n=8, cutoff=0.0)
    return f"{', '.join(nearest)} and {len(names) - len(nearest)} others"


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "GPU"), counted(2, "GPU")
    ('1 GPU', '2 GPUs')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


class PassedOverWarning(UserWarning):
    """Something could not be read and was left out; the message says what, and why."""


class Notice(UserWarning):
    """What a caller should know though nothing is wrong, as that a file of the working directory decides something."""


def pass_over(place: object, why: str) -> None:
    """Warn that `place` is left out: one bad folder must not keep all others from being shown."""
    _warn(f"{place}: {why}", PassedOverWarning)


def notice(text: str) -> None:
    """Tell the caller: the command line prints it, a program gets a Notice."""
    _warn(text, Notice)


def _warn(text: str, category: type[Warning]) -> None:
    """Warn at the line outside this package that called it, however deep inside it is told."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    assert frame is not None
    warnings.warn_explicit(
        _hidden(text),
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _is_inside(file: str) -> bool:
    """Whether the code is ours, or of Python's own library, by which one function of ours calls another."""
    return file.startswith(_OURS) or (file.startswith(_PYTHONS) and "site-packages" not in file)
