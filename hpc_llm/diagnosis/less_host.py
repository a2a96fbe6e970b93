"""What to change of a run whose node's memory was full, by the plan's own arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hpc_llm.diagnosis.buckets import refused_bucket, refused_bytes
from hpc_llm.diagnosis.case import Case, size_bytes, takes_options
from hpc_llm.diagnosis.host_memory import more, same
from hpc_llm.diagnosis.ladder import host_bytes, kept_on_gpus, rungs, states_bytes
from hpc_llm.diagnosis.weighed import Scales, Weighed, bounds, gib, scales_of
from hpc_llm.errors import counted
from hpc_llm.estimating.parts import Fit, Memory
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.method import letters_of
from hpc_llm.planning.tasks import find
from hpc_llm.text.sizes import gib_apart

_DECIDE = "another node type, or a smaller --model, is for you to decide"


def host_oom(case: Case) -> list[str]:
    """More memory, then fewer ranks that share it, then less on the host."""
    if "weights" in case.facts:
        return weights_too_large(case.facts, case)
    scales = scales_of(case)
    bucket = list(refused_bucket(case))
    if scales is None:
        lines = list(_by_states(case))
        return [*bucket, *lines] or [f"it has all of the node and keeps nothing there: {_DECIDE}"]
    lines = [*_more_memory(scales), *_fewer_ranks(scales), *_less_offload(scales)] or list(_least_change(scales))
    return [*bucket, *lines, *_of_the_process(scales), *_what_it_takes(scales, bool(bucket or lines))]


def weights_too_large(facts: Mapping[str, Any], case: Case | None = None) -> list[str]:
    """Where the weights alone take more than all nodes have: fewer bytes of them, more nodes that share them, another model."""
    weights, there, nodes = size_bytes(facts["weights"]), size_bytes(facts["there"]), int(facts["on_nodes"])
    plan, lines = (None if case is None else case.plan), []
    if not weights or not there or not nodes:
        return [_SMALLER]
    if plan is not None and plan.model.quantization is None:
        ways = [("--set precision=bf16", 2, plan.model.precision == "fp32")]
        ways += [("--method qlora", 4 * (1 + (plan.model.precision == "fp32")), plan.parallel.gpus_per_node > 0)]
        lines = [
            f"{option}  (weights of {gib(weights / less)}, by as much less)"
            for option, less, is_way in ways
            if is_way and weights / less < there
        ]
    states = None if plan is None else states_bytes(plan.changed(world_size=1), "z3")
    needed = int(max(weights, states or 0) * nodes / there) + 1
    most = case.partition.max_nodes if case is not None and case.partition is not None else None
    if (plan is None or takes_options(plan)) and needed <= (most or needed):
        has_z3 = plan is not None and "z3" in letters_of(plan).split("+")
        held = f"{gib(states)} of weights, gradients and optimizer states" if states else f"weights of {gib(weights)}"
        lines.append(
            f"--nodes {needed}{'' if has_z3 else ' --method z3'}  (so many at least: their ranks share {held})"
        )
    return [*lines, _SMALLER]


_SMALLER = "a smaller --model, or nodes with more memory: which is for you to decide"


def _more_memory(scales: Scales) -> Iterator[str]:
    """What a node has besides, where that is more than the job had and may be enough."""
    case, host = scales.case, scales.before.host
    if not case.may_ask_memory or (case.node_bytes or math.inf) <= host.low:
        return
    line = more(case.host_memory, case.plan, case.node, host.high, case.facts)
    found = scales.weigh(case.plan, _option(line)) if line else None
    if line is None or found is None:
        return
    is_known = host.capacity is not None and found.memory.host.capacity is not None
    if not is_known or scales.is_less_on_host(found.memory):
        yield f"{line.removesuffix(')')}{_doubt(scales, found)})"


def _option(line: str) -> str:
    """The option of sbatch with which a line of advice begins."""
    return " ".join(line.split()[:2])


def _doubt(scales: Scales, found: Weighed) -> str:
    """What of it the estimate does not think enough, on the GPU too: less on the host is no use where that is full next."""
    memory, doubts = found.memory, []
    for place, need, verdict in (
        ("a node", memory.host, memory.host.verdict),
        ("a GPU", memory.device, scales.on_device(memory)),
    ):
        if need is not None and verdict is Fit.TOO_CLOSE:
            doubts.append(f"{bounds(need)} of {place}, which may not be enough")
        elif need is not None and verdict is Fit.DOES_NOT_FIT:
            doubts.append(f"{bounds(need)} of {place}, which is not enough")
    return f"; by the estimate it takes {' and '.join(doubts)}" if doubts else ""


def _is_way(scales: Scales, found: Weighed | None) -> bool:
    """Whether it takes clearly less of what the node has, and may fit there and on the GPU."""
    return (
        found is not None
        and scales.is_less_on_host(found.memory)
        and Fit.DOES_NOT_FIT not in (found.memory.host.verdict, scales.on_device(found.memory))
    )


def _place(scales: Scales, found: Weighed) -> str:
    """How much less it is, and whether that may not do."""
    before, after = scales.before.host, found.memory.host
    had = "" if after.capacity is None else f", which has {gib(after.capacity)} for the job"
    return f"by the estimate {gib(after.high)} of a node at most in place of {gib(before.high)}{had}{_doubt(scales, found)}"


def _fewer_ranks(scales: Scales) -> Iterator[str]:
    """Half of the ranks, or half of these, with the memory that all had."""
    case, parallel = scales.case, scales.case.plan.parallel
    ranks = parallel.tasks_per_node // 2
    while ranks and ranks % parallel.tensor == 0:
        line = fewer(case, ranks)
        found = scales.weigh(with_ranks(case.plan, ranks), _same_memory(case, ranks).strip())
        if found is not None and _is_way(scales, found):
            yield f"{line.removesuffix(')')}; {_place(scales, found)})"
            return
        ranks //= 2


def with_ranks(plan: Plan, ranks: int) -> Plan:
    """The plan with so many ranks on a node, each with a GPU of its own where it has GPUs, and the same global batch where they can make it."""
    parallel = plan.parallel
    world = ranks * parallel.nodes
    groups = max(world // (parallel.tensor * parallel.pipeline), 1)
    accumulation = _accumulation(plan, groups)
    whole = plan.batch.micro_batch_size * accumulation * groups
    batch = replace(plan.batch, gradient_accumulation_steps=accumulation, global_batch_size=whole)
    gpus = ranks if parallel.gpus_per_node else 0
    changed = replace(parallel, tasks_per_node=ranks, gpus_per_node=gpus, world_size=world, data=groups)
    return replace(plan, batch=batch, parallel=changed)


def _accumulation(plan: Plan, groups: int) -> int:
    """Micro batches of a step with which so many groups of ranks keep the global batch of a training; as many as before where none do."""
    task, batch = find(plan.task), plan.batch
    micro_batches, rest = divmod(batch.global_batch_size, batch.micro_batch_size * groups)
    is_kept = task.trains and task.search is None and micro_batches and not rest
    return micro_batches if is_kept else batch.gradient_accumulation_steps


def fewer(case: Case, ranks: int) -> str:
    """The line that asks for so many ranks on a node."""
    plan = case.plan
    now, was = with_ranks(plan, ranks).batch, plan.batch
    why = f"{counted(ranks, 'rank')} on a node instead of {plan.parallel.tasks_per_node}: each has host buffers of its own"
    flags = f"--gpus-per-node {ranks}" if plan.parallel.gpus_per_node else f"--set tasks_per_node={ranks}"
    if now.gradient_accumulation_steps != was.gradient_accumulation_steps:
        flags += f" --gradient-accumulation-steps {now.gradient_accumulation_steps}"
    if now.global_batch_size != was.global_batch_size:
        why += f"; the global batch is {now.global_batch_size} then and no longer {was.global_batch_size}, which is another experiment"
    return f"{flags}{_same_memory(case, ranks)}  ({why})"


def _same_memory(case: Case, ranks: int) -> str:
    """The option by which fewer ranks keep the memory that all had: amounts per GPU or CPU, and shares, go down with them."""
    had, plan = case.host_memory, case.plan
    size = had.on_node(plan)
    if not case.may_ask_memory or size is None or (had.form == "mem" and had.form in plan.job.sbatch):
        return ""
    return f" {same(had, with_ranks(plan, ranks), size)}"


def _less_offload(scales: Scales) -> Iterator[str]:
    """The same method with less on the host, where the GPU has room for it: without offload, or with the optimizer's states alone."""
    plan = scales.case.plan
    ways = [(rung.flags, rung.why, rung.plan) for rung in kept_on_gpus(plan)]
    parts = letters_of(plan).split("+")
    if parts[0] == "z3" and "o" in parts:
        letters = "+".join(["z2", *parts[1:]])
        ways.append(
            (f"--method {letters}", "only optimizer states on the host", plan.changed(letters=letters, method=letters))
        )
    best = math.inf
    for flags, why, changed in ways:
        found = scales.weigh(changed)
        if found is None or not _is_way(scales, found):
            continue
        need = found.memory.device.high if found.memory.device else 0
        if need < best:  # what costs more and saves nothing is no other way
            best = need
            yield f"{flags}{found.option}  ({why}; {_place(scales, found)})"


