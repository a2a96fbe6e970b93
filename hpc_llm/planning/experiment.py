"""The request (Experiment) and the request with everything decided (Plan). Standard library only.

The worker reads the plan on a compute node whose Python may hold nothing of ours, so no third-party import here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from hpc_llm.immutable import dataclass
from hpc_llm.planning.parts import (
    BatchShape,
    EngineSetup,
    ExpectedGpu,
    Inference,
    JobRequest,
    ModelSetup,
    OptimizerSetup,
    Parallel,
    Training,
    Tuning,
    Workload,
    own_fields,
    read_part,
    short_name,
)

if TYPE_CHECKING:
    from hpc_llm.planning.study import StudyRun

CHANGED_LETTERS = "computed: what the method does after --set"
"""Origin of the letters of a plan whose settings made another method of the one that it names."""

ESTIMATED_LETTERS = "computed: what the method does as the estimate chose"
"""The same where the method leaves something to the estimate."""


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
    tensor_parallel: int | None = None
    """Ranks that share each layer."""
    micro_batch_size: int | None = None
    """Sequences per rank and forward pass."""
    gradient_accumulation_steps: int | None = None
    sequence_length: int | None = None
    """Tokens per sequence."""
    steps: int | None = None
    """Optimizer steps in all, warm-up included."""
    epochs: float | None = None
    """How often all data are trained on, in place of `steps`."""
    warmup_steps: int | None = None
    """First steps that are left out of the measurement."""
    seed: int | None = None
    data: tuple[str, ...] = ()
    """Sources as `corpus.sources` reads them; none means synthetic tokens."""
    save_every: int | None = None
    """Steps after which a checkpoint is kept."""
    over: str | None = None
    """What a search for the micro batch is repeated over: `sequence-length`, or `sequence-length=512,1024`."""
    resume: str | None = None
    """Run, or folder of a run or of a checkpoint, that the training goes on from."""
    profile: str | None = None
    """What looks into a few steps behind the measured ones."""
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

    def said_fields(self) -> dict[str, Any]:
        """What is said, as JSON types."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        texts = {name: [str(each) for each in one] for name, one in held.items() if isinstance(one, tuple) and one}
        return {**{name: one for name, one in held.items() if one is not None and one != ()}, **texts}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run with everything decided, nested by subject."""

    task: str
    cluster: str
    method: str
    letters: str
    """The method in the letters of the paper, e.g. `z3+o+r`."""
    workload: Workload
    """The task's own part."""
    model: ModelSetup
    batch: BatchShape
    parallel: Parallel
    optimizer: OptimizerSetup
    engine: EngineSetup
    job: JobRequest
    gpu: ExpectedGpu

    def to_dict(self) -> dict[str, Any]:
        """The plan as nested JSON types."""
        return asdict(self)

    def flat(self) -> dict[str, Any]:
        """The plan as short name -> JSON value, for tables and comparisons; mappings stay whole."""
        return flat_plan(self.to_dict())

    @property
    def training(self) -> Training:
        """The workload of a task that trains."""
        if not isinstance(self.workload, Training):
            raise TypeError(f"task {self.task} does not train")
        return self.workload

    def changed(self, **values: Any) -> Plan:
        """A plan with other values, given by their short names."""
        return Plan.from_dict(self.flat() | values)

    @property
    def inference(self) -> Inference:
        """The workload of a task that generates."""
        if not isinstance(self.workload, Inference):
            raise TypeError(f"task {self.task} generates nothing")
        return self.workload

    @property
    def tuning(self) -> Tuning:
        """The workload of a task that searches."""
        if not isinstance(self.workload, Tuning):
            raise TypeError(f"task {self.task} searches for nothing")
        return self.workload

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """The plan from `to_dict`'s or `flat`'s result; keys of a newer version are an error that names them.

        Raises:
            RequestError: a key that no plan has.
            TypeError: a value is missing, or is no mapping where one is needed.
        """
        nested = nested_plan(_of_older_plans(values)) if is_flat(values) else values
        workload = WORKLOADS.get(str(values.get("task")), Training)
        made: Plan = read_part(cls, nested, {"workload": workload})
        return made


WORKLOADS: dict[str, type[Training]] = {"pretrain": Training, "finetune": Training, "infer": Inference, "tune": Tuning}
"""Each task's own part of the plan."""


def is_flat(values: Mapping[str, Any]) -> bool:
    """Whether these are the short names of a plan, as records before version 0.2 hold it."""
    return not isinstance(values.get("parallel"), Mapping)


def flat_plan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Short name -> value of a plan as a record holds it, whatever version wrote it; what is strange stays as it is."""
    if is_flat(values):
        return dict(values)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in _WHOLE or not isinstance(value, Mapping):
            found[name] = value
        else:
            found |= {SHORT.get(f"{name}.{key}", str(key)): inner for key, inner in value.items()}
    return found


def nested_plan(values: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite of `flat_plan`; a name that no plan has stays at the top."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        part, _, key = PATHS.get(name, name).rpartition(".")
        (found.setdefault(part, {}) if part else found)[key] = value
    return found


_WHOLE = ("optimizer",)
"""Parts that tables and `--set` treat as one mapping."""


def _short_names() -> Iterator[tuple[str, str]]:
    types = get_type_hints(Plan)
    for one in fields(Plan):
        if one.name in _WHOLE or not is_dataclass(types[one.name]):
            yield one.name, one.name
            continue
        for part in WORKLOADS.values() if one.name == "workload" else (types[one.name],):
            for inner in fields(part):
                yield short_name(inner), f"{one.name}.{inner.name}"


PATHS: dict[str, str] = dict(_short_names())
"""Short name -> path of each field of a plan, in the plan's order."""

SHORT: dict[str, str] = {path: name for name, path in PATHS.items()}
"""Path -> short name."""


def register_workload(task: str, workload: type[Training]) -> None:
    """Make the workload of a task known, so that plans of it can be read."""
    WORKLOADS[task] = workload
    for one in own_fields(workload):
        PATHS[short_name(one)] = f"workload.{one.name}"
        SHORT[f"workload.{one.name}"] = short_name(one)


def _of_older_plans(values: Mapping[str, Any]) -> dict[str, Any]:
    """With what plans did not say before they had these fields, as it was then: a full path was loaded, no name ever was."""
    loaded = str(values.get("model", "")).startswith("/")
    meant = {
        "engine": "deepspeed",
        "engine_fallback": None,
        "lr_ramp_steps": 0,
        "loss_floor_nats": None,
        "weights": "checkpoint" if loaded else "random",
    }
    if "world_size" in values:
        meant["data_parallel"] = values["world_size"]
    optimizer = values.get("optimizer")
    if isinstance(optimizer, Mapping):  # it held all that a file of DeepSpeed's said
        known = {one.name for one in fields(OptimizerSetup)}
        values = {**values, "optimizer": {key: value for key, value in optimizer.items() if key in known}}
    return {**meant, **values}


@dataclass(frozen=True, kw_only=True)
class PlanWithOrigins:
    """A plan, where each of its values comes from, and what the user should be told about it."""

    plan: Plan
    origins: dict[str, str]
    """Short name of a plan field -> `flag`, `file`, `cluster NAME`, `method NAME`, `default` or `computed`, in words."""
    notices: tuple[str, ...] = ()
    asked: dict[str, Any] = field(default_factory=dict)
    """The fields of the experiment that were said: what asks for the same again."""
    study: StudyRun | None = None
    """Its place in the study that asks for it."""
