"""`--set PATH=VALUE`: change any field of a plan, and `KEY=VALUE` pairs in general.

A setting is the strongest of all sources of a value and is heeded where that value is decided, so that everything which
follows from the value follows from the setting.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from hpc_llm.corpus.words import PACKINGS, TOO_LONG
from hpc_llm.errors import ProfileError, RequestError, did_you_mean, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning.experiment import PATHS, SHORT, WORKLOADS, Plan
from hpc_llm.planning.optimizers import NAMES
from hpc_llm.planning.other_words import BROUGHT_BY, SETTINGS, meant_by
from hpc_llm.planning.parts import OptimizerSetup
from hpc_llm.planning.recompute import read_share
from hpc_llm.planning.schedule import SCHEDULES
from hpc_llm.records.run import is_record
from hpc_llm.site.reach import refuse_loading
from hpc_llm.site.reach import refuse_reach as refuse_reach_of

_SHOWN = 80
_OPTIONS = ("time", "name", "templates", "cluster", "method", "task", "data", "env_file", "epochs", "resume", "over")
"""Options of a request that no field of the plan is called."""
FREE = ("deepspeed", "env", "columns")
"""Mappings that take keys they do not hold yet; DeepSpeed's and those of rows are checked afterwards."""
RAW = ("env", "columns")
"""Mappings of texts, taken as they stand."""
EMPTY = ("env",)
"""Mappings whose texts may be empty: a variable of the job can be set to nothing."""
MODELLED = ("quantization", "peft", "optimizer")
"""Mappings whose values a model of the method checks afterwards."""
FIXED = {
    "task": "use --task",
    "data": "use --data",
    "resume": "use --resume",
    "loss_floor_nats": "it follows from the data",
    "corpus": "use --data",
    "caches": "the variable HPC_LLM_CACHE names it",
    "epochs": "use --epochs",
    "lengths": "use --over sequence-length",
    "world_size": "use --nodes, or set tasks_per_node",
    "data_parallel": "use --nodes or --tensor-parallel, or set tasks_per_node",
    "tensor_parallel": "use --tensor-parallel",
    "pipeline_parallel": "no task can do it yet",
    "global_batch_size": "set micro_batch_size or gradient_accumulation_steps",
    "cluster": "use --cluster",
    "method": "use --method",
    "letters": "use --method",
    "engine_fallback": "it follows from the engine",
    "engine_module": "it follows from the engine",
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
    "expected_network": "it follows from the cluster",
    "cpus_per_task": "use --sbatch cpus-per-task=N",
    "mem": "use --sbatch mem=SIZE",
}
CHOICES = {
    "precision": ("bf16", "fp16", "fp32"),
    "reduce_precision": ("fp32", "bf16"),
    "offloaded_step": ("device", "host"),
    "moments_precision": ("fp32", "bf16"),
    "attention": ("sdpa", "eager", "flash_attention_2"),
    "quantization.kind": ("nf4", "fp4", "int8"),
    "optimizer.type": NAMES,
    "weights": ("random", "checkpoint"),
    "packing": PACKINGS,
    "too_long": TOO_LONG,
    "lr_schedule": SCHEDULES,
}


def _optional() -> set[str]:
    """Short names of the fields that may be none."""
    parts = [one for name, one in get_type_hints(Plan).items() if is_dataclass(one) and name != "workload"]
    types = {one.name: (one, str(one.type)) for part in (*parts, *WORKLOADS.values()) for one in fields(part)}
    return {one.metadata.get("short", name) for name, (one, kind) in types.items() if "None" in kind}


OPTIONAL = frozenset(_optional())


class PairOfFile(str):
    """A `PATH=VALUE` that a file says and not the command line, so that messages and origins name the file."""

    place: str
    """The file as it was named."""
    origin: str
    """What tables call it."""

    def __new__(cls, pair: str, place: str, origin: str) -> PairOfFile:
        made = super().__new__(cls, pair)
        made.place, made.origin = place, origin
        return made

    def __getnewargs__(self) -> tuple[str, ...]:  # type: ignore[override]
        return str(self), self.place, self.origin