def _least_change(scales: Scales) -> Iterator[str]:
    """The first step of the ladder that may do, of a run on the host's processors: it has there what others have on a GPU."""
    for rung in rungs(scales.case.plan) if scales.before.device is None else ():
        found = scales.weigh(rung.plan)
        if found is not None and _may_do(scales, found.memory):
            yield f"{rung.flags}{found.option}  ({rung.why}; {_place(scales, found)})"
            return


def _may_do(scales: Scales, memory: Memory) -> bool:
    """Whether it is clearly less of what a node has, and nothing says that it is too much."""
    return scales.is_less_on_host(memory) and scales.fits(memory) in (Fit.FITS, Fit.UNKNOWN)


def _is_refused_with_room(scales: Scales) -> bool:
    """Whether a process was refused memory, and not killed, and the estimate does not say that the node is too small."""
    return refused_bytes(scales.case.facts) is not None and scales.before.host.verdict in (Fit.FITS, Fit.UNKNOWN)


def _of_the_process(scales: Scales) -> Iterator[str]:
    if _is_refused_with_room(scales):
        fits = "which fits" if scales.before.host.verdict is Fit.FITS else "and nobody says how much that has"
        yield (
            f"by the estimate it takes {bounds(scales.before.host)} of a node, {fits}: see whether the process that was refused more has a limit of its own, "
            "`ulimit -v` in the job says unlimited or KiB; where it is a number, `ulimit -v unlimited` in the shell from which it is submitted or started"
        )


