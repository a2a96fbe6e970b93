"""How many nodes, GPUs and ranks a job has, and what starts the ranks, held to what a node of the site is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from hpc_llm.errors import PlanError, RequestError, counted, unknown_name
from hpc_llm.planning.draft import FALLBACKS, Draft, Said, Site, positive
from hpc_llm.planning.limits import place_of
from hpc_llm.planning.parts import ExpectedGpu, ModelSetup, Parallel
from hpc_llm.planning.sharing import check_ranks
from hpc_llm.planning.vllm import is_asked as is_vllm
from hpc_llm.records import metrics
from hpc_llm.site.cluster import Cluster, Gpu, Partition
from hpc_llm.site.launchers import find_launcher
from hpc_llm.site.units import is_slice


def ask_resources(
    said: Said, cluster: Cluster, partition: Partition | None, gpu: Gpu, site: Site, draft: Draft
) -> Parallel:
    """Nodes, GPUs and ranks; `ask_time` holds them to the limits, together with the time."""
    nodes = draft.first("nodes", said("nodes"), (FALLBACKS["nodes"], "default"))
    positive("nodes", nodes)
    per_node = gpu.per_node if gpu.vendor != "none" else 0
    suggested = cluster.defaults.gpus_per_node
    gpus = draft.first(
        "gpus_per_node",
        said("gpus_per_node"),
        (1 if per_node and _are_slices(gpu, cluster) else None, "computed: a process sees one slice of a GPU (MIG)"),
        _suggested(suggested, per_node, cluster),
        (per_node, f"cluster {cluster.name}: gpu.per_node"),
    )
    _check_gpus(gpus, per_node, gpu, cluster, place_of(cluster, partition))
    if nodes > 1 and not site.facts.several_nodes:
        raise PlanError(f"{nodes} nodes: cluster {cluster.name} {_runs_where(site)}. Use --nodes 1.")
    ranks = draft.put(
        "tasks_per_node",
        1 if is_vllm(draft) else max(gpus, 1),
        "computed: vLLM is one process"
        if is_vllm(draft)
        else "computed: one rank per GPU"
        if gpus
        else "computed: one rank, for there is no GPU",
    )
    positive("tasks_per_node", ranks)
    if 0 < gpus < ranks:
        raise PlanError(
            f"tasks_per_node is {ranks} with {counted(gpus, 'GPU')} per node: each rank needs a GPU of its own."
        )
    if ranks < gpus and not is_vllm(draft):
        draft.notices.append(
            f"{gpus - ranks} of the {counted(gpus, 'GPU')} of each node have no rank and wait: --gpus-per-node {ranks} asks for no more than are used"
        )
    world = draft.computed("world_size", nodes * ranks, "computed: nodes x tasks_per_node")
    tensor = draft.first("tensor_parallel", said("tensor_parallel"), (1, "default"))
    check_ranks(tensor, ranks, gpus=per_node if gpus else 0)
    each = "each rank trains" if tensor == 1 else f"each {tensor} ranks train"
    groups = draft.computed(
        "data_parallel", world // tensor, f"computed: {each} on samples of {'its' if tensor == 1 else 'their'} own"
    )
    draft.computed("pipeline_parallel", 1, "default")
    return Parallel(nodes=nodes, gpus_per_node=gpus, tasks_per_node=ranks, world_size=world, data=groups, tensor=tensor)


def ask_one_process(
    said: Said, cluster: Cluster, partition: Partition | None, gpu: Gpu, site: Site, draft: Draft
) -> Parallel:
    """One process on one node, which needs no GPU and gets one only where the request says so."""
    nodes = draft.first("nodes", said("nodes"), (1, "computed: one process does it"))
    if nodes != 1:
        raise PlanError(f"{nodes} nodes: task {said.experiment.task} is one process. Leave --nodes out.")
    per_node = gpu.per_node if gpu.vendor != "none" else 0
    gpus = draft.first("gpus_per_node", said("gpus_per_node"), (0, "computed: no GPU is needed"))
    if gpus == 0 and per_node and cluster.request.gpu_style != "none":
        without = [one.name for one in cluster.partitions if cluster.gpu_of(one).vendor == "none"]
        there = f"with --partition {without[0]}, " if without else ""
        raise PlanError(
            f"task {said.experiment.task} needs no GPU, and every job on {place_of(cluster, partition)} asks for one: run it on the "
            f"login node with --cluster local, {there}or with --gpus-per-node 1."
        )
    _check_gpus(gpus, per_node, gpu, cluster, place_of(cluster, partition))
    for name in ("tasks_per_node", "world_size", "data_parallel", "tensor_parallel", "pipeline_parallel"):
        draft.computed(name, 1, "computed: one process does it")
    return Parallel(nodes=1, gpus_per_node=gpus, tasks_per_node=1, world_size=1, data=1)


def _suggested(suggested: int | None, per_node: int, cluster: Cluster) -> tuple[int | None, str]:
    """The profile's default as far as the node has so many, and why."""
    if suggested is None or suggested <= per_node:
        return suggested, f"cluster {cluster.name}: defaults"
    has = f"a node has {per_node}" if per_node else "there is no GPU"
    return per_node, f"cluster {cluster.name}: defaults says {suggested}, {has}"


