"""Batches of prepared data: documents that share a row know nothing of each other, and every sample is seen as often as it should."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES
from tiny_plans import RunPlan, make_plan, prepared

from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.errors import WorkerError
from hpc_llm.planning.engines.facts import KNOWN_FAMILIES
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data import MASKED, Batch, batches, count_targets, evaluation_batches, model_inputs
from hpc_llm.worker.data.apart import check_documents_apart
from hpc_llm.worker.data.batch import ATTENTION_MASK, DECODER_INPUT
from hpc_llm.worker.data.fitting import fitting
from hpc_llm.worker.loss import sum_targets, summed_loss
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.ranks import Ranks

CPU = torch.device("cpu")
LENGTHS = [3, 30, 11, 8, 25, 17, 5, 40, 2, 9, 33]


def ranks(rank: int = 0, world_size: int = 1) -> Ranks:
    return Ranks(rank, world_size, rank, world_size, "127.0.0.1", 0, "python")


def pairs(folder: Path, validation: int = 7) -> Path:
    """Prompts and answers of many lengths, with as many rows for validation."""
    rows = [{"prompt": "P" * (1 + n % 4), "completion": chr(97 + n % 26) * length} for n, length in enumerate(LENGTHS)]
    for name, content in (("train.jsonl", rows), ("validation.jsonl", rows[:validation])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder


def plan_of(source: Path, packing: str = "none", **changes: Any) -> Plan:
    return make_plan(**{"sequence_length": 48, "micro_batch_size": 2, **prepared(source, packing), **changes})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return pairs(folder)


def model_of(family: str, attention: str = "sdpa") -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **FAMILIES[family])
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention).train()


def epoch(plan: Plan, rows: int) -> list[Batch]:
    """The batches of one epoch of so many rows, one row each."""
    return list(itertools.islice(batches(plan.changed(micro_batch_size=1), 512, ranks(), CPU), rows))


def loss_of(model: Any, found: list[Batch]) -> tuple[float, int]:
    """Sum and number over the predicted tokens, of the forward pass that the training loop makes."""
    with torch.no_grad():
        total = sum(float(summed_loss(model(**model_inputs(batch), use_cache=False).logits, batch)) for batch in found)
    return total, int(sum_targets(found))


def alone(model: Any, plan: Plan) -> tuple[float, int]:
    """The same of each document by itself, by transformers' own loss, without padding or anything else around it."""
    total, count = 0.0, 0
    for batch in epoch(plan.changed(packing="none"), len(LENGTHS)):
        size = int(batch["attention_mask"].sum())
        tokens, labels = batch["input_ids"][:, :size], batch["labels"][:, :size]
        targets = int((labels[:, 1:] != MASKED).sum())
        with torch.no_grad():
            total += float(model(input_ids=tokens, labels=labels).loss) * targets
        count += targets
    return total, count


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "t5"])
def test_packed_documents_lose_what_they_lose_alone(family: str, attention: str, source: Path) -> None:
    plan, model = plan_of(source, packing="documents"), model_of(family, attention)
    total, count = alone(model, plan)
    packed = epoch(plan, 6)
    assert all("attention_mask" not in batch for batch in packed)
    assert sum(int((batch["position_ids"] == 0).sum()) for batch in packed) >= len(LENGTHS)
    found, targets = loss_of(model, packed)
    assert targets == count == sum(LENGTHS) + len(LENGTHS)  # each answer with the token that ends it
    assert found / targets == pytest.approx(total / count, abs=1e-5)


def test_padded_and_batched_documents_lose_the_same(source: Path) -> None:
    plan, model = plan_of(source, micro_batch_size=4), model_of("llama")
    total, count = alone(model, plan)
    found, targets = loss_of(model, list(evaluation_batches(plan, 512, ranks(), CPU, "train")))
    assert targets == count and found / targets == pytest.approx(total / count, abs=1e-5)