def _what_it_takes(scales: Scales, has_advice: bool) -> Iterator[str]:
    """What the estimate says of the run itself, where that leaves no other way."""
    host, node = scales.before.host, scales.case.node_bytes
    if "o" not in letters_of(scales.case.plan).split("+"):
        if not has_advice and not _is_refused_with_room(scales):
            yield f"by the estimate it takes {bounds(host)} of a node, keeps nothing there and can ask for no more: {_DECIDE}"
    elif node and host.low >= node:
        low, there = gib_apart(host.low, node)
        yield f"what it keeps on the host takes at least {low} of a node that has {there}: {_nodes(scales)} or a smaller --model"
    elif not has_advice:
        yield (
            f"by the estimate it takes {bounds(host)} of a node, and no other method or number of ranks takes clearly less and fits: "
            f"{_nodes(scales)} {_DECIDE}"
        )


def _nodes(scales: Scales) -> str:
    """More nodes as a way, with what that would bring: how many a site gives is not known here."""
    plan = scales.case.plan
    nodes = 2 * plan.parallel.nodes
    wider = replace(plan, parallel=replace(plan.parallel, nodes=nodes))
    found = scales.weigh(with_ranks(wider, plan.parallel.tasks_per_node), "")
    is_way = found is not None and _is_way(scales, found)
    much = f" (with {nodes} {gib(found.memory.host.high)} at most)" if found is not None and is_way else ""
    return f"more nodes, each of which then holds a part of it{much},"


def _by_states(case: Case) -> Iterator[str]:
    """The same by the states alone, where no more than these can be counted."""
    plan = case.plan
    need = host_bytes(plan, letters_of(plan))
    is_held = need is None or need < (case.node_bytes or math.inf)
    if case.may_ask_memory and is_held and (line := more(case.host_memory, plan, case.node, need, case.facts)):
        yield line
    ranks = plan.parallel.tasks_per_node // 2
    states = states_bytes(plan.changed(world_size=max(ranks, 1) * plan.parallel.nodes), letters_of(plan))
    if ranks and ranks % plan.parallel.tensor == 0 and is_held and _has_room(case, states):
        yield fewer(case, ranks)
    yield from _less_offload_by_states(case)
    if not is_held and need is not None and case.node_bytes:
        held, there = gib_apart(need, case.node_bytes)
        yield (
            f"what it keeps on the host takes {held} of a node that has {there}: "
            "more nodes, each of which then holds a part of it, or a smaller --model"
        )


def _has_room(case: Case, states: int | None) -> bool:
    return states is None or case.gpu_bytes is None or states < case.gpu_bytes


def _less_offload_by_states(case: Case) -> Iterator[str]:
    plan = case.plan
    parts = letters_of(plan).split("+")
    if "o" not in parts:
        return
    choices = [("+".join(part for part in parts if part != "o"), "without offload: nothing is kept on the host")]
    if parts[0] == "z3":
        choices.append(("+".join(["z2", *parts[1:]]), "only optimizer states on the host"))
    for letters, why in choices:
        memory = case.memory_flags(host_bytes(plan, letters))
        if memory is not None and _has_room(case, states_bytes(plan, letters)):
            yield f"--method {letters}{memory}  ({why})"
