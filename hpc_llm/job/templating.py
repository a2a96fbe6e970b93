"""Templates of the job script, rendered so that they can do nothing but print.

They get plain data, may read keys and call a few methods of text and mappings, and nothing else of Python. Whoever names
a folder of their own templates may have it from a stranger: those are rendered in a process of its own, which ends when
it takes too long or too much.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hpc_llm.errors import HpcLlmError, RequestError, did_you_mean
from hpc_llm.records.files import is_private_folder
from hpc_llm.site.profiles import bundled, user_cache, user_config
from hpc_llm.text.pasted import refuse_address

NAMES = ("job.sh.j2", "prelude.sh.j2", "launch.sh.j2")
"""The templates that there are; the first includes the others."""
SECONDS = 5.0
"""Of work; what waits for a busy machine does not work."""
PATIENCE_S = 60.0
MEMORY_BYTES = 512 << 20
LARGEST_SCRIPT = 8 << 20
"""Bytes; Slurm takes 4 MiB."""
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(
        "endswith join lower partition removeprefix removesuffix replace split startswith strip upper".split()
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}
_OF_JINJA = ("jinja2.runtime", "jinja2.utils")
_GLOBALS = ("range", "dict", "namespace", "joiner", "cycler")


def own_templates(named: Path | None) -> list[Path]:
    """The templates that are used in place of the bundled ones: those of the folder `named`, else the user's own.

    Raises:
        RequestError: `named` is no folder, or holds none of them.
    """
    if named is not None:
        found = [named / name for name in NAMES if (named / name).is_file()]
        if not found:
            refuse_address("--templates", str(named))
            what = "is no folder" if not named.is_dir() else "holds no template"
            raise RequestError(f"--templates {named} {what}: it may hold {', '.join(NAMES)}.")
        return found
    return [path for name in NAMES if (path := user_config() / "templates" / name).is_file()]


def digest_of_own(named: Path | None) -> str | None:
    """What tells these templates from others; None where the bundled ones make the script."""
    import hashlib

    texts = [(path.name, path.read_bytes()) for path in own_templates(named)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:8] if texts else None


def render_template(
    values: Mapping[str, Any], filters: Mapping[str, Callable[..., Any]], mark: Callable[[str], str], named: Path | None
) -> str:
    """The text of the job script for plain `values`.

    Raises:
        RequestError: a template of the user's own is wrong, with its file and line, or does not come to its end.
    """
    own = own_templates(named)
    folders = [*dict.fromkeys(path.parent.absolute() for path in own), bundled("templates")]

    def text() -> str:
        environment = _environment(folders, is_own=True, named=named) if own else _bundled(folders[0])
        environment.globals["from"] = mark
        environment.filters.update(filters)
        with _told(folders):
            return environment.get_template(NAMES[0]).render(values)

    return _contained(text, own[0].parent) if own else text()


class _Environment(ImmutableSandboxedEnvironment):
    """Plain data only: a key of a mapping, or one of a few methods that change nothing."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict) and attribute in obj:  # a key that is called like a method
            return obj[attribute]
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        known = attr in _METHODS.get(type(obj), ()) or type(obj).__module__ in _OF_JINJA
        return known and super().is_safe_attribute(obj, attr, value)


class _Loader(jinja2.FileSystemLoader):
    """Templates of folders; of the one that was named, only what lies in it: a link of a stranger's leads to what is not theirs."""

    def __init__(self, folders: list[str], named: Path | None) -> None:
        super().__init__(folders)
        self._named = named and named.absolute()

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        if self._named is not None:
            _check_inside(self._named.joinpath(*split_template_path(template)), self._named)
        return super().get_source(environment, template)


def _check_inside(path: Path, folder: Path) -> None:
    """Raise a RequestError for a template that is not a file of that folder's, or below it."""
    if not os.path.lexists(path):  # there may be one in the next folder
        return
    if not path.resolve().is_relative_to(folder.resolve()):
        raise RequestError(
            f"{path} is a link that leads out of {folder}, and is not followed. Put the file itself there."
        )
    if path.exists() and not path.is_file():
        raise RequestError(f"{path} is no regular file. A template is one.")
    found = path.stat() if path.exists() else None
    if found and found.st_nlink > 1 and found.st_mode & 0o077 == 0:
        raise RequestError(
            f"{path} is another name of a file that only you can read, and is not followed. Put a copy there, or chmod go+r it."
        )


