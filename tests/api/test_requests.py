"""What a program may ask for: every way to say it that YAML has, and one sentence for what cannot be."""

from __future__ import annotations

import enum
import types
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import hpc_llm
from hpc_llm.api.experiments import Options
from hpc_llm.errors import HpcLlmError, PlanError, RequestError
from hpc_llm.planning.experiment import Experiment

BASE: dict[str, Any] = {"cluster": "local", "method": "z3", "model": "tiny"}


class Depth(enum.IntEnum):
    FEW = 7


def planned(experiment: Any = None, **options: Any) -> dict[str, Any]:
    """The only plan of a request, as dotted path -> value."""
    [one] = hpc_llm.plan(experiment, **options)
    return one.plan.flat()


def test_options_are_the_fields_of_an_experiment() -> None:
    assert set(Options.__annotations__) == {field.name for field in fields(Experiment)} | {
        "smoke",
        "max_parallel",
        "only",
    }


@pytest.mark.parametrize(
    ("options", "as_in_yaml"),
    [
        ({"steps": np.int64(7)}, "steps: 7"),
        ({"steps": np.array(7)}, "steps: 7"),
        ({"steps": Depth.FEW}, "steps: 7"),
        ({"seed": np.uint8(7)}, "seed: 7"),
        ({"set": {"optimizer.lr": np.float32(0.25)}}, "set: {optimizer.lr: 0.25}"),
        ({"set": {"optimizer": {"lr": 0.25}}}, "set: {optimizer.lr: 0.25}"),
        ({"set": types.MappingProxyType({"optimizer": {"lr": 0.25}})}, "set: {optimizer.lr: 0.25}"),
        ({"set": ["optimizer.lr=0.25"]}, "set: {optimizer.lr: 0.25}"),
        ({"set": ("optimizer.lr=0.25",)}, "set: {optimizer.lr: 0.25}"),
        ({"set": "optimizer.lr=0.25"}, "set: {optimizer.lr: 0.25}"),
        ({"set": {"env": {"PLACE": Path("/x")}}}, "set: {env.PLACE: /x}"),
        ({"set": {"env.PLACE": "a: b: [c"}}, "set: {env: {PLACE: 'a: b: [c'}}"),
        ({"set": {"job": {"env": {"PLACE": "1"}}}}, "set: ['env.PLACE=1']"),
        ({"set": {"job.env": {"PLACE": "null"}}}, "set: ['job.env.PLACE=null']"),
        ({"set": {"job": {"env.PLACE": "1e9"}}}, "set: {job: {env: {PLACE: '1e9'}}}"),
        ({"model": Path("llama2-7b")}, "model: llama2-7b"),
        ({"method": (Path("z2"),)}, "method: z2"),
        ({"steps": None, "data": None, "set": None}, "{}"),
        ({"data": (), "set": {}, "sbatch": []}, "{}"),
    ],
    ids=repr,
)
def test_an_option_is_taken_in_every_form_that_says_it(options: dict[str, Any], as_in_yaml: str) -> None:
    assert planned(**{**BASE, **options}) == planned({**BASE, **yaml.safe_load(as_in_yaml)})


def test_text_that_yaml_could_not_read_is_text() -> None:
    assert planned(**BASE, set={"env.PLACE": "a: b: [c"})["env"]["PLACE"] == "a: b: [c"
    with pytest.raises(RequestError, match="optimizer"):
        hpc_llm.plan(**BASE, set={"optimizer.lr": "a: b: [c"})


def test_file_mapping_and_options_say_the_same(own_folder: Path) -> None:
    Path("experiment.yaml").write_text(
        "cluster: local\nmethod: z3\nmodel: tiny\nmicro-batch-size: 4\nset: {optimizer.lr: 0.5}\n"
    )
    mapping = {**BASE, "micro-batch-size": 4, "set": {"optimizer": {"lr": 0.5}}}
    said = planned(**BASE, micro_batch_size=4, set={"optimizer.lr": 0.5})
    assert planned(Path("experiment.yaml")) == planned("experiment.yaml") == planned(mapping) == said


def test_options_win_over_the_experiment_and_say_where_they_come_from() -> None:
    [one] = hpc_llm.plan({**BASE, "steps": 5, "seed": 3}, steps=9)
    flat = one.plan.flat()
    assert (flat["steps"], flat["seed"]) == (9, 3)
    assert (one.origins["steps"], one.origins["seed"]) == ("steps", "experiment")


