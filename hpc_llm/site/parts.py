"""The parts of a cluster's profile, each read strictly: status, GPUs, partitions, requests, launchers, modules, variables.

Each field says what it means and in which unit.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from hpc_llm.errors import ProfileError, RequestError
from hpc_llm.site.account_pattern import check_pattern
from hpc_llm.site.generations import check_generation, missing_facts
from hpc_llm.site.launchers import find_launcher
from hpc_llm.site.launchers import known as launchers
from hpc_llm.site.sbatch_values import wrong_value
from hpc_llm.site.slurm_time import LONGEST_S, parse_time
from hpc_llm.site.srun_args import wrong_argument
from hpc_llm.site.units import check_named_size, gpu_gib, node_gb, tflops
from hpc_llm.text.env_file import is_reserved

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_variable(name: str, value: str = "") -> None:
    """Raise a RequestError unless a job script can set an environment variable of that name to that value."""
    if not _VARIABLE_NAME.fullmatch(name):
        raise RequestError(f"{name!r} is not a name of an environment variable: use letters, digits and underscores.")
    if is_reserved(name):
        raise RequestError(f"the variable {name} is the job script's own, or changes how bash reads it. Leave it out.")
    if "\0" in value:
        raise RequestError(f"the value of {name} holds a NUL character, which no environment can carry.")


def check_time(text: str, read: Callable[[str], int] = parse_time) -> str:
    """The text, where it is a time that Slurm takes. Raises ValueError."""
    try:
        seconds = read(text)
    except RequestError as error:
        raise ValueError(str(error)) from None
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"Slurm counts from 1 second to {LONGEST_S // 86400} days")
    return text


def check_full(paths: Iterable[str], field: str) -> None:
    """Raise a ValueError unless the job finds each of the paths, whatever folder it begins in."""
    for path in paths:
        if not path.startswith(("/", "~/", "$")):
            raise ValueError(f"{field} is '{path}', and the job works in the folder of its run. Give the full path")


def _check_launcher(name: str) -> str:
    try:
        return find_launcher(name).name
    except ProfileError as error:
        raise ValueError(str(error)) from None


def _list_launchers(schema: dict[str, Any]) -> None:
    schema["enum"] = list(launchers())


def _check_module(name: str) -> str:
    """Held to one name: `module load` would be given two as one word, and the job end with its time in the queue lost."""
    if len(name.split()) != 1 or name != name.strip():
        apart = f". Write [{', '.join(name.split())}]" if name.strip() else ". Leave it out"
        raise ValueError(f"no module is called so, and each is one entry{apart}")
    return name


Launcher = Annotated[str, AfterValidator(_check_launcher), Field(json_schema_extra=_list_launchers)]
SlurmTime = Annotated[str, Field(json_schema_extra={"format": "slurm-time"})]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
Module = Annotated[str, AfterValidator(_check_module), Field(json_schema_extra={"format": "module"})]


class Strict(BaseModel):
    # defer_build: only the outermost model is ever validated, so only its validator is built.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Status(Strict):
    state: Literal["active", "verify", "retired"]
    """`verify`: something essential here rests on one source; check before you rely on it."""
    checked: str = Field(pattern=r"^\d{4}-\d{2}$")
    """Month of the last check, YYYY-MM."""
    note: str = ""


class Account(Strict):
    required: bool = False
    pattern: str | None = None
    """Regular expression that a valid account matches; short, and repeating single characters and sets only."""
    default: Line | None = None
    """Your own account, in a profile of your own."""
    list_command: str | None = None
    """Command on the login node that lists your accounts."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        check_pattern(pattern or "")
        return pattern


class Capabilities(Strict):
    """What the GPU can do in hardware and with the usual libraries."""

    bf16: bool
    flash_attention_2: bool
    int8: bool
    """bitsandbytes LLM.int8()."""
    nf4: bool
    """bitsandbytes 4-bit NF4."""
    tf32: bool = False


_ARCHITECTURES = {"sm_": "nvidia", "gfx": "amd"}
"""How the name of an architecture begins -> whose GPUs have it."""


