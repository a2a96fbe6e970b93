"""What a run holds in the memory of a node: states that are off the device, page-locked copies, the programs themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from hpc_llm.estimating.case import WIDTHS, Case
from hpc_llm.estimating.constants import constants
from hpc_llm.estimating.cpu import program_on_cpu
from hpc_llm.estimating.deepspeed import kept_back
from hpc_llm.estimating.parts import Need
from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import Cluster, Node
from hpc_llm.site.sbatch_sizes import memory_bytes
from hpc_llm.site.schedulers import scheduler_of

_SUB_GROUP = 1e9
_COMPILER = 10 * 2**30
"""A little more than was measured: 9.5 GiB of a rank in the first run on an H100, 4.7 on an H200, where later ones took next to nothing."""

_ANOTHER_BUILD = 470_000_000
"""By how much more of a rank's memory than is counted torch's build for CUDA took on a node without a GPU, at most. On GPUs one build
was measured, and the figure stands for all others."""


def host_need(
    case: Case, capacity: int | None, unknown: float = 0.0, on_device: Mapping[str, int] = MappingProxyType({})
) -> Need:
    """Of one node, all of its ranks together; `on_device` is what else lies there where the host is the device.

    `unknown` is by how much the interval is wider than for runs like those that were measured.
    """
    ranks = case.plan.parallel.tasks_per_node
    own = Counter(_terms(case))
    own.update(on_device)
    terms = {name: int(size) * ranks for name, size in own.items() if size}
    peak = sum(terms.values())
    known = constants()
    precision = known.host_precision[case.kind] + unknown
    return Need(
        breakdown=terms,
        peak=peak,
        low=int(peak * max(1 - precision, 0)),
        high=int(peak * (1 + precision)) + _loading(case, ranks) + (compiling(case) + _ANOTHER_BUILD) * ranks,
        capacity=capacity,
        capacity_low=None if capacity is None else int(capacity * known.host_capacity),
    )


def _terms(case: Case) -> dict[str, float]:
    """Of one rank."""
    own = case.trained / case.ranks
    terms = _starting(case)
    if case.plan.engine.offloaded_step != "none":
        return {**terms, **_exact(case, own)}
    if not _is_here(case, "optimizer"):
        if _is_here(case, "param"):
            terms["weights"] = _locked(case, "param", case.width * case.sizes.parameters / case.ranks)
        return terms
    groups = list(_groups(case, own)) if case.stage == 3 else [own]
    stepped = max(own - kept_back(case), 0.0)
    here = [one for one in (_groups(case, stepped) if case.stage == 3 else groups) if one]
    terms["optimizer states"] = case.moments_width * stepped + sum(_locked(case, "optimizer", 4 * one) for one in here)
    terms["gradients"] = sum(_locked(case, "optimizer", 4 * one) for one in groups)
    if case.stage == 3:
        terms["weights"] = sum(_locked(case, "param", case.width * one) for one in groups)
        terms["gradients"] += _locked(case, "optimizer", case.width * own)
    else:
        terms["weights"] = _locked(case, "optimizer", case.width * own)
        terms["largest temporary"] = _locked(case, "optimizer", case.width * case.sizes.embedding)
    return terms


def _exact(case: Case, own: float) -> dict[str, float]:
    """What engine `flat` has on the host: moments, what the weights lack of fp32, shares of gradients, and blocks of no other size."""
    engine = case.plan.engine
    moments = 4 if engine.moments_precision == "bf16" else case.moments_width
    has_copies = engine.offloaded_step == "host"
    copies = 4 if has_copies else 4 - case.width
    training = case.plan.training
    # A checkpoint holds fp32, of which the host has halves.
    is_joined = not has_copies and case.width < 4 and (training.save_every is not None or training.resume is not None)
    return {
        "fp32 weights of a checkpoint": 4 * own if is_joined else 0.0,
        "optimizer states": (moments + copies) * own,
        "gradients": (4 if case.accumulates else WIDTHS[engine.reduce_precision]) * own,
        "weights": case.width * own if case.offloads("param") else 0.0,
    }


def _starting(case: Case) -> dict[str, float]:
    """The program, and the share of the model that DeepSpeed's ZeRO-3 lets each rank make on the host before training begins."""
    known = constants()
    made = case.width * case.sizes.parameters / case.ranks if case.stage == 3 else 0.0
    if not case.plan.parallel.gpus_per_node:
        return {"programs and libraries": program_on_cpu(case)}
    if case.plan.engine.name != "deepspeed" or (
        made + known.host_start < known.host_program and not case.offloads("optimizer")
    ):
        return {"programs and libraries": known.host_program}
    program = known.host_program if case.offloads("optimizer") else known.host_start
    return {"programs and libraries": program, "model loading": made}


