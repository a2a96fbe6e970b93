"""What a run is fed: which data, how they fill its sequences, and how many steps an epoch of them is. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hpc_llm.corpus.words import DOCUMENTS, DROP, NONE, REFUSE, STREAM, TRAIN
from hpc_llm.errors import PlanError, RequestError, counted
from hpc_llm.immutable import dataclass
from hpc_llm.planning.draft import FALLBACKS, Draft, Said, positive
from hpc_llm.planning.experiment import Experiment
from hpc_llm.planning.model import layout_of_model
from hpc_llm.planning.parts import BatchShape, ModelSetup, Training
from hpc_llm.planning.recipe import vocab_size_of
from hpc_llm.planning.settings import Settings
from hpc_llm.planning.synthetic import LOSS_FLOOR_NATS
from hpc_llm.planning.tasks.task import DATA_FIELDS
from hpc_llm.site.cluster import Cluster

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts
    from hpc_llm.corpus.key import CorpusRequest
    from hpc_llm.planning.checkpoint import Checkpoint

_READING: dict[str, Any] = {
    "columns": {}, "validation_fraction": None, "train_samples": None, "validation_samples": None,
}  # fmt: skip
"""What a request may say of how data are read, and what stands where it says nothing."""


_UNCOUNTED = 10**9
"""Steps of the epochs of data that are not prepared yet: whatever is asked of fewer is not refused for its number."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What a run is fed."""

    fields: dict[str, Any]
    """Those of the plan's workload that say so."""
    rows: int | None
    """Sequences of one epoch; None where they never come again, or nobody has counted them."""
    is_counted: bool = True
    """Whether steps that follow from epochs are known."""


def wanted_corpus(experiment: Experiment, cluster: Cluster) -> CorpusRequest | None:
    """The prepared data that an experiment needs; None where it needs none. Raises RequestError."""
    if not experiment.data:
        return None
    from hpc_llm.corpus.key import CorpusRequest

    settings = Settings(experiment.set)
    suggested = experiment.model or getattr(cluster.defaults, "model", None) or FALLBACKS["model"]
    model = settings.applied("model", suggested)
    how = {name: settings.applied(name, _copied(value)) for name, value in _READING.items()}
    _check_reading(how, settings)
    return CorpusRequest(sources=experiment.data, model=model, layout=layout_of_model(model), **how)


def choose_feed(said: Said, batch: BatchShape, corpus: CorpusFacts | None, draft: Draft) -> Feed:
    """The data, and how they fill the sequences; of data that nobody has prepared yet there is no `corpus`.

    Raises RequestError or PlanError where they do not.
    """
    data = list(said.experiment.data)
    if not data:
        refuse_for_synthetic(draft)
    floor, why = (None, "not known") if data else (LOSS_FLOOR_NATS, "computed: the entropy of the synthetic tokens")
    why_fit = "default" if data else "not set: synthetic tokens are as long as needed"
    fields: dict[str, Any] = {
        "data": draft.put("data", data, said("data")[1] if data else "default: synthetic tokens"),
        "loss_floor_nats": draft.put("loss_floor_nats", floor, why),
        "corpus": draft.put("corpus", corpus and str(corpus.folder), _where_and_how(corpus)),
        **reading(draft),
        "too_long": draft.put("too_long", REFUSE if data else None, why_fit),
        "packing": _packing(corpus, draft),
    }
    if corpus is None:
        return Feed(fields=fields, rows=None, is_counted=not data)
    from hpc_llm.corpus.sources import refuse_without_training

    refuse_without_training(data, corpus.splits)
    how = fields["packing"], batch.sequence_length, fields["too_long"]
    rows = {split: corpus.count_rows(split, *how) for split in corpus.splits}
    left_out = {split: corpus.count_left_out(split, *how) for split in corpus.splits}
    none_left = next((split for split in corpus.splits if left_out[split] and not rows[split]), None)
    if none_left is not None:
        raise PlanError(
            f"all samples of the {none_left} split in {corpus.folder} are left out: {_why_left_out(*how[1:])}. Ask for more with "
            "--sequence-length."
        )
    if not rows[TRAIN]:
        raise PlanError(
            f"the data in {corpus.folder} have {corpus.splits[TRAIN].tokens} tokens, which do not fill one sequence of "
            f"{batch.sequence_length}: give more data, or a shorter --sequence-length."
        )
    for split, number in left_out.items():
        if number:
            of_all = f"{number} of {counted(corpus.splits[split].samples, 'sample')} of the {split} split"
            draft.notices.append(f"{of_all} left out: {_why_left_out(*how[1:])}")
    return Feed(fields=fields, rows=rows[TRAIN])


