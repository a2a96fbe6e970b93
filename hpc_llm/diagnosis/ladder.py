"""The steps by which a run comes to need less GPU memory, the least costly one first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.method import LoraBlock, letters_of, load_method
from hpc_llm.planning.model import architecture, num_parameters
from hpc_llm.planning.parts import Precision
from hpc_llm.planning.recompute import AUTO, Share, letter_of, share_of_letter
from hpc_llm.records.metrics import has_bf16

_STAGES = {"z1": 1, "z2": 2, "z3": 3}
_USUAL_RANK = LoraBlock.model_fields["r"].default
_SHORTEST = 64
"""Tokens: below that a sequence's activations are nothing beside the model."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder."""

    flags: str
    why: str
    plan: Plan
    """The plan with that change; whoever can estimate memory can tell from it whether the step suffices."""


def rungs(plan: Plan) -> Iterator[Rung]:
    """The steps from the least costly one on; each keeps the ones before it, and its flags say all of them."""
    for why, changed in _steps(plan):
        yield Rung(_flags(plan, changed), why, changed)


def _steps(plan: Plan) -> Iterator[tuple[str, Plan]]:
    smaller = _smaller_micro_batch(plan)
    if smaller is not None:
        yield f"a smaller micro batch at the same global batch of {plan.batch.global_batch_size}", smaller
        plan = smaller
    for why, changed in _costly_settings(plan):
        yield why, changed
        plan = changed
    method = plan.method
    for letters, added, why in _more_saving(plan):
        method = _with_letter(plan, method, added) if added else letters
        plan = plan.changed(letters=letters, method=method, recompute=True)
        yield why, plan
    if plan.batch.sequence_length >= 2 * _SHORTEST:
        while (smallest := _smaller_micro_batch(plan)) is not None:
            plan = smallest  # before another experiment, the smallest batch of this one
        shorter = plan.changed(sequence_length=plan.batch.sequence_length // 2)
        yield "shorter sequences, which is another experiment", shorter


def alternatives(plan: Plan) -> Iterator[Rung]:
    """What trains the same with less memory, in no order: ways to save it, each with all micro batches of the same global batch."""
    for letters, added, recompute, whys in _ways(plan):
        changed = plan
        if whys:
            method = _with_letter(plan, plan.method, added) if added else letters
            changed = plan.changed(letters=letters, method=method, recompute=recompute)
            yield Rung(_flags(plan, changed), ", ".join(whys), changed)
        while (smaller := _smaller_micro_batch(changed)) is not None:
            changed = smaller
            batch = f"a smaller micro batch at the same global batch of {plan.batch.global_batch_size}"
            yield Rung(_flags(plan, changed), ", ".join((*whys, batch)), changed)


def kept_on_gpus(plan: Plan) -> Iterator[Rung]:
    """What trains the same with less of the host's memory, where an offload fills it: the same without, or split over all ranks."""
    parts = letters_of(plan).split("+")
    if "o" not in parts or not plan.parallel.gpus_per_node:
        return
    rest = [part for part in parts[1:] if part != "o"] if parts[0] in _STAGES else [p for p in parts if p != "o"]
    stages = dict.fromkeys(stage for stage in (parts[0], "z3") if stage in _STAGES)
    for stage in stages:
        for letters in dict.fromkeys((_spelled(stage, rest), _spelled(stage, _recomputing(rest)))):
            recompute = True if "r" in letters.split("+") else plan.model.recompute
            changed = plan.changed(letters=letters, method=letters, recompute=recompute)
            more = ", and recompute activations" if recompute != plan.model.recompute else ""
            yield Rung(_flags(plan, changed), f"nothing is kept on the host{more}", changed)


def _ways(plan: Plan) -> Iterator[tuple[str, str, Share, tuple[str, ...]]]:
    """Letters, the one that is added where that is all, the share of layers that are recomputed, and what each change is."""
    share = plan.model.recompute
    has_r = share is True
    yield plan.letters, "", share, ()
    if not has_r:
        letters, added, why = next(_more_saving(plan))
        yield letters, added, True, (why,)
    for letters, added, why in _more_saving(plan):
        if added:
            continue
        if not has_r:
            parts = (letter_of(share) if part == "r" else part for part in letters.split("+"))
            yield "+".join(filter(None, parts)), "", share, (why,)
        yield letters, "", True, (why,) if has_r else (why, "recompute activations")


def _flags(before: Plan, after: Plan) -> str:
    """The flags by which the one becomes the other."""
    batch, was = after.batch, before.batch
    said = [
        (f"--method {after.method}", after.method != before.method),
        (
            f"--micro-batch-size {batch.micro_batch_size} --gradient-accumulation-steps {batch.gradient_accumulation_steps}",
            batch.micro_batch_size != was.micro_batch_size,
        ),
        (f"--sequence-length {batch.sequence_length}", batch.sequence_length != was.sequence_length),
        (f"--set peft.r={after.model.peft and after.model.peft.r}", after.model.peft != before.model.peft),
        (f"--set attention={after.model.attention}", after.model.attention != before.model.attention),
        (f"--set precision={after.model.precision}", after.model.precision != before.model.precision),
    ]
    if _says_share(before, after):
        said.append((f"--set recompute={str(after.model.recompute).lower()}", True))
    return " ".join(flag for flag, is_other in said if is_other)


def _says_share(before: Plan, after: Plan) -> bool:
    """Whether the name of the method does not say which layers the changed plan recomputes."""
    share = before.model.recompute
    if after.model.recompute != share:  # a setting may have said the share that it was
        return not isinstance(share, bool) or after.method == before.method
    # Where as few layers as fit were asked for, planning anew would choose others for another batch.
    return after != before and after.method == before.method and _chooses_share(before.method)


def _chooses_share(method: str) -> bool:
    with contextlib.suppress(HpcLlmError):
        return load_method(method).recompute == AUTO
    return False


def _with_letter(plan: Plan, method: str, letter: str) -> str:
    """The method that recomputes as well; its own name where that or the plan has a share already, which a setting widens."""
    return method if plan.model.recompute or _chooses_share(method) else f"{method}+{letter}"


def _recomputing(letters: list[str]) -> list[str]:
    """The letters with all layers recomputed."""
    return [*(one for one in letters if share_of_letter(one) is None), "r"]


def _smaller_micro_batch(plan: Plan) -> Plan | None:
    """Half the micro batch or the next smaller one that divides the same global batch; None at 1."""
    sequences = plan.batch.micro_batch_size * plan.batch.gradient_accumulation_steps
    fitting = [n for n in range(1, plan.batch.micro_batch_size // 2 + 1) if sequences % n == 0]
    if not fitting:
        return None
    return plan.changed(micro_batch_size=fitting[-1], gradient_accumulation_steps=sequences // fitting[-1])


def _costly_settings(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """What the run has otherwise than usual and takes memory, each taken back: what it costs, and the plan then."""
    model = plan.model
    if model.peft is not None and model.peft.r > _USUAL_RANK:
        smaller = replace(model, peft=replace(model.peft, r=_USUAL_RANK))
        why = f"adapters of rank {_USUAL_RANK} instead of {model.peft.r}: their weights, gradients and states shrink with it"
        plan = replace(plan, model=smaller)
        yield why, plan
    if plan.model.attention == "eager":
        plan = replace(plan, model=replace(plan.model, attention="sdpa"))
        yield "eager attention keeps all scores of a sequence, which grow with its square", plan
    if not plan.model.quantization and plan.model.precision == "fp32" and plan.gpu.model is not None:
        known = has_bf16(plan.gpu.model)
        half: Precision = "fp16" if known is False else "bf16"
        plan = replace(plan, model=replace(plan.model, precision=half))
        doubt = ", where the GPU has bf16; else fp16" if known is None else ""
        yield f"half the bytes of weights and activations{doubt}", plan


def _more_saving(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Letters that save more than the plan's, one step at a time; the one that was added, where one was; and what it costs."""
    parts = letters_of(plan).split("+")
    stage = parts[0] if parts[0] in _STAGES else None
    rest = parts[1:] if stage or parts[0] == "ddp" else parts
    if "r" not in rest:
        has_some, rest = plan.model.recompute is not False, _recomputing(rest)
        what = "recompute activations of all layers" if has_some else "recompute activations"
        yield _spelled(stage, rest), "r", f"{what}: about a third more time"
    if plan.model.quantization is not None:
        return  # what is quantized cannot be moved, and what is not is small
    if stage != "z3" and plan.parallel.data > 1:
        stage = "z3"
        yield (
            _spelled(stage, rest),
            "",
            f"partition parameters, gradients and optimizer states over {plan.parallel.data} {'ranks' if plan.parallel.tensor == 1 else 'groups of ranks'}",
        )
    if "o" not in rest:
        stage, rest = "z3", ["o", *rest]
        yield (
            _spelled(stage, rest),
            "",
            "move optimizer states and parameters to the host: slow, and it needs host memory",
        )
    elif stage != "z3":
        stage = "z3"
        yield _spelled(stage, rest), "", "move the parameters to the host as well"


def _spelled(stage: str | None, rest: list[str]) -> str:
    if stage is not None:
        return "+".join([stage, *rest])
    return "+".join(rest if rest[0] in ("q", "lora", "qlora") else ["ddp", *rest])


def states_bytes(plan: Plan, letters: str | None = None) -> int | None:
    """What parameters, gradients and optimizer states take of one GPU at least; None where it cannot be told.

    The usual arithmetic of mixed precision: 2 bytes a parameter, 2 a gradient, 12 of Adam's states, each divided by the
    ranks that share it; in full precision 4, 4 and 8. Activations and buffers come on top. With `letters` as if the plan
    had those.
    """
    if (
        plan.model.quantization is not None
        or plan.model.peft is not None
        or plan.optimizer.type not in ("AdamW", "Adam")
    ):
        return None
    try:
        parameters = num_parameters(architecture(plan.model.name))
    except RequestError:
        return None
    # Nearly all of a model is in its layers; ranks that share these hold a part of them, and split that with other groups.
    parameters //= plan.parallel.tensor
    parts, ranks = (letters or plan.letters).split("+"), max(plan.parallel.world_size // plan.parallel.tensor, 1)
    stage = _STAGES.get(parts[0], 0)
    is_mixed = plan.model.precision in ("bf16", "fp16")
    weights, gradients, states = (2.0, 2.0, 12.0) if is_mixed else (4.0, 4.0, 8.0)
    if stage >= 1:
        states /= ranks
    if stage >= 2:
        gradients /= ranks
    if stage == 3:
        weights /= ranks
    if "o" in parts:
        states, gradients = 0.0, 0.0
        weights = 0.0 if stage == 3 else weights
    return int(parameters * (weights + gradients + states))


def host_bytes(plan: Plan, letters: str | None = None) -> int | None:
    """What offload moves to one node's memory at least: what the GPUs of its ranks are rid of. None where it cannot be told."""
    parts = (letters or plan.letters).split("+")
    on_gpu = states_bytes(plan, "+".join(parts))
    kept = states_bytes(plan, "+".join(part for part in parts if part != "o"))
    return None if on_gpu is None or kept is None else (kept - on_gpu) * plan.parallel.tasks_per_node
