"""What DeepSpeed holds on a device, by ZeRO's stage. Read from DeepSpeed 0.19.8 and held to measured runs."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.estimating.activations import Activations
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.parts import Moment

_BUCKET = 5e8
"""Numbers of a bucket of gradients where the config does not say; of those that are fetched ahead a tenth."""
_LIVE = 1e9
_PREFETCH = 5e7
_SUB_GROUP = 1e9


def moments(case: Case, kept: Activations) -> Iterator[Moment]:
    """The moments of a step at which the most may be held."""
    if case.stage == 3:
        yield from _stage3(case, kept)
    elif case.stage and case.offloads("optimizer"):
        yield from _offloaded(case, kept)
    elif case.stage:
        yield from _stage12(case, kept)
    else:
        yield from _whole(case, kept)


def held(case: Case) -> dict[str, int]:
    """Weights that every rank has whole."""
    return {
        "weights": case.width * (case.frozen + (0 if case.is_adapted else case.trained)),
        "quantized weights": case.packed_bytes,
        "adapters": case.width * case.adapters,
    }


def head_gradient(case: Case) -> int:
    """The first gradient of a step, while nearly all activations are still there."""
    return case.width * case.sizes.embedding if case.trains_root else 0


def unpacked(case: Case) -> int:
    """The weights of one quantized layer as they multiply."""
    return case.width * case.sizes.largest_matrix if case.is_quantized else 0


def _whole(case: Case, kept: Activations) -> Iterator[Moment]:
    copies = 4 if case.width < 4 else 0
    states = {**held(case), "optimizer states": case.trained * (copies + case.moments_width)}
    before = {**states, **case.sum_of_gradients(4 * case.trained)}
    yield Moment(name="loss", terms={**before, "activations": kept.kept, "logits and loss": kept.loss})
    yield Moment(name="backward", terms={**before, **_backward(case, kept)})
    gradients = 6 if case.moments_width == 2 else 10
    yield Moment(
        name="optimizer step",
        terms={**states, "gradients": case.trained * 4, "largest temporary": case.trained * (gradients - 4)},
    )


def _backward(case: Case, kept: Activations) -> dict[str, int]:
    """While the last layer's gradients are made: what recompute has made anew included."""
    return {
        "activations": kept.kept + kept.anew,
        "gradients": head_gradient(case),
        "largest temporary": unpacked(case),
    }


def _bucket(case: Case) -> int:
    """Bytes of a bucket of gradients, which is there whole however little trains."""
    return case.width * int(case.zero.get("reduce_bucket_size", _BUCKET))


def _buckets(case: Case) -> int:
    """Bytes of the buckets that gradients are gathered in, and of those that are under way: two each where these overlap."""
    each = 2 if case.zero.get("overlap_comm", False) else 1
    return each * (_bucket(case) + min(_bucket(case), case.width * case.trained))


