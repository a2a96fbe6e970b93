"""No input raises: random bytes, and lines of real formats cut, shuffled, repeated and with other numbers."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpc_llm.parsing import parse_stream, parse_stream_steps, write_rows
from hpc_llm.parsing.registry import FolderFormat, formats

FRAGMENTS = [
    "W0503 03:16:55.5 150 torch/distributed/run.py:851] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
    "[Step 1/100] Loss: 5.2 | Global Tokens/s: 1000.0 | GPU Mem (GB): 3.1 | Peak Mem: 4.2",
    "[Recording] Step 3: Loss 6.3 | 1000.00 tokens/s",
    "Final Benchmark Results (Excluding 30 warm-up steps)",
    "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 0", "Batch size per device = -1 | Gradient Accumulation steps = 1e400",
    "Avg Global Tokens/s: 5", "Training done in 5 seconds.", "Peak GPU Mem (GB): 5",
    "{'loss': '2.5', 'grad_norm': nan, 'learning_rate': 1e-999, 'epoch': 0.5}", "{'train_runtime': 0, 'epoch': inf}",
    "{'eval_loss': None, 'eval_ppl': '1e400'}", " 50%|###| 30/60 [01:30<01:30,  3.00s/it]", "  train_runtime   = 1:2:3:4",
    "[Rank 0] step=5, skipped=9, lr=[1e-05], mom=[]", "epoch=0/micro_step=2/global_step=2, RunningAvgSamplesPerSec=0, CurrSamplesPerSec=0",
    "] [config.py:1:print]   train_batch_size ............. 0", "]   zero_config ... {", "MA 1 GB Max_MA 1e400 GB",
    " iteration 5/ 0 | elapsed time per iteration (ms): 0.0 | lm loss: nan | global batch size: 0 |", "iteration=1/2 | lm loss=1",
    "[titan] step: 1  loss:  nan  memory:  0GiB(0%)  tps: 0  mfu: -1%", "Building 2-D device mesh with ['a'], [0, -1, ,]",
    "steps: 10 loss: 8.9000 iter time (s): 2.500 samples/sec: 102.400",
    "Training epoch 0, iteration 1/2 | reduced_train_loss: 1e30 | global_step: 1e300 | max_memory_allocated: inf",
    "Epoch 99999999: 1%| 5/1 [0:1<, v_num=1, train_loss=1e]", "[batch=1/0]:", "\t Train loss/train/total: --", "[epoch=0][batch=9/9]:",
    '{"current_steps": 1, "total_steps": null, "loss": "x", "elapsed_time": "9 days, 99:99:99"}', '{"current_steps": 1e9}',
    '{"loss": NaN, "learning_rate": "x", "global_step/max_steps": "5/0", "elapsed_time": "1m 60s", "train_speed(s/it)": 1e400}',
    "iter 5: loss -1, time 0.00ms, mfu -100.00%", "epoch=1: train_ppl=tensor(nan) train_epoch_loss=tensor(inf)",
    "step    12 | loss: 6.512345 | lr 6.0e-05 | norm: 1.2500 | dt: 340.10ms | tok/sec: 1541000.00",
    "step 00012/00100 (12.00%) | loss: 6.512345 | lrm: 1.00 | dt: 340.10ms | tok/sec: 1,541,000 | bf16_mfu: 40.12 | epoch: 1",
    "Throughput: 0 requests/s, 0 tokens/s", "Avg latency: 0 seconds", ':::MLLOG {"namespace": "", "time_ms": -1, "event_type": "", "key": "run_stop", "value": 1, "metadata": 3}',
    '{"cells": [{"cell_type": "code", "outputs": [null, {"text": [1]}]}]}', '{"log_history": [{"loss": []}], "global_step": "x"}',
    '{"train_runtime": "x", "train_loss": 1e400, "epoch": []}', '{"key": 5, "token/s": "x", "step_time (s)": []}', '{"avg_latency": null}', "[[[[[[[[", "Traceback (most recent call last):",
    "[axolotl.train] Training completed!", "iter 0: loss 5.5, time 5.5ms, mfu -5%", "***** Evaluating perplexity, Epoch 5/5 *****", "ppl: inf",
    "Batch 5 Loss: nan, Speed: 0 samples/sec, Model TFLOPS/GPU: 5, lr: 5", "Training seconds: 5555555555555555555555555",
    "ValueError: x", "slurmstepd: error: *** JOB 7 ON n CANCELLED AT x DUE TO TIME LIMIT ***", "CUDA out of memory", "0: ", "[rank7]:",
    "\x1b[31m", "\r", "\0", "9" * 5000, "step: " + "9" * 400 + "  loss:  1  memory: 1GiB(1%) ", "1,2,3,,4", "-.e+", "\ufeff",
]  # fmt: skip

fragments = st.sampled_from(FRAGMENTS)
cut = st.builds(lambda text, a, b: text[a : len(text) - b], fragments, st.integers(0, 12), st.integers(0, 12))
spliced = st.builds(lambda a, b, n: a[:n] + b[n:], fragments, fragments, st.integers(0, 60))
other_numbers = st.builds(
    lambda text, number: "".join(number if c == "5" else c for c in text),
    fragments,
    st.sampled_from(["-5", "1e400", "nan", "99999999999999999999999", "0", "5,5", ""]),
)
line = st.one_of(fragments, cut, spliced, other_numbers, st.text(max_size=30))
text = st.builds(
    lambda lines, end: end.join(lines), st.lists(line, max_size=25), st.sampled_from(["\n", "\r\n", "\r", ""])
)


def survives(data: bytes) -> None:
    """Rows, steps and every output come of it, whatever it is."""
    rows = parse_stream("log", io.BytesIO(data), verbose=True).rows
    assert rows
    for name in ("csv", "json", "jsonl", "markdown", "table"):
        write_rows(rows, name, io.StringIO())
    write_rows(parse_stream_steps("log", io.BytesIO(data)), "jsonl", io.StringIO())


@given(st.binary(max_size=2000))
@settings(max_examples=300, deadline=None)
def test_random_bytes(data):
    survives(data)


@given(text)
@settings(max_examples=300, deadline=None)
@example("\n".join(FRAGMENTS))
@example("\n".join(reversed(FRAGMENTS)))
def test_lines_cut_shuffled_and_with_other_numbers(found):
    survives(found.encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12), st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_documents_and_bytes_between_lines(lines, junk):
    survives(junk.join(line.encode("utf-8", "surrogatepass") for line in lines))


@pytest.mark.parametrize("make", [lambda f: f * 2000, lambda f: f + "a" * 200_000, lambda f: "a 1=" * 50_000 + f])
def test_endless_lines_take_no_endless_time(make):
    known = "\n".join(f for f in FRAGMENTS if "\0" not in f)
    begin = time.process_time()
    for fragment in FRAGMENTS:
        parse_stream("log", io.BytesIO(f"{known}\n{make(fragment)[:200_000]}".encode()))
    assert time.process_time() - begin < 60


def test_all_formats_are_in_the_mix():
    everything = "\n".join(FRAGMENTS).encode()
    missing = [f.name for f in formats() if not isinstance(f, FolderFormat) and not f.is_in(everything)]
    assert not missing, "a new format needs a line in FRAGMENTS"