def _is_here(case: Case, what: str) -> bool:
    """Whether it is kept in the host's memory, and not on a disk."""
    return (case.zero.get(f"offload_{what}") or {}).get("device") == "cpu"


def _groups(case: Case, own: float) -> Iterator[float]:
    """Numbers of each sub-group that ZeRO-3 steps by itself."""
    size = float(case.zero.get("sub_group_size", _SUB_GROUP))
    while own > size:
        yield size
        own -= size
    yield own


def _locked(case: Case, what: str, size: float) -> float:
    """Bytes that a block takes: torch rounds each that is page-locked up to a power of two."""
    block = case.zero.get(f"offload_{what}") or {}
    is_locked = block.get("pin_memory", False) and case.plan.parallel.gpus_per_node
    return power_of_two(size) if is_locked else size


def power_of_two(size: float) -> int:
    """The smallest power of two that is no less.

    >>> power_of_two(5), power_of_two(8), power_of_two(0.5)
    (8, 8, 1)
    """
    return 1 << max(-(-size // 1).__int__() - 1, 0).bit_length()


def compiling(case: Case) -> int:
    """What the compiler takes of a rank where nothing that it made before is there; with that it is next to nothing."""
    engine = case.plan.engine
    return _COMPILER if engine.fused_layers or engine.compiled_layers or engine.fused_optimizer else 0


def _loading(case: Case, ranks: int) -> int:
    """What a checkpoint may take of a node besides while it is read, bytes: nothing where its files hold the type that is wanted.

    They are mapped into memory, of which the kernel takes back what it needs (benchmarks/loading_memory.py). Another type is a copy: on
    the one rank that reads for all, or on each.
    """
    if case.plan.model.weights != "checkpoint":
        return 0
    is_fsdp2 = case.plan.engine.name == "fsdp2"
    width = 4 if is_fsdp2 else case.width
    reads_for_all = case.plan.model.quantization is None and (is_fsdp2 or case.stage == 3)
    return width * case.sizes.parameters * (1 if reads_for_all else ranks)


def host_capacity(case: Case, cluster: Cluster, node: Node) -> int | None:
    """Bytes that the job may use on a node; None where neither the request nor the profile says."""
    job, gpus = case.plan.job, case.plan.parallel.gpus_per_node
    asked = _asked(case, cluster)
    if asked is not None and asked > 0:
        return asked
    whole = None if node.mem_gb is None else int(node.mem_gb * 1e9)
    own = {"mem", "mem-per-gpu", "mem-per-cpu"} & {*job.sbatch, *cluster.extra_options}
    if scheduler_of(job.scheduler).is_this_machine or own:  # --mem=0 is all of the node; nothing gives more
        return whole
    share = None if node.mem_gb_per_gpu is None or not gpus else int(node.mem_gb_per_gpu * gpus * 1e9)
    if share is not None and whole is not None:
        return min(share, whole)
    if share is None and job.mem is None and parts_of_request(case.plan, cluster.request.memory):
        return whole  # the job asks for what it needs, and can have as much as that
    if share is None and job.mem is None and cluster.request.memory == "omit" and gpus == cluster.gpu.per_node:
        return (
            whole if gpus else None
        )  # memory follows the GPUs there (`request.memory: omit`), and these are all of them
    # Without a word a job gets what the site's default says, which --exclusive does not change: it gives CPUs and GPUs.
    return share


def parts_of_request(plan: Plan, style: str) -> int:
    """How often on a node what the memory flag of that style asks for counts; 0 where there is no such flag."""
    parallel = plan.parallel
    per_cpu = (plan.job.cpus_per_task or 0) * parallel.tasks_per_node
    return {"mem": 1, "mem-per-gpu": parallel.gpus_per_node, "mem-per-cpu": per_cpu}.get(style, 0)


def _asked(case: Case, cluster: Cluster) -> int | None:
    """Bytes on a node that the job asks for."""
    job, parallel = case.plan.job, case.plan.parallel
    times = {
        "mem": 1,
        "mem-per-gpu": parallel.gpus_per_node,
        "mem-per-cpu": (job.cpus_per_task or 1) * parallel.tasks_per_node,
    }
    style = cluster.request.memory
    asked = {name: job.sbatch[name] for name in times if name in job.sbatch}
    if not asked and job.mem is not None and style in times:
        asked = {style: job.mem}
    for name, text in asked.items():
        size = memory_bytes(text)
        if size is not None:
            return size * times[name]
    return None
