"""Cluster: the true facts of a site, read strictly from `clusters/<name>.yaml`.

Each field says what it means and in which unit. A field exists only if the plan, the script or `hpc-llm clusters`
uses it. Times are text as Slurm writes them, memory is in the unit that the name says.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from hpc_llm.errors import PlanError, ProfileError, RequestError, unknown_name
from hpc_llm.outside import without_pydantics_plugins
from hpc_llm.site import schedulers
from hpc_llm.site.partitions import Charge, Partition, Qos
from hpc_llm.site.parts import (
    Access,
    Account,
    Capabilities,
    Defaults,
    Environment,
    Gpu,
    Launch,
    Node,
    Prelude,
    RequestBlock,
    Status,
    Strict,
    check_full,
    check_variable,
)
from hpc_llm.site.profiles import is_brought, list_files, read_profile, where_to_change
from hpc_llm.site.sbatch_options import Source, read_options, rivals

__all__ = [
    "Account", "Capabilities", "Charge", "Cluster", "Gpu", "Node", "Partition", "Qos", "check_variable", "cluster_names",
    "load_cluster", "parse_cluster", "parse_profile",
]  # fmt: skip


_P = TypeVar("_P", bound=BaseModel)
_HERE = "auto"
"""Whatever scheduler is here."""


def _check_scheduler(name: str) -> str:
    try:
        return name if name == _HERE else schedulers.find_scheduler(name).name
    except ProfileError as error:
        names = [*schedulers.names(), _HERE]
        raise ValueError(str(error) if name in names else unknown_name("scheduler", name, names)) from None


def _check_models(folders: list[str]) -> list[str]:
    check_full(folders, "models")
    return folders


def _list_schedulers(schema: dict[str, Any]) -> None:
    schema["enum"] = [*schedulers.names(), _HERE]


class Cluster(Strict):
    """A site: partitions and limits, GPUs, modules, environment, launch habits."""

    # model_construct: a default made by its class's call would have a validator built for that class alone.

    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    status: Status
    sources: list[str] = Field(min_length=1)
    """Where the facts come from."""
    unverified: list[str] = Field(default=[])
    """What nobody has checked yet."""
    scheduler: Annotated[str, AfterValidator(_check_scheduler)] = Field(json_schema_extra=_list_schedulers)
    """slurm, local (this machine), or one of another package; `auto`: the one whose command is on PATH, else this machine."""
    slurm_cluster: str | list[str] | None = None
    """ClusterName of its Slurm (`scontrol show config`), or several: then nothing is submitted to another."""
    account: Account = Account.model_construct()
    gpu: Gpu
    node: Node = Node.model_construct()
    charge: Charge | None = None
    """What a GPU costs for an hour where its partition says nothing else; left out, no costs are told beside GPU-hours."""
    partitions: list[Partition] = Field(default=[])
    """Empty: the site's partitions are not known, any is passed on."""
    qos: list[Qos] = Field(default=[])
    """The site's QOS; a job names one by `--sbatch qos=NAME`, or every job by `--qos=NAME` in request.extra."""
    qos_complete: bool = False
    """Whether `qos` holds all that there are: then a name that it lacks is refused, else it passes with a notice."""
    request: RequestBlock
    launch: Launch
    prelude: Prelude
    env: Environment = Environment.model_construct()
    access: Access = Access.model_construct()
    network: str = ""
    """The fabric, for people."""
    nccl_network: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    """What NCCL is to use between nodes, as it says itself (`Using network …`): IB, Libfabric. A run that took another, sockets say, is
    INVALID. Words count: Libfabric is AWS Libfabric, too."""
    paths: dict[str, str] = Field(default={})
    """Useful folders, for people."""
    models: Annotated[list[str], AfterValidator(_check_models)] = Field(default=[])
    """Folders in which the site keeps models of the Hub, by OWNER/NAME, by NAME or as in the Hub's cache; ${USER} and other
    variables are expanded. A model that is there is meant by its name."""
    defaults: Defaults = Defaults.model_construct()
    notes: list[str] = Field(default=[])

    @model_validator(mode="after")
    def _consistent(self) -> "Cluster":
        if self.slurm_cluster is not None and not (self.slurm_clusters and all(self.slurm_clusters)):
            raise ValueError("slurm_cluster names no cluster, and would check nothing. Leave it out, or name one")
        names = [p.name for p in self.partitions]
        if len(set(names)) < len(names):
            raise ValueError(f"partitions: a name comes twice in {', '.join(names)}")
        if sum(p.default for p in self.partitions) > 1:
            raise ValueError("partitions: one of them can be the default, not several")
        self._check_extra()
        self._check_qos()
        self._check_memory()
        return self

    def _check_memory(self) -> None:
        if self.request.memory == "omit" or self.gpu.vendor not in ("nvidia", "amd"):
            return
        needed = ["mem_gb_per_gpu", *(["cpus_per_gpu"] if self.request.memory == "mem-per-cpu" else [])]
        places: list[Partition | None] = [*self.partitions] or [None]
        for partition in places:
            missing = [f"node.{name}" for name in needed if not getattr(self.node_of(partition), name)]
            if not missing:
                continue
            where, why = "", ""
            if partition is not None and partition.node is not None:
                where = f"partition {partition.name}: "
                why = (
                    " The node of a partition takes the place of the whole node above: write there all that is to hold."
                )
            raise ValueError(
                f"{where}{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing, from which request.memory "
                f"'{self.request.memory}' is computed. Add {'it' if len(missing) == 1 else 'them'}{' there' if where else ''}, or write request.memory: omit.{why}"
            )

    def _check_extra(self) -> None:
        try:
            extra = self.extra_options
        except RequestError as error:
            raise ValueError(str(error)) from None
        for name in extra:
            is_memory = name.startswith("mem") and self.request.memory != "omit"
            if (name == "constraint" and self.request.constraint) or (name == "exclusive" and self.request.exclusive):
                raise ValueError(
                    f"request.extra holds --{name}, which request.{name} asks for. Keep one of them (request.{name}: null takes back what is inherited)"
                )
            if is_memory and (name == "mem" or name in rivals("mem")):
                raise ValueError(
                    f"request.extra holds --{name}, but request.memory asks for memory. Keep one of them (request.memory: omit)"
                )

    def _check_qos(self) -> None:
        known = [p.name for p in self.partitions]
        names = [q.name.lower() for q in self.qos]
        if len(set(names)) < len(names):
            raise ValueError(f"qos: a name comes twice in {', '.join(names)}")
        if self.qos_complete and not names:
            raise ValueError(
                "qos_complete has no effect without qos, the list of all of them: leave it out (qos_complete: null where it is inherited)"
            )
        for place in (name for q in self.qos for name in q.partitions if known):
            if place not in known:
                raise ValueError("qos.partitions: " + unknown_name("partition", place, known))
        for partition in [None, *self.partitions]:
            defaults = [q.name for q in self._defaults(partition)]
            if len(defaults) > 1:
                where = f"on partition {partition.name}" if partition else "where no partition is named"
                raise ValueError(f"qos: {where} one of them can be the default, not {' and '.join(defaults)}")
        for name in self.extra_options.get("qos", "").split(","):
            if name and self.qos_complete and self.qos_named(name) is None:
                raise ValueError("request.extra: " + unknown_name("qos", name, [q.name for q in self.qos]))

    def _defaults(self, partition: Partition | None) -> list[Qos]:
        """What a job gets that names no QOS: the partition's own before the cluster's."""
        defaults = [q for q in self.qos if q.default]
        own = [q for q in defaults if partition and partition.name in q.partitions]
        return own or [q for q in defaults if not q.partitions]

    def default_qos(self, partition: Partition | None) -> Qos | None:
        """What Slurm gives a job on that partition that names no QOS; None where that is not known."""
        return next(iter(self._defaults(partition)), None)

    def qos_named(self, name: str) -> Qos | None:
        """The QOS of that name, which Slurm reads in any case; None where the profile has none."""
        return next((q for q in self.qos if q.name.lower() == name.lower()), None)

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
                f"profile are for {self.gpu.vendor}. Give the partition a prelude of its own in "
                f"{where_to_change('clusters', self.name)}.{self._written_again(partition)}"
            )
        own = {"prelude": partition.prelude or self.prelude, "env": partition.env or self.env}
        return self.model_copy(update=own)

    def _written_again(self, partition: Partition) -> str:
        """What has to stand in a profile that extends this one, beside what is new of the partition; "" where it is changed itself."""
        if not is_brought("clusters", self.name):
            return ""
        said = [name for name in ("gpu", "node", "max_nodes") if getattr(partition, name) is not None]
        return (
            f" Its list `partitions` replaces the one of {self.name}: write into it all that you use, {partition.name} with its "
            f"{', '.join(said)} as `hpc-llm clusters {self.name} --json` shows them."
        )

    def node_of(self, partition: Partition | None) -> Node:
        return partition.node if partition and partition.node else self.node

    def charge_of(self, partition: Partition | None) -> Charge | None:
        return partition.charge if partition and partition.charge else self.charge


def parse_cluster(data: dict[str, Any], where: Path | str) -> Cluster:
    """A Cluster from the mapping of a file; a ProfileError names file, key and what is allowed."""
    return parse_profile(Cluster, data, where)


def load_cluster(name: str) -> Cluster:
    """The cluster `name`, a user's own before a bundled one."""
    data, path = read_profile("clusters", name)
    return parse_cluster(data, path)


def cluster_names() -> list[str]:
    return list(list_files("clusters"))


def parse_profile(model: type[_P], data: dict[str, Any], where: Path | str) -> _P:
    """What a file says, held to its model and to its own name; a ProfileError names file, key and what is allowed."""
    try:
        with without_pydantics_plugins():
            profile = model.model_validate(data)
    except ValidationError as error:
        from hpc_llm.site.explained import explain_validation

        raise explain_validation(error, where, model) from None
    name = cast(Any, profile).name  # each profile has one
    if isinstance(where, Path) and where.stem != name:
        raise ProfileError(f"{where}: 'name' is '{name}', it must be the file's name, '{where.stem}'.")
    return profile
