"""MLflow: a run in an experiment of its store, which is a database in the folder, or what `--uri` names: a server, a folder.

MLflow gives runs ids of its own, so ours is a tag by which a run is found again. A run is FINISHED and has the tag of its digest
only when all of it is there; what an interrupted call left lacks that and is deleted by the next one.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.exporting.finished import FinishedRun
from hpc_llm.exporting.folders import one_at_a_time, sent
from hpc_llm.exporting.history import is_figure
from hpc_llm.exporting.tracker import REPLACED, WRITTEN, Send, Sent, Target, Tracker
from hpc_llm.outside import reason_of
from hpc_llm.records.files import make_own_folder
from hpc_llm.records.run import Outcome
from hpc_llm.text.homes import from_home
from hpc_llm.text.secrecy import redacted

_DATABASE = "mlflow.db"
_ARTIFACTS = "mlflow-artifacts"
_KEY, _DIGEST, _BEGAN = "hpc_llm.id", "hpc_llm.digest", "hpc_llm.export_began"
_LONGEST_CALL_S = 600
"""So long a call may take to write one run."""
_METRICS_AT_ONCE, _PARAMETERS_AT_ONCE = 1000, 100
"""The most that MLflow takes in one call."""
_LONGEST_NAME, _LONGEST_VALUE = 250, 500
"""Characters that every store takes."""
_FORBIDDEN = re.compile(r"[^\w\-./ ]", re.ASCII)
_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks")
_STATUS = {
    Outcome.COMPLETED: "FINISHED",
    Outcome.CANCELLED: "KILLED",
    Outcome.PREEMPTED: "KILLED",
    Outcome.TIMEOUT: "KILLED",
}


def _uri(target: Target) -> str:
    """The store: as named, a path being a folder of it, else a database in the target's folder."""
    named = target.uri
    if named is None:
        return f"sqlite:///{(target.folder / _DATABASE).absolute()}"
    scheme, colon, _ = named.partition("://")
    if colon and scheme.partition("+")[0] not in _SCHEMES:
        raise RequestError(
            f"--uri {named}: MLflow knows no {scheme}. Valid: a folder, or {', '.join(_SCHEMES)}, each with ://…."
        )
    if not named.strip():
        raise RequestError("--uri is empty: give the address of an MLflow server, a database or a folder.")
    return named if colon else from_home(named).absolute().as_uri()


@contextmanager
def connect(target: Target) -> Iterator[Send]:
    """Writes into the store that the target names."""
    uri = _uri(target)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # what is exported is nobody else's business
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # our results go there
    if uri.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # who names a folder means it
    if target.uri is None:
        make_own_folder(target.folder)
    if uri.startswith("http"):
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # by default it tries for minutes
    from mlflow import MlflowClient

    with _quietly(), _explained(uri), one_at_a_time(_folder(uri)) as is_alone:
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments(max_results=1)  # whether anybody answers, before anything is written
        yield partial(_send, client, target, uri, is_alone)


