"""DeepSpeed's rate is that of its own timer, and its lines have a clock: where no step was as short by the clock, the rate is not that of steps."""

from __future__ import annotations

import io
from datetime import datetime, timedelta

import pytest

from hpc_llm.parsing import parse_stream
from hpc_llm.parsing.rows import Row

START = datetime(2025, 3, 1, 10, 0, 0)
ENGINE = """\
[2025-03-01 10:00:00,000] [INFO] [config.py:960:print] DeepSpeedEngine configuration:
[2025-03-01 10:00:00,000] [INFO] [config.py:964:print]   gradient_accumulation_steps .. 4
[2025-03-01 10:00:00,000] [INFO] [config.py:964:print]   train_batch_size ............. 64
[2025-03-01 10:00:00,000] [INFO] [config.py:964:print]   world_size ................... 4
"""
MEGATRON = (
    "using world size: 4, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n"
)
MEGATRON += "------------------------ arguments ------------------------\n  global_batch_size ............................... 64\n"
SPELLINGS = {
    "new": "[{at}] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, MemAllocated=1.11GB, MaxMemAllocated=6.11GB\n",
    "old": "[{at}] [INFO] [timer.py:181:stop] 0/{step}, RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, MemAllocated=1.11GB, MaxMemAllocated=6.11GB\n",
    "oldest": "[{at}] [INFO] [timer.py:157:stop] 0/{step}, SamplesPerSec={rate}\n",
}
RANK = "[{at}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]\n"
HF = "{{'loss': {loss:.2f}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {epoch:.2f}}}\n"


def lines(
    step_s: float, *more: str, spelling: str = "new", rate: float = 32.0, pause_behind: tuple[int, ...] = ()
) -> str:
    """Nine lines of every tenth step, which takes `step_s` by the clock, `more` beside each, and an hour of something else behind some."""
    said, at = "", START
    for n in range(1, 10):
        at += timedelta(seconds=10 * step_s)
        stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
        for line in (*more, SPELLINGS[spelling]):
            said += line.format(at=stamp, step=10 * n, rate=rate + 0.01 * (n % 3), loss=3 - n / 100, epoch=n / 10)
        at += timedelta(hours=n in pause_behind)
    return said


def row_of(text: str) -> Row:
    (row,) = parse_stream("a.log", io.BytesIO(text.encode())).rows
    return row


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("more", [(), (RANK,)])
def test_a_rate_that_the_clock_bears_out_gives_the_time_of_a_step(more: tuple[str, ...], spelling: str) -> None:
    for said in (lines(2.0, *more, spelling=spelling), lines(2.2, *more, spelling=spelling, pause_behind=(2, 3, 4, 7))):
        assert row_of(ENGINE + said).step_time_s_mean == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("step_s", [3.5, 53.0])
@pytest.mark.parametrize("before", [ENGINE, MEGATRON + ENGINE], ids=["engine", "megatron"])
def test_no_time_of_a_step_comes_from_a_rate_that_the_clock_contradicts(
    before: str, step_s: float, spelling: str
) -> None:
    for more in ((), (RANK,), (RANK, RANK)):  # the second is of another engine
        row = row_of(before + lines(step_s, *more, spelling=spelling))
        assert (row.step_time_s_mean, row.step_time_s_p50, row.step_time_s_p90) == (None, None, None)
        assert (row.measured_steps, row.tokens_per_second, row.global_batch_size) == (None, None, 64)


def test_what_it_says_below_another_program_is_held_to_the_clock_too() -> None:
    assert row_of(ENGINE + lines(2.0, HF)).step_time_s_mean == pytest.approx(2.0, rel=0.01)
    assert row_of(ENGINE + lines(7.5, HF)).step_time_s_mean is None


def test_a_program_that_prints_the_time_itself_keeps_it() -> None:
    own = " iteration {step:8d}/ 900 | consumed samples: 640 | elapsed time per iteration (ms): 7500.0 | learning rate: 1.0E-4 | global batch size: 64 | lm loss: 7.1E+00 | loss scale: 1.0 | grad norm: 1.1 |\n"
    assert row_of(MEGATRON + ENGINE + lines(7.5, own)).step_time_s_mean == pytest.approx(7.5)


def test_what_was_left_empty_is_said() -> None:
    (found,) = parse_stream("a.log", io.BytesIO((ENGINE + lines(53.0)).encode())).left_empty
    assert "by the clock of the same lines" in str(found)
