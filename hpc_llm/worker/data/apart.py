"""Whether the model that is trained keeps the documents of a row apart: tried on it, for models that do not say nothing about it."""

from __future__ import annotations

import torch

from hpc_llm.corpus.words import DOCUMENTS
from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.engines import Engine

_TOKENS = 8
"""Of each of the two documents."""
_LARGEST_PART = 0.2
"""Of what a text changes in the one behind it, so much may be rounding where the two are apart."""


def check_documents_apart(engine: Engine, plan: Plan, device: torch.device) -> None:
    """Raise WorkerError where one document of a row changes what the model predicts in the next. Collective."""
    if plan.training.corpus is None or plan.training.packing != DOCUMENTS:
        return
    apart, together = torch.arange(_TOKENS).repeat(2), torch.arange(2 * _TOKENS)
    with engine.evaluating():
        changes = [_change(engine, plan, positions, device) for positions in (apart, together)]
    if changes[0] > _LARGEST_PART * changes[1]:
        raise WorkerError(
            f"packing=documents: in {plan.model.name}, as this transformers runs it, documents of one row see each other, and their loss "
            "would be wrong. Use --set packing=none."
        )


def _change(engine: Engine, plan: Plan, positions: torch.Tensor, device: torch.device) -> float:
    """How far the first half of a row, once it is another one, moves the logits of the second."""
    vocab_size = engine.module.config.vocab_size
    first = torch.arange(2 * _TOKENS) % vocab_size
    other = torch.cat([(first[:_TOKENS] + 3 * _TOKENS) % vocab_size, first[_TOKENS:]])
    one, two = (_logits(engine, tokens, positions, plan.batch.micro_batch_size, device) for tokens in (first, other))
    return float((one - two)[:, _TOKENS:].abs().max())


def _logits(
    engine: Engine, tokens: torch.Tensor, positions: torch.Tensor, rows: int, device: torch.device
) -> torch.Tensor:
    given = {name: row.repeat(rows, 1).to(device) for name, row in (("input_ids", tokens), ("position_ids", positions))}
    logits: torch.Tensor = engine.forward(**given, use_cache=False).logits
    return logits.float()
