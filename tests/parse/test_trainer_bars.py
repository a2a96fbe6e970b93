"""The Trainer's lines beside its progress bars: where output waits in a buffer, a line stands beside any state of any bar."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading, Row, Step
from hpc_llm.parsing.bars import Bars

EVAL = "{'eval_loss': 1.2, 'eval_runtime': 30.0, 'epoch': %.1f}\n"
ENDED = "{'train_runtime': %s, 'train_samples_per_second': 9.0, 'train_steps_per_second': %s, 'train_loss': 2.0, 'epoch': 4.0}\n"


def loss(epoch: float) -> str:
    return f"{{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 0.001, 'epoch': {epoch:.2f}}}\n"


def bar(done: int, total: int, time: int) -> str:
    return f" {100 * done // total}%|####      | {done}/{total} [{time // 60:02}:{time % 60:02}<10:00,  1.00s/it]\n"


def epochs(shift: int = 0, lag: int = 0) -> str:
    """Four epochs of 100 steps of 1 s, each with an evaluation of 30 s behind it; the bar is `lag` steps ahead of the lines."""
    text = ""
    for epoch in range(4):
        begin = 130 * epoch
        text += "".join(loss(epoch + part / 5) for part in range(1, 6))
        text += bar(100 * (epoch + 1) + lag * epoch + shift, 400, begin + 100)
        text += bar(0, 10, 0) + bar(5, 10, 15) + bar(10, 10, 30) + EVAL % (epoch + 1)
    return text


@pytest.mark.parametrize(
    "text",
    [epochs(), epochs(lag=-7), epochs() + ENDED % (520.0, 0.769)],
    ids=["bars at the end of epochs", "bars beside their lines", "ended"],
)
def test_no_time_of_a_step_holds_an_evaluation(row: Callable[[str], Row], text: str) -> None:
    found = row(text)
    assert found.step_time_s_mean is None
    assert (found.measured_steps or 0) <= 400


def test_lines_between_which_nothing_was_evaluated_still_tell_the_time(row: Callable[[str], Row]) -> None:
    text = "".join(loss(part / 100) + bar(part, 400, part) for part in range(10, 100, 10))
    assert row(text + EVAL % 1 + loss(1.1) + bar(110, 400, 140)).step_time_s_mean == pytest.approx(1.0, rel=0.02)


def test_the_bar_of_an_evaluation_says_nothing_of_training(
    row: Callable[[str], Row], steps: Callable[[str], list[Step]]
) -> None:
    """A burst of lines stands above the bar of an evaluation that begins, or is under way."""
    begin = "***** Running training *****\n  Num examples = 1600\n  Total optimization steps = 400\n"
    text = begin
    for at in range(1, 5):
        text += bar(100 * at, 400, 130 * at) + "".join(loss(at - 1 + part / 5) for part in range(1, 6))
        text += bar(0 if at % 2 else 280, 280, 0 if at % 2 else 29)
    text += bar(400, 400, 520) + EVAL % 4 + ENDED % (520.0, 0.769)
    found = row(text)
    assert (found.measured_steps, found.step_time_s_mean, found.elapsed_s) == (400, None, 520.0)
    assert {one.step for one in steps(text)} == {None}


def test_means_are_held_to_the_steps_of_the_run(read: Callable[[str], Reading]) -> None:
    line = (
        '{{"current_steps": {0}, "total_steps": 10, "loss": 1.0, "epoch": 0.{0:02}, "elapsed_time": "0:{0:02}:00"}}\n'
    )
    good = "".join(line.format(step) for step in range(2, 11, 2))
    [found] = read(good).rows
    assert (found.measured_steps, found.step_time_s_mean) == (8, 60.0)
    wrong = read(good.replace('"total_steps": 10', '"total_steps": 6'))
    [found] = wrong.rows
    assert (found.measured_steps, found.step_time_s_mean, found.warmup_steps) == (None, None, None)
    assert "they would be of 8 steps, and the run has 6" in " ".join(wrong.left_empty)


def test_the_time_of_all_steps_is_no_more_than_the_run_s(read: Callable[[str], Reading]) -> None:
    """DeepSpeed tells the rate of whole batches, the program numbers the parts of them."""
    text = "[2026-01-01 00:00:00,000] [INFO] [config.py:1001:print]   train_batch_size ............. 8\n"
    for step in range(1, 41):
        text += f"[Step {step}/40] Loss: 2.5 | Global Tokens/s: 500.00 | GPU Mem (GB): 3.10 | Peak Mem: 4.25\n"
        if step % 4 == 0:
            text += f"[timer.py:264:stop] epoch=0/micro_step={step}/global_step={step // 4}, RunningAvgSamplesPerSec=0.8, CurrSamplesPerSec=0.8\n"
    reading = read(text + "Training done in 100.00 seconds.\nAvg Global Tokens/s: 480.00\n")
    [found] = reading.rows
    assert (found.elapsed_s, found.step_time_s_mean, found.tokens_per_second) == (100.0, None, 480.0)
    assert "40 steps of 10 s are more than the 100 s" in " ".join(reading.left_empty)


def test_one_step_of_a_bar_is_a_warm_up_and_a_step(row: Callable[[str], Row]) -> None:
    begin = "[INFO|trainer.py:2313] 2026-01-01 10:00:00,000 >> ***** Running training *****\n"
    begin += "[INFO|trainer.py:2321] 2026-01-01 10:00:00,000 >>   Total optimization steps = 28\n"
    found = row(begin + bar(0, 28, 0).replace("1.00s/it", "?it/s").replace("10:00", "?") + bar(1, 28, 31))
    assert (found.measured_steps, found.step_time_s_mean) == (None, None)
    assert found.outcome_reason == "the log stops at step 1 of 28 of its progress bar, without a message of an end"
    assert row(begin + bar(1, 28, 31) + bar(11, 28, 131)).measured_steps == 11


SHARDS = "\nWriting model shards:   0%|          | 0/1 [00:00<?, ?it/s]\nWriting model shards: 100%|####| 1/1 [01:40<00:00, 100.00s/it]\n"
BEFORE = "Saving the dataset (1/1 shards): 100%|####| 64/64 [00:00<00:00, 9.00 examples/s]\nLoading checkpoint shards: 100%|####| 2/2 [00:09<00:00,  4.5s/it]\n"
PROMPTS = (
    "Processed prompts: 100%|####| 8/8 [00:00<00:00, 9.00it/s, est. speed input: 9.00 toks/s, output: 9.00 toks/s]\n"
)


def bars(within: str = "", stand_s: int = 0, end_s: int = 0, each: str = "") -> str:
    """200 steps of 1 s; behind the 100th and the last one the bar stands still."""
    text = BEFORE + bar(0, 200, 0)
    for step in range(1, 201):
        text += each + bar(step, 200, step + (stand_s if step > 100 else 0))
        text += loss(step / 100) + bar(step, 200, step + (stand_s if step > 100 else 0)) if step % 10 == 0 else ""
        text += within if step == 100 else ""
    time = 200 + stand_s + end_s
    return text + ENDED % (f"{time}.0", f"{200 / time:.3f}") + bar(200, 200, time)


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        (bars(), 1.0),
        (bars(each=PROMPTS), 1.0),
        (bars(SHARDS, 100), 1.0),
        (bars("[2026-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] Saving model checkpoint: a/b\n", 100), 1.0),
        (bars("Evaluating: 100%|####| 9/9 [01:40<00:00, 11.1s/it]\n", 100), 1.0),
        (bars(SHARDS, 0, 100), 1.0),
        (bars("", 100), None),
        (bars("", 0, 100), 1.0),
        (bars("", 3), 1.015),
        (bars("", 12), None),
    ],
    ids=["steps alone", "bars of each step", "shards", "engine", "evaluation", "at the end", "said by nothing", "nor at the end", "short", "of some steps"],
)  # fmt: skip
def test_no_time_of_a_step_holds_a_save(read: Callable[..., Reading], text: str, time_s: float | None) -> None:
    [found] = read(text, verbose=True).rows
    assert found.step_time_s_mean == (None if time_s is None else pytest.approx(time_s, rel=0.01))
    assert read(text).rows == read(text, verbose=True).rows
    assert read(text.replace("it]\n", "it]\r")).rows == read(text).rows, "as bars are drawn"
    if time_s is None:
        assert "without a step, once" in " ".join(read(text, verbose=True).left_empty)


LOST = 'Traceback (most recent call last):\n  File "t.py", line 9, in <module>\n    trainer.train()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n'
CRASHED = "E0301 10:00:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 0 (pid: 78) of binary: /usr/bin/python\n    raise ChildFailedError(\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"


def test_a_training_that_fails_at_once_changes_nothing_of_the_one_before(read: Callable[[str], Reading]) -> None:
    rows = read(bars() + "All is written.\n" + bar(0, 200, 0).replace("[00:00<10:00", "[00:00<?") + LOST).rows
    assert [(one.outcome, one.measured_steps, one.loss_last) for one in rows] == [
        ("COMPLETED", 200, 1.5),
        ("OOM_DEVICE", None, None),
    ]
    assert [one.outcome for one in read(bars() + "All is written.\n" + LOST).rows] == ["OOM_DEVICE"]


def test_an_attempt_has_no_figure_of_another(read: Callable[[str], Reading]) -> None:
    """Each goes on where the one before had saved: the bar begins at 0, and jumps there."""

    def attempt(begin: int, end: int) -> str:
        return (
            bar(0, 600, 0).replace("[00:00<10:00", "[00:00<?")
            + "".join(bar(at, 600, 30 * (at - begin)) for at in range(begin + 1, end + 1))
            + (loss(end / 600) + bar(end, 600, 30 * (end - begin)) if end - begin > 5 else "")
        )

    text = attempt(0, 40) + CRASHED + attempt(30, 80) + CRASHED + attempt(80, 83) + CRASHED + attempt(80, 82)
    rows = read(text).rows
    assert [one.outcome for one in rows] == ["FAILED", "FAILED", "FAILED", "UNKNOWN"]
    assert [one.step_time_s_mean for one in rows[1:]] == [None] * 3


def test_the_bar_of_an_evaluation_begins_no_run(read: Callable[[str], Reading]) -> None:
    begun = bar(0, 9, 0).replace("[00:00<10:00", "[00:00<?")
    each = begun + bar(5, 9, 3) + bar(9, 9, 5)
    text = begun.join(
        "".join(loss(n / 100) + bar(n, 200, 9 * n) for n in range(k, k + 30, 10)) + each + EVAL % 1
        for k in (10, 40, 70)
    )
    assert len(read(text).rows) == len(read(text + each + EVAL % 2).rows) == 1


def test_bars_of_what_goes_over_the_data_are_no_training(read: Callable[..., Reading]) -> None:
    """A speech model that writes down each sample draws a bar of its own within the bar of the data, and both have no name."""
    data = "".join(bar(0, 3, 0) + bar(1, 3, 1) + bar(3, 3, 1) + bar(0, 2, 0) + bar(2, 2, 1) for _ in range(4))
    begins = "***** Running training *****\n  Num examples = 1,194\n  Total optimization steps = 60\n"
    training = begins + loss(0.1) + loss(0.2) + ENDED % (60.0, 1.0)
    assert [one.outcome for one in read(data + training).rows] == ["COMPLETED"]


@pytest.mark.parametrize(("steps", "step_s"), [(10, 0.199), (20, 0.199), (45, 0.199), (6, 1.4)])
def test_a_clock_of_a_few_whole_seconds_gives_no_step_time(
    read: Callable[..., Reading], steps: int, step_s: float
) -> None:
    """A run that was killed soon: ten steps of 0.199 s end at 00:01."""
    states = "".join(bar(step, 4000, int(step * step_s)) for step in range(1, steps + 1))
    [row] = read(bar(0, 4000, 0) + states + loss(0.01), verbose=True).rows
    assert (row.step_time_s_mean, row.measured_steps, row.tokens_per_second) == (None, None, None)
    long = "".join(bar(step, 4000, int(step * step_s)) for step in range(1, 301))
    [row] = read(bar(0, 4000, 0) + long + loss(0.1)).rows
    assert row.step_time_s_mean == pytest.approx(step_s, rel=0.02) and row.measured_steps == 300


@pytest.mark.parametrize("graphic", ["| ", "|####      | "])
def test_other_bars_within_a_standing_clock_show_a_pause(graphic: str) -> None:
    """In a notebook a bar has no graphic; a pause of three seconds is told by the evaluation's own bar alone."""
    graphic = graphic if "#" in graphic else " "
    text, clock = "", 0
    for done in range(1, 41):
        clock += 1
        text += f" 10%{graphic}{done}/40 [00:{clock:02d}<00:30,  1.00s/it]\n" if clock < 60 else ""
        if done in (10, 20, 30):
            text += "".join(f" 50%{graphic}{i}/7 [00:00<00:01,  2.00it/s]\n" for i in range(1, 8))
            clock += 3
            text += f" 10%{graphic}{done}/40 [00:{clock:02d}<00:30,  1.00s/it]\n"
    bars = Bars()
    bars.look(text.encode())
    [pauses] = [stood for total, stood in bars.pauses(to_the_end=True) if total == 40]
    assert (pauses.count, pauses.time_s, pauses.step_s) == (3, 9.0, 1.0)


@pytest.mark.parametrize(("steps_done", "redrawn"), [(2, 1), (2, 3), (40, 1), (40, 6)])
def test_what_a_bar_stands_for_behind_its_last_step_is_no_step(
    read: Callable[..., Reading], steps_done: int, redrawn: int
) -> None:
    """A program that fails, or is ended, in its next step draws its bar once more, or others draw it meanwhile."""
    text = bar(0, 100, 0) + "".join(bar(n, 100, 60 * n) for n in range(1, steps_done + 1))
    again = "".join(bar(steps_done, 100, 60 * steps_done + 500 * n // redrawn) for n in range(1, redrawn + 1))
    raised = "Traceback (most recent call last):\n  File \"/w/a.py\", line 4, in <module>\n    f()\nKeyError: 'b'\n"
    begin = "[INFO|trainer.py:2313] 2026-01-01 10:00:00,000 >> ***** Running training *****\n" + loss(0.1)
    for log in (begin + text + raised + again, begin + text + again + raised):
        [found] = read(log).rows
        assert (found.outcome, found.measured_steps, found.step_time_s_mean) == ("FAILED", steps_done, 60.0)
