"""Finding the prepared data that a request needs; where there are none, the command that prepares them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import AccountError, DataRequestError, ModelRequestError, RequestError

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts
    from hpc_llm.corpus.key import CorpusRequest
    from hpc_llm.corpus.sources import SourceFile
    from hpc_llm.planning.experiment import Experiment
    from hpc_llm.site.cluster import Cluster


class NotPreparedError(RequestError):
    """Data are not prepared yet; `preparation` is the request that does it, with the options of the command line as keys."""

    def __init__(self, message: str, preparation: dict[str, Any]) -> None:
        super().__init__(message)
        self.preparation = preparation


MISSING = (NotPreparedError, DataRequestError, ModelRequestError, AccountError)
"""What keeps a request that may be right from being planned here and now."""


def caches_folder(logs: Path, environ: Mapping[str, str]) -> Path:
    """Where prepared data lie: what HPC_LLM_CACHE names, else `caches` beside the folder of the runs."""
    named = environ.get("HPC_LLM_CACHE")
    return Path(os.path.abspath(os.path.expanduser(named))) if named else logs.absolute().parent / "caches"


class Corpora:
    """The prepared data of the runs of one request, of which each is looked at once."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._found: dict[str, CorpusFacts] = {}
        self._checked: set[str] = set()
        self._told: set[Path] = set()

    def find(self, experiment: Experiment, cluster: Cluster) -> CorpusFacts | None:
        """What the data of the experiment were prepared as; None where it needs none.

        Raises:
            RequestError: they were not prepared yet, or are not whole.
        """
        from hpc_llm.planning.data import wanted_corpus

        wanted = wanted_corpus(experiment, cluster)
        if wanted is None:
            return None
        try:
            return self._find(wanted, experiment, cluster)
        except DataRequestError as error:
            from hpc_llm.corpus.sources import in_words_of

            raise DataRequestError(in_words_of(wanted.sources, str(error))) from None

    def _find(self, wanted: CorpusRequest, experiment: Experiment, cluster: Cluster) -> CorpusFacts | None:
        from hpc_llm.planning.tasks import find

        self._tell_runs(wanted.sources)
        if find(experiment.task).is_on_host:
            self._check_rows(wanted)
            return None
        asked = repr(wanted)
        if asked not in self._found:
            self._found[asked] = self._look(wanted, experiment, cluster)
        return self._found[asked]

    def _tell_runs(self, sources: Sequence[str]) -> None:
        """Say which folders in the sources are left out: those of runs of ours."""
        from hpc_llm.corpus.sources import is_corpus, runs_within
        from hpc_llm.errors import notice

        for run in runs_within([source for source in sources if not is_corpus(source)]):
            if run not in self._told:
                self._told.add(run)
                notice(f"--data: {run} is the folder of a run, and nothing in it is read as data")

    def find_or_lack(
        self, experiment: Experiment, cluster: Cluster
    ) -> tuple[CorpusFacts | None, NotPreparedError | None]:
        """What the data were prepared as, or the error that they were not. Raises as `find` where it is another one."""
        try:
            return self.find(experiment, cluster), None
        except NotPreparedError as lack:
            return None, lack

    def _check_rows(self, wanted: CorpusRequest) -> None:
        """Refuse rows that lack what is asked of them before a job waits for them; each source is looked at once."""
        from hpc_llm.corpus.columns import check_first_rows
        from hpc_llm.corpus.sources import is_corpus, source_files

        asked = repr((wanted.sources, wanted.columns))
        if asked not in self._checked and not any(map(is_corpus, wanted.sources)):
            check_first_rows(source_files(wanted.sources), wanted.columns)
            self._checked.add(asked)

    def _look(self, wanted: CorpusRequest, experiment: Experiment, cluster: Cluster) -> CorpusFacts:
        from hpc_llm.corpus.facts import read_facts
        from hpc_llm.corpus.key import check_contents, corpus_key
        from hpc_llm.corpus.sources import fraction_of, is_corpus, refuse_without_training, source_files
        from hpc_llm.corpus.trust import own_facts
        from hpc_llm.planning.checkpoint import read_checkpoint
        from hpc_llm.planning.families import check_made_of_text
        from hpc_llm.planning.tasks import find

        prepared = [source for source in wanted.sources if is_corpus(source)]
        if prepared and len(wanted.sources) > 1:
            raise RequestError(f"--data {prepared[0]}: prepared data stand alone. Prepare all sources together.")
        caches = caches_folder(self._logs, os.environ)
        if prepared:
            return check_contents(read_facts(Path(prepared[0])), caches)
        files = source_files(wanted.sources)
        if find(experiment.task).trains:
            refuse_without_training(wanted.sources, {file.split for file in files})
        fraction_of(files, wanted.validation_fraction)
        _tell_same(files, caches)
        folder = caches / corpus_key(wanted, caches)
        if not is_corpus(folder):
            if Path(wanted.model).is_dir():  # what is refused as a model is not prepared for either
                found = read_checkpoint(Path(wanted.model))
                check_made_of_text(found.folder, found.config)
            self._check_rows(wanted)
            asked = _preparation(experiment, cluster, wanted.model)
            command = shlex.join(_command(asked, self._logs))
            raise NotPreparedError(f"the data are not prepared yet for {wanted.model}. This does it: {command}", asked)
        return check_contents(own_facts(folder), caches)


