"""`--set PATH=VALUE`: change any field of a plan, and `KEY=VALUE` pairs in general."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from hpc_llm.errors import ProfileError, RequestError, unknown_name
from hpc_llm.plan.experiment import Plan
from hpc_llm.plan.optimizers import NAMES
from hpc_llm.site.reach import refuse_loading, refuse_scratch

_SHOWN = 80
FREE = ("deepspeed", "env")
"""Mappings that take keys they do not hold yet; DeepSpeed's are checked afterwards."""
MODELLED = ("quantization", "peft", "optimizer")
"""Mappings whose values a model of the method checks afterwards."""
OPTIONAL = {f.name for f in fields(Plan) if "None" in str(f.type)}
FIXED = {
    "task": "use --task",
    "data": "use --data",
    "loss_floor_nats": "it follows from the data",
    "world_size": "set nodes or tasks_per_node",
    "data_parallel": "set nodes or tasks_per_node",
    "global_batch_size": "set micro_batch_size or gradient_accumulation_steps",
    "cluster": "use --cluster",
    "method": "use --method",
    "letters": "use --method",
    "scheduler": "set it in the cluster's profile",
    "sbatch": "use --sbatch KEY=VALUE",
    "env_file": "use --env-file",
    "account": "use --account",
    "partition": "use --partition",
    "time_s": "use --time",
    "job_name": "use --name",
    "nodes": "use --nodes",
    "gpus_per_node": "use --gpus-per-node",
    "expected_gpu": "it follows from the cluster",
    "cpus_per_task": "use --sbatch cpus-per-task=N",
    "mem": "use --sbatch mem=SIZE",
}
CHOICES = {
    "precision": ("bf16", "fp16", "fp32"),
    "attention": ("sdpa", "eager", "flash_attention_2"),
    "quantization.kind": ("nf4", "fp4", "int8"),
    "optimizer.type": NAMES,
    "weights": ("random", "checkpoint"),
}


def split_pair(text: str, flag: str) -> tuple[str, str]:
    """The two sides of `KEY=VALUE`; a bare `KEY` has the value ''."""
    key, _, value = text.partition("=")
    if not key.strip():
        raise RequestError(f"{flag} {text!r}: write it as KEY=VALUE.")
    return key.strip(), value


def parse_value(text: str) -> Any:
    """A YAML scalar or flow collection; `1e9` is a number, and a whole one is an int.

    >>> parse_value("1e9"), parse_value("true"), parse_value("[0.8, 0.999]"), parse_value("fp32")
    (1000000000, True, [0.8, 0.999], 'fp32')
    """
    from hpc_llm.text.yaml_text import LARGEST_INTEGER, parse_yaml

    value = parse_yaml(text, f"--set value {text[:_SHOWN]!r}")
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_INTEGER and "." not in text
    return int(value) if is_whole else value


def refuse_reach(settings: Iterable[str], where: str) -> None:
    """Raise a RequestError for a setting of a file that decides which code the job loads, or on which disk it writes.

    A setting that cannot be read is left to `apply_settings`, which says what is wrong with it.
    """
    for setting in settings:
        path, text = split_pair(setting, "--set")
        top, _, rest = path.partition(".")
        if top == "env":
            refuse_loading(rest, text, where)
        elif top == "deepspeed":
            with contextlib.suppress(ProfileError):
                refuse_scratch(_nested(path.split("."), parse_value(text)), where)


def _nested(parts: list[str], value: Any) -> dict[str, Any]:
    """`value` under its keys, the outermost first."""
    for part in reversed(parts):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def apply_settings(values: dict[str, Any], settings: Iterable[str]) -> list[str]:
    """Apply `PATH=VALUE` pairs to the values of a plan in place; returns the plan fields that they changed."""
    changed = []
    for setting in settings:
        path, text = split_pair(setting, "--set")
        if "=" not in setting:
            raise RequestError(f"--set {setting!r}: write it as PATH=VALUE, e.g. --set optimizer.lr=1e-4.")
        _apply(values, path, text)
        changed.append(path.split(".", 1)[0])
    return changed


def _apply(values: dict[str, Any], path: str, text: str) -> None:
    top, *rest = path.split(".")
    names = {f.name for f in fields(Plan)} - set(FIXED)
    if top in FIXED:
        raise RequestError(f"--set {path}: {top} cannot be set: {FIXED[top]}.")
    if top not in names:
        raise RequestError(unknown_name("plan field", top, names, where=f"--set {path}"))
    if top == "env" and len(rest) != 1:
        raise RequestError(f"--set {path}: write it as env.NAME=VALUE.")
    value = text if top == "env" else parse_value(text)
    if path in CHOICES and value not in CHOICES[path]:
        raise RequestError(f"--set {path}={text}: valid are {', '.join(CHOICES[path])}.")
    if not rest:
        values[top] = None if value is None and top in OPTIONAL else _same_type(path, values.get(top), value)
        return
    holder = _holder(values, top, rest, path)
    last = rest[-1]
    if top not in FREE and last not in holder:
        raise RequestError(unknown_name("key", last, holder, where=f"--set {path}"))
    holder[last] = value if top in (*FREE, *MODELLED) else _same_type(path, holder[last], value)


def _holder(values: dict[str, Any], top: str, rest: list[str], path: str) -> dict[str, Any]:
    """The mapping that the last part of the path is a key of."""
    holder = values.get(top)
    if not isinstance(holder, dict):
        state = "is not used by this method" if holder is None else "has no parts"
        raise RequestError(f"--set {path}: {top} {state}.")
    for part in rest[:-1]:
        inner = holder.setdefault(part, {}) if top in FREE else holder.get(part)
        if not isinstance(inner, dict):
            raise RequestError(f"--set {path}: '{part}' holds {inner!r}, which has no parts.")
        holder = inner
    return holder


_NOUNS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list, as in [a, b]",
    dict: "a mapping, as in {a: 1}",
}


def _same_type(path: str, old: Any, new: Any) -> Any:
    """`new`, refused where its type cannot stand in for `old`'s."""
    number = isinstance(old, (int, float)) and not isinstance(old, bool)
    if number and isinstance(new, (int, float)) and not isinstance(new, bool):
        if isinstance(old, int) and not isinstance(new, int):
            raise RequestError(f"--set {path}={new}: a whole number is needed.")
        return float(new) if isinstance(old, float) else new
    if old is None or (isinstance(new, type(old)) and isinstance(new, bool) == isinstance(old, bool)):
        return new
    raise RequestError(f"--set {path}: {new!r} is not {_NOUNS[type(old)]}. It is {old!r} now.")
