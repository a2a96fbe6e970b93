"""Of which layers a plan recomputes activations, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError
from hpc_llm.planning.draft import Draft
from hpc_llm.planning.recipe import layer_counts_of
from hpc_llm.planning.recompute import Share, spread
from hpc_llm.text.late_pattern import late_pattern

if TYPE_CHECKING:
    from hpc_llm.planning.checkpoint import Checkpoint
    from hpc_llm.planning.method import Method
    from hpc_llm.planning.tasks import TaskKind

LEFT_OPEN = ": all layers, until the estimate says how few are enough"
"""Ends the origin of `recompute` in a plan that leaves it open."""

_LAYERS = late_pattern(r"(?:\A|: )((?:no layer|all layers|\d{1,9} of \d{1,9} layers)(?![a-z]).*)\Z")


def layers_in(origin: str) -> str | None:
    """What an origin of `recompute` says of how many layers that are, and why; None where all or none were asked for.

    >>> layers_in("method z3+rauto: 5 of 32 layers, the fewest with which it fits by the estimate"), layers_in("method z3+r")
    ('5 of 32 layers, the fewest with which it fits by the estimate', None)
    """
    found = _LAYERS.search(origin)
    return found[1] if found else None


def choose_recompute(method: Method, task: TaskKind, model: str, found: Checkpoint | None, draft: Draft) -> Share:
    """The share that the method or a setting names; for `auto` the estimated one, and all layers as long as there is none.

    Raises PlanError where a search leaves it open.
    """
    share: Share | str = draft.put("recompute", method.recompute, f"method {method.name}")
    origin = draft.origins["recompute"]
    if not isinstance(share, str):
        counted = _counted(share, layer_counts_of(model, found))
        value: Share = draft.computed("recompute", share, f"{origin}{counted}")
        return value
    if task.search is not None:
        raise PlanError(
            f"recompute is auto ({origin}), and task {task.name} looks for the micro batch, with each of which other layers would be "
            "enough. Choose a share, as --set recompute=0.25, or true for all layers."
        )
    chosen, why = draft.estimated.get("recompute", (True, None))
    decided: Share = draft.computed("recompute", chosen, f"{origin}{LEFT_OPEN if why is None else f': {why}'}")
    return decided


def _counted(share: Share, counts: tuple[int, ...] | None) -> str:
    """What a share comes to in whole layers, to be added to where it comes from."""
    if isinstance(share, bool) or counts is None:
        return ""
    return f": {sum(len(spread(share, one)) for one in counts)} of {sum(counts)} layers"