@functools.cache
def _bundled(folder: Path) -> jinja2.Environment:
    """The bundled templates, loaded once: a study renders them a thousand times."""
    return _environment([folder], is_own=False, named=None)


def _environment(folders: Sequence[Path], is_own: bool, named: Path | None) -> jinja2.Environment:
    environment = _Environment(
        loader=_Loader([str(folder) for folder in folders], named),
        bytecode_cache=None if is_own else _bytecode_cache(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: the filters quote
    )
    environment.globals = {name: environment.globals[name] for name in _GLOBALS}
    del environment.filters["random"]  # what is looked at is what is sent
    return environment


def _bytecode_cache() -> jinja2.FileSystemBytecodeCache | None:
    """Compiled templates, which take longer to compile than all the rest of a preview; none where it cannot be kept.

    What is in the folder is run as code, so it is used only where nobody else can write.
    """
    folder = user_cache() / "sandboxed-templates"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_private = is_private_folder(folder)
    except OSError:
        return None
    return _BytecodeCache(str(folder)) if is_private and os.access(folder, os.W_OK) else None


class _BytecodeCache(jinja2.FileSystemBytecodeCache):
    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        # A home folder over its quota is no reason to refuse a preview.
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


@contextlib.contextmanager
def _told(folders: Sequence[Path]) -> Any:
    """Turn whatever is wrong with a template into one sentence with its file and line."""
    try:
        yield
    except HpcLlmError:  # a value that no script can carry
        raise
    except MemoryError:
        raise RequestError(f"a template of {folders[0]} takes more than {MEMORY_BYTES >> 20} MiB of memory.") from None
    except Exception as error:
        raise RequestError(f"{_place(error, folders)}: {_problem(error)}.") from error


def _place(error: Exception, folders: Sequence[Path]) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.filename or error.name}, line {error.lineno}"
    if isinstance(error, RecursionError):  # wherever it ran out of the stack, that is not where the mistake is
        return f"a template of {folders[0]}"
    here = tuple(f"{folder}{os.sep}" for folder in folders)
    places = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(here)]
    return f"{places[-1].filename}, line {places[-1].lineno}" if places else f"a template of {folders[0]}"


def _problem(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateNotFound):
        near = did_you_mean(str(error.name), NAMES).rstrip("?")
        return (
            f"there is no template {error.name!r}, there are {', '.join(NAMES)} and what stands beside this one{near}"
        )
    if isinstance(error, RecursionError):
        return "it calls itself without end, or is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    text = " ".join((str(error) or type(error).__name__).split()).rstrip(".")
    return text[:300]


def _contained(work: Callable[[], str], folder: Path) -> str:
    """The result of `work`, done in a process of its own with little time and memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer_and_exit(work, writer)
    os.close(writer)
    try:
        told = _read(reader, time.monotonic() + PATIENCE_S)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        answer: dict[str, str] = json.loads(told)
    except ValueError:
        raise RequestError(
            f"the templates of {folder} do not come to their end: after {SECONDS:.0f} s of work, {MEMORY_BYTES >> 20} MiB of memory "
            f"or {LARGEST_SCRIPT >> 20} MiB of script they are stopped."
        ) from None
    if "error" in answer:
        raise RequestError(answer["error"])
    return answer["text"]


def _answer_and_exit(work: Callable[[], str], writer: int) -> None:
    """The forked half; nothing may return from it into the copy of the caller's stack."""
    try:
        _limit()
        try:
            answer = {"text": work()}
        except HpcLlmError as error:
            answer = {"error": str(error)}
        with os.fdopen(writer, "w", encoding="ascii") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


def _limit() -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + SECONDS)
    for what, most in ((resource.RLIMIT_AS, size + MEMORY_BYTES), (resource.RLIMIT_CPU, seconds)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _read(reader: int, deadline: float) -> bytes:
    """What the child says, or nothing where it says too much or nothing in time."""
    said = b""
    while len(said) <= LARGEST_SCRIPT:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return b""
        more = os.read(reader, 1 << 16)
        if not more:
            return said
        said += more
    return b""
