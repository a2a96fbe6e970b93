"""Finding the prepared data that a request needs; where there are none, the command that prepares them."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.errors import RequestError

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts
    from hpc_llm.planning.experiment import Experiment
    from hpc_llm.site.cluster import Cluster


def find_corpus(experiment: Experiment, cluster: Cluster, logs: Path) -> CorpusFacts | None:
    """What the data of the experiment were prepared as; None where it needs none.

    Raises:
        RequestError: they were not prepared yet, or are not whole.
    """
    from hpc_llm.corpus.key import caches_folder, corpus_key
    from hpc_llm.corpus.sources import is_corpus
    from hpc_llm.planning.data import wanted_corpus
    from hpc_llm.planning.tasks import find

    wanted = None if find(experiment.task).is_on_host else wanted_corpus(experiment, cluster)
    if wanted is None:
        return None
    prepared = [source for source in wanted.sources if is_corpus(source)]
    if prepared:
        if len(wanted.sources) > 1:
            raise RequestError(f"--data {prepared[0]}: prepared data stand alone. Prepare all sources together.")
        return _facts(prepared[0])
    caches = caches_folder(logs, os.environ)
    folder = caches / corpus_key(wanted, caches)
    if not is_corpus(folder):
        command = shlex.join(_command(experiment, cluster, wanted.model, logs))
        raise RequestError(f"the data are not prepared yet for {wanted.model}. This does it: {command}")
    return _facts(str(folder))


@functools.lru_cache(maxsize=64)
def _facts(folder: str) -> CorpusFacts:
    """One look at a folder for all runs of a request."""
    from hpc_llm.corpus.facts import read_facts

    return read_facts(Path(folder))


def _command(experiment: Experiment, cluster: Cluster, model: str, logs: Path) -> Iterator[str]:
    """What prepares the data of the experiment, where a job without a GPU can run."""
    from hpc_llm.planning.tasks.task import READING_FIELDS

    needs_gpu = (
        cluster.request.gpu_style != "none" and cluster.gpu_of(cluster.partition(experiment.partition)).vendor != "none"
    )
    yield from (
        "hpc-llm",
        "submit",
        "--task",
        "prepare",
        "--cluster",
        "local" if needs_gpu else cluster.name,
        "--model",
        model,
    )
    for source in experiment.data:
        yield from ("--data", source)
    for setting in _settings(experiment.set, READING_FIELDS):
        yield from ("--set", setting)
    if experiment.partition and not needs_gpu:
        yield from ("--partition", experiment.partition)
    if experiment.account and not needs_gpu:
        yield from ("--account", experiment.account)
    if logs != Path("logs"):
        yield from ("--logs", str(logs))
    yield "--wait"


def _settings(pairs: Sequence[str], heeded: frozenset[str]) -> Iterator[str]:
    from hpc_llm.planning.settings import read_setting

    return (pair for pair in pairs if read_setting(pair).field in heeded)
