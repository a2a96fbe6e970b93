"""Evaluation between steps: the mean loss of every held-out token, whatever batch or rank it is in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpc_llm.planning.experiment import Plan
from hpc_llm.records import metrics
from hpc_llm.records.files import append_to
from hpc_llm.worker.data.batch import DECODER_INPUT, Batch, count_targets, model_inputs
from hpc_llm.worker.engines import Engine
from hpc_llm.worker.tasks.rouge import Rouge

HeldOut = Callable[[], Iterator[Batch | None]]
"""A pass over the held-out batches of this rank, as many on each; None where this rank has none left."""


@dataclass(frozen=True)
class Evaluated:
    """What one pass over the held-out data found."""

    step: int
    """Optimizer steps that were done."""
    eval_loss: float
    """Mean over all predicted tokens, nats; may be NaN."""
    perplexity: float | None
    eval_tokens: int
    """Predicted tokens."""
    eval_time_s: float
    rouge: dict[str, float] | None = None
    """Each kind of ROUGE, 0 to 1; None where the model writes no text, or nobody can score it here."""


class Evaluation:
    """Evaluates every so many steps and at the end, on all ranks at once."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        held_out: HeldOut,
        found: list[dict[str, Any]],
        log: Path | None,
        rouge: Rouge | None,
    ) -> None:
        """Each evaluation is added to `found`; `log`, on rank 0, gets a line of it. What is written is scored by `rouge` at the end."""
        self._rouge = rouge
        self._engine, self._held_out, self._found, self._log = engine, held_out, found, log
        self._every, self._steps = plan.training.eval_every, plan.workload.steps

    def is_due(self, number: int) -> bool:
        return self._every is not None and (number == self._steps or (self._every > 0 and number % self._every == 0))

    def act(self, number: int) -> bool:
        began = time.perf_counter()
        loss, tokens = evaluate(self._engine, self._held_out())
        scores = None
        if self._rouge is not None and number == self._steps:
            scores = self._rouge.scores(self._held_out(), nothing_for(self._engine))
        took = time.perf_counter() - began
        one = Evaluated(number, loss, metrics.perplexity(loss), tokens, took, scores)
        self._found.append(asdict(one))
        if self._log is not None:
            self._write(self._log, one)
        return True

    def _write(self, path: Path, one: Evaluated) -> None:
        with append_to(path) as file:
            row = {**asdict(one), "eval_loss": metrics.finite(one.eval_loss)}
            file.write(json.dumps(row, allow_nan=False) + "\n")
        shown = "n/a" if one.perplexity is None else f"{one.perplexity:.4g}"
        print(f"[Evaluation after step {one.step}] Loss: {one.eval_loss:.4f} | Perplexity: {shown}", flush=True)


def evaluate(engine: Engine, held_out: Iterator[Batch | None]) -> tuple[float, int]:
    """Mean loss of all predicted tokens of all ranks, nats, and how many they are. Collective."""
    both = torch.zeros(2, dtype=torch.float64, device=engine.device)
    with engine.evaluating():
        for batch in held_out:
            if batch is None:  # where the model is split, each rank must do its part of every pass
                engine.forward(**model_inputs(nothing_for(engine)), use_cache=False)
                continue
            loss = engine.loss(batch)
            both += torch.stack([loss.double(), torch.as_tensor(count_targets(batch), device=engine.device).double()])
    if dist.get_world_size() > 1:
        dist.all_reduce(both)
    if engine.tensor is not None:
        both /= engine.tensor.size  # all that share layers have seen the same
    total, tokens = both.tolist()
    return (total / tokens if tokens else float("nan")), int(tokens)


def nothing_for(engine: Engine) -> Batch:
    """The smallest batch that a model takes."""
    tokens = torch.zeros(1, 2, dtype=torch.int64, device=engine.device)
    has_decoder = getattr(engine.module.config, "is_encoder_decoder", False)
    return {"input_ids": tokens, **({DECODER_INPUT: tokens} if has_decoder else {})}
