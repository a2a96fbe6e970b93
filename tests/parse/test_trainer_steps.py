"""How many steps lie in the time that the Trainer prints: of runs that were stopped early, and of runs that go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_llm.parsing import parse_paths

HEAD = """***** Running training *****
  Num examples = 51,200
  Num Epochs = 1
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 128
  Gradient Accumulation steps = 8
  Total optimization steps = 400
"""
OLD = "  Continuing training from global step {}\n"
NEW = "  Resuming training from checkpoint with epoch 0 and global step {}\n"


def training(first: int, last: int, *, seconds: float = 5.0, counted: int, bar: bool = False, head: str = HEAD) -> str:
    """Lines of every tenth step of `seconds`, and a summary in which the Trainer counted so many steps."""
    text, done = head, last - first
    for step in range(first + 10, last + 1, 10):
        text += f"{{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 2e-05, 'epoch': {step / 400:.4f}}}\n"
        if bar:
            text += f" 1%|#| {step}/400 [{_clock((step - first) * seconds)}<01:00,  5.00s/it]\n"
    time = done * seconds
    return text + (
        f"{{'train_runtime': {time}, 'train_steps_per_second': {counted / time:.3f}, 'train_loss': 2.0, 'epoch': {last / 400}}}\n"
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


@pytest.mark.parametrize(
    ("text", "steps", "time"),
    [
        (training(0, 400, counted=400), 400, 5.0),
        (training(0, 200, counted=200), 200, 5.0),  # stopped early; newer releases count what was done
        (training(0, 200, counted=400), None, None),  # older ones what was planned
        (training(0, 200, counted=400, bar=True), 200, 5.0),
        (training(0, 200, counted=300, bar=True), 190, 5.0),  # neither: only what lies between the lines
        (training(300, 400, counted=100, head=HEAD + NEW.format(300)), 100, 5.0),
        (training(300, 400, counted=400, head=HEAD + OLD.format(300)), None, None),
        (training(300, 400, counted=400, bar=True, head=HEAD + OLD.format(300)), 100, 5.0),
        (training(100, 200, counted=100, head=HEAD + NEW.format(100)), 100, 5.0),  # both
        (training(100, 200, counted=400, bar=True, head=HEAD + OLD.format(100)), 100, 5.0),
    ],
)
def test_steps_of_one_call_of_train(row, text, steps, time):
    found = row(text)
    assert found.step_time_s_mean == (None if time is None else pytest.approx(time))
    assert found.measured_steps == steps
    # Where lines alone were timed, nobody says how many steps stood before them.
    assert found.warmup_steps == (None if steps in (None, 190) else 0)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        (training(0, 400, counted=400, head=""), 5.0),
        (training(0, 200, counted=400, head=""), None),
        (training(300, 400, counted=400, head=""), None),
        (training(300, 400, counted=400, head="", bar=True), 5.0),  # of what lies between the lines
        ("  0%|  | 0/400 [00:00<?, ?it/s]\n  0%|  | 1/400 [00:05<01:00,  5.00s/it]\n" + training(0, 5, counted=400, head=""), None),
    ],
)  # fmt: skip
def test_logs_that_do_not_say_how_training_was_set_up(read, text, time):
    found = read(text)
    assert found.rows[0].step_time_s_mean == (None if time is None else pytest.approx(time))
    assert any("step time" in said for said in found.left_empty) == (time is None)


@pytest.mark.parametrize("head", [HEAD + NEW.format(200), HEAD])
def test_tokens_of_a_run_that_goes_on(row, head):
    """The tokens are those since the very beginning, the time is that of this call."""
    lines = "".join(
        f"{{'loss': 1.7, 'epoch': {step / 400:.4f}, 'num_input_tokens_seen': {8192 * step}, 'train_runtime': {2.0 * (step - 200)},"
        " 'train_tokens_per_second': 4096.0}\n"
        for step in range(210, 401, 10)
    )
    found = row(head + lines)
    assert found.tokens_per_second is None
    assert found.tokens_per_second_per_gpu is None
    bars = "".join(
        f"{line}\n 60%|#| {step}/400 [00:01<00:10,  5.00s/it]\n"
        for line, step in zip(lines.splitlines(), range(210, 401, 10), strict=True)
    )
    assert row(head + bars).tokens_per_second == 4096.0, "by what was seen between the lines"


def test_a_trainer_state_that_may_have_gone_on(row):
    history = [{"loss": 3.0 - i / 100, "step": i, "epoch": i / 400} for i in range(10, 401, 10)]
    for done, counted, time in ((400, 400, None), (400, 100, 5.0), (200, 400, None), (200, 200, 2.5)):
        end = {"train_runtime": 500.0, "train_steps_per_second": counted / 500, "step": done, "epoch": done / 400}
        state = {"global_step": done, "max_steps": 400, "log_history": [*history[: done // 10], end]}
        assert row(json.dumps(state), "trainer_state.json").step_time_s_mean == time


def factory(step: int, time: int, tokens: int) -> str:
    record = {"current_steps": step, "total_steps": 500, "loss": 2.0, "elapsed_time": _clock(time).join(("0:", "")),
              "throughput": tokens / time, "total_tokens": tokens}  # fmt: skip
    return json.dumps(record) + "\n"


@pytest.mark.parametrize("before", ["", "the lines of the first call"])
def test_llama_factory_counts_the_tokens_of_earlier_calls(row, before):
    first = "".join(factory(step, 6 * step, 10_000 * step) for step in range(10, 301, 10)) if before else ""
    text = first + "".join(factory(step, 6 * (step - 300), 10_000 * step) for step in range(310, 501, 10))
    found = row(text)
    assert (found.tokens_per_second, found.step_time_s_mean) == (pytest.approx(10_000 / 6), 6.0)


def _state(order: list[int], rate: float = 0.5) -> str:
    lines = [{"loss": 5 - step / 100, "step": step, "epoch": step / 100} for step in order]
    end = {"train_runtime": 200.0, "train_steps_per_second": rate, "step": 100, "epoch": 1.0}
    return json.dumps({"global_step": 100, "max_steps": 100, "log_history": [*lines, end]})


@pytest.mark.parametrize("order", [[100, 50, 10], [10, 50, 100, 50], [10, 10, 50]])
def test_a_history_that_goes_back_has_no_first_and_last_loss(tmp_path: Path, order: list[int]) -> None:
    (tmp_path / "trainer_state.json").write_text(_state(order))
    [row] = parse_paths([tmp_path])
    assert row.loss_first is row.loss_last is None and "do not follow" in (row.outcome_reason or "")
    (tmp_path / "trainer_state.json").write_text(_state([10, 50, 100]))
    [row] = parse_paths([tmp_path])
    assert (row.loss_first, row.loss_last, row.outcome_reason) == (4.9, 4.0, None)


def test_more_steps_than_were_made_are_none(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(_state([10, 50, 100], rate=50.0))
    [row] = parse_paths([tmp_path])
    assert row.measured_steps is row.step_time_s_mean is None and "make 10000 steps" in (row.outcome_reason or "")


def test_a_state_that_knows_no_planned_steps_says_none(tmp_path: Path) -> None:
    for planned, said in (({}, "a checkpoint at step 0"), ({"max_steps": 40}, "a checkpoint at step 0 of 40")):
        path = tmp_path / "trainer_state.json"
        path.write_text(json.dumps({"global_step": 0, "log_history": [], **planned}))
        (row,) = parse_paths([path])
        assert row.outcome_reason == said


@pytest.mark.parametrize(
    "evaluated",
    [
        "{'loss': 0.97, 'precision': 0.72, 'recall': 0.77, 'f1': 0.75}",
        "{'loss': 0.97, 'accuracy': 0.8}",
        "{'loss': 0.97}",
    ],
)
def test_a_dictionary_without_a_mark_of_a_step_is_no_step(read, evaluated: str) -> None:
    assert [row.loss_last for row in read(f"Loss after 300 steps: 0.35\n{evaluated}\n").rows] == [None]
    line = "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 1.0}\n"
    assert [(row.loss_first, row.loss_last) for row in read(f"{line}{evaluated}\n").rows] == [(2.5, 2.5)]
