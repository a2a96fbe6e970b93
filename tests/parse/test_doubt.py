"""A setting that is printed with two values before the first step is nobody's, and neither is what would follow from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.parsing import Reading
from hpc_llm.parsing.doubt import Doubt

HEAD = "-------- arguments --------\n  global_batch_size ..... 16\n  micro_batch_size ..... 2\n  seq_length ..... {}\n  world_size ..... 8\n"
AGAIN = "  seq_length ..... {}\n"
STEPS = "".join(
    f" iteration {i}/ 6 | consumed samples: {16 * i} | elapsed time per iteration (ms): 1000.0 | learning rate: 1.0E-4 |"
    " global batch size: 16 | lm loss: 5.0E+00 |\n"
    for i in range(1, 7)
)
Read = Callable[..., Reading]


def test_two_lengths_leave_the_length_and_the_rate_empty(read: Read) -> None:
    reading = read(HEAD.format(2048) + AGAIN.format(4096) + STEPS)
    [row] = reading.rows
    assert (row.sequence_length, row.tokens_per_second, row.tokens_per_second_per_gpu) == (None, None, None)
    assert (row.step_time_s_mean, row.global_batch_size, row.loss_last) == (1.0, 16, 5.0)
    [said] = reading.left_empty
    assert "ambiguous sequence_length: 2048 and 4096 are printed before the first step" in said


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (HEAD.format(2048) + AGAIN.format(2048) + STEPS, 2048),
        (HEAD.format(2048) + "overriding arguments by those of the checkpoint:\n" + AGAIN.format(4096) + STEPS, 4096),
        (HEAD.format(2048) + "Traceback (most recent call last):\nKeyError: 'x'\n" + HEAD.format(4096) + STEPS, 4096),
        (HEAD.format(2048) + AGAIN.format(4096) + "srun: error: n1: task 0: exited\n" + HEAD.format(1024) + STEPS, 1024),
        (HEAD.format(2048) + STEPS + HEAD.format(4096) + STEPS, 2048),
        (HEAD.format(2048) + AGAIN.format(4096) + STEPS.replace("| lm loss", "| actual seqlen: 4096 | lm loss"), 4096),
    ],
    ids=["said twice", "overrides", "started anew", "started anew behind two", "another run", "the steps say it"],
)  # fmt: skip
def test_a_file_that_decides_is_taken_at_its_word(read: Read, text: str, length: int) -> None:
    reading = read(text)
    assert reading.rows[0].sequence_length == length and reading.rows[0].tokens_per_second == 16 * length
    assert not [said for said in reading.left_empty if "ambiguous" in said]


def test_a_micro_batch_of_two_dumps_of_one_program(read: Read) -> None:
    dump = "-------- arguments --------\n  train_micro_batch_size_per_gpu  {}......updated\n  seq_length ..... 2048\n"
    [row] = (reading := read(dump.format(4) + dump.format(8) + STEPS)).rows
    assert (row.micro_batch_size, row.tokens_per_second) == (None, 16 * 2048.0)
    assert "ambiguous micro_batch_size: 4 and 8" in reading.left_empty[0]


def test_three_values_are_all_told(read: Read) -> None:
    reading = read(HEAD.format(512) + AGAIN.format(1024) + AGAIN.format(2048) + STEPS)
    assert "512 and 1024 and 2048" in reading.left_empty[0]


def test_pieces_of_a_log_are_in_doubt_together() -> None:
    mine, theirs = Doubt(said={(False, "sequence_length"): 2048}), Doubt(said={(False, "sequence_length"): 4096})
    known: tuple[dict, dict] = ({"sequence_length": 2048}, {"sequence_length": 2048})
    later: tuple[dict, dict] = ({"sequence_length": 4096}, {})
    mine.merge(theirs, known, later, has_steps=True)
    assert known[0] == {"sequence_length": 2048}
    mine.merge(theirs, known, later, has_steps=False)
    assert known == ({}, {}) and later == ({}, {}) and list(mine.told({}))
