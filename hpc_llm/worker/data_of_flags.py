"""The data that the flags of another project's program name, as tokens."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.format import MAKING
from hpc_llm.corpus.key import CorpusRequest, corpus_key
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.corpus.sources import is_corpus
from hpc_llm.corpus.trust import own_facts
from hpc_llm.errors import HpcLlmError, RequestError, WorkerError, unknown_name
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.ranks import Ranks

_PAUSE_S = 0.5
_PATIENCE_S = 300.0
"""So long a rank waits for the data while it sees nobody prepare them: others begin later, and file systems show things late."""


def source_of(dataset_name: str, dataset_config: str) -> str:
    """What `--data` calls a set of the Hub, whose name there and configuration these are; what else it may be stays as it is.

    Raises RequestError where the set is known and has no such configuration.
    """
    said, equals, place = dataset_name.partition("=")
    if os.path.exists(dataset_name):
        return dataset_name
    meant = {name: one for name, one in KNOWN_SETS.items() if said in (name, one.hub, one.hub.rpartition("/")[2])}
    found = next((name for name, one in meant.items() if one.config in (None, dataset_config)), None)
    if meant and found is None and not equals:
        raise RequestError(unknown_name("dataset_config", dataset_config, [one.config or "" for one in meant.values()]))
    return f"{found or next(iter(meant), said)}{equals}{place}"


def prepared(wanted: CorpusRequest, program: str, ranks: Ranks, vocab_size: int | None = None) -> CorpusFacts:
    """The data as tokens, which the first rank makes and the others wait for. Raises RequestError or WorkerError."""
    caches = Path(os.environ.get("HPC_LLM_CACHE") or "caches").absolute()
    if ranks.rank == 0:
        return prepare(wanted, caches, lambda text: print(f"{program}: {text}", flush=True), vocab_size)
    return _made_by_first_rank(wanted, caches)


def in_words_of_flags(error: HpcLlmError) -> HpcLlmError:
    """The same error, whose sentence names the option of hpc-llm, about the flag."""
    return type(error)(str(error).replace("--data ", "--dataset_name "))


def _made_by_first_rank(wanted: CorpusRequest, caches: Path) -> CorpusFacts:
    key = corpus_key(wanted, caches)
    seen_at = time.monotonic()
    while not is_corpus(caches / key):
        if any(caches.glob(f"{MAKING}{key}-*")):
            seen_at = time.monotonic()
        elif time.monotonic() - seen_at > _PATIENCE_S:
            raise WorkerError(
                f"rank 0 has not prepared the data in {caches / key}: look at what it said, and whether this node sees that folder."
            )
        time.sleep(_PAUSE_S)
    return own_facts(caches / key)
