"""What a search for the micro batch keeps, leaves free, and is repeated over. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.planning.draft import Draft, Said, positive
from hpc_llm.planning.micro_batches import MicroBatches
from hpc_llm.planning.parts import BatchShape, Tuning
from hpc_llm.planning.recipe import check_length, longest_of
from hpc_llm.planning.tasks import TaskKind
from hpc_llm.records import metrics

if TYPE_CHECKING:
    from hpc_llm.planning.checkpoint import Checkpoint

AXES = ("sequence-length",)
"""What a search can be repeated over."""
_LENGTHS = 4
"""Where nobody says which."""
_OF_TRAINING = {
    "data": "samples of one's own may be short until a long one comes; it takes synthetic tokens, which fill every sequence. Leave it out.",
    "epochs": "a try is a few steps. Use --steps N in their place.",
    "save_every": "nothing that is trained is kept. Leave it out.",
}


def check_asked(said: Said, task: TaskKind) -> None:
    """Raise RequestError for an option that this task would not heed, a search or none."""
    if task.search is None:
        over, source = said("over")
        if over is not None:
            raise RequestError(
                f"over ({source}) is {over}: task {task.name} searches for nothing. It is for --task tune."
            )
        return
    for name, why in _OF_TRAINING.items():
        value, source = said(name)
        if value:
            raise RequestError(f"{name} ({source}) is given, and task {task.name} does not heed it: {why}")


def settle_search(
    workload: Tuning, batch: BatchShape, groups: int, said: Said, found: Checkpoint | None, model: str, draft: Draft
) -> tuple[Tuning, BatchShape]:
    """The search and the batch of its first try, as far as a plan knows it, with `groups` of ranks.

    Raises RequestError or PlanError where a value cannot be, or the model takes no sequence of such a length.
    """
    _check(workload, draft)
    lengths = _lengths(said, batch.sequence_length, longest_of(model, found))
    for length in lengths:
        least_or_most = "2,…" if length < 2 else f"…,{longest_of(model, found)}"
        way = f"--over sequence-length={least_or_most}"
        check_length(model, found, length, "over, sequence_length", way, is_trained=True)
    origin = said("over")[1] if lengths else "not set: one search, at sequence_length"
    kept, why = _kept(workload, batch, groups, said, draft)
    if lengths:
        batch = replace(batch, sequence_length=draft.computed("sequence_length", lengths[0], origin))
    workload = replace(
        workload,
        lengths=draft.computed("lengths", list(lengths), origin),
        kept_global_batch=draft.computed("kept_global_batch", kept, why or draft.origins["kept_global_batch"]),
    )
    return workload, _first(batch, kept, groups, draft)


def _check(workload: Tuning, draft: Draft) -> None:
    margin = workload.margin
    if isinstance(margin, bool) or not 0 <= margin < 1:
        raise RequestError(
            f"{draft.settings.said('margin')}={margin}: a part of the memory is needed, from 0 to less than 1, e.g. 0.05."
        )
    for name in ("try_time_s", "most_tries"):
        positive(name, getattr(workload, name))
    least = workload.warmup_steps + metrics.MIN_MEASURED_STEPS
    if workload.confirm_steps < least:
        raise RequestError(
            f"{draft.settings.said('confirm_steps')}={workload.confirm_steps}: after {workload.warmup_steps} steps of warm-up at least "
            f"{metrics.MIN_MEASURED_STEPS} must be measured, so at least {least} are needed."
        )


def _lengths(said: Said, own: int, longest: int | None) -> tuple[int, ...]:
    """The sequence lengths that `--over` names, or as many as usual from the plan's own on, each twice the one before."""
    over, source = said("over")
    if over is None:
        return ()
    axis, equals, listed = str(over).partition("=")
    if axis.strip().replace("_", "-") not in AXES:
        is_list = not equals and all(word.strip().isdecimal() for word in axis.split(","))
        way = f"Write the axis before its values, as in --over {AXES[0]}={axis.replace(' ', '')}." if is_list else ""
        raise RequestError(unknown_name("axis", axis.strip(), AXES, where=f"over ({source})", next_step=way))
    if equals and not listed.strip():
        raise RequestError(
            f"over ({source}) is {over}: nothing stands behind the =. Write the lengths in tokens, as in --over sequence-length=512,1024,2048, "
            f"or --over sequence-length alone for {_LENGTHS} from the plan's own on."
        )
    if not listed:
        doubled = [own << number for number in range(_LENGTHS)]
        return tuple(length for length in doubled if longest is None or length <= longest) or (own,)
    words = [word.strip() for word in listed.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < 10 and int(word) for word in words):
        raise RequestError(
            f"over ({source}) is {over}: write the lengths in tokens, as in --over sequence-length=512,1024,2048."
        )
    return tuple(sorted({int(word) for word in words}))


def _kept(workload: Tuning, batch: BatchShape, groups: int, said: Said, draft: Draft) -> tuple[int | None, str]:
    """Sequences of a step that each try keeps, and why; a reason that is empty is the field's own."""
    asked, accumulation = workload.kept_global_batch, said("gradient_accumulation_steps")
    if asked is None:
        if accumulation[0] is None:
            return None, "default: a step of a try is one micro batch of each rank"
        return batch.global_batch_size, f"computed: micro_batch_size x {accumulation[1]} x data_parallel"
    if isinstance(asked, bool) or not isinstance(asked, int):
        raise RequestError(
            f"{draft.settings.said('kept_global_batch')}={asked}: a whole number of sequences is needed."
        )
    positive("kept_global_batch", asked)
    if accumulation[0] is not None:
        raise RequestError(
            f"both kept_global_batch and gradient_accumulation_steps ({accumulation[1]}) say the global batch: keep one of them."
        )
    if asked % groups:
        near: Sequence[int] = [one for one in (asked - asked % groups, asked + groups - asked % groups) if one]
        raise PlanError(
            f"kept_global_batch is {asked}, and {groups} groups of ranks cannot share it evenly: "
            f"{' or '.join(map(str, near))} can be."
        )
    return asked, ""


def _first(batch: BatchShape, kept: int | None, groups: int, draft: Draft) -> BatchShape:
    """The batch of the first try, whose global batch is what is to be kept."""
    if kept is None:
        return batch
    share = kept // groups
    size = MicroBatches(share).at_most(batch.micro_batch_size) or 1
    why = f"computed: of {batch.micro_batch_size} what divides {share}"
    if size == batch.micro_batch_size:
        why = draft.origins["micro_batch_size"]
    return replace(
        batch,
        micro_batch_size=draft.computed("micro_batch_size", size, why),
        gradient_accumulation_steps=draft.computed(
            "gradient_accumulation_steps", share // size, "computed: what keeps the global batch"
        ),
        global_batch_size=draft.computed("global_batch_size", kept, "computed: kept_global_batch"),
    )
