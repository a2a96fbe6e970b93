"""Where clusters and methods are found.

Search order: the folder of that name in the working directory, the user's configuration folder, the files that
hpc-llm brings. The first file with a name wins, so a user's own replaces a bundled one. The working directory may be a
stranger's checkout, so whoever reads a file from there is told (`foreign.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hpc_llm.errors import ProfileError, notice, unknown_name
from hpc_llm.site import inherited
from hpc_llm.site.reach import refuse_reach
from hpc_llm.text.homes import from_home
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secrecy import WAY_IN, find_secret
from hpc_llm.text.yaml_text import read_yaml

PACKAGE = Path(__file__).parents[1]
NO_HOME = Path(os.devnull)
"""In which nothing lies and nobody can put anything."""
SUFFIXES = {"clusters": ".yaml", "configs": ".yaml"}
_OTHER_ENDINGS = (".yml",)
"""Of YAML, by which a file is not found."""
_NAMES = {"clusters": late_pattern(r"[a-z0-9][a-z0-9_-]{0,60}"), "configs": late_pattern(r"[a-z0-9][a-z0-9+_-]{0,60}")}
"""What a file of each kind may be called: its name is that of the profile."""
NOUNS = {"clusters": "cluster", "configs": "method"}


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


def user_state() -> Path:
    """The user's folder for what is to be remembered, by the XDG convention."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def _xdg(variable: str, fallback: str) -> Path:
    base, home = os.environ.get(variable, ""), os.path.expanduser("~")
    # A relative one is to be ignored, says the convention: it would be another folder in each working directory, and so would a
    # relative home be, or the name `~` of a user who has none.
    own = base if os.path.isabs(base) else os.path.join(home, fallback)
    return (Path(own) if os.path.isabs(own) else NO_HOME) / "hpc-llm"


def search_path(kind: str) -> list[Path]:
    """Folders that may hold files of `kind`, `clusters` or `configs`, the strongest first."""
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
        if os.sep not in name and os.path.lexists(path):  # what is listed is found; reading it says what is wrong
            return path
    refuse_path(kind, name)
    raise ProfileError(unknown_name(NOUNS[kind], name, list_files(kind), next_step=_how_to_add(kind, name)))


def where_to_change(kind: str, name: str) -> str:
    """The file of that name, as something is added to it; where hpc-llm brings it, the one of the user's own that extends it."""
    path = _own_file(kind, name)
    return f"{user_config() / kind / name}{SUFFIXES[kind]} with `extends: {name}`" if path is None else str(path)


def is_brought(kind: str, name: str) -> bool:
    """Whether what is changed of it stands in a file of the user's own that extends ours."""
    return _own_file(kind, name) is None


def where_to_add_partitions(cluster: str) -> str:
    """Where a partition is added: a list in a profile that extends ours takes the place of ours."""
    rest = (
        f", with those of {cluster} that you use: its list replaces theirs" if is_brought("clusters", cluster) else ""
    )
    return f"`partitions:` of {where_to_change('clusters', cluster)}{rest}"


def _own_file(kind: str, name: str) -> Path | None:
    """The file of that name; None where there is none but ours."""
    places = (folder / f"{name}{SUFFIXES[kind]}" for folder in search_path(kind))
    path = next((one for one in places if os.path.lexists(one)), None)
    return None if path is None or path.parent == bundled(kind) else path


def _how_to_add(kind: str, name: str) -> str:
    """Which file would make the name a known one; "" where no file of that kind can be called so."""
    small = name.lower()
    if _NAMES[kind].fullmatch(small) is None or small in list_files(kind):
        return ""
    why = "" if small == name else ", as a name has no capitals"
    return f"Add {kind}/{small}{SUFFIXES[kind]} to make it one{why}."


