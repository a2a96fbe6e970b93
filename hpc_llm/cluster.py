"""Cluster: the true facts of a site, read strictly from `clusters/<name>.yaml`.

Each field says what it means and in which unit. A field exists only if the plan, the script or `hpc-llm clusters`
uses it. Times are text as Slurm writes them, memory is in the unit that the name says.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hpc_llm.errors import PlanError, ProfileError, RequestError
from hpc_llm.profiles import explain_validation, list_files, read_profile
from hpc_llm.sbatch_options import Source, read_options, rivals
from hpc_llm.slurm_time import LONGEST_S, parse_limit, parse_time

Launcher = Literal["srun", "torchrun", "mpirun", "python"]
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = frozenset(
    """run_dir code_dir time_limit started_at stage reason signal child try code limit python why env_dir conda_base conda_hook
    module_inits init job_tmp first_node IFS BASHOPTS SHELLOPTS BASH_VERSINFO UID EUID PPID MASTER_ADDR MASTER_PORT
    HPC_LLM_LAUNCHER HPC_LLM_TRY SRUN_CPUS_PER_TASK""".split()
)
"""Variables that the job script itself sets or lives by."""


def check_variable(name: str, value: str = "") -> None:
    """Raise a RequestError unless a job script can set an environment variable of that name to that value."""
    if not _VARIABLE_NAME.fullmatch(name):
        raise RequestError(f"{name!r} is not a name of an environment variable: use letters, digits and underscores.")
    if name in RESERVED:
        raise RequestError(f"the variable {name} is the job script's own. Choose another name.")
    if "\0" in value:
        raise RequestError(f"the value of {name} holds a NUL character, which no environment can carry.")


def _check_time(text: str, read: Callable[[str], int] = parse_time) -> str:
    try:
        seconds = read(text)
    except RequestError as error:
        raise ValueError(str(error)) from None
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"Slurm counts from 1 second to {LONGEST_S // 86400} days")
    return text


def _check_limit(text: str) -> str:
    return _check_time(text, parse_limit)


class _Strict(BaseModel):
    # defer_build: only the outermost model is ever validated, so only its validator is built.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Status(_Strict):
    state: Literal["active", "verify", "retired"]
    """`verify`: something essential here rests on one source; check before you rely on it."""
    checked: str = Field(pattern=r"^\d{4}-\d{2}$")
    """Month of the last check, YYYY-MM."""
    note: str = ""


class Account(_Strict):
    required: bool = False
    pattern: str | None = None
    """Regular expression that a valid account matches."""
    default: str | None = None
    """Your own account, in a profile of your own."""
    list_command: str | None = None
    """Command on the login node that lists your accounts."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class Capabilities(_Strict):
    """What the GPU can do in hardware and with the usual libraries."""

    bf16: bool
    flash_attention_2: bool
    int8: bool
    """bitsandbytes LLM.int8()."""
    nf4: bool
    """bitsandbytes 4-bit NF4."""
    tf32: bool = False


class Gpu(_Strict):
    vendor: Literal["nvidia", "amd", "none", "auto"]
    """`none`: the CPU; `auto`: whatever this machine has, found when planning."""
    model: str | None = None
    """Name as the vendor writes it; the run is INVALID when the device found at run time is another."""
    arch: str | None = None
    """`sm_70`, `gfx90a`, ..."""
    memory_gib: float | None = Field(default=None, ge=0)
    """Device memory, GiB."""
    per_node: int = Field(default=0, ge=0)
    """Devices per node; on MI250X the GCDs."""
    capabilities: Capabilities | None = None
    peak_tflops: dict[Literal["bf16", "fp16", "fp32"], float] = {}
    """Dense peak by precision, TFLOP/s, for MFU."""

    @model_validator(mode="after")
    def _complete(self) -> "Gpu":
        if self.vendor in ("nvidia", "amd"):
            for name in ("model", "arch", "memory_gib", "capabilities", "per_node"):
                if getattr(self, name) is None or (name == "per_node" and not self.per_node):
                    raise ValueError(f"{name} is missing, a GPU of vendor '{self.vendor}' has it")
        return self


