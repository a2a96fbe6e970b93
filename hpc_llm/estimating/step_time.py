"""How long a step takes, and the run: predicted from the plan, the makers' figures and a few fitted constants. Pure.

Each figure has an interval that nine of ten runs should fall into. What was never measured makes it wide, and is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.estimating.rates import Rates, gpu_facts, gpu_kind, guessed_facts
from hpc_llm.estimating.time_constants import Calibration, time_constants
from hpc_llm.estimating.time_terms import FP8_SPEED, step_terms
from hpc_llm.estimating.time_work import Work, work_of
from hpc_llm.estimating.walltime import Cost, RunTime, Span, run_time
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.tasks import find
from hpc_llm.records.metrics import tokens_per_step
from hpc_llm.site.cluster import Cluster

_SAME_KIND = 1.5
"""Two machines of one kind differed by it in the same run."""
_OTHER_GPU = 2.0
_OTHER_HOST = 2.5
"""An optimizer on a host that was never measured: its memory may be several times as fast, or slow."""
_NETWORK = 2.0
_UNKNOWN_NETWORK = "how fast the network between the nodes is was not measured"
_FAST_CARD = 50e9
"""Bytes a second of a card of 400 Gbit/s: where each GPU has one, the network may be many times as fast as the one that is reckoned with."""
_LINK = 1.5
_UNMEASURED = 1.5
_RECORDED = 1.3
_NO_FACTS = 1.6
_FP32 = 4
_MOST = 10**13
"""Parameters of a model."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step, and what follows from them. Intervals are from the shortest to the longest."""

    step_time_s: float
    """Of a step once the run is in its stride."""
    tokens_per_second: float
    """Of all GPUs together."""
    interval: tuple[float, float]
    """Seconds of a step."""
    terms: dict[str, float]
    """Seconds of a step by what takes them; those that hide behind each other add up to more than the step."""
    time_to_first_step_s: float
    run_time_s: float
    """From the start of the job to its end, checkpoints included."""
    run_interval: tuple[float, float]
    gpu_hours: float
    cost: Cost | None
    """What the site charges for them, in its own unit; None where its profile does not say."""
    proposed_time_s: int
    """The time limit to ask for, where nobody has said one."""
    is_over_limit: bool
    """Whether the site allows less than the run may need."""
    tries: int | None = None
    """Of a search: how many trainings it is expected to be; the step is that of its first one."""
    notes: tuple[str, ...] = ()
    """What makes the interval wide, a clause each."""


def step_time(plan: Plan, cluster: Cluster, *, calibration: Calibration | None = None) -> StepTime | None:
    """Seconds of the plan's steps on that cluster, whose own calibration counts where it has one.

    None where nothing can be said, and `unknown_because` says why. A run that does not fit is timed as if it did.
    """
    if unknown_because(plan) is not None:
        return None
    work, rates = work_of(plan), rates_of(plan, calibration)
    terms = step_terms(work, rates)
    reasons = _device_reasons(plan, work, calibration) + _program_reasons(plan, work)
    notes = tuple(text for _, text in reasons if text)
    step = _span(terms.total, work, rates, reasons)
    run = run_time(plan, work, step, cluster)
    return StepTime(
        step_time_s=step.value,
        tokens_per_second=_tokens(plan) / step.value,
        interval=(step.low, step.high),
        terms=terms.by_name(),
        time_to_first_step_s=run.first_step.value,
        notes=notes,
        **of_whole(run),
    )


def of_whole(run: RunTime) -> dict[str, Any]:
    """The fields of StepTime that are of a whole job."""
    return {
        "run_time_s": run.whole.value,
        "run_interval": (run.whole.low, run.whole.high),
        "gpu_hours": run.gpu_hours,
        "cost": run.cost,
        "proposed_time_s": run.proposed_s,
        "is_over_limit": run.is_over_limit,
    }


def unknown_because(plan: Plan) -> str | None:
    """Why nothing can be said of the plan's time, in a clause; None where something can."""
    if not find(plan.task).trains:
        return f"task {plan.task} is not timed beforehand"
    if not plan.parallel.gpus_per_node:
        return "steps on a CPU are not timed beforehand"
    if not plan.gpu.peak_flops:
        precision = plan.model.multiplies_in
        return (
            f"no peak of {plan.gpu.model or 'the GPU'} is known at {precision}: gpu.peak_tflops in the profile of cluster "
            f"{plan.cluster} gives it, in TFLOP/s ({{{precision}: NUMBER}})"
        )
    try:
        work = work_of(plan)
    except RequestError as error:
        return f"the layers of the model are not known: {error}"
    except ArithmeticError:  # a config.json can say that there are no heads
        return f"the config.json of {plan.model.name} describes no model"
    if work.kept_back and work.width == _FP32:
        return "a part of the optimizer is offloaded in fp32, which was not measured"
    return None if work.parameters <= _MOST else f"no model has {work.parameters:.3g} parameters"


