"""Ranks and nodes of one run that print the same lines, one ahead of the other or one behind the other: they are one run."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading
from hpc_llm.parsing.read import parse_stream

LABELS = [("[rank0]:", "[rank1]:"), ("0: ", "8: "), ("[1,0]<stdout>:", "[1,1]<stdout>:")]
HEAD = "[titan] Starting job: x", "[titan] Trainer is initialized with local batch size 2, global batch size 8, gradient accumulation steps 1, sequence length 8192, total steps 100 (warmup 10)", "[titan] Training starts at step 1"  # fmt: skip


def titan(end: bool = True) -> list[str]:
    steps = [f"[titan] step: {n:2}  loss: {12 - n / 20}  memory: 2.50GiB(1.1%)  tps: 2,000" for n in (1, *range(10, 101, 10))]  # fmt: skip
    return [*HEAD, *steps, *(["[titan] Training completed"] if end else [])]


def trainer(first: float = 3.0, runtime: float = 250.0) -> tuple[list[str], list[str]]:
    """What the Trainer says before its first step, and from then on."""
    head = ["***** Running training *****", "  Num examples = 800", "  Total optimization steps = 100"]
    steps = [
        f"{{'loss': {first - n / 10}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {n / 10}}}"
        for n in range(1, 11)
    ]
    return head, [
        *steps,
        f"{{'train_runtime': {runtime}, 'train_steps_per_second': {100 / runtime:.3f}, 'train_loss': 2.5, 'epoch': 1.0}}",
    ]


def lagging(lines: list[str], labels: tuple[str, str], lag: int) -> str:
    """The lines of two ranks, of which the second is so many lines ahead."""
    text = []
    for n in range(len(lines) + lag):
        text += [labels[1] + lines[n]] if n < len(lines) else []
        text += [labels[0] + lines[n - lag]] if n >= lag else []
    return "".join(f"{line}\n" for line in text)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("lag", [0, 1, 3, 6, 20])
@pytest.mark.parametrize("counted", [0, 1])
def test_a_rank_that_is_ahead_ends_no_run(
    read: Callable[..., Reading], labels: tuple[str, str], lag: int, counted: int
) -> None:
    first = labels if counted == 0 else labels[::-1]
    [row] = read(lagging(titan(), first, lag)).rows
    assert (row.measured_steps, row.loss_first, row.loss_last, row.outcome) == (99, 11.95, 7.0, "COMPLETED")


@pytest.mark.parametrize("labels", LABELS)
def test_a_second_run_of_all_ranks_is_another(read: Callable[..., Reading], labels: tuple[str, str]) -> None:
    once = lagging(titan(), labels, 1)
    assert [row.measured_steps for row in read(once + once).rows] == [99, 99]
    alone = "".join(f"{labels[0]}{line}\n" for line in titan())
    assert [row.measured_steps for row in read(alone + alone).rows] == [99, 99]


@pytest.mark.parametrize("labels", [*LABELS, ("", ""), ("[default0]:", "[default0]:")])
@pytest.mark.parametrize("late", [1, 2, 5, 11])
def test_a_node_whose_lines_stand_behind_the_end_of_another_is_no_run(
    read: Callable[..., Reading], labels: tuple[str, str], late: int
) -> None:
    """Each node prints all lines; those of the second one that are left come behind the first one's summary."""
    head, steps = trainer()
    text = [label + line for line in head for label in labels]
    for n, line in enumerate(steps):
        text += [labels[0] + line] + ([labels[1] + line] if n < len(steps) - late else [])
    text += [labels[1] + line.replace("250.0", "250.5") for line in steps[-late:]]
    [row] = read("".join(f"{line}\n" for line in text)).rows
    assert (row.loss_first, row.loss_last, row.elapsed_s, row.outcome) == (2.9, 2.0, 250.0, "COMPLETED")


def test_a_run_of_other_losses_behind_the_end_is_another(read: Callable[..., Reading]) -> None:
    head, steps = trainer()
    _, others = trainer(first=3.5)
    text = "".join(f"{line}\n" for line in (*head, *steps, *others))
    assert [(row.loss_first, row.loss_last) for row in read(text).rows] == [(2.9, 2.0), (3.4, 2.5)]


def test_a_run_that_begins_anew_with_the_same_losses_is_another(read: Callable[..., Reading]) -> None:
    head, steps = trainer()
    text = "".join(f"{line}\n" for line in (*head, *steps))
    assert len(read(text + text).rows) == 2
    silent = "".join(f"{line}\n" for line in steps)  # of a program that does not say when it begins
    assert len(read(silent + silent).rows) == 2


