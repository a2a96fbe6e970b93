"""The fast lane and reading in pieces change the speed and nothing else."""

from __future__ import annotations

import io
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpc_llm.parsing import Row, fast, parallel, parse_paths, scan
from hpc_llm.parsing.joining import join
from hpc_llm.parsing.means import EXACT, Distribution
from hpc_llm.parsing.read import Reading, parse_stream
from hpc_llm.parsing.registry import formats_in
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.sample import LossAt
from hpc_llm.parsing.scan import Scanner
from hpc_llm.parsing.unparsed import Unparsed
from hpc_llm.text import sources

V1 = "[Step {i}/900] Loss: {a}.{i:04} | Global Tokens/s: {b}.5 | GPU Mem (GB): 3.10 | Peak Mem: {a}.25\n"
V2 = "[Recording] Step {i}: Loss {a}.{i:04} | {b}.5 tokens/s\n"
DS = (  # a peak never falls
    "[INFO] [logging.py:107:log_dist] [Rank 0] step={i}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n"
    "[INFO] [timer.py:264:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=15.5, "
    "CurrSamplesPerSec={b}.5, MemAllocated=5.25GB, MaxMemAllocated=8.{i:04}GB\n"
)
HF = "{{'loss': {a}.{i:04}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {e:.2f}}}\n"
TITAN = "[titan] INFO - step: {i:2}  loss:  {a}.5  memory: {a}.50GiB(1.1%)  tps: {b}  tflops: 1.50  mfu: 9.50%\n"
NANO = "iter {i}: loss {a}.5, time {b}.25ms, mfu 9.50%\n"
MEGATRON = (
    " iteration {i:8}/     900 | consumed samples: 40 | elapsed time per iteration (ms): {b}.5 | learning rate: 1.5E-08 |"
    " global batch size:    16 | lm loss: {a}.25E+00 | grad norm: 2.500 | number of skipped iterations:   0 |\n"
)
LINES = [V1, DS + V1, V2, HF, TITAN, NANO, MEGATRON]

NOISE = [
    "",
    "some text that says nothing\n",
    "Training done in 12.34 seconds.\n",
    "{'eval_loss': 2.5, 'eval_runtime': 3.5, 'epoch': 1.0}\n",
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n",
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: broken\n',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.\n",
    "x" * 3000 + "\n",
    "step 25: train loss 2.6439, val loss 2.5\n",
    "number of parameters: 3.50M\n",
    "using world size: 4, data-parallel size: 4, tensor-model-parallel size: 1\n",
    "[launch.py:253:main] command: ['python', 'train.py', '--seq_len', '512']\n",
    "[INFO] [config.py:984:print]   train_batch_size ...... 8\n",
    " validation loss at iteration 4 | lm loss value: 7.5E+00 | lm loss PPL: 1.8E+03 | \n",
    "[2026-01-01 10:00:00,001] [INFO] [config.py:954:print] DeepSpeedEngine configuration:\n",
]


def part(template: str, first: int, count: int, seed: int) -> str:
    return "".join(
        template.format(i=i, a=2 + (i * seed) % 7, b=100 + (i * i * seed) % 90, e=i / 300)
        for i in range(first, first + count)
    )


FAR = "x" * 3000 + "\n"
logs = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 400), st.sampled_from(NOISE)), min_size=1, max_size=4)


def rows(text: bytes, pieces: list[int] | None = None, careful: bool = False) -> list[Row]:
    """The rows of `text`, read whole or in pieces that begin at these lines."""
    return reading(text, pieces, careful).rows


def reading(text: bytes, pieces: list[int] | None = None, careful: bool = False) -> Reading:
    formats = formats_in(text)
    cuts = [0]
    for position in sorted(pieces or []):
        start = text.find(b"\n", position) + 1
        cuts.append(start if start else len(text))
    runs: list[LogRun] = []
    for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        scanner = Scanner(formats, careful=careful, sampled=True)
        scanner.feed(text[begin:end])
        runs = join((runs, scanner.finish()))
    return Reading.of_runs("log", runs, Unparsed())


