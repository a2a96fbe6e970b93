"""plan(): the request with everything decided, each value with its origin. Pure: no clock, no environment, no subprocess.

What a GPU or a site cannot do is caught here, before anything is queued.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from hpc_llm import metrics
from hpc_llm.cluster import NO_SIGNAL, SIGNAL_FLAG, TRACKED_FLAGS, Cluster, Gpu, Node, Partition, allowed_keys
from hpc_llm.deepspeed_config import COMPUTED, check_keys
from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.experiment import TASKS, Experiment, Plan, PlanWithOrigins
from hpc_llm.gpu import actual_gpu, check_capabilities, choose_precision
from hpc_llm.hardware import Hardware
from hpc_llm.method import Lora, Method, Optimizer, Quantization, spelled
from hpc_llm.optimizers import OF_DEEPSPEED
from hpc_llm.profiles import explain_validation
from hpc_llm.recipe import check_length, check_tokenizer, choose_ramp, choose_weights, learning_rate
from hpc_llm.run import file_name_part
from hpc_llm.settings import apply_settings, split_pair
from hpc_llm.slurm_time import format_time, parse_time
from hpc_llm.synthetic import LOSS_FLOOR_NATS

FALLBACKS: dict[str, Any] = {
    "nodes": 1,
    "model": "llama2-7b",
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "sequence_length": 350,  # the homework's
    "steps": 30,
    "warmup_steps": 5,
    "seed": 42,
}
LARGEST_COUNT = 2**31 - 1
"""Slurm and torch count in 32 bits what a plan counts."""
OWN_OPTIONS = {
    "job-name": "--name",
    "account": "--account",
    "partition": "--partition",
    "nodes": "--nodes",
    "time": "--time",
    "ntasks": "--gpus-per-node",
    "ntasks-per-node": "--gpus-per-node",
    "gpus": "--gpus-per-node",
    "gpus-per-node": "--gpus-per-node",
    "gpus-per-task": "--gpus-per-node",
}
"""sbatch flags whose value the plan has to know, and the option that sets them."""
ANSWER_FLAGS = ("clusters", "parsable", "quiet", "test-only", "wait", "wrap", "help", "usage", "version")
"""sbatch flags that change what sbatch does or answers, so that hpc-llm would lose the job."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """What planning needs to know from outside: found by the caller, so that plan() stays pure."""

    scheduler: str
    """`slurm` or `local`, `auto` already resolved."""
    hardware: Hardware | None = None
    """This machine, for clusters with `gpu.vendor: auto`."""
    account: str | None = None
    """Account from the user's environment."""


class _Draft:
    """Values on the way to a Plan, each set together with where it comes from."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.notices: list[str] = []

    def put(self, name: str, value: Any, origin: str) -> Any:
        self.values[name] = value
        self.origins[name] = origin
        return value

    def first(self, name: str, *choices: tuple[Any, str]) -> Any:
        """Put the first choice that is not None; None if there is none."""
        for value, origin in choices:
            if value is not None:
                return self.put(name, value, origin)
        return self.put(name, None, "not set")


def plan(
    experiment: Experiment, cluster: Cluster, method: Method, site: Site, sources: Mapping[str, str] | None = None
) -> PlanWithOrigins:
    """Decide everything about one run.

    `sources` says where each field of the experiment came from (`--steps`, `FILE.yaml`); a field that is not in it was
    set by the caller. Raises PlanError or RequestError when the site, its GPU or the method cannot do it.
    """
    draft = _Draft()
    said = _Said(experiment, sources or {})
    partition = _partition(said, cluster, site, draft)
    gpu = actual_gpu(cluster.gpu_of(partition), site.hardware)
    _resources(said, cluster, partition, gpu, site, draft)
    _batch(said, cluster, draft)
    _method(method, gpu, draft)
    _bookkeeping(said, cluster, partition, site, draft)
    _settings(said, draft)
    return _finish(draft, cluster, partition, gpu, site)


class _Said:
    """The experiment's own values as (value, origin) pairs."""

    def __init__(self, experiment: Experiment, sources: Mapping[str, str]) -> None:
        self.experiment = experiment
        self.sources = sources

    def __call__(self, name: str) -> tuple[Any, str]:
        return getattr(self.experiment, name), self.sources.get(name, "request")


