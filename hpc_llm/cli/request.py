"""From flags and an experiment file to planned batches, one a cluster."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.cli.options import RunOptions
from hpc_llm.cli.output import note
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.plan.experiment import Experiment

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.plan.experiment import PlanWithOrigins
    from hpc_llm.plan.planning import Site
    from hpc_llm.site.cluster import Cluster

LISTS = ("data", "sbatch", "set")
INTEGERS = {f.name for f in fields(Experiment) if f.type == "int | None"}


@dataclass(frozen=True)
class Request:
    """What flags and file ask for, flags winning; `sources` says which of them each value came from."""

    values: dict[str, Any]
    sources: dict[str, str]

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


def read_request(options: RunOptions) -> Request:
    """Merge the experiment file and the flags."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    _refuse_secret_flags(options)
    if options.experiment is not None:
        values = _read_experiment(options.experiment)
        sources = dict.fromkeys(values, options.experiment.name)
    for name in _names():
        flag = getattr(options, name)
        if flag is None or flag == []:
            continue
        # A repeatable flag adds to the file's list, anything else replaces the file's value.
        values[name] = [*_not_replaced(values.get(name, []), flag), *flag] if name in LISTS else flag
        sources[name] = f"--{name.replace('_', '-')}"
    for name, value in values.items():
        _check_encoding(name, value)
    return Request(values, sources)


def _refuse_secret_flags(options: RunOptions) -> None:
    """Refuse a flag that holds a secret before anything looks at it, and could repeat it in a message."""
    from hpc_llm.text.secrecy import WAY_IN, is_secret

    for field in fields(RunOptions):
        given = getattr(options, field.name)
        flag = f"--{field.name.replace('_', '-')}" if field.name != "experiment" else "EXPERIMENT.yaml"
        for item in given if isinstance(given, list) else [given]:
            text = "" if item is None else str(item)
            key, _, value = text.partition("=")
            if is_secret(text) or is_secret(value, key) or _hides_secret(flag, key, value):
                place = f" {key}" if isinstance(given, list) and not is_secret(key) and key != text else ""
                raise RequestError(f"{flag}{place} holds what looks like a secret. {WAY_IN}")


def _hides_secret(flag: str, key: str, value: str) -> bool:
    """Whether the value of a setting is a list or a mapping with a secret in it."""
    from hpc_llm.text.secrecy import find_secret
    from hpc_llm.text.yaml_text import parse_yaml

    try:
        return flag == "--set" and find_secret({key: parse_yaml(value, key)}) is not None
    except RequestError:  # told where the setting is applied
        return False


def _not_replaced(of_file: list[str], flags: list[str]) -> list[str]:
    """What the file says of other keys than the flags do, which win."""
    keys = {flag.partition("=")[0].strip().removeprefix("--") for flag in flags if "=" in flag}
    return [item for item in of_file if item.partition("=")[0].strip().removeprefix("--") not in keys]


def _check_encoding(name: str, value: Any) -> None:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates, which nothing can write later on."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
            raise RequestError(f"{name} is {text!r}: write it in UTF-8, without NUL characters.")


def _names() -> list[str]:
    return [f.name for f in fields(Experiment)]


def _read_experiment(path: Path) -> dict[str, Any]:
    from hpc_llm.plan.settings import refuse_reach
    from hpc_llm.text.secrecy import refuse_secrets
    from hpc_llm.text.yaml_text import read_yaml

    values: dict[str, Any] = {}
    content = read_yaml(path)
    refuse_secrets(content, str(path))
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name == "templates":
            raise RequestError(f"{path}: templates are named by --templates on the command line, not in a file.")
        if name not in _names():
            raise RequestError(f"{path}: " + unknown_name("option", str(key), _names()))
        if name in values:
            raise RequestError(f"{path}: {name} comes twice. Keep one of them.")
        values[name] = _typed(path, name, value)
    refuse_reach(values.get("set", []), str(path))
    return values