def _runs_where(site: Site) -> str:
    facts = site.facts
    return (
        "runs on this machine, without a scheduler"
        if facts.is_this_machine
        else f"has {facts.title}, of one node a job"
    )


_SHOWS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that list the GPUs of a node which a process sees; a number below 0 ends the list."""


def check_variables(env: dict[str, str], gpus: int, notices: list[str]) -> dict[str, str]:
    """The variables of the job. Raises PlanError where one lets its ranks see fewer GPUs of a node than it asks for; of one that is the
    word null it is noticed that this takes nothing back, as null does in a file."""
    _check_shown(env, gpus)
    notices += [
        f"env.{name} is the word {value}, as text: `env.{name}=` with nothing behind it makes it empty"
        for name, value in env.items()
        if value in ("null", "None")
    ]
    return env


def _check_shown(env: dict[str, str], gpus: int) -> None:
    for name in _SHOWS:
        value = str(env.get(name, ""))
        if name not in env or "$" in value:
            continue
        shown = len(set(takewhile(lambda one: one and one[0] != "-", map(str.strip, value.split(",")))))
        if shown < gpus:
            raise PlanError(
                f"env.{name} is {value!r}, which shows {counted(shown, 'GPU')}, and the job has {gpus} per node: several ranks would take the same one. "
                f"Leave it out{f', or take --gpus-per-node {shown}' if shown else ''}."
            )


def ask_launcher(parallel: Parallel, cluster: Cluster, site: Site, draft: Draft) -> str:
    """What starts the ranks."""
    kind = "single_node" if parallel.nodes == 1 else "multi_node"
    name: str = draft.put("launcher", getattr(cluster.launch, kind), f"cluster {cluster.name}: launch.{kind}")
    if name not in cluster.launch.allowed:
        raise PlanError(unknown_name("launcher", name, cluster.launch.allowed, where=f"cluster {cluster.name}"))
    world = parallel.world_size
    if world == 1 and name == "torchrun":
        name = draft.computed("launcher", "python", "computed: one rank needs no launcher")
    launcher = find_launcher(name)
    if world > 1 and not launcher.starts_several:
        others = [other for other in cluster.launch.allowed if find_launcher(other).starts_several]
        raise PlanError(
            f"launcher {name} starts one rank, the plan has {world}. "
            f"Launchers for several: {', '.join(others) or 'none here'}."
        )
    if launcher.needs_slurm and not site.facts.has_srun:
        where = "runs on this machine" if site.facts.is_this_machine else f"has {site.facts.title}"
        raise PlanError(f"launcher {name} needs Slurm, cluster {cluster.name} {where}. Use another launcher.")
    return name


def _are_slices(gpu: Gpu, cluster: Cluster) -> bool:
    return gpu.vendor == "nvidia" and (is_slice(gpu.model) or is_slice(cluster.request.gpu_type))


_GIVES_EACH = re.compile(
    r"--(?:gpu-bind|gpus-per-task|tres-bind|tres-per-task|ntasks-per-gpu)[= ](?!(?:none|no|n)(?: |$))", re.IGNORECASE
)
"""Options by which Slurm shows each task GPUs of its own; else a task sees all of the node's that the job has."""


