"""What is wrong with a profile, in words of the file and not of the program that checks it: place, value, what is needed there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hpc_llm.errors import ProfileError, counted, did_you_mean, unknown_name
from hpc_llm.outside import without_pydantics_plugins
from hpc_llm.site.profiles import OF_A_CARD, SUFFIXES, extended_file, is_another_card, merged, search_path, without_card
from hpc_llm.text.yaml_text import read_yaml

_KIND = re.compile(r"str|int|float|bool|(?:list|dict|literal)\[[^\n]{1,400}\]")
"""In the place of an error, which of several kinds of a value was tried."""
_FIELDS = re.compile(r"(?<![\w'.])[a-z][a-z_]*(?:\.[a-z][a-z_]*)*(?![\w'])")
"""Words of a sentence that may be fields."""
_QUOTED = re.compile(r"'([^']{1,80})'")
_INHERITING = ("inherits", "inherit", "base", "parent", "based_on", "include", "from")
"""What other programs call `extends`."""
_NEEDED = {
    "dict_type": "a mapping is needed, as in {key: value}",
    "list_type": "a list is needed, as in [a, b]",
    "int_type": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "float_type": "a number is needed",
    "bool_type": "true or false is needed",
}
"""Kind of a validation error -> what a person is told."""
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "object": "a mapping",
}
"""Type in a JSON schema -> the same in words."""
FORMS = {
    r"^\d{4}-\d{2}$": "YYYY-MM (as in 2026-11)",
    r"^[a-z0-9][a-z0-9_-]*$": "a name of a-z, 0-9, _ and - (as in my-cluster)",
    r"^[a-z0-9][a-z0-9+_-]*$": "a name of a-z, 0-9, _, + and - (as in z3-mine)",
    r"^[a-z][a-z0-9-]*$": "a flag without the dashes in front (as in gres)",
    r"^\S+$": "a word without blanks (as in SU)",
    r"^[^\s,]+$": "a name without blanks and commas",
    r"^[^\s,=]+$": "a name without blanks, commas and =",
    r"^[^\x00-\x1f\x7f]+$": "one line of text (left out where there is none)",
    "module": "one module (as in cuda/12.6)",
    "slurm-time": "a time as HH:MM:SS, D-HH:MM:SS or (in quotes) minutes",
}
"""Pattern or format of a text -> what a person writes."""


def _in_words(item: Any, model: type[BaseModel]) -> str:
    """What is wrong with a value, in words of the file and not of the program that checks it."""
    kind, given, limits = item["type"], item["input"], item.get("ctx", {})
    if kind in ("string_type", "string_pattern_mismatch"):
        words = needed_at(model, item["loc"])
        is_plain = words == "text" and isinstance(given, (int, float))
        return f"{words} is needed{'; put it in quotes' if is_plain else ''}"
    if kind == "model_type":
        node = next(one for one in _walked(model, item["loc"]) if "properties" in one)
        return (
            f"a mapping is needed, as in {_example(node, given)}, with some of the keys {', '.join(node['properties'])}"
        )
    if kind == "list_type" and (inner := _inside(model, item["loc"])):
        return f"a list of mappings is needed, as in [{_example(inner, given)}]"
    if kind in _NEEDED:
        return _NEEDED[kind]
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long"):
        bound, number = next((name, limits[name]) for name in ("min_length", "max_length") if name in limits)
        what = "letter" if kind.startswith("string") else "value"
        if bound == "max_length":
            return f"it may have at most {counted(number, what)}"
        return f"at least {counted(number, what)} {'is' if number == 1 else 'are'} needed"
    if kind == "literal_error":
        expected = str(limits["expected"])
        near = did_you_mean(str(given), _QUOTED.findall(expected))
        alone = f"valid are {expected}{near}" if " or " in expected else f"it must be {expected}"
        return f"{alone}{_or_list(given, model, item['loc'])}"
    message = str(item["msg"]).removeprefix("Value error, ").rstrip(".").replace("Input should be", "it must be", 1)
    return message[:1].lower() + message[1:]


def _or_list(given: Any, model: type[BaseModel], loc: tuple[Any, ...]) -> str:
    """That a list of any texts may stand there besides, written with what was given, as the end of a clause."""
    lists = [one["items"] for one in _walked(model, loc) if one.get("type") == "array"]
    is_free = any("enum" not in one and one.get("type") == "string" for one in lists)
    return f", or a list, as in [{given}]" if is_free and isinstance(given, str) else ""


def _inside(model: type[BaseModel], loc: tuple[Any, ...]) -> dict[str, Any] | None:
    """What the entries of a list at that place are, where they are mappings."""
    entries = _walked(model, (*loc, 0))
    return next((one for one in entries if "properties" in one), None)


def _example(node: dict[str, Any], given: Any) -> str:
    """A mapping that may stand there, with what must be in it; of one that is needed in no part, the key that was likely meant."""
    if required := node.get("required"):
        shown = {"name": given} if isinstance(given, str) else {}
        return "{" + ", ".join(f"{key}: {shown.get(key, '...')}" for key in required) + "}"
    is_default = "default" in node["properties"] and isinstance(given, str)
    return f"{{default: {given}}}" if is_default else "{key: value}"


def _as_yaml(value: Any) -> str:
    """The value as the file has it: null, true and false are not Python's there.

    >>> _as_yaml(None), _as_yaml(True), _as_yaml("gpu")
    ('null', 'true', "'gpu'")
    """
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def explain_validation(error: Any, path: Path | str, model: type[BaseModel]) -> ProfileError:
    """A ProfileError in plain sentences from the ValidationError of a file that is held to `model`."""
    sentences, missing, faults = list[str](), list[tuple[str, str]](), dict[tuple[str, str], list[str]]()
    allowed = allowed_keys(model)
    if isinstance(path, Path):
        allowed[""] = sorted([*allowed[""], "extends"])
    for item in _tried_once(error.errors()):
        place = ".".join(map(str, _bare(item["loc"])))
        parent = ".".join(str(part) for part in item["loc"][:-1] if not isinstance(part, int))
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            meant = ("extends",) if key in _INHERITING and not parent else ()
            name = unknown_name("key", key, allowed.get(parent, []), where=parent or "the top level", meant=meant)
            if "mean 'extends'" in name:  # without it all that is inherited is missing, too
                return ProfileError(f"{path}: {name}")
            sentences.append(name)
        elif item["type"] == "missing":
            missing.append((place, needed_at(model, item["loc"])))
        else:
            message = _in_words(item, model)
            # A rule over several keys says itself which of them it means; the whole mapping would only hide it.
            shown = "" if isinstance(item["input"], dict) else _as_yaml(item["input"])
            rest = message + ("" if message.endswith("?") else ".") + _inherited(item, path)
            faults.setdefault((shown, rest), []).append(place)
    sentences += [_told(places, *fault) for fault, places in faults.items()]
    if len(missing) == 1:
        sentences.insert(0, f"'{missing[0][0]}' is missing: {missing[0][1]} is needed.")
    elif missing:
        sentences.insert(0, f"These are missing: {', '.join(f'{place} ({words})' for place, words in missing)}.")
    return ProfileError(f"{path}: " + " ".join(sentences))


def _told(places: Sequence[str], shown: str, rest: str) -> str:
    """What is wrong at these places of a file, at all of which the same stands.

    >>> _told(["a"], "0", "no."), _told(["a", "b", "c"], "0", "no."), _told(["a"], "", "no."), _told([""], "0", "no.")
    ("'a' is 0: no.", "'a', 'b' and 'c' are 0: no.", "'a': no.", 'no.')
    """
    quoted = [f"'{place}'" for place in places]
    named = " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
    is_shown = f" {'are' if len(places) > 1 else 'is'} {shown}" if shown else ""
    return f"{named}{is_shown}: {rest}" if all(places) else rest


def _bare(loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place of an error in the file."""
    return tuple(part for part in loc if not _KIND.fullmatch(str(part)))


