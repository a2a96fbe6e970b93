"""What a caller asks for: options and an experiment file merged, held to what either may say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hpc_llm.api.plain import plain
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.planning.experiment import Experiment

LISTS = ("data", "sbatch", "set")
INTEGERS = {f.name for f in fields(Experiment) if f.type == "int | None"}
NAMES = tuple(f.name for f in fields(Experiment))
_OF_FILES = tuple(name for name in NAMES if name != "env_file")
_OF_A_CALL = ("logs", "run_id", "force", "wait", "dry_run")
"""Options of one call, which are no part of an experiment."""


@dataclass(frozen=True)
class Request:
    """What options and file ask for, options winning; `sources` says which of them each value came from."""

    values: dict[str, Any]
    sources: dict[str, str] = field(default_factory=dict)

    def sweep(self, key: str) -> list[str]:
        """The names given for `cluster` or `method`."""
        value = self.values.get(key)
        names = [str(n).strip() for n in (value if isinstance(value, list) else str(value or "").split(","))]
        names = [n for n in names if n]
        if not names:
            raise RequestError(f"no {key} is given. Use --{key} NAME; `hpc-llm {key}s` lists them.")
        for name in names:
            if names.count(name) > 1:
                raise RequestError(f"{key} {name} is given twice. Repeats are separate submissions.")
        return names


def read_request(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    beside: Mapping[str, Any],
    spelled: str = "--",
) -> Request:
    """Merge an experiment (a YAML file, or a mapping of the same keys) and options, which win.

    `options` are fields of Experiment; None and an empty list are not said. `beside` are the other options of the caller,
    which may hold no secret either. `spelled` stands before the name of an option in
    messages and origins, `--` as on a command line or nothing.
    """
    named = "EXPERIMENT.yaml" if spelled else "experiment"
    options = plain(options, "")
    _refuse_secrets(
        {named: experiment if isinstance(experiment, (str, os.PathLike)) else None, **options, **beside}, spelled
    )
    values, sources = _of_experiment(experiment)
    for name, option in options.items():
        place = f"--{name.replace('_', '-')}" if spelled else name
        if name not in NAMES:
            raise RequestError(unknown_name("option", name, [*NAMES, *beside]))
        if option is None or option == []:
            continue
        given = option if spelled else _typed("the request", name, option)
        # A repeatable option adds to the experiment's list, anything else replaces its value.
        before = values.get(name, [])
        kept = before if name == "data" else _not_replaced(before, given) if name in LISTS else []
        values[name] = [*kept, *given] if name in LISTS else given
        sources[name] = place
    for name, value in values.items():
        _check_encoding(name, value)
    _settle(values, sources, [str(pair) for pair in options.get("set") or []])
    return Request(values, sources)


def _settle(values: dict[str, Any], sources: Mapping[str, str], own: list[str]) -> None:
    """Let an option win over a setting of the file for the same field; where both come from one place they must agree.

    `own` are the settings of the caller, which win over what a file says.
    """
    for pair in list(values.get("set", [])):
        name, text = _set_field(pair), pair.partition("=")[2]
        if name is None or name not in values or str(values[name]) == text.strip():
            continue
        is_of_file = pair not in own
        if is_of_file and sources[name] != _file_of(sources, name):
            values["set"].remove(pair)
        elif is_of_file or sources[name].startswith("--") or sources[name] == name:
            place = sources[name] if sources[name].startswith("--") else name
            raise RequestError(f"{place} {values[name]} and --set {pair} say two things of {name}. Keep one of them.")


def _file_of(sources: Mapping[str, str], name: str) -> str | None:
    """Where the field was said, where that is a file or a mapping of an experiment."""
    return None if sources[name] in (name, f"--{name.replace('_', '-')}") else sources[name]


def _set_field(pair: str) -> str | None:
    """The option's field that a setting decides whole; None of another, or of what cannot be set."""
    from hpc_llm.planning.settings import read_setting

    try:
        setting = read_setting(pair)
    except RequestError:  # told where it is applied
        return None
    return setting.field if not setting.inside and setting.field in NAMES else None