def refuse_to_evaluate_nothing(experiment: Experiment, cluster: Cluster) -> None:
    """Refuse data that are not prepared yet where an evaluation is asked for and nothing of them will be held out."""
    from hpc_llm.corpus.sources import may_hold_out, source_files
    from hpc_llm.planning.data import wanted_corpus
    from hpc_llm.planning.settings import Settings

    settings, wanted = Settings(experiment.set), wanted_corpus(experiment, cluster)
    if wanted is None or settings.applied("eval_every", None) is None:
        return
    if may_hold_out(source_files(wanted.sources), wanted.validation_fraction):
        return
    raise DataRequestError(
        f"{settings.said('eval_every')} asks for an evaluation, and nothing of the data is held out: hold a part out with "
        "--set validation_fraction=0.1, or name other data for it with --data validation=FILE."
    )


def _tell_same(files: Sequence[SourceFile], caches: Path) -> None:
    """Say that what is held out is trained on as well: its loss would be read as that of data that nobody has learned."""
    from hpc_llm.corpus.key import file_digest
    from hpc_llm.corpus.sources import HUB
    from hpc_llm.corpus.words import TRAIN, VALIDATION
    from hpc_llm.errors import notice

    of = {split: [one for one in files if one.split == split and one.kind != HUB] for split in (TRAIN, VALIDATION)}
    if not (of[TRAIN] and of[VALIDATION]):
        return
    trained = {file_digest(one, caches): one.path for one in of[TRAIN]}
    for one in of[VALIDATION]:
        if (same := trained.get(file_digest(one, caches))) is not None:
            which = "it" if same == one.path else f"{same}, which holds the same,"
            notice(
                f"--data validation={one.path}: {which} is trained on as well, so its loss is not that of held-out data. Give another file, or "
                "leave it out and hold a part out with --set validation_fraction=0.1"
            )


def _preparation(experiment: Experiment, cluster: Cluster, model: str) -> dict[str, Any]:
    """What prepares the data of the experiment, where a process without a GPU can run."""
    from hpc_llm.planning.tasks.task import READING_FIELDS

    has_gpus = cluster.gpu_of(cluster.partition(experiment.partition)).vendor != "none"
    is_elsewhere = has_gpus and cluster.request.gpu_style != "none"
    asked: dict[str, Any] = {"task": "prepare", "cluster": "local" if is_elsewhere else cluster.name, "model": model}
    asked |= {"data": list(experiment.data), "set": list(_settings(experiment.set, READING_FIELDS))}
    if not is_elsewhere:
        asked |= {"partition": experiment.partition, "account": experiment.account}
    return {name: value for name, value in asked.items() if value}


def _command(asked: dict[str, Any], logs: Path) -> Iterator[str]:
    """The same as a command."""
    yield from ("hpc-llm", "submit")
    for name, value in asked.items():
        for one in value if isinstance(value, list) else [value]:
            yield from (f"--{name}", one)
    if logs != Path("logs"):
        yield from ("--logs", str(logs))
    yield "--wait"


def _settings(pairs: Sequence[str], heeded: frozenset[str]) -> Iterator[str]:
    from hpc_llm.planning.settings import read_setting

    return (pair for pair in pairs if read_setting(pair).field in heeded)
