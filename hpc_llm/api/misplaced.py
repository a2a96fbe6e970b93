"""A cluster's profile or a method that is given where an experiment file is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from hpc_llm.errors import RequestError

_OF_PROFILES = ("schema", "extends")
"""Keys that no experiment has."""


def refuse_profile(content: Mapping[str, Any], path: Path) -> None:
    """Raise RequestError where the file says by its keys that it is no experiment, with the option that takes its name."""
    if not any(key in content for key in _OF_PROFILES):
        return
    from hpc_llm.planning.method import Method
    from hpc_llm.site.cluster import Cluster

    known = {"cluster": set(Cluster.model_fields), "method": set(Method.model_fields)}
    shared = {option: len(keys & content.keys()) for option, keys in known.items()}
    if shared["cluster"] == shared["method"]:  # its keys do not say which of them it is
        return
    option = max(shared, key=lambda one: shared[one])
    what = "the profile of a cluster" if option == "cluster" else "a method"
    raise RequestError(f"{path} is {what}, and no experiment file: {_way(option, path)}")


def _way(option: str, path: Path) -> str:
    """How it is named: by its name alone, where files of its kind are looked for."""
    from hpc_llm.site.profiles import SUFFIXES, list_files

    kind = {"cluster": "clusters", "method": "configs"}[option]
    name = path.name.removesuffix(SUFFIXES[kind])
    found = list_files(kind).get(name)
    if found is not None and os.path.samefile(found, path):
        return f"say --{option} {quote(name)}."
    return (
        f"as {kind}/{name}{SUFFIXES[kind]} of the working directory it is found by its name, --{option} {quote(name)}."
    )
