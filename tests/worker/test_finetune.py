"""Fine-tuning with every method on one rank and two: the loss falls, what is frozen stays as it is, evaluation is one thing."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save
from tiny_plans import make_plan

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.schedule import rate_factor
from hpc_llm.planning.tasks import find as find_task
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train

HERE = Path(__file__).parent
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
STEPS = 8
PURE_BF16 = {"type": "AdamWBF16", "lr": 1e-2}
STILL = {"type": "AdamW", "lr": 0.0}
"""Changes nothing: what is evaluated is the checkpoint."""


def tuned(checkpoint: Path, ranks: int, method: str = "ddp", **changes: Any) -> Plan:
    fixed = {"task": "finetune", "model": str(checkpoint), "steps": STEPS, "lr_schedule": "linear", "eval_every": 0}
    return make_plan(method, ranks, **{**fixed, **changes})


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


T5 = {"t5-lora-z3": "z3lora", "t5-qlora-z3": "z3qlora", "t5-z3": "z3", "t5-plain": "ddp", "t5-fsdp2": "z3"}
"""Runs of a model with an encoder and a decoder."""


def t5_plans(t5: Path, ranks: int) -> Iterator[tuple[str, Plan]]:
    for name, method in T5.items():
        engine = name.partition("-")[2] if name in ("t5-plain", "t5-fsdp2") else "deepspeed"
        yield name, tuned(t5, ranks, method, engine=engine, precision="bf16" if "lora" in name else "fp32")
    still = {"precision": "fp32", "optimizer": STILL, "steps": 3, "warmup_steps": 0, "micro_batch_size": 3}
    corpus = t5.parent / "dialogues"
    fed = {"data": [str(corpus)], "corpus": str(next((t5.parent / "caches").glob("*/corpus.json")).parent)}
    fed |= {"packing": "none", "sequence_length": 12, "peft": {**LORA, "target_modules": ["q", "v"]}}
    yield "t5-fed", tuned(t5, ranks, "z3lora", steps=6, precision="fp32", micro_batch_size=2, **fed)
    if ranks == 1:
        fresh = {"weights": "random", "precision": "fp32", "steps": 3, "warmup_steps": 0}
        for method, engine in (("ddp", "plain"), ("z3", "deepspeed"), ("z3qlora", "fsdp2")):
            yield f"t5-fresh-{engine}", tuned(t5, ranks, method, engine=engine, **fresh)
    yield "t5-still", tuned(t5, ranks, "z3", **still)


WORDS = [f"w{number}" for number in range(40)]


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


def dialogues(t5: Path) -> Path:
    """What was prepared of 60 questions, whose answers are their first two words, and of 7 that are held out."""
    from hpc_llm.corpus.key import CorpusRequest
    from hpc_llm.corpus.words import SEQ2SEQ
    from hpc_llm.worker.preparing.build import prepare

    source = t5.parent / "dialogues"
    source.mkdir()
    for name, count in (("train", 60), ("validation", 7)):
        asked = [[WORDS[(7 * n + k * k) % 40] for k in range(2 + n % 5)] for n in range(count)]
        rows = [{"prompt": " ".join(one), "completion": " ".join(one[:2])} for one in asked]
        (source / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"prompt": "prompt", "completion": "completion"}
    request = CorpusRequest(sources=(str(source),), model=str(t5), layout=SEQ2SEQ, columns=columns)
    return prepare(request, t5.parent / "caches", lambda text: None, 512).folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = words(save(tmp_path_factory.mktemp("model") / "t5", "t5"))
    dialogues(folder)
    return folder


@pytest.fixture(scope="module", params=[1, 2])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, t5: Path
) -> Path:
    """The folder with a run for each plan, trained one after another by the same ranks."""
    folder = tmp_path_factory.mktemp(f"ranks-{request.param}")
    made = (*plans(checkpoint, request.param), *t5_plans(t5, request.param))
    wanted = {name: {"plan": plan.to_dict(), "mask": False} for name, plan in made}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.param}"]
    done = subprocess.run(
        [*launch, str(HERE / "two_ranks.py"), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
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
    losses = [[row["loss"] for row in read_json_lines(RunPaths(trained / f"t5-{name}").steps)] for name in ("z3", "plain", "fsdp2")]  # fmt: skip
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


def test_random_weights_of_a_t5_begin_near_a_uniform_guess(trained: Path) -> None:
    fresh = list(trained.glob("t5-fresh-*"))
    assert len(fresh) == (3 if result(trained / "t5-z3")["world_size"] == 1 else 0)
    assert all(result(run)["loss_first"] == pytest.approx(math.log(512), abs=1.0) for run in fresh)
