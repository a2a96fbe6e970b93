"""The command line of `pretrain_llm`: a run folder, or the flags of the HPC-II homework's program.

The homework's scripts start `pretrain_llm.py --deepspeed --deepspeed_config FILE --model_name NAME --batch_size N
--seq_len N --total_steps N [--local_rank N]`; the same line works here. Its results then go to a run folder too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.planning.deepspeed_config import check_keys
from hpc_llm.planning.deepspeed_schedules import with_rate
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import is_checkpoint
from hpc_llm.planning.parts import BatchShape, EngineSetup, ExpectedGpu, ModelSetup, Training
from hpc_llm.planning.synthetic import LOSS_FLOOR_NATS
from hpc_llm.records.run import RunPaths
from hpc_llm.text.secrecy import refuse_secrets
from hpc_llm.worker.deepspeed_file import (
    fit_batch,
    is_enabled,
    optimizer_of,
    precision_of,
    read_deepspeed_config,
    zero_letters,
)
from hpc_llm.worker.ranks import Ranks
from hpc_llm.worker.request import RunRequest, add_run_folder, read_run_folder, refuse_used_folder
from hpc_llm.worker.started_by_flags import check_model, parallel_of, running_job, write_experiment


def parse_arguments(argv: Sequence[str], program: str = "pretrain_llm") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Train a causal language model under DeepSpeed and measure it.",
        epilog="Either --run-dir alone, with the plan in its experiment.json, or the homework's flags.",
        allow_abbrev=False,
    )
    add_run_folder(parser)
    parser.add_argument(
        "--deepspeed", action="store_true", help="accepted and without effect: DeepSpeed is always used"
    )
    parser.add_argument("--deepspeed_config", type=Path, metavar="FILE", help="DeepSpeed config as JSON")
    parser.add_argument("--model_name", help="preset, checkpoint folder, or hub name of a preset's model")
    parser.add_argument("--batch_size", type=int, default=1, help="sequences per rank and forward pass")
    parser.add_argument("--seq_len", type=int, default=350, help="tokens per sequence")
    parser.add_argument("--total_steps", type=int, default=100, help="optimizer steps, warm-up included")
    parser.add_argument("--warmup_steps", type=int, help="steps left out of the measurement; default a tenth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--local_rank", type=int, default=-1, help="accepted: the environment says which rank this is")
    arguments = parser.parse_args(argv)
    if arguments.deepspeed_config is None and arguments.run_dir is None:
        parser.error("give --run-dir, or --deepspeed_config and --model_name")
    if arguments.deepspeed_config is not None and arguments.model_name is None:
        parser.error("--deepspeed_config needs --model_name")
    return arguments


def read_request(arguments: argparse.Namespace, ranks: Ranks) -> RunRequest:
    """The request that `arguments` hold. Raises RequestError."""
    if arguments.deepspeed_config is None:
        return read_run_folder(arguments, ranks)
    return _of_homework(arguments, ranks)


def _of_homework(arguments: argparse.Namespace, ranks: Ranks) -> RunRequest:
    import torch

    config = read_deepspeed_config(arguments.deepspeed_config)
    plan, sentences = homework_plan(arguments, config, ranks, torch.cuda.device_count())
    paths = RunPaths(
        arguments.run_dir or Path(os.environ.get("HPC_LLM_LOGS", "logs")) / _folder_name(os.environ, ranks)
    )
    refuse_used_folder(paths, os.environ)
    refuse_secrets(plan.to_dict(), "the request")
    if ranks.rank == 0:
        write_experiment(paths, plan, sentences)
    return RunRequest(plan, paths, sentences)


def homework_plan(
    arguments: argparse.Namespace, config: Mapping[str, Any], ranks: Ranks, gpus_per_node: int
) -> tuple[Plan, tuple[str, ...]]:
    """The plan that the homework's flags and its DeepSpeed config stand for, and what was changed to get there."""
    deepspeed = dict(config)
    recompute = deepspeed.pop("gradient_checkpointing", None)
    check_keys(deepspeed, str(arguments.deepspeed_config))
    sentences = fit_batch(deepspeed, arguments.batch_size, ranks.world_size) + check_model(arguments.model_name)
    if recompute is not None:
        sentences.append("gradient_checkpointing is no DeepSpeed key: it is read as recompute.")
    deepspeed.setdefault("optimizer", {"type": "AdamW", "params": {"lr": 1e-5}})
    if deepspeed.get("scheduler"):
        deepspeed["scheduler"] = with_rate(deepspeed["scheduler"], optimizer_of(deepspeed).lr)
    return _plan(arguments, deepspeed, is_enabled(recompute), ranks, gpus_per_node), tuple(sentences)


def _plan(
    arguments: argparse.Namespace, deepspeed: dict[str, Any], recompute: bool, ranks: Ranks, gpus_per_node: int
) -> Plan:
    return Plan(
        task="pretrain",
        cluster="unknown",
        method=arguments.deepspeed_config.stem,
        letters=_letters(deepspeed, recompute),
        workload=Training(
            steps=arguments.total_steps,
            warmup_steps=_warmup_steps(arguments),
            seed=arguments.seed,
            lr_ramp_steps=0,
            data=[],
            loss_floor_nats=LOSS_FLOOR_NATS,
        ),
        model=ModelSetup(
            name=arguments.model_name,
            weights="checkpoint" if is_checkpoint(arguments.model_name) else "random",
            precision=precision_of(deepspeed),
            attention="sdpa",
            recompute=recompute,
            quantization=None,
            peft=None,
        ),
        batch=BatchShape(
            micro_batch_size=arguments.batch_size,
            gradient_accumulation_steps=deepspeed["gradient_accumulation_steps"],
            global_batch_size=deepspeed["train_batch_size"],
            sequence_length=arguments.seq_len,
        ),
        parallel=parallel_of(ranks, gpus_per_node),
        optimizer=optimizer_of(deepspeed),
        engine=EngineSetup(name="deepspeed", fallback=None, deepspeed=deepspeed),
        job=running_job("pretrain_llm", ranks.launcher),
        gpu=ExpectedGpu(model=None, peak_flops=None),
    )


def _warmup_steps(arguments: argparse.Namespace) -> int:
    steps: int = arguments.total_steps
    warmup: int = steps // 10 if arguments.warmup_steps is None else arguments.warmup_steps
    if not 0 <= warmup < steps:
        raise RequestError(f"--warmup_steps {warmup} must be less than --total_steps {steps}.")
    return warmup


def _letters(config: Mapping[str, Any], recompute: bool) -> str:
    zero, *offload = zero_letters(config) or ["ddp"]
    return "+".join([zero, *offload, *(["r"] if recompute else [])])


def _folder_name(env: Mapping[str, str], ranks: Ranks) -> str:
    """A name that all ranks of one start agree on without talking: the job's id, else the launcher's process."""
    job = env.get("SLURM_JOB_ID")
    if job:
        restarts = env.get("SLURM_RESTART_COUNT", "0")  # a requeued job starts its steps from 0 again
        again = "" if restarts == "0" else f"-{restarts}"
        return f"pretrain_llm-{job}-{env.get('SLURM_STEP_ID', '0')}{again}"
    process = os.getpid() if ranks.world_size == 1 else os.getppid()
    return f"pretrain_llm-{process}"