@pytest.mark.parametrize("family", KNOWN_FAMILIES)
def test_rows_that_are_padded_behind_need_no_mask(family: str, source: Path) -> None:
    """A step with a mask cannot be recorded; without one the loss and each gradient are the same."""
    model, masked = model_of(family), epoch(plan_of(source), 4)
    bare = list(fitting(iter(masked), model))
    assert all(ATTENTION_MASK in batch for batch in masked) and not any(ATTENTION_MASK in batch for batch in bare)
    ends = []
    for batch in (merged(masked), merged(bare)):
        model.zero_grad()
        loss = summed_loss(model(**model_inputs(batch), use_cache=False).logits, batch)
        loss.backward()
        ends.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-5)


def merged(found: list[Batch]) -> Batch:
    return {name: torch.cat([batch[name] for batch in found]) for name in found[0]}


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_models_of_which_nothing_is_known_keep_their_mask(family: str, source: Path) -> None:
    from transformers import AutoConfig

    given = [
        {
            "input_ids": torch.ones(1, 4).long(),
            ATTENTION_MASK: torch.ones(1, 4).long(),
            DECODER_INPUT: torch.zeros(1, 2),
        }
    ]
    model = SimpleNamespace(config=AutoConfig.for_model(family, **FAMILIES[family]))
    assert [batch.keys() for batch in fitting(iter(given), model)] == [given[0].keys()]


def test_prompts_are_not_learned(source: Path) -> None:
    for packing in ("none", "documents"):
        for batch in epoch(plan_of(source, packing=packing), 5):
            given = batch["input_ids"] == ord("P")
            assert bool(given.any()) and bool((batch["labels"][given] == MASKED).all())


def rows_seen(plan: Plan, world_size: int, used: int, each: int) -> list[list[int]]:
    """The next rows of all ranks in the order of their global positions."""
    plan = plan.changed(world_size=world_size, data_parallel=world_size, micro_batch_size=1)
    streams = [batches(plan, 512, ranks(rank, world_size), CPU, used=used) for rank in range(world_size)]
    return [next(stream)["input_ids"][0].tolist() for _ in range(each) for stream in streams]


@pytest.mark.parametrize("packing", ["none", "documents"])
def test_training_goes_on_exactly_behind_what_was_used_with_any_number_of_ranks(packing: str, source: Path) -> None:
    plan = plan_of(source, packing=packing)
    whole = rows_seen(plan, 1, 0, 24)
    assert rows_seen(plan, 2, 12, 6) == rows_seen(plan, 1, 12, 12) == rows_seen(plan, 4, 12, 3) == whole[12:]
    assert rows_seen(plan, 3, 0, 8) == whole
    assert whole != rows_seen(plan.changed(seed=8), 1, 0, 24)