def _partition(said: _Said, cluster: Cluster, site: Site, draft: _Draft) -> Partition | None:
    name, origin = said("partition")
    if name is not None:
        _one_line("partition", name)
    partition = cluster.partition(name)
    if site.scheduler == "local":
        _without_scheduler("partition", name, draft)
        draft.put("partition", None, "no scheduler")
        return partition
    if partition is None and cluster.partitions and name is not None:
        raise PlanError(
            unknown_name("partition", name, [p.name for p in cluster.partitions], where=f"cluster {cluster.name}")
        )
    draft.first(
        "partition", (name, origin), (partition and partition.name, f"cluster {cluster.name}: default partition")
    )
    return partition


def _without_scheduler(what: str, value: Any, draft: _Draft) -> None:
    if value:
        draft.notices.append(f"{what} {value} has no meaning without a scheduler and is left out")


def _resources(said: _Said, cluster: Cluster, partition: Partition | None, gpu: Gpu, site: Site, draft: _Draft) -> None:
    draft.put("scheduler", site.scheduler, f"cluster {cluster.name}: scheduler")
    nodes = draft.first("nodes", said("nodes"), (FALLBACKS["nodes"], "default"))
    _positive("nodes", nodes)
    per_node = gpu.per_node if gpu.vendor != "none" else 0
    suggested = cluster.defaults.gpus_per_node
    gpus = draft.first(
        "gpus_per_node",
        said("gpus_per_node"),
        (min(suggested, per_node) if suggested is not None else None, f"cluster {cluster.name}: defaults"),
        (per_node, f"cluster {cluster.name}: gpu.per_node"),
    )
    where = f"partition {partition.name} of cluster {cluster.name}" if partition else f"cluster {cluster.name}"
    if gpus < 0 or gpus > per_node:
        has = f"{per_node} x {gpu.model}" if per_node else "no GPU"
        fewest = 0 if cluster.request.gpu_style == "none" else min(1, per_node)
        raise PlanError(
            f"{gpus} GPUs per node: {where} has {has} per node. Choose --gpus-per-node {fewest}..{per_node}."
        )
    if gpus == 0 and per_node and cluster.request.gpu_style != "none":
        raise PlanError(f"0 GPUs per node: every job on {where} asks for a GPU. Choose --gpus-per-node 1..{per_node}.")
    if partition and partition.max_nodes and nodes > partition.max_nodes:
        raise PlanError(f"{nodes} nodes: {where} allows {partition.max_nodes} per job. Ask for fewer with --nodes.")
    if partition and partition.max_gpus and nodes * gpus > partition.max_gpus:
        raise PlanError(
            f"{nodes} x {gpus} = {nodes * gpus} GPUs: {where} allows {partition.max_gpus} per user. Ask for fewer nodes."
        )
    if site.scheduler == "local" and nodes > 1:
        raise PlanError(
            f"{nodes} nodes: cluster {cluster.name} runs on this machine, without a scheduler. Use --nodes 1."
        )
    draft.put("tasks_per_node", max(gpus, 1), "computed: one rank per GPU")
    launch = cluster.launch
    name = launch.single_node if nodes == 1 else launch.multi_node
    draft.put("launcher", name, f"cluster {cluster.name}: launch.{'single' if nodes == 1 else 'multi'}_node")


def _batch(said: _Said, cluster: Cluster, draft: _Draft) -> None:
    for name in (
        "model",
        "micro_batch_size",
        "gradient_accumulation_steps",
        "sequence_length",
        "steps",
        "warmup_steps",
    ):
        suggested = getattr(cluster.defaults, name, None)
        fallback = FALLBACKS[name]
        if name == "warmup_steps":
            fallback = min(fallback, max(draft.values["steps"] - metrics.MIN_MEASURED_STEPS, 0))
        value = draft.first(name, said(name), (suggested, f"cluster {cluster.name}: defaults"), (fallback, "default"))
        if name not in ("model", "warmup_steps"):
            _positive(name, value)
    draft.first("seed", said("seed"), (FALLBACKS["seed"], "default"))


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise RequestError(f"{name} is {value}, it must be at least 1.")
    if value > LARGEST_COUNT:
        raise RequestError(f"{name} is {value}, it must be at most {LARGEST_COUNT}.")


