"""plan(): the request with everything decided, each value with its origin. Pure: no clock, no environment, no subprocess.

Each part of the plan is decided once, from what was decided before it. What a GPU or a site cannot do is caught here, before
anything is queued.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from hpc_llm.errors import RequestError
from hpc_llm.outside import without_pydantics_plugins
from hpc_llm.planning import tasks
from hpc_llm.planning.data import check_feed
from hpc_llm.planning.deepspeed_asked import ask_deepspeed, check_beside_plan
from hpc_llm.planning.deepspeed_schedules import own_rate
from hpc_llm.planning.deepspeed_values import check_with_plan
from hpc_llm.planning.draft import FALLBACKS, Draft, Said, Site, one_line, positive
from hpc_llm.planning.engine_setup import choose_setup, complete_deepspeed, engine_asked, wanted_of
from hpc_llm.planning.engines import Chosen, zero_stage
from hpc_llm.planning.experiment import CHANGED_LETTERS, ESTIMATED_LETTERS, Experiment, Plan, PlanWithOrigins
from hpc_llm.planning.families import check_made_of_text
from hpc_llm.planning.generation import check_generator, choose_generation, no_engine, settle_generation
from hpc_llm.planning.gpu import actual_gpu, allocator_env, check_capabilities, choose_precision
from hpc_llm.planning.limits import JobQos, job_qos
from hpc_llm.planning.method import (
    LoraBlock,
    Method,
    OptimizerBlock,
    QuantizationBlock,
    auto_in,
    letters_with,
    plan_letters,
)
from hpc_llm.planning.optimizer_choice import odd_rate, suited_optimizer
from hpc_llm.planning.parts import (
    BatchShape,
    Inference,
    JobRequest,
    Lora,
    ModelSetup,
    OptimizerSetup,
    Parallel,
    Quantization,
    Training,
    Tuning,
    read_part,
)
from hpc_llm.planning.profilers import check_profiler
from hpc_llm.planning.recipe import (
    check_family,
    check_length,
    check_readable,
    check_states,
    check_stored_as_planned,
    check_targets,
    check_tokenizer,
    choose_ramp,
    choose_schedule,
    choose_weights,
    frozen_by,
    learning_rate,
)
from hpc_llm.planning.recompute import AUTO
from hpc_llm.planning.recompute_choice import choose_recompute
from hpc_llm.planning.resources import (
    ask_launcher,
    ask_one_process,
    ask_resources,
    check_slices,
    check_variables,
    expected_gpu,
)
from hpc_llm.planning.search import check_asked, settle_search
from hpc_llm.planning.settings import Settings
from hpc_llm.planning.sharing import check_sharing, check_task
from hpc_llm.planning.slurm_request import (
    Ask,
    ask_account,
    ask_cores_and_memory,
    ask_options,
    ask_partition,
    ask_time,
)
from hpc_llm.planning.tasks import TaskKind
from hpc_llm.planning.vllm import check_bench
from hpc_llm.planning.vllm import is_asked as is_vllm
from hpc_llm.planning.workload import choose_workload
from hpc_llm.records.run import file_name_part
from hpc_llm.site.cluster import Cluster, Gpu
from hpc_llm.site.sbatch_options import check_signal

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts
    from hpc_llm.planning.checkpoint import Checkpoint

__all__ = ["Site", "complete_deepspeed", "plan"]

_M = TypeVar("_M", bound=BaseModel)


def plan(
    experiment: Experiment,
    cluster: Cluster,
    method: Method,
    site: Site,
    sources: Mapping[str, str] | None = None,
    corpus: CorpusFacts | None = None,
    estimated: Mapping[str, Chosen] | None = None,
) -> PlanWithOrigins:
    """Decide everything about one run. Raises PlanError or RequestError when the site, its GPU or the method cannot do it.

    `sources` says where each field of the experiment came from (`--steps`, `FILE.yaml`); what is not in it the caller has set. `corpus` is
    what its data were prepared as; without one, where there are data, what is wrong whatever they hold is refused, and the plan is none
    that could be run. `estimated` holds value and reason of what the request leaves to the estimate, by short name.
    """
    said, task = Said(experiment, sources or {}), tasks.find(experiment.task)
    draft = _begun(said, task, estimated)
    partition, partition_name = ask_partition(said, cluster, site, draft)
    cluster = cluster.on(partition)
    gpu = actual_gpu(cluster.gpu_of(partition), site.hardware)
    options = ask_options(said, cluster, site, draft)
    qos = job_qos(options, cluster, partition, draft) if "sbatch" in site.facts.requests else JobQos()
    check_task(task, experiment.tensor_parallel)
    parallel = (ask_one_process if task.is_on_host else ask_resources)(said, cluster, partition, gpu, site, draft)
    ask = Ask(said=said, site=site, cluster=cluster, partition=partition, qos=qos, options=options, parallel=parallel)
    time_s = ask_time(ask, draft)
    workload, batch = _work(ask, method, task, corpus, draft)
    check_signal(experiment.sbatch, saves=workload.save_every is not None, time_s=time_s)
    draft.notices += _check_profiler(workload, gpu, parallel, task)
    deepspeed = ask_deepspeed(method, draft)
    model, found = _model(said, cluster, method, gpu, task, batch, workload, draft)
    workload, batch = _settled(ask, workload, batch, model, found, draft)
    check_feed(workload, corpus, model, batch, found)
    _check_model(model, found, parallel, draft)
    check_capabilities(model, zero_stage(deepspeed), gpu, cluster)
    optimizer = _optimizer(method, model, found, gpu, deepspeed, draft)
    env = allocator_env(task, cluster, gpu, batch)
    workload = _rates(workload, deepspeed, task, draft)
    wanted = wanted_of(model, batch, parallel, optimizer, deepspeed, found, gpu)
    engine = no_engine(wanted, draft) if task.generates else choose_setup(method, wanted, draft)
    check_with_plan(deepspeed if engine.name == "deepspeed" else {}, parallel.data, model.precision, "deepspeed")
    decided = Plan(
        task=_said_whole(draft, "task", (task.name, said("task")[1])),
        cluster=_said_whole(draft, "cluster", (cluster.name, "request")),
        method=_said_whole(draft, "method", (method.name, "request")),
        letters=_letters(method, model, deepspeed, draft),
        workload=workload,
        model=model,
        batch=batch,
        parallel=parallel,
        optimizer=optimizer,
        engine=engine,
        job=_job(ask, gpu, partition_name, time_s, _job_name(task, model, method), env, draft),
        gpu=expected_gpu(cluster, gpu, parallel, model, draft),
    )
    draft.notices += check_beside_plan(decided, cluster, searches=task.search is not None)
    return PlanWithOrigins(
        plan=decided, origins=draft.origins, notices=tuple(draft.notices), asked=experiment.said_fields()
    )


def _begun(said: Said, task: TaskKind, estimated: Mapping[str, Chosen] | None) -> Draft:
    """A draft that holds the settings of the request, all of which have a meaning for the task."""
    pairs, source = said("set")
    draft = Draft(Settings(pairs, source if source.startswith("--") else f"{source}: set"), estimated)
    tasks.check_settings(task, [(setting.said, setting.field) for setting in draft.settings.all])
    return draft


def _check_profiler(workload: Training, gpu: Gpu, parallel: Parallel, task: TaskKind) -> Sequence[str]:
    return check_profiler(
        workload.profile,
        gpu.vendor,
        gpus=parallel.gpus_per_node,
        ranks=parallel.world_size,
        searches=bool(task.search),
        kernels=workload.profile_kernels,
    )


def _check_model(model: ModelSetup, found: Checkpoint | None, parallel: Parallel, draft: Draft) -> None:
    check_sharing(model, found, parallel)
    check_stored_as_planned(model, None if is_vllm(draft) else found)
    if told := check_family(model.name, found, model.attention, model.precision):
        draft.notices.append(told)


def _settled(
    ask: Ask, workload: Training, batch: BatchShape, model: ModelSetup, found: Checkpoint | None, draft: Draft
) -> tuple[Training, BatchShape]:
    """Workload and batch, once it is known which model answers, or is searched for."""
    if isinstance(workload, Inference):
        workload = settle_generation(workload, model, draft)
        if is_vllm(draft):
            check_bench(workload, model, found, ask.parallel, draft)
    if isinstance(workload, Tuning):
        return settle_search(workload, batch, ask.parallel.data, ask.said, found, model.name, draft)
    return workload, batch


def _said_whole(draft: Draft, name: str, said: tuple[str, str]) -> str:
    value: str = draft.computed(name, *said)
    return value


def _work(
    ask: Ask, method: Method, task: TaskKind, corpus: CorpusFacts | None, draft: Draft
) -> tuple[Training, BatchShape]:
    """What is to be done, in which batches."""
    check_asked(ask.said, task)
    batch = _batch(ask.said, ask.cluster, ask.parallel, draft)
    if task.generates:
        return choose_generation(ask.said, method, batch, ask.parallel.data, corpus, draft)
    return choose_workload(ask.said, ask.cluster, method, ask.site, task, batch, corpus, draft), batch


def _batch(said: Said, cluster: Cluster, parallel: Parallel, draft: Draft) -> BatchShape:
    micro, accumulation, length = (
        _count(said, cluster, name, draft)
        for name in ("micro_batch_size", "gradient_accumulation_steps", "sequence_length")
    )
    batch = micro * accumulation * parallel.data
    return BatchShape(
        micro_batch_size=micro,
        gradient_accumulation_steps=accumulation,
        global_batch_size=draft.computed(
            "global_batch_size", batch, "computed: micro_batch_size x gradient_accumulation_steps x data_parallel"
        ),
        sequence_length=length,
    )


def _count(said: Said, cluster: Cluster, name: str, draft: Draft) -> int:
    """A number of at least 1 that the request, the cluster or a default gives."""
    suggested = (getattr(cluster.defaults, name, None), f"cluster {cluster.name}: defaults")
    value: int = draft.first(name, said(name), suggested, (FALLBACKS[name], "default"))
    positive(name, value)
    return value


def _rates(workload: Training, deepspeed: Mapping[str, Any], task: TaskKind, draft: Draft) -> Training:
    """The ramp of the learning rate and what follows it, where nobody has said it."""
    own = "scheduler" in deepspeed
    steps, origin = choose_ramp(workload.lr_ramp_steps, workload.steps, own)
    schedule, why = choose_schedule(workload.lr_schedule, task.lr_schedule, own)
    return replace(
        workload,
        lr_ramp_steps=draft.computed("lr_ramp_steps", steps, origin or draft.origins["lr_ramp_steps"]),
        lr_schedule=draft.computed("lr_schedule", schedule, why or draft.origins["lr_schedule"]),
    )


def _model(
    said: Said,
    cluster: Cluster,
    method: Method,
    gpu: Gpu,
    task: tasks.TaskKind,
    batch: BatchShape,
    workload: Training,
    draft: Draft,
) -> tuple[ModelSetup, Checkpoint | None]:
    """The model, and its checkpoint where there is one to be seen."""
    origin = f"method {method.name}"
    suggested = (getattr(cluster.defaults, "model", None), f"cluster {cluster.name}: defaults")
    name: str = draft.first("model", said("model"), suggested, (FALLBACKS["model"], "default"))
    precision, why = choose_precision(method, gpu)
    precision = draft.put("precision", precision, why or origin)
    if " becomes " in draft.origins["precision"]:
        draft.notices.append(draft.origins["precision"])
    quantization = _checked("quantization", method.quantization, QuantizationBlock, origin, draft)
    peft = _checked("peft", method.peft, LoraBlock, origin, draft)
    asked = draft.put("weights", None, "not set")
    if task.is_on_host:
        check_readable(name)
        weights, why, found = "random", "computed: the weights are not needed", None
    else:
        weights, why, found = choose_weights(name, asked)
        if found and not is_vllm(draft):  # it makes its models itself
            check_made_of_text(found.folder, found.config)
        if isinstance(workload, Inference):
            check_generator(name, found, batch.sequence_length, workload.new_tokens)
        check_length(name, found, batch.sequence_length, is_trained=not isinstance(workload, Inference))
        check_tokenizer(found, weights, workload.data)
    draft.computed("weights", weights, why if asked is None else draft.origins["weights"])
    if peft:
        check_targets(name, found, peft["target_modules"])
    model = ModelSetup(
        name=name,
        weights=weights,
        precision=precision,
        attention=draft.put("attention", method.attention, origin),
        recompute=choose_recompute(method, task, name, found, draft),
        quantization=quantization and read_part(Quantization, {**quantization, "compute_dtype": precision}),
        peft=peft and read_part(Lora, peft),
        fp8=draft.put("fp8", method.fp8, origin),
    )
    return model, found


def _optimizer(
    method: Method,
    model: ModelSetup,
    found: Checkpoint | None,
    gpu: Gpu,
    deepspeed: Mapping[str, Any],
    draft: Draft,
) -> OptimizerSetup:
    values = _checked("optimizer", method.optimizer, OptimizerBlock, f"method {method.name}", draft)
    values["type"], passed = suited_optimizer(
        values["type"], model, vendor=gpu.vendor, engine=engine_asked(method, draft)
    )
    if passed:
        draft.origins["optimizer"] = "; ".join((draft.origins["optimizer"], *passed))
    if (of_schedule := own_rate(deepspeed, values["lr"])) is not None:
        values["lr"], why = of_schedule
        draft.origins["optimizer"] += f", lr: {why}"
    elif values["lr"] is None:
        frozen = frozen_by(lora=model.peft is not None, quantized=model.quantization is not None)
        values["lr"], why = learning_rate(model.name, found, frozen)
        draft.origins["optimizer"] += f", lr: {why}"
    optimizer: OptimizerSetup = read_part(OptimizerSetup, values)
    check_states(optimizer.type, model.precision)
    draft.notices += odd_rate(optimizer.lr)
    return optimizer


def _checked(name: str, of_method: _M | None, model: type[_M], origin: str, draft: Draft) -> Any:
    """A part of the method that --set may change, held to what a method file may say there; None stays None."""
    value = draft.put(name, of_method and copy.deepcopy(dict(of_method)), origin)
    if value is None or not draft.settings.of(name):  # what the method's file says was checked when it was read
        return value
    if said := auto_in(value):
        raise RequestError(f"{draft.settings.said(name)}: {said}.")
    try:
        with without_pydantics_plugins():
            return dict(model.model_validate(value))
    except ValidationError as error:
        from hpc_llm.site.explained import explain_validation

        raise explain_validation(error, draft.settings.said(name), model) from None


def _letters(method: Method, model: ModelSetup, deepspeed: Mapping[str, Any], draft: Draft) -> str:
    letters, is_estimated = (
        plan_letters(model, deepspeed),
        method.recompute == AUTO and not draft.settings.of("recompute"),
    )
    changed = letters != (letters_with(method, model.recompute) if is_estimated else method.letters)
    origin = CHANGED_LETTERS if changed else ESTIMATED_LETTERS if is_estimated else f"method {method.name}"
    if changed and draft.settings.all:
        draft.notices.append(
            f"with {draft.settings.origin} method {method.name} does what {letters} does: tables name it '{method.name} as {letters}'"
        )
    found: str = draft.computed("letters", letters, origin)
    return found


def _job(
    ask: Ask,
    gpu: Gpu,
    partition: str | None,
    time_s: int | None,
    default_name: str,
    env: tuple[dict[str, str], str],
    draft: Draft,
) -> JobRequest:
    said, cluster = ask.said, ask.cluster
    scheduler = draft.computed("scheduler", ask.site.scheduler, f"cluster {cluster.name}: scheduler")
    launcher = ask_launcher(ask.parallel, cluster, ask.site, draft)
    check_slices(gpu, ask.parallel.gpus_per_node, cluster, ask.options, launcher, draft)
    name: str = draft.first("job_name", said("name"), (file_name_part(default_name), "computed: model and method"))
    one_line("name", name)
    account = ask_account(said, cluster, ask.site, draft)
    cores, mem = ask_cores_and_memory(ask, launcher, draft)
    return JobRequest(
        scheduler=scheduler,
        launcher=launcher,
        partition=partition,
        account=account,
        time_s=time_s,
        name=name,
        cpus_per_task=cores,
        mem=mem,
        sbatch=dict(ask.options),
        env=check_variables(draft.put("env", *env), ask.parallel.gpus_per_node, draft.notices),
        env_file=draft.first("env_file", said("env_file"), (cluster.env.file, f"cluster {cluster.name}: env.file")),
    )


def _job_name(task: tasks.TaskKind, model: ModelSetup, method: Method) -> str:
    """What the job is called where nobody names it."""
    of_model = model.name.rstrip("/").rsplit("/", 1)[-1]
    return f"{of_model}-{task.name if task.is_on_host else method.name}"
