"""What flat units hold on a device: all parameters in the run's precision, shares of gradients, fp32 copies and moments.

What is offloaded lies on the host; of gradients and of parameters that visit the device there are a few rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.estimating.activations import Activations
from hpc_llm.estimating.case import WIDTHS, Case
from hpc_llm.estimating.parts import Moment

_ROWS = 2
"""For gradients of a unit that are whole."""
_VISITING = 5
"""Rows for parameters that come from the host."""
_SLOTS = 4
"""Parts of the rows for gradients through which states are streamed."""
_OF_A_STEP = 28
"""Bytes that the step of a number on the device takes for a moment."""


def moments(case: Case, kept: Activations) -> Iterator[Moment]:
    """The moments of a step at which the most may be held. Nothing is made for a step itself: its space is that of gradients."""
    copies = 4 if case.width < 4 else 0
    reduced = WIDTHS[case.plan.engine.reduce_precision]
    own = case.trained // case.ranks
    unit = _largest_unit(case)
    states = {
        "weights": case.width * case.sizes.parameters,
        "optimizer states": (copies + case.moments_width) * own,
        "gradients": (4 if case.accumulates else reduced) * own,
        "communication buckets": _ROWS * (reduced * unit + (reduced * unit // case.ranks if case.accumulates else 0)),
    }
    if case.offloads("optimizer"):
        states = _with_states_on_host(case, reduced, unit)
    loss = {"activations": kept.kept, "logits and loss": kept.loss}
    backward = {"activations": kept.kept + kept.anew, "largest temporary": case.width * _largest_gradient(case)}
    yield Moment(name="loss", terms={**states, **loss})
    yield Moment(name="backward", terms={**states, **backward})
    if case.sizes.is_tied and case.trains_root:  # gradients of the head, those of the embedding, and their sum
        yield Moment(
            name="end of backward", terms={**states, "largest temporary": 3 * case.width * case.sizes.embedding}
        )
    if case.plan.engine.offloaded_step == "device":
        in_slots = _ROWS * reduced * unit // _SLOTS // (case.width + case.moments_width + reduced)
        yield Moment(name="optimizer step", terms={**states, "largest temporary": _OF_A_STEP * in_slots})


def _with_states_on_host(case: Case, reduced: int, unit: int) -> dict[str, int]:
    arriving = (reduced + (4 if case.accumulates else 0)) * unit // case.ranks
    found = {
        "weights": case.width * case.sizes.parameters,
        "communication buckets": _ROWS * (reduced * unit + arriving),
    }
    if case.offloads("param"):
        found["weights"] = 0
        found["gathered parameters"] = min(_VISITING, _units(case) + 1) * case.width * unit
    return found


def _units(case: Case) -> int:
    return -(-case.sizes.layers // case.plan.engine.layers_per_unit) + 2


def _largest_unit(case: Case) -> int:
    """Numbers of the largest row."""
    layers = min(case.plan.engine.layers_per_unit, case.sizes.layers)
    return max(layers * case.sizes.largest_layer, case.sizes.embedding)


def _largest_gradient(case: Case) -> int:
    """Numbers of gradients that are there before they are in their row: those of a compiled layer all at once."""
    at_once = case.sizes.largest_layer if case.plan.engine.compiled_layers else 0
    return max(case.sizes.embedding, at_once)
