"""What a profile that extends another loses where its list of partitions replaces the other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpc_llm.errors import ProfileError, notice

_OF_A_CARD = ("vendor", "model")
_KEPT = ("gpu", "node", "max_nodes", "max_gpus", "prelude", "env")
"""What of a partition decides how a job is planned."""


def check_partitions(base: dict[str, Any], whole: dict[str, Any], parent: str, path: Path) -> None:
    """Hold the partitions of a profile to those of the same names in `base`, which it extends as `parent`: what they say no more is told.

    Raises ProfileError where one had another card than the cluster and says nothing of its GPU: a plan for the cluster's would be made in silence.
    """
    before = {one.get("name"): one for one in _mappings(base.get("partitions"))}
    for new in _mappings(whole.get("partitions")):
        old = before.get(new.get("name"), {})
        lost = [
            name for name in _KEPT if old.get(name) is not None and name not in new and old[name] != whole.get(name)
        ]
        if not lost:
            continue
        again = f"`partitions` replaces the whole list of {parent}. Write {' and '.join(lost)} there again, as `hpc-llm clusters {parent} --json` shows"
        name, card = new.get("name"), _card(old.get("gpu"))
        if "gpu" in lost and card != (there := _card(whole.get("gpu"))):
            raise ProfileError(
                f"{path}: partition {name} says nothing of its GPU, which is {card[1]} in {parent}, and the cluster's is {there[1]}: {again}; "
                "gpu: null means the cluster's."
            )
        notice(
            f"{path}: partition {name} no longer has the {' and '.join(lost)} of {parent}: {again}; null means what the cluster has"
        )


def _mappings(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _card(gpu: object) -> tuple[Any, ...]:
    return tuple(gpu.get(name) for name in _OF_A_CARD) if isinstance(gpu, dict) else (None, None)