def _folder(uri: str) -> Path | None:
    """Where a store of this machine lies, whose database is made by who comes first; None where a server keeps it."""
    scheme, _, rest = uri.partition("://")
    if scheme not in ("file", "sqlite") or not rest.startswith("/"):
        return None
    path = Path(unquote(rest)) if scheme == "file" else Path(rest[1:]).absolute().parent
    return next((one for one in (path, *path.parents) if one.is_dir()), None)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the lines that MLflow and its database tell of themselves."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """Errors of MLflow and what it uses as one sentence."""
    try:
        yield
    except (HpcLlmError, KeyboardInterrupt):
        raise
    except Exception as error:  # of its own, of SQLAlchemy, of requests: it documents none of them
        raise HpcLlmError(f"MLflow's store {redacted(uri)} cannot be used: {reason_of(error)}.") from error


def _send(client: Any, target: Target, uri: str, is_alone: bool, run: FinishedRun) -> Sent:
    experiment = _experiment(client, target, target.project_of(run))
    earlier = [one for one in _earlier(client, run.key) if is_alone or not _is_being_written(one)]
    for one in earlier:
        if _is_same(one, run, experiment):
            _delete(client, [other for other in earlier if other is not one])
            return sent(run, _place(uri, one.info.run_id))
    made = _create(client, experiment, run)
    was_whole = any(_DIGEST in one.data.tags for one in earlier)
    _delete(client, earlier)
    return sent(run, _place(uri, _kept(client, experiment, run, made)), REPLACED if was_whole else WRITTEN)


def _is_same(one: Any, run: FinishedRun, experiment: str) -> bool:
    return bool(one.data.tags.get(_DIGEST) == run.digest and one.info.experiment_id == experiment)


def _is_being_written(one: Any) -> bool:
    """Whether another call may be writing it: what an interrupted one has left is older."""
    began = one.data.tags.get(_BEGAN, "")
    return _DIGEST not in one.data.tags and began.isdigit() and time.time() - int(began) < _LONGEST_CALL_S


def _kept(client: Any, experiment: str, run: FinishedRun, made: str) -> str:
    """The one that stays of those that several calls wrote at once: the same for each of them."""
    same = [one for one in _earlier(client, run.key) if _is_same(one, run, experiment)]
    kept = min((one.info.run_id for one in same), default=made)
    _delete(client, [one for one in same if one.info.run_id != kept])
    return str(kept)


def _place(uri: str, run_id: str) -> str:
    return f"{redacted(uri)} run {run_id}"


def _experiment(client: Any, target: Target, name: str) -> str:
    """The id of the experiment of that name, which is made where there is none."""
    found = client.get_experiment_by_name(name)
    if found is None:
        where = None if target.uri else (target.folder / _ARTIFACTS).absolute().as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=where))
        except Exception:  # another call may have made it since: then it is there
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise RequestError(
            f"the experiment {name} of this MLflow was deleted: restore it there, or name another with --project NAME."
        )
    return str(found.experiment_id)


def _earlier(client: Any, key: str) -> list[Any]:
    """What was sent of this run before, in whatever experiment."""
    experiments = [one.experiment_id for one in _all(client.search_experiments)]
    return list(_all(partial(client.search_runs, experiments, f"tags.`{_KEY}` = '{key}'")))


def _all(search: Any) -> Iterator[Any]:
    token = None
    while True:
        found = search(page_token=token)
        yield from found
        if not (token := found.token):
            return


def _delete(client: Any, runs: Sequence[Any]) -> None:
    for one in runs:
        client.delete_run(one.info.run_id)


def _create(client: Any, experiment: str, run: FinishedRun) -> str:
    """A new run with all that there is; none where that did not come to its end."""
    tags = {_KEY: run.key, "mlflow.runName": run.run_id, "mlflow.source.name": "hpc-llm", **_texts(run)}
    tags[_BEGAN] = str(int(time.time()))
    began = int(run.started_at * 1000)
    made = client.create_run(experiment, start_time=began, tags=tags, run_name=run.run_id).info.run_id
    try:
        for parameters in _pieces(_parameters(run), _PARAMETERS_AT_ONCE):
            client.log_batch(made, params=parameters)
        for metrics in _pieces(_metrics(run), _METRICS_AT_ONCE):
            client.log_batch(made, metrics=metrics)
        client.set_terminated(made, _STATUS.get(run.outcome, "FAILED"), int(run.ended_at * 1000))
        client.set_tag(made, _DIGEST, run.digest)
    except BaseException:
        client.delete_run(made)
        raise
    return str(made)


def _texts(run: FinishedRun) -> dict[str, str]:
    """Words of the result, which are no metrics."""
    return {f"hpc_llm.{name}": value for name, value in run.summary.items() if isinstance(value, str)}


def _parameters(run: FinishedRun) -> Iterator[Any]:
    from mlflow.entities import Param

    names: set[str] = set()
    for name, value in run.flat_config().items():
        if (plain := _name(name)) not in names:
            names.add(plain)
            yield Param(plain, str(value)[:_LONGEST_VALUE])


def _metrics(run: FinishedRun) -> Iterator[Any]:
    """Of the steps first, then of the whole run, which have no step."""
    from mlflow.entities import Metric

    moment = run.started_at
    drawn: set[str] = set()
    for point in run.history():
        moment = point.time or moment
        drawn.update(point.figures)
        for name, value in point.figures.items():
            yield Metric(_name(name), float(value), int(moment * 1000), point.step)
    for name, value in _of_the_whole(run.summary).items():
        plain = _name(f"result.{name}" if name in drawn else name)
        yield Metric(plain, float(value), int(run.ended_at * 1000), 0)


def _of_the_whole(summary: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in summary.items() if is_figure(name, value)}


def _name(name: str) -> str:
    """The name with what MLflow takes in one."""
    return _FORBIDDEN.sub("_", name)[:_LONGEST_NAME].strip("./ ") or "_"


def _pieces(items: Iterator[Any], most: int) -> Iterator[list[Any]]:
    while piece := list(islice(items, most)):
        yield piece


def _next_step(runs: list[Sent], target: Target) -> str:
    uri = _uri(target)
    if uri.startswith("http"):
        return f"{redacted(uri)} shows them."
    return f"`mlflow server --backend-store-uri {shlex.quote(redacted(uri))}` shows them."


TRACKER = Tracker(
    name="mlflow",
    title="MLflow",
    modules=("mlflow", "sqlalchemy", "alembic"),
    install="mlflow-skinny sqlalchemy alembic",
    connect=connect,
    next_step=_next_step,
    takes_uri=True,
)
