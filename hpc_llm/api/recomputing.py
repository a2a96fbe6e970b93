"""Of how few layers a run recomputes activations where that is left to the estimate (`recompute=auto`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from hpc_llm.errors import RequestError

if TYPE_CHECKING:
    from hpc_llm.estimating.parts import Fit
    from hpc_llm.planning.engines import Chosen
    from hpc_llm.planning.experiment import Plan, PlanWithOrigins
    from hpc_llm.site.cluster import Cluster

Ask: TypeAlias = "Callable[[Mapping[str, Chosen]], PlanWithOrigins]"
"""The plan in which the estimate has chosen these values, each with its reason."""


def with_fewest_recomputed(ask: Ask, cluster: Cluster) -> PlanWithOrigins:
    """The plan in which just as many layers are recomputed as its device needs to have room for it for certain.

    Each share is planned by itself, for with another one another engine may suit. Where none is enough, or nobody says what there is, it is
    all layers. Raises what planning raises.
    """
    from hpc_llm.api.fit import as_it_is_here
    from hpc_llm.planning.recompute_choice import LEFT_OPEN

    planned = ask({})
    if not planned.origins["recompute"].endswith(LEFT_OPEN):
        return planned
    from hpc_llm.estimating.parts import Fit

    here = as_it_is_here(cluster)
    verdict = _verdict(planned.plan, here)
    if verdict is Fit.UNKNOWN:
        return ask({"recompute": (True, "all layers, for nobody can say what fits")})
    for share, why in _shares(planned.plan):
        one = ask({"recompute": (share, why)})
        if _verdict(one.plan, here) is Fit.FITS:
            return one
    return ask({"recompute": (True, f"all layers, with which the estimate still says: {verdict.words}")})


def _shares(plan: Plan) -> Iterator[Chosen]:
    """From none on, a layer of the longest row of them more each time."""
    from hpc_llm.estimating.shapes import sizes_in

    layers = max(block.count for block in sizes_in(plan).blocks)
    yield False, "no layer, for it fits by the estimate"
    for number in range(1, layers):
        yield round(number / layers, 4), f"{number} of {layers} layers, the fewest with which it fits by the estimate"
    yield True, "all layers, the fewest with which it fits by the estimate"


def _verdict(plan: Plan, cluster: Cluster) -> Fit:
    """Whether there is room on the device that computes."""
    from hpc_llm.api.fit import memory_there
    from hpc_llm.estimating.parts import Fit

    try:
        memory = memory_there(plan, cluster)
    except RequestError:
        return Fit.UNKNOWN
    return Fit.UNKNOWN if memory is None else (memory.device or memory.host).verdict
