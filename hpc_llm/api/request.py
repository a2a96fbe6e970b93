"""What a caller asks for: options and an experiment file merged, held to what either may say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.api.layers import Flags, RunRequest
from hpc_llm.api.only import only
from hpc_llm.api.plain import plain
from hpc_llm.api.values import NAMES, answered, swept, typed
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.text.pasted import refuse_address

if TYPE_CHECKING:
    from hpc_llm.api.study import Check, Study

BESIDE = ("smoke", "max_parallel", "only")
"""Options that are no part of a plan."""
_OF_FILES = tuple(name for name in NAMES if name != "env_file")
_OF_A_CALL = ("logs", "run_id", "force", "wait", "dry_run")
"""Options of one call, which are no part of an experiment."""
_IN_PYTHON = {
    "test_only": "render(...) checks everything and submits nothing",
    "dry_run": "render(...) gives the scripts that submit would send, and submits nothing",
    "wait": "wait(submit(...)) follows the runs to their end",
}
"""Options of commands that a program says otherwise."""
_OF_AN_EXPERIMENT = ("matrix", "include", "runs", "expect", "reference")
"""Keys of a file that are no options."""


@dataclass(frozen=True)
class Request:
    """What options and file ask for, options winning; `sources` says which of them each value came from."""

    values: dict[str, Any]
    sources: dict[str, str] = field(default_factory=dict)
    study: tuple[RunRequest, ...] = ()
    """The runs, where the file says more than its options."""
    max_parallel: int | None = None
    """Most runs at a time."""

    def sweep(self, key: str) -> list[str]:
        """The names given for `cluster` or `method`."""
        names = swept(self.values, key)
        for name in names:
            if names.count(name) > 1:
                raise RequestError(f"{key} {name} is given twice. Repeats are separate submissions.")
        return names

    @property
    def runs(self) -> Sequence[RunRequest]:
        """One for each run."""
        return self.study or [
            RunRequest(values={**self.values, "cluster": cluster, "method": method}, sources=self.sources)
            for cluster, method in product(self.sweep("cluster"), self.sweep("method"))
        ]

    def only(self, name: str) -> Request:
        """What asks for that run of the study alone.

        Raises:
            RequestError: there is none of that name.
        """
        found = self.study[position(name, [run.place.name for run in self.study if run.place])]
        return replace(self, values=found.values, sources=dict(found.sources), study=())


def position(name: str, names: Sequence[str]) -> int:
    """The place of a run's name among those of a study.

    Raises:
        RequestError: it is none of them.
    """
    if not names:
        raise RequestError(
            f"--run {name}: the request is no study. Leave --run out; one of a sweep is taken by --method or --cluster."
        )
    if name not in names:
        raise RequestError("--run: " + unknown_name("run", name, names))
    return names.index(name)


def read_request(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    beside: Mapping[str, Any],
    spelled: str = "--",
) -> Request:
    """Merge an experiment (a YAML file, or a mapping of the same keys) and options, which win.

    `options` are fields of Experiment, `smoke`, `max_parallel` and `only`; None and an empty list are not said. `beside` are the
    other options of the caller, which may hold no secret either. `spelled` stands before the name of an option in
    messages and origins, `--` as on a command line or nothing.
    """
    named = "EXPERIMENT.yaml" if spelled else "experiment"
    options = plain(options, "")
    _refuse_secrets(
        {named: experiment if isinstance(experiment, (str, os.PathLike)) else None, **options, **beside}, spelled
    )
    _refuse_blank(experiment, options, spelled)
    file = _of_experiment(experiment, options, spelled)
    flags = _flags(options, spelled)
    if experiment is None and "resume" in flags.layer and "method" not in flags.layer:
        file = _asked_before(flags.layer, beside.get("logs"), spelled)
    if flags.smoke and file.study is None:
        raise RequestError(f"{spelled}smoke needs an experiment file that says what is small: smoke: {{steps: N}}.")
    values, sources = flags.over(file.values), {**file.sources, **flags.sources}
    runs = only(_runs_of(file, flags), options.get("only"), spelled)
    for one, said in ((values, sources), *((run.values, run.sources) for run in runs)):
        for name, value in one.items():
            _check_encoding(name, value)
        _mark_data(one, said, experiment, flags)
    own = list(flags.layer.get("set", []))
    _settle(values, sources, own)
    for run in runs:
        _settle(run.values, run.sources, own)
    most = options.get("max_parallel") if options.get("max_parallel") is not None else file.max_parallel
    return Request(values, sources, tuple(runs), _at_least_one(most, f"{spelled}max-parallel"))


def _mark_data(values: dict[str, Any], sources: Mapping[str, str], experiment: Any, flags: Flags) -> None:
    """Let the sources of data know the file that says them, for the sentence of one that is not there."""
    is_of_file = isinstance(experiment, (str, os.PathLike)) and sources.get("data") != flags.sources.get("data")
    if is_of_file and isinstance(values.get("data"), (list, tuple)):
        from hpc_llm.corpus.sources import SourceOfFile

        values["data"] = [SourceOfFile(one, Path(experiment)) for one in values["data"]]


def _runs_of(file: _Read, flags: Flags) -> list[RunRequest]:
    """The runs of a file that says more than its options; none of another."""
    if file.study is None:
        return []
    from hpc_llm.api.study_runs import runs_of

    return runs_of(file.study, file.name, file.values, file.sources, flags)


def _flags(options: Mapping[str, Any], spelled: str) -> Flags:
    """The options that are said, in the types of the command line."""
    layer: dict[str, Any] = {}
    for name, option in options.items():
        if name not in (*NAMES, *BESIDE):
            if name in _OF_AN_EXPERIMENT and not spelled:
                raise RequestError(
                    f"'{name}' is no option: say it in the experiment, a file or a mapping that is the first argument."
                )
            if name in _OF_A_CALL or (name in _IN_PYTHON and not spelled):
                raise RequestError(
                    f"this function has no option {name!r}" + (f": {way}." if (way := _IN_PYTHON.get(name)) else ".")
                )
            if not spelled and (own := name.replace("-", "_")) in (*NAMES, *BESIDE):
                raise RequestError(f"there is no option '{name}': in Python it is spelled {own}=.")
            said = answered(name, "--" if spelled else "", str(option))
            raise RequestError(said or unknown_name("option", name, (*NAMES, *BESIDE)))
        if name in NAMES and option is not None and option != []:
            layer[name] = option if spelled else typed("the request", name, option)
    sources = {name: f"--{name.replace('_', '-')}" if spelled else name for name in layer}
    return Flags(layer=layer, sources=sources, smoke=bool(options.get("smoke")))


def _at_least_one(value: Any, named: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise RequestError(f"{named} is {value!r}: a whole number of at least 1 is needed.")
    return value


def _settle(values: dict[str, Any], sources: Mapping[str, str], own: list[str]) -> None:
    """Let an option win over a setting of the file for the same field; where both come from one place they must agree.

    `own` are the settings of the caller, which win over what a file says.
    """
    from hpc_llm.planning.settings import PairOfFile

    if "set" in values:
        values["set"] = list(values["set"])
    for pair in list(values.get("set", [])):
        name, text = _set_field(pair), pair.partition("=")[2]
        if name is None or name not in values or str(values[name]) == text.strip():
            continue
        is_of_file = pair not in own
        if is_of_file and sources[name] != _file_of(sources, name):
            values["set"].remove(pair)
        elif is_of_file or sources[name].startswith("--") or sources[name] == name:
            place = sources[name] if sources[name].startswith("--") else name
            setting = f"{pair.place}: set: {pair}" if isinstance(pair, PairOfFile) else f"--set {pair}"
            raise RequestError(f"{place} {values[name]} and {setting} say two things of {name}. Keep one of them.")


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


@dataclass(frozen=True, kw_only=True)
class _Read:
    """What an experiment holds."""

    name: str = "experiment"
    """Of the study, where it is one."""
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    study: Study | None = None
    max_parallel: Any = None


def _of_experiment(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | None, options: Mapping[str, Any], spelled: str
) -> _Read:
    """The experiment's values, where each comes from, and its runs. The options say what a word was meant for that is no file."""
    if experiment is None:
        return _Read()
    if isinstance(experiment, Mapping):
        return _read_content(_given_mapping(experiment), "the experiment", "experiment", _nothing)
    if not isinstance(experiment, (str, os.PathLike)) or not os.fspath(experiment):
        what = "an empty name" if isinstance(experiment, str) else f"of type {type(experiment).__name__}"
        raise RequestError(f"the experiment is {what}: give the path of a YAML file, or a mapping with the same keys.")
    path = Path(experiment)
    if not path.exists():
        from hpc_llm.api.misplaced import refuse_second_word

        refuse_address("", os.fspath(experiment))
        refuse_second_word(os.fspath(experiment), options, spelled)
    return _read_file(path)


