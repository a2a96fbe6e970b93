"""A program whose arguments its parser refused, started again and again into one file: the last refusal is how it ended."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hpc_llm.parsing import parse_stream

USAGE = "usage: train.py [-h] [--model_name_or_path MODEL_NAME_OR_PATH]\n                [--use_v2 [USE_V2]] [--config_name CONFIG_NAME]\n"
FIRST = USAGE + "train.py: error: argument --kind: invalid choice: 'p-tuning' (choose from 'none', 'freeze')\n"
SECOND = USAGE + "train.py: error: argument --fp16: Truthy value expected: got s but expected one of yes/no (case insensitive).\n"  # fmt: skip
CLICK = "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: {}\n"


@pytest.mark.parametrize(
    ("text", "reason", "before"),
    [
        (FIRST + SECOND * 5, "--fp16", 5),
        (SECOND * 2 + FIRST, "--kind", 2),
        ("nohup: ignoring input\n".join((FIRST, SECOND)), "--fp16", 1),
        ("\n\n".join((FIRST, SECOND)), "--fp16", 1),
    ],
)
def test_the_last_refusal_is_told_and_the_others_are_named(text: str, reason: str, before: int, diagnose: Any) -> None:
    (row,) = parse_stream("x", io.BytesIO(text.encode())).rows
    assert (row.outcome, row.cause) == ("FAILED", "config_error") and reason in str(row.outcome_reason)
    found = diagnose(text)
    assert found.cause.id == "config_error" and reason in found.evidence[0].text
    assert found.evidence[0].line == text.count("\n") and found.several.count("config_error") == before


def test_another_kind_of_parser_is_known_too(diagnose: Any) -> None:
    text = CLICK.format("Invalid value for '--lr': 'x' is not a valid float.") + CLICK.format("No such option: --kind")
    assert "--kind" in diagnose(text).evidence[0].text


def test_ranks_that_refuse_the_same_are_of_one_attempt(diagnose: Any) -> None:
    assert diagnose(SECOND * 4).several == ""


def test_another_program_that_refuses_its_arguments_is_no_further_attempt(diagnose: Any) -> None:
    other = SECOND.replace("train.py", "evaluate.py")
    assert diagnose(FIRST + other).several == "" and "--kind" in diagnose(FIRST + other).evidence[0].text
