"""Task infer on the CPU: the tokens are those of transformers' own `generate`, and every figure follows from what was timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rendering import planned
from test_planning import CPU
from tiny_models import FAMILIES, save
from tiny_plans import prepared

from hpc_llm.errors import WorkerError
from hpc_llm.parsing.formats.own_run import FORMAT
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json, read_json_lines, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.generating.choosing import Choice, draws
from hpc_llm.worker.generating.decoder import Decoder
from hpc_llm.worker.infer_llm import PROGRAM
from hpc_llm.worker.main import run as run_program
from hpc_llm.worker.ranks import find_ranks
from hpc_llm.worker.result import Record

pytestmark = pytest.mark.train
_LLAMA = FAMILIES["llama"]
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _LLAMA),
    "qwen2": ("qwen2", FAMILIES["qwen2"]),
    "qwen2-some-layers-slide": (
        "qwen2", {**_LLAMA, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "mistral": ("mistral", {**_LLAMA, "sliding_window": None}),
    "mistral-slides": ("mistral", {**_LLAMA, "sliding_window": 8}),
    "qwen3": ("qwen3", FAMILIES["qwen3"]),
    "gpt2": ("gpt2", {**FAMILIES["gpt2"], "bos_token_id": 0, "eos_token_id": 0}),
    "gpt_neox": ("gpt_neox", FAMILIES["gpt_neox"]),
}  # fmt: skip
NEW = 24
LENGTHS = (17, 5, 11)
ENDS = tuple(range(60))
"""So many tokens end an answer that answers end at different places."""
Infer = Callable[[Plan], tuple[dict[str, Any], RunPaths]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are too small for more
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def infer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Infer:
    """Answers a plan's queries on one rank in this process; its result and its folder."""

    def run(plan: Plan) -> tuple[dict[str, Any], RunPaths]:
        monkeypatch.setattr(os, "environ", os.environ.copy())
        monkeypatch.setitem(sys.modules, "deepspeed", None)  # nothing that answers may import it
        paths = RunPaths(tmp_path / "run")
        paths.root.mkdir(exist_ok=True)
        write_json(paths.experiment, {"schema": 1, "run_id": "run", "plan": plan.to_dict()})
        code = run_program(PROGRAM, Record(paths=paths, ranks=find_ranks({}), plan=plan, program=PROGRAM.name))
        result = read_json(paths.result)
        assert result is not None and (code == 0) == (result["error"] is None)
        return result, paths

    return run


def plan_of(*settings: str, method: str = "ddp", model: str = "tiny", **asked: Any) -> Plan:
    return planned("local", method, hardware=CPU, task="infer", model=model, set=settings, **asked).plan


def made(name: str, attention: str = "sdpa") -> Any:
    """A model whose answers are not all one token."""
    from transformers import AutoConfig, AutoModelForCausalLM

    family, values = MODELS[name]
    torch.manual_seed(3)
    model: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **values), dtype=torch.float32, attn_implementation=attention
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.dim() > 1 else 1)
    return model.eval()


