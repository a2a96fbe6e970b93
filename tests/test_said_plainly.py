"""What a refusal or a notice names is what was asked for, or what is there: files, options, checkpoints, other runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

import hpc_llm
from hpc_llm.api.resuming import with_start
from hpc_llm.api.searching import bounds
from hpc_llm.api.sending import _tell_neighbours
from hpc_llm.cli import run
from hpc_llm.errors import Notice, PlanError, RequestError
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.local import marks
from hpc_llm.schedulers.local.marks import RUN_DIR, RUN_UUID, Living, Marked

RUN: dict[str, Any] = {"cluster": "local", "method": "ddp", "model": "tiny"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("hpc2.yml", "hpc2.yml: there is no such file: did you mean hpc2.yaml?"),
        ("HPC2.yaml", "HPC2.yaml: there is no such file: did you mean hpc2.yaml?"),
        ("hcp2.yaml", "hcp2.yaml: there is no such file: did you mean hpc2.yaml?"),
        ("other.yaml", "other.yaml: there is no such file. In . are hpc2.yaml."),
        ("nowhere/a.yaml", "nowhere/a.yaml: there is no such file."),
    ],
)
def test_a_file_that_is_not_there_is_answered_with_one_that_is(own_folder: Path, asked: str, said: str) -> None:
    (own_folder / "hpc2.yaml").write_text(json.dumps(RUN))
    (own_folder / "train.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(RequestError) as refused:
        hpc_llm.plan(asked)
    assert str(refused.value) == said
    with pytest.raises(
        RequestError, match=r"--data .*trian\.jsonl: there is no such file. Did you mean .*/train\.jsonl\?"
    ):
        hpc_llm.plan(**RUN, data=["trian.jsonl"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"over": "sequence-length=64,99999"},
            "over, sequence_length 99999: .* Ask for less with --over sequence-length=…,2048.",
        ),
        ({"sequence_length": 99999}, "sequence_length 99999: .* Ask for less with --sequence-length."),
    ],
)
def test_the_option_that_is_named_is_the_one_that_said_it(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=f"^{said}$"):
        hpc_llm.plan(**RUN, task="tune", **asked)


@pytest.mark.parametrize(("every", "is_told"), [(100, True), (12, False), (5, False), (None, False)])
def test_checkpoints_that_no_step_reaches_are_told(every: int | None, is_told: bool) -> None:
    asked: dict[str, Any] = {} if every is None else {"save_every": every}
    [one] = hpc_llm.plan(**RUN, steps=12, **asked)
    assert any(f"save_every is {every} and the steps are 12" in told for told in one.notices) is is_told


@pytest.mark.parametrize(("made", "is_told"), [(12, True), (3, False)])
def test_checkpoints_that_were_removed_are_no_checkpoints_that_never_were(
    own_folder: Path, made: int, is_told: bool
) -> None:
    run = RunPaths(own_folder / "logs" / "r")
    run.root.mkdir(parents=True)
    [one] = hpc_llm.plan(**RUN, steps=20, save_every=5)
    run.experiment.write_text(json.dumps({"schema": 1, "run_id": "r", "plan": one.plan.to_dict()}))
    run.job.write_text(json.dumps({"schema": 1, "uuid": "u", "scheduler": "local"}))
    run.steps.write_text("".join(json.dumps({"step": k + 1, "loss": 1.0}) + "\n" for k in range(made)))
    with pytest.raises(RequestError) as refused:
        with_start({"resume": "r"}, own_folder / "logs")
    assert ("they were removed, as `hpc-llm clean --checkpoints` does" in str(refused.value)) is is_told
    assert ("A run keeps them with --save-every N" in str(refused.value)) is not is_told


def test_runs_of_other_folders_say_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "logs" / "mine", Path("/elsewhere/logs/theirs")]
    found = tuple(Marked({RUN_DIR: str(one), RUN_UUID: "u"}, {"pid": 1}) for one in folders)
    monkeypatch.setattr(marks, "living", lambda: Living(found))
    with pytest.warns(Notice, match=r"^mine, theirs \(in /elsewhere/logs\) are under way on this machine: "):
        _tell_neighbours(tmp_path / "logs")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_folder_in_which_nothing_is_found_is_told(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_folder / "empty").mkdir()
    code, out, err = told(capsys, "diagnose", "empty")
    assert (code, out) == (2, "") and "there is no run and no log in empty: give a run, a log file, or" in err
    assert "there is no run or log in empty\n" in told(capsys, "parse", "empty")[2]
    assert told(capsys, "parse", "empty", "--format", "json")[1].strip() == "[]"
    assert "there is no step of a run in empty\n" in told(capsys, "parse", "--steps", "empty")[2]


def test_a_folder_of_runs_that_a_variable_misspells_is_told(
    own_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(capsys, "status")[0] == 0
    monkeypatch.setenv("HPC_LLM_LOGS", "nodir")
    code, out, err = told(capsys, "status")
    assert (code, out) == (2, "") and "there is no folder nodir, which the variable HPC_LLM_LOGS names" in err
    assert "there is no folder other: --logs" in told(capsys, "status", "--logs", "other")[2]
    (own_folder / "nodir").mkdir()
    assert told(capsys, "status")[0] == 0


@pytest.mark.parametrize("command", ["status", "export", "cancel"])
def test_a_folder_of_runs_named_as_a_run_is_told_as_that(
    own_folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    make_run(own_folder / "logs", "twin", {}, "")
    make_run(own_folder / "my logs", "other", {}, "")
    code, _, err = told(capsys, command, "my logs", *(["--to", "mlflow"] if command == "export" else []))
    assert code == 2 and "my logs is no run, it holds 1: name the folder of runs as --logs 'my logs'" in err


def test_an_option_of_one_letter_may_be_each_that_begins_so(capsys: pytest.CaptureFixture[str]) -> None:
    err = told(capsys, "submit", "-m", "tiny")[2]
    assert "did you mean '--max-parallel' or '--method' or '--micro-batch-size' or '--model'?" in err


def test_what_a_method_and_a_status_are_is_shown_in_words(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "methods", "qlora")[1]
    assert (
        "kind nf4, double_quant true" in out
        and "kind lora, r 8, alpha 16, dropout 0.0, target_modules all-linear" in out
    )
    assert "each say LoRA (with q its base is quantized). Keep one of them." in told(capsys, "methods", "lora+qlora")[2]
    verify = next(one.name for one in hpc_llm.clusters() if one.status.state == "verify")
    assert "something essential rests on one source" in told(capsys, "clusters", verify)[1]


def test_a_search_on_the_cpu_speaks_of_no_gpu() -> None:
    [here] = hpc_llm.plan({**RUN, "task": "tune"})
    [there] = hpc_llm.plan({**RUN, "task": "tune", "cluster": "mi210"})
    assert "GPU" not in bounds(here.plan) and "the GPU's memory" in bounds(there.plan)