def _typed(path: Path, name: str, value: Any) -> Any:
    """A value of the file in the type that the flag would have."""
    if name in LISTS:
        return [text for item in (value if isinstance(value, list) else [value]) for text in _items(path, name, item)]
    if name in INTEGERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{path}: {name} is {value!r}, a whole number is needed.")
        return value
    if isinstance(value, list) and name in ("cluster", "method"):
        return [str(v) for v in value]
    if value is None or isinstance(value, (list, dict, bool)):
        raise RequestError(f"{path}: {name} is {value!r}, text is needed.")
    if isinstance(value, float):  # 1.10 would become 1.1, and 1e5 100000.0
        raise RequestError(
            f"{path}: {name} is read as the number {value!r}. Put it in quotes to keep it as it is written."
        )
    return str(value)


def _items(path: Path, name: str, item: Any) -> Iterator[str]:
    """What the repeatable flag `name` would have been given, from one item of the file's list or mapping."""
    if isinstance(item, str):
        yield item
    elif not isinstance(item, dict) or name == "data":
        raise RequestError(f"{path}: {name} holds {item!r}, text is needed.")
    elif name == "sbatch":
        yield from (str(k) if v in (None, True) else f"{k}={v}" for k, v in item.items())
    else:
        yield from _settings(item)


