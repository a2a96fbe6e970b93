"""What is wrong with a command as it was typed, in one sentence: typer's own would name types of its inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hpc_llm.errors import unknown_name

_KINDS = {"integer": "a whole number", "int": "a whole number", "float": "a number", "number": "a number"}
"""Name of a kind of value, by typer's version, -> what is needed."""


def is_usage_error(error: Exception) -> bool:
    """Whether it is typer's: it brings a click of its own in some versions, so its class cannot be named."""
    return hasattr(error, "show") and hasattr(error, "exit_code")


def sentence(error: Any, arguments: Sequence[str]) -> str:
    """What is wrong, where, what is valid and what to do next; typer's own words for what it says of nothing here."""
    name = type(error).__name__
    path = getattr(getattr(error, "ctx", None), "command_path", "hpc-llm")
    if name == "NoSuchOption":
        return _no_such_option(error, path)
    if name == "MissingParameter" and error.param is not None:
        return f"{path} needs {_shown(error.param)}, which is missing. `{path} -h` says what it is."
    if name == "BadParameter" and error.param is not None:
        return _bad_value(error, arguments)
    if name in ("BadOptionUsage", "BadArgumentUsage") and (option := _option(error)) is not None:
        if option.is_flag:
            return f"{error.option_name} is a switch and takes no value: leave out what is behind the =."
        metavar = option.metavar or "VALUE"
        return f"{error.option_name} needs a value: {error.option_name} {metavar}. `{path} -h` says what it may be."
    message = str(getattr(error, "message", error)).rstrip(".")
    if message.startswith("No such command"):
        return _no_such_command(error, arguments)
    if "unexpected extra argument" in message:
        return _too_many(error, path)
    return f"{message[:1].lower()}{message[1:]}. `{path} -h` says what can be said."


def _no_such_option(error: Any, path: str) -> str:
    options = [name for one in _parameters(error) for name in one.opts if name.startswith("--")]
    return f"{path}: " + unknown_name("option", error.option_name, [*options, "--help"], next_step=f"See `{path} -h`.")


def _no_such_command(error: Any, arguments: Sequence[str]) -> str:
    from hpc_llm.cli import COMMANDS

    asked = next((one for one in arguments if not one.startswith("-")), "")
    return unknown_name("command", asked, COMMANDS, next_step="`hpc-llm -h` says what each does.")


def _too_many(error: Any, path: str) -> str:
    extra = str(error.message).partition("(")[2].partition(")")[2].strip().strip("()")
    takes = [_shown(one) for one in _parameters(error) if one.param_type_name == "argument"]
    what = f"takes {takes[0]} alone" if takes else "takes options only"
    return f"{path} {what}, and '{extra}' is one word too many. `{path} -h` says which options there are."


def _bad_value(error: Any, arguments: Sequence[str]) -> str:
    needed = _KINDS.get(str(getattr(error.param.type, "name", "")))
    given = _given(error.param.opts, arguments)
    where = _shown(error.param)
    if needed is None:
        message = str(error.message).rstrip(".")
        return f"{where}: {message[:1].lower()}{message[1:]}."
    if given is None and error.param.envvar:
        where = f"{where} (variable {error.param.envvar})"
    said = f" is {given!r}" if given is not None else ""
    example = f" {error.param.opts[0]} 10" if needed == "a whole number" else f" {error.param.opts[0]} 1.5"
    return f"{where}{said}: {needed} is needed, as in{example}."


def _given(names: Iterable[str], arguments: Sequence[str]) -> str | None:
    """What was typed for the option, the last time; None where nothing was."""
    found = None
    for number, word in enumerate(arguments):
        for name in names:
            if word == name:
                found = arguments[number + 1] if number + 1 < len(arguments) else None
            elif word.startswith(f"{name}=") and name.startswith("--"):
                found = word.partition("=")[2]
    return found


def _parameters(error: Any) -> list[Any]:
    context = getattr(error, "ctx", None)
    return list(context.command.params) if context is not None else []


def _option(error: Any) -> Any:
    """The option that the error is about."""
    return next((one for one in _parameters(error) if getattr(error, "option_name", None) in one.opts), None)


def _shown(parameter: Any) -> str:
    """An option by its name, an argument by what stands in the usage."""
    return str(parameter.opts[0] if parameter.param_type_name == "option" else parameter.make_metavar_name())