def check_slices(
    gpu: Gpu, count: int, cluster: Cluster, sbatch: Mapping[str, str], launcher: str, draft: Draft
) -> None:
    """Raise a PlanError where several ranks of a node would take one slice of a GPU: CUDA shows a process no more (NVIDIA's MIG guide)."""
    if count < 2 or not _are_slices(gpu, cluster):
        return
    options = [f"--{name}={value}" for name, value in sbatch.items()]
    words = " ".join((*cluster.launch.srun_args, *options, f"--{cluster.request.gpu_style}=1"))
    if launcher != "srun" or not _GIVES_EACH.search(words):
        raise PlanError(
            f"{count} slices of GPUs per node ({gpu.model}): a process sees one of them, so the ranks that {launcher} starts on a node would "
            "all take the same. Choose --gpus-per-node 1, or a partition with whole GPUs."
        )
    draft.notices.append(
        f"{count} ranks on slices of GPUs ({gpu.model}): NCCL refuses two that are parts of one GPU, but for the support in its newest "
        "releases. --gpus-per-node 1, or a partition with whole GPUs, goes without"
    )


def _has(other: Gpu, gpus: int, gpu: Gpu) -> bool:
    """Whether a partition has so many per node of the kind that was asked for, or of any where that one has none."""
    return other.vendor != "none" and gpus <= other.per_node and (gpu.vendor == "none" or gpu.model == other.model)


def _span(fewest: int, most: int) -> str:
    """The numbers from one to the other.

    >>> _span(1, 1), _span(0, 1), _span(1, 8)
    ('1', '0 or 1', '1..8')
    """
    if most - fewest < 2:
        return " or ".join(dict.fromkeys((str(fewest), str(most))))
    return f"{fewest}..{most}"


def _check_gpus(gpus: int, per_node: int, gpu: Gpu, cluster: Cluster, where: str) -> None:
    if gpus < 0 or gpus > per_node:
        has = f"{per_node} x {gpu.model}" if per_node else "no GPU"
        fewest = 0 if cluster.request.gpu_style == "none" else min(1, per_node)
        choice = f"Choose --gpus-per-node {_span(fewest, per_node)}" if per_node else "Leave --gpus-per-node out"
        larger = [one.name for one in cluster.partitions if _has(cluster.gpu_of(one), gpus, gpu)] if gpus > 0 else []
        choice += f", or a partition with as many: --partition {' or '.join(larger)}" if larger else ""
        raise PlanError(f"{counted(gpus, 'GPU')} per node: {where} has {has} per node. {choice}.")
    if gpus == 0 and per_node and cluster.request.gpu_style != "none":
        raise PlanError(
            f"0 GPUs per node: every job on {where} asks for a GPU. Choose --gpus-per-node {_span(1, per_node)}."
        )


def expected_gpu(cluster: Cluster, gpu: Gpu, parallel: Parallel, model: ModelSetup, draft: Draft) -> ExpectedGpu:
    """The GPU and the network on which the run is to be, with the peak by which it is judged."""
    on_gpu = bool(parallel.gpus_per_node)
    expected = draft.put("expected_gpu", gpu.model if on_gpu else None, f"cluster {cluster.name}: gpu.model")
    peak = (
        draft.put("peak_flops", *_peak(cluster, gpu, model.multiplies_in))
        if on_gpu
        else draft.put("peak_flops", None, "not set: no GPU")
    )
    if peak is not None and (isinstance(peak, bool) or not isinstance(peak, (int, float)) or peak <= 0):
        raise RequestError(f"{draft.settings.said('peak_flops')}={peak!r}: FLOP/s of one GPU are needed, e.g. 312e12.")
    several = on_gpu and parallel.nodes > 1
    network = draft.put(
        "expected_network", cluster.nccl_network if several else None, f"cluster {cluster.name}: nccl_network"
    )
    return ExpectedGpu(model=expected, peak_flops=peak, network=network)


def _peak(cluster: Cluster, gpu: Gpu, precision: str) -> tuple[float | None, str]:
    """What the profile says, else the table of what the makers do, by any name of the GPU; and where it is from."""
    tflops = gpu.peak_tflops.get(precision)  # type: ignore[call-overload]
    known = metrics.peak_flops(gpu.model or "", precision) if tflops is None else None
    if known is not None:
        return known, f"the maker's data sheet of {gpu.model}"
    return tflops and tflops * 1e12, f"cluster {cluster.name}: gpu.peak_tflops"
