"""What is wrong with a command as it was typed, in one sentence: typer's own would name types of its inside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from itertools import zip_longest
from typing import Any

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.text.numbers import are_several, without_commas

_WHOLE, _NUMBER = "a whole number", "a number"
_KINDS = {"integer": _WHOLE, "float": _NUMBER, "number": _NUMBER}
"""Word in typer's sentence, whichever version it is -> what is needed."""


_LIST = re.compile(r"^[0-9.]{1,20}(?:,[0-9.]{1,20}){1,99}$")
"""Numbers with commas between them."""

ASKING = ("render", "estimate", "submit")
"""Commands that take the options of a run."""
_MAY_HOLD_OPTIONS = ("--sbatch",)
"""Options whose values people write as options of another program: `--sbatch --nodes=2`."""


COMMANDS_ELSEWHERE = {
    "plan explain preview script dry-run dryrun": "`hpc-llm render --explain` shows the plan of a run and its script",
    "wait watch follow": "`hpc-llm submit --wait` follows what it submits to its end, `hpc-llm status --watch` what was submitted",
    "run train start launch sbatch srun exec execute sweep study experiment": "`hpc-llm submit` does that",
    "list ls ps queue squeue sacct jobs runs show info history": "`hpc-llm status` shows what became of the runs",
    "stop kill scancel abort end": "`hpc-llm cancel RUN` does that",
    "log tail output cat": "`hpc-llm logs RUN` prints the output of a run",
    "why explain-failure debug doctor": "`hpc-llm diagnose RUN` says why a run failed",
    "results compare plot table summary": "`hpc-llm report` makes the table and the plots, `hpc-llm parse` a CSV",
    "resubmit rerun repeat again": "`hpc-llm submit` with the same options runs it anew, `hpc-llm submit --resume RUN` goes on with a run",
    "resume continue restart": "`hpc-llm submit --resume RUN` goes on with a run",
    "memory fit predict cost time": "`hpc-llm estimate` says whether it fits and how long it takes",
    "tune prepare infer finetune pretrain": "it is a task: `hpc-llm submit --task {word}`",
    "benchmark bench generate inference": "inference is a task: `hpc-llm submit --task infer`",
    "finetuning fine-tune lora": "fine-tuning is a task: `hpc-llm submit --task finetune`",
    "download pull get": "`hpc-llm fetch NAME --to DIR` does that",
    "rm remove delete purge prune": "`hpc-llm clean` says what can be removed, and removes what is asked for",
    "help": "`hpc-llm -h` lists the commands, `hpc-llm COMMAND -h` the options of one",
    "version": "`hpc-llm --version` prints it",
}
"""Commands that other programs have, or that are functions in Python -> how it is said here."""


def is_usage_error(error: Exception) -> bool:
    """Whether it is typer's: it brings a click of its own in some versions, so its class cannot be named."""
    return hasattr(error, "show") and hasattr(error, "exit_code")


def sentence(error: Any, arguments: Sequence[str]) -> str:
    """What is wrong, where, what is valid and what to do next; typer's own words for what it says of nothing here."""
    name = type(error).__name__
    command = _command(arguments)
    asked = f"`hpc-llm {command} -h`" if command else "`hpc-llm -h`"
    if name == "NoSuchOption":
        return _no_such_option(error, command, arguments, asked)
    if name == "MissingParameter" and error.param is not None:
        return f"{command} needs {_shown(error.param)}, which is missing. {asked} says what it is."
    if name == "BadParameter" and error.param is not None:
        return _bad_value(error, arguments)
    message = str(getattr(error, "message", error)).rstrip(".")
    if name == "BadOptionUsage":
        if "does not take a value" in message:
            return f"{error.option_name} is a switch and takes no value: leave out what is behind the =."
        return f"{error.option_name} needs a value behind it. {asked} says which."
    if message.startswith("No such command"):
        return _no_such_command(error, arguments)
    if "unexpected extra argument" in message:
        return _too_many(error, command, asked)
    return f"{message[:1].lower()}{message[1:]}. {asked} says what can be said."


def refuse_wrong_values(application: Any, arguments: Sequence[str]) -> None:
    """Raise RequestError for an option whose value is no letter, as a folder would be the one that one happens to be in, for one that
    would take the next option for its value, and for one of a single value that has two: what is told then is wrong elsewhere, or nothing."""
    command = _command(arguments)
    parameters = getattr(getattr(application, "commands", {}).get(command), "params", ())
    takes = {name: one for one in parameters if not getattr(one, "is_flag", True) for name in one.opts}
    names = {"-h", "--help"}.union(*((*one.opts, *one.secondary_opts) for one in parameters))
    options = {name for name in names if name.startswith("-")}  # an argument has a name, too
    said: dict[str, str] = {}
    words = iter(zip_longest(arguments, arguments[1:]))
    for word, following in words:
        if word == "--":
            return
        option, is_joined, value = word.partition("=")
        if option not in takes:
            continue
        value = value if is_joined else following
        if value == "":
            raise RequestError(
                f"{option} is empty: a variable of the shell may not be set. Give it a value, or leave it out."
            )
        if not is_joined and _is_option(following or "", options, option):
            raise RequestError(
                f"{option} needs a value behind it, and {following} is an option itself. `hpc-llm {command} -h` says which."
            )
        if not takes[option].multiple:
            before = said.setdefault(takes[option].name, value or "")
            if value not in (before, None):
                raise RequestError(_said_twice(option, takes[option], before, value, command))
        if not is_joined:
            next(words, None)


