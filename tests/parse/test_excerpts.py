"""Logs from which lines were left out: a line counts for all steps since the line before, which is no measurement across a hole."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest

from hpc_llm.parsing import parse_stream

MEANS = (
    "measured_steps",
    "warmup_steps",
    "step_time_s_mean",
    "step_time_s_p50",
    "step_time_s_p90",
    "tokens_per_second",
)


def megatron(steps: Iterable[int]) -> str:
    return "".join(
        f" iteration {step:8}/  100000 | elapsed time per iteration (ms): {900.0 + step % 7} | learning rate: 1.0E-04 |"
        f" global batch size:   256 | lm loss: 9.9E+00 | loss scale: 1.0 | grad norm: 1.2 |\n"
        for step in steps
    )


def titan(steps: Iterable[int]) -> str:
    return "".join(
        f"[rank0]:[titan] 2025-10-21 23:15:59,0{step % 10} - root - INFO - step: {step:2}  loss:  8.12  grad_norm:  1.6  "
        f"memory:  0.98GiB(1.2%)  tps: 7,{100 + step % 7}  tflops: 10.35  mfu: 1.05%\n"
        for step in steps
    )


def trainer(steps: Iterable[int]) -> str:
    return "".join(f"{{'loss': 2.31, 'grad_norm': 1.1, 'learning_rate': 5e-05, 'step': {step}}}\n" for step in steps)


WITH_A_HOLE = [
    [6502, 6503, 6504, 8600, 8601],
    [1, 2, 3, 500],
    [10, 20, 30, 1250, 1260],
    [1, 8, 100, 600],
    [100, 200, 300, 2600, 2700, 9900],
    [13, 900],
]
WHOLE = [
    [1, 2, 3, 4, 5],
    [1, 2, 10, 20],
    [1, 10, 20, 30],
    [10, 20, 30, 37],
    [100, 200, 201, 300, 400],
    [1, 2, 3, 100, 200, 300],
    [1, 500],
    [501, 511, 521],
    [7],
]


@pytest.mark.parametrize("program", [megatron, titan])
@pytest.mark.parametrize("steps", WITH_A_HOLE, ids=str)
def test_an_excerpt_has_no_means_and_says_why(read, program, steps):
    reading = read(program(steps))
    [found] = reading.rows
    assert {name: getattr(found, name) for name in MEANS} == dict.fromkeys(MEANS)
    assert f"the log stops at step {steps[-1]}" in str(found.outcome_reason)
    assert found.tokens_per_second_per_gpu is found.mfu is None
    [why] = [one for one in reading.left_empty if "means" in one]
    assert "missing" in why


@pytest.mark.parametrize("program", [megatron, titan])
@pytest.mark.parametrize("steps", WHOLE, ids=str)
def test_whole_logs_keep_theirs(read, program, steps):
    reading = read(program(steps))
    [found] = reading.rows
    assert (found.step_time_s_mean if program is megatron else found.tokens_per_second_per_gpu) is not None
    assert not [one for one in reading.left_empty if "missing" in one]


def test_what_prints_no_rates_counts_no_steps_over_a_hole(row):
    assert row(trainer(range(10, 60, 10))).measured_steps == 50
    assert row(trainer([10, 20, 30, 910, 920])).measured_steps is None


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [WITH_A_HOLE[0], WITH_A_HOLE[2], [1, 2, 3, 4, 5, 6]], ids=str)
def test_in_pieces_as_in_one(steps, cut):
    from hpc_llm.parsing.joining import join
    from hpc_llm.parsing.registry import formats_in
    from hpc_llm.parsing.scan import Scanner
    from hpc_llm.parsing.summary import row_of

    whole = parse_stream("job", io.BytesIO(megatron(steps).encode())).rows[0]
    runs = []
    for part in (steps[:cut], steps[cut:]):
        scanner = Scanner(formats_in(megatron(steps[:1]).encode()))
        scanner.feed(megatron(part).encode())
        runs = join((runs, scanner.finish()))
    for run in runs:
        run.tail.settle()
    [joined] = map(row_of, runs)
    assert [getattr(joined, name) for name in MEANS] == [getattr(whole, name) for name in MEANS]
