"""What says one amount in other words: the layer that wins takes its place, one layer that says both is refused."""

from __future__ import annotations

from typing import Any

import pytest

import hpc_llm
from hpc_llm.api.layers import laid
from hpc_llm.api.request import read_request
from hpc_llm.errors import RequestError

BASE = {"cluster": "local", "method": "z3", "model": "tiny"}


@pytest.mark.parametrize(
    ("below", "above"),
    [
        ({"epochs": 2.0}, {"steps": 5}),
        ({"steps": 5}, {"epochs": 2.0}),
        ({"set": ["workload.steps=5"]}, {"epochs": 2.0}),
        ({"epochs": 2.0}, {"set": ["steps=5"]}),
        ({"set": ["queries=9"]}, {"steps": 5}),
        ({"steps": 5}, {"set": ["queries=9"]}),
        ({"set": ["kept_global_batch=8"]}, {"gradient_accumulation_steps": 2}),
        ({"gradient_accumulation_steps": 2}, {"set": ["kept_global_batch=8"]}),
        ({"over": "sequence-length=4,8"}, {"sequence_length": 32}),
        ({"sequence_length": 32}, {"over": "sequence-length=4,8"}),
        ({"set": ["deepspeed.scheduler.type=WarmupLR"]}, {"set": ["lr_schedule=cosine"]}),
        ({"set": ["lr_ramp_steps=3"]}, {"set": ["deepspeed.scheduler.params.warmup_num_steps=4"]}),
        ({"set": ["validation_fraction=0.1"]}, {"data": ["validation=x.txt"]}),
    ],
)
def test_what_wins_takes_the_place_of_the_same_in_other_words(below: dict[str, Any], above: dict[str, Any]) -> None:
    kept = {"seed": 1, "set": ["precision=fp32"]}
    made = laid({**kept, **below, "set": [*kept["set"], *below.get("set", [])]}, above)  # type: ignore[misc]
    settings = made.pop("set")
    assert settings == ["precision=fp32", *above.get("set", [])]
    assert made == {"seed": 1} | {name: value for name, value in above.items() if name != "set"}


def test_one_layer_that_says_both_is_refused() -> None:
    with pytest.raises(RequestError, match="both steps and epochs are given: keep one of them"):
        hpc_llm.plan(BASE | {"steps": 5, "epochs": 2})
    with pytest.raises(RequestError, match="both steps and queries"):
        hpc_llm.plan(BASE | {"task": "infer", "method": "ddp", "steps": 5, "set": {"queries": 3}})
    with pytest.raises(RequestError, match="steps and epochs say one thing in two ways"):
        hpc_llm.plan(BASE | {"matrix": {"steps": [5], "epochs": [2]}})


def test_an_axis_gives_way_to_what_says_it_otherwise() -> None:
    study = BASE | {"matrix": {"epochs": [1, 2], "seed": [1, 2]}, "exclude": [{"epochs": 1, "seed": 1}]}
    runs = read_request(study, {"steps": 9}, beside={}, spelled="").study
    assert [(one.values["steps"], "epochs" in one.values, one.values["seed"]) for one in runs] == [
        (9, False, 1),
        (9, False, 2),
    ]
    small = read_request(study | {"smoke": {"steps": 10}}, {"smoke": True}, beside={}, spelled="").study
    assert all("epochs" not in one.values and one.values["steps"] == 10 for one in small)