class Node(_Strict):
    cpus: int | None = Field(default=None, gt=0)
    """Cores per node that a job may use."""
    mem_gb: float | None = Field(default=None, gt=0)
    """Host memory per node that a job may use, decimal GB."""
    cpus_per_gpu: int | None = Field(default=None, gt=0)
    """Share of the cores per GPU; what a rank gets unless the request says otherwise."""
    mem_gb_per_gpu: float | None = Field(default=None, gt=0)
    """Share of the host memory per GPU, decimal GB."""
    enforce_ratio: bool = False
    """The site refuses a job that asks for more cores per GPU than `cpus_per_gpu`."""


class Partition(_Strict):
    name: str = Field(min_length=1)
    max_time: Annotated[str, Field(description="Longest wall time, HH:MM:SS, D-HH:MM:SS or UNLIMITED.")]
    default: bool = False
    max_nodes: int | None = Field(default=None, gt=0)
    """Most nodes of one job."""
    max_gpus: int | None = Field(default=None, gt=0)
    """Most GPUs of one user at a time."""
    gpu: Gpu | None = None
    """The GPU of this partition where it differs from the cluster's."""
    node: Node | None = None
    prelude: "Prelude | None" = None
    """Modules and Python of this partition, all of it, where they differ from the cluster's."""
    env: "Environment | None" = None
    """Environment variables of this partition instead of the cluster's."""
    note: str = ""

    _time = field_validator("max_time")(_check_limit)

    @property
    def max_time_s(self) -> int:
        """Longest wall time, seconds."""
        return parse_limit(self.max_time)


class Request(_Strict):
    gpu_style: Literal["gres", "gpus-per-node", "gpus", "gpus-per-task", "none"]
    """How the site wants GPUs asked for."""
    gpu_type: str | None = None
    """Type in front of the count, e.g. `h100-80`."""
    memory: Literal["omit", "mem", "mem-per-gpu", "mem-per-cpu"] = "omit"
    """Which memory flag the site accepts; `omit`: its default follows the GPUs."""
    constraint: str | None = None
    exclusive: bool = False
    forbid: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]] = []
    """Flags that the site refuses, without the dashes in front, e.g. `gres`."""
    extra: list[str] = []
    """Further flags for every job, e.g. `--hint=nomultithread`; not those that the plan or hpc-llm sets."""
    export: Literal["none", "all"] = "none"
    """`none`: the job starts with a clean environment, whatever the submitting shell holds."""

    @model_validator(mode="after")
    def _has_effect(self) -> "Request":
        if self.gpu_type and self.gpu_style == "none":
            raise ValueError("gpu_type has no effect with gpu_style 'none'")
        return self


class Launch(_Strict):
    single_node: Launcher
    multi_node: Launcher
    allowed: list[Launcher]
    mpirun_args: list[str] = []
    srun_args: list[str] = []
    master_addr_suffix: str = ""
    """Appended to the host name of the first node, e.g. `i` for the InfiniBand name."""

    @model_validator(mode="after")
    def _defaults_allowed(self) -> "Launch":
        for name in (self.single_node, self.multi_node):
            if name not in self.allowed:
                raise ValueError(f"'{name}' is not in allowed: {', '.join(self.allowed)}")
        return self


class Python(_Strict):
    kind: Literal["conda", "venv", "module", "current"]
    """`module`: a loaded module brings Python; `current`: the interpreter that runs hpc-llm."""
    env: str | None = None
    """Folder of the environment (conda prefix or venv); ${USER}, ${HOME} and other variables are expanded."""
    hook: str = "auto"
    """conda's shell hook; `auto` asks `conda info --base`."""
    make: str = ""
    """How the environment is made, for people."""

    @model_validator(mode="after")
    def _env_where_needed(self) -> "Python":
        if self.kind in ("conda", "venv") and not self.env:
            raise ValueError(f"env is missing, kind '{self.kind}' needs the folder of the environment")
        if self.kind not in ("conda", "venv") and self.env:
            raise ValueError(
                f"env has no effect with kind '{self.kind}', leave it out (env: null where it is inherited)"
            )
        if self.kind != "conda" and self.hook != "auto":
            raise ValueError(
                f"hook has no effect with kind '{self.kind}', leave it out (hook: auto where it is inherited)"
            )
        return self


