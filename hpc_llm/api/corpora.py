"""Finding the prepared data that a request needs; where there are none, the command that prepares them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.errors import RequestError

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts
    from hpc_llm.corpus.key import CorpusRequest
    from hpc_llm.planning.experiment import Experiment
    from hpc_llm.site.cluster import Cluster


class Corpora:
    """The prepared data of the runs of one request, of which each is looked at once."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._found: dict[str, CorpusFacts] = {}

    def find(self, experiment: Experiment, cluster: Cluster) -> CorpusFacts | None:
        """What the data of the experiment were prepared as; None where it needs none.

        Raises:
            RequestError: they were not prepared yet, or are not whole.
        """
        from hpc_llm.planning.data import wanted_corpus
        from hpc_llm.planning.tasks import find

        wanted = None if find(experiment.task).is_on_host else wanted_corpus(experiment, cluster)
        if wanted is None:
            return None
        asked = repr(wanted)
        if asked not in self._found:
            self._found[asked] = self._look(wanted, experiment, cluster)
        return self._found[asked]

    def _look(self, wanted: CorpusRequest, experiment: Experiment, cluster: Cluster) -> CorpusFacts:
        from hpc_llm.corpus.facts import read_facts
        from hpc_llm.corpus.key import caches_folder, corpus_key
        from hpc_llm.corpus.sources import is_corpus

        prepared = [source for source in wanted.sources if is_corpus(source)]
        if prepared and len(wanted.sources) > 1:
            raise RequestError(f"--data {prepared[0]}: prepared data stand alone. Prepare all sources together.")
        if prepared:
            return read_facts(Path(prepared[0]))
        caches = caches_folder(self._logs, os.environ)
        folder = caches / corpus_key(wanted, caches)
        if not is_corpus(folder):
            command = shlex.join(_command(experiment, cluster, wanted.model, self._logs))
            raise RequestError(f"the data are not prepared yet for {wanted.model}. This does it: {command}")
        return read_facts(folder)


def _command(experiment: Experiment, cluster: Cluster, model: str, logs: Path) -> Iterator[str]:
    """What prepares the data of the experiment, where a process without a GPU can run."""
    from hpc_llm.planning.tasks.task import READING_FIELDS

    has_gpus = cluster.gpu_of(cluster.partition(experiment.partition)).vendor != "none"
    is_elsewhere = has_gpus and cluster.request.gpu_style != "none"
    place = "local" if is_elsewhere else cluster.name
    yield from ("hpc-llm", "submit", "--task", "prepare", "--cluster", place, "--model", model)
    for source in experiment.data:
        yield from ("--data", source)
    for setting in _settings(experiment.set, READING_FIELDS):
        yield from ("--set", setting)
    for name, value in () if is_elsewhere else (("partition", experiment.partition), ("account", experiment.account)):
        if value:
            yield from (f"--{name}", value)
    if logs != Path("logs"):
        yield from ("--logs", str(logs))
    yield "--wait"


def _settings(pairs: Sequence[str], heeded: frozenset[str]) -> Iterator[str]:
    from hpc_llm.planning.settings import read_setting

    return (pair for pair in pairs if read_setting(pair).field in heeded)