def placed(pairs: Iterable[str], place: str, origin: str) -> list[str]:
    """The pairs, those that nobody has placed yet as of that file."""
    return [pair if isinstance(pair, PairOfFile) else PairOfFile(pair, place, origin) for pair in pairs]


def split_pair(text: str, flag: str) -> tuple[str, str]:
    """The two sides of `KEY=VALUE`; a bare `KEY` has the value ''."""
    key, _, value = text.partition("=")
    if not key.strip():
        raise RequestError(f"{flag} {text!r}: write it as KEY=VALUE.")
    return key.strip(), value


def parse_value(text: str, said: str = "--set") -> Any:
    """A YAML scalar or flow collection; `1e9` is a number, and a whole one is an int.

    >>> parse_value("1e9"), parse_value("true"), parse_value("[0.8, 0.999]"), parse_value("fp32")
    (1000000000, True, [0.8, 0.999], 'fp32')
    """
    from hpc_llm.text.yaml_text import LARGEST_INTEGER, parse_yaml

    value = parse_yaml(text, f"{said}: the value {text[:_SHOWN]!r}")
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_INTEGER and "." not in text
    return int(value) if is_whole else value


@dataclass(frozen=True)
class Setting:
    """One `PATH=VALUE`, its path in short names."""

    field: str
    """Short name of the plan's field."""
    inside: tuple[str, ...]
    """Keys within the field's mapping, the outermost first; none for the field itself."""
    text: str
    asked: str
    """The path as it was typed."""
    head: str = "--set "
    """What stands before a path where it was said: `--set `, or `FILE.yaml: set.`."""
    origin: str | None = None
    """The file that says it; None for what the caller says."""

    @property
    def path(self) -> str:
        """The path in short names, with dots."""
        return ".".join((self.field, *self.inside))

    @property
    def said(self) -> str:
        """The path as it was typed, with where it was said."""
        return f"{self.head}{self.asked}"


def read_setting(pair: str) -> Setting:
    """The setting that a `PATH=VALUE` stands for; a path may be a short name or lead through the plan's parts.

    Raises:
        RequestError: it is not written so, or nothing can be set there.
    """
    of_file = pair if isinstance(pair, PairOfFile) else None
    head = f"{of_file.place}: set." if of_file else "--set "
    where, example = (head[:-1], "set: {optimizer.lr: 1e-4}") if of_file else ("--set", "--set optimizer.lr=1e-4")
    asked, text = split_pair(pair, where)
    if "=" not in pair:
        raise RequestError(f"{where} {str(pair)!r}: write it as PATH=VALUE, e.g. {example}.")
    said = f"{head}{asked}"
    name, inside = _field_of(asked, said)
    if name in FIXED:
        raise RequestError(f"{said}: {name} cannot be set: {FIXED[name]}.")
    if name in RAW and len(inside) != 1:
        raise RequestError(f"{said}: write it as {name}.NAME=VALUE.")
    if not text.strip() and name not in EMPTY:  # as YAML it would be null: the default of many fields, without a word
        why = "" if of_file else ": a variable of the shell may not be set"
        raise RequestError(f"{said} is empty{why}. Give it a value, or leave it out.")
    return Setting(name, inside, text, asked, head, of_file and of_file.origin)


def _field_of(asked: str, said: str = "") -> tuple[str, tuple[str, ...]]:
    """Short name of the field that a path leads to, and what is left of the path."""
    first, *rest = asked.split(".")
    if rest and (short := SHORT.get(f"{first}.{rest[0]}")) is not None:
        return short, tuple(rest[1:])
    if rest and any(path.startswith(f"{first}.") for path in SHORT):
        raise RequestError(f"{said}: {_not_in(first, rest[0])}")
    if first in PATHS:
        return first, tuple(rest)
    if (way := _meant(asked)) is not None:
        raise RequestError(f"{said}: there is no plan field '{first}': {way}{'' if way.endswith('?') else '.'}")
    names = PATHS.keys() - FIXED.keys()
    raise RequestError(f"{said}: " + unknown_name("plan field", first, names))