def _of_experiment(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The experiment's values, and where each comes from."""
    if experiment is None:
        return {}, {}
    if isinstance(experiment, Mapping):
        values = _read_mapping(_given_mapping(experiment), "the experiment")
        return values, dict.fromkeys(values, "experiment")
    if not isinstance(experiment, (str, os.PathLike)) or not os.fspath(experiment):
        what = "an empty name" if isinstance(experiment, str) else f"of type {type(experiment).__name__}"
        raise RequestError(f"the experiment is {what}: give the path of a YAML file, or a mapping with the same keys.")
    path = Path(experiment)
    if not path.exists():
        _refuse_second_word(os.fspath(experiment))
    values = _read_experiment(path)
    return values, dict.fromkeys(values, path.name)


def _refuse_second_word(word: str) -> None:
    """Refuse what is no file and the name of a method or a cluster: a list of them is one word."""
    from hpc_llm.planning.method import load_method
    from hpc_llm.site.cluster import cluster_names

    what = "cluster" if word in cluster_names() else "method"
    try:
        if what == "method":
            load_method(word)
    except RequestError:
        return
    raise RequestError(
        f"{word} is the name of a {what}, and no experiment file: several {what}s are one word, as in --{what} A,{word}."
    )


def _given_mapping(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping in plain types, without a secret that a message about it could repeat."""
    from hpc_llm.text.secrecy import refuse_secrets

    content: dict[str, Any] = plain(experiment, "")
    refuse_secrets(content, "the experiment")
    return content


def _refuse_secrets(options: Mapping[str, Any], spelled: str) -> None:
    """Refuse an option that holds a secret before anything looks at it, and could repeat it in a message."""
    from hpc_llm.text.secrecy import WAY_IN, find_secret, is_secret

    for name, given in options.items():
        option = f"{spelled}{name.replace('_', '-')}" if spelled and name != "EXPERIMENT.yaml" else name
        if isinstance(given, Mapping):
            if (place := find_secret(given)) is not None:
                raise RequestError(f"{option} {place} holds what looks like a secret. {WAY_IN}")
            continue
        for item in given if isinstance(given, (list, tuple)) else [given]:
            text = "" if item is None else str(item)
            key, _, value = text.partition("=")
            if is_secret(text) or is_secret(value, key) or _hides_secret(name, key, value):
                place = f" {key}" if isinstance(given, (list, tuple)) and not is_secret(key) and key != text else ""
                raise RequestError(f"{option}{place} holds what looks like a secret. {WAY_IN}")


def _hides_secret(name: str, key: str, value: str) -> bool:
    """Whether the value of a setting is a list or a mapping with a secret in it."""
    from hpc_llm.text.secrecy import find_secret
    from hpc_llm.text.yaml_text import parse_yaml

    try:
        return name == "set" and find_secret({key: parse_yaml(value, key)}) is not None
    except RequestError:  # told where the setting is applied
        return False


def _not_replaced(of_file: list[str], flags: list[str]) -> list[str]:
    """What the file says of other keys than the flags do, which win, over what they exclude too."""
    from hpc_llm.site.sbatch_options import rivals

    keys = {flag.partition("=")[0].strip().removeprefix("--") for flag in flags}
    keys |= {other for key in keys for other in rivals(key)}
    return [item for item in of_file if item.partition("=")[0].strip().removeprefix("--") not in keys]


def _check_encoding(name: str, value: Any) -> None:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates, which nothing can write later on."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
            raise RequestError(f"{name} is {text!r}: write it in UTF-8, without NUL characters.")


def _read_experiment(path: Path) -> dict[str, Any]:
    """The values of a file, which may be a stranger's: nothing of it may load code or lead elsewhere."""
    from hpc_llm.planning.settings import refuse_reach
    from hpc_llm.site.sbatch_options import refuse_harmful
    from hpc_llm.text.secrecy import refuse_secrets
    from hpc_llm.text.yaml_text import read_yaml

    content = read_yaml(path)
    refuse_secrets(content, str(path))
    values = _read_mapping(content, str(path))
    refuse_reach(values.get("set", []), str(path))
    refuse_harmful(values.get("sbatch", []), str(path))
    if "env_file" in values:  # its variables may load code, as those of `set` may not
        raise RequestError(f"{path}: a file of variables is named by --env-file on the command line, not in a file.")
    return values


def _read_mapping(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    from hpc_llm.site.sbatch_options import KNOWN

    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name == "templates":
            raise RequestError(f"{where}: templates are named by --templates on the command line, not in a file.")
        if name in _OF_A_CALL:
            raise RequestError(
                f"{where}: {key} is said where it is submitted, as --{name.replace('_', '-')}, not in a file."
            )
        if name not in NAMES:
            hint = f"One of sbatch goes into sbatch: {{{key}: VALUE}}." if str(key) in KNOWN else ""
            raise RequestError(f"{where}: " + unknown_name("option", str(key), _OF_FILES, next_step=hint))
        if name in values:
            raise RequestError(f"{where}: {name} comes twice. Keep one of them.")
        values[name] = _typed(where, name, value)
    return values


def _typed(where: str, name: str, value: Any) -> Any:
    """A value of the file in the type that the flag would have."""
    if name in LISTS:
        return [
            text
            for item in (value if isinstance(value, (list, tuple)) else [value])
            for text in _items(where, name, item)
        ]
    if name in INTEGERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{where}: {name} is {value!r}, a whole number is needed.")
        return value
    if isinstance(value, (list, tuple)) and name in ("cluster", "method"):
        return [str(v) for v in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, (list, dict, bool)):
        raise RequestError(f"{where}: {name} is {value!r}, text is needed.")
    if isinstance(value, float):  # 1.10 would become 1.1, and 1e5 100000.0
        raise RequestError(
            f"{where}: {name} is read as the number {value!r}. Put it in quotes to keep it as it is written."
        )
    return str(value)


def _items(where: str, name: str, item: Any) -> Iterator[str]:
    """What the repeatable flag `name` would have been given, from one item of the file's list or mapping."""
    if isinstance(item, (str, os.PathLike)):
        yield os.fspath(item)
    elif not isinstance(item, dict) or name == "data":
        raise RequestError(f"{where}: {name} holds {item!r}, text is needed.")
    elif name == "sbatch":
        off = next((key for key, value in item.items() if value is False), None)
        if off is not None:
            raise RequestError(
                f"{where}: sbatch.{off} is false, and nothing asks for it unless it is named. Leave it out."
            )
        unfit = next((key for key, value in item.items() if isinstance(value, (list, dict, float))), None)
        if unfit is not None:
            raise RequestError(
                f"{where}: sbatch.{unfit} is {item[unfit]!r}: write it as text, in quotes, as sbatch reads it."
            )
        yield from (str(k) if v in (None, True) else f"{k}={v}" for k, v in item.items())
    else:
        yield from _settings(item)


def _settings(mapping: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """`PATH=VALUE` for each value of a mapping of plan fields, however deep it is."""
    from hpc_llm.planning.settings import is_text

    for key, value in mapping.items():
        place = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _settings(value, f"{place}.")
            continue
        # --set reads its value as YAML, except for variables, which are always text.
        is_itself = isinstance(value, str) and (is_text(place) or _reads_as_itself(value))
        yield f"{place}={value if is_itself else json.dumps(value)}"


def _reads_as_itself(text: str) -> bool:
    """Whether YAML takes the text for the same text, and not for a number, a list or nothing that it could read."""
    from hpc_llm.text.yaml_text import parse_yaml

    try:
        return bool(parse_yaml(text, "a setting") == text)
    except RequestError:
        return False


def way_of(option: str) -> str | None:
    """How an option of sbatch is given here; None for what is none of its options."""
    from hpc_llm.site.sbatch_options import way_of

    return way_of(option)