def _said_twice(option: str, parameter: Any, before: str, value: str, command: str) -> str:
    """That an option of one value has two, and how several are said."""
    from hpc_llm.api.values import NAMES

    shown = f"{option} is given as {before} and as {value}, and takes one value"
    if "[,…]" in (parameter.metavar or ""):
        several = ",".join(dict.fromkeys([*before.split(","), *value.split(",")]))
        return f"{shown}: several are one word with commas, {option} {several}."
    if command in ASKING and parameter.name in NAMES:
        return f"{shown}: give one. {_as_axis(option, (before, value))}"
    return f"{shown}: give one."


def _as_axis(option: str, values: Iterable[str]) -> str:
    """How several values of an option of one run are said."""
    return f"Several are runs of a study, a file with matrix: {{{option.lstrip('-')}: [{', '.join(values)}]}}."


def _is_option(word: str, options: Set[str], before: str) -> bool:
    """Whether the word behind an option is one, too; one of sbatch is said with a value, and may be called as one of ours."""
    return word in options or (before not in _MAY_HOLD_OPTIONS and word.partition("=")[0] in options)


def _command(arguments: Sequence[str]) -> str:
    from hpc_llm.cli import COMMANDS

    return arguments[0] if arguments and arguments[0] in COMMANDS else ""


def _no_such_option(error: Any, command: str, arguments: Sequence[str], asked: str) -> str:
    from hpc_llm.cli import COMMANDS

    behind = next((one for one in arguments if one in COMMANDS), None) if not command else None
    if behind is not None:
        first = f"hpc-llm {behind} {error.option_name} …"
        return f"{error.option_name} stands before the command, and its options stand behind it: {first}. `hpc-llm {behind} -h` lists them."
    options = [name for one in _parameters(error) for name in one.opts if name.startswith("--")]
    dashed = [one for one in options if one == error.option_name.replace("_", "-")]
    if (
        not dashed
        and command in ASKING
        and (said := _meant(error.option_name, command, options, _given([error.option_name], arguments) or ""))
        is not None
    ):
        return f"{said} {asked} lists all."
    word = error.option_name
    begun = (
        sorted(one for one in options if one.startswith(f"-{word}")) if len(word) == 2 else []
    )  # -m: all that begin with --m
    near = dashed or begun
    return unknown_name("option", word, {*options, "--help"}, where=command, next_step=f"See {asked}.", meant=near)


def _meant(option: str, command: str, options: Sequence[str], value: str) -> str | None:
    """What says here what the option says in other programs; None where one of ours is nearly called so."""
    from hpc_llm.api.request import meant

    is_ours_and_more = option.startswith(tuple(f"{one}-" for one in options))
    return None if is_ours_and_more or not option.startswith("--") else meant(option, command, value)


def _no_such_command(error: Any, arguments: Sequence[str]) -> str:
    from hpc_llm.cli import COMMANDS

    asked = next((one for one in arguments if not one.startswith("-")), "")
    word = asked.lower().replace("_", "-")
    way = next((way for words, way in COMMANDS_ELSEWHERE.items() if word in words.split()), None)
    if way is not None:
        return f"there is no command '{asked}': {way.replace('{word}', word)}."
    return unknown_name("command", asked, COMMANDS, next_step="`hpc-llm -h` says what each does.")


def _too_many(error: Any, command: str, asked: str) -> str:
    extra = str(error.message).partition("(")[2].partition(")")[2].strip().strip("()")
    takes = [_shown(one) for one in _parameters(error) if one.param_type_name == "argument"]
    what = f"takes {takes[0]} alone" if takes else "takes options only"
    return f"{command} {what}, and '{extra}' is more than that. {asked} says which options there are."


def _bad_value(error: Any, arguments: Sequence[str]) -> str:
    needed = next((kind for word, kind in _KINDS.items() if word in str(error.message)), None)
    given = _given(error.param.opts, arguments)
    where = _shown(error.param)
    if needed is None:
        message = str(error.message).rstrip(".")
        return f"{where}: {message[:1].lower()}{message[1:]}."
    if given is None and error.param.envvar:
        where = f"{where} (variable {error.param.envvar})"
    said = f" is {given!r}" if given is not None else ""
    if given is not None and _LIST.fullmatch(given) and _command(arguments) in ASKING:
        number = without_commas(given)
        form = f" Write {number}, without commas." if number else ""
        if not are_several(given):
            return f"{where}{said}: a whole number is needed.{form}"
        return f"{where}{said}: a run has one.{form} {_as_axis(error.param.opts[0], given.split(','))}"
    example = f"{error.param.opts[0]} {10 if needed == _WHOLE else 1.5}"
    return f"{where}{said}: {needed} is needed, as in {example}."


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


def _shown(parameter: Any) -> str:
    """An option by its name, an argument by what stands in the usage."""
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0] if is_option else (parameter.metavar or parameter.name.upper()).strip("[]{}"))