def _method(method: Method, gpu: Gpu, draft: _Draft) -> None:
    origin = f"method {method.name}"
    draft.put("method", method.name, "request")
    draft.put("letters", method.letters, origin)
    precision, why = choose_precision(method, gpu)
    draft.put("precision", precision, why or origin)
    draft.put("attention", method.attention, origin)
    draft.put("recompute", method.recompute, origin)
    draft.put("quantization", method.quantization and method.quantization.model_dump(), origin)
    draft.put("peft", method.peft and method.peft.model_dump(), origin)
    draft.put("optimizer", method.optimizer.model_dump(), origin)
    draft.put("lr_ramp_steps", method.lr_ramp_steps, origin)
    draft.put("weights", None, "not set")
    draft.put("deepspeed", copy.deepcopy(method.deepspeed), origin)


def _bookkeeping(said: _Said, cluster: Cluster, partition: Partition | None, site: Site, draft: _Draft) -> None:
    experiment = said.experiment
    if experiment.task not in TASKS:
        raise RequestError(unknown_name("task", experiment.task, TASKS))
    draft.put("task", *said("task"))
    draft.put("cluster", cluster.name, "request")
    draft.put("data", list(experiment.data), said("data")[1] if experiment.data else "default: synthetic tokens")
    floor = None if experiment.data else LOSS_FLOOR_NATS
    draft.put(
        "loss_floor_nats", floor, "not known" if experiment.data else "computed: the entropy of the synthetic tokens"
    )
    _account(said, cluster, site, draft)
    _time(said, cluster, partition, draft)
    default_name = f"{draft.values['model'].rstrip('/').rsplit('/', 1)[-1]}-{draft.values['method']}"
    name = draft.first("job_name", said("name"), (file_name_part(default_name), "computed: model and method"))
    _one_line("job name", name)
    extra = dict(split_pair(item, "--sbatch") for item in experiment.sbatch)
    for key, value in extra.items():
        _sbatch_flag(key, value, cluster)
    if site.scheduler == "local":
        _without_scheduler("--sbatch", ", ".join(extra), draft)
        extra = {}
    draft.put("sbatch", extra, said("sbatch")[1] if extra else "not set")
    draft.put("env", {}, "not set")
    draft.first("env_file", said("env_file"), (cluster.env.file, f"cluster {cluster.name}: env.file"))


def _one_line(what: str, text: str) -> None:
    if not text or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise RequestError(f"{what} {text!r} is empty or holds a control character, which would break a #SBATCH line.")


def _sbatch_flag(key: str, value: str, cluster: Cluster) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
        raise RequestError(
            f"--sbatch {key!r}: not a long sbatch option. Write it as in sbatch's manual, e.g. qos=high."
        )
    own = dict(OWN_OPTIONS)
    if cluster.request.gpu_style != "none":
        own[cluster.request.gpu_style] = "--gpus-per-node"
    if key in cluster.request.forbid:
        raise PlanError(f"--sbatch {key}: cluster {cluster.name} refuses --{key}. Leave it out.")
    if SIGNAL_FLAG.startswith(key):
        raise RequestError(f"--sbatch {key}: {NO_SIGNAL.format(time='--time')}.")
    if key in own:
        raise RequestError(f"--sbatch {key}: the plan has to know it. Use {own[key]}.")
    if key in (*TRACKED_FLAGS, *ANSWER_FLAGS):
        raise RequestError(f"--sbatch {key}: hpc-llm sets --{key} itself, because tracking relies on it. Leave it out.")
    for flag in (*cluster.request.forbid, *own, *TRACKED_FLAGS, *ANSWER_FLAGS):
        # sbatch takes any unambiguous beginning of an option, so `part=x` would pass for partition.
        if flag.startswith(key) and key not in ("mem", "gres"):
            raise RequestError(f"--sbatch {key}: sbatch reads it as the beginning of --{flag}. Write options in full.")
    if value:
        _one_line(f"--sbatch {key}", value)


