"""What there is to choose from: clusters, methods, models, and the causes that diagnosis knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hpc_llm.errors import RequestError, notice

if TYPE_CHECKING:
    from hpc_llm.causes.cause import Cause
    from hpc_llm.planning.method import Method
    from hpc_llm.site.cluster import Cluster

T = TypeVar("T")


def clusters() -> list[Cluster]:
    """All cluster profiles; of one that is not valid a Notice tells, and it is left out."""
    from hpc_llm.site.cluster import cluster_names, load_cluster

    return _valid(cluster_names(), load_cluster)


def cluster(name: str) -> Cluster:
    """One cluster's profile.

    Raises:
        ProfileError: there is none of that name, or it is not valid.
    """
    from hpc_llm.site.cluster import load_cluster

    return load_cluster(name)


def cluster_schema() -> dict[str, Any]:
    """The JSON schema of a profile, for editors."""
    from hpc_llm.planning.schema import profile_schema
    from hpc_llm.site.cluster import Cluster

    return profile_schema(Cluster)


def own_profiles() -> Path:
    """The folder of a user's own profiles, which may not be there."""
    from hpc_llm.site.profiles import user_config

    return user_config() / "clusters"


def methods() -> list[Method]:
    """All methods; of one that is not valid a Notice tells, and it is left out."""
    from hpc_llm.planning.method import load_method, method_names

    return _valid(method_names(), load_method)


def method(name: str) -> Method:
    """One method, by its name or its letters, as z3+o+r.

    Raises:
        ProfileError: there is none of that name, or it is not valid.
    """
    from hpc_llm.planning.method import load_method

    return load_method(name)


def recomputed(method: Method) -> str:
    """Of which layers the method recomputes activations, in words."""
    from hpc_llm.planning.recompute import in_words

    return in_words(method.recompute)


def deepspeed_config(method: Method) -> dict[str, Any]:
    """The plain DeepSpeed config of a method, for a program of one's own; batch sizes are 1."""
    from hpc_llm.planning.draft import FALLBACKS
    from hpc_llm.planning.parts import BatchShape, OptimizerSetup
    from hpc_llm.planning.plan import complete_deepspeed
    from hpc_llm.planning.recipe import frozen_by, learning_rate

    precision = "bf16" if method.precision == "auto" else method.precision
    shape = BatchShape(micro_batch_size=1, gradient_accumulation_steps=1, global_batch_size=1, sequence_length=1)
    # Plain DeepSpeed would take its own default, which suits no model of this kind.
    rate, _ = learning_rate(
        FALLBACKS["model"], None, frozen_by(lora=method.peft is not None, quantized=method.quantization is not None)
    )
    optimizer = method.optimizer.model_dump()
    if not isinstance(optimizer["type"], str):
        *_, optimizer["type"] = optimizer["type"]  # those before it are for engines that are not DeepSpeed
    setup = OptimizerSetup(**{**optimizer, "lr": rate if optimizer["lr"] is None else optimizer["lr"]})
    config = complete_deepspeed(method.deepspeed, shape, precision, setup)
    # The global batch follows from the number of ranks: DeepSpeed computes it when the key is absent.
    return {key: value for key, value in config.items() if key != "train_batch_size"}


def models() -> list[dict[str, Any]]:
    """The shapes of all presets, with `num_parameters`."""
    from hpc_llm.planning.model import PRESETS

    return [model(name) for name in PRESETS]


def model(name: str | os.PathLike[str]) -> dict[str, Any]:
    """The shape of a preset, or of a folder with a model's config.json, with `num_parameters`.

    Raises:
        RequestError: it is neither.
    """
    from hpc_llm.planning.model import architecture, num_parameters

    shape = architecture(os.fspath(name))
    return {**asdict(shape), "num_parameters": num_parameters(shape)}


def causes() -> tuple[Cause, ...]:
    """Every cause that diagnosis knows, those of other packages too."""
    from hpc_llm.diagnosis import all_causes

    return tuple(all_causes().values())


def _valid(names: Iterable[str], load: Callable[[str], T]) -> list[T]:
    found = []
    for name in names:
        try:
            found.append(load(name))
        except RequestError as error:  # not valid, not readable, or refused where it was found
            notice(str(error))
    return found
