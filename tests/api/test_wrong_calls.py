"""A call that cannot be meant so is answered with one sentence of the package's own, whatever the function."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.api.request import BESIDE, NAMES
from hpc_llm.errors import RequestError

VALUES = [None, 3, 3.5, True, "nope", "", [], ["x"], [3], [None], {}, {"a": 1}, object(), b"x"]
FUNCTIONS = {name: found for name in hpc_llm.__all__ if inspect.isfunction(found := getattr(hpc_llm, name))}


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def answer(function: Any, **given: Any) -> str | None:
    """What is said of it; None where it is done. Whatever else is raised fails the test."""
    try:
        made = function(**given)
        if inspect.isgenerator(made):
            next(made, None)
    except RequestError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"submit", "fetch"}))
def test_every_argument_of_every_function_takes_nothing_of_a_wrong_kind_in_silence(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    needed = {one.name: "x" for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD}
    for parameter in (one for one in parameters if one.kind is not one.VAR_KEYWORD):
        for value in VALUES:
            answer(FUNCTIONS[name], **needed | {parameter.name: value})
    assert answer(FUNCTIONS[name], **needed, colour=3)
    if needed:
        assert f"{name} needs {' and '.join(needed)}" in str(answer(FUNCTIONS[name]))


@pytest.mark.parametrize("option", [*NAMES, *BESIDE, "logs", "templates", "run_id"])
def test_every_option_of_a_plan_takes_nothing_of_a_wrong_kind_in_silence(option: str) -> None:
    asked = {"cluster": "local", "method": "z3", "model": "tiny"}
    for value in VALUES:
        answer(hpc_llm.plan, **asked | {option: value})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hpc_llm.clean(checkpoints=True), "there is no argument 'checkpoints' in clean: say remove=['checkpoints']."),
        (lambda: hpc_llm.clean(remove="checkpoints"), "clean: remove is 'checkpoints': a list of texts is needed."),
        (lambda: hpc_llm.status(log="x"), "there is no argument 'log' in status: did you mean 'logs'? Valid: logs, runs."),
        (lambda: hpc_llm.status("a", "logs"), "status got 2 arguments without a name and takes 1 so: name the others, as in logs=…."),
        (lambda: hpc_llm.method(None), "method: name is of type NoneType: text is needed."),
        (lambda: hpc_llm.cluster(3), "cluster: name is 3: text is needed."),
        (lambda: hpc_llm.plan(matrix={"steps": [1]}), "'matrix' is no option: say it in the experiment, a file or a mapping that is the first argument."),
        (lambda: hpc_llm.fetch("tiny"), "fetch needs to: call it as fetch(to=…)."),
        (lambda: hpc_llm.wait([], timeout="1m"), "wait: timeout is '1m': a number is needed."),
        (lambda: hpc_llm.parse("x", logs=["a"]), "parse: logs is of type list: the path of a file or folder, as text or a Path, is needed."),
        (lambda: hpc_llm.plan(method="z3", set=3), "the request: set holds 3. Give keys with values, as in {optimizer.lr: 1e-4}."),
        (lambda: hpc_llm.plan(method="z3", steps=[1]), "the request: steps is [1], a whole number is needed."),
        (lambda: hpc_llm.submit(method="z3", wait=True), "this function has no option 'wait': wait(submit(...)) follows the runs to their end."),
        (lambda: hpc_llm.submit(method="z3", test_only=True), "this function has no option 'test_only': render(...) checks everything and submits nothing."),
        (lambda: hpc_llm.plan(method="z3", logs=5), "logs is 5: the path of a folder, as text or a Path, is needed."),
        (lambda: hpc_llm.plan(method="z3", templates=[]), "templates is of type list: the path of a folder, as text or a Path, is needed."),
        (lambda: hpc_llm.plan(method="z3", run_id=5), "run_id is 5: text is needed."),
        (lambda: hpc_llm.report(".", output=__file__), f"{__file__} is a file: give a folder, which is made if it is not there."),
        (lambda: hpc_llm.status("a", runs="b"), "status got runs twice, once without its name. Keep one of them."),
    ],
)  # fmt: skip
def test_the_sentence_says_what_is_needed(call: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        call()
    assert str(caught.value) == said


def test_a_folder_of_a_model_may_be_a_path(tmp_path: Path) -> None:
    assert "there is no model" in str(answer(hpc_llm.model, name=tmp_path / "none"))


@pytest.mark.parametrize("function", ["parse", "diagnose", "status", "report"])
@pytest.mark.parametrize("text", ["a\0b", "a" * 100_000, "x/" + "a" * 300, "/a" * 3000, ["a\0b"]])
def test_what_no_file_system_takes_as_a_path_is_told(function: str, text: str | list[str]) -> None:
    with pytest.raises(RequestError, match=r"zero byte|letters long"):
        getattr(hpc_llm, function)(text)


@pytest.mark.parametrize(
    "function", ["parse", "diagnose", "status", "cancel", "clean", "logs", "report", "compared", "calibrate"]
)
@pytest.mark.parametrize(
    "number", [10**400, -(10**300), 10**5000, [10**400]], ids=["long", "negative", "longest", "list"]
)
def test_a_number_that_is_too_long_for_a_run_is_told(function: str, number: int | list[int]) -> None:
    with pytest.raises(RequestError, match="more than 255 digits"):
        getattr(hpc_llm, function)(number)


@pytest.mark.parametrize(
    "letter", ["\0", "\x1b[2J", "\x07", "\x7f", "\x9b31m", "\u202e", "\ud800", "\udc80", "\r", "\x1f"]
)
def test_what_steers_a_terminal_is_shown_in_an_error_and_not_done(letter: str) -> None:
    name = f"a{letter}b"
    for function in (hpc_llm.cluster, hpc_llm.method, hpc_llm.model, hpc_llm.status, hpc_llm.parse, hpc_llm.compared):
        with pytest.raises(RequestError) as caught:
            function(name)
        assert str(caught.value).isprintable(), ascii(str(caught.value))
    with pytest.raises(RequestError) as caught:
        hpc_llm.cluster("a\u3000é\u00a0b")
    assert "a\u3000é\u00a0b" in str(caught.value)


def test_a_setting_that_holds_itself_is_told() -> None:
    cycle: dict[str, object] = {}
    cycle["a"] = cycle
    rows: list[object] = []
    rows.append(rows)
    for settings in (cycle, {"deepspeed": {"x": rows}}):
        with pytest.raises(RequestError, match="set holds itself"):
            hpc_llm.plan(cluster="local", method="ddp", model="tiny", set=settings)


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "has nothing behind it"), (1e-5, "is read as the number 1e-05. Put it in quotes"), (6.10, "is read as the number 6.1.")],
)  # fmt: skip
def test_a_variable_that_is_no_text_is_refused_and_not_written_otherwise(value: Any, said: str) -> None:
    asked = {"cluster": "local", "method": "ddp", "model": "tiny"}
    with pytest.raises(RequestError, match=r"set\.env\.A " + re.escape(said)):
        hpc_llm.plan(asked | {"set": {"env": {"A": value}}})
    [one] = hpc_llm.plan(asked | {"set": {"env": {"A": 6, "B": "6.10", "C": "", "D": True}}})
    assert {name: one.plan.job.env[name] for name in "ABCD"} == {"A": "6", "B": "6.10", "C": "", "D": "true"}
    [one] = hpc_llm.plan(asked | {"set": ["env.A=null"]})
    assert any("env.A is the word null" in notice for notice in one.notices)