def _read_file(path: Path) -> _Read:
    """The same of a file, which may be a stranger's: nothing of it may load code or lead elsewhere."""
    from hpc_llm.api.misplaced import refuse_profile, refuse_script
    from hpc_llm.text.secrecy import refuse_secrets
    from hpc_llm.text.yaml_text import read_yaml

    try:
        content = read_yaml(path)
    except RequestError:
        refuse_script(path)
        raise
    refuse_secrets(content, str(path))
    refuse_profile(content, path)
    return _read_content(content, str(path), path.name, _refuse_foreign)


def _asked_before(own: Mapping[str, Any], logs: Any, spelled: str) -> _Read:
    """What the run that `own` options go on from was asked with; nothing where its record does not hold it."""
    from hpc_llm.api.find import logs_folder
    from hpc_llm.api.resuming import asked_with
    from hpc_llm.text.secrecy import refuse_secrets

    run, found, is_own = asked_with(str(own["resume"]), logs_folder(logs))
    refuse_secrets(found, str(run.experiment))
    left_out = {*own.keys() - {"set", "sbatch"}, "resume"}
    values = _read_mapping({name: one for name, one in found.items() if name not in left_out}, str(run.experiment))
    if not is_own:
        _refuse_foreign(values, str(run.experiment))
    return _Read(values=values, sources=dict.fromkeys(values, f"{spelled}resume {run.run_id}"))


