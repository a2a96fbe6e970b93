"""result.json: everything that one run measured, whether it came to its end or not."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import HpcLlmError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records import metrics
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.metrics import finite
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.text.own_secrets import without_own_secrets
from hpc_llm.worker.answers import Answers
from hpc_llm.worker.measure.samplers import MEANS
from hpc_llm.worker.ranks import Ranks

if TYPE_CHECKING:  # a run that fails before torch is imported leaves a result too
    from hpc_llm.worker.engines.checkpoint import TrainingProgress
    from hpc_llm.worker.measure.meter import MeasuredStep, Meter
    from hpc_llm.worker.measure.window import Window

SCHEMA = 1


class ToldToStop(HpcLlmError):
    """SIGTERM was heeded at the end of a step, behind which all is kept."""


@dataclass
class Record:
    """What is known of the run so far; the parts fill it in as they go."""

    paths: RunPaths
    ranks: Ranks
    plan: Plan
    started_at: float = field(default_factory=time.time)
    """Unix time."""
    job: object = field(init=False)
    """UUID of the job that the folder was made for; None where there is none."""
    program: str = "pretrain_llm"
    """What the task's program calls itself."""
    adaptations: list[str] = field(default_factory=list)
    """One sentence for each thing that runs otherwise than the plan says."""
    engine: str | None = None
    """That which trains; the plan may have named another."""
    fused: list[str] = field(default_factory=list)
    """What of the model ran fused, or in fp8, as the plan calls it."""
    hardware: dict[str, Any] = field(default_factory=dict)
    network: str | None = None
    """That which NCCL took between the nodes, by its own name; None where it did not say."""
    versions: dict[str, str | None] = field(default_factory=dict)
    num_parameters: int | None = None
    trainable_parameters: int | None = None
    parameter_types: dict[str, list[str]] = field(default_factory=dict)
    """Types of the parameters that are `trained` and of those that are `frozen`; copies that the engine steps are not among them."""
    flops_per_token: float | None = None
    meter: Meter | None = None
    answers: Answers | None = None
    """What was measured where queries are answered in place of training."""
    peaks: dict[str, int | None] = field(default_factory=dict)
    """Peak memory in bytes, the largest of all ranks where they could be asked."""
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    """Bytes of what the engine holds between steps on `device` and `host`, the most of any rank; see `Engine.held`."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    """What was found on held-out data, in the order of `step`: `eval_loss` in nats (may be NaN), `perplexity`, `eval_tokens`."""
    epoch_sequences: int | None = None
    """Sequences that all ranks together train on before one comes again; None where none ever does."""
    resumed: dict[str, Any] | None = None
    """What the training went on from: `step` and `checkpoint`; None where it began at the beginning."""
    before: TrainingProgress | None = None
    """How far it was there."""
    kept: dict[str, Any] | None = None
    """Where what was trained is kept: `checkpoints` and `model`; None where nothing is."""
    stop: Callable[[int], bool] | None = None
    """While the training can save at the end of a step: takes a signal, and says whether it will be heeded there."""
    is_saving: bool = False
    """What was trained is being written, which takes its time."""
    gpu_means: dict[str, float] = field(default_factory=dict)
    """What was seen of all GPUs over the measured window, as far as it is known."""

    def __post_init__(self) -> None:
        self.job = self._job_of_folder()

    @property
    def window(self) -> Window | None:
        """Around what is measured; None before."""
        measured = self.meter or self.answers
        return measured.window if measured else None

    @property
    def began_again(self) -> bool:
        """Whether the training goes on from a checkpoint of this very run: a queue began its job again, and nobody asked for the few
        steps that may be left, so that they are too few to measure says nothing against the run."""
        return self.resumed is not None and Path(self.resumed["checkpoint"]).parent == self.paths.checkpoints

    @property
    def steps_done(self) -> int:
        """Steps that have ended, of which this rank knows."""
        if self.answers is not None:
            return self.answers.steps_done
        return self.meter.steps[-1].number if self.meter and self.meter.steps else 0

    def write(self, path: Path, value: Any) -> None:
        """Write one of the run's records into its folder.

        Raises:
            OSError: the folder is gone, was made anew for another job, or cannot be written.
        """
        now = self._job_of_folder()
        if now != self.job and now is not None and self.job is not None:
            raise FileNotFoundError(errno.ENOENT, "the run folder is another job's by now", str(self.paths.root))
        self.paths.write(path, value)

    def _job_of_folder(self) -> object:
        return (read_json(self.paths.job) or {}).get("uuid")


def build_result(
    record: Record, outcome: Outcome, reason: str | None, error: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The content of result.json. `error` is the earliest failure record, if any.

    A run that came to its end but cannot be compared gets the outcome INVALID and its reason.
    """
    plan, meter, window = record.plan, record.meter, record.window
    steps = _steps(record, meter, error)
    losses = [step.loss for step in steps if step.loss is not None]
    invalid = _invalid_reason(record, steps)
    if outcome is Outcome.COMPLETED and invalid:
        outcome, reason = Outcome.INVALID, invalid
    return {
        "schema": SCHEMA,
        "engine": record.engine,
        "fused": record.fused,
        "gpu": record.hardware.get("gpu"),
        "network": record.network,
        "num_parameters": record.num_parameters,
        "trainable_parameters": record.trainable_parameters,
        "parameter_types": record.parameter_types or None,
        "world_size": record.ranks.world_size,
        "data_parallel": plan.parallel.data,
        "tensor_parallel": plan.parallel.tensor,
        "micro_batch_size": plan.batch.micro_batch_size,
        "gradient_accumulation_steps": plan.batch.gradient_accumulation_steps,
        "global_batch_size": plan.batch.global_batch_size,
        "sequence_length": plan.batch.sequence_length,
        "weights": plan.model.weights,
        "loss_floor_nats": plan.training.loss_floor_nats,
        "precision": plan.model.precision,
        "recompute": float(plan.model.recompute),
        "warmup_steps": plan.workload.warmup_steps,
        **_rates(record, _times(record, steps)),
        **_memory(record),
        **{key: record.gpu_means.get(key) for key in (*MEANS.values(), "energy_j")},
        "held_bytes": record.held or None,
        "loss_first": finite(losses[0]) if losses else None,
        "loss_last": finite(losses[-1]) if losses else None,
        **_trained(record, steps),
        **_evaluated(record),
        "elapsed_s": time.time() - record.started_at,
        "measured_window_s": window.elapsed_s if window else None,
        "device_clock_s": window.device_elapsed_s if window else None,
        "outcome": outcome.value,
        "outcome_reason": reason,
        "invalid_reason": invalid if outcome is Outcome.INVALID else None,
        "started_at": datetime.fromtimestamp(record.started_at, timezone.utc).isoformat(timespec="seconds"),
        "skipped_steps": sum(step.skipped for step in steps),
        "flops_per_token": record.flops_per_token,
        "versions": record.versions,
        "hardware": record.hardware,
        "adaptations": [without_own_secrets(sentence) for sentence in record.adaptations],
        "resumed": record.resumed,
        "kept": record.kept,
        "failed_rank": error["rank"] if error else None,
        "error": {key: error[key] for key in ("type", "message", "traceback")} if error else None,
        **(record.answers.figures(record.ranks.world_size) if record.answers else {}),
    }