def refuse_path(kind: str, name: str) -> None:
    """Raise a ProfileError where a file is named by its path, or one of that name lies where none is looked for or ends otherwise:
    what is looked for is a name in the folders that are searched."""
    suffix, path = SUFFIXES[kind], from_home(name)
    ending = next((one for one in (suffix, *_OTHER_ENDINGS) if name.endswith(one)), "")
    _refuse_misplaced(kind, name.removesuffix(ending))
    if path.is_file() and kind == "configs" and path.suffix == ".json":
        own = path.stem if _NAMES[kind].fullmatch(path.stem) else "mine"
        raise ProfileError(
            f"there is no method '{name}': a configuration of DeepSpeed is a part of one. Write ./configs/{own}.yaml with `extends: z3` and "
            f"`deepspeed: …`, the content of the file, and name it {own}."
        )
    if os.sep not in name and not ending:
        return
    noun, bare = NOUNS[kind], path.name.removesuffix(ending)
    found = next((one for folder in search_path(kind) if (one := folder / f"{bare}{suffix}").is_file()), None)
    if found is not None and (not path.exists() or path.resolve() == found.resolve()):
        raise ProfileError(f"there is no {noun} '{name}': a {noun} is named without folder and ending, here {bare}.")
    if path.is_file() and bare:
        raise ProfileError(
            f"there is no {noun} '{name}': a {noun} is named without folder and ending. Put the file into ./{kind}/ or "
            f"{user_config() / kind}/ as {bare}{suffix}, and name it {bare}."
        )


def _refuse_misplaced(kind: str, name: str) -> None:
    """Raise a ProfileError where a file of that name has the other ending of YAML, or lies beside the folder that is searched."""
    suffix, noun = SUFFIXES[kind], NOUNS[kind]
    if os.sep in name or not name or any((folder / f"{name}{suffix}").is_file() for folder in search_path(kind)):
        return
    for path in (folder / f"{name}{ending}" for folder in search_path(kind) for ending in _OTHER_ENDINGS):
        if path.is_file():
            raise ProfileError(
                f"there is no {noun} '{name}': {path} is there, and the file of a {noun} ends in {suffix}. Rename it to {name}{suffix}."
            )
    for path in (Path(f"{name}{ending}") for ending in (suffix, *_OTHER_ENDINGS)):
        if path.is_file():
            raise ProfileError(
                f"there is no {noun} '{name}': {path} of the working directory is not looked at. If it is one, put it into ./{kind}/ "
                f"or {user_config() / kind}/ as {name}{suffix}."
            )


def _tell_passed_over(kind: str, name: str, found: Path) -> None:
    """Tell of a file of that name with the other ending of YAML, in a folder that is searched before that of the one which was `found`."""
    folders = search_path(kind)
    before = folders[: folders.index(found.parent)] if found.parent in folders else []
    for path in (folder / f"{name}{ending}" for folder in before for ending in _OTHER_ENDINGS):
        if path.is_file() and not path.samefile(found):
            notice(
                f"{NOUNS[kind]} {name} is that of {found}: {path} is not read, as the file of a {NOUNS[kind]} ends in "
                f"{SUFFIXES[kind]}. If it is meant, rename it to {name}{SUFFIXES[kind]}"
            )


OF_A_CARD = ("model", "arch", "memory_gib", "capabilities", "peak_tflops")
"""Fields of a GPU that name one card, or are true of it alone."""


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; mappings are merged key by key, anything else is replaced, and null takes it back."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        if value is None and key in result:  # an empty mapping would leave all that is inherited
            del result[key]
        else:
            result[key] = merged(result[key], value) if both else value
    return result


def read_profile(kind: str, name: str) -> tuple[dict[str, Any], Path]:
    """The mapping of a named file with what it `extends` filled in, and the file."""
    path = find_file(kind, name)
    _tell_passed_over(kind, name, path)
    return _extended(kind, _read(kind, path), path, (path,)), path


