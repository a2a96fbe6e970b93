"""What looks like a secret, by its name or by its shape: no record, script, page or message may keep it.

Standard library only. A name counts by its whole words, so TOKENIZERS_PARALLELISM and SSH_AUTH_SOCK are none; a value by
the prefixes and forms that services give their keys, so that a secret is found under any name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from hpc_llm.env_file import EnvFileError
from hpc_llm.env_file import read as read_env_file
from hpc_llm.errors import RequestError

_WORDS = frozenset(
    """TOKEN KEY KEYS SECRET SECRETS PASSWORD PASSWORDS PASSWD PASSPHRASE CREDENTIAL CREDENTIALS APIKEY APIKEYS APITOKEN
    ACCESSKEY SECRETKEY AUTHTOKEN BEARER""".split()
)
_PLACES = frozenset("PATH PATHS FILE FILES DIR FOLDER SOCK URL URI NAME".split())
"""Last words of names that say where a secret lies: the place itself is none."""
_HARMLESS = re.compile(r"(?:true|false|yes|no|on|off|none|null|[+-]?\d{0,3}(?:\.\d*)?|\$\{?\w+\}?)", re.IGNORECASE)
"""Switches, small numbers, and names of other variables."""
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      hf_(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{10,} | hf_[A-Za-z0-9]{20,} | api_org_[A-Za-z0-9]{16,}
    | sk-(?:[a-z]{2,8}-(?:[a-z0-9]{2,8}-)?)?[A-Za-z0-9_]{16,}
    | gh[opsur]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,}
    | (?:AKIA|ASIA)[A-Z0-9]{12,}
    | gl(?:pat|dt|rt|ptt|cbt|agent|oas)-[A-Za-z0-9_-]{12,}
    | xox[a-z]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{12,}
    | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{16,}
    | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{30,} | nvapi-[A-Za-z0-9_-]{20,} | dop_v1_[a-f0-9]{32,}
    | eyJ[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{6,}
    | [a-z][a-z0-9+.-]{0,20}://[^\s/?\#@:'"]{0,200}:[^\s/?\#@'"$]{1,500}@
    )
    | -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY-----[A-Za-z0-9+/=\s]{0,10000}""",
    re.VERBOSE,
)
_ASSIGNED = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)[=:]([^\s,;&'\"]*)")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
HIDDEN = "(hidden)"
WAY_IN = (
    "Records and scripts are read by others: write NAME=VALUE into a file, `chmod 600` it, and name it by --env-file FILE "
    "(env.file in a profile); the job reads it and nothing keeps what it holds."
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of that name holds a secret.

    >>> is_secret_name("WANDB_API_KEY"), is_secret_name("hubToken"), is_secret_name("TOKENIZERS_PARALLELISM")
    (True, True, False)
    """
    words = [word.upper() for word in _WORD.findall(name)]
    return bool(words) and words[-1] not in _PLACES and not _WORDS.isdisjoint(words)


def is_secret(text: str, name: str = "") -> bool:
    """Whether `text`, the value of `name`, is or holds a secret.

    >>> is_secret("hf_abcdEFGH12345678"), is_secret("any words", "HF_TOKEN"), is_secret("1", "HF_TOKEN")
    (True, True, False)
    """
    if _SHAPES.search(text) or (is_secret_name(name) and _is_kept(name, text)):
        return True
    return any(is_secret_name(key) and _is_kept(key, value) for key, value in _ASSIGNED.findall(text))


def _is_kept(name: str, value: str) -> bool:
    """Whether the value of a secret's name is one: a switch is none, nor is the path of a file of credentials."""
    is_path = value.startswith(("/", "~/", "${", "./")) and "CREDENTIAL" in name.upper()
    return not is_path and _HARMLESS.fullmatch(value.strip()) is None


def find_secret(value: Any, place: str = "") -> str | None:
    """The dotted place of the first secret in a value of JSON types; None where there is none."""
    return next(_secrets(value, place, ""), None)


def _secrets(value: Any, place: str, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if is_secret(str(key)):
                yield f"{place}.{HIDDEN}".lstrip(".")
            else:
                yield from _secrets(inner, f"{place}.{key}".lstrip("."), str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _secrets(inner, place, name)
    elif value is not None and not isinstance(value, bool) and is_secret(str(value), name):
        yield place


def refuse_secrets(value: Any, where: str) -> None:
    """Raise a RequestError that names the place, and not the secret, where `value` holds one."""
    place = find_secret(value)
    if place is not None:
        raise RequestError(f"{where}{': ' if place else ''}{place} holds what looks like a secret. {WAY_IN}")


def redacted(text: str) -> str:
    """`text` without the secrets that are known by their shape, or by the name that they are assigned to."""

    def hidden(found: re.Match[str]) -> str:
        # In lower case it is as likely an argument in a line of source: sorted(runs, key=age).
        is_variable = found[1].isupper() and is_secret(found[2], found[1])
        return f"{found[0].removesuffix(found[2])}{HIDDEN}" if is_variable else found[0]

    return _ASSIGNED.sub(hidden, _SHAPES.sub(HIDDEN, text))


def has_secret_shape(text: str) -> bool:
    """Whether a secret that is known by its shape stands anywhere in `text`."""
    return _SHAPES.search(text) is not None


def check_env_file(path: str) -> None:
    """Raise a RequestError where others may open the file, or a line of it is wrong; one that is not here is left to the job."""
    try:
        found = os.stat(path)
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(f"--env-file {path} is no regular file. Name one that holds NAME=VALUE lines.")
    if found.st_uid != os.geteuid():
        raise RequestError(f"--env-file {path} belongs to somebody else: the job reads only a file of your own.")
    if found.st_mode & 0o077:
        raise RequestError(f"others may open --env-file {path}: chmod 600 {shlex.quote(path)}")
    with contextlib.suppress(OSError):
        try:
            read_env_file(path)
        except EnvFileError as error:
            raise RequestError(f"--env-file {path}: {error}.") from None
