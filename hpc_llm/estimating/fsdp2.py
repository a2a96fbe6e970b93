"""What FSDP2 holds on a device: a share of everything in fp32, and the layer that it is at whole, in low precision."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.estimating.activations import Activations
from hpc_llm.estimating.case import WIDTHS, Case
from hpc_llm.estimating.deepspeed import head_gradient, unpacked
from hpc_llm.estimating.parts import Moment


def moments(case: Case, kept: Activations) -> Iterator[Moment]:
    """The moments of a step at which the most may be held."""
    ranks, root = case.shares, case.sizes.root
    states = {
        "weights": (case.width * case.frozen + (0 if case.is_adapted else 4 * case.trained)) // ranks,
        "quantized weights": case.packed_bytes // ranks,
        "adapters": 4 * case.adapters // ranks,
        "optimizer states": case.moments_width * case.trained // ranks,
    }
    before = {**states, **case.sum_of_gradients(4 * case.trained // ranks)}
    gathered = case.width * root
    units = min(case.plan.engine.layers_per_unit, case.sizes.layers)
    layer = 0 if case.is_quantized else units * case.sizes.largest_layer
    keeps = case.plan.engine.keeps_parameters and not case.is_quantized
    if keeps:
        gathered += case.width * (case.sizes.parameters - root - layer)
    elif case.is_quantized and case.plan.engine.keeps_parameters:
        gathered += case.packed_bytes  # packed layers stay as they were gathered
    if not case.is_quantized:
        yield from _forward(case, kept, before, keeps=keeps)
    at_loss = gathered + (case.width * layer if keeps else 0)
    yield Moment(
        name="loss",
        terms={**before, "activations": kept.kept, "logits and loss": kept.loss, "gathered parameters": at_loss},
    )
    reduced = WIDTHS[case.plan.engine.reduce_precision]
    of_layer = {
        "gathered parameters": gathered + case.width * layer,
        "largest temporary": unpacked(case) + (0 if case.is_adapted else (reduced + case.width) * layer),
    }
    yield Moment(
        name="backward",
        terms={
            **before,
            "activations": _while_a_unit_is_summed(case, kept, units),
            "gradients": head_gradient(case),
            **of_layer,
        },
    )
    in_layers = case.trained - (root if case.trains_root else 0)
    if keeps:  # until its own backward pass is over, that of all others by now
        of_layer["gathered parameters"] = case.width * (root + layer)
    gradients = 4 * max(in_layers - layer, 0) // ranks + head_gradient(case)
    yield Moment(
        name="backward of the first layer",
        terms={**states, "activations": kept.one_layer, "gradients": gradients, **of_layer},
    )
    if case.trains_root:
        yield Moment(
            name="gradients of embedding and head",
            terms={
                **states,
                "gradients": 4 * in_layers // ranks + case.width * root,
                # Its parameters are given up before their gradients are summed; what is tied is there for both of its uses.
                "communication buckets": (5 if case.sizes.is_tied else 4) * root,
                "gathered parameters": case.width * root if case.sizes.is_tied else 0,
            },
        )
    yield Moment(name="optimizer step", terms={**states, "gradients": 4 * case.trained // ranks})


def _forward(case: Case, kept: Activations, before: dict[str, int], *, keeps: bool) -> Iterator[Moment]:
    """The beginning of each unit in the forward pass: its parameters lie in what was gathered and where they are used, and the unit
    before still lies in what was gathered for it. What of units of eight layers is more than anything later, where none of them train."""
    layers, each = case.sizes.layers, case.width * case.sizes.largest_layer
    units = min(case.plan.engine.layers_per_unit, layers)
    for done in range(0, layers, units):
        unit = min(units, layers - done)
        whole = case.width * case.sizes.root + each * ((done if keeps else 0) + unit)
        yield Moment(
            name="forward",
            terms={
                **before,
                "activations": kept.kept * done // layers,
                "gathered parameters": whole,
                "largest temporary": each * (unit + (units if done else 0)),
            },
        )


def _while_a_unit_is_summed(case: Case, kept: Activations, layers: int) -> int:
    """Activations when the last unit, of so many layers, is done but for its first one: what the others have kept is gone."""
    row = case.sizes.blocks[-1].count
    first, recomputed = max(row - layers, 0), case.recomputed(row)
    gone = sum(one not in recomputed for one in range(first + 1, row))
    return kept.kept + kept.one_layer * ((first in recomputed) - gone)