def _why_left_out(length: int, too_long: str) -> str:
    if too_long == DROP:
        return f"longer than sequence_length {length}, or with nothing to learn in it"
    return f"with nothing to learn within sequence_length {length}"


def _where_and_how(corpus: CorpusFacts | None) -> str:
    told = sorted({f"read as {how}" for how in corpus.read_as.values()}) if corpus else []
    return "; ".join(("computed: where the data were prepared", *told))


def refuse_for_synthetic(draft: Draft) -> None:
    """Raise RequestError for a setting that tokens which are made up would not heed."""
    asked = next((one for one in draft.settings.all if one.field in DATA_FIELDS), None)
    if asked is not None:
        raise RequestError(
            f"{asked.said}: synthetic tokens do not heed it. Name data with --data SOURCE, or leave it out."
        )


def only_read(said: Said, caches: str | None, draft: Draft) -> dict[str, Any]:
    """The fields of the workload of a task that prepares data. Raises RequestError where there are none to prepare."""
    from hpc_llm.corpus.sources import may_hold_out, source_files

    if not said.experiment.data:
        raise RequestError("nothing is to be prepared: name it with --data SOURCE.")
    if caches is None:
        raise RequestError("nobody says where data are to be prepared: set HPC_LLM_CACHE to a folder.")
    read = reading(draft)
    holds_out = may_hold_out(source_files(said.experiment.data), read["validation_fraction"])
    if read["validation_samples"] and not holds_out:
        draft.notices.append(
            f"validation_samples={read['validation_samples']} says how many are held out at most, and nothing is: "
            "--set validation_fraction=0.1, or --data validation=FILE, holds some out"
        )
    return {
        "data": draft.put("data", list(said.experiment.data), said("data")[1]),
        "loss_floor_nats": draft.put("loss_floor_nats", None, "not known"),
        "caches": draft.put("caches", caches, "environment: HPC_LLM_CACHE, else beside the runs"),
        **read,
    }


def reading(draft: Draft) -> dict[str, Any]:
    """How the data are read, as the settings say it."""
    found = {name: draft.put(name, _copied(value), "default") for name, value in _READING.items()}
    _check_reading(found, draft.settings)
    return found


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _check_reading(how: dict[str, Any], settings: Settings) -> None:
    columns, fraction = how["columns"], how["validation_fraction"]
    if columns:
        from hpc_llm.corpus.sets import check_columns

        check_columns(columns)
    if fraction is not None and (
        isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction < 1
    ):
        raise RequestError(f"{settings.said('validation_fraction')}={fraction}: a number from 0 to below 1 is needed.")
    for name in ("train_samples", "validation_samples"):
        most = how[name]
        if most is not None and (isinstance(most, bool) or not isinstance(most, int)):
            raise RequestError(f"{settings.said(name)}={most}: a whole number is needed.")
        if most is not None:
            positive(name, most)


def _packing(corpus: CorpusFacts | None, draft: Draft) -> str | None:
    if corpus is None:
        default, why = None, "not set: synthetic tokens fill each sequence"
    elif corpus.is_text:
        default, why = STREAM, "default for text: end to end"
    else:
        default, why = NONE, "default for samples with a prompt: one a sequence, padded"
    packing: str | None = draft.put("packing", default, why)
    if corpus is not None and not corpus.is_causal and packing != NONE:
        raise PlanError(f"packing {packing}: the samples of an encoder and decoder cannot be packed. Use packing=none.")
    return packing


