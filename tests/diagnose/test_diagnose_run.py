"""A run of ours: its records, its plan, and the command line."""

from __future__ import annotations

import json
import os
import time
import traceback
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tiny_plans import make_plan

from hpc_llm.causes.catalogue import CAUSES
from hpc_llm.cli import run as command
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.diagnosis import diagnose_run
from hpc_llm.diagnosis.askable import askable
from hpc_llm.errors import HpcLlmError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.identity import Identity
from hpc_llm.worker.preparing.build import prepare

MOMENT = 1_780_000_000.0


def new_run(folder: Path, *, code: int | None = 1, plan: dict[str, Any] | None = None, **exit_record: Any) -> RunPaths:
    """The folder of a run on this machine that has ended."""
    run = RunPaths(folder / "run-1")
    described = make_plan("z3", world_size=2, micro_batch_size=4, **(plan or {})).to_dict()
    write_json(run.experiment, {"schema": 1, "run_id": run.run_id, "plan": described, "origins": {}})
    submission = {"schema": 1, "scheduler": "local", "job_id": None, "array_task": None}
    if code is not None:
        write_json(run.submission, {**submission, "submitted_at": "2026-01-01T00:00:00+00:00", "process": {}})
    if code is not None:
        record = {"exit_code": code, "signal": None, "stage": "done", "reason": None, "host": "gn1", "job_id": None}
        ended = {"schema": 1, "started_at": MOMENT, "ended_at": MOMENT + 60, "time_limit_s": None, **record}
        write_json(run.exit, {**ended, **exit_record})
    return run


def fails(run: RunPaths, rank: int, kind: str, message: str, moment: float, outcome: str = "FAILED") -> None:
    text = f'Traceback (most recent call last):\n  File "t.py", line 1, in f\n{kind}: {message}\n'
    values = {"rank": rank, "local_rank": rank, "host": "gn7", "time": moment, "attempt": "0", "type": kind}
    write_json(run.failure(rank), {**values, "message": message, "traceback": text, "outcome": outcome})


def test_the_first_rank_by_time_is_the_root(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    fails(run, 0, "KeyError", "'later'", MOMENT + 20)
    fails(run, 1, "ValueError", "first", MOMENT + 10)
    found = diagnose_run(run)
    assert (found.cause.id, found.details["rank"], found.summary) == (
        "python_exception",
        "1",
        "Rank 1 failed first: ValueError: first",
    )
    assert found.evidence[0].file == "failures/rank-1.json"
    line = run.failure(1).read_text().splitlines()[found.evidence[0].line - 1]
    assert "ValueError: first" in line


def test_out_of_memory_is_answered_with_the_plan_s_numbers(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    message = "HIP out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 63.98 GiB of which 10.00 MiB is free."
    fails(run, 0, "OutOfMemoryError", message, MOMENT, "OOM_DEVICE")
    found = diagnose_run(run)
    assert found.cause.id == "device_oom"
    assert found.remedy.splitlines()[0].startswith("--micro-batch-size 2 --gradient-accumulation-steps 2  (")


@pytest.mark.parametrize(
    ("code", "reason", "cause"),
    [
        (71, "the module system is missing", "module_missing"),
        (72, "module x failed to load", "module_missing"),
        (73, "conda is not on PATH", "conda_not_initialised"),
        (74, "conda environment /e did not activate", "conda_not_initialised"),
        (75, "the Python environment lacks deepspeed", "package_missing"),
        (76, "cannot enter run folder", "config_error"),
        (77, "mpirun is not on PATH", "module_missing"),
        (77, "srun is not on PATH", "package_missing"),
        (137, None, "host_oom"),
        (139, None, "segfault"),
        (135, None, "bus_error"),
        (3, None, "unknown"),
    ],
)
def test_exit_codes(tmp_path: Path, code: int, reason: str | None, cause: str) -> None:
    assert diagnose_run(new_run(tmp_path, code=code, stage="prelude", reason=reason)).cause.id == cause


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("virtual environment /proj/my env does not exist", ["'/proj/my env'/bin/activate", "prelude.python.env"]),
        ("virtual environment /proj/env is not active", ["/proj/env/bin/activate", "prelude.python.env"]),
        ("python is not on PATH", ["bin/python", "prelude.python"]),
        (
            "virtual environment /work//e does not exist, and the variable USR in the paths of the profile is not set",
            ["names $USR, which had no value"],
        ),
        (
            "conda environment /work//e did not activate, and the variable USR in the paths of the profile is not set",
            ["names $USR, which had no value"],
        ),
    ],
)
@pytest.mark.parametrize("where", ["record", "output", "both"])
def test_an_environment_that_is_none_of_conda_s_gets_no_advice_for_conda(
    tmp_path: Path, reason: str, named: list[str], where: str
) -> None:
    run = new_run(
        tmp_path, code=1 if where == "output" else 74, stage="prelude", reason=None if where == "output" else reason
    )
    if where != "record":
        run.stderr.write_text(f"hpc-llm: {reason} (on gn1.cluster)\n")
    found = diagnose_run(run)
    assert found.cause.id == "conda_not_initialised"
    assert "USR" not in reason or "venv" not in found.remedy
    assert all(one in found.remedy for one in named) and "conda" not in found.remedy and "{" not in found.remedy
    assert "goes on with another" not in found.meaning