def _not_in(part: str, name: str) -> str:
    """That a part of the plan has no such field: what is meant, where the plan or an option has that, else which fields can be set there."""
    way = f"did you mean {name}?" if name in PATHS.keys() - FIXED.keys() else _meant(name)
    if way is not None:
        return f"there is no field '{name}' in {part}: {way}{'' if way.endswith('?') else '.'}"
    inside = {
        path.partition(".")[2] for path, short in SHORT.items() if short not in FIXED and path.startswith(f"{part}.")
    }
    return unknown_name("field", name, inside, where=part)


def _meant(asked: str) -> str | None:
    """What a path stands for that is written as elsewhere: an option, a field of the optimizer, a key of DeepSpeed."""
    from hpc_llm.planning.deepspeed_config import TOP_LEVEL

    first = asked.partition(".")[0].replace("-", "_")
    if first in _OPTIONS:
        return f"use --{first.replace('_', '-')}"
    if first in {one.name for one in fields(OptimizerSetup)}:
        return f"did you mean optimizer.{first}?"
    if first in TOP_LEVEL:
        return f"did you mean deepspeed.{asked}?"
    word = asked.replace(".", "_") if "." in asked else first  # lora.r as lora_r
    if first not in PATHS and (way := meant_by(word, "--")) is not None:
        return _as_advice(way)
    return f"did you mean {asked.replace('-', '_')}?" if first in PATHS else None


def _as_advice(way: str) -> str:
    """What another word is said as, given to who wrote it as a path: a field, an option, or a sentence."""
    path = way.removeprefix("--set ").partition("=")[0]
    if path in PATHS or "." in path:
        return f"did you mean {path}?"
    if not way.startswith("--"):
        return way
    return f"use {way if way.startswith('--sbatch ') else way.split()[0]}"


def is_field(path: str) -> bool:
    """Whether that is the path of a field of the plan, all of which is known to be there.

    >>> is_field("optimizer.lr"), is_field("most_tries"), is_field("optimizer.lrr"), is_field("colour")
    (True, True, False, False)
    """
    try:
        found = read_setting(f"{path}=x")
    except RequestError:
        return False
    return not found.inside or found.field in ("deepspeed", *RAW) or path in {known for known, _, _ in SETTINGS}


def is_text(path: str) -> bool:
    """Whether what is set there is text as it stands, as a variable of the job is, and not read as YAML.

    >>> is_text("env.OMP_NUM_THREADS"), is_text("job.env.OMP_NUM_THREADS"), is_text("batch.sequence_length"), is_text("x")
    (True, True, False, False)
    """
    try:
        return _field_of(path)[0] in RAW
    except RequestError:  # told where the setting is applied
        return False


class Settings:
    """All settings of a request, each heeded where its field is decided."""

    def __init__(self, pairs: Iterable[str] = (), origin: str = "--set") -> None:
        self.all = [read_setting(pair) for pair in pairs]
        self._origin = origin
        self._refuse_two_values()

    def _refuse_two_values(self) -> None:
        """A caller means one of two values; a file may say one for all its runs and another for one of them."""
        first: dict[str, Setting] = {}
        for one in self.all:
            before = first.setdefault(one.path, one) if one.origin is None else one
            if before.text != one.text:
                raise RequestError(f"{before.said} is given twice, as {before.text} and as {one.text}. Say it once.")

    @property
    def origin(self) -> str:
        """Where the settings come from."""
        return ", ".join(dict.fromkeys(one.origin or self._origin for one in self.all)) or self._origin

    def origin_of(self, field: str) -> str:
        """Where what is set of that field comes from."""
        return ", ".join(dict.fromkeys(one.origin or self._origin for one in self.of(field)))

    def said(self, field: str) -> str:
        """What stands before a message about the field: `--set FIELD`, or the file that sets it."""
        found = self.of(field)
        return f"{found[-1].head if found else '--set '}{field}"

    def of(self, field: str) -> list[Setting]:
        """The settings of that field, in the order in which they were given."""
        return [one for one in self.all if one.field == field]

    def applied(self, field: str, value: Any) -> Any:
        """`value` as the settings of the field leave it; a mapping is changed in place."""
        for setting in self.of(field):
            value = _changed(value, setting)
        return value