def choose_steps(
    said: Said, rows: int | None, batch: BatchShape, cluster: Cluster, draft: Draft, *, usual: int | None = None
) -> int:
    """Optimizer steps in all: those that the request says, or those of its epochs; `usual` are the task's own."""
    epochs, source = said("epochs")
    if epochs is None:
        suggested = (getattr(cluster.defaults, "steps", None), f"cluster {cluster.name}: defaults")
        of_task = (usual, f"task {said.experiment.task}")
        steps: int = draft.first("steps", said("steps"), of_task, suggested, (FALLBACKS["steps"], "default"))
        positive("steps", steps)
        return steps
    if said("steps")[0] is not None or draft.settings.of("steps"):
        raise RequestError("both steps and epochs are given: keep one of them, the other follows from it.")
    if isinstance(epochs, bool) or not math.isfinite(epochs) or epochs <= 0:
        raise RequestError(f"epochs is {epochs}, it must be above 0.")
    if rows is None and said.experiment.data:
        return int(
            draft.computed(
                "steps", _UNCOUNTED, f"computed: {epochs:g} epochs ({source}) of data that nobody has counted"
            )
        )
    if rows is None:
        raise RequestError(
            f"epochs is {epochs:g}, and synthetic tokens have no end: name data with --data SOURCE, or give --steps in place of --epochs."
        )
    found = math.ceil(epochs * rows / batch.global_batch_size)
    positive("steps", found)
    why = f"computed: {epochs:g} epochs ({source}) of {rows} sequences, {batch.global_batch_size} a step"
    return int(draft.computed("steps", found, why))


def asked_for(steps: int, said: Said, rows: int | None, batch: BatchShape, draft: Draft) -> str:
    """How at least so many steps are asked for, in the words in which it was said how many."""
    if said("epochs")[0] is None or not rows:
        return f"{draft.settings.said('steps')}={steps}" if draft.settings.of("steps") else f"--steps {steps}"
    wanted = steps * batch.global_batch_size / rows
    digits = max(2 - math.floor(math.log10(wanted)), 0)
    return f"--epochs {math.ceil(wanted * 10**digits) / 10**digits:g}"


def epochs_of(steps: int, rows: int | None, batch: BatchShape, said: Said, draft: Draft) -> float | None:
    """How often the steps see all data: as steps are whole, those of 1.5 epochs can see a little more than asked."""
    asked, source = said("epochs")
    seen: float | None = None if rows is None else steps * batch.global_batch_size / rows
    why = "computed: sequences of all steps over those of the data"
    if asked is not None:
        seen = float(asked) if seen is None else seen
        why = source if math.isclose(seen, asked) else f"{source}: {asked:g}, in whole steps"
    draft.computed("epochs", seen, why)
    return seen


def check_feed(
    workload: Training, corpus: CorpusFacts | None, model: ModelSetup, batch: BatchShape, found: Checkpoint | None
) -> None:
    """Raise PlanError where the model, of which `found` is the checkpoint where one is to be seen, cannot be fed so."""
    if corpus is None:
        return
    from hpc_llm.corpus.key import tokenizer_digest

    vocab_size = vocab_size_of(model.name, found)
    if vocab_size is not None and corpus.vocabulary > vocab_size:
        raise PlanError(
            f"the data in {corpus.folder} hold token {corpus.vocabulary - 1}, and {model.name} has {vocab_size} tokens: they were "
            "prepared for another model. Prepare them with --task prepare and the same --model."
        )
    if found is not None and model.weights == "checkpoint" and corpus.tokenizer != tokenizer_digest(str(found.folder)):
        raise PlanError(
            f"the data in {corpus.folder} were prepared with another tokenizer than that of {model.name}, whose weights know no "
            "other tokens. Prepare them with --task prepare and the same --model."
        )
    if workload.packing == DOCUMENTS and model.attention == "flash_attention_2" and batch.micro_batch_size > 1:
        raise PlanError(
            "packing=documents with FlashAttention-2: transformers keeps the documents apart in micro batches of one sequence only. "
            "Use --micro-batch-size 1 with more --gradient-accumulation-steps, or --set attention=sdpa."
        )