def drawn(one: Reading) -> list[tuple[int, list[LossAt]]]:
    return [(sample.count, sample.drawn()) for sample in one.samples if sample is not None]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(scan, "CHUNK", 4096)
    monkeypatch.setattr(fast, "FEWEST_STEPS", 4)


def same(one: list[Row], other: list[Row]) -> None:
    """The same rows; means may differ in the last digit, for sums are taken in another order."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert {
            k: (pytest.approx(v, rel=1e-9) if isinstance(v, float) else v) for k, v in a.to_dict().items()
        } == b.to_dict()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("template", LINES)
@settings(max_examples=15, deadline=None)
@given(log=logs, seed=st.integers(1, 50))
@example(
    log=[(1, 55, ""), (1, 2, "")], seed=49
)  # the first line of the next run stands behind the last step in one chunk
@example(
    log=[(1, 60, ""), (1, 302, FAR), (1, 155, FAR), (155, 133, "")], seed=1
)  # the last step comes again, at the end of one
def test_fast_lane_gives_the_rows_of_the_careful_lane(template, log, seed):
    text = "".join(part(template, first, count, seed) + noise for first, count, noise in log).encode()
    fast_read, careful_read = reading(text), reading(text, careful=True)
    same(fast_read.rows, careful_read.rows)
    assert drawn(fast_read) == drawn(careful_read)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("template", [V1, DS + V1, HF, TITAN, MEGATRON])
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(1, 50), count=st.integers(20, 400), noise=st.sampled_from(NOISE))
def test_pieces_give_the_rows_of_the_whole(template, data, seed, count, noise):
    text = (part(template, 1, count, seed) + noise).encode()
    pieces = data.draw(st.lists(st.integers(0, len(text) - 1), max_size=4))
    whole, joined = reading(text), reading(text, pieces)
    same(joined.rows, whole.rows)
    assert drawn(joined) == drawn(whole)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("template", LINES)
def test_fast_lane_is_really_used(template, monkeypatch):
    taken: list[bool] = []
    read = fast.FastLane.read

    def counted(lane, chunk, last):
        steps = read(lane, chunk, last)
        taken.append(steps is not None)
        return steps

    monkeypatch.setattr(fast.FastLane, "read", counted)
    rows(part(template, 1, 800, 3).encode())
    assert sum(taken) >= len(taken) - 1 > 0


def test_large_logs_are_read_in_pieces_by_several_processes(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(parallel, "PIECE", 20_000)
    monkeypatch.setattr(parallel, "WORTHWHILE", 1)
    monkeypatch.setattr(parallel, "GROUP", 30_000)
    for number in range(6):
        (tmp_path / f"{number}.log").write_text(part(V1, 1, (200, 899)[number % 2], number + 1))
    (tmp_path / "large.log").write_text(part(DS + V1, 1, 899, 5) + "Training done in 12.34 seconds.\n")
    sizes: list[int] = []
    several = list(parse_paths([tmp_path], jobs=2, on_progress=sizes.append))
    one = list(parse_paths([tmp_path], jobs=1))
    same(several, one)
    assert [r.run_id for r in several] == ["0", "1", "2", "3", "4", "5", "large"]
    assert sum(sizes) == sum(p.stat().st_size for p in tmp_path.iterdir())


@settings(deadline=None)
@given(st.binary(max_size=400).map(lambda b: b.replace(b"a", b"\n")), st.lists(st.integers(0, 420), max_size=4))
def test_pieces_of_a_file_are_its_lines_in_order(text, positions):
    cuts = [0, *sorted(min(p, len(text)) for p in positions), len(text)]
    parts = []
    for begin, end in pairwise(cuts):
        piece = sources.Piece(io.BytesIO(text), begin, end)
        while read := piece.read(7):
            parts.append(read)
    assert b"".join(parts) == text


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=300), st.integers(1, 300))
def test_distribution_in_parts(values, cut):
    whole, first, second = Distribution(), Distribution(), Distribution()
    whole.extend(values)
    first.extend(values[:cut])
    second.extend(values[cut:])
    first.merge(second)
    assert (first.count, first.first) == (whole.count, whole.first)
    assert first.mean() == pytest.approx(whole.mean())
    assert first.percentile(90) == pytest.approx(whole.percentile(90))


def test_percentiles_of_very_many_values_stay_within_a_tenth_of_a_percent():
    exact, many = sorted(1 + i / 1000 for i in range(2 * EXACT)), Distribution()
    for begin in range(0, len(exact), 10_000):
        many.extend(exact[begin : begin + 10_000])
    for percent in (1, 50, 90, 99):
        assert many.percentile(percent) == pytest.approx(exact[len(exact) * percent // 100], rel=2e-3)


def test_means_weigh_a_line_by_the_steps_it_stands_for():
    text = "".join(TITAN.format(i=i, a=2, b=rate) for i, rate in ((1, 1), (2, 100), (10, 200), (20, 200))).encode()
    assert rows(text)[0].tokens_per_second_per_gpu == pytest.approx(19 / (1 / 100 + 18 / 200))


def test_parsing_imports_nothing_heavy():
    code = "import sys, hpc_llm.parsing; print(sorted({m.split('.')[0] for m in sys.modules} & {'pandas','numpy','torch','yaml','pydantic','tabulate','multiprocessing'}))"
    assert os.popen(f'{__import__("sys").executable} -c "{code}"').read().strip() == "[]"


QUOTED = (
    "sample 12: slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 ***",
    "> slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "+slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 ***",
    "    slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2020-01-01T00:00:00 ***",
    '{"text": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 ***"}',
    "```\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 ***\n```",
    # Nothing tells this one from Slurm's own but the step that follows it.
    "My job died:\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2020-01-01T00:00:00 ***\nWhy?",
)
GENUINE = (
    "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
    " 3: slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
    "[2026-01-01 00:00:00] slurmstepd-n1: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
    " 1%|  | 1/9 [00:01<00:08, 1.0s/it]slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
)


def _steps(first: int, last: int) -> str:
    return "".join(f"iter {k}: loss {5 - k / 100:.4f}, time 100.00ms, mfu 30.00%\n" for k in range(first, last + 1))


@pytest.mark.parametrize("quoted", QUOTED)
@pytest.mark.parametrize("after", [1, 20])
def test_text_that_quotes_slurm_ends_no_run(quoted: str, after: int) -> None:
    rows = parse_stream("log", io.BytesIO(f"{_steps(1, 20)}{quoted}\n{_steps(21, 20 + after)}".encode())).rows
    assert [(row.measured_steps, row.job_id) for row in rows][:1] == [(19 + after, None)] or "Why?" in quoted
    assert len(rows) == 1 and (rows[0].outcome == "UNKNOWN" or ("Why?" in quoted and after == 1))


@pytest.mark.parametrize("line", GENUINE)
def test_slurms_own_line_ends_a_run(line: str) -> None:
    rows = parse_stream("log", io.BytesIO(f"{_steps(1, 20)}{line}\n{_steps(1, 5)}".encode())).rows
    # What follows a job, or a step, may be another job's, and does not say which.
    assert [(row.outcome, row.job_id) for row in rows] == [("CANCELLED", "9"), ("UNKNOWN", None)]


def test_the_steps_of_processes_that_end_slowly_are_no_other_run() -> None:
    text = f"{_steps(1, 20)}{GENUINE[0]}\n{_steps(21, 23)}"
    (row,) = parse_stream("log", io.BytesIO(text.encode())).rows
    assert (row.outcome, row.measured_steps) == ("CANCELLED", 22)


@pytest.mark.usefixtures("small_chunks")
def test_a_traceback_across_two_chunks_is_read_as_one():
    """Of the careful lane's chunks one may end between its heading and its exception."""
    noise = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: broken\n'
    step = "[Recording] Step {i}: Loss {a}.{i:04} | {b}.5 tokens/s\n"
    for count in range(370, 410):
        text = (part(step, 7, count, 1) + noise).encode()
        fast_read, careful_read = reading(text), reading(text, careful=True)
        same(fast_read.rows, careful_read.rows)
        assert careful_read.rows[0].cause_confidence == 0.85
