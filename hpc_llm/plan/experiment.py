"""The request (Experiment) and the request with everything decided (Plan). Standard library only.

The worker reads the plan on a compute node whose Python may hold nothing of ours, so no third-party import here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hpc_llm.errors import RequestError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a user asks for; None means "not said": the cluster, the method or a default decides."""

    cluster: str
    method: str
    task: str = "pretrain"
    model: str | None = None
    """Preset name or checkpoint folder."""
    nodes: int | None = None
    gpus_per_node: int | None = None
    micro_batch_size: int | None = None
    """Sequences per rank and forward pass."""
    gradient_accumulation_steps: int | None = None
    sequence_length: int | None = None
    """Tokens per sequence."""
    steps: int | None = None
    """Optimizer steps in all, warm-up included."""
    warmup_steps: int | None = None
    """First steps that are left out of the measurement."""
    seed: int | None = None
    data: tuple[str, ...] = ()
    """Text files; none means synthetic tokens."""
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    """Wall time as Slurm writes it: HH:MM:SS, D-HH:MM:SS or minutes."""
    name: str | None = None
    """Job name."""
    sbatch: tuple[str, ...] = ()
    """Further `KEY=VALUE` pairs for #SBATCH lines."""
    env_file: str | None = None
    """File of the user's own variables, which the job reads and nothing keeps."""
    set: tuple[str, ...] = ()
    """`PATH=VALUE` pairs that change any field of the plan."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run with everything decided. Sizes are counts, times are seconds, rates are per second."""

    task: str
    cluster: str
    scheduler: str
    """`slurm` or `local`."""
    launcher: str
    """`srun`, `torchrun`, `mpirun` or `python`."""
    method: str
    letters: str
    """The method in the letters of the paper, e.g. `z3+o+r`."""
    model: str
    weights: str
    """What training starts from: `random`, or `checkpoint`, the weights in the folder `model`."""
    nodes: int
    gpus_per_node: int
    """0 means the CPU."""
    tasks_per_node: int
    """Ranks per node."""
    cpus_per_task: int | None
    """CPU cores per rank."""
    world_size: int
    data_parallel: int
    """Groups of ranks that each train on samples of their own; today every rank is such a group."""
    micro_batch_size: int
    gradient_accumulation_steps: int
    global_batch_size: int
    """Sequences per optimizer step over all groups of ranks."""
    sequence_length: int
    steps: int
    warmup_steps: int
    seed: int
    precision: str
    """`bf16`, `fp16` or `fp32`."""
    attention: str
    """`sdpa`, `eager` or `flash_attention_2`."""
    recompute: bool
    """Activation recomputation (gradient checkpointing)."""
    quantization: dict[str, Any] | None
    peft: dict[str, Any] | None
    optimizer: dict[str, Any]
    lr_ramp_steps: int
    """First steps over which the learning rate rises in a straight line to the optimizer's; they may be measured."""
    engine: str
    """What carries out the training steps, one of engine_choice.ENGINES."""
    engine_fallback: str | None
    """What does where a node's software cannot run that one; None means that the run fails then."""
    data: list[str]
    loss_floor_nats: float | None
    """Mean loss that no model can go below on the data, nats a token; None where nobody knows it."""
    deepspeed: dict[str, Any]
    """The complete DeepSpeed config."""
    expected_gpu: str | None
    peak_flops: float | None
    """Dense peak of one GPU at the planned precision, FLOP/s."""
    partition: str | None
    account: str | None
    time_s: int | None
    """Wall time limit."""
    job_name: str
    mem: str | None
    """Value for --mem where the site wants it."""
    sbatch: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of the job that the request adds or replaces; never a secret."""
    env_file: str | None = None
    """File of the user's own variables, which the job reads: only its path is kept."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """The plan from `to_dict`'s result; keys of a newer version are an error that names them."""
        known = {f.name for f in fields(cls)}
        for key in values:
            if key not in known:
                raise RequestError(
                    unknown_name("plan field", key, known, next_step="Was it written by a newer version?")
                )
        return cls(**{**_of_older_plans(values), **values})


def _of_older_plans(values: Mapping[str, Any]) -> dict[str, Any]:
    """What plans did not say before they had these fields, as it was then: a full path was loaded, no name ever was."""
    loaded = str(values.get("model", "")).startswith("/")
    meant = {
        "engine": "deepspeed",
        "engine_fallback": None,
        "lr_ramp_steps": 0,
        "loss_floor_nats": None,
        "weights": "checkpoint" if loaded else "random",
    }
    return {**meant, "data_parallel": values["world_size"]} if "world_size" in values else meant


@dataclass(frozen=True, kw_only=True)
class PlanWithOrigins:
    """A plan, where each of its values comes from, and what the user should be told about it."""

    plan: Plan
    origins: dict[str, str]
    """Plan field -> `flag`, `file`, `cluster NAME`, `method NAME`, `default` or `computed`, in words."""
    notices: tuple[str, ...] = ()