def _changed(value: Any, setting: Setting) -> Any:
    name = setting.field
    new = setting.text if name in RAW else parse_value(setting.text, setting.said)
    choices = CHOICES.get(setting.path)
    if choices is not None and new not in choices:
        near = did_you_mean(str(new), choices) or "."
        raise RequestError(f"{setting.said}={setting.text}: valid are {', '.join(choices)}{near}")
    if name == "recompute" and not setting.inside:
        return _share(new, setting)
    if not setting.inside:
        return None if new is None and name in OPTIONAL else _same_type(setting.said, value, new)
    holder, last = _holder(value, setting), setting.inside[-1]
    if name not in FREE and last not in holder:
        raise RequestError(f"{setting.said}: " + unknown_name("key", last, holder))
    holder[last] = new if name in (*FREE, *MODELLED) else _same_type(setting.said, holder[last], new)
    return value


def _share(value: Any, setting: Setting) -> Any:
    try:
        return read_share(value)
    except ValueError as error:
        raise RequestError(f"{setting.said}={setting.text}: {error}.") from None


def _holder(value: Any, setting: Setting) -> dict[str, Any]:
    """The mapping that the last part of the path is a key of."""
    if not isinstance(value, dict):
        if setting.field in CHOICES:
            words = ", ".join(CHOICES[setting.field])
            raise RequestError(
                f"{setting.said}: {setting.field} is one word of {words}. Write {setting.head}{setting.field}=WORD."
            )
        lacks = f"is not used by this method{BROUGHT_BY.get(setting.field, '')}"
        way = f"has no parts. Write {setting.head}{setting.field}=VALUE"
        raise RequestError(f"{setting.said}: {setting.field} {lacks if value is None else way}.")
    for part in setting.inside[:-1]:
        inner = value.setdefault(part, {}) if setting.field in FREE else value.get(part)
        if not isinstance(inner, dict):
            raise RequestError(f"{setting.said}: '{part}' holds {inner!r}, which has no parts.")
        value = inner
    found: dict[str, Any] = value
    return found


def refuse_reach(pairs: Iterable[str], where: str) -> None:
    """Raise a RequestError for a setting of a file that decides which code the job loads, or on which disk it writes.

    A setting that cannot be read is left to `read_setting`, which says what is wrong with it.
    """
    for pair in pairs:
        try:
            setting = read_setting(pair)
        except RequestError:
            continue
        if setting.field == "env":
            refuse_loading(setting.inside[0], setting.text, where, is_record)
        elif setting.field == "deepspeed":
            with contextlib.suppress(ProfileError):
                refuse_reach_of(_nested(setting.inside, parse_value(setting.text)), where)


def _nested(keys: Iterable[str], value: Any) -> dict[str, Any]:
    """`value` under its keys, the outermost first, as within a plan's `deepspeed`."""
    for key in reversed(["deepspeed", *keys]):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


_NOUNS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list, as in [a, b]",
    dict: "a mapping, as in {a: 1}",
}


def _same_type(said: str, old: Any, new: Any) -> Any:
    """`new`, refused where its type cannot stand in for `old`'s."""
    number = isinstance(old, (int, float)) and not isinstance(old, bool)
    if number and isinstance(new, (int, float)) and not isinstance(new, bool):
        if isinstance(old, int) and not isinstance(new, int):
            raise RequestError(f"{said}={new}: a whole number is needed.")
        return float(new) if isinstance(old, float) else new
    if old is None or (isinstance(new, type(old)) and isinstance(new, bool) == isinstance(old, bool)):
        return new
    if isinstance(old, bool):
        raise RequestError(f"{said}={new}: write true or false, in small letters. The default is {str(old).lower()}.")
    raise RequestError(f"{said}: {new!r} is not {_NOUNS[type(old)]}. The default is {old!r}.")