def test_the_mapping_of_the_caller_is_left_as_it_was() -> None:
    mapping = {**BASE, "set": {"optimizer.lr": 0.5}, "data": []}
    before = repr(mapping)
    hpc_llm.plan(mapping, set={"optimizer.weight_decay": 0.1})
    assert repr(mapping) == before


@pytest.mark.parametrize(
    ("experiment", "options", "said"),
    [
        (None, {}, "no cluster is given"),
        (None, {**BASE, "stesp": 5}, "did you mean 'steps'"),
        (None, {**BASE, "steps": "5"}, "a whole number is needed"),
        (None, {**BASE, "steps": np.float64(5)}, "a whole number is needed"),
        (None, {**BASE, "steps": np.bool_(True)}, "a whole number is needed"),
        (None, {**BASE, "steps": 0}, "at least 1"),
        (None, {**BASE, "method": {"z2", "z3"}}, "method is of type set"),
        (None, {**BASE, "data": iter(["x"])}, "data is of type list_iterator"),
        (None, {**BASE, "data": "not-there.txt"}, "there is no such file"),
        (None, {**BASE, "model": b"tiny"}, "model is of type bytes"),
        (None, {**BASE, "set": {"optimizer.lr": 1j}}, "set.optimizer.lr is of type complex"),
        (None, {**BASE, "set": {"env": {(1, 2): "x"}}}, "a key of type tuple"),
        (None, {**BASE, "set": {"optimizer.lr": float("nan")}}, "a number is needed"),
        (None, {**BASE, "sbatch": {"exclude": ["n1", "n2"]}}, "write it as text"),
        (None, {**BASE, "name": 1.10}, "in quotes"),
        (5, {}, "of type int"),
        ([BASE], {}, "of type list"),
        ("", {}, "an empty name"),
        ("not-there.yaml", {}, "not-there.yaml: there is no such file"),
        ({**BASE, "Steps": 5}, {}, "did you mean 'steps'"),
        ({**BASE, "micro-batch-size": 2, "micro_batch_size": 3}, {}, "comes twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_one_sentence(
    experiment: Any, options: dict[str, Any], said: str, own_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        hpc_llm.submit(experiment, **options)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert list(own_folder.iterdir()) == []


@pytest.mark.parametrize("where", ["option", "mapping", "wrong place"])
def test_a_secret_is_refused_and_not_repeated(where: str) -> None:
    secret = "hf_" + "abcdEFGH" * 4 + "xy"
    with pytest.raises(RequestError) as caught:
        if where == "option":
            hpc_llm.plan(**BASE, set={"env": {"PLACE": secret}})
        elif where == "mapping":
            hpc_llm.plan({**BASE, "set": {"env": {"PLACE": secret}}})
        else:
            hpc_llm.plan({**BASE, "steps": secret})
    assert "looks like a secret" in str(caught.value) and secret not in str(caught.value)


def test_errors_are_those_of_the_package() -> None:
    with pytest.raises(PlanError, match="gp1d") as caught:
        hpc_llm.plan(cluster="taiwania2", method="z3", account="ACD1", partition="gp1d", time="30-00:00:00")
    assert isinstance(caught.value, hpc_llm.errors.HpcLlmError) and HpcLlmError is hpc_llm.errors.HpcLlmError


def test_what_is_to_be_known_is_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(hpc_llm.errors.Notice, match="bf16"):
        hpc_llm.plan(cluster="taiwania2", method="z3", account="ACD1")
    assert capfd.readouterr() == ("", "")


def test_a_sweep_over_clusters_is_a_script_each() -> None:
    asked: dict[str, Any] = {
        "cluster": ["delta", "mi210"],
        "method": "z2,z3",
        "account": "abcd-delta-gpu",
        "run_id": "x",
    }
    assert len(hpc_llm.render(**asked)) == len(hpc_llm.prepare(**asked)) == 2
    assert len({script.text for script in hpc_llm.render(**asked)}) == 2


def test_runs_live_where_the_environment_says(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_LLM_LOGS", str(own_folder / "elsewhere"))
    assert str(own_folder / "elsewhere") in hpc_llm.render(**BASE)[0].text
    assert str(own_folder / "named") in hpc_llm.render(**BASE, logs="named")[0].text
    assert str(own_folder.parent / "home" / "own") in hpc_llm.render(**BASE, logs="~/own")[0].text