class Prelude(_Strict):
    module_system: Literal["lmod", "tcl", "none"]
    init: list[str] = []
    """Files that define `module`; the first that exists is read, unless `module` is defined already."""
    start: Literal["none", "purge", "force-purge", "reset"] = "none"
    """What to do with modules that are loaded at the start."""
    use: list[str] = []
    """Module folders; added after `start`, since a reset forgets them."""
    load: list[str] = []
    """Modules, in this order, one load each, each checked."""
    load_multi_node: list[str] = []
    """Further modules for jobs of several nodes."""
    python: Python

    @model_validator(mode="after")
    def _modules_where_there_are_modules(self) -> "Prelude":
        if self.module_system == "none":
            for name in ("init", "use", "load", "load_multi_node"):
                if getattr(self, name):
                    raise ValueError(f"{name} has no effect with module_system 'none'. Valid: lmod, tcl")
        return self


class Environment(_Strict):
    """Environment variables of the job. Values may use ${USER} and other variables, nothing else is expanded."""

    common: dict[str, str] = {}
    single_node: dict[str, str] = {}
    multi_node: dict[str, str] = {}
    local: dict[str, str] = {}
    """Only when the script runs without a scheduler."""
    per_job_dirs: dict[str, str] = {}
    """Variable -> name of a folder under $TMPDIR that the job makes first and removes last."""
    unset: list[str] = []
    """Variables that are removed after the modules are loaded."""

    @field_validator("common", "single_node", "multi_node", "local", "per_job_dirs", "unset")
    @classmethod
    def _can_be_set(cls, values: Any) -> Any:
        pairs = values.items() if isinstance(values, dict) else ((name, "") for name in values)
        for name, value in pairs:
            try:
                check_variable(name, value)
            except RequestError as error:
                raise ValueError(str(error)) from None
        return values

    @field_validator("per_job_dirs")
    @classmethod
    def _plain_folders(cls, folders: dict[str, str]) -> dict[str, str]:
        for folder in folders.values():
            if not re.fullmatch(r"[A-Za-z0-9._-]*[A-Za-z0-9_-]", folder):
                raise ValueError(f"'{folder}' is not the plain name of a folder, as in miopen-cache")
        return folders


class Access(_Strict):
    internet_compute: Literal["yes", "no", "proxy", "unknown"] = "unknown"
    """`no`: the job sets HF_HUB_OFFLINE=1."""
    proxy_env: dict[str, str] = {}
    """Variables that lead to the proxy, e.g. https_proxy; with `proxy` only."""

    @model_validator(mode="after")
    def _proxy(self) -> "Access":
        if bool(self.proxy_env) != (self.internet_compute == "proxy"):
            raise ValueError("proxy_env and internet_compute 'proxy' go together")
        for name, value in self.proxy_env.items():
            try:
                check_variable(name, value)
            except RequestError as error:
                raise ValueError(str(error)) from None
        return self


class Defaults(_Strict):
    """What this cluster suggests where the request says nothing."""

    model: str | None = None
    time: str | None = None
    gpus_per_node: int | None = Field(default=None, ge=0)
    micro_batch_size: int | None = Field(default=None, gt=0)
    sequence_length: int | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, gt=0)
    warmup_steps: int | None = Field(default=None, ge=0)

    @field_validator("time")
    @classmethod
    def _time(cls, text: str | None) -> str | None:
        return text if text is None else _check_time(text)


