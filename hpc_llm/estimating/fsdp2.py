"""What FSDP2 holds on a device: a share of everything in fp32, and the layer that it is at whole, in low precision."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.estimating.activations import Activations
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.deepspeed import unpacked
from hpc_llm.estimating.parts import Moment


def moments(case: Case, kept: Activations) -> Iterator[Moment]:
    """The moments of a step at which the most may be held."""
    ranks, trained, root = case.ranks, case.trained, case.sizes.root
    states = {
        "weights": (case.width * case.frozen + (0 if case.is_adapted else 4 * trained)) // ranks,
        "quantized weights": case.packed_bytes // ranks,
        "adapters": 4 * case.adapters // ranks,
        "optimizer states": case.moments_width * trained // ranks,
    }
    gathered = case.width * root
    again = kept.one_layer if case.plan.model.recompute else 0
    layer = case.width * case.sizes.largest_layer
    yield Moment(
        name="loss",
        terms={**states, "activations": kept.kept, "logits and loss": kept.loss, "gathered parameters": gathered},
    )
    yield Moment(
        name="backward",
        terms={
            **states,
            "activations": kept.kept + again,
            "gradients": case.width * root if case.trains_root else 0,
            "gathered parameters": gathered + 2 * layer,
            "largest temporary": unpacked(case) + 6 * case.sizes.largest_layer,
        },
    )
    of_root = root if case.trains_root else 0
    yield Moment(
        name="gradients of embedding and head",
        terms={
            **states,
            "gradients": 4 * (trained - of_root) // ranks + case.width * of_root,
            "communication buckets": 4 * of_root
            + (4 * of_root // ranks if ranks > 1 else 0)
            + (of_root if case.sizes.is_tied else 0),
            "gathered parameters": gathered,
        },
    )
    yield Moment(name="optimizer step", terms={**states, "gradients": 4 * trained // ranks})
