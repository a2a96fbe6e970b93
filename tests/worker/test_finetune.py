"""Fine-tuning with every method on one rank and two: the loss falls, what is frozen stays as it is, evaluation is one thing."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save
from tiny_plans import make_plan
from worlds import Worlds

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.schedule import rate_factor
from hpc_llm.planning.tasks import find as find_task
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train

OFFLOAD = {"device": "cpu"}
Z3 = {"stage": 3, "stage3_param_persistence_threshold": 0}
SPLITS: dict[str, dict[str, Any] | None] = {
    "ddp": None,
    "z1": {"stage": 1},
    "z2": {"stage": 2},
    "z2o": {"stage": 2, "offload_optimizer": OFFLOAD},
    "z3": Z3,
    "z3o": {**Z3, "offload_optimizer": OFFLOAD, "offload_param": OFFLOAD},
}
LORA = {"kind": "lora", "r": 8, "alpha": 16, "dropout": 0.1, "target_modules": "all-linear"}
NF4 = {"kind": "nf4", "double_quant": True, "compute_dtype": "bf16"}
WHAT: dict[str, dict[str, Any]] = {"full": {}, "lora": {"peft": LORA}, "qlora": {"peft": LORA, "quantization": NF4}}
TRAINED = [f"{what}-{split}" for what in WHAT for split in SPLITS]
PLAIN = [f"{what}-{engine}" for engine in ("plain", "fsdp2") for what in WHAT]
STEPS = 6
BATCH = 16
"""Sequences a step of all ranks: what an evaluation of a model this small costs is its number of passes."""
PURE_BF16 = {"type": "AdamWBF16", "lr": 1e-2}
STILL = {"type": "AdamW", "lr": 0.0}
"""Changes nothing: what is evaluated is the checkpoint."""


def tuned(checkpoint: Path, ranks: int, method: str = "ddp", **changes: Any) -> Plan:
    fixed = {"task": "finetune", "model": str(checkpoint), "steps": STEPS, "lr_schedule": "linear", "eval_every": 0}
    size = {"micro_batch_size": BATCH // ranks}
    return make_plan(method, ranks, **{**fixed, **size, **changes})


def plans(checkpoint: Path, ranks: int) -> Iterator[tuple[str, Plan]]:
    """One for each method; what one number of ranks recomputes the other one keeps."""
    for number, name in enumerate(TRAINED + PLAIN):
        what, _, split = name.partition("-")
        zero = SPLITS.get(split)
        engine = (
            {"engine": split}
            if split in ("plain", "fsdp2")
            else {"deepspeed": {"zero_optimization": zero or {"stage": 0}}}
        )
        yield name, tuned(checkpoint, ranks, recompute=bool((number + ranks) % 2), **engine, **WHAT[what])
    yield "full-bf16", tuned(checkpoint, ranks, engine="plain", optimizer=PURE_BF16)
    shape = {"precision": "fp32", "optimizer": STILL, "steps": 3, "warmup_steps": 0}
    for size in (1, 3):
        yield f"still-{size}", tuned(checkpoint, ranks, micro_batch_size=size, engine="plain", **shape)
    yield "still-z3", tuned(checkpoint, ranks, "z3", **shape)
    yield "still-fsdp2", tuned(checkpoint, ranks, "z3", engine="fsdp2", eval_every=2, **shape)


T5 = {
    "t5-lora-z3": "z3lora",
    "t5-qlora-z3": "z3qlora",
    "t5-z3": "z3",
    "t5-plain": "ddp",
    "t5-fsdp2": "z3",
    "t5-flat": "z3",
}
"""Runs of a model with an encoder and a decoder."""


def t5_plans(t5: Path, ranks: int) -> Iterator[tuple[str, Plan]]:
    for name, method in T5.items():
        engine = name.partition("-")[2] if name in ("t5-plain", "t5-fsdp2", "t5-flat") else "deepspeed"
        yield name, tuned(t5, ranks, method, engine=engine, precision="bf16" if "lora" in name else "fp32")
    still = {"precision": "fp32", "optimizer": STILL, "steps": 3, "warmup_steps": 0, "micro_batch_size": 3}
    fed = {"packing": "none", "sequence_length": 12, "precision": "fp32", "micro_batch_size": 2}
    lora = {"peft": {**LORA, "target_modules": ["q", "v"]}, **(read_json(t5.parent / "dialogues.json") or {})}
    yield "t5-fed", tuned(t5, ranks, "z3lora", steps=6, **fed, **lora)
    heard = {**fed, **still, **(read_json(t5.parent / "echoes.json") or {})}
    for name, (method, changes) in WRITING.items():
        yield name, tuned(t5, ranks, method, **{**heard, **changes})
    if ranks == 1:
        fresh = {"weights": "random", "precision": "fp32", "steps": 3, "warmup_steps": 0}
        for method, engine in (("ddp", "plain"), ("z3", "deepspeed"), ("z3qlora", "fsdp2")):
            yield f"t5-fresh-{engine}", tuned(t5, ranks, method, engine=engine, **fresh)
    yield "t5-still", tuned(t5, ranks, "z3", **still)


WRITING: dict[str, tuple[str, dict[str, Any]]] = {
    "writes-plain": ("ddp", {"engine": "plain"}),
    "writes-z3": ("z3", {}),
    "writes-fsdp2": ("z3", {"engine": "fsdp2"}),
    "writes-fsdp2-units": ("z3", {"engine": "fsdp2", "layers_per_unit": 3, "recompute": True}),
    "writes-fsdp2-lora": ("z3lora", {"engine": "fsdp2"}),
    "writes-fsdp2-qlora": ("z3qlora", {"engine": "fsdp2"}),
}
"""Runs that change nothing: what they write is what the checkpoint does, but for a base in 4 bits."""
WORDS = [f"w{number}" for number in range(509)]
"""All that the model can write."""


def words(folder: Path) -> Path:
    """A tokenizer of whole words beside the model in `folder`, which ends each text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder


def prepared(t5: Path, name: str, train: list[tuple[str, str]], held_out: list[tuple[str, str]]) -> None:
    """Prepare prompts and completions, and leave what a plan says of them in NAME.json."""
    from hpc_llm.corpus.key import CorpusRequest
    from hpc_llm.corpus.words import SEQ2SEQ
    from hpc_llm.worker.preparing.build import prepare

    source = t5.parent / name
    source.mkdir()
    for split, pairs in (("train", train), ("validation", held_out)):
        rows = [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]
        (source / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"prompt": "prompt", "completion": "completion"}
    request = CorpusRequest(sources=(str(source),), model=str(t5), layout=SEQ2SEQ, columns=columns)
    folder = prepare(request, t5.parent / "caches", lambda text: None, 512).folder
    (t5.parent / f"{name}.json").write_text(json.dumps({"data": [str(source)], "corpus": str(folder)}))


def dialogues(t5: Path) -> None:
    """60 questions, whose answers are their first two words, and 7 that are held out."""
    pairs = []
    for n in (*range(60), *range(7)):
        asked = [WORDS[(7 * n + k * k) % 40] for k in range(2 + n % 5)]
        pairs.append((" ".join(asked), " ".join(asked[:2])))
    prepared(t5, "dialogues", pairs[:60], pairs[60:])


