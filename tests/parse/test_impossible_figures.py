"""What no machine can have measured is left empty, whoever printed it, and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_llm.parsing.read import read_inputs
from hpc_llm.parsing.rows import Row

TRAINER = "{'loss': 2.5, 'learning_rate': 1e-5, 'epoch': 0.1}\n{'loss': 2.4, 'learning_rate': 1e-5, 'epoch': 0.2}\n"
ENDED = "{'train_runtime': %s, 'train_samples_per_second': %s, 'train_steps_per_second': 1.2, 'train_loss': 2.0, 'epoch': 1.0}\n"
VLLM = "============ Serving Benchmark Result ============\nSuccessful requests:   10\nBenchmark duration (s):   %s\n"


@pytest.mark.parametrize(
    ("name", "text", "empty"),
    [
        ("a.log", TRAINER + ENDED % (-100.0, -12.5), ["elapsed_s -100.0"]),  # a clock that was set back
        ("a.log", TRAINER + ENDED % (100.0, 12.5), []),
        ("a.log", TRAINER + "{'eval_loss': nan, 'eval_runtime': 10.0, 'epoch': 0.2}\n" + ENDED % (100.0, 12.5), []),
        ("b.log", VLLM % "-5.00", ["elapsed_s -5.0"]),
        (
            "all_results.json",
            json.dumps({"train_runtime": -1.0, "train_loss": 2.0, "perplexity": -4.0, "epoch": 1.0}),
            ["elapsed_s -1.0", "perplexity -4.0"],
        ),
    ],
)
def test_a_figure_that_cannot_be_is_empty_and_told(tmp_path: Path, name: str, text: str, empty: list[str]) -> None:
    (tmp_path / name).write_text(text)
    [reading] = read_inputs([tmp_path / name])
    [row] = reading.rows
    told = [one for one in reading.left_empty if one.startswith("no possible figure: ")]
    assert sorted(", ".join(told).removeprefix("no possible figure: ").split(", ") if told else []) == empty
    for figure in ("elapsed_s", "perplexity"):
        value = getattr(row, figure)
        assert value is None or value > 0
    assert (row.elapsed_s is None) == bool(empty)


NEMO = (
    "Epoch 0: :   3%|3         | {0}/301500 [1:42:42<55:37:46, v_num=0-56, reduced_train_loss=nan.0, global_step={0}, "
    "consumed_samples=6.3e+5, train_step_timing in s=0.615, val_loss=7.040]\n"
)
TITAN = "[rank0]:[titan] 2026-05-18 16:04:4{0} - root - INFO - step: 1{0}  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%\n"
FALLBACK = "[rank0]:[titan] 2026-05-18 16:03:12,517 - root - WARNING - Peak flops undefined for: {}, fallback to A100\n"


def row_of(tmp_path: Path, text: str) -> Row:
    (tmp_path / "x.log").write_text(text)
    [reading] = read_inputs([tmp_path / "x.log"])
    return reading.rows[0]


def test_a_training_whose_losses_are_no_numbers_is_a_training(tmp_path: Path) -> None:
    row = row_of(tmp_path, "".join(NEMO.format(step) for step in (8998, 8999, 9000)))
    assert (row.kind, row.outcome, row.cause, row.loss_last) == ("train", "INVALID", "nan_loss", None)


def test_a_benchmark_without_a_single_answer_has_not_come_to_its_end(tmp_path: Path) -> None:
    ended = row_of(tmp_path, VLLM % "3.04" + "Output token throughput (tok/s):   12.0\n")
    failed = row_of(
        tmp_path,
        (VLLM % "3.04").replace("requests:   10", "requests:   0") + "Output token throughput (tok/s):   0.00\n",
    )
    assert (ended.outcome, failed.outcome, failed.cause) == ("COMPLETED", "UNKNOWN", "unknown")


@pytest.mark.parametrize(("said", "mfu"), [("", 0.0017), (FALLBACK.format("Tesla T4"), None)])
def test_a_share_of_another_gpu_s_peak_is_none(tmp_path: Path, said: str, mfu: float | None) -> None:
    assert row_of(tmp_path, said + "".join(TITAN.format(second) for second in range(5))).mfu == mfu


@pytest.mark.parametrize(("failed", "rate"), [(0, 40.0), (5, 40.0), (990, None)])
def test_a_rate_of_the_few_that_were_answered_is_not_that_of_a_benchmark(
    tmp_path: Path, failed: int, rate: float | None
) -> None:
    text = (VLLM % "3.04").replace("requests:   10", "requests:   1000") + f"Failed requests:   {failed}\n"
    if rate is None:
        text = text.replace("1000", "10")
    row = row_of(tmp_path, text + "Total Token throughput (tok/s):   40.0\n")
    assert (row.outcome, row.tokens_per_second) == ("COMPLETED", rate)


def test_steps_whose_time_cannot_be_are_not_measured(read) -> None:
    """A node's clock that is set back makes one line of Megatron negative, and LLaMA-Factory's elapsed time short."""
    line = " iteration {0:8d}/     100 | elapsed time per iteration (ms): {1} | learning rate: 1.0E-05 | global batch size:    64 | lm loss: 2.5E+00 |\n"
    text = "".join(line.format(i, -11000.0 if i == 50 else 1000.0) for i in range(10, 101, 10))
    [found] = read(text).rows
    assert (found.format, found.step_time_s_mean, found.measured_steps, found.warmup_steps) == ("megatron", 1.0, 80, 10)
    record = '{{"current_steps": {0}, "total_steps": 60, "loss": 1.0, "epoch": 0.{0}, "elapsed_time": "0:0{1}:00", "throughput": 250.0}}\n'
    [found] = read("".join(record.format(10 * i, minutes) for i, minutes in enumerate((1, 2, 3, 2, 3, 4), 1))).rows
    assert (found.format, found.elapsed_s, found.step_time_s_mean) == ("llama-factory", None, 6.0)


def test_steps_without_numbers_are_steps(read) -> None:
    """bigyanghimire/deepspeed-experiments, compression/logs: DeepSpeed's breakdown alone."""
    times = "[2026-01-19 14:09:{0:02d},000] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 30.00 | bwd: 60.00 | bwd_inner: 50.00 | bwd_allreduce: 9.00 | step: 10.00\n"
    [found] = read("".join(times.format(i) for i in range(10))).rows
    assert found.measured_steps == 9
    assert (
        found.outcome_reason
        == "the log stops after training steps that it does not number, without a message of an end"
    )