def _settings(mapping: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """`PATH=VALUE` for each value of a mapping of plan fields, however deep it is."""
    from hpc_llm.text.yaml_text import parse_yaml

    for key, value in mapping.items():
        place = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _settings(value, f"{place}.")
            continue
        # --set reads its value as YAML, except for variables, which are always text.
        is_itself = isinstance(value, str) and (place.startswith("env.") or parse_yaml(value, place) == value)
        yield f"{place}={value if is_itself else json.dumps(value)}"


def experiments(request: Request, cluster: str) -> list[Experiment]:
    """One experiment per method of the sweep on one cluster."""
    from hpc_llm.plan.model import is_checkpoint

    rest: dict[str, Any] = {k: v for k, v in request.values.items() if k not in ("cluster", "method")}
    rest |= {k: tuple(rest[k]) for k in LISTS if k in rest}
    model = os.path.expanduser(rest.get("model", ""))
    if model and is_checkpoint(model):
        rest["model"] = os.path.abspath(model)  # the job runs in another folder
    if rest.get("env_file"):
        rest["env_file"] = os.path.abspath(os.path.expanduser(rest["env_file"]))
    rest["data"] = tuple(os.path.abspath(os.path.expanduser(p)) for p in rest.get("data", ()))
    for file in rest["data"]:
        if not os.path.isfile(file):
            raise RequestError(f"--data {file}: there is no such file.")
    return [Experiment(cluster=cluster, method=method, **rest) for method in request.sweep("method")]


def site_of(cluster: Cluster) -> Site:
    """What planning has to know about this machine."""
    from hpc_llm.plan.planning import Site

    scheduler = cluster.scheduler
    if scheduler == "auto":
        scheduler = "slurm" if shutil.which("sbatch") else "local"
    hardware = None
    if cluster.gpu.vendor == "auto" or scheduler == "local":
        from hpc_llm.site.hardware import detect

        hardware = detect()
    return Site(scheduler=scheduler, hardware=hardware, account=os.environ.get("SBATCH_ACCOUNT") or None)


def batches(options: RunOptions, *, preview: bool) -> Iterator[Batch]:
    """Plan and render everything that was asked for, one batch a cluster.

    With `preview` and no --run-id a placeholder stands where the run id will be.
    """
    from hpc_llm.site.cluster import load_cluster

    request = read_request(options)
    _tell_templates(options.templates)
    for name in request.sweep("cluster"):
        yield _batch(load_cluster(name), request, options, preview)


def _tell_templates(named: Path | None) -> None:
    """Say which templates are used in place of the bundled ones, and which of the working directory are not."""
    from hpc_llm.job.templating import NAMES, own_templates
    from hpc_llm.site.profiles import bundled

    own = own_templates(named)
    if own:
        note(f"the script is made with {', '.join(map(str, own))}")
    here = Path.cwd() / "templates"
    left = [name for name in NAMES if (here / name).is_file() and here.resolve() != bundled("templates").resolve()]
    if left and named is None:
        note(f"{here} is not used: --templates {here.name} takes {', '.join(left)} from there")


def elsewhere(options: RunOptions, name: str) -> Batch:
    """The same request on cluster `name`, for comparison: without what only makes sense on its own cluster."""
    from hpc_llm.site.cluster import Account, load_cluster

    request = read_request(options)
    own = ("partition", "account", "sbatch")
    values = {k: v for k, v in request.values.items() if k not in own} | {"cluster": name}
    cluster = load_cluster(name)
    if cluster.account.required:
        cluster = cluster.model_copy(update={"account": Account(default=cluster.account.default or "ACCOUNT")})
    return _batch(cluster, Request(values, request.sources), replace(options, run_id=None), preview=True)


def _batch(cluster: Cluster, request: Request, options: RunOptions, preview: bool) -> Batch:
    from hpc_llm.job.batch import make_batch
    from hpc_llm.plan.method import load_method
    from hpc_llm.plan.planning import plan
    from hpc_llm.plan.tasks import carried_modules
    from hpc_llm.schedulers.paths import with_named_environment
    from hpc_llm.schedulers.snapshot import code_archive, code_digest
    from hpc_llm.text.secrecy import WAY_IN, has_secret_shape

    cluster, site = with_named_environment(cluster, os.environ), site_of(cluster)
    planned = [
        plan(e, cluster, load_method(e.method), site, request.sources) for e in experiments(request, cluster.name)
    ]
    _check_secrets(planned)
    carried = carried_modules([p.plan for p in planned])
    several = len(planned) > 1 or len(request.sweep("cluster")) > 1
    run_ids, name = _run_ids(options, cluster.name, [(p.plan.method, p.plan.model) for p in planned], several, preview)
    batch = make_batch(
        cluster,
        planned,
        run_ids,
        name=name,
        logs=options.logs,
        code_archive=code_archive(options.logs, also=carried),
        code_digest=code_digest(also=carried),
        python=Path(sys.executable),
        templates=options.templates,
    )
    if any(has_secret_shape(script.text) for script in batch.distinct_scripts):
        raise RequestError(f"the script for cluster {cluster.name} would hold what looks like a secret. {WAY_IN}")
    return batch


def _check_secrets(planned: Sequence[PlanWithOrigins]) -> None:
    """Wherever a value came from, a file of variables or the environment: no record may keep a secret."""
    from hpc_llm.text.secrecy import WAY_IN, check_env_file, find_secret

    for one in planned:
        place = find_secret(one.plan.to_dict())
        if place is not None:
            origin = one.origins.get(place.split(".")[0], "the plan")
            raise RequestError(f"{place} ({origin}) holds what looks like a secret. {WAY_IN}")
        if one.plan.env_file is not None:
            check_env_file(os.path.expandvars(os.path.expanduser(one.plan.env_file)))


def _run_ids(
    options: RunOptions, cluster: str, runs: Sequence[tuple[str, str]], several: bool, preview: bool
) -> tuple[list[str], str]:
    """The id of each run, and a name for all of them together."""
    from hpc_llm.records.run import RUN_ID_PLACEHOLDER, file_name_part

    base = options.run_id or (RUN_ID_PLACEHOLDER if preview else None)
    if options.run_id is not None and file_name_part(options.run_id, limit=200) != options.run_id:
        raise RequestError(f"run id '{options.run_id}': use letters, digits, dot, underscore and hyphen only.")
    if base is not None and not several:
        return [base], base
    if base is not None:
        return [f"{base}-{cluster}-{file_name_part(method)}" for method, _ in runs], f"{base}-{cluster}"
    import random
    from datetime import datetime

    from hpc_llm.schedulers.runs import new_run_id

    now, rng = datetime.now(), random.Random()
    ids: list[str] = []
    for method, model in runs:
        ids.append(new_run_id(cluster, method, model, now, rng, ids))
    return ids, new_run_id(cluster, "sweep", runs[0][1], now, rng, ids)