def test_what_is_missing_is_installed_with_the_python_of_the_job(tmp_path: Path) -> None:
    lacks = "the Python environment lacks torch, transformers: /env of/mine/bin/python"
    run = new_run(tmp_path / "a", code=75, stage="prelude", reason=lacks, plan={"cluster": "taiwania2"})
    run.stderr.write_text(f"hpc-llm: {lacks} (on gn1.cluster)\n")
    before, then, *_ = diagnose_run(run).remedy.splitlines()
    assert before.startswith("first, on a login node: module load ") and " && conda activate " in before
    assert then.endswith(": '/env of/mine/bin/python' -m pip install torch transformers")
    of_a_module = new_run(tmp_path / "c", code=75, stage="prelude", reason=lacks, plan={"cluster": "delta"})
    of_a_module.stderr.write_text(f"hpc-llm: {lacks}\n")
    assert "-m pip install --user torch transformers" in diagnose_run(of_a_module).remedy
    later = new_run(tmp_path / "b", code=1)
    later.stdout.write_text("hpc-llm: gn1, /e/bin/python3, modules none\nModuleNotFoundError: No module named 'yaml'\n")
    assert "/e/bin/python3 -m pip install pyyaml" in diagnose_run(later).remedy


def test_too_little_text_is_answered_with_text_or_shorter_sequences(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    fails(
        run,
        0,
        "WorkerError",
        "the data in /d/caches/01 fill no sequence of 512 tokens.",
        MOMENT,
    )
    run.stderr.write_text("hpc_llm.errors.WorkerError: the data in /d/caches/01 fill no sequence of 512 tokens.\n")
    found = diagnose_run(run)
    assert found.cause.id == "config_error" and "--data FILE" in found.remedy and "--sequence-length" in found.remedy


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("a.jsonl", b'{"question": "1+1?", "answer": "2"}\n{"question": "2+1?", "answer": \n', "data_error"),
        ("a.jsonl", '{"text": "x"}\n'.encode("utf-16"), "data_error"),
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}\n', "data_error"),
        ("a.jsonl", b'{"text": "x"}\n{"tex": "y"}\n', "data_error"),
        ("a.jsonl", b'{"messages": [{"content": "y"}]}\n', "data_error"),
        ("a.csv", b"prompt,completion\na,b\nc\n", "data_error"),
        ("a.txt", "\u201cx\u201d\n".encode("cp1252"), "data_error"),
        ("a.parquet", b"PAR1", "data_error"),
        ("a.pdf", b"%PDF-1.4 and no more", "data_error"),
        ("a.txt", b"", "data_error"),
        ("a.jsonl", b'{"body": "x"}\n', "config_error"),
    ],
)
def test_what_is_wrong_with_data_is_no_setting(tmp_path: Path, name: str, content: bytes, cause: str) -> None:
    """As the worker records it: the type of the error, its message, and the traceback with the errors that led to it."""
    (tmp_path / name).write_bytes(content)
    request = CorpusRequest(sources=(str(tmp_path / name),), model="tiny", layout="causal")
    with pytest.raises(HpcLlmError) as raised:
        prepare(request, tmp_path / "caches", lambda text: None)
    error = raised.value
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    run = new_run(tmp_path)
    fails(run, 0, type(error).__name__, str(error), MOMENT)
    record = json.loads(run.failure(0).read_text())
    write_json(run.failure(0), {**record, "traceback": text})
    found = diagnose_run(run)
    assert found.cause.id == cause
    assert ("--set PATH" in found.remedy) == (cause == "config_error")
    assert str(error)[:60] in found.evidence[0].text


