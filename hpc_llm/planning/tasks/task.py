"""What a task is: what one run does on its nodes, as planning, job script and parser know it."""

from __future__ import annotations

from collections.abc import Callable

from hpc_llm.immutable import dataclass
from hpc_llm.planning.experiment import Plan, register_workload
from hpc_llm.planning.parts import Training, own_fields, short_name

OF_EVERY_TASK = frozenset(
    """task cluster scheduler launcher nodes gpus_per_node tasks_per_node cpus_per_task world_size tensor_parallel pipeline_parallel expected_gpu expected_network partition account
    time_s job_name mem sbatch env env_file""".split()
)
"""Fields of the plan that say where and how the job runs, whatever it does."""

READING_FIELDS = frozenset("data columns validation_fraction train_samples validation_samples".split())
"""Fields of the plan that say what is read, and as what."""

DATA_FIELDS = READING_FIELDS | frozenset("corpus packing too_long epochs".split())
"""Fields of the plan that say what a task that trains is fed."""


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """One task among others: what its module exports as KIND."""

    name: str
    worker: str
    """The module that each rank runs: it ends in `hpc_llm.worker.main.command(PROGRAM)`."""
    packages: Callable[[Plan], tuple[str, ...]]
    """What the job's Python must be able to import for a plan, by import name; what is only sometimes used is left out."""
    plan_fields: frozenset[str]
    """Fields of the plan that it heeds, besides those of every task. To set another one would change nothing."""
    result_fields: frozenset[str]
    """Keys of result.json that it measures, besides those that every run leaves."""
    workload: type[Training] = Training
    """The class of the plan's workload. Fields that it adds have defaults, and are set as `--set NAME=VALUE`."""
    is_on_host: bool = False
    """Whether one process without a GPU does it, which takes no steps and knows no method."""
    generates: bool = False
    """Whether it answers queries and trains nothing: without an optimizer, and on one model a rank."""
    lr_schedule: str = "constant"
    """How the learning rate goes on behind its ramp where nobody says it: one of `planning.schedule.SCHEDULES`."""
    evaluates: bool = False
    """Whether it evaluates at its end where nobody says it."""
    steps: int | None = None
    """Steps where nobody says how many; None: as many as usual."""
    search: str | None = None
    """The module that says which try comes next, where a run is many starts of `worker`; None: it is one."""
    carries: tuple[str, ...] = ()
    """Top-level modules or packages, beside the worker's own, that travel with the run. Python sources only."""

    def __post_init__(self) -> None:
        for module in (*self.worker.split("."), *self.carries):
            if not module.isidentifier():
                raise ValueError(f"task {self.name}: {module!r} is no name of a Python module")
        register_workload(self.name, self.workload)

    @property
    def trains(self) -> bool:
        """Whether it takes steps of an optimizer."""
        return not (self.is_on_host or self.generates)

    @property
    def own_fields(self) -> frozenset[str]:
        """Short names of what its workload adds."""
        return frozenset(short_name(one) for one in own_fields(self.workload))

    @property
    def carried(self) -> tuple[str, ...]:
        """The top-level modules that travel with a run of it, besides what travels with every run."""
        return tuple(dict.fromkeys(top for top in (self.worker.split(".")[0], *self.carries) if top != "hpc_llm"))