BETWEEN = "a word about nothing that a program prints now and then\n"
EACH = {
    "homework": "[Step {n}/40] Loss: {loss:.4f} | Tokens/s: {rate}.25 | GPU Mem (GB): 26.79 | Peak Mem: 33.51\n",
    "titan": "[titan] step: {n:2}  loss: {loss:.4f}  memory: 44.97GiB(47.34%)  tps: {rate}\n",
    "megatron": " iteration {n:8}/     100 | consumed samples: {n:12} | elapsed time per iteration (ms): {rate}.5 | learning rate: 1.5E-04 | global batch size:     8 | lm loss: {loss:.6E} | loss scale: 1.0 |\n",
    "nanogpt": "iter {n}: loss {loss:.4f}, time {rate}.00ms, mfu 10.00%\n",
}  # fmt: skip


def printed(program: str, n: int, rank: int = 0) -> str:
    return EACH[program].format(n=n, loss=5 - n / 50, rate=130 + rank)


@pytest.mark.parametrize("program", EACH)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("lines", [0, 6, 50, 700])
def test_ranks_without_labels_are_one_run_however_much_stands_between_their_lines(
    read: Callable[..., Reading], program: str, ranks: int, lines: int
) -> None:
    """Where nothing says how many ranks there are, there is no rate of all of them."""
    [alone] = read("".join(printed(program, n) for n in range(1, 21))).rows
    text = "".join(printed(program, n, rank) + BETWEEN * lines for n in range(1, 21) for rank in range(ranks))
    [row] = read(text).rows
    assert row.to_dict() == alone.to_dict()
    assert row.measured_steps and row.world_size is row.tokens_per_second is None


@pytest.mark.parametrize("program", EACH)
@pytest.mark.parametrize("sign", ["Traceback (most recent call last):\n", "srun: error: n1: task 0: Killed\n", ""])
def test_a_run_that_goes_on_from_a_checkpoint_behind_much_text_is_another(
    read: Callable[..., Reading], program: str, sign: str
) -> None:
    """Without a word about what happened it is told by its steps, each of which is printed once."""
    first, later = ("".join(printed(program, n) for n in steps) for steps in (range(1, 13), range(11, 21)))
    text = f"{first}{BETWEEN * 30}{sign}{BETWEEN * 30}{later}"
    assert [(row.loss_first, row.loss_last) for row in read(text).rows] == [(4.98, 4.76), (4.78, 4.6)]


@pytest.mark.parametrize("lines", [0, 6, 50])
def test_what_the_trainer_prints_on_each_node_makes_no_other_rate(read: Callable[..., Reading], lines: int) -> None:
    head = "***** Running training *****\n  Num examples = 160\n  Total optimization steps = 20\n"
    said = [
        f"{{'loss': {5 - n / 10}, 'grad_norm': {1.5 + n / 100:.2f}, 'learning_rate': 1e-05, 'epoch': {n / 20}, 'num_input_tokens_seen': {1000 * n}, "
        f"'train_runtime': {2.0 + n / 2}, 'train_tokens_per_second': {1000 * n / (2 + n / 2):.1f}}}\n"
        for n in range(1, 21)
    ]
    end = "{'train_runtime': 12.0, 'train_steps_per_second': 1.667, 'epoch': 1.0}\n"
    [alone] = read(head + "".join(said) + end).rows
    nodes = [line + BETWEEN * lines for line in (*said, end) for _ in range(2)]
    [row] = read(head + "".join(nodes)).rows
    assert alone.tokens_per_second == pytest.approx(20000 / 12, rel=1e-4)
    assert row.to_dict() == alone.to_dict()


@pytest.mark.parametrize("lines", [40, 2000])
def test_lines_that_say_the_same_of_step_after_step_are_no_copies(lines: int) -> None:
    """A loss of 0, with a constant rate and no gradient, is printed of one step after the other: both lanes keep all of them."""
    said = [
        f"{{'loss': {max(0.0, 2 - n / 20):.4f}, 'learning_rate': 2e-05, 'epoch': {n / lines:.2f}}}\n"
        for n in range(lines)
    ]
    [sample] = parse_stream("job.log", io.BytesIO("".join(said).encode()), sampled=True).samples
    assert sample is not None and sample.count == lines


