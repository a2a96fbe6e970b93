"""What is printed beside the program's own figures and contradicts them: another bar that moves, an engine that saw more memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading

GIB = 1 << 30


def bar(done: int, total: int, seconds: int, graphic: str) -> str:
    clock = f"{seconds // 60:02}:{seconds % 60:02}"
    return f"{100 * done // total:3}%{graphic} {done}/{total} [{clock}<01:00,  1.33it/s]\n"


def trained(graphic: str, pause_s: int, *, other: bool) -> str:
    """100 steps of 0.7 s; behind each ten of them a pause, in which another bar moves."""
    lines, clock = ["***** Running training *****\n  Total optimization steps = 100\n", bar(0, 100, 0, graphic)], 0.0
    for done in range(5, 101, 5):
        clock += 3.5
        lines.append(bar(done, 100, int(clock), graphic))
        if done % 10 == 0:
            clock += pause_s
            lines += [bar(one, 7, one // 3, graphic) for one in range(8)] if other else []
            lines.append(bar(done, 100, int(clock), graphic))
    lines.append(f"{{'train_runtime': {clock}, 'train_steps_per_second': {100 / clock:.3f}, 'epoch': 1.0}}\n")
    return "".join(lines)


@pytest.mark.parametrize("graphic", ["", "|####      |"])
def test_a_bar_that_stands_while_another_moves_leaves_no_step_time(read: Callable[..., Reading], graphic: str) -> None:
    [row] = read(trained(graphic, 3, other=True)).rows
    assert row.step_time_s_mean is None and row.elapsed_s == 100.0
    [row] = read(trained(graphic, 0, other=False)).rows
    assert row.step_time_s_mean == pytest.approx(0.7, rel=0.02)


def test_bars_of_the_parts_of_a_step_are_no_pause(read: Callable[..., Reading]) -> None:
    """Such a bar moves between two readings of training's, which never stands still."""
    lines = ["***** Running training *****\n  Total optimization steps = 50\n", bar(0, 50, 0, "|# |")]
    for done in range(1, 51):
        lines += [bar(part, 4, 0, "|# |") for part in range(5)] + [bar(done, 50, done, "|# |")]
    lines.append("{'train_runtime': 50.0, 'train_steps_per_second': 1.0, 'epoch': 1.0}\n")
    [row] = read("".join(lines)).rows
    assert row.step_time_s_mean == pytest.approx(1.0)


ENGINE = (
    "[Step {i}/20] Loss: 5.1 | Tokens/s: 41.3 | GPU Mem (GB): {own:.2f}\n[INFO] [logging.py:107:log_dist] [Rank 0] step={i}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n"
    "[INFO] [timer.py:264:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=0.119, CurrSamplesPerSec=0.118, MemAllocated=13.01GB, MaxMemAllocated=18.12GB\n"
)


@pytest.mark.parametrize(("own", "taken"), [(12.81, 18.12), (18.12, 18.12), (19.5, 19.5)])
def test_a_peak_below_what_the_engine_counted_is_none(read: Callable[..., Reading], own: float, taken: float) -> None:
    text = "".join(ENGINE.format(i=i, own=own) for i in range(1, 21))
    [row] = read(f"{text}Avg GPU Mem (GB): {own:.2f}\nPeak GPU Mem (GB): {own:.2f}\n").rows
    assert row.peak_allocated_bytes == pytest.approx(taken * GIB, rel=1e-3)


TIMERS = "[Rank 0] time (ms) | fwd: {a:.2f} | bwd: {b:.2f} | bwd_inner: {b:.2f} | bwd_allreduce: 0.10 | step: {c:.2f}\n"


@pytest.mark.parametrize("prefixes", [("", ""), ("0: ", "1: ")])
def test_a_timer_s_line_that_is_printed_twice_is_of_one_step(
    read: Callable[..., Reading], prefixes: tuple[str, str]
) -> None:
    lines = [TIMERS.format(a=10.0 + step, b=20.0 + step, c=5.0 + step / 10) for step in range(12)]
    [once] = read("".join(prefixes[0] + line for line in lines)).rows
    [twice] = read("".join(prefix + line for line in lines for prefix in prefixes)).rows
    assert once.step_time_s_mean is not None
    assert (twice.measured_steps, twice.step_time_s_mean) == (once.measured_steps, once.step_time_s_mean)


ALONE = (
    "[INFO] [config.py:984:print]   world_size ...... 8\n[INFO] [config.py:984:print]   train_batch_size ...... 16\n"
    + "".join(
        f"[INFO] [timer.py:264:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=50.0, CurrSamplesPerSec=50.0, MemAllocated=13.5GB, MaxMemAllocated=30.0GB\n"
        for i in range(10, 110, 10)
    )
)
PROGRAMS = {
    "trainer": "{{'loss': {loss}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n",
    "titan": "[titan] step: {n:2}  loss: {loss}  memory: 44.97GiB(47.34%)  tps: 7,010\n",
    "nanogpt": "iter {n}: loss {loss}, time 500.00ms, mfu 10.00%\n",
}


@pytest.mark.parametrize("line", PROGRAMS.values(), ids=PROGRAMS)
def test_an_engine_whose_steps_all_stand_before_a_program_is_none_of_it(
    read: Callable[..., Reading], line: str
) -> None:
    """One that a program works with prints among the program's steps."""
    lines = [line.format(n=n, loss=5 - n / 10, epoch=n / 20) for n in range(1, 21)]
    [alone], [row] = read("".join(lines)).rows, read(ALONE + "".join(lines)).rows
    assert row.to_dict() == alone.to_dict()
    assert row.world_size is row.global_batch_size is row.peak_allocated_bytes is None
    engine = ALONE.splitlines(keepends=True)[-1].replace("=100", "=110")
    [own] = read(ALONE + "".join([*lines[:10], engine, *lines[10:]])).rows
    assert (own.world_size, own.global_batch_size) == (8, 16)
