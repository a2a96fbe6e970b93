"""Figures that cannot be, whoever printed them: a clock that was set back makes a training of -100 s. They are left empty."""

from __future__ import annotations

import math
from dataclasses import asdict

from hpc_llm.parsing.rows import Row
from hpc_llm.records import metrics
from hpc_llm.records.possible import impossible

_LESS, _MORE = 1.25, 2.0
"""So many times less, and more, than that of a loss a perplexity may be that is printed beside it."""
_NARROWER = 4.0
"""So many times its 16-bit peak a GPU reaches with the narrowest numbers that it computes with, or more than any does."""


def _most_tflops(gpu: str | None) -> float:
    """What a GPU can do at most; that of the fastest one where it is not known."""
    peak = metrics.peak_flops(gpu, "fp16") if gpu is not None else None
    return _NARROWER * (peak / 1e12 if peak is not None else metrics.fastest_tflops())


def _without_tflops(row: Row) -> str:
    said, row.model_tflops_per_gpu = f"model_tflops_per_gpu {row.model_tflops_per_gpu}", None
    return said


def _tell_of_evaluation(row: Row) -> None:
    """Say that the figure of an evaluation is missing because its loss is no number, though those of training are numbers.

    >>> row = Row(outcome="COMPLETED", loss_last=5.25, eval_loss=math.nan)
    >>> _tell_of_evaluation(row)
    >>> row.outcome_reason
    'the loss of the last evaluation is not a finite number'
    """
    if row.eval_loss is not None and not math.isfinite(row.eval_loss) and row.invalid_reason is None:
        said = "the loss of the last evaluation is not a finite number"
        row.outcome_reason = f"{row.outcome_reason}; {said}" if row.outcome_reason else said


def _without_other_perplexity(row: Row) -> str | None:
    """Empty a perplexity that is not of the loss beside it. A mean of those of batches is larger than that of their mean.

    >>> row = Row(eval_loss=1.5, perplexity=99.0)
    >>> _without_other_perplexity(row), row.perplexity
    ("perplexity: 99 is printed, and that of the evaluation's loss is 4.482", None)
    """
    of_loss = metrics.perplexity(row.eval_loss) if row.eval_loss is not None else None
    if of_loss is None or row.perplexity is None or of_loss / _LESS <= row.perplexity <= of_loss * _MORE:
        return None
    said, row.perplexity = row.perplexity, None
    return f"perplexity: {said:.4g} is printed, and that of the evaluation's loss is {of_loss:.4g}"


def leave_out_impossible(row: Row) -> str | None:
    """Empty what cannot be; the sentences about it, None where all can be. That an evaluation has no number is said in the row itself.

    >>> row = Row(run_id="r", elapsed_s=-100.0, perplexity=4.0)
    >>> leave_out_impossible(row), row.elapsed_s, row.perplexity
    ('no possible figure: elapsed_s -100.0', None, 4.0)
    """
    said = []
    _tell_of_evaluation(row)
    if row.model_tflops_per_gpu is not None and (row.mfu or 0.0) > 1.0:
        said.append(_without_tflops(row))  # both are one figure
    found = {name: value for name, value in asdict(row).items() if not isinstance(value, float) or math.isfinite(value)}
    for name in impossible(found):  # that a loss is no number is a finding of its own
        said.append(f"{name} {getattr(row, name)}")
        setattr(row, name, None)
    if row.model_tflops_per_gpu is not None and row.model_tflops_per_gpu > _most_tflops(row.gpu):
        said.append(_without_tflops(row))
    said = list(dict.fromkeys(said))
    told = [f"no possible figure: {', '.join(said)}"] if said else []
    if (other := _without_other_perplexity(row)) is not None:
        told.append(other)
    return "; ".join(told) or None
