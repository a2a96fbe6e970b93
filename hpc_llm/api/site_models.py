"""Models that a site keeps: meant by their names where its profile says in which folders they lie."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpc_llm.errors import notice
from hpc_llm.text.homes import from_home


def site_model(model: str, settings: Sequence[str], folders: Sequence[str]) -> str:
    """The folder of the site's copy of `model`, where that is a name of the Hub or a preset whose weights are asked for.

    `model` itself where it is neither, or no such copy is in `folders`. `settings` are those of `--set`.
    """
    name = _hub_name(model, settings)
    if name is None or not folders:
        return model
    places = (place for folder in folders for place in _places(from_home(os.path.expandvars(folder)), name, model))
    found = next((place for place in places if _is_it(place, name)), None)
    if found is None:
        return model
    notice(f"model {model}: the site's copy in {found} is taken")
    return str(found)


def _hub_name(model: str, settings: Sequence[str]) -> str | None:
    """The Hub's name of what is to be loaded; None where `model` is a path, or a preset for its shape alone."""
    from hpc_llm.planning.model import ALIASES, PRESETS, is_checkpoint
    from hpc_llm.planning.settings import Settings
    from hpc_llm.records.fetched import is_hub_name

    asked = Settings(settings).applied("weights", None)
    if model in PRESETS:
        published = {preset: name for name, preset in ALIASES.items()}
        return published.get(model) if asked == "checkpoint" else None
    return model if is_hub_name(model) and not is_checkpoint(model) and asked != "random" else None


def _places(folder: Path, name: str, asked: str) -> Iterator[Path]:
    """Where in a site's folder a model can be: by owner and name, by name, by preset, or as in the Hub's cache."""
    from hpc_llm.fetching.local import snapshot_in

    for way in dict.fromkeys((name, name.rpartition("/")[2], asked)):
        yield folder / way
    for entry in (folder, folder / "hub"):
        snapshot = snapshot_in(entry / f"models--{name.replace('/', '--')}")
        if snapshot is not None:
            yield snapshot


def _is_it(folder: Path, name: str) -> bool:
    """Whether a folder holds a model, and nothing in it says that it is another; half of one is for planning to refuse."""
    from hpc_llm.records.fetched import read_record

    record = read_record(folder) if os.access(folder, os.R_OK | os.X_OK) else None
    if record:
        return name in (record.get("name"), record.get("wanted"))
    return os.path.isfile(folder / "config.json")