def _account(said: _Said, cluster: Cluster, site: Site, draft: _Draft) -> None:
    rule = cluster.account
    if site.scheduler == "local":
        _without_scheduler("account", said("account")[0], draft)
        draft.put("account", None, "no scheduler")
        return
    account = draft.first(
        "account",
        said("account"),
        (site.account, "environment: SBATCH_ACCOUNT"),
        (rule.default, f"cluster {cluster.name}: account.default"),
    )
    listing = f" `{rule.list_command}` lists yours." if rule.list_command else ""
    if account is None:
        if rule.required:
            raise PlanError(
                f"cluster {cluster.name} needs an account. Give --account NAME or set SBATCH_ACCOUNT.{listing}"
            )
        return
    _one_line("account", account)
    if rule.pattern and not re.search(rule.pattern, account):
        raise PlanError(
            f"account '{account}' does not fit cluster {cluster.name}, whose accounts match {rule.pattern}.{listing}"
        )


def _time(said: _Said, cluster: Cluster, partition: Partition | None, draft: _Draft) -> None:
    longest = parse_time(partition.max_time) if partition else None
    text = draft.first("time_s", said("time"), (cluster.defaults.time, f"cluster {cluster.name}: defaults"))
    if text is None:
        return
    seconds = parse_time(text)
    if said("time")[0] is None and longest is not None and seconds > longest:
        seconds = longest  # nobody asked for the default, so it gives way
        draft.origins["time_s"] = f"cluster {cluster.name}: limit of the partition"
    if seconds <= 0:
        raise RequestError(f"time '{text}' is no time at all. Write HH:MM:SS.")
    draft.values["time_s"] = seconds
    if partition and longest is not None and seconds > longest:
        longer = [p.name for p in cluster.partitions if parse_time(p.max_time) >= seconds]
        advice = (
            f"or take a partition that allows it: {', '.join(longer)}"
            if longer
            else "since no partition here allows it"
        )
        raise PlanError(
            f"time {format_time(seconds)}: partition {partition.name} of cluster {cluster.name} allows "
            f"{format_time(longest)}. Ask for less with --time, {advice}."
        )


COMPUTED_BLOCKS = {
    "optimizer": "Set optimizer.lr and its like.",
    "fp16.enabled": "Set precision.",
    "bf16.enabled": "Set precision.",
    "bfloat16": "Set precision.",
    **dict.fromkeys(COMPUTED, "Set micro_batch_size, gradient_accumulation_steps, or use --nodes and --gpus-per-node."),
}
"""Places in the DeepSpeed config that follow from the plan."""


def _settings(said: _Said, draft: _Draft) -> None:
    settings, source = said("set")
    origin = source if source.startswith("--") else f"{source}: set"
    for name in apply_settings(draft.values, settings):
        draft.origins[name] = origin
    for item in settings:
        place = split_pair(item, "--set")[0].removeprefix("deepspeed.")
        for computed, advice in COMPUTED_BLOCKS.items():
            if item.startswith("deepspeed.") and (place == computed or place.startswith(f"{computed}.")):
                raise RequestError(f"deepspeed.{place} is computed. {advice}")
        other = {"fp16": "fp16", "bf16": "bf16"}.get(place.split(".")[0])
        if item.startswith("deepspeed.") and other and draft.values["precision"] != other:
            raise PlanError(f"deepspeed.{place} has no effect: the precision is {draft.values['precision']}.")
    check_keys(draft.values["deepspeed"], "--set deepspeed" if settings else "deepspeed")
    for key in (*COMPUTED, "optimizer"):
        if key in draft.values["deepspeed"]:
            raise RequestError(f"deepspeed.{key} is computed. {COMPUTED_BLOCKS[key]}")
    _checked_parts(draft.values)
    for name in ("tasks_per_node", "micro_batch_size", "gradient_accumulation_steps", "sequence_length", "steps"):
        _positive(name, draft.values[name])
    if not 0 <= draft.values["seed"] < 2**32:
        raise RequestError(f"seed is {draft.values['seed']}, it must be between 0 and {2**32 - 1}.")


def _checked_parts(values: dict[str, Any]) -> None:
    """Hold the parts that --set can change to what a method file may say there."""
    models: dict[str, type[Quantization] | type[Lora] | type[Optimizer]]
    models = {"quantization": Quantization, "peft": Lora, "optimizer": Optimizer}
    for name, model in models.items():
        if values[name] is None:
            continue
        try:
            values[name] = model.model_validate(values[name]).model_dump()
        except ValidationError as error:
            raise explain_validation(error, f"--set {name}", allowed_keys(model)) from None


