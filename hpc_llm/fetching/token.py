"""What lets somebody in where a model is not for everybody: found where its owner keeps it, shown to nobody."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpc_llm.errors import RequestError, notice
from hpc_llm.records.files import open_plain
from hpc_llm.text.env_file import read as read_env_file
from hpc_llm.text.env_file_check import check_env_file
from hpc_llm.text.homes import from_home

HUB_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_SENDABLE = re.compile(r"[\x21-\x7e]{1,4096}")
_LARGEST = 1 << 13


@dataclass(frozen=True)
class Token:
    """A secret and where it was found; printed, it says only that."""

    value: str = field(repr=False)
    origin: str


def find_token(env_file: str | None, variables: tuple[str, ...]) -> Token | None:
    """The first of `variables` that a file of the user's own, or the environment, holds; then what `hf auth login` kept.

    Raises:
        RequestError: the file is not there or others may open it, or what it holds can be no token.
    """
    if env_file is not None:
        found = _of(_variables_of(env_file), variables, f" in {env_file}")
        if found is not None:
            return found
    return _of(os.environ, variables, "") or (_kept() if variables == HUB_VARIABLES else None)


def _variables_of(env_file: str) -> Mapping[str, str]:
    if not Path(env_file).exists():
        raise RequestError(f"--env-file {env_file}: there is no such file.")
    check_env_file(env_file)
    return read_env_file(env_file)


def _of(environ: Mapping[str, str], variables: tuple[str, ...], where: str) -> Token | None:
    for name in variables:
        value = environ.get(name, "").strip()
        if value:
            return _checked(value, f"{name}{where}")
    return None


def _checked(value: str, origin: str) -> Token:
    if not _SENDABLE.fullmatch(value):
        raise RequestError(f"{origin} holds a blank or a character that no token has: see that it is the token alone.")
    return Token(value, origin)


def _kept() -> Token | None:
    """What the Hub's own program keeps."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    path = from_home(os.environ.get("HF_TOKEN_PATH") or f"{home}/token")
    try:
        with open_plain(path) as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                notice(f"others may open {path}, which holds a token: chmod 600 {path}")
            value = file.read(_LARGEST).decode("utf-8", "replace").strip()
    except OSError:
        return None
    return _checked(value, str(path)) if value else None
