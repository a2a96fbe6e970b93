"""What is wrong whatever the data hold is refused before they are prepared; what only they show says that they were."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from last_said import last_said

import hpc_llm
from hpc_llm.api.corpora import NotPreparedError
from hpc_llm.cli import run
from hpc_llm.errors import RequestError
from hpc_llm.records.run import RunPaths

RUN: dict[str, Any] = {"cluster": "local", "method": "ddp", "model": "tiny", "data": ["rows.jsonl"]}
SUBMIT = ("submit", "--cluster=local", "--method=ddp", "--model=tiny", "--data=rows.jsonl", "--sequence-length=64")


@pytest.fixture(autouse=True)
def _rows(own_folder: Path) -> None:
    rows = [{"prompt": f"{n}?", "completion": "yes " * (n % 5 + 2)} for n in range(40)]
    (own_folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("--steps=12", "--set=eval_every=100"), "eval_every is 100, it must be between 1 and the 12 steps"),
    (("--steps=12", "--warmup-steps=11"), "at least 3 steps must be measured"),
    (("--epochs=-1",), "epochs is -1.0, it must be above 0"),
    (("--steps=2", "--epochs=1"), "both steps and epochs are given"),
    (("--steps=12", "--set=too_long=cut"), "too_long"),
    (("--steps=12", "--set=packing=tight"), "packing"),
    (("--task=infer", "--set=queries=4", "--micro-batch-size=2"), "at least 3 are needed, or the run is invalid"),
    (("--task=infer", "--set=split=tests"), "there is no split 'tests'"),
    (("--task=infer", "--set=new_tokens=many"), "new_tokens"),
    (("--task=infer", "--set=new_tokens=100000"), "positions"),
    (("--steps=12", "--nodes=2"), "2 nodes"),
    (("--steps=12", "--set=optimizer.type=Adamm"), "Adamm"),
    (("--steps=12", "--micro-batch-size=1000000"), "--force submits all the same"),
    (("--steps=12", "--run-id=a b"), "run id 'a b'"),
    (("--steps=12", "--run-id=taken"), "there is already a run taken"),
    (("--steps=12", "--cluster=local,delta", "--account=x-delta-gpu"), "sbatch"),
]


@pytest.mark.parametrize(("more", "said"), WRONG)
def test_what_is_wrong_whatever_the_data_hold_prepares_nothing(
    own_folder: Path,
    more: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    taken = RunPaths(own_folder / "logs" / "taken")
    taken.root.mkdir(parents=True)
    for path, record in (
        (taken.job, {"schema": 1, "uuid": "u", "scheduler": "local", "job_id": "1"}),
        (taken.experiment, {"schema": 1, "run_id": "taken"}),
        (taken.exit, {"schema": 1, "exit_code": 0}),
    ):
        path.write_text(json.dumps(record))
    words = [word for word in SUBMIT if not (word.startswith("--sequence") and "--task=infer" in more)]
    code = run(last_said([*words, *more]))
    told = capsys.readouterr().err
    assert code in (1, 2) and said in told, told
    assert "prepared first" not in told and not (own_folder / "caches").exists()
    assert [one.name for one in (own_folder / "logs").glob("[!.]*")] == ["taken"]


@pytest.mark.parametrize(
    "asked",
    [
        {"epochs": 2},
        {
            "epochs": 0.5,
            "set": ["eval_every=7", "validation_fraction=0.2", "packing=none", "too_long=drop"],
            "save_every": 5,
        },
        {"task": "infer", "set": ["queries=9", "new_tokens=8"]},
        {"task": "infer", "set": ["split=train", "prompt_tokens=16"]},
    ],
)
def test_what_may_be_right_asks_for_its_data(asked: dict[str, Any]) -> None:
    with pytest.raises(NotPreparedError, match="the data are not prepared yet for tiny"):
        hpc_llm.plan(**{**RUN, **asked})


def test_one_wrong_run_of_a_study_keeps_the_data_of_all_from_being_prepared() -> None:
    runs = [{"name": "right"}, {"name": "wrong", "set": ["eval_every=100"]}]
    with pytest.raises(RequestError, match="run wrong on cluster local: eval_every is 100"):
        hpc_llm.plan({**RUN, "steps": 12, "runs": runs})


@pytest.mark.train
def test_what_only_the_data_show_says_that_they_were_prepared_and_stay(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for again in (False, True):
        code = run(last_said([*SUBMIT, "--steps=12", "--sequence-length=4"]))
        told = capsys.readouterr().err
        assert code == 2 and "the longest sample of the train split" in told
        [prepared] = [one.name for one in (own_folder / "logs").glob("[!.]*")]
        stay = f"Nothing else was submitted; the data were prepared for that and stay ({prepared})"
        assert (stay in told) is not again, told


@pytest.mark.train
def test_a_preparation_that_fails_says_why_in_the_same_sentence(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_folder / "rows.jsonl").write_text('{"text": "x"}\n{"tex": "y"}\n')
    assert run([*SUBMIT, "--steps=12"]) == 2
    told = capsys.readouterr().err
    assert "nothing else was submitted: rank 0: DataFileError: " in told and "line 2 has no field 'text'" in told
    assert "The run that tried stays; `hpc-llm diagnose " in told


@pytest.mark.parametrize("data", [(), ("--data=rows.jsonl",)])
def test_a_python_that_lacks_what_the_runs_need_is_told_before_anything_is_queued(
    own_folder: Path, data: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `pip install .` alone, in the Python that runs train in."""
    words = ["submit", "--cluster=local", "--method=lora", "--model=tiny", "--sequence-length=64", *data]
    there = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("torch", "peft") else there(name))
    before = sorted(own_folder.rglob("*"))
    assert run(words) == 2
    told = capsys.readouterr().err
    assert f"{sys.executable}, lacks torch, peft, which the runs need: python -m pip install torch peft." in told
    assert sorted(own_folder.rglob("*")) == before
    assert run(["render", *words[1:5]]) == 0  # a look at the script
    assert run([*words[:5], "--dry-run"]) == 2
    assert "lacks torch, peft" in capsys.readouterr().err