class Gpu(Strict):
    vendor: Literal["nvidia", "amd", "none", "auto"]
    """`none`: the CPU; `auto`: whatever this machine has, found when planning."""
    model: str | None = None
    """Name as the vendor writes it; the run is INVALID when the device found at run time is another."""
    arch: str | None = None
    """`sm_70`, `gfx90a`, ..."""
    memory_gib: Annotated[float | None, AfterValidator(gpu_gib)] = Field(default=None, ge=0)
    """Device memory, GiB, as nvidia-smi or rocm-smi shows it: what is sold as 48 GB may be 45."""
    per_node: int = Field(default=0, ge=0)
    """Devices per node; on MI250X the GCDs."""
    capabilities: Capabilities | None = None
    peak_tflops: Annotated[dict[Literal["bf16", "fp16", "fp32", "fp8"], float], AfterValidator(tflops)] = {}
    """Dense peak by precision, TFLOP/s, for MFU."""

    @model_validator(mode="after")
    def _complete(self) -> "Gpu":
        if self.vendor in ("nvidia", "amd"):
            needed = ("model", "arch", "memory_gib", "capabilities", "per_node")
            lacking = [name for name in needed if getattr(self, name) is None or name not in self.model_fields_set]
            if lacking:
                raise ValueError(missing_facts(self.vendor, self.model, lacking))
            if not self.per_node:
                raise ValueError(
                    f"per_node is 0, and with vendor '{self.vendor}' a node has at least one GPU. For nodes without GPUs write vendor: none"
                )
        maker = next((vendor for start, vendor in _ARCHITECTURES.items() if (self.arch or "").startswith(start)), None)
        if maker not in (None, self.vendor) and self.vendor in _ARCHITECTURES.values():
            raise ValueError(
                f"arch {self.arch} is {maker.upper()}'s, and vendor is '{self.vendor}'. Write vendor: {maker}"
            )
        check_named_size(self.model, self.memory_gib)
        check_generation(self.vendor, self.model, self.arch, dict(self.capabilities) if self.capabilities else {})
        return self


class Node(Strict):
    cpus: int | None = Field(default=None, gt=0)
    """Cores per node that a job may use."""
    mem_gb: Annotated[float | None, AfterValidator(node_gb)] = Field(default=None, gt=0)
    """Host memory per node that a job may use, decimal GB."""
    cpus_per_gpu: int | None = Field(default=None, gt=0)
    """Share of the cores per GPU; what a rank gets unless the request says otherwise."""
    mem_gb_per_gpu: Annotated[float | None, AfterValidator(node_gb)] = Field(default=None, gt=0)
    """Share of the host memory per GPU, decimal GB."""
    enforce_ratio: bool = False
    """The site refuses a job that asks for more cores per GPU than `cpus_per_gpu`."""


class RequestBlock(Strict):
    gpu_style: Literal["gres", "gpus-per-node", "gpus", "gpus-per-task", "none"]
    """How the site wants GPUs asked for; where `gpus` or `gpus-per-task` would leave open how many a node gives, a job asks
    for them per node."""
    gpu_type: Line | None = None
    """Type in front of the count, e.g. `h100-80`."""
    memory: Literal["omit", "mem", "mem-per-gpu", "mem-per-cpu"] = "omit"
    """Which memory flag the site accepts; `omit`: its default follows the GPUs."""
    constraint: Line | None = None
    exclusive: bool = False
    forbid: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]] = []
    """Flags that the site refuses, without the dashes in front, e.g. `gres`."""
    extra: list[str] = []
    """Further flags for every job, e.g. `--hint=nomultithread`; not those that the plan or hpc-llm sets."""
    export: Literal["none", "all"] = "none"
    """`none`: the job starts with a clean environment, whatever the submitting shell holds."""

    @model_validator(mode="after")
    def _has_effect(self) -> "RequestBlock":
        if self.gpu_type and self.gpu_style == "none":
            raise ValueError(
                "gpu_type has no effect with gpu_style 'none', leave it out (gpu_type: null where it is inherited)"
            )
        if self.constraint and (wrong := wrong_value("constraint", self.constraint)) is not None:
            raise ValueError(f"constraint is '{self.constraint}': {wrong.removesuffix('.')}")
        if self.memory == "mem-per-gpu" and self.gpu_style == "none":
            raise ValueError(
                "memory 'mem-per-gpu' needs GPUs that are asked for, and gpu_style is 'none'. Valid: omit, mem, mem-per-cpu"
            )
        if "export" in self.forbid and self.export == "none":
            raise ValueError(
                "forbid holds 'export', by which export 'none' is asked for: write export: all, with which a script has no such line"
            )
        if needed := [name for name in ("output", "error", "open-mode") if name in self.forbid]:
            raise ValueError(f"forbid holds '{needed[0]}', which every job is submitted with: leave it out")
        return self


