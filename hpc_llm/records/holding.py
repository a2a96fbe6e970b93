"""What the figures of a training are held to that its evaluations and the bytes of its parameters say. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.records.comparing import count_of
from hpc_llm.records.possible import figure_of

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Of one parameter of that type; of others several may share a byte."""


def of_evaluations(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """How many evaluations there were for what is said of them, by the names of `relations`."""
    evaluations, is_whole = count_of(result, "evaluations"), not result.get("resumed")
    has_best = result.get("best_step") is not None or result.get("best_eval_loss") is not None
    has_loss, perplexity = figure_of(result, "eval_loss") is not None, figure_of(result, "perplexity")
    return {
        # The last evaluation is one since the training went on, the best one may be older.
        "evaluations_of_loss": evaluations if has_loss else None,
        "evaluations_of_best": evaluations if is_whole and has_best else None,
        "evaluations_of_all": evaluations if is_whole else None,
        "all_steps": count_of(plan, "steps"),
        "lone_perplexity": perplexity if "eval_loss" in result and not has_loss else None,
    }


def of_parameters(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The bytes of all parameters by their number and type, and what one rank that has all of them holds; and all that it holds on the host."""
    held, types = result.get("held_bytes"), result.get("parameter_types")
    parts = held if isinstance(held, Mapping) else {}
    named = {name for of in types.values() if isinstance(of, list) for name in of} if isinstance(types, Mapping) else {}
    width = _BYTES.get(str(next(iter(named)))) if len(named) == 1 else None
    number = count_of(result, "num_parameters")
    is_plain = count_of(plan, "world_size") == 1 and plan.get("quantization") is None and width is not None
    return {
        "held_on_host": _held_on_host(parts),
        "bytes_of_parameters": number * width if is_plain and number and width else None,
        "held_of_parameters": _bytes_of(parts.get("parameters")) or None,
    }


def _held_on_host(parts: Mapping[str, Any]) -> int | None:
    """Bytes that a training on the CPU holds between steps; what a GPU's driver locks on the host is not counted as the process's everywhere."""
    known = [part for part in parts.values() if isinstance(part, Mapping)]
    if not known or any(part.get("device") != 0 for part in known):
        return None
    return sum(size for part in known if isinstance(size := part.get("host"), int)) or None


def _bytes_of(part: Any) -> int:
    places = (part.get("device"), part.get("host")) if isinstance(part, Mapping) else ()
    return sum(size for size in places if isinstance(size, int) and not isinstance(size, bool))
