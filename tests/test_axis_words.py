"""What a study's file says in other words is answered so that it can be pasted where it stood."""

from __future__ import annotations

from typing import Any

import pytest

from hpc_llm.api.experiments import prepare
from hpc_llm.errors import RequestError
from hpc_llm.text.yaml_text import parse_yaml

BASE = {"cluster": "local", "model": "tiny", "method": "z3"}


def refused(**said: Any) -> str:
    with pytest.raises(RequestError) as caught:
        prepare({**BASE, **said})
    return str(caught.value)


def runs(**said: Any) -> int:
    return sum(len(batch.planned) for batch in prepare({**BASE, **said}))


@pytest.mark.parametrize(
    ("axis", "way"),
    [
        ("lr: [1e-4, 1e-3]", "set.optimizer.lr: [1e-4]"),
        ("lr: 1e-4", "set.optimizer.lr: [1e-4]"),
        ("optimizer.lr: [1e-4]", "set.optimizer.lr: [0.0001]"),
        ("optimizer.betas: [[0.9, 0.95]]", "set.optimizer.betas: [[0.9, 0.95]]"),
        ("precision: [fp32]", "set.precision: [bf16]"),
        ("lr_ramp_steps: [2, 3]", "set.lr_ramp_steps: [10]"),
        ("batch_size: [1, 2]", "micro-batch-size: [N]"),
        ("qos: [high]", "sbatch: [{qos: VALUE}]"),
        ("set: {optimizer.lr: 1e-4}", "as in set.optimizer.lr: [0.0001]"),
        ("set: {optimizer: {lr: 1e-4, eps: 1e-8}}", "as in set.optimizer.lr: [0.0001], set.optimizer.eps: [1e-08]"),
        ("seed: 3", "as in seed: [3]"),
    ],
)
def test_an_axis_is_said_as_one(axis: str, way: str) -> None:
    said = refused(matrix=parse_yaml(axis, "x"))
    assert said.endswith(f"{way}.")
    pasted = way.removeprefix("as in ").replace("N]", "2]").replace(", set.", "\nset.")
    assert runs(matrix=parse_yaml(pasted, "x")) == 1


def test_an_axis_without_values_asks_for_some() -> None:
    nothing: list[Any] = [[], {}, {"a": 1}, None]
    for values in nothing:
        assert refused(matrix={"seed": values}).endswith("matrix: seed needs a list of values.")
    assert "did you mean 'cluster'" in refused(matrix={"clutser": "x"})


@pytest.mark.parametrize("place", ["runs", "include"])
def test_a_run_knows_the_keys_that_are_no_options(place: str) -> None:
    matrix = {"matrix": {"seed": [1, 2]}} if place == "include" else {}
    for wrong, right in (("expects", "expect"), ("refrence", "reference"), ("smoek", "smoke")):
        said = refused(**matrix, **{place: [{"name": "a", wrong: "x"}]})
        assert f"{place} 1 (a): there is no option '{wrong}': did you mean '{right}'?" in said
    assert ", smoke, " in said and ", expect, " in said and ", reference, " in said


def test_a_field_of_the_plan_is_told_with_set() -> None:
    way = "there is no option 'optimizer.lr': it is said as set: {optimizer.lr: 0.0001}."
    assert refused(**{"optimizer.lr": 1e-4}).endswith(way)
    assert refused(runs=[{"optimizer.lr": 1e-4}]).endswith(way)
    assert runs(runs=[{"set": {"optimizer.lr": 1e-4}}]) == 1
    assert "did you mean 'max_parallel'" in refused(max_paralel=2)
    assert "it is said as" not in refused(**{"optimizer.lrr": 1e-4})
