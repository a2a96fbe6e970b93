"""`estimate` of all methods or clusters where no run can be: a wrong request, and no empty table."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hpc_llm
from hpc_llm.api import estimating
from hpc_llm.cli import run
from hpc_llm.errors import RequestError


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cluster=delta", "--method=all", "--model=llama-7b"), "there is no model 'llama-7b'"),
        (("--cluster=all", "--method=z4", "--model=tiny"), "there is no method 'z4'"),
        (("--cluster=delta", "--method=all", "--model=tiny", "--partition=nosuch"), "nosuch"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_one_reason_is_told_once(
    words: tuple[str, ...], reason: str, form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", *words, *form]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count(reason) == 1


def test_several_reasons_are_each_told_once() -> None:
    [one] = hpc_llm.estimate(cluster="delta", method="z3", model="tiny")
    refused = [replace(one, method=name, refused=why) for name, why in (("z1", "no"), ("z2", "never"), ("z3", "no"))]
    with pytest.raises(RequestError) as caught:
        estimating._refuse_if_none_can_be(refused)
    told = "none of these 3 runs can be. Not delta z1, delta z3: no. Not delta z2: never."
    assert str(caught.value) == told


def test_what_can_be_is_ranked_beside_what_cannot() -> None:
    found = hpc_llm.estimate(cluster="taiwania2", method="all", model="llama2-7b")
    assert {one.refused is None for one in found} == {True, False}
