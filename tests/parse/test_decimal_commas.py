"""Numbers of programs that print in another country's way: none is better than one that is a thousand times another."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import test_formats

from hpc_llm.cli import run
from hpc_llm.parsing import Reading, Row
from hpc_llm.parsing.rules import floats, number, whole


@pytest.mark.parametrize(
    "text", [b"6,2556", b"1071,90", b"4.683,37", b"3.107,06", b"1,5", b"1,23,456", b",5", b"12,3456"]
)
def test_a_comma_that_parts_no_thousands_makes_no_number(text: bytes) -> None:
    assert number(text) is None and whole(text) is None
    assert floats(number, [b"1.5", text, b"6,344"]) == [1.5, 6344.0]


def test_thousands_are_read_as_before() -> None:
    assert (number(b"12,345.5"), number(b"-1,234,567"), whole(b"8,030,261,248")) == (12345.5, -1234567.0, 8030261248)
    assert floats(number, [b"1.5", b"12,345.5", b"nan"])[:2] == [1.5, 12345.5]


def test_losses_and_rates_with_decimal_commas_stay_empty(row: Callable[..., Row]) -> None:
    line = "[Step {}/6] Loss: 6,25{}6 | Global Tokens/s: 1071,90 | GPU Mem (GB): n/a | Peak Mem: n/a\n"
    found = row("".join(line.format(step, step) for step in range(1, 7)) + "Avg Global Tokens/s: 4.683,37\n")
    assert (found.loss_first, found.loss_last, found.tokens_per_second, found.measured_steps) == (None, None, None, 6)


TRAINER = "{{'loss': {}, 'grad_norm': 0.5, 'learning_rate': 4e-05, 'epoch': {}}}\n"


@pytest.mark.parametrize("loss", ["1,5", "1,523", "-1,5", "'1,5'", "1,5e-01"])
@pytest.mark.parametrize("blank", [" ", ""])
def test_a_comma_with_a_digit_behind_it_ends_no_number_of_a_dictionary(
    read: Callable[..., Reading], loss: str, blank: str
) -> None:
    text = "".join(TRAINER.format(loss, epoch / 10) for epoch in range(1, 200)).replace(", '", f",{blank}'")
    reading = read(text, verbose=True)
    assert [(row.loss_first, row.loss_last) for row in reading.rows] == [(None, None)]


def test_a_loss_of_three_decimals_is_not_taken_for_thousands(row: Callable[..., Row]) -> None:
    line = " iteration {:8}/      40 | elapsed time per iteration (ms): 1,000.5 | learning rate: 1.5E-04 | global batch size: 8 | lm loss: {} |\n"
    found = row("".join(line.format(step, "6,255E+00") for step in range(1, 41)))
    assert (found.loss_first, found.step_time_s_mean) == (None, 1.0005)
    assert row("".join(line.format(step, "6.255E+00") for step in range(1, 41))).loss_first == 6.255


def test_numbers_left_empty_for_their_commas_are_told(read: Callable[..., Reading]) -> None:
    line = "[Step {}/6] Loss: 6,25{}6 | Global Tokens/s: 1,071 | GPU Mem (GB): n/a | Peak Mem: n/a\n"
    text = "".join(line.format(step, step) for step in range(1, 7))
    reading = read(text, verbose=True)
    assert (reading.unparsed.commas, reading.unparsed.count) == (6, 0)
    assert reading.unparsed.comma_example.startswith("[Step 1/6] Loss: 6,2516")
    assert read(text.replace("6,", "6."), verbose=True).unparsed.commas == 0
    assert read(TRAINER.format("1,5", 0.1), verbose=True).unparsed.commas == 1


def test_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text(TRAINER.format("1,5", 0.1) + TRAINER.format("1,4", 0.2))
    assert run(["parse", str(log), "--verbose"]) == 0
    assert "left empty: 2 lines hold numbers with a decimal comma, such as:" in capsys.readouterr().err


@pytest.mark.parametrize("count", [3, 4000])
def test_a_point_beside_decimal_commas_may_part_thousands(row: Callable[..., Row], count: int) -> None:
    line = (
        "[titan] 2025-01-01 00:00:10,000 - root - INFO - step:  {}  loss:  8,0000  grad_norm:  1,2  memory:  1,00GiB(2,00%)"
        "  tps: 3.000  tflops: 0,20  mfu: 0,02%\n"
    )
    found = row("".join(line.format(step) for step in range(1, count + 1)))
    assert (found.tokens_per_second_per_gpu, found.loss_last, found.format) == (None, None, "torchtitan")
    points = row("".join(line.format(step).replace(",", ".") for step in range(1, count + 1)))
    assert points.tokens_per_second_per_gpu == 3.0


TEXTS = {
    name: value
    for name, value in vars(test_formats).items()
    if name.isupper() and isinstance(value, str) and "\n" in value
}
FIGURES = (
    "loss_first", "loss_last", "eval_loss", "step_time_s_mean", "step_time_s_p50", "tokens_per_second", "tokens_per_second_per_gpu",
    "samples_per_second", "mfu", "peak_allocated_bytes", "peak_reserved_bytes", "elapsed_s", "measured_steps", "grad_norm",
)  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_no_format_takes_another_number_for_one_with_a_decimal_comma(read: Callable[..., Reading], name: str) -> None:
    """Each figure is what it is with a point, or none."""
    right = [[getattr(row, one, None) for one in FIGURES] for row in read(TEXTS[name]).rows]
    commas = re.sub(r"(?<=\d)\.(?=\d)", ",", TEXTS[name])
    rows = read(commas).rows
    taken = [[getattr(row, one, None) for one in FIGURES] for row in rows]
    known = {(one, value) for row in right for one, value in zip(FIGURES, row, strict=True)}
    wrong = [
        (one, value)
        for row in taken
        for one, value in zip(FIGURES, row, strict=True)
        if value is not None and (one, value) not in known
    ]
    assert wrong == [], commas


def test_a_line_of_which_one_number_has_decimals_behind_a_comma_gives_no_other_either(row: Callable[..., Row]) -> None:
    nemo = (
        "Training epoch 0, iteration {0}/99 | lr: 1,2e-06 | global_batch_size: 512 | global_step: {0} | reduced_train_loss: 10,980"
        " | train_step_timing in s: 6,210\n"
    )
    bar = "\rEpoch 0:  {0}%|#    | {0}/100 [00:05<00:10,  1,70it/s, v_num=3, train_loss=2,900]"
    for line in (nemo, bar):
        found = row("".join(map(line.format, range(1, 20))) + "\n")
        assert (found.loss_first, found.loss_last, found.step_time_s_mean) == (None, None, None)
        right = row(
            "".join(map(line.format, range(1, 20)))
            .replace(",2e", ".2e")
            .replace(",9", ".9")
            .replace(",7", ".7")
            .replace(",2", ".2")
            + "\n"
        )
        assert right.loss_last in (10.98, 2.9)


NEMO = "Training epoch 0, iteration {n}/99 | lr: 1.2e-06 | global_batch_size: 512 | global_step: {n} | reduced_train_loss: 11.{n:03} | train_step_timing in s: 6.{n:03}\n"
BAR = "Epoch 0:  45%|##| {n}/100 [00:10<00:12,  1.70it/s, v_num=3, {loss}={x}]\n"
WHOLE_LAST = TRAINER.format("'1.9'", "'0.1'") + TRAINER.format("'1.8'", "'0.2'") + TRAINER.format("'1'", "'1'")
OTHER_COUNTRIES = {
    "NeMo": ("".join(NEMO.format(n=n) for n in range(20)), (11.0, 11.019)),
    "NeMo's bar": ("".join(BAR.format(n=n, loss="reduced_train_loss", x=f"2.{n:03}") for n in range(10, 40)), (2.01, 2.039)),
    "Lightning": ("".join(BAR.format(n=n, loss="train_loss", x=f"2.{n:03}") for n in range(10, 40)), (2.01, 2.039)),
    "Trainer": (WHOLE_LAST, (1.9, 1.0)),
    "Megatron": (
        "".join(
            f" iteration {n:8}/      40 | elapsed time per iteration (ms): 900.5 | learning rate: 1.5E-04 | global batch size: 8 | lm loss: {x} |\n"
            for n, x in ((1, "6.25"), (2, "6.1"), (3, "6"))
        ),
        (6.25, 6.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", OTHER_COUNTRIES)
def test_no_loss_is_cut_at_its_comma_nor_a_thousand_times_another(program: str, row: Callable[..., Row]) -> None:
    """Where one is a whole number, that is read, but not taken for the first or the last of those that are not."""
    text, losses = OTHER_COUNTRIES[program]
    with_points = row(text)
    assert (with_points.loss_first, with_points.loss_last) == losses
    found = row(re.sub(r"(?<=\d)\.(?=\d)", ",", text))
    assert (found.loss_first, found.loss_last, found.step_time_s_mean, found.learning_rate) == (None,) * 4
    assert found.format == with_points.format and found.outcome_reason == with_points.outcome_reason