def _finish(draft: _Draft, cluster: Cluster, partition: Partition | None, gpu: Gpu, site: Site) -> PlanWithOrigins:
    values = draft.values
    _learning(draft)
    check_capabilities(values, gpu, cluster)
    if " becomes " in draft.origins["precision"]:
        draft.notices.append(draft.origins["precision"])
    letters = spelled(values)
    if letters != values["letters"]:
        draft.put("letters", letters, "computed: what the method does after --set")
    if values["launcher"] not in cluster.launch.allowed:
        raise PlanError(
            unknown_name("launcher", values["launcher"], cluster.launch.allowed, where=f"cluster {cluster.name}")
        )
    measured = values["steps"] - values["warmup_steps"]
    if values["warmup_steps"] < 0 or measured < metrics.MIN_MEASURED_STEPS:
        raise RequestError(
            f"warmup_steps is {values['warmup_steps']} of {values['steps']} steps: at least "
            f"{metrics.MIN_MEASURED_STEPS} steps must be measured, or the run is invalid. Choose more --steps."
        )
    world = values["nodes"] * values["tasks_per_node"]
    draft.put("world_size", world, "computed: nodes x tasks_per_node")
    if world == 1 and values["launcher"] == "torchrun":
        draft.put("launcher", "python", "computed: one rank needs no launcher")
    if world > 1 and values["launcher"] == "python":
        others = ", ".join(name for name in cluster.launch.allowed if name != "python") or "none here"
        raise PlanError(f"launcher python starts one rank, the plan has {world}. Launchers for several: {others}.")
    if values["launcher"] == "srun" and values["scheduler"] != "slurm":
        raise PlanError(
            f"launcher srun needs Slurm, cluster {cluster.name} runs on this machine. Use another launcher."
        )
    if 0 < values["gpus_per_node"] < values["tasks_per_node"]:
        raise PlanError(
            f"tasks_per_node is {values['tasks_per_node']} with {values['gpus_per_node']} GPUs per node: "
            "each rank needs a GPU of its own."
        )
    groups = draft.put("data_parallel", world, "computed: each rank trains on samples of its own")
    batch = values["micro_batch_size"] * values["gradient_accumulation_steps"] * groups
    draft.put("global_batch_size", batch, "computed: micro_batch_size x gradient_accumulation_steps x data_parallel")
    _cores_and_memory(draft, cluster, cluster.node_of(partition), site)
    on_gpu = bool(values["gpus_per_node"])
    draft.put("expected_gpu", gpu.model if on_gpu else None, f"cluster {cluster.name}: gpu.model")
    _peak(draft, cluster, gpu.peak_tflops.get(values["precision"]) if on_gpu else None)
    values["deepspeed"] = complete_deepspeed(values)
    if values["quantization"]:
        values["quantization"] = {**values["quantization"], "compute_dtype": values["precision"]}
    return PlanWithOrigins(plan=Plan(**values), origins=draft.origins, notices=tuple(draft.notices))


def _learning(draft: _Draft) -> None:
    """Decide what training starts from and how fast it learns, where nobody has said."""
    values = draft.values
    model, optimizer = values["model"], values["optimizer"]
    weights, why, found = choose_weights(model, values["weights"])
    draft.put("weights", weights, why if values["weights"] is None else draft.origins["weights"])
    check_length(model, found, values["sequence_length"])
    check_tokenizer(found, weights, values["data"])
    if optimizer["lr"] is None:
        rate, why = learning_rate(model, found, lora=values["peft"] is not None)
        values["optimizer"] = {**optimizer, "lr": rate}
        draft.origins["optimizer"] += f", lr: {why}"
    steps, origin = choose_ramp(values["lr_ramp_steps"], values["steps"], own="scheduler" in values["deepspeed"])
    draft.put("lr_ramp_steps", steps, origin or draft.origins["lr_ramp_steps"])


def _peak(draft: _Draft, cluster: Cluster, tflops: float | None) -> None:
    """The profile's peak, unless --set gave one."""
    given = draft.values.get("peak_flops")
    if given is None:
        draft.put("peak_flops", tflops and tflops * 1e12, f"cluster {cluster.name}: gpu.peak_tflops")
    elif isinstance(given, bool) or not isinstance(given, (int, float)) or given <= 0:
        raise RequestError(f"--set peak_flops={given!r}: FLOP/s of one GPU are needed, e.g. 312e12.")


