"""What a folder that was fetched says of itself: what it is, and whether it is whole. Standard library only.

The record lies in a hidden folder within, which no program takes for a part of a model or a data set. Whoever loads from
a folder asks `refuse_unfinished` first: a download that is under way, or was cut off, is nobody's checkpoint.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.records.files import load_json
from hpc_llm.text.json_text import DamagedRecordError

STATE = ".hpc-llm"
"""The folder within a fetched one that belongs to hpc-llm."""
_RECORD = "fetch.json"
_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)


def record_path(folder: Path) -> Path:
    return folder / STATE / _RECORD


def read_record(folder: Path) -> dict[str, Any] | None:
    """What was, or is being, fetched into `folder`; None where nothing was, an empty record where it cannot be read."""
    try:
        return load_json(record_path(folder))
    except DamagedRecordError:
        return {}


def is_whole(record: dict[str, Any]) -> bool:
    return record.get("complete") is True


def fetch_command(name: str, folder: str = "DIR") -> str:
    """The command line that brings `name` to a folder.

    >>> fetch_command("Qwen/Qwen2-7B", "/work/my models")
    "hpc-llm fetch Qwen/Qwen2-7B --to '/work/my models'"
    """
    return f"hpc-llm fetch {shlex.quote(name)} --to {folder if folder == 'DIR' else shlex.quote(folder)}"


def _one_line(value: object) -> str:
    return " ".join(str(value).split())


def is_hub_name(name: str) -> bool:
    """Whether somebody who wrote `name` may have meant OWNER/NAME of the Hub, and not a path.

    >>> is_hub_name("openai/gsm8k"), is_hub_name("./here"), is_hub_name("a/b/c"), is_hub_name("models/")
    (True, False, False, False)
    """
    return _HUB_NAME.fullmatch(name) is not None


def command_of(record: dict[str, Any], folder: Path) -> str:
    """The command line that goes on with what a record tells of."""
    return fetch_command(_one_line(record.get("asked") or "NAME"), str(folder)) + _options(record)


def _options(record: dict[str, Any]) -> str:
    given = [("--from", record.get("from")), ("--revision", record.get("revision"))]
    only = record.get("only")
    given += [("--only", pattern) for pattern in (only if isinstance(only, list) else ())]
    return "".join(
        f" {option} {shlex.quote(_one_line(value))}" for option, value in given if value not in (None, "hub")
    )


def refuse_unfinished(folder: Path) -> None:
    """Raise RequestError where a fetch into `folder` has not come to its end."""
    record = read_record(folder)
    if record is not None and not is_whole(record):
        raise RequestError(
            f"the folder {folder} is not whole, a fetch into it is under way or was cut off: "
            f"`{command_of(record, folder)}` goes on with it."
        )
