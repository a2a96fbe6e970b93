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
from hpc_llm.errors import HpcLlmError, Notice, PlanError, RequestError
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.local import marks
from hpc_llm.schedulers.local.marks import RUN_DIR, RUN_UUID, Living, Marked
from hpc_llm.site.cluster import load_cluster

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


def test_a_checkpoint_that_is_damaged_was_not_removed(own_folder: Path) -> None:
    run = RunPaths(own_folder / "logs" / "r")
    (run.checkpoints / "step-5").mkdir(parents=True)
    (run.checkpoints / "step-10").mkdir()
    (run.checkpoints / "step-10" / "checkpoint.json").write_text("{")
    [one] = hpc_llm.plan(**RUN, steps=20, save_every=5)
    run.experiment.write_text(json.dumps({"schema": 1, "run_id": "r", "plan": one.plan.to_dict()}))
    run.job.write_text(json.dumps({"schema": 1, "uuid": "u", "scheduler": "local"}))
    run.steps.write_text("".join(json.dumps({"step": k + 1, "loss": 1.0}) + "\n" for k in range(12)))
    with pytest.raises(
        RequestError, match=r"no whole one any more: in step-10 \S.{10,200}\. Submit it again"
    ) as refused:
        with_start({"resume": "r"}, own_folder / "logs")
    assert "removed" not in str(refused.value)


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
    assert "GPU" not in bounds(here.plan, load_cluster("local"))
    assert "the GPU's memory" in bounds(there.plan, load_cluster("mi210"))


def test_an_offload_to_none_is_none(own_folder: Path) -> None:
    (own_folder / "configs").mkdir()
    zero = "{stage: 3, offload_optimizer: {device: DEVICE}, offload_param: {device: none}}"
    for device, letters in (("none", "z3"), ("cpu", "z3+o")):
        text = f"extends: z3\nname: mine\nletters: {letters}\ndeepspeed: {{zero_optimization: {zero.replace('DEVICE', device)}}}\n"
        (own_folder / "configs" / "mine.yaml").write_text(text)
        [made] = hpc_llm.plan(cluster="delta", account="a-delta-gpu", method="mine")
        assert made.plan.letters == letters
    split = {**RUN, "method": "z3"}
    [made] = hpc_llm.plan(**split, set=["deepspeed.zero_optimization.offload_optimizer.device=none"])
    assert "o" not in made.plan.letters.split("+")
    [made] = hpc_llm.plan(**split, set=["deepspeed.zero_optimization.offload_param.device=cpu"])
    assert made.plan.letters.split("+")[:2] == ["z3", "o"]


@pytest.mark.parametrize(
    ("method", "setting", "said"),
    [
        ("z2o", "offload_optimizer.ratio=0.3", "ratio is below 1, and a part of the optimizer is offloaded by ZeRO-3 alone"),
        ("z2o", "offload_optimizer.super_offload=true", "super_offload has no effect with stage 2: ZeRO-3 alone heeds it"),
        ("z2o", "zenflow.topk_ratio=0.1", "zenflow ends a run on the CPU where it starts"),
        ("z3o", "offload_optimizer.super_offload=true", "super_offload is for NVIDIA's GPUs alone. Leave it out."),
    ],
)  # fmt: skip
def test_a_part_of_an_offload_that_dies_is_refused(method: str, setting: str, said: str) -> None:
    with pytest.raises(HpcLlmError, match=said):
        hpc_llm.plan(**{**RUN, "method": method}, set=[f"deepspeed.zero_optimization.{setting}"])


def test_a_schedule_is_one_word() -> None:
    with pytest.raises(
        RequestError, match=r"lr_schedule is one word of constant, linear, cosine\. Write --set lr_schedule=WORD\."
    ):
        hpc_llm.plan(**RUN, set=["lr_schedule.type=cosine"])


