"""A cluster's profile, a method or a script that is given where an experiment file is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from hpc_llm.api.values import names_in
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


def refuse_script(path: Path) -> None:
    """Raise RequestError where the file is a script, which YAML's reader would only call wrong at some line of it."""
    from hpc_llm.records.files import open_regular

    try:
        file = open_regular(path)
    except OSError:  # it is not there, which its reader says
        file = None
    if file is None:
        return
    with file:
        if file.read(2) != b"#!":
            return
    raise RequestError(
        f"{path} is a script, and no experiment file: hpc-llm makes the script itself, of a YAML file or of options such as "
        "--cluster and --method, and submits it under the id of its run."
    )


def refuse_second_word(word: str, options: Mapping[str, Any], spelled: str) -> None:
    """Refuse what is no file and the name of a method or a cluster: alone it lacks its option, and a list of them is one word."""
    from hpc_llm.planning.method import load_method
    from hpc_llm.site.cluster import cluster_names

    what = "cluster" if word in cluster_names() else "method"
    try:
        if what == "method":
            load_method(word)
    except RequestError:
        return
    names = [*names_in(options.get(what)), word]
    said = f"--{what} {','.join(names)}" if spelled else f"{what}={names if len(names) > 1 else word!r}"
    why = f": several {what}s are one word, as in {said}" if len(names) > 1 and spelled else f". Write {said}"
    raise RequestError(f"{word} is the name of a {what}, and no experiment file{why}.")
