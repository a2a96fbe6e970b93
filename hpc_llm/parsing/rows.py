"""What parsing yields: one `Row` a run, one `Step` a training step.

Units are in the names: `_s` seconds, `_bytes` bytes, `_per_second` per second, `mfu` a fraction of the dense peak. None
means that the log does not say; it is never written as 0 or -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

UNKNOWN_FORMAT = "unknown"
"""`Row.format` of an input in which nothing was recognised; `outcome_reason` says why."""


@dataclass(kw_only=True)
class Row:
    """One run."""

    run_id: str | None = None
    """Folder name of our own runs, else the file's name without its endings, `#2` for the second run in it."""
    source: str | None = None
    """The file or folder as it was named."""
    format: str | None = None
    cluster: str | None = None
    gpu: str | None = None
    method: str | None = None
    task: str | None = None
    model: str | None = None
    num_parameters: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    world_size: int | None = None
    micro_batch_size: int | None = None
    """Sequences per rank and forward pass."""
    gradient_accumulation_steps: int | None = None
    global_batch_size: int | None = None
    """Sequences per optimizer step over all ranks."""
    sequence_length: int | None = None
    """Tokens per sequence."""
    precision: str | None = None
    warmup_steps: int | None = None
    """First steps that are left out of the means."""
    measured_steps: int | None = None
    step_time_s_mean: float | None = None
    step_time_s_p50: float | None = None
    step_time_s_p90: float | None = None
    tokens_per_second: float | None = None
    """Over all ranks."""
    tokens_per_second_per_gpu: float | None = None
    model_tflops_per_gpu: float | None = None
    mfu: float | None = None
    peak_allocated_bytes: int | None = None
    """Largest torch allocation of any rank that printed one."""
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    """Largest use of a whole device, as the driver counts it."""
    peak_host_bytes: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    eval_loss: float | None = None
    perplexity: float | None = None
    elapsed_s: float | None = None
    outcome: str | None = None
    """A value of `hpc_llm.records.run.Outcome`."""
    outcome_reason: str | None = None
    invalid_reason: str | None = None
    job_id: str | None = None
    started_at: str | None = None
    """ISO 8601; without a zone where the log prints none."""
    kind: str | None = None
    """What was measured: `train`, `eval` or `infer`. Figures of different kinds do not compare."""
    cause: str | None = None
    """What `hpc-llm diagnose` calls the cause; `none` where nothing failed."""
    cause_confidence: float | None = None
    """How sure that is, 0 to 1; below 0.65 it is a guess. Empty where nothing failed."""
    try_: int | None = None
    """Which try it is, from 1: a job that Slurm queues again keeps its run."""
    trained_tokens: int | None = None
    """Tokens that were predicted in training; masked and padded ones are none."""
    epoch_time_s: float | None = None
    """Time of the steps of one epoch, without evaluations."""
    best_step: int | None = None
    """After which step the loss on held-out data was lowest."""
    study: str | None = None
    """Of which study it is a run; `study_run` is its name there."""
    study_run: str | None = None
    expect: str | None = None
    """The outcome that the study expects of it; None means that it completes."""
    smoke: bool | None = None
    """True where it is a small run that only shows that its study works: its figures are those of no other size."""
    prompt_tokens_per_second: float | None = None
    """Of inference, prompt tokens over the whole measured time; `tokens_per_second` is the sum of this and the next."""
    generated_tokens_per_second: float | None = None
    """Of inference, generated tokens over the whole measured time."""
    queries_per_second: float | None = None
    time_to_first_token_s_p50: float | None = None
    """From handing over a query to its first token."""
    time_per_output_token_s_mean: float | None = None
    """Of the tokens behind the first one, the mean over queries."""
    latency_s_mean: float | None = None
    """From handing over a query to its last token."""
    latency_s_p50: float | None = None
    latency_s_p90: float | None = None
    latency_s_p99: float | None = None
    predicted_step_time_s: float | None = None
    """What was expected of a step when the run was submitted."""
    predicted_peak_allocated_bytes: int | None = None
    tensor_parallel: int | None = None
    """Ranks that share each layer, and train on the same samples."""
    profile: str | None = None
    """Files in the run's folder that a profiler left, with blanks between them."""
    total_queries: int | None = None
    """Of inference, queries that were measured; the next three are of these."""
    total_time_s: float | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    train_samples: int | None = None
    """Most samples that were prepared for training, where the request says how many."""
    epochs: float | None = None
    """How often the steps see all of the data."""
    learning_rate: float | None = None
    """The highest, as the optimizer has it."""
    recompute: float | None = None
    """Share of the layers whose activations are computed again in the backward pass."""

    def to_dict(self) -> dict[str, Any]:
        """All columns in order; missing values are None."""
        return {name: getattr(self, _FIELDS.get(name, name)) for name in COLUMNS}


@dataclass(kw_only=True, slots=True)
class Step:
    """One training step, or one printed line where a program prints every n-th step."""

    run_id: str | None = None
    source: str | None = None
    step: int | None = None
    loss: float | None = None
    step_time_s: float | None = None
    tokens_per_second: float | None = None
    """Over all ranks."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    allocated_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    skipped: bool | None = None
    """The optimizer did not step, because the gradients overflowed."""
    try_: int | None = None
    """In which try of its run, from 1."""

    def to_dict(self) -> dict[str, Any]:
        """All columns in order; missing values are None."""
        return {name: getattr(self, _FIELDS.get(name, name)) for name in STEP_COLUMNS}


_FIELDS = {"try": "try_"}
"""Columns that Python has no such name for."""


TRAIN, EVAL, INFER = "train", "eval", "infer"
_SEARCH = "tune"


def kind_of_task(task: str | None) -> str | None:
    """The kind of what a task measures; None where it measures nothing, or is not known."""
    if task is None:
        return None
    return {"infer": INFER, "eval": EVAL, "evaluate": EVAL, "prepare": None, _SEARCH: None}.get(task, TRAIN)


def measures_nothing(task: object) -> bool:
    """Whether that is a task whose runs have no figures to be compared; anything may stand in a record."""
    return isinstance(task, str) and kind_of_task(task) is None


def searches(task: object) -> bool:
    """Whether the trainings of that task are its tries, which have rows of their own; what it searches with is its own method."""
    return task == _SEARCH


def row_from(columns: Mapping[str, Any]) -> Row:
    """The row with these columns."""
    return Row(**{_FIELDS.get(name, name): value for name, value in columns.items()})


COLUMNS: tuple[str, ...] = tuple(f.name.removesuffix("_") for f in fields(Row))
"""The CSV columns of one row a run, in order."""

_DECIDED = frozenset(
    """num_parameters nodes gpus_per_node world_size micro_batch_size gradient_accumulation_steps global_batch_size
    sequence_length warmup_steps measured_steps try predicted_step_time_s predicted_peak_allocated_bytes tensor_parallel
    total_queries prompt_tokens generated_tokens train_samples epochs learning_rate""".split()
)
FIGURES: tuple[str, ...] = tuple(
    name
    for name, kind in ((f.name.removesuffix("_"), str(f.type)) for f in fields(Row))
    if kind in ("int | None", "float | None") and name not in _DECIDED
)
"""The columns that hold what was measured."""

STEP_COLUMNS: tuple[str, ...] = tuple(f.name.removesuffix("_") for f in fields(Step))
"""The CSV columns of one row a step, in order."""