def _steps(record: Record, meter: Meter | None, error: Mapping[str, Any] | None) -> list[MeasuredStep]:
    """Of a training: those that rank 0 has written down, where another rank tells of a failure; it may be a step before or behind."""
    if meter is None or error is None or record.ranks.rank == 0:
        return meter.steps if meter else []
    rows = [row for row in read_json_lines(record.paths.steps) if row.keys() >= STEP_FIELDS]
    return [step_of(row) for row in rows] or meter.steps


def step_row(step: MeasuredStep, tokens: int) -> dict[str, Any]:
    """One line of steps.jsonl; `tokens` is how many one step consumes over all ranks."""
    return {
        "step": step.number,
        "loss": finite(step.loss),
        "step_time_s": step.time_s,
        "tokens_per_second": tokens / step.time_s if step.time_s else None,
        "learning_rate": step.learning_rate,
        "trained_tokens": step.targets,
        "grad_norm": None if step.grad_norm is None else finite(step.grad_norm),
        "allocated_bytes": step.allocated_bytes,
        "peak_allocated_bytes": step.peak_allocated_bytes,
        "skipped": step.skipped,
        "warmup": step.warmup,
        "time": step.ended_at,
    }


STEP_FIELDS = frozenset(
    "step loss step_time_s learning_rate trained_tokens grad_norm allocated_bytes peak_allocated_bytes skipped warmup time".split()
)


def step_of(row: Mapping[str, Any]) -> MeasuredStep:
    """The step of a line with STEP_FIELDS."""
    from hpc_llm.worker.measure.meter import MeasuredStep

    loss = math.nan if row["loss"] is None and row["trained_tokens"] else row["loss"]
    return MeasuredStep(
        number=row["step"],
        loss=loss,
        targets=row["trained_tokens"],
        time_s=row["step_time_s"],
        ended_at=row["time"],
        **{
            name: row[name]
            for name in ("learning_rate", "grad_norm", "allocated_bytes", "peak_allocated_bytes", "skipped", "warmup")
        },
    )


