"""Whatever the input, diagnosing it answers."""

from __future__ import annotations

import io
import random
from functools import cache

from diagnose_accuracy import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpc_llm.diagnosis import CAUSES, diagnose_stream

IDS = {cause.id for cause in CAUSES}


@cache
def corpus() -> list[bytes]:
    return [line for sample in samples() for line in sample.text.encode().splitlines(keepends=True)]


def answers(text: bytes) -> None:
    found = diagnose_stream(io.BytesIO(text))
    assert found.cause.id in IDS and 0.0 <= found.confidence <= 1.0
    assert all(e.line is None or e.line >= 1 for e in found.evidence)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=4000))
def test_random_bytes(text: bytes) -> None:
    answers(text)


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=0, max_value=2**32))
def test_shuffled_and_cut_lines(seed: int) -> None:
    dice = random.Random(seed)
    lines = dice.choices(corpus(), k=30)
    answers(b"".join(line[: dice.randrange(len(line) + 1)] if dice.random() < 0.4 else line for line in lines))


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=2**32))
def test_flipped_bytes(seed: int) -> None:
    dice = random.Random(seed)
    text = bytearray(b"".join(dice.choices(corpus(), k=30)))
    for _ in range(40):
        text[dice.randrange(len(text))] = dice.randrange(256)
    answers(bytes(text))
