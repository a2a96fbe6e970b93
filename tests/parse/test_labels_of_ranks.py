"""Launchers' labels before the lines of a rank that begin or end within a log: the steps behind are that rank's still."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading, Row

MEGATRON = (
    " iteration {n:8d}/     100 | consumed samples:    32 | elapsed time per iteration (ms): 100{n}.0 | learning rate: 1.0E-05 | "
    "global batch size:    32 | lm loss: {loss}E+00 | loss scale: 1.0 | grad norm: 1.1 |\n"
)
NANOGPT = "iter {n}: loss {loss}, time 38{n}.01ms, mfu 38.1%\n"
TITAN = "[titan] 2025-08-01 10:00:{n:02},010 - root - INFO - step: {n:2}  loss: {loss}  grad_norm: 1.2000  memory: 44.97GiB(47.34%)  tps: 7,010  tflops: 405.12  mfu: 40.96%\n"
PROGRAMS = {"megatron": MEGATRON, "nanogpt": NANOGPT, "titan": TITAN}
LABELS = ("0: ", "[default0]:", "[rank0]:", "[1,0]<stdout>:")
BAR = "Loading: 100%|##########| 4/4 [00:01<00:00,  3.1it/s]"
WARNING = "[W801 10:00:05.1 Utils.hpp:136] Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING is deprecated "


def lines_of(program: str) -> list[str]:
    return [PROGRAMS[program].format(n=n, loss=f"{9.9 - n / 10:.4f}") for n in range(1, 12)]


def figures(row: Row) -> tuple[object, ...]:
    return row.loss_first, row.loss_last, row.measured_steps, row.step_time_s_mean, row.outcome_reason


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("label", LABELS)
def test_a_label_that_one_line_lacks_loses_no_step(program: str, label: str, row: Callable[..., Row]) -> None:
    lines = lines_of(program)
    labelled = [f"{label}{line}" for line in lines]
    whole = figures(row("".join(labelled)))
    assert whole[1] == 8.8
    changed = {
        "first bare": [lines[0], *labelled[1:]],
        "first behind a bar": [BAR + labelled[0], *labelled[1:]],
        "first behind a warning": [WARNING + labelled[0], *labelled[1:]],
        "byte order mark": ["\ufeff" + labelled[0], *labelled[1:]],
        "labels end": [*labelled[:6], *lines[6:]],
        "labels begin": [*lines[:6], *labelled[6:]],
        "another label": [f"[rank0]: {lines[0]}", *labelled[1:]],
    }
    assert {name: figures(row("".join(text))) for name, text in changed.items()} == dict.fromkeys(changed, whole)
    one_bare = figures(row("".join([*labelled[:5], lines[5], *labelled[6:]])))
    assert (*one_bare[:2], one_bare[-1]) == (*whole[:2], whole[-1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_lines_of_other_ranks_stay_copies(program: str, row: Callable[..., Row]) -> None:
    """One that is ahead by a step is no other label of the rank whose lines go on below."""
    own, other = lines_of(program), [f"[rank1]:{line}" for line in lines_of(program)]
    in_step = [line for pair in zip(own, other, strict=True) for line in pair]
    ahead = [own[0], *(line for pair in zip(other[1:], own[1:], strict=True) for line in pair)]
    whole = figures(row("".join(own)))
    assert figures(row("".join(in_step))) == figures(row("".join(ahead))) == whole


@pytest.mark.parametrize("label", ["", "0: "])
def test_a_log_in_which_each_line_stands_twice_is_of_one_run(label: str, row: Callable[..., Row]) -> None:
    """As where a program and `tee` write into one file, or two ranks print the same."""
    begin = [
        "tokens per iteration will be: 491,520\n",
        "number of parameters: 123.59M\n",
        "step 0: train loss 10.9, val loss 10.91\n",
    ]
    lines = [f"{label}{line}" for line in [*begin, *lines_of("nanogpt")]]
    once, twice = row("".join(lines)), row("".join(line * 2 for line in lines))
    assert figures(once) == figures(twice) and once.eval_loss == twice.eval_loss == 10.91
    other = [f"1: {line.removeprefix(label)}" for line in lines]
    both = row("".join(line for pair in zip(lines, other, strict=True) for line in pair))
    assert (both.loss_first, both.loss_last, both.eval_loss) == (once.loss_first, once.loss_last, 10.91)


STEPS = {
    "trainer": [f"{{'loss': {5 - n / 10}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {n / 10}}}" for n in range(1, 11)],
    "nanogpt": [f"iter {n}: loss {5 - n / 10}, time 500.00ms, mfu 10.00%" for n in range(1, 11)],
    "titan": [f"[titan] step: {n:2}  loss: {5 - n / 10}  memory: 2.50GiB(1.1%)  tps: 2,000" for n in range(1, 11)],
}  # fmt: skip


@pytest.mark.parametrize("lines", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("apart", [1, 7])
def test_numbers_of_lines_are_no_ranks(read: Callable[..., Reading], lines: list[str], apart: int) -> None:
    [row] = read("".join(f"{n * apart + 9}:{line}\n" for n, line in enumerate(lines))).rows
    [plain] = read("".join(f"{line}\n" for line in lines)).rows
    assert (row.loss_first, row.loss_last, row.measured_steps) == (
        plain.loss_first,
        plain.loss_last,
        plain.measured_steps,
    )


@pytest.mark.parametrize("lines", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("ranks", [2, 3, 100])
def test_ranks_of_which_each_prints_all_steps_are_no_numbers_of_lines(
    read: Callable[..., Reading], lines: list[str], ranks: int
) -> None:
    [row] = read("".join(f"{rank}: {line}\n" for line in lines for rank in range(ranks))).rows
    [plain] = read("".join(f"{line}\n" for line in lines)).rows
    assert (row.loss_first, row.loss_last, row.measured_steps) == (
        plain.loss_first,
        plain.loss_last,
        plain.measured_steps,
    )