class Cluster(_Strict):
    """A site: partitions and limits, GPUs, modules, environment, launch habits."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    status: Status
    sources: list[str] = Field(min_length=1)
    """Where the facts come from."""
    unverified: list[str] = []
    """What nobody has checked yet."""
    scheduler: Literal["slurm", "local", "auto"]
    """`auto`: sbatch where it is on PATH, else the same script run by bash on this machine."""
    slurm_cluster: str | list[str] | None = None
    """ClusterName of its Slurm (`scontrol show config`), or several: then nothing is submitted to another."""
    account: Account = Account()
    gpu: Gpu
    node: Node = Node()
    partitions: list[Partition] = []
    """Empty: the site's partitions are not known, any is passed on."""
    request: Request
    launch: Launch
    prelude: Prelude
    env: Environment = Environment()
    access: Access = Access()
    network: str = ""
    """The fabric, for people."""
    paths: dict[str, str] = {}
    """Useful folders, for people."""
    defaults: Defaults = Defaults()
    notes: list[str] = []

    @model_validator(mode="after")
    def _consistent(self) -> "Cluster":
        names = [p.name for p in self.partitions]
        if len(set(names)) < len(names):
            raise ValueError(f"partitions: a name comes twice in {', '.join(names)}")
        if sum(p.default for p in self.partitions) > 1:
            raise ValueError("partitions: one of them can be the default, not several")
        self._check_extra()
        if self.request.memory != "omit":
            for node in [self.node_of(p) for p in self.partitions] or [self.node]:
                missing = node.mem_gb_per_gpu is None or (
                    self.request.memory == "mem-per-cpu" and not node.cpus_per_gpu
                )
                if missing and self.gpu.vendor in ("nvidia", "amd"):
                    raise ValueError(
                        f"request.memory is '{self.request.memory}', which is computed from node.mem_gb_per_gpu "
                        "(and node.cpus_per_gpu for mem-per-cpu): one of them is missing"
                    )
        return self

    def _check_extra(self) -> None:
        try:
            extra = self.extra_options
        except RequestError as error:
            raise ValueError(str(error)) from None
        for name in extra:
            is_memory = name.startswith("mem") and self.request.memory != "omit"
            if (name == "constraint" and self.request.constraint) or (name == "exclusive" and self.request.exclusive):
                raise ValueError(f"request.extra holds --{name}, which request.{name} asks for. Keep one of them.")
            if is_memory and (name == "mem" or name in rivals("mem")):
                raise ValueError(f"request.extra holds --{name}, but request.memory asks for memory. Keep one of them.")

    @property
    def extra_options(self) -> dict[str, str]:
        """The options of `request.extra`, '' where one has no value."""
        source = Source(
            place="request.extra holds",
            is_profile=True,
            forbidden=self.request.forbid,
            refuser="request.forbid",
            counts_gpus=self.counts_gpus,
        )
        return read_options(self.request.extra, source)

    @property
    def slurm_clusters(self) -> list[str]:
        """The names that its Slurm may have; empty where none is known."""
        return [self.slurm_cluster] if isinstance(self.slurm_cluster, str) else list(self.slurm_cluster or [])

    @property
    def counts_gpus(self) -> bool:
        """Whether plans here count GPUs."""
        return self.gpu.vendor != "none"

    def partition(self, name: str | None) -> Partition | None:
        """The partition of that name, or the default one; None where partitions are not known."""
        for partition in self.partitions:
            if partition.name == name or (name is None and partition.default):
                return partition
        return None

    def gpu_of(self, partition: Partition | None) -> Gpu:
        return partition.gpu if partition and partition.gpu else self.gpu

    def on(self, partition: Partition | None) -> "Cluster":
        """The cluster as a job on that partition sees it: with the partition's own modules, Python and variables.

        Raises PlanError where it has GPUs of another vendor and states no modules for them.
        """
        if partition is None:
            return self
        vendor = self.gpu_of(partition).vendor
        if partition.prelude is None and vendor != self.gpu.vendor:
            raise PlanError(
                f"partition {partition.name} of cluster {self.name} has GPUs of {vendor}, and the modules and the Python of the "
                f"profile are for {self.gpu.vendor}. Give the partition a prelude of its own in your clusters/{self.name}.yaml."
            )
        own = {"prelude": partition.prelude or self.prelude, "env": partition.env or self.env}
        return self.model_copy(update=own)

    def node_of(self, partition: Partition | None) -> Node:
        return partition.node if partition and partition.node else self.node


def parse_cluster(data: dict[str, Any], where: Path | str) -> Cluster:
    """A Cluster from the mapping of a file; a ProfileError names file, key and what is allowed."""
    try:
        cluster = Cluster.model_validate(data)
    except ValidationError as error:
        raise explain_validation(error, where, allowed_keys(Cluster)) from None
    if isinstance(where, Path) and where.stem != cluster.name:
        raise ProfileError(f"{where}: 'name' is '{cluster.name}', it must be the file's name, '{where.stem}'.")
    return cluster


def load_cluster(name: str) -> Cluster:
    """The cluster `name`, a user's own before a bundled one."""
    data, path = read_profile("clusters", name)
    return parse_cluster(data, path)


def cluster_names() -> list[str]:
    return list(list_files("clusters"))


def allowed_keys(model: type[BaseModel], prefix: str = "") -> dict[str, list[str]]:
    """Dotted place -> the keys that are valid there, for a model and the models inside it."""
    keys = {prefix: [f.alias or n for n, f in model.model_fields.items()]}
    for name, model_field in model.model_fields.items():
        for inner in _models_in(model_field.annotation):
            keys.update(allowed_keys(inner, f"{prefix}.{name}" if prefix else name))
    return keys


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in getattr(annotation, "__args__", ()) for m in _models_in(part)]
