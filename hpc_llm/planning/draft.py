"""A plan on the way: what was asked for, and each value that is decided together with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import RequestError
from hpc_llm.immutable import dataclass
from hpc_llm.planning.engines import Chosen
from hpc_llm.planning.experiment import Experiment
from hpc_llm.planning.settings import Settings
from hpc_llm.site.schedulers import SchedulerFacts, find_scheduler

if TYPE_CHECKING:
    from hpc_llm.site.hardware import Hardware

FALLBACKS: dict[str, Any] = {
    "nodes": 1,
    "model": "llama2-7b",
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "sequence_length": 350,  # the homework's
    "steps": 30,
    "warmup_steps": 5,
    "seed": 42,
}
LARGEST_COUNT = 2**31 - 1
"""Slurm and torch count in 32 bits what a plan counts."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """What planning needs to know from outside: found by the caller, so that plan() stays pure."""

    scheduler: str
    """Its name, `auto` already resolved."""
    hardware: Hardware | None = None
    """This machine, for clusters with `gpu.vendor: auto`."""
    account: str | None = None
    """Account from the user's environment."""
    caches: str | None = None
    """Folder in which data are prepared."""

    @property
    def facts(self) -> SchedulerFacts:
        """What the scheduler is."""
        return find_scheduler(self.scheduler)


class Draft:
    """The values of a plan as they are decided: where each comes from, and what the user should be told."""

    def __init__(self, settings: Settings, estimated: Mapping[str, Chosen] | None = None) -> None:
        self.settings = settings
        self.estimated = estimated or {}
        """What the estimate chose of what the request leaves to it, by short name."""
        self.origins: dict[str, str] = {}
        self.notices: list[str] = []

    def put(self, name: str, value: Any, origin: str) -> Any:
        """The value of the field with that short name, as the settings leave it."""
        is_set = bool(self.settings.of(name))
        self.origins[name] = self.settings.origin_of(name) if is_set else origin
        return self.settings.applied(name, value)

    def first(self, name: str, *choices: tuple[Any, str]) -> Any:
        """The first choice that is not None, as the settings leave it; None if there is none."""
        for value, origin in choices:
            if value is not None:
                return self.put(name, value, origin)
        return self.put(name, None, "not set")

    def computed(self, name: str, value: Any, origin: str) -> Any:
        """A value that follows from others, whatever was put before."""
        self.origins[name] = origin
        return value


class Said:
    """The experiment's own values as (value, origin) pairs."""

    def __init__(self, experiment: Experiment, sources: Mapping[str, str]) -> None:
        self.experiment = experiment
        self.sources = sources

    def __call__(self, name: str) -> tuple[Any, str]:
        return getattr(self.experiment, name), self.sources.get(name, "request")


def positive(name: str, value: int) -> None:
    if value < 1:
        raise RequestError(f"{name} is {value}, it must be at least 1.")
    if value > LARGEST_COUNT:
        raise RequestError(f"{name} is {value}, it must be at most {LARGEST_COUNT}.")


def one_line(what: str, text: str, origin: str = "") -> None:
    """Raise a RequestError for what would break a #SBATCH line; `origin` is who says it."""
    if not text:
        raise RequestError(f"{what} is empty{origin and f' ({origin})'}. Give --{what} NAME, or leave it out.")
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise RequestError(
            f"{what} {text!r}{origin and f' ({origin})'} holds a line break or another control character. Give --{what} NAME, in one line."
        )
