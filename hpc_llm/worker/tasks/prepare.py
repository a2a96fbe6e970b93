"""Preparing data, from the plan to the result: no torch, no other rank."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import CorpusFacts
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.corpus.sources import HUB, source_files
from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import PRESETS
from hpc_llm.records.files import read_json
from hpc_llm.records.run import Outcome
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.result import SCHEMA, Record


def train(record: Record) -> None:
    """Prepare what the plan of `record` names, and write result.json. Errors are the caller's to report."""
    training = record.plan.training
    if training.caches is None:
        raise WorkerError("the plan does not say where the data are to be prepared.")
    if all(file.kind != HUB for file in source_files(training.data)):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")

    def tell(text: str) -> None:
        print(f"{record.program}: {text}", flush=True)

    tell(f"{', '.join(training.data)}, in the tokens of {record.plan.model.name}")
    facts = prepare(request_of(record.plan), Path(training.caches), tell, _vocab_size(record.plan.model.name))
    for split, one in facts.splits.items():
        tell(
            f"{split}: {one.samples} samples, {one.tokens} tokens, {one.trained_tokens} of them to be learned, the longest {one.longest}"
        )
    tell(f"prepared in {facts.folder}")
    record.write(record.paths.result, _result(record, facts))


def request_of(plan: Plan) -> CorpusRequest:
    """What the plan wants to be read."""
    training = plan.training
    return CorpusRequest(
        sources=tuple(training.data),
        model=plan.model.name,
        columns=training.columns,
        validation_fraction=training.validation_fraction,
        train_samples=training.train_samples,
        validation_samples=training.validation_samples,
    )


def _vocab_size(model: str) -> int | None:
    """That of the model; None where it is not known."""
    if model in PRESETS:
        return PRESETS[model].vocab_size
    size = (read_json(Path(model) / "config.json") or {}).get("vocab_size")
    if size is not None and not isinstance(size, int):
        raise RequestError(f"{model}/config.json: vocab_size is {size!r}, a number is needed.")
    return size


def _result(record: Record, facts: CorpusFacts) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "outcome": Outcome.COMPLETED.value,
        "outcome_reason": None,
        "invalid_reason": None,
        "started_at": datetime.fromtimestamp(record.started_at, timezone.utc).isoformat(timespec="seconds"),
        "elapsed_s": time.time() - record.started_at,
        "world_size": record.ranks.world_size,
        "corpus": str(facts.folder),
        "splits": {
            split: {
                "samples": one.samples,
                "tokens": one.tokens,
                "trained_tokens": one.trained_tokens,
                "longest": one.longest,
            }
            for split, one in facts.splits.items()
        },
    }