def echoes(t5: Path) -> None:
    """7 questions with what the model itself writes to them for an answer, of which every other one lacks its last word."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model: Any = AutoModelForSeq2SeqLM.from_pretrained(t5, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(t5)
    prompts = [" ".join(WORDS[(31 * n + 5 * k * k) % 500] for k in range(2 + n % 5)) for n in range(7)]
    pairs = []
    for n, prompt in enumerate(prompts):
        tokens = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=6, do_sample=False)
        written = tokenizer.decode(tokens[0], skip_special_tokens=True).split()
        pairs.append((prompt, " ".join(written[: len(written) - n % 2])))
    prepared(t5, "echoes", [(prompt, prompt) for prompt in prompts], pairs)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = words(save(tmp_path_factory.mktemp("model") / "t5", "t5"))
    dialogues(folder)
    echoes(folder)
    return folder


@pytest.fixture(scope="module", params=[1, 2])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, t5: Path, worlds: Worlds
) -> Path:
    """The folder with a run for each plan, trained one after another by the same ranks."""
    folder = tmp_path_factory.mktemp(f"ranks-{request.param}")
    made = (*plans(checkpoint, request.param), *t5_plans(t5, request.param))
    wanted = {name: {"plan": plan.to_dict(), "mask": False} for name, plan in made}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    worlds.must_run("two_ranks", folder, request.param)
    return folder


def result(folder: Path) -> dict[str, Any]:
    return read_json(RunPaths(folder).result) or {}


@pytest.mark.parametrize("name", [*TRAINED, *PLAIN, "full-bf16", *T5])
def test_each_method_learns_and_leaves_alone_what_is_frozen(trained: Path, name: str) -> None:
    ended = result(trained / name)
    assert ended["outcome"] == "COMPLETED", ended["outcome_reason"]
    assert ended["loss_last"] < ended["loss_first"] - 0.1
    assert ended["eval_loss"] < ended["loss_first"] - 0.1
    digests = [read_json(trained / name / f"digests-{rank}.json") or {} for rank in range(ended["world_size"])]
    assert all(one["before"] == one["after"] for one in digests)
    assert len({one["trained"] for one in digests}) == 1
    part = ended["trainable_parameters"] / ended["num_parameters"]
    assert 0 < part < 0.3 if "lora" in name else part == 1


def test_pure_bf16_takes_half_the_memory_and_learns_as_well(trained: Path) -> None:
    pure, mixed = result(trained / "full-bf16"), result(trained / "full-plain")
    sizes = {what: size["host"] / pure["num_parameters"] for what, size in pure["held_bytes"].items()}
    assert sizes == {"parameters": 2, "optimizer": pytest.approx(4, abs=0.01), "gradients": 2}
    assert pure["eval_loss"] == pytest.approx(mixed["eval_loss"], abs=0.05)


def test_a_result_holds_what_its_task_says(trained: Path) -> None:
    ended = result(trained / "lora-z3")
    assert find_task("finetune").result_fields <= ended.keys()
    batch = ended["global_batch_size"]
    assert ended["trained_tokens"] == STEPS * batch * 63  # the first token of 64 has nothing before it
    assert ended["eval_tokens"] == 64 * 63
    assert ended["perplexity"] == pytest.approx(math.exp(ended["eval_loss"]))
    assert (ended["best_step"], ended["evaluations"]) == (STEPS, 1)
    assert ended["parameter_types"] == {"trained": ["bfloat16"], "frozen": ["bfloat16"]}
    assert result(trained / "qlora-fsdp2")["parameter_types"] == {"trained": ["float32"], "frozen": ["bfloat16"]}
    assert result(trained / "qlora-plain")["parameter_types"] == {
        "trained": ["bfloat16"],
        "frozen": ["bfloat16", "uint8"],
    }


def test_the_rate_falls_in_a_straight_line(trained: Path) -> None:
    rates = [row["learning_rate"] for row in read_json_lines(RunPaths(trained / "full-plain").steps)]
    expected = [1e-2 * rate_factor("linear", number, 3, STEPS) for number in range(1, STEPS + 1)]
    assert rates == pytest.approx(expected)
    assert rates == pytest.approx(
        [row["learning_rate"] for row in read_json_lines(RunPaths(trained / "lora-z3").steps)]
    )


@pytest.fixture(scope="module")
def held_out_loss(checkpoint: Path) -> float:
    """transformers' own mean loss on what is held out, at one go."""
    import torch
    from transformers import AutoModelForCausalLM

    from hpc_llm.worker.data import evaluation_batches
    from hpc_llm.worker.ranks import Ranks

    plan = tuned(checkpoint, 1, micro_batch_size=64)
    (batch,) = evaluation_batches(plan, 512, Ranks(0, 1, 0, 1, "", 0, ""), torch.device("cpu"))
    assert batch is not None and batch["input_ids"].shape == (64, 64)
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        return float(model(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss)


@pytest.mark.parametrize("name", ["still-1", "still-3", "still-z3", "still-fsdp2"])
def test_held_out_loss_is_that_of_transformers_whatever_batch_and_ranks(
    trained: Path, name: str, held_out_loss: float
) -> None:
    ended = result(trained / name)
    assert ended["eval_loss"] == pytest.approx(held_out_loss, rel=1e-6)
    assert ended["eval_tokens"] == 64 * 63


def test_evaluations_are_written_down_as_they_happen_and_take_no_step_s_time(trained: Path) -> None:
    run = RunPaths(trained / "still-fsdp2")
    rows = list(read_json_lines(run.evaluations))
    assert [row["step"] for row in rows] == [2, 3]
    assert result(run.root)["best_step"] in (2, 3)
    assert result(run.root)["measured_window_s"] == pytest.approx(sum(result(run.root)["step_times_s"]), abs=0.5)


def test_an_encoder_and_decoder_are_fed_and_counted_as_what_they_are(trained: Path, t5: Path) -> None:
    """Against transformers itself, from a head that is not the embedding, which ZeRO-3 must not tie to it."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from hpc_llm.worker.data import evaluation_batches
    from hpc_llm.worker.ranks import Ranks

    plan = tuned(t5, 1, micro_batch_size=64)
    (batch,) = evaluation_batches(plan, 512, Ranks(0, 1, 0, 1, "", 0, ""), torch.device("cpu"))
    assert batch is not None
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(t5, dtype=torch.float32)
    assert not torch.equal(model.lm_head.weight, model.shared.weight)
    read, written = batch["input_ids"][:, :32], batch["input_ids"][:, 32:].contiguous()
    with torch.no_grad():
        expected = float(model(input_ids=read, labels=written).loss)
    ended = result(trained / "t5-still")
    assert ended["eval_loss"] == pytest.approx(expected, rel=1e-6)
    assert ended["eval_tokens"] == 64 * 32
    assert ended["flops_per_token"] is None
    losses = [[row["loss"] for row in read_json_lines(RunPaths(trained / f"t5-{name}").steps)] for name in ("z3", "plain", "fsdp2", "flat")]  # fmt: skip
    assert losses[3] == pytest.approx(losses[0], rel=1e-4)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)


def test_questions_are_answered_and_the_answers_scored(trained: Path, t5: Path) -> None:
    """Whole answers count, what fills a batch does not, and a rank without a batch takes part in the passes of the others."""
    ended = result(trained / "t5-fed")
    assert ended["outcome"] == "COMPLETED", ended["outcome_reason"]
    assert ended["eval_tokens"] == 7 * 3  # two words and the end
    assert ended["loss_last"] < ended["loss_first"]
    assert ended["trained_tokens"] == 6 * ended["global_batch_size"] * 3
    assert ended["epoch_time_s"] == pytest.approx(ended["step_time_s_mean"] * 60 / ended["global_batch_size"])
    if importlib.util.find_spec("rouge_score") is None:
        assert ended["rouge"] is None
        assert "ROUGE is left empty: the package rouge_score is not installed." in ended["adaptations"]
        return
    assert set(ended["rouge"]) == {"rouge1", "rouge2", "rougeL", "rougeLsum"}
    assert all(0 <= score <= 1 for score in ended["rouge"].values())


@pytest.fixture(scope="module")
def own_scores(t5: Path) -> dict[str, float]:
    """What rouge_score gives for what transformers writes, one question after the other."""
    import torch
    from rouge_score import rouge_scorer as scorer_module
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model: Any = AutoModelForSeq2SeqLM.from_pretrained(t5, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(t5)
    rows = list(read_json_lines(t5.parent / "echoes" / "validation.jsonl"))
    most = max(len(row["completion"].split()) for row in rows) + 1  # the end
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = scorer_module.RougeScorer(kinds, use_stemmer=True)
    found = []
    for row in rows:
        tokens = model.generate(**tokenizer(row["prompt"], return_tensors="pt"), max_new_tokens=most, do_sample=False)
        found.append(scorer.score(row["completion"], tokenizer.decode(tokens[0], skip_special_tokens=True)))
    return {kind: sum(one[kind].fmeasure for one in found) / len(found) for kind in kinds}


@pytest.mark.parametrize("name", WRITING)
def test_every_engine_writes_and_scores_the_same_on_any_number_of_ranks(
    trained: Path, name: str, own_scores: dict[str, float]
) -> None:
    ended = result(trained / name)
    assert ended["outcome"] == "COMPLETED", ended["outcome_reason"]
    assert 0.5 < own_scores["rouge1"] < 1
    if name == "writes-fsdp2-qlora":  # another base
        assert set(ended["rouge"]) == set(own_scores) and 0 < ended["rouge"]["rouge1"] <= 1
    else:
        assert ended["rouge"] == pytest.approx(own_scores, rel=1e-9)


def test_random_weights_of_a_t5_begin_near_a_uniform_guess(trained: Path) -> None:
    fresh = list(trained.glob("t5-fresh-*"))
    assert len(fresh) == (3 if result(trained / "t5-z3")["world_size"] == 1 else 0)
    assert all(result(run)["loss_first"] == pytest.approx(math.log(512), abs=1.0) for run in fresh)
