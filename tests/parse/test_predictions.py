"""Runs of the Trainer that only predict: what they are, and how they end."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import diagnose_stream
from hpc_llm.parsing import Reading

BEGIN = "[INFO|trainer.py:3200] 2026-01-01 10:00:00,100 >> ***** Running Prediction *****\n[INFO|trainer.py:3202] 2026-01-01 10:00:00,100 >>   Num examples = 64\n"
BAR = "".join(f" {n * 25}%|{'#' * n}   | {n * 2}/8 [00:0{n}<00:0{4 - n},  1.0s/it]\n" for n in range(1, 5))
END = (
    "***** predict metrics *****\n  predict_bleu-4             =      9.2\n  predict_runtime            = 0:00:09.36\n"
)
CACHE = """\
Dump cache file failed.
Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/jieba/__init__.py", line 154, in initialize
    _replace_file(path, cache)
PermissionError: [Errno 1] Operation not permitted: '/tmp/t1' -> '/tmp/jieba.cache'
"""
RAISED = "Traceback (most recent call last):\n  File \"/w/run.py\", line 4, in <module>\n    f()\nKeyError: 'b'\n"
LIMIT = "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
TRAINED = "***** Running training *****\n{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.5}\n{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': 1.0}\n{'train_runtime': 9.0, 'epoch': 1.0}\n"


@pytest.mark.parametrize("between", ["", CACHE, "Loading model cost 0.5 seconds.\n"])
@pytest.mark.parametrize("begin", [BEGIN, ""])
def test_a_prediction_that_printed_its_metrics_is_over(read: Callable[..., Reading], begin: str, between: str) -> None:
    (row,) = read(begin + BAR + between + END).rows
    assert (row.format, row.kind, row.outcome) == ("hf-trainer", "infer", "COMPLETED")


@pytest.mark.parametrize(
    ("end", "outcome", "cause"),
    [(LIMIT, "TIMEOUT", "walltime"), (RAISED, "FAILED", "python_exception"), ("", "UNKNOWN", "unknown")],
)
def test_what_a_library_does_without_is_no_cause(
    read: Callable[..., Reading], end: str, outcome: str, cause: str
) -> None:
    log = BEGIN + BAR + CACHE + end
    (row,) = read(log).rows
    assert (row.kind, row.outcome) == ("infer", outcome)
    found = diagnose_stream(io.BytesIO(log.encode()))
    assert found.cause.id == cause and "jieba" not in found.summary


def test_what_fails_behind_the_metrics_failed(read: Callable[..., Reading]) -> None:
    (row,) = read(BEGIN + BAR + END + RAISED).rows
    assert row.outcome == "FAILED" and str(row.outcome_reason).startswith("the measurement had ended before: KeyError")


def test_a_run_that_trained_and_then_predicted_trains(read: Callable[..., Reading]) -> None:
    (row,) = read(TRAINED + BEGIN + BAR + END).rows
    assert (row.kind, row.outcome, row.elapsed_s) == ("train", "COMPLETED", 9.0)