def _nothing(layer: dict[str, Any], where: str) -> None:
    """A program may ask for what the command line may."""


def _refuse_foreign(layer: dict[str, Any], where: str) -> None:
    """Refuse options that decide which code the job loads, or on which disk it writes."""
    from hpc_llm.planning.settings import refuse_reach
    from hpc_llm.site.sbatch_options import refuse_harmful

    refuse_reach(layer.get("set", []), where)
    refuse_harmful(layer.get("sbatch", []), where)
    if "env_file" in layer:  # its variables may load code, as those of `set` may not
        raise RequestError(f"{where}: a file of variables is named by --env-file on the command line, not in a file.")


def _read_content(content: Mapping[str, Any], where: str, source: str, check: Check) -> _Read:
    from hpc_llm.api.study import KEYS, of_file, read_study
    from hpc_llm.planning.study import LONGEST_NAME

    own = (*KEYS, "max_parallel", "max-parallel")
    values = _read_mapping({key: value for key, value in content.items() if key not in own}, where)
    check(values, where)
    of_file(values, where)
    return _Read(
        name=(Path(source).stem or source)[:LONGEST_NAME],
        values=values,
        sources=dict.fromkeys(values, source),
        study=read_study(content, values, where, check),
        max_parallel=_at_least_one(content.get("max_parallel", content.get("max-parallel")), f"{where}: max_parallel"),
    )


def _refuse_blank(experiment: Any, options: Mapping[str, Any], spelled: str) -> None:
    """Refuse `--set PATH VALUE`, of which the value would be taken for the experiment file."""
    if not spelled or not isinstance(experiment, (str, os.PathLike)) or os.path.exists(experiment):
        return
    pair = next((one for one in options.get("set") or () if "=" not in str(one)), None)
    if pair is not None:
        raise RequestError(
            f"--set {pair} {os.fspath(experiment)}: a setting is one word, PATH=VALUE. Write --set {pair}={os.fspath(experiment)}."
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


def _check_encoding(name: str, value: Any) -> None:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates, which nothing can write later on."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
            raise RequestError(f"{name} is {text!r}: write it in UTF-8, without NUL characters.")


def _read_mapping(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    from hpc_llm.api.study import KEYS

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
            said = answered(str(key), "file", str(value))
            raise RequestError(
                f"{where}: {said or unknown_name('option', str(key), (*_OF_FILES, *KEYS, 'max_parallel'))}"
            )
        if name in values:
            raise RequestError(f"{where}: {name} comes twice. Keep one of them.")
        values[name] = typed(where, name, value)
    return values


def meant(option: str, command: str, value: str) -> str | None:
    """What is said of an option of that command which there is not, where other programs have it."""
    return answered(option, "--", value, command)


def way_of(letter: str) -> str | None:
    """How an option of sbatch is given here that it takes by a letter; None for what is none of its options."""
    from hpc_llm.planning.other_words import letter_of_sbatch

    return letter_of_sbatch(letter)
