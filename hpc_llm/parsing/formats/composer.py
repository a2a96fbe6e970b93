"""Composer and llm-foundry: `[batch=12/100]:` and below it one indented line a metric.

Memory is in units of 1e9 bytes. Rates are over a window of batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, column_of, number, rule

_NAMES = {
    "loss/train/total": "loss",
    "memory/peak_allocated_mem": "peak_allocated_gb",
    "memory/peak_reserved_mem": "peak_reserved_gb",
    "memory/current_allocated_mem": "allocated_gb",
    "memory/allocated_mem": "allocated_gb",
    "throughput/tokens_per_sec": "tokens_per_second",
    "throughput/device/tokens_per_sec": "tokens_per_second_per_gpu",
    "throughput/device/mfu": "mfu",
    "throughput/samples_per_sec": "samples_per_second",
    "l2_norm/grad/global": "grad_norm",
    "trainer/device_train_microbatch_size": "micro_batch_size",
}
_LEARNING_RATE = re.compile(r"lr-\w+/group0$")
_EVALUATED = re.compile(r"metrics/(?:[\w.-]{1,80}/){0,4}(?:Language|HF)?(?P<metric>CrossEntropy|Perplexity)")
"""What an evaluation measures, behind the label of its data."""


def _metric(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    name = match[1].decode("utf-8", "replace")
    wanted = "learning_rate" if _LEARNING_RATE.match(name) else _NAMES.get(name)
    if wanted is None:
        return {}
    column, convert = column_of(wanted)
    value = (convert or number)(match[2])
    return None if value is None else {column: value}


def _batch(match: re.Match[bytes]) -> Mapping[str, Value]:
    """Batches are numbered through; with epochs they begin at 1 in each."""
    step, total = int(match["batch"]), int(match["all"] or 0)
    if match["epoch"] is not None and total:
        return {"step": (int(match["epoch"]) - 1) * total + step}
    return {"step": step, "total_steps": total} if total else {"step": step}


def _evaluation(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    known, value = _EVALUATED.fullmatch(match[1].decode("utf-8", "replace")), number(match[2])
    if value is None or known is None:
        return None
    return {"eval_loss" if known["metric"] == "CrossEntropy" else "perplexity": value}


def _finish(values: dict[str, Value]) -> None:
    """A process drives each GPU."""
    nodes, gpus = values.get("nodes"), values.get("gpus_per_node")
    if isinstance(nodes, int) and isinstance(gpus, int):
        values.setdefault("world_size", nodes * gpus)


FORMAT = LineFormat(
    name="composer",
    hints=(b"[batch=", b" Train loss/train/total: ", b" Train throughput/", b" Train memory/"),
    confirm=re.compile(
        rb"^[^\n]{0,24}?\[batch=\d+(?:/\d+)?\]:|^[^\n]{0,24}?[ \t]{1,80}Train [\w./-]+: \S", re.MULTILINE
    ),
    precedence=55,
    rules=(
        rule(
            Kind.STEP,
            r"(?:\[epoch=(?P<epoch>\d{1,9})\])?\[batch=(?P<batch>\d{1,15})(?:/(?P<all>\d{1,15}))?\]:",
            _batch,
            literal="[batch=",
        ),
        rule(Kind.MORE, r"\sTrain ([\w./-]+): (\S+)$", _metric, literal=" Train "),
        rule(Kind.RUN, r"\sEval ([\w./-]+): (\S+)$", _evaluation, literal=" Eval "),
        rule(Kind.SETUP, r"^(?:\d+: +)?num_nodes: <nodes>$", literal="num_nodes: "),
        rule(Kind.SETUP, r"^(?:\d+: +)?num_gpus_per_node: <gpus_per_node>$", literal="num_gpus_per_node: "),
        rule(
            Kind.RUN, r"^(?:\d+: +)?n_gpus: <world_size>$", literal="n_gpus: "
        ),  # in the config that llm-foundry prints
    ),
    finish=_finish,
)
