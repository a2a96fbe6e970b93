"""Whether ranks can share each layer of a plan's model (`--tensor-parallel`), by what it is made of and how it is trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError, counted
from hpc_llm.planning.model import MODEL_TYPES, PRESETS
from hpc_llm.planning.parts import ModelSetup, Parallel
from hpc_llm.planning.recipe import family_of
from hpc_llm.planning.tasks import TaskKind

if TYPE_CHECKING:
    from hpc_llm.planning.checkpoint import Checkpoint


def check_task(task: TaskKind, tensor: int | None) -> None:
    """Raise PlanError where a task is asked to let ranks share layers, and takes whole ones."""
    if tensor is not None and tensor != 1 and not task.trains:
        why = "is one process" if task.is_on_host else "has the whole model on each rank"
        raise PlanError(f"--tensor-parallel {tensor}: task {task.name} {why}. Leave it out.")


def check_ranks(tensor: int, per_node: int, gpus: int) -> None:
    """Raise PlanError where the ranks of a node do not come out even: those that share layers talk within each of them.

    `gpus` are those that a node has, 0 where ranks run on its CPU.
    """
    if tensor < 1 or per_node % tensor:
        there = counted(per_node, "GPU" if gpus else "rank")
        more = f", or --gpus-per-node {tensor}" if gpus else f", or --set tasks_per_node={tensor}"
        can_be = tensor > 1 and gpus % tensor == 0
        raise PlanError(
            f"--tensor-parallel {tensor}: the ranks that share layers are on one node, and of {there} per node "
            f"{tensor} cannot be taken evenly. Choose {_listed(divisors(per_node))}{more if can_be else ''}."
        )


def check_sharing(model: ModelSetup, found: Checkpoint | None, parallel: Parallel) -> None:
    """Raise PlanError where the layers of the model cannot be shared by so many ranks; one that cannot be seen from here passes."""
    tensor = parallel.tensor
    if tensor == 1:
        return
    if model.quantization is not None:
        raise PlanError(
            f"--tensor-parallel {tensor}: weights in {model.quantization.kind} are packed whole, and no rank can have a part of "
            "one. Choose a method without q: lora and z3 work."
        )
    family = family_of(model.name, found)
    if family and family not in MODEL_TYPES:
        raise PlanError(
            f"--tensor-parallel {tensor}: how ranks may share the layers of {family} is not known, only of "
            f"{', '.join(MODEL_TYPES)}. Leave it out; z3 splits any model."
        )
    sizes = shared_sizes(model.name, found)
    wrong = {what: size for what, size in sizes.items() if size % tensor}
    if wrong:
        has = ", ".join(f"{what} {size}" for what, size in sizes.items())
        valid = [n for n in divisors(math.gcd(*sizes.values())) if parallel.tasks_per_node % n == 0]
        choice = f"Choose {_listed(valid)}" if len(valid) > 1 else "With these ranks per node only 1 is left"
        raise PlanError(
            f"--tensor-parallel {tensor}: it does not divide {_and(list(wrong))} of {model.name} ({has}). {choice}."
        )


def shared_sizes(model: str, found: Checkpoint | None) -> dict[str, int]:
    """What of each layer is divided, in words and counts; empty where the config cannot be seen from here."""
    known = PRESETS.get(model)
    config = known.config_values() if known is not None else found.config if found is not None else {}
    heads = config.get("num_attention_heads")
    asked = {
        "attention heads": heads,
        "key-value heads": config.get("num_key_value_heads") or heads,
        "MLP width": config.get("intermediate_size"),
    }
    return {what: size for what, size in asked.items() if isinstance(size, int) and size > 0}


def divisors(number: int) -> list[int]:
    """All that divide it, 1 first."""
    return [n for n in range(1, number + 1) if number % n == 0]


def _listed(numbers: list[int]) -> str:
    return f"one of {', '.join(map(str, numbers))}" if len(numbers) > 1 else str(numbers[0])


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
