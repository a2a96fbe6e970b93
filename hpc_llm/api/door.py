"""What a program calls is looked at before it is carried out: a wrong argument is one sentence, and no error of Python."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from hpc_llm.errors import RequestError, unknown_name

_KINDS_OF_REMOVAL = {
    "checkpoints": "checkpoints",
    "models": "model",
    "model": "model",
    "code": "code",
    "caches": "caches",
}
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""Bytes that Linux takes."""
_OTHERWISE = {("clean", word): f"remove=['{kind}']" for word, kind in _KINDS_OF_REMOVAL.items()}
"""Function and keyword of the command line -> how a program says it."""


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises RequestError for arguments that it does not take, or that are of another kind."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        _check(function.__name__, signature, given, named)
        return function(*given, **named)

    return checked


def _check(name: str, signature: inspect.Signature, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    takes = {one.name: one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD}
    _check_names(name, signature, takes, given, named)
    bound = signature.bind_partial(*given, **named).arguments
    for argument, value in bound.items():
        if argument in takes:
            _check_kind(f"{name}: {argument}", takes[argument], value)
    lacking = [one.name for one in takes.values() if one.default is one.empty and one.name not in bound]
    if lacking:
        call = f"{name}({', '.join(f'{one}=…' for one in lacking)})"
        raise RequestError(f"{name} needs {' and '.join(lacking)}: call it as {call}.")


def _check_names(
    name: str,
    signature: inspect.Signature,
    takes: Mapping[str, inspect.Parameter],
    given: tuple[Any, ...],
    named: Mapping[str, Any],
) -> None:
    """Raise RequestError for a keyword that the function does not have, or for what stands where nothing may."""
    takes_options = len(takes) < len(signature.parameters)
    for word in () if takes_options else named:
        if word not in takes:
            way = _OTHERWISE.get((name, word))
            said = unknown_name("argument", word, takes, where=name)
            raise RequestError(f"there is no argument '{word}' in {name}: say {way}." if way else said)
    places = [one.name for one in takes.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    if len(given) > len(places):
        raise RequestError(
            f"{name} got {len(given)} arguments without a name and takes {len(places)} so: name the others, as in "
            f"{next((one for one in takes if one not in places), 'logs')}=…."
        )
    twice = next((one for one in places[: len(given)] if one in named), None)
    if twice is not None:
        raise RequestError(f"{name} got {twice} twice, once without its name. Keep one of them.")


def _check_kind(place: str, parameter: inspect.Parameter, value: Any) -> None:
    """Raise RequestError where the value is of no kind that the annotation names; kinds that are not known here pass."""
    annotation = str(parameter.annotation)
    if value is None and ("None" in annotation or parameter.default is None):
        return
    if "os.PathLike" in annotation or "Named" in annotation:
        for text in (
            [value] if isinstance(value, (str, os.PathLike, int)) else value if isinstance(value, (list, tuple)) else []
        ):
            _refuse_no_path(place, text)
    needed = _needed(annotation, value)
    if needed is not None:
        raise RequestError(f"{place} is {shown(value)}: {needed} is needed.")


def _refuse_no_path(place: str, value: Any) -> None:
    """Raise RequestError for text, or for the number of a run, that no file system takes as a path."""
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_NAME:
        raise RequestError(f"{place} is a number of more than {_LONGEST_NAME} digits, and no run's name is as long.")
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        return
    if "\0" in text:
        raise RequestError(
            f"{place} is {text[:80]!r}, and no path holds a zero byte: give the name of a file or folder."
        )
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        raise RequestError(
            f"{place} is {text[:80]!r}, and no path holds half of a character: give the name of a file or folder."
        ) from None
    if max(map(len, encoded.split(b"/"))) > _LONGEST_NAME or len(encoded) > _LONGEST_PATH:
        raise RequestError(
            f"{place} begins with {text[:40]!r} and is {len(text)} letters long: names have at most {_LONGEST_NAME} bytes, "
            f"paths {_LONGEST_PATH}."
        )


def _needed(annotation: str, value: Any) -> str | None:
    """What is needed in place of the value; None where it will do."""
    kind = annotation.removesuffix(" | None")
    if "os.PathLike" in kind and "Named" not in kind and "Sequence" not in kind:
        return None if is_path(value) else "the path of a file or folder, as text or a Path,"
    if kind == "str":
        return None if isinstance(value, str) else "text"
    if kind == "bool":
        return None if isinstance(value, bool) else "True or False"
    if kind == "float":
        return "a number" if isinstance(value, bool) or not isinstance(value, Real) else None
    if kind.startswith(("Collection[str", "Iterable[str", "Sequence[str")):
        is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
        return None if is_list and all(isinstance(one, str) for one in value) else "a list of texts"
    return None if not kind.startswith("Callable") or callable(value) else "a function"


def is_path(value: Any) -> bool:
    """Whether the value is the path of a file or folder, and not one in bytes."""
    return isinstance(value, (str, os.PathLike)) and isinstance(os.fspath(value), str)


def shown(value: Any) -> str:
    """The value where it says something, and is no secret's whole text; else its type."""
    return repr(value)[:80] if isinstance(value, (str, int, float)) else f"of type {type(value).__name__}"
