"""The JSON schema of a profile, for editors, with each field's docstring as its description.

Taken from the source on demand: collecting docstrings when the models are defined would slow down every command.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel


def profile_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a file: the whole `model`, or with `extends` any part of it."""
    name, whole = model.__name__, json_schema(model)
    parts = whole.pop("$defs", {})
    defs = {**parts, name: whole}
    partial = {f"Part{key}": _nothing_required(value) for key, value in defs.items()}
    extends = {"type": "string", "description": "Name of a file whose values stand where this one says nothing."}
    partial[f"Part{name}"]["properties"]["extends"] = extends
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": whole["title"],
        "if": {"required": ["extends"]},
        "then": {"$ref": f"#/$defs/Part{name}"},
        "else": {"$ref": f"#/$defs/{name}"},
        "$defs": {**defs, **partial},
    }


def _nothing_required(schema: Any) -> Any:
    """A copy of a schema in which all keys may be missing, also in the schemas that it refers to."""
    if isinstance(schema, list):
        return [_nothing_required(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _nothing_required(value) for key, value in schema.items() if not _is_requirement(key, value)}
    if "$ref" in copy:
        copy["$ref"] = copy["$ref"].replace("#/$defs/", "#/$defs/Part")
    return copy


def _is_requirement(key: str, value: Any) -> bool:
    """Whether this is the list of required keys, and not a property that is called so."""
    return key == "required" and isinstance(value, list)


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of `model` and of the models inside it."""
    parts = list(_parts(model))
    for part in parts:
        part.model_rebuild()  # built late, as its `defer_build` says; pydantic 2.13 does not do so for a default
    schema = model.model_json_schema(by_alias=True)
    docs: dict[str, dict[str, str]] = {}
    for module in {part.__module__ for part in parts}:
        docs |= _field_docs(inspect.getsource(sys.modules[module]))
    for name, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        for field, description in docs.get(name, {}).items():
            if field in part.get("properties", {}):
                part["properties"][field]["description"] = description
    return schema


def _parts(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a type holds, and those inside them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        inner = [field.annotation for field in annotation.model_fields.values()]
    else:
        inner = list(getattr(annotation, "__args__", ()))
    for part in inner:
        yield from _parts(part)


def _field_docs(source: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the string that stands right under it."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                statement.target.id: " ".join(following.value.value.split())
                for statement, following in zip(node.body, node.body[1:], strict=False)
                if isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            }
    return found