def _cores_and_memory(draft: _Draft, cluster: Cluster, node: Node, site: Site) -> None:
    gpus, tasks = draft.values["gpus_per_node"], draft.values["tasks_per_node"]
    cores = None
    if node.cpus_per_gpu and gpus:
        cores = max(node.cpus_per_gpu * gpus // tasks, 1)
    # Without it torchrun gives each rank one thread, and an optimizer on the host crawls.
    here = max(site.hardware.cpus // tasks, 1) if site.scheduler == "local" and site.hardware else None
    draft.first(
        "cpus_per_task",
        (_asked_cores(draft, cluster, node), "--sbatch"),
        (cores, f"cluster {cluster.name}: node.cpus_per_gpu"),
        (here, "detected: the cores of this machine over its ranks"),
    )
    share = _memory_share(cluster.request.memory, node, gpus)
    if share is None:
        draft.put("mem", None, "not set")
    else:
        # The profile counts decimal GB, Slurm's M is 2^20: round down, a GiB too much is charged as another GPU.
        draft.put("mem", f"{int(share * 1e9 / 2**20)}M", f"cluster {cluster.name}: node.mem_gb_per_gpu")


def _asked_cores(draft: _Draft, cluster: Cluster, node: Node) -> int | None:
    """Cores per rank of `--sbatch cpus-per-task=N`, where N counts for each task that the launcher asks Slurm for."""
    text: str | None = draft.values["sbatch"].get("cpus-per-task")
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise RequestError(f"--sbatch cpus-per-task={text}: a whole number is needed.")
    gpus: int = draft.values["gpus_per_node"]
    tasks: int = draft.values["tasks_per_node"]
    asked = int(text) * slurm_tasks_per_node(draft.values["launcher"], tasks)
    limits = [(node.cpus, "cores per node")]
    if node.enforce_ratio and node.cpus_per_gpu:
        limits.append((node.cpus_per_gpu * gpus, f"cores for {gpus} GPUs"))
    for limit, what in limits:
        if limit is not None and asked > limit:
            raise PlanError(
                f"--sbatch cpus-per-task={text} asks for {asked} cores: cluster {cluster.name} has {limit} {what}."
            )
    return max(asked // tasks, 1)


def slurm_tasks_per_node(launcher: str, ranks_per_node: int) -> int:
    """How many tasks per node Slurm is asked for: torchrun and python are one that starts the ranks itself."""
    return 1 if launcher in ("torchrun", "python") else ranks_per_node


def _memory_share(style: str, node: Node, gpus: int) -> float | None:
    """Decimal GB for the memory flag of that style; None where none is given."""
    if style == "omit" or node.mem_gb_per_gpu is None or not gpus:
        return None
    if style == "mem-per-cpu":
        return node.mem_gb_per_gpu / node.cpus_per_gpu if node.cpus_per_gpu else None
    return node.mem_gb_per_gpu * (gpus if style == "mem" else 1)


def complete_deepspeed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The DeepSpeed config with batch sizes, precision blocks and optimizer filled in from the plan's values."""
    config = {k: v for k, v in values["deepspeed"].items() if k not in ("fp16", "bf16", "bfloat16")}
    config["train_micro_batch_size_per_gpu"] = values["micro_batch_size"]
    config["gradient_accumulation_steps"] = values["gradient_accumulation_steps"]
    config["train_batch_size"] = values["global_batch_size"]
    if values["precision"] in ("fp16", "bf16"):
        block = values["deepspeed"].get(values["precision"]) or {}
        config[values["precision"]] = {**block, "enabled": True}
    optimizer = values["optimizer"]
    if optimizer["type"] in OF_DEEPSPEED:
        parameters = {k: v for k, v in optimizer.items() if k != "type"}
        config["optimizer"] = {"type": optimizer["type"], "params": parameters}
    return config


def renamed(planned: PlanWithOrigins, job_name: str) -> PlanWithOrigins:
    """The same plan under another job name, as for a job array."""
    return replace(planned, plan=replace(planned.plan, job_name=job_name))