def _stage12(case: Case, kept: Activations) -> Iterator[Moment]:
    states = {**held(case), "optimizer states": case.trained * (4 + case.moments_width) // case.ranks}
    # Stage 1 keeps them whole until the last micro batch.
    kept_gradients = case.width * case.trained // (1 if case.stage == 1 else case.ranks)
    before = {**states, **case.sum_of_gradients(kept_gradients)}
    yield Moment(name="loss", terms={**before, "activations": kept.kept, "logits and loss": kept.loss})
    yield from _reduced_bucketwise(case, kept, before)
    yield Moment(
        name="optimizer step",
        terms={
            **states,
            "gradients": 4 * case.trained // case.ranks,
            "largest temporary": 4 * case.trained // case.ranks,
        },
    )


def _reduced_bucketwise(case: Case, kept: Activations, states: dict[str, int]) -> Iterator[Moment]:
    """Gradients fill the buckets while activations are given up; a full one is copied to be summed."""
    filled = 2 if case.zero.get("overlap_comm", False) else 1
    backward = _backward(case, kept)
    yield Moment(name="backward", terms={**states, **backward, "communication buckets": filled * _bucket(case)})
    # A tied head's gradient waits for that of the embedding; any other leaves with the first bucket.
    waiting = head_gradient(case) if case.sizes.is_tied else 0
    in_flight = {**backward, "gradients": waiting, "communication buckets": _buckets(case)}
    in_flight["activations"] = int(backward["activations"] * _left(case, filled))
    yield Moment(name="buckets in flight", terms={**states, **in_flight})


def _offloaded(case: Case, kept: Activations) -> Iterator[Moment]:
    """The optimizer on the host; gradients leave bucket by bucket."""
    states = held(case)
    yield Moment(name="loss", terms={**states, "activations": kept.kept, "logits and loss": kept.loss})
    yield from _reduced_bucketwise(case, kept, states)


def _left(case: Case, filled: int) -> float:
    """Share of the activations that is still there when so many buckets are full of gradients."""
    first = 0 if case.sizes.is_tied or not case.trains_root else case.sizes.embedding
    in_layers = case.trained - (case.sizes.root if case.trains_root else 0)
    numbers = filled * _bucket(case) // case.width - first
    return min(max(1 - numbers / in_layers, 0.0), 1.0) if in_layers > 0 else 1.0


def _stage3(case: Case, kept: Activations) -> Iterator[Moment]:
    ranks, trained = case.ranks, case.trained
    states = {name: (0 if case.offloads("param") else size // ranks) for name, size in held(case).items()}
    if not case.offloads("optimizer"):
        states["gradients"] = case.width * trained // ranks
        states["optimizer states"] = trained * (4 + case.moments_width) // ranks
    elif back := kept_back(case):
        states["gradients"] = 4 * back
        states["optimizer states"] = (4 + case.moments_width) * back
    states["communication buckets"] = _bucket(case)
    states["gathered parameters"] = _gathered(case)
    yield Moment(name="loss", terms={**states, "activations": kept.kept, "logits and loss": kept.loss})
    largest = head_gradient(case) + unpacked(case)
    yield Moment(name="backward", terms={**states, "activations": kept.kept + kept.anew, "largest temporary": largest})
    if not case.offloads("optimizer"):
        states.pop("gathered parameters")
        if case.plan.model.precision == "fp16":  # which gradients are infinite, which are not numbers, which are either
            yield Moment(name="check for overflow", terms={**states, "largest temporary": 3 * trained // ranks})
        yield Moment(name="optimizer step", terms={**states, "largest temporary": 6 * sub_group(case)})


def sub_group(case: Case) -> int:
    """Numbers that a rank steps at a time with stage 3."""
    return min(_number(case, "sub_group_size", _SUB_GROUP), -(-case.trained // case.ranks))


def kept_back(case: Case) -> int:
    """Numbers of a rank's part whose states stay on the device though the optimizer is offloaded: of the sub-groups of stage 3
    as many of the first as DeepSpeed's `ratio` leaves, rounded down."""
    ratio = float((case.zero.get("offload_optimizer") or {}).get("ratio", 1.0))
    if case.stage != 3 or not case.offloads("optimizer") or ratio >= 1:
        return 0
    groups = list(_sub_groups(case))
    return sum(groups[: int((1 - ratio) * len(groups))])


def _sub_groups(case: Case) -> Iterator[int]:
    """Numbers of a rank in each: whole parameters, until they are as many as is asked for or more."""
    size, group = sub_group(case), 0
    for part in _parameters(case):
        group += -(-part // case.ranks)
        if group >= size:
            yield group
            group = 0
    if group:
        yield group


def _parameters(case: Case) -> Iterator[int]:
    """What trains in the order of the model, its matrices as large as the largest of them."""
    ends = case.sizes.embedding if case.trains_root else 0
    last = 0 if case.sizes.is_tied else ends
    if ends:
        yield ends
    left, each = case.trained - ends - last, max(case.sizes.largest_matrix, 1)
    while left > 0:
        yield min(each, left)
        left -= each
    if last:
        yield last


def _number(case: Case, name: str, fallback: float) -> int:
    """Of the config, which knows some keys with `stage3_` in front and without."""
    return int(case.zero.get(f"stage3_{name}", case.zero.get(name, fallback)))


def _gathered(case: Case) -> int:
    """Parameters that are whole for a while; a single rank has nothing to gather but what lies on the host."""
    everything = case.sizes.parameters
    live = min(_number(case, "max_live_parameters", _LIVE), everything)
    if case.offloads("param"):
        live = min(live + _number(case, "prefetch_bucket_size", _PREFETCH), everything)
        # The embedding is fetched beside what may be live: no part of a parameter is.
        beside = min(case.sizes.embedding, everything - live) if case.ranks > 1 else 0
        return case.width * (live + beside)
    return case.width * live if case.ranks > 1 else 0


def fragments(case: Case) -> int:
    """What was held while the optimizer was made and stays in pieces: seen where a run died with as much unused."""
    if case.is_adapted or case.is_quantized or case.stage == 3:
        return 0
    return case.trained * (case.width if case.stage else 4)
