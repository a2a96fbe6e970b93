"""DeepSpeed's own mean of all steps, beside the single steps that it prints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading

BATCH = "[2026-01-01 00:00:00,000] [INFO] [config.py:1001:print]   train_batch_size ............. 100\n"


def log(every: int, mean: float, one: float, last: int = 120) -> str:
    line = "[2026-01-01 00:00:00,000] [INFO] [timer.py:258:stop] epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec={1}, CurrSamplesPerSec={2}\n"
    return BATCH + "".join(line.format(n, mean, one) for n in range(every, last + 1, every))


@pytest.mark.parametrize(("mean", "one"), [(40.0, 250.0), (40.0, 25.0)])
def test_single_steps_that_are_no_sample_of_all_tell_no_mean(
    read: Callable[..., Reading], mean: float, one: float
) -> None:
    reading = read(log(10, mean, one))
    (row,) = reading.rows
    assert row.step_time_s_mean == pytest.approx(2.5)
    assert (row.step_time_s_p50, row.step_time_s_p90, row.measured_steps) == (None, None, None)
    assert "is not that of all, 2.5 s" in " ".join(reading.left_empty)


def test_those_that_agree_with_it_or_are_all_there_are_taken(read: Callable[..., Reading]) -> None:
    (row,) = read(log(10, 40.0, 41.0)).rows
    assert (row.step_time_s_mean, row.step_time_s_p50) == pytest.approx((100 / 41, 100 / 41)) and row.measured_steps
    (row,) = read(log(1, 40.0, 50.0, last=30)).rows
    assert (row.step_time_s_mean, row.measured_steps) == (2.0, 29)
    for odd in (0.0, float("nan"), float("inf")):
        (row,) = read(log(10, odd, 50.0)).rows
        assert row.step_time_s_mean == 2.0