def plan_tokens_per_step(plan: Plan) -> int:
    """Tokens of one optimizer step over all ranks."""
    return metrics.tokens_per_step(
        plan.parallel.data,
        plan.batch.micro_batch_size,
        plan.batch.gradient_accumulation_steps,
        plan.batch.sequence_length,
    )


def _times(record: Record, steps: list[MeasuredStep]) -> list[float]:
    """Seconds of the measured steps; none where the queue began the job again and left too few to measure."""
    times = [step.time_s for step in steps if not step.warmup]
    return times if not record.began_again or len(times) >= metrics.MIN_MEASURED_STEPS else []


def _rates(record: Record, times: list[float]) -> dict[str, Any]:
    """Step times and what follows from them; None where nothing was measured."""
    plan = record.plan
    rate = metrics.tokens_per_second(plan_tokens_per_step(plan), times)
    per_gpu = rate / record.ranks.world_size if rate is not None else None
    tflops = None
    if per_gpu is not None and record.flops_per_token is not None:
        tflops = metrics.model_tflops_per_gpu(per_gpu, record.flops_per_token)
    gpu = record.hardware.get("gpu")
    peak = plan.gpu.peak_flops or (metrics.peak_flops(gpu, plan.model.multiplies_in) if gpu else None)
    return {
        "measured_steps": len(times),
        "step_time_s_mean": metrics.mean(times),
        "step_time_s_p50": metrics.percentile(times, 50),
        "step_time_s_p90": metrics.percentile(times, 90),
        "step_times_s": times,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": per_gpu,
        "model_tflops_per_gpu": tflops,
        "peak_flops": peak,
        "mfu": metrics.mfu(tflops, peak, quantized=plan.model.quantization is not None),
    }


def _trained(record: Record, steps: list[MeasuredStep]) -> dict[str, Any]:
    """Tokens that were predicted since the training began, and how long an epoch takes."""
    batch, sequences = record.plan.batch.global_batch_size, record.epoch_sequences
    mean = metrics.mean([step.time_s for step in steps if not step.warmup])
    return {
        "trained_tokens": trained_tokens(record, steps) if steps else None,
        "epoch_time_s": mean * sequences / batch if mean is not None and sequences else None,
    }


def trained_tokens(record: Record, steps: list[MeasuredStep]) -> int | None:
    """Tokens that were predicted up to here, which masked and padded ones are not: those before a resumption count.

    None where the checkpoint that the training went on from does not say how many it had been.
    """
    before = record.before.trained_tokens if record.before is not None else 0
    return None if before is None else before + sum(step.targets for step in steps)


def best_evaluation(record: Record) -> dict[str, Any] | None:
    """`step` and `eval_loss` of the least loss on held-out data, those before a resumption included; None without one."""
    before = [record.before.best] if record.before is not None and record.before.best is not None else []
    known = [one for one in (*before, *record.evaluations) if finite(one["eval_loss"]) is not None]
    best = min(known, key=lambda one: float(one["eval_loss"]), default=None)
    return None if best is None else {"step": best["step"], "eval_loss": best["eval_loss"]}


def _evaluated(record: Record) -> dict[str, Any]:
    """The last evaluation, and the best one since the training began."""
    evaluations = record.evaluations
    last = evaluations[-1] if evaluations else {}
    best = best_evaluation(record) or {}
    return {
        "eval_loss": finite(last["eval_loss"]) if last else None,
        "perplexity": last.get("perplexity"),
        "eval_tokens": last.get("eval_tokens"),
        "rouge": last.get("rouge"),
        "best_step": best.get("step"),
        "best_eval_loss": best.get("eval_loss"),
        "evaluations": len(evaluations),
    }


def _memory(record: Record) -> dict[str, int | None]:
    keys = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "peak_host_bytes")
    peaks = record.peaks
    if not peaks and record.window is not None:
        peaks = record.window.own_peaks()  # the other ranks cannot be asked after a failure
    return {key: peaks.get(key) for key in keys}


def _invalid_reason(record: Record, steps: list[MeasuredStep]) -> str | None:
    measured = [step for step in steps if not step.warmup]
    count = record.answers.measured_steps if record.answers else len(measured)
    return metrics.invalid_reason(
        measured_steps=max(count, metrics.MIN_MEASURED_STEPS) if record.began_again else count,
        losses=[step.loss for step in steps],
        first_step=steps[0].number if steps else 1,
        skipped_steps=sum(step.skipped for step in measured),
        world_size=record.ranks.world_size,
        planned_world_size=record.plan.parallel.world_size,
        gpu=record.hardware.get("gpu"),
        expected_gpu=record.plan.gpu.model,
        network=record.network,
        expected_network=record.plan.gpu.network,
        device_clock_s=record.window.device_elapsed_s if record.window else None,
        host_clock_s=record.window.elapsed_s if record.window else None,
    )
