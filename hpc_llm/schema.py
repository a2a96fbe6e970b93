"""The JSON schema of a profile, for editors, with each field's docstring as its description.

Taken from the source on demand: collecting docstrings when the models are defined would slow down every command.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from pydantic import BaseModel


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of `model` and of the models inside it."""
    schema = model.model_json_schema(by_alias=True)
    docs = _field_docs(inspect.getsource(inspect.getmodule(model)))  # type: ignore[arg-type]
    for name, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        for field, description in docs.get(name, {}).items():
            if field in part.get("properties", {}):
                part["properties"][field]["description"] = description
    return schema


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