@pytest.mark.parametrize("packing", ["none", "documents", "stream"])
@pytest.mark.parametrize(("world_size", "micro_batch_size"), [(1, 1), (1, 4), (2, 1), (2, 3), (4, 2)])
def test_an_evaluation_sees_each_sample_once_whatever_the_ranks_and_batches(
    packing: str, world_size: int, micro_batch_size: int, source: Path
) -> None:
    plan = plan_of(source, packing=packing)
    model = model_of("llama")
    expected = loss_of(model, list(evaluation_batches(plan.changed(micro_batch_size=1), 512, ranks(), CPU)))
    plan = plan.changed(world_size=world_size, data_parallel=world_size, micro_batch_size=micro_batch_size)
    shares = [list(evaluation_batches(plan, 512, ranks(rank, world_size), CPU)) for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1  # or a rank would wait for the others for ever
    assert {batch["input_ids"].shape for share in shares for batch in share} == {(micro_batch_size, 48)}
    found = loss_of(model, [batch for share in shares for batch in share])
    assert found[1] == expected[1] and found[0] == pytest.approx(expected[0], rel=1e-5)
    if packing != "stream":
        assert found[1] == sum(LENGTHS[:7]) + 7


def test_a_stream_holds_every_token_and_no_labels_where_all_are_learned(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {number:03d}\n" for number in range(20)))
    plan = plan_of(path, packing="stream", sequence_length=8)
    found = epoch(plan, 22)
    assert all(set(batch) == {"input_ids"} for batch in found)
    tokens = sorted(batch["input_ids"][0].tolist() for batch in found)
    whole = [*path.read_bytes(), 256]
    assert tokens == sorted(whole[start : start + 8] for start in range(0, 176, 8))
    rest = list(evaluation_batches(plan, 512, ranks(), CPU, "train"))
    assert sum(int((batch["labels"] != MASKED).sum()) for batch in rest) == len(whole)


def test_an_encoder_and_a_decoder_get_their_parts(tmp_path: Path) -> None:
    """The loss is transformers' own, which shifts the labels into the decoder by itself."""
    from transformers import T5Config, T5ForConditionalGeneration

    folder = tmp_path / "t5"
    torch.manual_seed(3)
    config = T5Config(
        vocab_size=512,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    model: Any = T5ForConditionalGeneration(config).eval()
    model.save_pretrained(folder)
    source = tmp_path / "data"
    source.mkdir()
    request = CorpusRequest(sources=(str(pairs(source)),), model=str(folder), layout="seq2seq")
    facts = prepare(request, tmp_path / "caches", lambda text: None, 512)
    assert facts.layout == "seq2seq"
    plan = make_plan(
        corpus=str(facts.folder),
        data=[str(source)],
        packing="none",
        sequence_length=48,
        micro_batch_size=1,
        model=str(folder),
    )
    for batch in epoch(plan, len(LENGTHS)):
        read, written = int(batch["attention_mask"].sum()), int((batch["labels"] != MASKED).sum())
        assert batch["labels"].shape == batch["decoder_input_ids"].shape == (1, max(LENGTHS) + 1)
        assert int(count_targets(batch)) == written
        with torch.no_grad():
            found = float(summed_loss(model(**model_inputs(batch), use_cache=False).logits, batch)) / written
            own = model(input_ids=batch["input_ids"][:, :read], labels=batch["labels"][:, :written]).loss
        assert found == pytest.approx(float(own), abs=1e-5)


def test_data_for_a_larger_vocabulary_are_refused(source: Path) -> None:
    with pytest.raises(WorkerError, match="hold token 256, the model has 200 tokens"):
        next(batches(plan_of(source), 200, ranks(), CPU))


@pytest.mark.parametrize("trap", [{}, {"use_cache": True}, {"attention_mask": "ones"}])
def test_a_model_that_lets_documents_see_each_other_is_not_trained(source: Path, trap: dict[str, Any]) -> None:
    """As transformers does, without a word, where it keeps a cache or gets a mask."""
    model = model_of("llama")

    def forward(**given: Any) -> Any:
        more = {"attention_mask": torch.ones_like(given["input_ids"])} if "attention_mask" in trap else trap
        return model(**{**given, **more})

    engine: Any = SimpleNamespace(module=model, forward=forward, evaluating=torch.no_grad)
    plan = plan_of(source, packing="documents")
    if not trap:
        check_documents_apart(engine, plan, CPU)
    else:
        with pytest.raises(WorkerError, match="documents of one row see each other"):
            check_documents_apart(engine, plan, CPU)


@pytest.mark.train
@pytest.mark.parametrize("method", ["ddp", "z3"])
def test_packed_documents_are_trained_on(method: str, source: Path, run_plan: RunPlan) -> None:
    result = run_plan(plan_of(source, packing="documents", method=method, precision="fp32"))
    assert result["outcome"] == "COMPLETED" and result["loss_last"] < result["loss_first"] - 1


def test_a_token_that_the_data_cannot_have_is_no_error_of_the_model(source: Path) -> None:
    plan = plan_of(source)
    assert plan.training.corpus is not None
    path = Path(plan.training.corpus) / "train.tokens"
    tokens = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.int32)
    for token in (5000, ~5000, -(2**31)):
        tokens[4] = token
        path.write_bytes(tokens.numpy().tobytes())
        with pytest.raises(
            WorkerError, match=r"train\.tokens holds token \d+, and its data have 257 tokens: it is damaged"
        ):
            list(itertools.islice(batches(plan, 512, ranks(), CPU), 20))
