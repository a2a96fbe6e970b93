"""Plans for training on the CPU, built as the planner would: small models, nothing compiled."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import OF_DEEPSPEED
from hpc_llm.planning.synthetic import LOSS_FLOOR_NATS
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.preparing.build import prepare

RunPlan = Callable[[Plan], dict[str, Any]]
"""Trains a plan and gives its result.json."""

_OFFLOAD = {"device": "cpu", "pin_memory": True}
_ADAMW = {"type": "AdamW", "lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
_ADAMW8BIT = {**_ADAMW, "type": "AdamW8bit"}
_NF4 = {"kind": "nf4", "double_quant": True, "compute_dtype": "bf16"}
_LORA = {"kind": "lora", "r": 8, "alpha": 16, "dropout": 0.0, "target_modules": "all-linear"}

# At DeepSpeed's default threshold every parameter of a tiny model stays whole on each rank.
_Z3 = {"stage": 3, "stage3_param_persistence_threshold": 0}

METHODS: dict[str, dict[str, Any]] = {
    "ddp": {"zero": None},
    "z1": {"zero": {"stage": 1}},
    "z2": {"zero": {"stage": 2}},
    "z2o": {"zero": {"stage": 2, "offload_optimizer": _OFFLOAD}},
    "z3": {"zero": _Z3},
    "z3o": {"zero": {**_Z3, "offload_optimizer": _OFFLOAD, "offload_param": _OFFLOAD}},
    "z3r": {"zero": _Z3, "recompute": True},
    "q": {"zero": None, "quantization": _NF4, "optimizer": _ADAMW8BIT},
    "q8r": {"zero": None, "quantization": {"kind": "int8"}, "optimizer": _ADAMW8BIT, "recompute": True},
    "lora": {"zero": {"stage": 2}, "peft": _LORA},
    "z3lora": {"zero": _Z3, "peft": _LORA},
    "qlora": {"zero": {"stage": 2}, "peft": _LORA, "quantization": _NF4, "recompute": True},
    "z3qlora": {"zero": _Z3, "peft": _LORA, "quantization": _NF4},
}


def make_plan(method: str = "z2", world_size: int = 1, **changes: Any) -> Plan:
    """A plan of `method` for the CPU; `changes` replace fields, those in `deepspeed` are merged in."""
    parts = METHODS[method]
    optimizer = changes.pop("optimizer", parts.get("optimizer", _ADAMW))
    micro, accumulation = changes.get("micro_batch_size", 4), changes.get("gradient_accumulation_steps", 1)
    precision = changes.get("precision", "bf16")
    deepspeed: dict[str, Any] = {
        "train_batch_size": world_size * micro * accumulation,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
    }
    if parts["zero"] is not None:
        deepspeed["zero_optimization"] = parts["zero"]
    if precision != "fp32":
        deepspeed[precision] = {"enabled": True}
    if optimizer["type"] in OF_DEEPSPEED:
        params = {key: value for key, value in optimizer.items() if key != "type"}
        deepspeed["optimizer"] = {"type": optimizer["type"], "params": params}
    deepspeed.update(changes.pop("deepspeed", {}))
    values: dict[str, Any] = {
        "task": "pretrain",
        "cluster": "local",
        "scheduler": "local",
        "launcher": "python" if world_size == 1 else "torchrun",
        "method": method,
        "letters": method,
        "model": "tiny",
        "weights": "checkpoint" if changes.get("model", "tiny") != "tiny" else "random",
        "nodes": 1,
        "gpus_per_node": 0,
        "tasks_per_node": world_size,
        "cpus_per_task": 1,
        "world_size": world_size,
        "data_parallel": world_size,
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "global_batch_size": world_size * micro * accumulation,
        "sequence_length": 64,
        "steps": 12,
        "warmup_steps": 2,
        "seed": 7,
        "precision": precision,
        "attention": "sdpa",
        "recompute": parts.get("recompute", False),
        "quantization": parts.get("quantization"),
        "peft": parts.get("peft"),
        "optimizer": optimizer,
        "lr_ramp_steps": 3,
        "engine": "deepspeed",
        "engine_fallback": None if changes.get("engine", "deepspeed") == "deepspeed" else "deepspeed",
        "data": [],
        "loss_floor_nats": None if changes.get("data") else LOSS_FLOOR_NATS,
        "deepspeed": deepspeed,
        "expected_gpu": None,
        "peak_flops": None,
        "partition": None,
        "account": None,
        "time_s": None,
        "job_name": "test",
        "mem": None,
    }
    return Plan.from_dict({**values, **changes})


def prepared(source: Path, packing: str = "stream") -> dict[str, Any]:
    """What a plan says that trains on a source, which is prepared beside it where it is not yet."""
    request = CorpusRequest(sources=(str(source),), model="tiny", layout="causal")
    facts = prepare(request, source.parent / "caches", lambda text: None, 512)
    return {"data": [str(source)], "corpus": str(facts.folder), "packing": packing}


def start_worker(
    folder: Path, plan: Plan, *launch: str, errors: Path | None = None, **environ: str
) -> subprocess.Popen[str]:
    """The program started by hand in a run's folder, in a group of its own that ignores SIGUSR1 as a job's does.

    What its ranks say goes to the file `errors`, as a job's does: each writes it whole there, and mixed into a pipe.
    """
    write_json(RunPaths(folder).experiment, {"schema": 1, "run_id": folder.name, "plan": plan.to_dict()})
    into = "" if errors is None else f" 2>>{shlex.quote(str(errors))}"
    return subprocess.Popen(
        ["bash", "-c", f'trap "" USR1; exec "$@"{into}', "-", sys.executable, *launch, "--run-dir", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