def _read(kind: str, path: Path) -> dict[str, Any]:
    """The mapping of one file; a warning tells where it is from if that is the working directory."""
    here = Path.cwd() / kind
    values = read_yaml(path)
    place = find_secret(values)
    if place is not None:
        raise ProfileError(f"{path}: {place} holds what looks like a secret. {WAY_IN}")
    if path.parent == here and here.resolve() != bundled(kind).resolve():
        hidden = [folder / path.name for folder in search_path(kind)[1:] if (folder / path.name).is_file()]
        if not hidden or not _is_same(path, hidden[0]):
            whose = {user_config() / kind: "your own", bundled(kind): "the one that hpc-llm brings"}
            instead = f", in place of {whose[hidden[0].parent]}" if hidden else ""
            brings = ""
            if kind == "configs":
                refuse_reach({"deepspeed": values.get("deepspeed")}, str(path))
            else:
                from hpc_llm.site import foreign

                foreign.refuse_env_file(values, path, user_config())
                values, brings = foreign.without_commands(values), foreign.told(values)
            notice(f"{NOUNS[kind]} {path.stem} is that of {path}{instead}{brings}")
    return values


def _is_same(one: Path, other: Path) -> bool:
    """Whether two files say the same, so that it makes no difference which of them is read."""
    try:
        return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def _extended(kind: str, data: dict[str, Any], path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    parent = data.pop("extends", None)
    if parent is None:
        return data
    found = extended_file(kind, str(parent), chain)
    if found is not None:
        if found.name not in [one.name for one in chain]:  # else a file extends the one that it replaces
            _tell_passed_over(kind, str(parent), found)
        base = _extended(kind, _read(kind, found), found, (*chain, found))
        kept = without_card(base) if is_another_card(base, data) else base
        whole = merged(kept, {"name": path.name.removesuffix(SUFFIXES[kind]), **data})
        if kind == "clusters" and isinstance(data.get("partitions"), list):
            inherited.check_partitions(base, whole, str(parent), path)
        return whole
    if any(p.name == f"{parent}{SUFFIXES[kind]}" for p in chain):
        raise ProfileError(f"{path}: extends: {parent} extends itself in the end. Name another {NOUNS[kind]}.")
    try:
        _refuse_misplaced(kind, str(parent))
    except ProfileError as error:
        raise ProfileError(f"{path}: extends: {error}") from None
    raise ProfileError(f"{path}: extends: " + unknown_name(NOUNS[kind], str(parent), _others(kind, chain)))


def is_another_card(base: dict[str, Any], over: dict[str, Any]) -> bool:
    """Whether `over` names another GPU, by its model or vendor: nothing of the old one's speed, memory or formats is said of it."""
    old, new = base.get("gpu"), over.get("gpu")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return any(new.get(name, old.get(name)) != old.get(name) for name in ("vendor", "model"))


def without_card(base: dict[str, Any]) -> dict[str, Any]:
    """`base` without what is true of its GPU alone."""
    gpu = base.get("gpu")
    return (
        {**base, "gpu": {key: value for key, value in gpu.items() if key not in OF_A_CARD}}
        if isinstance(gpu, dict)
        else base
    )


def extended_file(kind: str, parent: str, chain: tuple[Path, ...]) -> Path | None:
    """The file of that name which is extended: the first that is not one of those that lead there."""
    own = [path.resolve() for path in chain]
    candidates = (folder / f"{parent}{SUFFIXES[kind]}" for folder in search_path(kind))
    return next((one for one in candidates if os.path.lexists(one) and one.resolve() not in own), None)


def _others(kind: str, chain: tuple[Path, ...]) -> list[str]:
    """The names of all that a file may extend: what extends something is no choice of its own."""
    own = {path.resolve() for path in chain}
    suffix = SUFFIXES[kind]
    there = (path for folder in search_path(kind) if folder.is_dir() for path in folder.glob(f"*{suffix}"))
    return sorted({path.name.removesuffix(suffix) for path in there if path.resolve() not in own})
