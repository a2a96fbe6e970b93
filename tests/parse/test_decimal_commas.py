"""Numbers of programs that print in another country's way: none is better than one that is a thousand times another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Row
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
