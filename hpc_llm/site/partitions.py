"""A site's partitions and qualities of service, their limits, and what their GPUs cost, each read strictly."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from hpc_llm.site.parts import Environment, Gpu, Node, Prelude, SlurmTime, Strict, check_time
from hpc_llm.site.slurm_time import format_time, parse_limit


def _check_limit(text: str) -> str:
    return check_time(text, parse_limit)


def _with_units(limit: str) -> str:
    """
    >>> _with_units("48"), _with_units("24:00"), _with_units("1:00:00")
    ('00:48:00', '00:24:00', '1:00:00')
    """
    in_minutes = re.fullmatch(r"\d+(:\d+)?", limit)
    return format_time(parse_limit(limit)) if in_minutes else limit


class Charge(Strict):
    """What a site charges for its GPUs."""

    per_gpu_hour: float = Field(ge=0, allow_inf_nan=False)
    """For one GPU in one hour."""
    unit: str = Field(min_length=1, max_length=20, pattern=r"^\S+$")
    """What is counted, as the site calls it: SU, USD, core-h."""


class Partition(Strict):
    name: str = Field(pattern=r"^[^\s,]+$")
    max_time: Annotated[SlurmTime, Field(description="Longest wall time, HH:MM:SS, D-HH:MM:SS or UNLIMITED.")]
    default: bool = False
    max_nodes: int | None = Field(default=None, gt=0)
    """Most nodes of one job."""
    max_gpus: int | None = Field(default=None, gt=0)
    """Most GPUs of one user at a time."""
    gpu: Gpu | None = None
    """The GPU of this partition where it differs from the cluster's."""
    node: Node | None = None
    charge: Charge | None = None
    """What its GPUs cost, where that differs from the cluster's."""
    prelude: Prelude | None = None
    """Modules and Python of this partition, all of it, where they differ from the cluster's."""
    env: Environment | None = None
    """Environment variables of this partition instead of the cluster's."""
    note: str = ""

    _time = field_validator("max_time")(_check_limit)

    @model_validator(mode="after")
    def _names_no_environment(self) -> "Partition":
        python = self.prelude.python if self.prelude else None
        if python and python.kind == "conda" and python.env and not re.match(r"[/$~]", python.env):
            raise ValueError(
                f"prelude.python.env is the name '{python.env}': of a partition give the environment's folder, which "
                "`conda env list` shows"
            )
        return self

    @property
    def max_time_s(self) -> int:
        """Longest wall time, seconds."""
        return parse_limit(self.max_time)

    @property
    def time_limit(self) -> str:
        """The same with its units visible."""
        return _with_units(self.max_time)


Lifted = Literal["time", "nodes", "gpus"]
"""A limit of a partition that a QOS may lift."""


class Qos(Strict):
    """A quality of service of Slurm and its limits. A limit that is left out is not stated, and nothing is held to it."""

    name: str = Field(pattern=r"^[^\s,=]+$")
    max_time: (
        Annotated[SlurmTime, Field(description="Longest wall time, HH:MM:SS, D-HH:MM:SS or UNLIMITED.")] | None
    ) = None
    max_nodes: int | None = Field(default=None, gt=0)
    """Most nodes of one job."""
    max_gpus_per_job: int | None = Field(default=None, gt=0)
    max_gpus_per_user: int | None = Field(default=None, gt=0)
    """Most GPUs of one user at a time, for people: no job is refused for it."""
    partitions: list[str] = Field(default=[])
    """Partitions that it is for; empty: all."""
    default: bool = False
    """Whether Slurm gives it to a job on these partitions that names none."""
    lifts: list[Lifted] | None = None
    """Limits of the partition that do not hold under it: `time` (Slurm's flag PartitionTimeLimit), `nodes` (PartitionMaxNodes),
    `gpus` (OverPartQOS); [] for none. Left out: not known, so a job that names it and is over such a limit passes with a notice."""
    note: str = ""

    @field_validator("max_time")
    @classmethod
    def _time(cls, text: str | None) -> str | None:
        return text if text is None else _check_limit(text)

    @property
    def max_time_s(self) -> int | None:
        """Longest wall time, seconds."""
        return None if self.max_time is None else parse_limit(self.max_time)

    @property
    def time_limit(self) -> str | None:
        """The same with its units visible."""
        return None if self.max_time is None else _with_units(self.max_time)

    def is_for(self, partition: Partition | None) -> bool:
        """Whether jobs on the partition may have it; on one that is not known, yes."""
        return partition is None or not self.partitions or partition.name in self.partitions