def rates_of(plan: Plan, calibration: Calibration | None) -> Rates:
    """What the plan's steps are reckoned with. The plan knows the peak of its GPU."""
    constants = time_constants()
    peak = (plan.gpu.peak_flops or 0.0) / (FP8_SPEED if plan.model.fp8 else 1.0)
    return Rates(
        peak=peak,
        gpu=gpu_facts(plan.gpu.model or "") or guessed_facts(peak),
        fitted=calibration.applied(constants.fitted) if calibration else constants.fitted,
        program=constants.program,
    )


def _tokens(plan: Plan) -> int:
    batch = plan.batch
    return tokens_per_step(
        plan.parallel.data, batch.micro_batch_size, batch.gradient_accumulation_steps, batch.sequence_length
    )


def _span(total: float, work: Work, rates: Rates, reasons: Sequence[tuple[float, str]]) -> Span:
    """Seconds of a step with their interval; where the network may be a fast one, the shortest time is with that."""
    step = Span.around(total, _factor(reasons))
    others = [reason for reason in reasons if reason[1] != _UNKNOWN_NETWORK]
    if len(others) == len(reasons):
        return step
    fast = replace(rates.fitted, between_nodes=max(rates.fitted.between_nodes, _FAST_CARD * work.ranks_per_node))
    with_it = step_terms(work, replace(rates, fitted=fast)).total / _factor(others)
    return replace(step, low=min(step.low, with_it))


def _factor(reasons: Sequence[tuple[float, str]]) -> float:
    """That of the interval. Errors of several kinds add as squares of their logarithms."""
    return math.exp(math.sqrt(sum(math.log(size) ** 2 for size, _ in reasons)))


def _device_reasons(plan: Plan, work: Work, calibration: Calibration | None) -> list[tuple[float, str]]:
    model = plan.gpu.model or ""
    kind = gpu_kind(model)
    reasons: list[tuple[float, str]] = []
    if calibration and kind in calibration.gpus:
        reasons.append((calibration.spread, ""))
    elif kind in time_constants().record.gpus:
        reasons.append((_SAME_KIND, ""))
    else:
        reasons.append((_OTHER_GPU, f"no run on {model} was measured"))
    if kind is None:
        reasons.append((_NO_FACTS, f"the memory bandwidth of {model} is guessed from its peak"))
    if work.offloads_optimizer and not (calibration and calibration.offloaded):
        reasons.append((_OTHER_HOST, "how fast this host's memory is was not measured"))
    facts = gpu_facts(model)
    if facts and facts.peers is None and work.ranks > 1 and not calibration:
        reasons.append((_LINK, "how the GPUs of a node are linked is not known: by PCIe, it is taken"))
    if work.nodes > 1 and not (calibration and calibration.several_nodes):
        reasons.append((_NETWORK, _UNKNOWN_NETWORK))
    return reasons


def _program_reasons(plan: Plan, work: Work) -> list[tuple[float, str]]:
    reasons: list[tuple[float, str]] = []
    if work.engine not in time_constants().record.engines:
        reasons.append((_UNMEASURED, f"no run of engine {work.engine} was measured"))
    if work.layers.share != 1.0:
        reasons.append((_UNMEASURED, "few runs of models with encoder and decoder were measured, all on H100"))
    if work.fp8:
        reasons.append((_RECORDED, "few runs in fp8 were measured, all on H100"))
    if work.quantized_bytes == 1.0:
        reasons.append((_UNMEASURED, "few runs with layers of 8 bits were measured"))
    if work.has_pure_bf16 and work.trains_layers:
        reasons.append(
            (
                _UNMEASURED,
                "few runs that step a whole model in pure bf16 were measured, all on H100 and H200",
            )
        )
    if work.is_stepped_by_bitsandbytes and work.trains_layers:
        reasons.append(
            (_RECORDED, "few runs that step a whole model by bitsandbytes were measured, all on H100 and H200")
        )
    if work.kept_back:
        reasons.append((_RECORDED, "few runs with a part of the optimizer offloaded were measured, all on H100"))
    if work.cuda_graph:
        reasons.append((_RECORDED, ""))
    if not work.has_fused_attention:
        reasons.append((_UNMEASURED, "few runs with eager attention were measured"))
    if plan.parallel.tensor * plan.parallel.pipeline > 1:
        reasons.append((_UNMEASURED, "few runs whose ranks share layers were measured"))
    return reasons
