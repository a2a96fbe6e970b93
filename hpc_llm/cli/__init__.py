"""The command line: parse flags, call one function, print. One module a command; heavy imports stay inside the calls."""

from __future__ import annotations

import gc

gc.set_threshold(100_000, 10, 5)  # a command is short: looking for cycles is a quarter of its time with many runs

import atexit
import errno
import importlib
import os
import sys
import threading
import warnings
from typing import Any, NoReturn

import typer

from hpc_llm import __version__
from hpc_llm.cli.interrupts import CODE, Interrupts, end_at_once, interrupts
from hpc_llm.cli.output import note
from hpc_llm.cli.terminal import guarded
from hpc_llm.cli.usage import ASKING, is_usage_error, refuse_wrong_values, sentence
from hpc_llm.errors import HpcLlmError, Notice, PassedOverWarning

COMMANDS = (
    "clusters", "methods", "models", "render", "estimate", "submit", "status", "logs", "cancel", "reconcile", "clean", "parse", "diagnose", "report", "export", "fetch",
)  # fmt: skip
"""The modules of this package that are commands, in the order of `--help`."""
_LONGEST = 4000
"""Characters of an error's sentence."""


def make_app(arguments: list[str]) -> typer.Typer:
    """The application; where the first argument is a command, with that one alone, as the others take time to set up."""
    app = typer.Typer(
        name="hpc-llm",
        help="Run the same LLM experiment on any Slurm/module cluster: see the exact job script first, read a table after.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    for name in wanted:
        importlib.import_module(f"hpc_llm.cli.{name}").register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hpc-llm {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Shared by all commands."""


def main() -> NoReturn:
    """Entry point: exit 0 done, 1 it failed, 2 the request was wrong, 3 the awaited job did not complete."""
    end_at_once()
    try:
        try:
            code = run(sys.argv[1:])
        except KeyboardInterrupt:  # in the midst of what `run` puts back at its end
            code = CODE
        _leave_at_once(code)
        sys.exit(code)
    finally:
        gc.freeze()  # else the exit looks for cycles in all that was imported, which took a sixth of `render`


def _leave_at_once(code: int) -> None:
    """End the process and let the system take back what was imported, which is quicker than Python is by a twentieth of `render`.

    Returns where threads still run, somebody measures or debugs, or what was printed cannot be written: Python knows what
    to do then.
    """
    if threading.active_count() > 1 or sys.getprofile() or sys.gettrace() or sys.flags.inspect:
        return
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; no traceback reaches a user unless HPC_LLM_DEBUG=1."""
    with guarded(), interrupts() as pressed:
        try:
            code = _run(arguments, pressed)
        except KeyboardInterrupt:  # once more, while the first one or a failure was told
            return CODE
        return CODE if pressed.seen else code


def _run(arguments: list[str], pressed: Interrupts) -> int:
    try:
        with warnings.catch_warnings():
            _tell_what_is_passed_over()
            application = typer.main.get_command(make_app(arguments))
            refuse_wrong_values(application, arguments)
            result = application.main(args=arguments, prog_name="hpc-llm", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return CODE
    except (BrokenPipeError, SystemExit) as error:
        # The reader of our output has gone, as in `hpc-llm parse ... | head`; click makes a SystemExit of it, or not.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # Python must not complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if pressed.seen:  # what a library made of it
            return CODE
        if is_usage_error(error):
            return _wrong_usage(error, arguments)
        if os.environ.get("HPC_LLM_DEBUG") == "1":
            _tell_where(error)
        return _failed(error)


def _tell_where(error: Exception) -> None:
    """The traceback, in which what somebody wrote steers no terminal and shows no secret."""
    import traceback

    from hpc_llm.text.secrecy import redacted
    from hpc_llm.text.shown import shown

    typer.echo(shown(redacted("".join(traceback.format_exception(error)))), err=True)


def _tell_what_is_passed_over() -> None:
    """Print one line for each thing that could not be read, or that was found here, once, however often it is come across."""
    told: set[str] = set()
    otherwise = warnings.showwarning
    beginnings: dict[type[Warning], str] = {PassedOverWarning: "passed over ", Notice: ""}

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category not in beginnings:
            otherwise(message, category, *place, **more)
        elif str(message) not in told:
            told.add(str(message))
            note(f"{beginnings[category]}{message}")

    for category in beginnings:
        warnings.simplefilter("always", category)
    warnings.showwarning = show


def _wrong_usage(error: Exception, arguments: list[str]) -> int:
    """Say what is wrong with the command; the help where nothing of a command was said."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return 2
    note(_readable(sentence(error, arguments)))
    _tell_way(arguments, getattr(error, "option_name", None))
    if "unexpected extra argument" in str(getattr(error, "message", "")) and arguments[:1] in (["render"], ["submit"]):
        note("several methods or clusters are one word, with commas: --method z2,z3")
    return 2


def _tell_way(arguments: list[str], option: str | None) -> None:
    """Say how an option of sbatch is given, where somebody gave one of our commands a letter that may stand for it."""
    from hpc_llm.api.request import way_of

    is_letter = option is not None and option[:1] == "-" and option[1:2] != "-"
    way = way_of(option) if option and is_letter and arguments[0] in ASKING else None
    if way is not None:
        note(f"as an option of sbatch it is said as {way}")


def _readable(sentence: str) -> str:
    """The sentence without a secret that it quotes, cut in the middle where it quotes what nobody would read to its end."""
    from hpc_llm.text.secrecy import redacted

    sentence = redacted(sentence)
    return sentence if len(sentence) <= _LONGEST else f"{sentence[: _LONGEST // 2]} … {sentence[-_LONGEST // 2 :]}"


def _way_to_room(error: OSError) -> str:
    """What to do where a file, or what is printed, had no room; else nothing."""
    from hpc_llm.records.files import NO_ROOM

    if error.errno not in NO_ROOM:
        return ""
    if error.errno == errno.EFBIG:
        return " `ulimit -f` says how large a file may be here."
    return " Free room there, or name another place; `hpc-llm clean` says what room runs take."


def _way_to_write(error: OSError) -> str:
    """What to do where a file, or the folder of one that is to be written, is closed to whoever asks; else nothing."""
    if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not isinstance(error.filename, str):
        return ""
    folder = os.path.dirname(os.path.abspath(error.filename))
    if error.errno != errno.EROFS and os.path.lexists(error.filename):
        return "" if os.access(error.filename, os.R_OK) else " Ask its owner to open it to you, or name another."
    if os.access(folder, os.W_OK):
        return ""
    why = "is read-only" if error.errno == errno.EROFS else "is one in which you may not write"
    return f" The folder {folder} {why}: name another place, by -o or --logs."


def _failed(error: Exception) -> int:
    if isinstance(error, HpcLlmError):
        note(_readable(str(error)))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        note(_readable(f"{error.filename}: the name is too long for a file system. Give a shorter one."))
        return 2
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        note(f"{place}{error.strerror}.{_way_to_room(error)}{_way_to_write(error)}")
        return 1
    kind = type(error).__name__
    typer.echo(
        f"hpc-llm: unexpected {kind}: {_readable(str(error))}. HPC_LLM_DEBUG=1 shows where; please report it.", err=True
    )
    return 1