class Launch(Strict):
    single_node: Launcher
    multi_node: Launcher
    allowed: list[Launcher]
    """Launchers that work here; besides srun, torchrun, mpirun and python those of installed packages."""
    mpirun_args: list[str] = []
    srun_args: list[str] = []
    """Further options of srun for the tasks, of which each is a rank. Those that bind a task (`--cpu-bind`, `--gpu-bind`,
    `--cpus-per-task`, `--distribution`, `--mem-bind`, `--hint`) are left out where srun starts one agent a node, as for torchrun."""
    master_addr_suffix: str = ""
    """Appended to the host name of the first node, e.g. `i` for the InfiniBand name."""

    @model_validator(mode="after")
    def _defaults_allowed(self) -> "Launch":
        for name in ("single_node", "multi_node"):
            if getattr(self, name) not in self.allowed:
                raise ValueError(
                    f"{name} is '{getattr(self, name)}', which is not in allowed: {', '.join(self.allowed)}. Add it there, or take one of these"
                )
        if (wrong := wrong_argument(self.srun_args)) is not None:
            raise ValueError(f"srun_args holds {wrong}")
        return self


class Python(Strict):
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
        if self.env and (self.kind == "venv" or "/" in self.env):
            check_full([self.env], "env")
        if self.hook != "auto":
            check_full([self.hook], "hook")
        if self.kind != "conda" and self.hook != "auto":
            raise ValueError(
                f"hook has no effect with kind '{self.kind}', leave it out (hook: auto where it is inherited)"
            )
        return self


class Prelude(Strict):
    module_system: Literal["lmod", "tcl", "none"]
    init: list[str] = []
    """Files that define `module`; the first that exists is read, unless `module` is defined already."""
    start: Literal["none", "purge", "force-purge", "reset"] = "none"
    """What to do with modules that are loaded at the start."""
    use: list[str] = []
    """Module folders; added after `start`, since a reset forgets them."""
    load: list[Module] = []
    """Modules, in this order, one load each, each checked."""
    load_multi_node: list[Module] = []
    """Further modules for jobs of several nodes."""
    profilers: dict[Literal["nsys", "ncu", "rocprof"], Module] = {}
    """The module that brings a profiler, loaded where `--profile` asks for it; none where its program is there anyway."""
    python: Python

    @model_validator(mode="after")
    def _modules_where_there_are_modules(self) -> "Prelude":
        for field in ("init", "use"):
            check_full(getattr(self, field), field)
        if self.module_system == "none":
            for name in ("init", "use", "load", "load_multi_node", "profilers"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} has no effect with module_system 'none', leave it out ({name}: null where it is inherited), or "
                        "name the module system: lmod or tcl"
                    )
        return self


class Environment(Strict):
    """Environment variables of the job. Values may use ${USER} and other variables, nothing else is expanded."""

    file: str | None = Field(default=None, min_length=1)
    """File of your own variables that the job reads, in a profile of your own; yours, and readable by nobody else."""
    common: dict[str, str] = {}
    single_node: dict[str, str] = {}
    multi_node: dict[str, str] = {}
    local: dict[str, str] = {}
    """Only when the script runs without a scheduler."""
    per_job_dirs: dict[str, str] = {}
    """Variable -> name of a folder under $TMPDIR that the job makes first and removes last."""
    unset: list[str] = []
    """Variables that are removed after the modules are loaded."""

    @field_validator("file")
    @classmethod
    def _found_by_the_job(cls, path: str | None) -> str | None:
        check_full([path] if path else [], "file")
        return path

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


class Access(Strict):
    internet_compute: Literal["yes", "no", "proxy", "unknown"] = "unknown"
    """`no`: the job sets HF_HUB_OFFLINE=1."""
    proxy_env: dict[str, str] = {}
    """Variables that lead to the proxy, e.g. https_proxy; with `proxy` only."""

    @model_validator(mode="after")
    def _proxy(self) -> "Access":
        if self.proxy_env and self.internet_compute != "proxy":
            raise ValueError(
                f"proxy_env has no effect with internet_compute '{self.internet_compute}', leave it out (proxy_env: null where it is "
                "inherited), or write internet_compute: proxy"
            )
        if not self.proxy_env and self.internet_compute == "proxy":
            raise ValueError(
                "proxy_env is missing, internet_compute 'proxy' needs the variables that lead to the proxy"
            )
        for name, value in self.proxy_env.items():
            try:
                check_variable(name, value)
            except RequestError as error:
                raise ValueError(str(error)) from None
        return self


class Defaults(Strict):
    """What this cluster suggests where the request says nothing."""

    model: str | None = None
    time: SlurmTime | None = None
    gpus_per_node: int | None = Field(default=None, ge=0)
    micro_batch_size: int | None = Field(default=None, gt=0)
    sequence_length: int | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, gt=0)
    warmup_steps: int | None = Field(default=None, ge=0)

    @field_validator("time")
    @classmethod
    def _time(cls, text: str | None) -> str | None:
        return text if text is None else check_time(text)