def test_time_limit_of_the_script_itself(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=143, signal="TERM", time_limit_s=60, plan={"time_s": 60, "steps": 100})
    run.steps.write_text("".join(json.dumps({"step": k, "loss": 1.0}) + "\n" for k in range(1, 31)))
    fails(
        run,
        0,
        "SIGTERM",
        "stopped by SIGTERM after step 30 of 100: time limit, cancel or preemption",
        MOMENT,
        "UNKNOWN",
    )
    found = diagnose_run(run)
    assert found.cause.id == "walltime"
    assert found.remedy.splitlines()[-1].startswith("--steps 30 ")


def test_cancelled_by_hpc_llm(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=143, signal="TERM")
    write_json(run.cancelled, {"schema": 1, "requested_at": "2026-01-01T00:00:00+00:00"})
    found = diagnose_run(run)
    assert (found.cause.id, found.retry) == ("cancelled", True)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("the loss is not a finite number from step 3 on", "nan_loss"),
        ("all 8 measured steps were skipped because the gradients overflowed", "loss_scale_collapse"),
        ("it ran on Tesla V100, A100-SXM4-80GB was planned", "gpu_missing"),
        ("1 steps were measured, at least 3 are needed", "config_error"),
        ("the search ended with 44 s left, in which another try, of about 56 s, has no room: …", "walltime"),
        ("the search ended after 40 of its tries: --set most_tries=N allows more", "search_unfinished"),
    ],
)
def test_invalid_runs(tmp_path: Path, reason: str, cause: str) -> None:
    run = new_run(tmp_path, code=0)
    write_json(run.result, {"schema": 1, "outcome": "INVALID", "invalid_reason": reason, "outcome_reason": reason})
    run.stdout.write_text("Training done in 3.0 seconds.\n")
    found = diagnose_run(run)
    assert found.cause.id == cause
    way = f"`hpc-llm submit --resume {run.run_id}"
    assert (way in found.remedy) == reason.startswith("the search") and "--resume RUN" not in found.remedy
    assert "Nothing failed" not in found.meaning
    assert "fp16" not in found.meaning and "loss scale" not in f"{found.meaning} {found.cause.title}"


def test_more_tries_are_advised_as_a_number(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=0)
    record = json.loads(run.experiment.read_text())
    write_json(run.experiment, {**record, "plan": {**record["plan"], "most_tries": 4}})
    reason = "the search ended after 4 of its tries: --set most_tries=N allows more"
    write_json(run.result, {"schema": 1, "outcome": "INVALID", "invalid_reason": reason, "outcome_reason": reason})
    assert "--set most_tries=8`" in diagnose_run(run).remedy.replace(" --logs " + str(tmp_path), "")


def test_a_completed_run_has_nothing_to_complain_of(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=0)
    write_json(run.result, {"schema": 1, "outcome": "COMPLETED"})
    run.stderr.write_text("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-08-16T16:27:59 ***\n")
    assert diagnose_run(run).cause.id == "none"


def test_a_run_that_is_not_over(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=None)
    assert time.time() - run.experiment.stat().st_mtime < 60
    found = diagnose_run(run)
    assert (found.cause.id, found.summary) == ("none", "The run is not over: SUBMITTING.")


def test_a_run_whose_submission_was_interrupted(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=None)
    os.utime(run.experiment, (0, 0))
    assert diagnose_run(run).cause.id == "unknown"


