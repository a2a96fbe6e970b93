"""What a task has to do: how many steps, on which data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpc_llm.corpus.words import VALIDATION
from hpc_llm.errors import RequestError
from hpc_llm.planning.data import asked_for, choose_feed, choose_steps, epochs_of, only_read
from hpc_llm.planning.draft import FALLBACKS, Draft, Said, Site, positive
from hpc_llm.planning.method import Method
from hpc_llm.planning.parts import BatchShape, Training, default_of, own_fields, short_name
from hpc_llm.planning.profilers import check_kernels, check_name
from hpc_llm.planning.recipe import choose_evaluation
from hpc_llm.planning.tasks import TaskKind
from hpc_llm.records import metrics
from hpc_llm.site.cluster import Cluster

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts


def choose_workload(
    said: Said,
    cluster: Cluster,
    method: Method,
    site: Site,
    task: TaskKind,
    batch: BatchShape,
    corpus: CorpusFacts | None,
    draft: Draft,
) -> Training:
    """How long it is trained, on what; what a task has of its own is as its class has it, or as it is set.

    Raises RequestError or PlanError where too few steps are left to be measured, or the data cannot be had so.
    """
    if task.is_on_host:
        return _preparation(said, site, task.workload, draft)
    kind = task.workload
    feed = choose_feed(said, batch, corpus, draft)
    steps = choose_steps(said, feed.rows, batch, cluster, draft, usual=task.steps)
    warmup: int = draft.first("warmup_steps", said("warmup_steps"), _few_enough(steps))
    if warmup < 0:
        raise RequestError(f"warmup_steps is {warmup}, it must be at least 0.")
    if steps - warmup < metrics.MIN_MEASURED_STEPS:
        more = asked_for(warmup + metrics.MIN_MEASURED_STEPS, said, feed.rows, batch, draft)
        raise RequestError(
            f"warmup_steps is {warmup} of {steps} steps: at least "
            f"{metrics.MIN_MEASURED_STEPS} steps must be measured, or the run is invalid. Ask for more: {more}."
        )
    save_every, keep = _keeping(said, draft)
    if save_every is not None and feed.is_counted and save_every > steps:
        draft.notices.append(
            f"save_every is {save_every} and the steps are {steps}: a checkpoint is kept behind the last one alone, and where a signal "
            "asks for it"
        )
    own = {one.name: draft.put(short_name(one), default_of(one), "default") for one in own_fields(kind)}
    usual = FALLBACKS["warmup_steps"] + metrics.MIN_MEASURED_STEPS
    _tell_short_warmup(steps, warmup, asked_for(usual, said, feed.rows, batch, draft), draft)
    return kind(
        **own,
        **feed.fields,
        steps=steps,
        warmup_steps=warmup,
        seed=choose_seed(said, draft),
        lr_ramp_steps=draft.put("lr_ramp_steps", method.lr_ramp_steps, f"method {method.name}"),
        lr_schedule=draft.put("lr_schedule", method.lr_schedule, f"method {method.name}"),
        eval_every=_evaluation(steps, task, corpus, draft),
        save_every=save_every,
        keep=keep,
        resume=draft.first("resume", said("resume")),
        profile=check_name(draft.first("profile", said("profile"))),
        profile_kernels=check_kernels(draft.put("profile_kernels", None, "not set")),
        epochs=epochs_of(steps, feed.rows, batch, said, draft),
        caches=draft.computed("caches", None, "not set: nothing is to be prepared"),
    )


def _keeping(said: Said, draft: Draft) -> tuple[int | None, int]:
    """How often a checkpoint is kept, and how many of them."""
    every, keep = draft.first("save_every", said("save_every")), draft.put("keep", 2, "default")
    for name, value in (("save_every", every), ("keep", keep)):
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int):
                raise RequestError(f"{name} is {value!r}: a whole number is needed.")
            positive(name, value)
    if every is None and draft.settings.of("keep"):
        draft.notices.append(f"keep is {keep} and no checkpoint is kept: it has an effect with --save-every alone")
    return every, keep


def _evaluation(steps: int, task: TaskKind, corpus: CorpusFacts | None, draft: Draft) -> int | None:
    """How often is evaluated; who sets it to null wants it never. Raises RequestError where nothing is held out for it."""
    is_set = bool(draft.settings.of("eval_every"))
    asked = draft.put("eval_every", None, "not set")
    holds_out = corpus is None or VALIDATION in corpus.splits
    found, why = choose_evaluation(asked, task.evaluates and not is_set and holds_out, steps)
    if not holds_out and found is not None and corpus is not None:
        corpus.split(VALIDATION)  # says what would hold something out
    if not holds_out and found is None and task.evaluates and not is_set:
        why = "computed: nothing of the data is held out (validation_fraction)"
        if corpus is not None:
            draft.notices.append(
                "nothing of the data is held out, so nothing is evaluated: --set validation_fraction=0.1, or --data validation=FILE, "
                "holds some out, and the data are prepared anew; --set eval_every=null says that none is wanted"
            )
    value: int | None = draft.computed("eval_every", found, draft.origins["eval_every"] if is_set or not why else why)
    return value


def _preparation(said: Said, site: Site, kind: type[Training], draft: Draft) -> Training:
    """What a task does that takes no steps."""
    nothing: dict[str, Any] = {
        name: draft.computed(name, 0, "computed: nothing is trained")
        for name in ("steps", "warmup_steps", "lr_ramp_steps")
    }
    nothing |= {
        "lr_schedule": draft.computed("lr_schedule", "constant", "computed: nothing is trained"),
        "eval_every": draft.computed("eval_every", None, "computed: nothing is trained"),
    }
    return kind(**nothing, **only_read(said, site.caches, draft), seed=choose_seed(said, draft))


def choose_seed(said: Said, draft: Draft) -> int:
    seed: int = draft.first("seed", said("seed"), (FALLBACKS["seed"], "default"))
    if not 0 <= seed < 2**32:
        raise RequestError(f"seed is {seed}, it must be between 0 and {2**32 - 1}.")
    return seed


def _few_enough(steps: int) -> tuple[int, str]:
    """As many warm-up steps as usual, or as leave enough to be measured."""
    usual, most = FALLBACKS["warmup_steps"], max(steps - metrics.MIN_MEASURED_STEPS, 0)
    why = f"computed: of {steps} steps at least {metrics.MIN_MEASURED_STEPS} are measured, {usual} is the default"
    return (usual, "default") if usual <= most else (most, why)


def _tell_short_warmup(steps: int, warmup: int, more: str, draft: Draft) -> None:
    """Whoever chose the number of warm-up steps knows it; who chose few steps may not."""
    usual = FALLBACKS["warmup_steps"]
    if draft.origins["warmup_steps"].startswith("computed"):
        left_out = (
            f"{warmup} warm-up steps are" if warmup > 1 else "1 warm-up step is" if warmup else "no warm-up step is"
        )
        draft.notices.append(
            f"of {steps} steps {left_out} left out of the measurement, {usual} are usual: the first steps are slow and count. "
            f"{more} or more leaves {usual} out"
        )
