"""What a task that generates has to do: which queries, how long prompts and answers are, how tokens are chosen. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpc_llm.corpus.words import SPLITS, TRAIN, VALIDATION
from hpc_llm.errors import PlanError, RequestError, counted, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning import engines
from hpc_llm.planning.data import reading, refuse_for_synthetic
from hpc_llm.planning.draft import Draft, Said, positive
from hpc_llm.planning.encoder_decoder import MODEL_TYPES as ENCODER_DECODERS
from hpc_llm.planning.engines import Wanted
from hpc_llm.planning.method import Method
from hpc_llm.planning.model import layout_of_model
from hpc_llm.planning.parts import BatchShape, EngineSetup, Inference, ModelSetup
from hpc_llm.planning.recipe import family_of, longest_of
from hpc_llm.planning.vllm import check_answering
from hpc_llm.planning.workload import choose_seed
from hpc_llm.records import metrics
from hpc_llm.records.metrics import is_figure

if TYPE_CHECKING:
    from hpc_llm.corpus.facts import CorpusFacts
    from hpc_llm.planning.checkpoint import Checkpoint

PROMPT_TOKENS = 128
"""Of a prompt that is made up, or cut out of a text, where nobody says it."""
MEASURED_STEPS = 25
"""Batches of made-up queries where nobody says how many there are."""
WARMUP_STEPS = 2
"""Each is a batch of many passes, of which the first few are slow."""
_OF_TRAINING = {
    "gradient_accumulation_steps": "nothing is accumulated. Leave it out, and say the queries of a batch with --micro-batch-size.",
    "sequence_length": "a sequence is as long as its prompt and new_tokens. Leave it out, and use --set new_tokens=N, and --set prompt_tokens=N where prompts are made up.",
    "epochs": "each query is answered once. Leave it out, and use --set queries=N for fewer.",
    "save_every": "nothing is trained that could be kept. Leave it out; --set keep_outputs=true keeps what is generated.",
    "profile": "no step of training is there to be looked into. Leave it out.",
    "resume": "nothing is trained that could go on. Leave it out, and give the model itself with --model DIR.",
}


@dataclass(frozen=True, kw_only=True)
class _Prompts:
    """The prompts that there are."""

    fields: dict[str, Any]
    """Those of the workload that say which."""
    count: int | None
    """None where they never end."""
    longest: int
    """Tokens."""


def choose_generation(
    said: Said, method: Method, batch: BatchShape, groups: int, corpus: CorpusFacts | None, draft: Draft
) -> tuple[Inference, BatchShape]:
    """The queries and the batches that they are answered in, by `groups` of ranks; `batch` is what training would have.

    Raises RequestError or PlanError where a method or an option is for training alone, or the queries cannot be had so.
    """
    _refuse_what_trains(said, method)
    prompts = _prompts(said, corpus, draft)
    new_tokens = _whole(draft, "new_tokens", draft.put("new_tokens", 128, "default"))
    per_step = batch.micro_batch_size * groups
    queries, steps, warmup = _queries(said, prompts.count, per_step, draft)
    workload = Inference(
        **prompts.fields,
        queries=queries,
        steps=steps,
        warmup_steps=warmup,
        seed=choose_seed(said, draft),
        new_tokens=new_tokens,
        stop_at_end=_truth(draft, "stop_at_end", draft.put("stop_at_end", None, "not set")),
        keep_outputs=bool(_truth(draft, "keep_outputs", draft.put("keep_outputs", False, "default"))),
        **_choice_of_tokens(draft),
        **_nothing_of_training(draft),
    )
    return workload, replace(
        batch,
        gradient_accumulation_steps=draft.computed("gradient_accumulation_steps", 1, "computed: nothing is trained"),
        global_batch_size=draft.computed("global_batch_size", per_step, "computed: micro_batch_size x data_parallel"),
        sequence_length=draft.computed(
            "sequence_length", prompts.longest + new_tokens, "computed: the longest prompt and new_tokens"
        ),
    )


def _refuse_what_trains(said: Said, method: Method) -> None:
    lacks = {
        "splits what is trained among ranks (ZeRO)": method.zero_stage > 0,
        "adds adapters that have to be trained first": method.peft is not None,
        "recomputes what a backward pass needs": method.recompute,
        "multiplies in fp8 as training does": method.fp8,
    }
    for why, is_so in lacks.items():
        if is_so:
            raise PlanError(
                f"method {method.name} {why}, and task infer trains nothing: use ddp (the weights as they are), q (4 bits) or int8."
            )
    for name, why in _OF_TRAINING.items():
        value, source = said(name)
        if value is not None:
            raise RequestError(f"{name} ({source}) is {value}, and with task infer {why}")


def _prompts(said: Said, corpus: CorpusFacts | None, draft: Draft) -> _Prompts:
    data = list(said.experiment.data)
    if not data:
        refuse_for_synthetic(draft)
    fields = {
        "data": draft.put("data", data, said("data")[1] if data else "default: synthetic tokens"),
        "loss_floor_nats": draft.computed("loss_floor_nats", None, "computed: nothing is trained"),
        "corpus": draft.put("corpus", corpus and str(corpus.folder), "computed: where the data were prepared"),
        **reading(draft),
    }
    if corpus is None and data:
        return _unprepared(fields, draft)
    if corpus is None:
        if draft.settings.of("split"):
            raise RequestError(
                f"{draft.settings.said('split')}: synthetic tokens have no splits. Name data with --data SOURCE."
            )
        length = _whole(draft, "prompt_tokens", draft.put("prompt_tokens", PROMPT_TOKENS, "default: made-up prompts"))
        split = draft.computed("split", None, "computed: synthetic tokens have none")
        return _Prompts(fields={**fields, "prompt_tokens": length, "split": split}, count=None, longest=length)
    return _of_corpus(corpus, fields, draft)


def _unprepared(fields: dict[str, Any], draft: Draft) -> _Prompts:
    """Of data that nobody has prepared yet: what is wrong however many prompts there are, and however long, is told by these."""
    split = _split(draft.put("split", None, "not known before the data are prepared"), draft)
    length = draft.put("prompt_tokens", None, "not known before the data are prepared")
    if length is not None:
        _whole(draft, "prompt_tokens", length)
    return _Prompts(fields={**fields, "prompt_tokens": length, "split": split}, count=None, longest=length or 1)


def _split(name: Any, draft: Draft) -> Any:
    """The name, once it is that of a split or nobody gives one."""
    if name is not None and name not in SPLITS:
        raise RequestError(unknown_name("split", str(name), SPLITS, where=draft.settings.said("split")))
    return name


def _of_corpus(corpus: CorpusFacts, fields: dict[str, Any], draft: Draft) -> _Prompts:
    is_there = VALIDATION in corpus.splits
    why = "default: what is held out" if is_there else "default: nothing of the data is held out"
    split = str(_split(draft.put("split", VALIDATION if is_there else TRAIN, why), draft))
    facts = corpus.split(split)
    if corpus.is_text:
        length = _whole(
            draft, "prompt_tokens", draft.put("prompt_tokens", PROMPT_TOKENS, "default: cut out of the text")
        )
        count = facts.tokens // length
        lack = f"{facts.tokens} tokens, too few for a prompt of {length}: ask for fewer with --set prompt_tokens=N"
    else:
        if draft.put("prompt_tokens", None, "computed: the samples have prompts of their own") is not None:
            raise RequestError(
                f"{draft.settings.said('prompt_tokens')}: the samples have prompts of their own. Leave it out, or leave --data out for made-up prompts "
                "of that length."
            )
        starts = [start for start in corpus.samples(split).starts if start]
        length, count = max(starts, default=0), len(starts)
        lack = "no sample with a prompt: say which field is one with --set columns.prompt=FIELD where they are prepared"
    if not count:
        raise PlanError(f"the {split} split of the data in {corpus.folder} has {lack}.")
    fixed = length if corpus.is_text else None
    return _Prompts(fields={**fields, "prompt_tokens": fixed, "split": split}, count=count, longest=length)


def _queries(said: Said, known: int | None, per_step: int, draft: Draft) -> tuple[int, int, int]:
    """Queries that are measured, steps in all, and those of the warm-up."""
    warmup = draft.first("warmup_steps", said("warmup_steps"), (WARMUP_STEPS, "default"))
    asked = draft.put("queries", None, "not set")
    steps = draft.first("steps", said("steps"))
    if warmup < 0:
        raise RequestError(f"warmup_steps is {warmup}, it must be at least 0.")
    if asked is not None and steps is not None:
        raise RequestError("both steps and queries are given: keep one of them, the other follows from it.")
    if steps is not None:
        positive("steps", steps)
        found, why = (steps - warmup) * per_step, "computed: those of all steps behind the warm-up"
    elif asked is not None:
        found, why = _whole(draft, "queries", asked), draft.origins["queries"]
    elif known is not None:
        found, why = known, "default: all of the data"
    else:
        found, why = MEASURED_STEPS * per_step, f"default: {MEASURED_STEPS} batches of made-up ones"
    if known is not None and found > known:
        most = f"--steps {known // per_step + warmup}" if steps is not None else f"--set queries={known}"
        raise RequestError(f"{found} queries are asked for, and the data have {known}. Ask for fewer: at most {most}.")
    measured = math.ceil(found / per_step)
    if measured < metrics.MIN_MEASURED_STEPS:
        raise RequestError(
            f"{max(found, 0)} queries in batches of {per_step} make {counted(max(measured, 0), 'measured step')}: at least "
            f"{metrics.MIN_MEASURED_STEPS} are needed, or the run is invalid. {_way_to_more(known, per_step, steps, warmup)}"
        )
    positive("queries", found)
    origin = (
        draft.origins["steps"] if steps is not None else f"computed: warm-up, and {found} queries, {per_step} a step"
    )
    return (
        draft.computed("queries", found, why),
        draft.computed("steps", measured + warmup, origin),
        warmup,
    )


def _way_to_more(known: int | None, per_step: int, steps: int | None, warmup: int) -> str:
    """How enough is measured, in the words in which it was asked for; of data as far as they go."""
    least = (metrics.MIN_MEASURED_STEPS - 1) * per_step + 1
    smaller = "smaller batches with --micro-batch-size"
    enough = metrics.MIN_MEASURED_STEPS * per_step if steps is not None else least
    if known is not None and known < enough:
        return f"The data have {known}: ask for {smaller}, or give more data."
    more = f"--steps {warmup + metrics.MIN_MEASURED_STEPS}" if steps is not None else f"--set queries={least}"
    return f"Ask for at least {more}, or for {smaller}."


def _choice_of_tokens(draft: Draft) -> dict[str, Any]:
    temperature = draft.put("temperature", 0.0, "default: the likeliest token")
    top_p = draft.put("top_p", 1.0, "default: all tokens")
    if not is_figure(temperature) or not 0 <= temperature <= 100:
        raise RequestError(
            f"{draft.settings.said('temperature')}={temperature!r}: a number from 0 (the likeliest token) to 100 is needed."
        )
    if not is_figure(top_p) or not 0 < top_p <= 1:
        raise RequestError(f"{draft.settings.said('top_p')}={top_p!r}: a number above 0, and at most 1, is needed.")
    if top_p < 1 and temperature == 0:
        way = "set temperature to more" if draft.settings.of("temperature") else "add --set temperature=0.7"
        raise RequestError(
            f"top_p is {top_p}, and temperature is 0, which takes the likeliest token: {way}, or leave top_p out."
        )
    return {"temperature": float(temperature), "top_p": float(top_p)}


def _nothing_of_training(draft: Draft) -> dict[str, Any]:
    values: dict[str, Any] = {
        "lr_ramp_steps": 0, "lr_schedule": "constant", "eval_every": None, "save_every": None, "resume": None, "profile": None, "profile_kernels": None, "epochs": None,
        "packing": None, "too_long": None, "caches": None,
    }  # fmt: skip
    draft.computed("keep", 2, "default")
    return {name: draft.computed(name, value, "computed: nothing is trained") for name, value in values.items()}


def _whole(draft: Draft, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{draft.settings.said(name)}={value!r}: a whole number is needed.")
    positive(name, value)
    return value


def _truth(draft: Draft, name: str, value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{draft.settings.said(name)}={value!r}: true or false is needed.")
    return value


def check_generator(name: str, found: Checkpoint | None, length: int, new_tokens: int) -> None:
    """Raise PlanError where the model, of which `found` is the checkpoint where there is one, cannot go on with such prompts.

    It reads one sequence and writes another, or has fewer positions than `length`, a prompt with its answer.
    """
    if family_of(name, found) in ENCODER_DECODERS or layout_of_model(name) != "causal":
        raise PlanError(
            f"{name} has an encoder and a decoder, and task infer times models that go on with their prompt: Llama, Mistral, Qwen2 and "
            "their like. What such a model writes is scored at the end of --task finetune."
        )
    longest = longest_of(name, found)
    if longest is not None and length > longest:
        prompts = length - new_tokens
        less = "--set new_tokens=N" if prompts < longest else "--set prompt_tokens=N, or shorter prompts"
        raise PlanError(
            f"prompts of up to {prompts} tokens and new_tokens {new_tokens} need {length} positions: model {name} has "
            f"{longest}. Ask for less with {less}."
        )


def settle_generation(workload: Inference, model: ModelSetup, draft: Draft) -> Inference:
    """The workload with what depends on the model. Raises PlanError where its attention cannot read keys of a fixed size."""
    if model.attention == "flash_attention_2":
        raise PlanError(
            "FlashAttention-2 reads no mask, by which generated tokens are kept apart from free places: leave f out, or --set attention=sdpa."
        )
    if workload.stop_at_end is not None:
        return workload
    is_trained = model.weights == "checkpoint"
    why = "a trained model ends its answers" if is_trained else "random weights end them by chance"
    return replace(workload, stop_at_end=draft.computed("stop_at_end", is_trained, f"computed: {why}"))


def no_engine(wanted: Wanted, draft: Draft) -> EngineSetup:
    """What carries out the passes of a model that is not trained: PyTorch alone.

    Raises PlanError where a pass is to be recorded that cannot be.
    """
    why = "computed: nothing is trained"
    lack = engines.find("plain").unrecorded(wanted)
    is_recorded = draft.put("cuda_graph", lack is None, f"computed: {lack or 'the pass of a token has one shape'}")
    if is_recorded and lack is not None:
        raise PlanError(f"{draft.settings.said('cuda_graph')}=true: it cannot be, for {lack}.")
    return EngineSetup(
        name=check_answering(draft.put("engine", "plain", f"{why}, torch alone answers")),
        module=draft.computed("engine_module", None, why),
        fallback=draft.computed("engine_fallback", None, why),
        deepspeed=draft.computed("deepspeed", {}, why),
        cuda_graph=is_recorded,
    )