@pytest.mark.parametrize(
    ("text", "retry"),
    [("it begins\n", None), ("Killed\n", None), ("CUDA error: out of memory\n", False), ("Training complete\n", False),
     ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n", True)],
)  # fmt: skip
def test_a_script_is_told_where_nobody_knows_whether_it_ends_so_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, retry: bool | None
) -> None:
    (tmp_path / "a.log").write_text(text)
    command(["diagnose", "--json", str(tmp_path / "a.log")])
    assert json.loads(capsys.readouterr().out)["retry"] is retry


def test_the_command_prints_one_document_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = new_run(tmp_path)
    fails(run, 1, "ValueError", "first", MOMENT)
    assert command(["diagnose", "--json", str(run.root)]) == 0
    document = json.loads(capsys.readouterr().out)
    keys = {"cause", "confidence", "evidence", "remedy", "retry", "chain"}
    assert keys <= set(document) and document["chain"] == ["python_exception"]
    assert {"file", "line", "text"} == set(document["evidence"][0])
    assert command(["diagnose", "--json", "run-1", "--logs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == document


def test_the_command_shows_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "x.out"
    log.write_text("srun: error: Node failure on gn1204\n")
    assert command(["diagnose", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "node_fail" in shown and f"{log}:1:" in shown and "exclude=gn1204" in shown
    assert command(["diagnose", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"cause", "meaning", "remedy", "retry", "signs"} <= set(listed[0])
    assert command(["diagnose", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(cause.id in shown and cause.remedy.splitlines()[0] in shown for cause in CAUSES)
    assert command(["diagnose", "--list", "host_oom"]) == 0
    shown = capsys.readouterr().out
    assert "OOM_HOST" in shown and "device_oom" not in shown
    assert command(["diagnose", "--list", "hostoom"]) == 2
    assert "did you mean 'host_oom'?" in capsys.readouterr().err


@pytest.mark.parametrize("outcome", sorted({cause.outcome.value for cause in CAUSES} - {"UNKNOWN"}))
def test_a_word_of_the_tables_lists_the_causes_that_stand_as_it(
    outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["diagnose", "--list", outcome, "--json"]) == 0
    listed = [cause["cause"] for cause in json.loads(capsys.readouterr().out)]
    assert listed == [cause.id for cause in CAUSES if cause.outcome.value == outcome]


@pytest.mark.parametrize("code", [3, 137])
@pytest.mark.parametrize("has_kept", [False, True])
def test_of_what_nobody_recognised_nobody_says_that_it_ends_so_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, has_kept: bool
) -> None:
    """As of a rank that somebody killed, for which memory is a guess."""
    run = new_run(tmp_path, code=code)
    kept = [type("Kept", (), {"step": 50})()] if has_kept else []
    monkeypatch.setattr("hpc_llm.diagnosis.own_runs.kept_in", lambda root: kept)
    assert command(["diagnose", str(run.root)]) == 0
    told = capsys.readouterr().out
    assert ("unknown (not recognised)" in told or "This is a guess" in told) and "no:" not in told
    assert ("go on behind step 50" in told) is has_kept
    more = "; to go on is another thing" if has_kept else ""
    assert told.splitlines()[-1] == f"retry as is  not known whether it ends so again{more}"


def test_a_folder_of_logs_is_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.out").write_text("MemoryError\n")
    (tmp_path / "b.out").write_text("Training completed\n")
    assert command(["diagnose", "--json", str(tmp_path)]) == 0
    assert [d["cause"] for d in json.loads(capsys.readouterr().out)] == ["host_oom", "none"]


@pytest.mark.parametrize("words", [[], ["no-such-run"]])
def test_a_wrong_request(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["diagnose", *words, "--logs", str(tmp_path)]) == 2
    assert "hpc-llm: " in capsys.readouterr().err


DAMAGED = (
    "", "{", "[]", "null", "3", "\x00\xff",
    '{"plan": 3, "outcome": 5, "scheduler": "slurm", "exit_code": "1", "rank": "x", "time": "now", "host": 4}',
    '{"plan": {}, "scheduler": {}, "submitted_at": 3, "exit_code": null, "started_at": "soon", "ended_at": [], "process": 7, "outcome": []}',
)  # fmt: skip
RECORDS = (
    "experiment.json", "submission.json", "exit.json", "result.json", "steps.jsonl", "telemetry.jsonl",
    "failures/rank-0.json", "submitit/final.json", "submitit/process.json",
)  # fmt: skip


def test_damaged_records_stop_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "logs"
    for number, (name, content) in enumerate(product(RECORDS, DAMAGED)):
        run = new_run(logs / str(number))
        fails(run, 0, "ValueError", "first", MOMENT)
        (run.root / name).parent.mkdir(exist_ok=True)
        (run.root / name).write_text(content)
    runs = [str(path) for path in logs.glob("*/run-1")]
    for words in (
        ["diagnose", *runs],
        ["status", *runs],
        ["parse", str(logs)],
        ["report", str(logs), "-o", str(tmp_path / "out")],
    ):
        assert command(words) == 0, capsys.readouterr().err


def test_a_copy_of_a_run_without_its_submission_keeps_its_outcome(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=None)
    write_json(run.result, {"outcome": "OOM_DEVICE", "outcome_reason": "rank 0: OutOfMemoryError"})
    assert diagnose_run(run).cause.id == "device_oom"


ECC = "[rank7]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"


@pytest.mark.parametrize(
    ("nodes", "output", "blamed"),
    [
        (2, ECC + "srun: error: leo2: task 7: Exited with exit code 1\n", "exclude=leo2"),
        (2, ECC + "srun: error: leo1: tasks 0-3: Terminated\nsrun: error: leo2: tasks 4-7: Aborted (core dumped)\n", "exclude=leo2"),
        (2, ECC + "srun: error: leo1: tasks 0-3: Exited with exit code 1\nsrun: error: leo2: tasks 4-7: Exited with exit code 1\n", "exclude=leo2"),
        (2, ECC, "exclude=NODE"),
        (2, "CUDA error: uncorrectable ECC error encountered\nsrun: error: leo2: task 7: Segmentation fault\n", "exclude=leo2"),
        (1, ECC, "exclude=leo1"),
    ],
)  # fmt: skip
def test_of_several_nodes_the_one_that_failed_is_left_out(tmp_path: Path, nodes: int, output: str, blamed: str) -> None:
    """The record of the script's end names the first of them."""
    run = new_run(tmp_path, code=1, plan={"nodes": nodes, "scheduler": "slurm"}, host="leo1")
    run.stderr.write_text(output)
    found = diagnose_run(run)
    assert found.cause.id == "gpu_hardware"
    assert blamed in found.remedy, found.remedy


_OF_SLURM = ("sacct", "scontrol", "squeue", " sbatch", "ask the scheduler:", "ask the scheduler how")


@pytest.mark.parametrize("code", [1, 143])
def test_nothing_is_asked_of_a_scheduler_that_is_not_there(tmp_path: Path, code: int) -> None:
    run = new_run(tmp_path, code=code)
    run.stderr.write_text("Terminated\n" if code == 143 else "")
    remedy = diagnose_run(run).remedy
    assert remedy and not any(words in remedy for words in _OF_SLURM), remedy


def test_no_cause_sends_a_run_of_this_machine_to_slurm() -> None:
    here, job = Identity(scheduler="local"), Identity(scheduler="slurm", job_id="7")
    toy = Identity(scheduler="toy", job_id="t.1")
    remedies = [*(cause.remedy for cause in CAUSES), *(sign.remedy or "" for cause in CAUSES for sign in cause.signs)]
    for remedy in filter(None, remedies):
        for identity in (here, toy):
            found = askable(remedy, identity, ["Killed"])
            assert found and not any(words in found for words in _OF_SLURM), found
        for shown in ("Killed", "srun: error: gn1: task 0: Killed"):
            assert askable(remedy, job, [shown]) == remedy.replace("sacct -j JOB", "sacct -j 7")
        assert askable(remedy, here, ["slurmstepd: error: it was killed"]) == remedy
    assert askable("ask the scheduler: sacct -j JOB", toy, []).startswith("ask the scheduler toy")
