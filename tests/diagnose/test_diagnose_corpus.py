"""The labelled corpus: precision and recall, and that the causes are whole."""

from __future__ import annotations

import io
from collections import Counter
from functools import cache

import pytest
from diagnose_accuracy import PARTS, Answer, answers, overall, samples, scores

from hpc_llm.causes.cause import Sign
from hpc_llm.diagnosis import CAUSES
from hpc_llm.parsing import parse_stream
from hpc_llm.records.run import Outcome
from hpc_llm.text.sources import clean

REQUIRED = 0.95
VARIANTS = 8
IDS = [cause.id for cause in CAUSES]


@cache
def given(part: str) -> list[Answer]:
    return answers((part,))


@pytest.mark.parametrize("part", PARTS)
def test_failures_are_named_rightly(part: str) -> None:
    score = overall(given(part))
    assert score.precision >= REQUIRED and score.recall >= REQUIRED


@pytest.mark.parametrize("cause", IDS)
def test_each_cause_is_named_rightly(cause: str) -> None:
    score = scores([*given("tuning"), *given("held_out")])[cause]
    wrong = [a for a in (*given("tuning"), *given("held_out")) if a.cause != a.sample.cause]
    assert score.precision >= REQUIRED and score.recall >= REQUIRED, wrong


@pytest.mark.parametrize("part", PARTS)
def test_parse_lists_each_failure_as_what_diagnose_says(part: str) -> None:
    outcomes = {cause.id: {cause.outcome.value} for cause in CAUSES}
    outcomes["unknown"].add(Outcome.FAILED.value)  # that it failed may show, and not of what
    outcomes["none"].add(Outcome.UNKNOWN.value)  # that nothing failed does not mean that it came to its end
    outcomes["host_oom"].add(Outcome.FAILED.value)  # it was killed, and not all that is killed is so for its memory
    outcomes["device_oom"].add(Outcome.FAILED.value)  # a library did not start, which may have other reasons
    for answer in given(part):
        last = parse_stream("x", io.BytesIO(answer.sample.text.encode())).rows[-1]
        assert last.outcome in outcomes[answer.cause], answer


def test_every_cause_has_enough_variants() -> None:
    counts = Counter(sample.cause for sample in samples())
    assert set(counts) == set(IDS)
    assert min(counts.values()) >= VARIANTS, counts


def test_every_sign_is_in_the_corpus_with_one_of_its_literals() -> None:
    texts = [clean(sample.text.encode()) for sample in samples()]
    unused = []
    for cause in CAUSES:
        for sign in cause.signs:
            matching = [text for text in texts if sign.pattern.search(text)]
            if not matching:
                unused.append((cause.id, sign.source))
            assert all(_has_literal(sign, text) for text in matching), (cause.id, sign.source)
    assert not unused


def _has_literal(sign: Sign, text: bytes) -> bool:
    lines = [text[text.rfind(b"\n", 0, m.start()) + 1 : text.find(b"\n", m.end())] for m in sign.pattern.finditer(text)]
    return any(literal in line for line in lines for literal in sign.literals)


def test_causes_are_complete_and_agree() -> None:
    assert len(set(IDS)) == len(IDS)
    for cause in CAUSES:
        assert cause.meaning.endswith(".") and cause.remedy and cause.title
        assert cause.explains <= set(IDS) - {cause.id}
    assert not any(cause.retry for cause in CAUSES if cause.id in ("config_error", "device_oom", "module_missing"))