def _tried_once(items: list[Any]) -> Iterator[Any]:
    """The errors, of a value that may be of several kinds only what is nearest to what was written: a fault inside the list before
    the fault that it is a list, and of a single value which ones are valid before that a list is."""
    places = [_bare(item["loc"]) for item in items]
    for item, place in zip(items, places, strict=True):
        beside = [other for other, at in zip(items, places, strict=True) if at == place and other is not item]
        is_deeper = any(at[: len(place)] == place and at != place for at in places)
        is_beaten = (
            any(other["type"] in ("literal_error", "string_type") for other in beside) and item["type"] == "list_type"
        )
        if place == item["loc"] or not (is_deeper or is_beaten):
            yield item


def needed_at(model: type[BaseModel], loc: tuple[Any, ...]) -> str:
    """What is to stand at a place of a file, in words: `one of a, b`, `text`."""
    kinds = _walked(model, loc)
    named = [one for one in kinds if "enum" in one]  # a list of the same need not be told beside them
    return " or ".join(dict.fromkeys(map(_needed, named or kinds)))


def _needed(node: dict[str, Any]) -> str:
    form = FORMS.get(node.get("pattern") or node.get("format") or "")
    if form is not None:
        return form
    if "const" in node:
        return json.dumps(node["const"])
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if node.get("type") == "array":
        each = node.get("items", {}).get("enum")
        return f"a list of some of {', '.join(each)}" if each else "a list (as in [a, b])"
    if "properties" in node:
        return f"a mapping of {', '.join(node.get('required') or node['properties'])}"
    return _TYPES.get(node.get("type", ""), "a value")