PRINTED = "INFO     | 2024-05-02 10:46:{:02} | autotrain.trainers.common:on_log:226 - {{'loss': {}, {}'learning_rate': {}, 'epoch': {}}}\n"


@pytest.mark.parametrize("marks", ["'grad_norm': 0.5{n}, ", ""])
@pytest.mark.parametrize("is_rounded_first", [False, True])
@pytest.mark.parametrize("steps", [5, 400])
def test_a_line_that_comes_again_with_a_rounded_epoch_is_no_step(
    read: Callable[..., Reading], marks: str, is_rounded_first: bool, steps: int
) -> None:
    """AutoTrain prints what the Trainer is about to print, before it rounds the epoch."""
    text, spacing = "", 25 / 1163
    for n in range(1, steps + 1):
        own = marks.format(n=n)
        lines = [
            PRINTED.format(n % 60, 9 - n / 100, own, n * 1e-7, n * spacing),
            f"{{'loss': {9 - n / 100}, {own}'learning_rate': {n * 1e-7}, 'epoch': {round(n * spacing, 2)}}}\n",
        ]
        text += "".join(lines[::-1] if is_rounded_first else lines)
    [row] = read(text).rows
    assert (row.loss_first, row.loss_last) == (8.99, 9 - steps / 100)
    [alone] = read("".join(text.splitlines(keepends=True)[is_rounded_first::2])).rows
    assert row.measured_steps == alone.measured_steps


OPENING = "[2026-08-04 0{}:06:39,945] [INFO] [real_accelerator.py:203:get_accelerator] Setting ds_accelerator to cuda (auto detect)\n"
TWICE = "{{'loss': {0:.4f}, 'grad_norm': {1}, 'learning_rate': 1e-05, 'epoch': {2}}}\n"


def said_twice(loss: float, norms: list[object], spacing: float = 0.0331, copies: int = 2) -> str:
    """Lines that a callback prints before the Trainer rounds their epoch and prints them itself."""
    lines = [
        TWICE.format(loss - n * 0.3, norm, epoch)
        for n, norm in enumerate(norms)
        for epoch in ((n + 1) * spacing, round((n + 1) * spacing, 2))[:copies]
    ]
    return "".join(lines)


@pytest.mark.parametrize("opening", ["", OPENING])
@pytest.mark.parametrize("norm", [1.5, math.nan, math.inf])
def test_lines_that_come_again_with_a_rounded_epoch_are_none_in_any_run(
    read: Callable[..., Reading], opening: str, norm: float
) -> None:
    trainings = [said_twice(loss, [norm] * 12) for loss in (5.7, 5.8, 5.9)]
    rows = read("".join(opening.format(n) + one for n, one in enumerate(trainings))).rows
    assert [(row.loss_first, row.loss_last) for row in rows] == [(5.7, 2.4), (5.8, 2.5), (5.9, 2.6)]


def test_losses_that_are_nan_come_again_with_a_rounded_epoch(read: Callable[..., Reading]) -> None:
    text = said_twice(5.7, [1.5] * 6) + said_twice(math.nan, [math.nan] * 12, spacing=0.3331)
    [row] = read(text).rows
    assert (row.loss_first, row.outcome) == (5.7, "INVALID")


DIED = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nRuntimeError: it broke\n'


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("between", [OPENING.format(2), DIED])
def test_an_attempt_of_one_line_is_not_the_beginning_of_the_next(
    read: Callable[..., Reading], copies: int, between: str
) -> None:
    text = (
        OPENING.format(1) + said_twice(5.7, [2.5], copies=copies) + between + said_twice(5.8, [1.5] * 12, copies=copies)
    )
    assert [(row.loss_first, row.loss_last) for row in read(text).rows] == [(5.7, 5.7), (5.8, 2.5)]


@pytest.mark.parametrize("between", ["", OPENING.format(2), DIED])
def test_the_next_step_with_the_same_rounded_epoch_is_of_the_same_training(
    read: Callable[..., Reading], between: str
) -> None:
    """DeepSpeed is imported late where a model is saved, and what is caught is printed with a traceback."""
    text = (
        TWICE.format(5.7, 1.5, 0.01) + between + "".join(TWICE.format(5.6 - n, 1.5, 0.01 * (n + 1)) for n in range(3))
    )
    [row] = read(text).rows
    assert (row.loss_first, row.loss_last) == (5.7, 3.6)
