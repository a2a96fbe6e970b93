"""ROUGE of what a model with an encoder and a decoder writes: how many words and pairs of words it shares with the references."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpc_llm.planning.checkpoint import has_tokenizer
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import LABELS, MASKED, Batch
from hpc_llm.worker.engines import Engine

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_READ = ("input_ids", "attention_mask")


def missing(plan: Plan) -> str | None:
    """Why it cannot be told here, in a clause; None where all ranks can, for they write together. Collective."""
    lacks: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(lacks, _missing_here(plan))
    return next(filter(None, lacks), None)


def _missing_here(plan: Plan) -> str | None:
    if not has_tokenizer(Path(plan.model.name)):
        return "the model's folder holds no tokenizer"
    if importlib.util.find_spec("rouge_score") is None:
        return "the package rouge_score is not installed"
    return None


class Rouge:
    """Scores what `engine`'s model writes, word for word the likeliest, against the labels."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        from rouge_score.rouge_scorer import RougeScorer
        from transformers import AutoTokenizer

        self._engine = engine
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            plan.model.name, local_files_only=True, trust_remote_code=False
        )
        self._scorer = RougeScorer(KINDS, use_stemmer=True)

    def scores(self, held_out: Iterator[Batch | None], nothing: Batch) -> dict[str, float]:
        """The mean F-measure of each kind over all held-out samples of all ranks, 0 to 1; empty where there are none. Collective.

        `nothing` is what a rank writes on that has no batch left. Of rougeLsum a line is a sentence.
        """
        sums = torch.zeros(len(KINDS) + 1, dtype=torch.float64)
        with self._engine.writing():
            for batch in held_out:
                written = self._write(nothing if batch is None else batch)
                for text, reference in zip(written, self._references(batch), strict=False):
                    if reference is not None:
                        found = self._scorer.score(reference, text)
                        sums += torch.tensor([1.0, *(found[kind].fmeasure for kind in KINDS)], dtype=torch.float64)
        sums = sums.to(self._engine.device)
        if dist.get_world_size() > 1:
            dist.all_reduce(sums)
        count, *totals = sums.tolist()
        return {kind: total / count for kind, total in zip(KINDS, totals, strict=True)} if count else {}

    def _write(self, batch: Batch) -> list[str]:
        model = self._engine.module
        tokens = model.generate(
            **{name: batch[name] for name in _READ if name in batch},
            max_new_tokens=batch[LABELS].shape[1] if LABELS in batch else 1,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            synced_gpus=self._engine.splits and dist.get_world_size() > 1,
        )
        texts: list[str] = self._tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts

    def _references(self, batch: Batch | None) -> list[str | None]:
        """What each sample should have become; None for one that only fills the batch."""
        if batch is None:
            return []
        found: list[str | None] = []
        for labels in batch[LABELS]:
            known = labels[labels != MASKED]
            found.append(self._tokenizer.decode(known, skip_special_tokens=True) if known.numel() else None)
        return found