def _walked(model: type[BaseModel], loc: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What the JSON schema of the model says of a place, once for each kind of value that it takes."""
    with without_pydantics_plugins():
        for part in _models_in(model):
            part.model_rebuild()  # built late, as its `defer_build` says
        schema = model.model_json_schema(by_alias=True)
    defs = schema.get("$defs", {})
    found = list(_kinds(schema, defs))
    for step in _bare(loc):
        inner = [
            node.get("properties", {}).get(step)
            or (node.get("items") if isinstance(step, int) else node.get("additionalProperties"))
            for node in found
        ]
        found = [kind for node in inner if isinstance(node, dict) for kind in _kinds(node, defs)]
    return found


def _kinds(node: dict[str, Any], defs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A part of a schema as the kinds of value that it takes, null left out."""
    if "$ref" in node:
        yield from _kinds(defs[node["$ref"].rpartition("/")[2]], defs)
    elif "anyOf" in node:
        for one in node["anyOf"]:
            yield from _kinds(one, defs)
    elif node.get("type") != "null":
        yield node


def _layers(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """A profile that was read already, and each that it extends, as they are written but for what another model of GPU takes back."""
    kept, below = list[tuple[Path, dict[str, Any]]](), dict[str, Any]()
    for file, values in reversed(_written(path)):
        if is_another_card(below, values):
            below, kept = without_card(below), [(one, without_card(said)) for one, said in kept]
        below = merged(below, values)
        kept.insert(0, (file, values))
    return kept


def _written(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """A profile and each that it extends, as they are written."""
    kind = next((kind for kind in SUFFIXES if path.parent in search_path(kind)), None)
    found, here = list[tuple[Path, dict[str, Any]]](), path if kind is not None else None
    while kind is not None and here is not None:
        found.append((here, read_yaml(here)))
        parent = found[-1][1].get("extends")
        here = extended_file(kind, str(parent), tuple(one for one, _ in found)) if parent is not None else None
    return found


def _inherited(item: Any, path: Path | str) -> str:
    """From which file it comes what an error is about, where the file that is at fault extends that one."""
    layers = _layers(path) if isinstance(path, Path) else []
    loc = _bare(item["loc"])
    if layers and loc == ("name",) and "name" not in layers[0][1]:
        return f" (It is the name of the file: rename {layers[0][0].name}.)"
    if len(layers) < 2:
        return ""
    places = [loc]
    if isinstance(item["input"], dict):  # a rule over several fields, which it names
        places = [(*loc, *words.split(".")) for words in dict.fromkeys(_FIELDS.findall(str(item["msg"])))]
    of: dict[Path, list[str]] = {}
    for place in places:
        first = next((file for file, values in layers if _says(values, place)), None)
        if first is not None and first != path and place[-1] not in ("name", "title"):
            of.setdefault(first, []).append(".".join(map(str, place)))
    told = [
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} inherited from {file}"
        for file, names in of.items()
    ]
    if loc == ("gpu",) and (file := _card_taken_back(layers, path, str(item["msg"]))):
        told.insert(0, f"Another gpu.model or gpu.vendor takes back what {file} says of its own card alone")
    return "".join(f" ({one}.)" for one in told)


def _card_taken_back(layers: list[tuple[Path, dict[str, Any]]], path: Path | str, message: str) -> Path | None:
    """The extended file whose card's facts are the missing ones that a message names: they are there, and true of another card."""
    assert isinstance(path, Path)
    for (file, written), (_, kept) in zip(_written(path)[1:], layers[1:], strict=True):
        lost = [name for name in OF_A_CARD if _says(written, ("gpu", name)) and not _says(kept, ("gpu", name))]
        if any(re.search(rf"\b{name}\b", message) for name in lost):
            return file
    return None


def _says(values: Any, place: tuple[Any, ...]) -> bool:
    """Whether a mapping says something at that place, or decides that nothing is there."""
    for part in place:
        if (isinstance(values, dict) and part in values) or (
            isinstance(values, list) and isinstance(part, int) and part < len(values)
        ):
            values = values[part]
        else:
            return False
    return True


def allowed_keys(model: type[BaseModel], prefix: str = "") -> dict[str, list[str]]:
    """Dotted place -> the keys that are valid there, for a model and the models inside it."""
    keys = {prefix: [f.alias or n for n, f in model.model_fields.items()]}
    for name, field in model.model_fields.items():
        for inner in _held(field.annotation):
            keys.update(allowed_keys(inner, f"{prefix}.{name}" if prefix else name))
    return keys


def _held(annotation: Any) -> list[type[BaseModel]]:
    """The models that a type names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in getattr(annotation, "__args__", ()) for m in _held(part)]


def _models_in(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and the models inside it."""
    yield model
    for field in model.model_fields.values():
        for inner in _held(field.annotation):
            yield from _models_in(inner)