def prompts(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator, longest = torch.Generator().manual_seed(5), max(LENGTHS[:count])
    tokens = torch.zeros(count, longest, dtype=torch.int64)
    real = torch.zeros(count, longest, dtype=torch.bool)
    for row, length in enumerate(LENGTHS[:count]):
        tokens[row, longest - length :] = torch.randint(0, 512, (length,), generator=generator)
        real[row, longest - length :] = True
    return tokens, real


def decoder_of(model: Any, batch: int, ends: tuple[int, ...] = (), choice: Choice | None = None) -> Decoder:
    return Decoder(
        model, batch=batch, size=max(LENGTHS) + NEW, new_tokens=NEW, choice=choice or Choice(0, 1), ends=ends,
        attention=model.config._attn_implementation,
    )  # fmt: skip


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_the_likeliest_tokens_are_those_of_generate(name: str, attention: str) -> None:
    model = made(name, attention)
    for count in (1, 3):
        tokens, real = prompts(count)
        for ends in ((), ENDS):
            decoder = decoder_of(model, count, ends)
            decoder.answer(tokens.flip(0), real.flip(0), torch.zeros(count, NEW))  # leaves nothing behind
            found = decoder.answer(tokens, real, torch.zeros(count, NEW))
            whole = model.generate(
                input_ids=tokens, attention_mask=real.long(), max_new_tokens=NEW, do_sample=False, pad_token_id=511,
                eos_token_id=list(ends) or None,
            )[:, tokens.shape[1] :]  # fmt: skip
            for row, answered in enumerate(found.counts):
                assert found.tokens[row, :answered].tolist() == whole[row, :answered].tolist()
                assert (whole[row, answered:] == 511).all()
                assert answered == NEW or int(found.tokens[row, answered - 1]) in ends
            assert len(found.times) == max(found.counts) == whole.shape[1]
            assert found.times == sorted(found.times) and found.times[0] > 0


def test_what_is_drawn_for_a_query_depends_on_the_seed_and_not_on_its_batch() -> None:
    model = made("llama")
    tokens, real = prompts(3)
    choice = Choice(0.8, 0.95)
    drawn = torch.stack([draws(7, number, NEW) for number in range(3)])
    together = decoder_of(model, 3, choice=choice).answer(tokens, real, drawn).tokens.tolist()
    for row, length in enumerate(LENGTHS):
        alone = decoder_of(model, 1, choice=choice)
        own, all_of_it = tokens[row : row + 1, -length:], torch.ones(1, length, dtype=torch.bool)
        assert alone.answer(own, all_of_it, drawn[row : row + 1]).tokens[0].tolist() == together[row]
        other = alone.answer(own, all_of_it, draws(8, row, NEW)[None]).tokens[0].tolist()
        assert other != together[row]


def test_tokens_are_drawn_as_often_as_they_are_likely_among_those_of_top_p() -> None:
    from transformers import TopPLogitsWarper

    scores = torch.tensor([[2.0, 0.5, 1.5, -1.0, 0.4, -3.0]])
    even = (torch.arange(20_000) + 0.5) / 20_000
    for temperature, top_p in ((1.0, 1.0), (0.5, 1.0), (1.0, 0.8), (2.0, 0.5), (1.0, 1e-6)):
        chosen = Choice(temperature, top_p)(scores.expand(len(even), -1), lambda: even[:, None])
        shares = torch.bincount(chosen, minlength=6) / len(even)
        kept = TopPLogitsWarper(top_p)(None, scores / temperature) if top_p < 1 else scores / temperature
        assert torch.allclose(shares, torch.softmax(kept, dim=-1)[0], atol=2e-4)


def test_every_figure_follows_from_what_was_timed(infer: Infer) -> None:
    asked = ("precision=fp32", "queries=7", "prompt_tokens=12", "new_tokens=6", "keep_outputs=true")
    result, paths = infer(plan_of(*asked, micro_batch_size=2))
    assert result["outcome"] == "COMPLETED" and result["measured_steps"] == 4 and result["total_queries"] == 7
    assert (result["prompt_tokens"], result["generated_tokens"]) == (7 * 12, 7 * 6)
    total = result["total_time_s"]
    assert result["prompt_tokens_per_second"] == pytest.approx(7 * 12 / total)
    assert result["generated_tokens_per_second"] == pytest.approx(7 * 6 / total)
    assert (
        result["tokens_per_second"] == result["prompt_and_generated_tokens_per_second"] == pytest.approx(7 * 18 / total)
    )
    assert result["queries_per_second"] == pytest.approx(7 / total)
    assert result["decode_tokens_per_second"] == pytest.approx(7 * 5 / result["decode_time_s"])
    assert sum(result["step_times_s"]) == pytest.approx(result["prefill_time_s"] + result["decode_time_s"])
    assert sum(result["step_times_s"]) <= total
    assert result["mfu"] is result["loss_first"] is result["trained_tokens"] is None
    steps = list(read_json_lines(paths.steps))
    assert [step["warmup"] for step in steps] == [True] * 2 + [False] * 4 and steps[-1]["queries"] == 1
    times = [step["step_time_s"] for step in steps[2:] for _ in range(step["queries"])]
    assert result["latency_s_mean"] == pytest.approx(sum(times) / 7) and result["latency_s_p99"] <= max(times)
    firsts = [step["time_to_first_token_s"] for step in steps[2:] for _ in range(step["queries"])]
    per_token = [(whole - first) / 5 for whole, first in zip(times, firsts, strict=True)]
    assert result["time_per_output_token_s_mean"] == pytest.approx(sum(per_token) / 7)
    outputs = list(read_json_lines(paths.outputs))
    assert [one["query"] for one in outputs] == list(range(7))
    assert all(len(one["prompt_tokens"]) == 12 and len(one["generated_tokens"]) == 6 for one in outputs)
    [row] = FORMAT.rows([paths.root])
    assert row.kind == "infer" and row.latency_s_p99 == result["latency_s_p99"]
    assert row.tokens_per_second == result["tokens_per_second"] and row.measured_steps == 4
    paths.result.unlink()  # as where it was killed: what its steps say is left, and no rate that they do not say
    [row] = FORMAT.rows([paths.root])
    assert row.step_time_s_p50 is not None and row.tokens_per_second is row.tokens_per_second_per_gpu is None


QUESTIONS = [{"prompt": f"What is {i} + {i}? " * (1 + i % 3), "completion": f" {2 * i}"} for i in range(9)]


def of_questions(folder: Path, model: Path, *settings: str, **asked: Any) -> Plan:
    """A plan that answers QUESTIONS with the checkpoint in a folder."""
    source = folder / "questions.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    plan = plan_of("queries=9", "new_tokens=8", "precision=fp32", "keep_outputs=true", *settings, **asked)
    data = {
        "corpus": prepared(source, "none")["corpus"],
        "data": [str(source)],
        "split": "train",
        "prompt_tokens": None,
    }
    longest = max(len(row["prompt"]) for row in QUESTIONS) + 1  # and what stands between it and its completion
    return plan.changed(**data, model=str(model), weights="checkpoint", stop_at_end=True, sequence_length=longest + 8)


def test_prompts_of_data_are_answered_as_text_the_same_by_any_number_of_ranks(infer: Infer, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "llama")
    result, paths = infer(of_questions(tmp_path, model, "temperature=1", micro_batch_size=2))
    assert result["outcome"] == "COMPLETED" and result["weights"] == "checkpoint"
    outputs = list(read_json_lines(paths.outputs))
    assert [one["prompt"].strip() for one in outputs] == [row["prompt"].strip() for row in QUESTIONS]
    assert all(1 <= len(one["generated_tokens"]) <= 8 and isinstance(one["generated"], str) for one in outputs)
    plan = of_questions(tmp_path, model, "temperature=1").changed(
        world_size=2, data_parallel=2, tasks_per_node=2, global_batch_size=2, steps=7
    )
    both = RunPaths(tmp_path / "both")
    both.root.mkdir()
    write_json(both.experiment, {"schema": 1, "run_id": "both", "plan": plan.to_dict()})
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hpc_llm.worker.infer_llm")
    done = subprocess.run(
        [sys.executable, *launch, "--run-dir", str(both.root)], env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(read_json_lines(both.outputs)) == outputs
    found = read_json(both.result) or {}
    assert found["outcome"] == "COMPLETED" and found["total_queries"] == 9 and found["world_size"] == 2
    assert found["generated_tokens"] == sum(len(one["generated_tokens"]) for one in outputs)


@pytest.mark.parametrize(("method", "precision"), [("ddp", "bf16"), ("q", "bf16"), ("int8", "bf16"), ("ddp", "fp16")])
def test_low_precision_and_quantized_weights_answer(infer: Infer, method: str, precision: str) -> None:
    sizes = ("queries=3", "prompt_tokens=8", "new_tokens=4")
    plan = plan_of(*sizes, method=method).changed(precision=precision)
    result, _ = infer(plan)
    assert result["outcome"] == "COMPLETED" and result["generated_tokens"] == 12
    types = {"q": "uint8", "int8": "int8"}.get(method, "bfloat16" if precision == "bf16" else "float16")
    assert types in result["parameter_types"]["frozen"] and result["trainable_parameters"] == 0


@pytest.mark.parametrize("method", ["q", "int8"])
def test_a_checkpoint_is_quantized_as_it_is_loaded(infer: Infer, tmp_path: Path, method: str) -> None:
    plan = plan_of("queries=3", "prompt_tokens=8", "new_tokens=4", method=method)
    model = save(tmp_path / "model", "llama")
    result, _ = infer(plan.changed(model=str(model), weights="checkpoint"))
    assert (result["outcome"], result["generated_tokens"]) == ("COMPLETED", 12), result["outcome_reason"]
    assert {"q": "uint8", "int8": "int8"}[method] in result["parameter_types"]["frozen"]


def test_outputs_are_there_whole_or_not_at_all(infer: Infer, tmp_path: Path) -> None:
    plan = plan_of("queries=3", "prompt_tokens=8", "new_tokens=4", "keep_outputs=true")
    (tmp_path / "run" / "outputs.jsonl").mkdir(parents=True)  # nothing can take its place
    result, paths = infer(plan)
    assert result["outcome"] == "FAILED" and "outputs.jsonl" in result["outcome_reason"]
    assert result["total_queries"] == 3  # what was measured is known
    assert not [one for one in paths.root.iterdir() if one.name.startswith(".outputs")]


def test_what_was_measured_until_a_failure_is_known(infer: Infer, monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_out(seed: int, query: int, count: int) -> torch.Tensor:
        if query == 2:
            raise MemoryError("no room for what is drawn")
        return draws(seed, query, count)

    monkeypatch.setattr("hpc_llm.worker.tasks.inference.draws", runs_out)
    plan = plan_of("queries=4", "prompt_tokens=8", "new_tokens=4", "temperature=1", "keep_outputs=true", warmup_steps=1)
    result, paths = infer(plan)
    assert (result["outcome"], result["measured_steps"], result["total_queries"]) == ("OOM_HOST", 2, 2)
    assert result["generated_tokens"] == 8 and result["queries_per_second"] > 0
    assert len(list(read_json_lines(paths.steps))) == 3 and not paths.outputs.exists()


def test_a_model_that_keeps_something_else_than_keys_and_values_is_refused() -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    mamba = AutoConfig.for_model("mamba", hidden_size=32, num_hidden_layers=1, vocab_size=64, state_size=4)
    with pytest.raises(WorkerError, match="cannot be timed"):
        decoder_of(AutoModelForCausalLM.from_config(mamba), 1)
