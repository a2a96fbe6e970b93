"""Where clusters, methods and templates are found, and how their YAML is read.

Search order: the folder of that name in the working directory, the user's configuration folder, the files that
hpc-llm brings. The first file with a name wins, so a user's own replaces a bundled one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from hpc_llm.errors import ProfileError, unknown_name

PACKAGE = Path(__file__).parent
SUFFIXES = {"clusters": ".yaml", "configs": ".yaml", "templates": ".j2"}
NOUNS = {"clusters": "cluster", "configs": "method", "templates": "template"}


def bundled(kind: str) -> Path:
    """Folder `kind` as installed (inside the package) or as in a checkout (beside it)."""
    installed = PACKAGE / "_data" / kind
    return installed if installed.is_dir() else PACKAGE.parent / kind


def user_config() -> Path:
    """The user's configuration folder, by the XDG convention."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def user_cache() -> Path:
    """The user's cache folder, by the XDG convention."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    # A relative one is to be ignored, says the convention: it would be another folder in each working directory.
    return Path(base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), fallback)) / "hpc-llm"


def search_path(kind: str) -> list[Path]:
    """Folders that may hold files of `kind` (`clusters`, `configs`, `templates`), the strongest first."""
    return [Path.cwd() / kind, user_config() / kind, bundled(kind)]


def list_files(kind: str) -> dict[str, Path]:
    """Name -> file of everything of `kind`, shadowed files left out."""
    suffix = SUFFIXES[kind]
    found: dict[str, Path] = {}
    for folder in reversed(search_path(kind)):
        if folder.is_dir():
            found.update({p.name.removesuffix(suffix): p for p in sorted(folder.glob(f"*{suffix}"))})
    return dict(sorted(found.items()))


def find_file(kind: str, name: str) -> Path:
    """The file of `kind` called `name`, or a ProfileError that lists the names there are."""
    for folder in search_path(kind):
        path = folder / f"{name}{SUFFIXES[kind]}"
        if os.sep not in name and path.is_file():
            return path
    next_step = f"Add {kind}/{name}{SUFFIXES[kind]} to make it one." if name.isidentifier() else ""
    raise ProfileError(unknown_name(NOUNS[kind], name, list_files(kind), next_step=next_step))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without the surprises of 1.1: `24:00:00` and `no` stay text, `1e9` is a number, a key comes once."""

    yaml_implicit_resolvers: ClassVar = {
        key: [(tag, pattern) for tag, pattern in pairs if tag.rsplit(":", 1)[-1] in ("null", "merge")]
        for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float)):
                raise yaml.MarkedYAMLError(problem="a key must be a name", problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"key '{key}' comes twice", problem_mark=key_node.start_mark)
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _add_scalars() -> None:
    _Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789")
    )
    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|[0-9]+[eE][-+]?[0-9]+)$"),
        list("-+.0123456789"),  # no .inf and .nan: no setting means them, and JSON has no word for them
    )


_add_scalars()


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; a syntax error names `where` and the line."""
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader, less the resolvers of YAML 1.1
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ProfileError(f"{where}{line}: not valid YAML: {problem}.") from None


_YAML_NOUNS: dict[type, str] = {list: "a list", str: "text"}


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: cannot be read: it is not UTF-8 text.") from None
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        holds = "is empty" if value is None else f"holds {_YAML_NOUNS.get(type(value), 'a single value')}"
        raise ProfileError(f"{path}: {holds}, a mapping of keys is needed.")
    return value


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; mappings are merged key by key, anything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def read_profile(kind: str, name: str) -> tuple[dict[str, Any], Path]:
    """The mapping of a named file with what it `extends` filled in, and the file."""
    path = find_file(kind, name)
    data = read_yaml(path)
    return _extended(kind, data, path, (path,)), path


def _extended(kind: str, data: dict[str, Any], path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    parent = data.pop("extends", None)
    if parent is None:
        return data
    for folder in search_path(kind):
        candidate = folder / f"{parent}{SUFFIXES[kind]}"
        if candidate.is_file() and candidate.resolve() not in [p.resolve() for p in chain]:
            base = _extended(kind, read_yaml(candidate), candidate, (*chain, candidate))
            return merged(base, {"name": path.name.removesuffix(SUFFIXES[kind]), **data})
    if any(p.name == f"{parent}{SUFFIXES[kind]}" for p in chain):
        raise ProfileError(f"{path}: extends: {parent} extends itself in the end. Name another {NOUNS[kind]}.")
    raise ProfileError(f"{path}: extends: " + unknown_name(NOUNS[kind], str(parent), list_files(kind)))


def explain_validation(error: Any, path: Path | str, allowed: dict[str, list[str]]) -> ProfileError:
    """A ProfileError in plain sentences from a pydantic ValidationError.

    `allowed` maps a dotted place in the file to the keys that are valid there.
    """
    sentences = []
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"])
        parent = ".".join(str(part) for part in item["loc"][:-1] if not isinstance(part, int))
        if item["type"] == "extra_forbidden":
            name = unknown_name("key", str(item["loc"][-1]), allowed.get(parent, []), where=parent or "the top level")
            sentences.append(name)
        elif item["type"] == "missing":
            sentences.append(f"'{place}' is missing.")
        else:
            message = item["msg"].removeprefix("Value error, ").rstrip(".")
            message = message[:1].lower() + message[1:]
            # A rule over several keys says itself which of them it means; the whole mapping would only hide it.
            shown = "" if isinstance(item["input"], dict) else f" is {item['input']!r}"
            sentences.append(f"'{place}'{shown}: {message}." if place else f"{message}.")
    return ProfileError(f"{path}: " + " ".join(sentences))