def test_a_rate_of_nothing_and_gpus_without_a_rank_are_told() -> None:
    [made] = hpc_llm.plan(**RUN, set=["optimizer.lr=0"])
    assert "optimizer.lr is 0: no weight moves, and nothing is learned" in made.notices
    [made] = hpc_llm.plan(cluster="delta", account="a-delta-gpu", method="z3", set=["tasks_per_node=2"])
    assert any("2 of the 4 GPUs of each node have no rank and wait: --gpus-per-node 2" in one for one in made.notices)


@pytest.mark.parametrize("setting", ["world_size=4", "data_parallel=4"])
def test_what_is_advised_in_place_of_a_computed_field_can_be_said(setting: str) -> None:
    with pytest.raises(RequestError) as caught:
        hpc_llm.plan(**RUN, set=[setting])
    assert "use --nodes" in str(caught.value) and "set nodes" not in str(caught.value)
    assert hpc_llm.plan(**RUN, set=["tasks_per_node=4"])[0].plan.parallel.world_size == 4


def test_prompts_that_do_not_fit_alone_are_to_be_shorter() -> None:
    asked: dict[str, Any] = {"cluster": "local", "method": "ddp", "model": "tiny", "task": "infer"}
    with pytest.raises(PlanError, match=r"need 5128 positions.*Ask for less with --set prompt_tokens=N"):
        hpc_llm.plan(**asked, set=["prompt_tokens=5000"])
    with pytest.raises(PlanError, match=r"Ask for less with --set new_tokens=N\."):
        hpc_llm.plan(**asked, set=["new_tokens=5000"])


def test_a_table_with_other_marks_between_its_fields_is_told(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"cluster": "local", "method": "lora", "model": "tiny", "task": "finetune"}
    for mark, shown in ((";", "';'"), ("\t", "tabs")):
        source = tmp_path / "rows.csv"
        source.write_text(f"prompt{mark}completion\na{mark}b\n")
        with pytest.raises(RequestError, match=f"its fields are separated by {shown}, and commas are read"):
            hpc_llm.plan(**asked, data=[str(source)])


def test_data_that_are_named_twice_are_refused(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"cluster": "local", "method": "lora", "model": "tiny", "task": "finetune"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n')
    for twice in ([rows, rows], [rows, tmp_path], [rows, tmp_path / "." / "rows.jsonl"]):
        with pytest.raises(RequestError, match="twice, and each of its rows would be learned twice an epoch"):
            hpc_llm.plan(**asked, data=[str(one) for one in twice])


def test_what_ends_after_a_benchmark_was_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "bench.log"
    log.write_text(
        "============ Serving Benchmark Result ============\nSuccessful requests:                     100\n"
        "Benchmark duration (s):                  12.50\nOutput token throughput (tok/s):         1253.69\n"
        "==================================================\nTraceback (most recent call last):\n"
        '  File "/x/t.py", line 7, in check\n    assert ok\nAssertionError: 79.59 not less than or equal to 45.9\n'
    )
    code, out, _ = told(capsys, "diagnose", str(log))
    assert code == 0 and "The measurement had come to its end before that" in out and "raining had" not in out
    reason = hpc_llm.parse(str(log))[0].outcome_reason
    assert reason == "the measurement had ended before: AssertionError: 79.59 not less than or equal to 45.9"


def test_evidence_in_a_notebook_stands_where_its_file_has_it(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "outputs": [{"output_type": "stream", "name": "stdout", "text": ["one\n" * 40]}]},
        {"cell_type": "code", "outputs": [{"output_type": "error", "traceback": [
            "Traceback (most recent call last)\n   369     raise\n--> 370     f\"{path} does not appear to have a file named {name}\"",
            "OSError: /me/out/lora does not appear to have a file named config.json.",
        ]}]},
    ]  # fmt: skip
    notebook = tmp_path / "n.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "nbformat": 4}, indent=1))
    [found] = hpc_llm.diagnose(str(notebook))
    line = next(n for n, text in enumerate(notebook.read_text().splitlines(), start=1) if "OSError: /me" in text)
    assert found.cause is not None and found.cause.id == "model_missing" and "adapter_config.json" in str(found.remedy)
    assert [one.line for one in found.evidence if "OSError" in one.text] == [line]
