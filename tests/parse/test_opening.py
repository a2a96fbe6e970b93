"""The first lines of a run: a warm-up is in no mean, also where the second line holds the time of the first once more."""

from __future__ import annotations

import io

import pytest

from hpc_llm.parsing import Row, Step, parse_stream, parse_stream_steps
from hpc_llm.parsing.joining import join
from hpc_llm.parsing.read import Reading
from hpc_llm.parsing.registry import formats_in
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.scan import Scanner
from hpc_llm.parsing.unparsed import Unparsed

HEAD = "using world size: 8, data-parallel size: 8\n  seq_length ...................................... 1024\n"


def line(step: int, ms: float, stamp: str = "") -> str:
    return (
        f" {stamp} iteration {step:8}/     900 | consumed samples: {64 * step} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU"
        f" (TFLOP/s/GPU): {100000 / ms:.1f} | learning rate: 1.0E-04 | global batch size:    64 | lm loss: 9.5E+00 |\n"
    )


def log(first: float, second: float, steps: tuple[int, ...], stamps: tuple[str, ...] = ()) -> str:
    """Lines of these steps: the first, the second, and others of 1000 ms."""
    times = [first, second, *[1000.0] * (len(steps) - 2)]
    said = [f"[2026-01-01 {at}]" for at in stamps] + [""] * len(steps)
    return HEAD + "".join(line(step, ms, at) for step, ms, at in zip(steps, times, said, strict=False))


def row(text: str) -> Row:
    [found] = parse_stream("a.log", io.BytesIO(text.encode())).rows
    return found


EACH, TENTH = (1, 2, 3, 4), (1, 10, 20, 30)
# The time between the lines is that of the steps between them, or is not; the last one is when the third was printed.
RESET = ("10:00:40", "10:01:01", "10:01:02")
GOES_ON = ("10:00:40", "10:00:41", "10:00:42")


@pytest.mark.parametrize(
    ("text", "warmup", "measured", "mean"),
    [
        (log(40000, 20500, EACH), 2, 2, 1.0),  # (40 + 1) / 2
        (log(40000, 20500, EACH, GOES_ON), 2, 2, 1.0),
        (log(40000, 20500, EACH, RESET), 1, 3, 7.5),  # it took so long indeed
        (log(40000, 4900, TENTH), 10, 20, 1.0),  # (40 + 9) / 10
        (log(40000, 4900, TENTH, ("10:00:40", "10:00:49")), 10, 20, 1.0),
        (log(40000, 4900, TENTH, ("10:00:40", "10:01:24")), 1, 29, (9 * 4.9 + 20) / 29),
        (log(40000, 1000, EACH), 1, 3, 1.0),  # both steps together take less than the first
        (log(1005, 1000, EACH), 1, 3, 1.0),  # with the first or without it, the mean is the same
        (log(2000, 1500, EACH), 2, 2, 1.0),  # nothing decides
        (log(4000, 1000, (10, 20, 30, 40)), 10, 30, 1.0),  # an older release, which prints no first iteration
        (log(40000, 20500, (1, 2)), 2, None, None),
        (log(40000, 1000, (1, 2)), 1, 1, 1.0),
        (HEAD + line(1, 40000.0), 1, None, None),
    ],
)  # fmt: skip
def test_a_line_that_may_hold_the_first_step_is_left_out(
    text: str, warmup: int, measured: int | None, mean: float | None
) -> None:
    found = row(text)
    assert (found.warmup_steps, found.measured_steps) == (warmup, measured)
    assert found.step_time_s_mean == (None if mean is None else pytest.approx(mean))
    assert found.tokens_per_second == (None if mean is None else pytest.approx(64 * 1024 / mean))
    assert (found.model_tflops_per_gpu is None) == (mean is None)


def test_its_step_has_no_time_either() -> None:
    def steps(text: str) -> list[Step]:
        return list(parse_stream_steps("a.log", io.BytesIO(text.encode())))

    assert [one.step_time_s for one in steps(log(40000, 20500, EACH))] == [40.0, None, 1.0, 1.0]
    assert [one.step_time_s for one in steps(log(40000, 1000, EACH))] == [40.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("second", [20500.0, 1000.0])
@pytest.mark.parametrize("cut", [1, 2, 3, 40])
def test_in_pieces_as_in_one(second: float, cut: int) -> None:
    text = log(40000, second, tuple(range(1, 100)))
    lines = text.splitlines(keepends=True)
    runs: list[LogRun] = []
    for part in ("".join(lines[: 2 + cut]), "".join(lines[2 + cut :])):
        scanner = Scanner(formats_in(text.encode()))
        scanner.feed(part.encode())
        runs = join((runs, scanner.finish()))
    [joined], [whole] = Reading.of_runs("a.log", runs, Unparsed()).rows, [row(text)]
    for name in ("warmup_steps", "measured_steps", "step_time_s_mean", "tokens_per_second", "step_time_s_p90"):
        assert getattr(joined, name) == pytest.approx(getattr(whole, name)), name


TITAN = "[titan] 2026-01-01 10:00:0{0} - root - INFO - step: {0:2}  loss:  12.2  memory: 26.15GiB(83.40%)  tps: {1}  tflops: 7.35  mfu: 2.36%\n"
NANO = "iter {0}: loss 4.5, time {1}.00ms, mfu 2.50%\n"


@pytest.mark.parametrize(("line", "first"), [(TITAN, 1), (NANO, 0)], ids=["torchtitan", "nanogpt"])
def test_the_first_step_alone_has_no_figures(line: str, first: int) -> None:
    alone = row(line.format(first, 275))
    assert (alone.measured_steps, alone.tokens_per_second_per_gpu, alone.step_time_s_mean) == (None, None, None)
    assert (alone.mfu, alone.model_tflops_per_gpu) == (None, None)
    assert "no training step" not in str(alone.outcome_reason)
    two = row(line.format(first, 275) + line.format(first + 1, 5000))
    assert 5000 in (two.tokens_per_second_per_gpu, 1000 * (two.step_time_s_mean or 0.0))
    assert (two.warmup_steps, two.measured_steps) == (1, 1)