CARD = "[rank0]:[titan] 2026-05-18 16:03:12,517 - root - INFO - CUDA capacity: {} with 31.36GiB memory\n"


@pytest.mark.parametrize(
    ("gpu", "tflops", "mfu", "taken"),
    [
        ("NVIDIA GeForce RTX 5090", "47442.00", "0.17", None),  # more than four times its 16-bit peak
        ("NVIDIA GeForce RTX 5090", "120.50", "57.00", 120.5),
        ("NVIDIA H100 80GB HBM3", "1200.00", "0.17", 1200.0),  # FP8
        ("NVIDIA H100 80GB HBM3", "5200.00", "0.17", None),
        ("A card of tomorrow", "900.00", "0.17", 900.0),
        ("A card of tomorrow", "47442.00", "0.17", None),  # more than any does
        ("A card of tomorrow", "900.00", "288.00", None),  # the MFU beside it, which is the same figure, cannot be
    ],
)
def test_no_gpu_does_more_than_it_can(tmp_path: Path, gpu: str, tflops: str, mfu: str, taken: float | None) -> None:
    line = TITAN.replace("tflops: 0.52", f"tflops: {tflops}").replace("mfu: 0.17%", f"mfu: {mfu}%")
    (tmp_path / "x.log").write_text(CARD.format(gpu) + "".join(line.format(second) for second in range(5)))
    [reading] = read_inputs([tmp_path / "x.log"])
    [row] = reading.rows
    assert row.model_tflops_per_gpu == (None if taken is None else pytest.approx(taken))
    assert any("model_tflops_per_gpu" in said for said in reading.left_empty) == (taken is None)
    assert row.tokens_per_second_per_gpu == 7282.0


@pytest.mark.parametrize(
    ("retokenized", "first_ms", "rate"), [(0, "0.00", None), (1024, "0.00", 2765.5), (0, "9.50", 2765.5)]
)
def test_a_benchmark_without_answers_has_no_rates(
    tmp_path: Path, retokenized: int, first_ms: str, rate: float | None
) -> None:
    table = (
        f"Total generated tokens:   1024\nTotal generated tokens (retokenized):  {retokenized}\n"
        "Output token throughput (tok/s):  1765.5\nTotal token throughput (tok/s):   2765.5\n"
        f"Mean E2E Latency (ms):   180.67\nMedian TTFT (ms):   {first_ms}\n"
    )
    (tmp_path / "a.log").write_text(VLLM % "0.58" + table)
    [reading] = read_inputs([tmp_path / "a.log"])
    [row] = reading.rows
    assert row.tokens_per_second == rate
    assert (row.generated_tokens_per_second, row.latency_s_mean) == ((1765.5, 0.18067) if rate else (None, None))
    assert any("answers held no text" in one for one in reading.left_empty) == (rate is None)


EVALUATED = "{{'eval_loss': {}, 'eval_runtime': 10.0, 'epoch': 0.2}}\n"
NO_NUMBER = "the loss of the last evaluation is not a finite number"


@pytest.mark.parametrize(
    ("losses", "said"), [(["nan", "nan"], True), (["2.5", "inf"], True), (["nan", "2.5"], False), ([], False)]
)
@pytest.mark.parametrize("ended", [True, False])
def test_evaluations_whose_losses_are_no_numbers_are_told(
    tmp_path: Path, losses: list[str], said: bool, ended: bool
) -> None:
    text = TRAINER + "".join(map(EVALUATED.format, losses)) + (ENDED % (100.0, 12.5) if ended else "")
    row = row_of(tmp_path, text)
    assert (row.outcome, row.invalid_reason) == ("COMPLETED" if ended else "UNKNOWN", None)
    assert (NO_NUMBER in (row.outcome_reason or "")) is said
    entries = [{"loss": 2.5, "step": 1}, *({"eval_loss": float(loss), "step": 1} for loss in losses)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 1, "max_steps": 1, "log_history": entries}))
    [reading] = read_inputs([tmp_path / "trainer_state.json"])
    assert reading.rows[0].outcome_reason == (NO_NUMBER if said else None)


@pytest.mark.parametrize(
    ("loss", "perplexity", "is_taken"),
    [(1.5, 4.4817, True), (1.5, 5.9, True), (1.5, 99.0, False), (9.9999, 4.4817, False)],
)
def test_a_perplexity_that_is_not_of_the_loss_beside_it_is_empty(
    tmp_path: Path, loss: float, perplexity: float, is_taken: bool
) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
        f"{{'eval_loss': {loss}, 'eval_perplexity': {perplexity}, 'eval_runtime': 3.0, 'epoch': 1.0}}\n"
    )
    [reading] = read_inputs([log])
    [row] = reading.rows
    assert (row.eval_loss, row.perplexity) == (loss, perplexity if is_taken else None)
    assert any("perplexity" in one for one in reading.left_empty) is not is_taken
