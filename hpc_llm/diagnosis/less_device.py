"""What to change of a run whose GPU was full, by the plan's own arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.ladder import Rung, alternatives, host_bytes, rungs, states_bytes
from hpc_llm.diagnosis.suffices import first_that_fits, seconds
from hpc_llm.diagnosis.weighed import Scales, Weighed, gib, scales_of
from hpc_llm.estimating.parts import Fit
from hpc_llm.planning.method import letters_of

_DECIDE = "more or larger GPUs, or a smaller --model, is for you to decide"


def steps_down(case: Case) -> list[str]:
    """The steps that need clearly less of the GPU than the run that failed, and what is left when none does."""
    scales, room = scales_of(case), case.gpu_bytes
    is_weighed = scales is not None and scales.before.device is not None
    lines = list(_weighed(scales) if scales is not None and is_weighed else _by_states(case))
    states = states_bytes(case.plan, letters_of(case.plan))
    if states is not None and room is not None and states >= room:
        need = f"parameters, gradients and optimizer states alone take {gib(states)} of the GPU's {gib(room)}"
        more = f"no smaller batch helps: {need}" if lines else f"{need}: it takes more GPUs, or a smaller --model"
        return [*lines, more]
    if scales is not None and is_weighed:
        return [*lines, *_unexplained(scales, bool(lines))]
    return lines or [f"it saves memory in all ways that there are: {_DECIDE}"]


def _weighed(scales: Scales) -> Iterator[str]:
    """The quickest of what is enough, then the steps of the ladder of which each needs less than the ones before."""
    plan, before = scales.case.plan, scales.before
    first = first_that_fits(
        plan,
        scales.cluster,
        lambda memory: scales.is_less_on_device(memory) and scales.fits(memory) is Fit.FITS,
    )
    found = scales.weigh(first.plan) if first is not None else None
    if first is not None and found is not None:
        is_known = scales.on_device(before) is Fit.FITS
        best = "the quickest of what takes clearly less" if is_known else "enough, and the quickest of what is"
        yield _line(scales, first, found, f", {best}")
    least = before.device.high if before.device else 0
    for rung in rungs(plan):
        weighed = scales.weigh(rung.plan)
        device = weighed.memory.device if weighed else None
        if weighed is None or device is None or not scales.is_less_on_device(weighed.memory) or device.high >= least:
            continue
        verdict = scales.fits(weighed.memory)
        if verdict is Fit.DOES_NOT_FIT:
            continue
        least = device.high
        if found is None or _is_other_way(scales, weighed, found):
            doubt = ", which is less and too close to call" if verdict is Fit.TOO_CLOSE else ""
            yield _line(scales, rung, weighed, doubt)


def _is_other_way(scales: Scales, step: Weighed, first: Weighed) -> bool:
    """Whether a step needs less of the GPU than the one that is advised first, or is enough and quicker."""
    if step.memory.device is None or first.memory.device is None or step.memory.device.high < first.memory.device.high:
        return True
    times = [seconds(one.plan, scales.cluster) for one in (step, first)]
    return scales.fits(step.memory) is Fit.FITS and None not in times and times[0] < times[1]  # type: ignore[operator]


def _line(scales: Scales, rung: Rung, found: Weighed, more: str) -> str:
    before, after = scales.before.device, found.memory.device
    said = f"{gib(after.high)} of a GPU at most in place of {gib(before.high)}" if before and after else ""
    return f"{rung.flags}{found.option}  ({rung.why}; by the estimate {said}{more})"


def _unexplained(scales: Scales, has_advice: bool) -> Iterator[str]:
    """What to know where the estimate did not see it coming, and where nothing is enough."""
    device = scales.before.device
    if device is not None and scales.on_device(scales.before) is Fit.FITS:
        yield (
            f"the estimate gave the run that ran out {gib(device.high)} of a GPU at most, which fits: it held something that is not counted, "
            f"{'and may do so again' if has_advice else 'and nothing that can be changed holds clearly less'}; "
            "where that is a surprise, see what held it (`nvidia-smi` or `rocm-smi` on the node) before you decide"
        )
    elif not has_advice:
        yield (
            f"by the estimate nothing else that trains the same holds clearly less of a GPU and fits there and on the node: {_DECIDE}"
        )


def fewer_states(case: Case) -> list[str]:
    """The ways to keep less of parameters, gradients and optimizer states on a GPU, with the batch as it is: for what ran out without one."""
    plan, room = case.plan, case.gpu_bytes
    before, lines = states_bytes(plan, letters_of(plan)), []
    for rung in alternatives(plan):
        states = states_bytes(rung.plan)
        is_other = rung.plan.batch != plan.batch or rung.plan.model.recompute != plan.model.recompute
        if is_other or states is None or before is None or states >= before or (room is not None and states >= room):
            continue
        memory = case.memory_flags(host_bytes(rung.plan), rung.plan)
        if memory is not None:
            lines.append(f"{rung.flags}{memory}  ({rung.why}: {gib(states)} of a GPU in place of {gib(before)})")
    return lines or [f"no other way to train it keeps clearly less of the model on a GPU: {_DECIDE}"]


def _by_states(case: Case) -> Iterator[str]:
    """The steps whose states fit by themselves, where no more than these can be counted."""
    room = case.gpu_bytes
    for rung in rungs(case.plan):
        states = states_bytes(rung.plan)
        memory = case.memory_flags(host_bytes(rung.plan), rung.plan)
        if memory is not None and (room is None or states is None or states < room):
            yield f"{rung.flags}{memory}  ({rung.why})"
