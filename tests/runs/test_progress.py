"""The pace of a run is that of all its measured steps, however long its file of steps is."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pace import is_within
from run_folders import NOW, Folder, Slurm, job

from hpc_llm.cli.progress import Waits, following, progress_line
from hpc_llm.cli.status import print_statuses
from hpc_llm.cli.terminal import guarded
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs import RunStatus, status
from hpc_llm.runs.local_process import NEXT
from hpc_llm.runs.progress import read_pace, read_progress
from hpc_llm.runs.searching import search_progress
from hpc_llm.schedulers.runs import read_identity


def written(folder: Path, times: list[float], warmup: int = 0) -> Path:
    """A steps.jsonl with steps of these durations and 100 tokens each."""
    path, now = folder / "steps.jsonl", 1_780_000_000.0
    with path.open("w", encoding="utf-8") as file:
        for number, seconds in enumerate(times, start=1):
            now += seconds
            row = {"step": number, "step_time_s": seconds, "tokens_per_second": 100 / seconds, "time": now}
            file.write(json.dumps({**row, "warmup": number <= warmup, "loss": 1.0}) + "\n")
    return path


@pytest.mark.parametrize("count", [4, 40, 4000])
def test_slow_steps_at_the_beginning_count(tmp_path: Path, count: int) -> None:
    times = [0.5 if number < count // 2 else 0.1 for number in range(count)]
    path = written(tmp_path, times)
    mean = sum(times) / count
    pace = read_pace(path)
    assert pace is not None and pace.step == count and pace.step_time_s == pytest.approx(mean, rel=1e-3)
    progress = read_progress(path)
    assert progress.step == count and progress.tokens_per_second == pytest.approx(100 / mean, rel=1e-3)


def test_of_very_many_steps_the_last_ones_say_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpc_llm.runs.progress._SEEN_BYTES", 20_000)
    path = written(tmp_path, [0.5] * 1000 + [0.1] * 1000, warmup=5)
    progress = read_progress(path, plan={"steps": 3000, "warmup_steps": 5})
    assert progress.step == 2000 and progress.tokens_per_second == pytest.approx(1000)
    assert progress.contradiction is None


@pytest.mark.parametrize("count", [20, 2000])
def test_warm_up_does_not_count_and_a_half_line_is_left_out(tmp_path: Path, count: int) -> None:
    path = written(tmp_path, [9.0] * 5 + [0.2] * (count - 5), warmup=5)
    with path.open("a") as file:
        file.write('{"step": 99999, "step_ti')
    progress = read_progress(path)
    assert progress.step == count and progress.tokens_per_second == pytest.approx(500, rel=1e-3)
    assert read_progress(written(tmp_path, [1.0] * 3, warmup=5)).tokens_per_second is None


def test_without_a_file_there_is_no_pace(tmp_path: Path) -> None:
    assert read_pace(tmp_path / "none") is None
    assert read_progress(tmp_path / "none").step is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    known: dict[str, Any] = {
        "run_id": "a",
        "job_id": "1",
        "cluster": "local",
        "method": "z3",
        "outcome": None,
        "exit_code": None,
    }
    rest: dict[str, Any] = {
        "reason": None,
        "started_at": None,
        "elapsed_s": None,
        "tokens_per_second": None,
        "steps": 9,
    }
    with guarded(), following(quiet=False) as show:
        assert show is not None
        for step in (1, 2):
            show([RunStatus(state="RUNNING", step=step, **known, **rest)])
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().split("\r\x1b[K")[2::2] == [
        "0/1 done · local z3 RUNNING step 1/9",
        "0/1 done · local z3 RUNNING step 2/9",
    ]


def test_a_run_without_a_method_has_none_in_its_line() -> None:
    status = RunStatus(
        run_id="a", job_id="1", cluster="local", method=None, state="RUNNING", outcome=None, reason=None, exit_code=None,
        started_at=None, elapsed_s=None, tokens_per_second=None, step=None, steps=None,
    )  # fmt: skip
    assert progress_line([status]) == "0/1 done · local RUNNING"


def test_of_several_that_wait_the_reason_fits(capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, Any] = dict.fromkeys(
        ["job_id", "cluster", "method", "outcome", "exit_code", "started_at", "elapsed_s"]
    )
    known |= dict.fromkeys(["tokens_per_second", "step", "steps"])
    Waits().tell([RunStatus(run_id=name, state="PENDING", reason=NEXT, **known) for name in "ab"])
    assert capsys.readouterr().err == "hpc-llm: 2 runs wait: about to start, or behind an earlier run\n"


@pytest.mark.parametrize(("task", "method"), [("prepare", None), ("pretrain", "z3")])
def test_preparing_data_has_no_method(folder: Folder, task: str, method: str | None) -> None:
    found = json.loads(folder.run.experiment.read_text(encoding="utf-8"))
    found["plan"]["task"] = task
    folder.run.experiment.write_text(json.dumps(found), encoding="utf-8")
    assert [one.method for one in status([folder.run])] == [method]


def test_a_search_says_its_try_and_the_fastest_before_it(folder: Folder, slurm: Slurm) -> None:
    """It has no steps of its own."""
    run = folder.run
    for number, (size, result) in enumerate(
        [(1, {"outcome": "COMPLETED", "tokens_per_second": 400.4}), (2, {"outcome": "COMPLETED", "tokens_per_second": 900.0}),
         (4, {"outcome": "OOM_DEVICE", "tokens_per_second": 999.0}), (3, None)], start=1,
    ):  # fmt: skip
        of_try = run.search_try(number)
        write_json(of_try.experiment, {"schema": 1, "plan": {"micro_batch_size": size, "sequence_length": 64}})
        expected = {
            1: "try 1: micro batch 1 x 64",
            3: "try 3: micro batch 4 x 64; fastest so far 2 x 64 with 900 tokens/s",
        }
        assert search_progress(run) == expected.get(number, search_progress(run))
        if result is not None:
            write_json(of_try.result, {"schema": 1, **result})
    said = "try 4: micro batch 3 x 64; fastest so far 2 x 64 with 900 tokens/s"
    assert search_progress(run) == said
    slurm.says(job("RUNNING", ended_at=None))
    [one] = status([run], NOW)
    assert (one.state, one.reason) == ("RUNNING", said)
    write_json(run.search_try(4).experiment, {"plan": "x"})
    assert "try 4: micro batch ? x ?" in str(search_progress(run))


def test_very_many_short_lines_keep_nobody_busy(tmp_path: Path) -> None:
    """What packs into some kilobytes takes no minute to read, and no step behind it counts."""
    steps = written(tmp_path, [0.5] * 3)
    begin = steps.read_bytes()
    steps.write_bytes(begin + b"{}\n" * 5_000_000 + b'{"step": 9}\n')
    run = RunPaths(tmp_path)
    write_json(run.job, {"schema": 2, "scheduler": "slurm", "uuid": str(uuid4()), "run_id": run.run_id})
    run.started.write_bytes(b"{}\n" * 5_000_000 + b'{"job_id": "7"}\n')
    started = time.process_time()
    pace, identity = read_pace(steps), read_identity(run)
    assert pace is not None and pace.step == 3 and identity is not None and identity.job_id is None
    assert read_progress(steps).step == 9
    assert is_within(time.process_time() - started, 4)


@pytest.mark.parametrize("wrong", ["{", "[]", None])
def test_a_step_of_unknown_many_stands_alone(
    wrong: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Folder(tmp_path / "r").run
    written(run.root, [0.2] * 8)
    if wrong is None:
        write_json(run.experiment, {"schema": 1, "run_id": "r", "plan": {}})
    else:
        run.experiment.write_text(wrong)
    [state] = status([run])
    assert state.step == 8 and state.steps is None
    print_statuses([state])
    table = capsys.readouterr().out
    assert "None" not in table and "/" not in table.splitlines()[2] and " 8 " in table.splitlines()[2]
    assert "None" not in progress_line([state])
