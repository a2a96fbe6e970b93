"""One training run on this rank, from the plan to the result: puts the parts together."""

from __future__ import annotations

import os
from typing import Any

import torch

from hpc_llm.experiment import Plan
from hpc_llm.run import Outcome
from hpc_llm.synthetic import DESCRIPTION
from hpc_llm.worker import device as devices
from hpc_llm.worker import engine as engines
from hpc_llm.worker import telemetry
from hpc_llm.worker.data import batches
from hpc_llm.worker.flops import model_flops_per_token
from hpc_llm.worker.loop import StepLog, print_summary, run_steps
from hpc_llm.worker.meter import Meter
from hpc_llm.worker.model import build_model, count_parameters
from hpc_llm.worker.ranks import apply, device_index
from hpc_llm.worker.result import Record, build_result


def train(record: Record) -> None:
    """Train as the plan of `record` says and, on rank 0, write result.json. Errors are the caller's to report."""
    device = _prepare_device(record)
    engines.init_process_group(device)
    engine = _build_engine(record, device)
    _measure(record, engine, device)
    if record.ranks.rank == 0:
        result = build_result(record, Outcome.COMPLETED, None)
        record.write(record.paths.result, result)
        print_summary(result)
    engines.stop_engine(engine)


def _prepare_device(record: Record) -> torch.device:
    """Choose the device and tell every library about it through the environment."""
    record.versions = devices.versions()
    gpus = devices.visible_gpus(record.plan.gpus_per_node)
    index = device_index(record.ranks, gpus) if gpus else 0
    device = devices.choose_device(index, gpus)
    record.hardware = devices.hardware(device)
    apply(record.ranks, os.environ, gpus)
    engines.prepare_compiling(device)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nodes often have no way out, and nothing is to be downloaded
    return device


def _build_engine(record: Record, device: torch.device) -> Any:
    plan = record.plan
    adapted = engines.adapt_config(plan, device.type, devices.find_toolchain(), engines.removed_keys())
    record.adaptations += [*adapted.sentences, *engines.emulated_bf16(plan, device)]
    torch.manual_seed(plan.seed)
    model = build_model(plan, adapted.config, device)
    record.num_parameters, record.trainable_parameters = count_parameters(model)
    record.flops_per_token = model_flops_per_token(model, plan.sequence_length)
    engine = engines.start_engine(plan, model, adapted.config)
    torch.manual_seed(plan.seed + record.ranks.rank)  # dropout differs between ranks
    return engine


def _measure(record: Record, engine: Any, device: torch.device) -> None:
    plan, ranks = record.plan, record.ranks
    tokens = batches(plan, engine.module.config.vocab_size, ranks, device)
    if ranks.rank == 0:
        print(f"pretrain_llm: {starting_point(plan)}", flush=True)
    record.meter = Meter(device, plan.steps, plan.warmup_steps, ranks.world_size)
    log = StepLog(record.paths.steps, plan) if ranks.rank == 0 else None
    gpus = telemetry.find_gpus(device, ranks)
    with telemetry.recording(record, gpus):
        run_steps(engine, tokens, record.meter, plan, log)
    record.peaks = record.meter.peaks()
    record.gpu_means = telemetry.means(record, gpus, device)


def starting_point(plan: Plan) -> str:
    """Which weights are trained on which data, in words."""
    weights = f"random weights in the shape of {plan.model}" if plan.weights == "random" else f"weights of {plan.model}"
    return f"{weights}, on {', '.join(plan.data) if plan.data else DESCRIPTION}"
