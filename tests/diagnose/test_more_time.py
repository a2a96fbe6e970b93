"""What is advised behind a time limit: by the time that the run really had, and by the signal that it asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_diagnose_run import MOMENT, new_run
from tiny_plans import make_plan

from hpc_llm.cli import run as command
from hpc_llm.diagnosis import diagnose_run
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.more_time import lead_s, walltime
from hpc_llm.records.checkpoints import MANIFEST
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths

SIGNAL = {"signal": "B:USR1@30"}
ASKED = {"code": 138, "signal": "USR1", "reason": "the time limit was near, which SIGUSR1 told, as it was asked to"}


def signalled(folder: Path, after_s: float, made: int, pace: float, *, first: int = 1, **plan: Any) -> RunPaths:
    """A run that its own signal ended so many seconds after its start, with its steps at the end of that time."""
    asked = {"time_s": 60, "steps": 50_000, "scheduler": "slurm", "sbatch": SIGNAL, **plan}
    run = new_run(folder, plan=asked, **ASKED, time_limit_s=asked["time_s"], ended_at=MOMENT + after_s)
    if made:
        lines = [
            {"step": first + k, "loss": 1.0, "step_time_s": pace, "time": MOMENT + after_s - (made - 1 - k) * pace}
            for k in range(made)
        ]
        run.steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_a_signal_that_came_before_a_step_is_named_with_the_time_that_was_had(tmp_path: Path) -> None:
    found = diagnose_run(signalled(tmp_path, 2, 0, 0))
    assert found.cause.id == "walltime" and "signal that the job had asked for" in found.meaning
    said = found.remedy.splitlines()[-1]
    assert said.startswith(
        "--time 00:20:00  (it made no step; --sbatch signal=B:USR1@30 ended it after 00:00:02 of 00:01:00:"
    )
    assert "up to a minute before it is due" in said and "it had 00:01:00" not in said


def test_steps_of_a_moment_say_not_how_many_fit(tmp_path: Path) -> None:
    found = diagnose_run(signalled(tmp_path, 25, 60, 0.00822))
    assert (
        "--steps" not in found.remedy
        and "--time 00:10:00  (50000 steps of 0.00822 s, of which it made 60;" in found.remedy
    )
    assert "ended it after 00:00:25 of 00:01:00" in found.remedy


def test_time_and_steps_leave_room_for_the_signal_and_the_minute_before_it(tmp_path: Path) -> None:
    run = signalled(tmp_path, 1500, 700, 2.0, time_s=1800, steps=1000, sbatch={"signal": "B:USR1@240"})
    time, steps = diagnose_run(run).remedy.splitlines()
    assert lead_s(make_plan("z3", sbatch={"signal": "B:USR1@240"})) == 300
    [(hours, minutes)] = re.findall(r"--time (\d\d):(\d\d):00 ", time)
    assert int(hours) * 3600 + int(minutes) * 60 >= 100 + 1000 * 2.0 + 300
    [fitting] = re.findall(r"--steps (\d+)  \(they fit into the 00:25:00 before the signal; 1000 were planned\)", steps)
    assert 100 + int(fitting) * 2.0 < 1500 < 100 + 1000 * 2.0


def test_a_run_that_went_on_is_counted_from_where_it_began(tmp_path: Path) -> None:
    """Steps that another run had made take none of its time, and none of what it needs again."""
    facts = {"steps_made": "900", "steps_before": "800", "step_time_s": "10", "steps_ended_s": "1200"}
    plan = make_plan("z3", time_s=1200, steps=1000)
    assert walltime(Case(plan=plan, facts=facts))[0].startswith(
        "--time 00:50:00  (1000 steps of 10 s, of which it made 900"
    )
    run = signalled(tmp_path, 500, 20, 10.0, first=801, steps=1000)
    assert diagnose_run(run).details["steps_before"] == "800"


@pytest.mark.parametrize("has_kept", [False, True])
def test_that_it_can_go_on_is_no_contradiction_to_that_a_retry_is_of_no_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_kept: bool
) -> None:
    run = signalled(tmp_path, 25, 60, 0.00822, save_every=50)
    kept = [type("Kept", (), {"step": 50})()] if has_kept else []
    monkeypatch.setattr("hpc_llm.diagnosis.own_runs.kept_in", lambda root: kept)
    assert command(["diagnose", str(run.root)]) == 0
    told = capsys.readouterr().out
    assert ("go on behind step 50" in told) is has_kept
    last = told.splitlines()[-1]
    assert last == (
        "retry as is  no: begun anew it ends so again; to go on is another thing" if has_kept else "retry as is  no"
    )


def kept(run: RunPaths, step: int) -> RunPaths:
    write_json(run.checkpoint(step) / MANIFEST, {"schema": 2, "step": step, "files": {}})
    record = json.loads(run.experiment.read_text())
    write_json(run.experiment, {**record, "asked": {"cluster": "taiwania2", "method": "z3"}})
    return run


ON_TAIWANIA = {"cluster": "taiwania2", "partition": "gtest", "save_every": 50}


def of_little_time(folder: Path) -> RunPaths:
    return kept(signalled(folder, 1500, 700, 2.0, time_s=1800, steps=10_000, **ON_TAIWANIA), 700)


def of_more_than_any_time(folder: Path) -> RunPaths:
    return kept(signalled(folder, 1500, 700, 2.0, time_s=1800, steps=1_000_000, **ON_TAIWANIA), 700)


def of_nearly_enough_time(folder: Path) -> RunPaths:
    return kept(signalled(folder, 1500, 700, 2.0, time_s=1800, steps=900, **ON_TAIWANIA), 700)


def of_little_memory(folder: Path) -> RunPaths:
    run = new_run(folder, plan={"scheduler": "slurm", **ON_TAIWANIA}, code=1)
    run.stderr.write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 31.74 GiB of which 2.00 GiB is free.\n"
    )
    return kept(run, 8)


def of_no_package(folder: Path) -> RunPaths:
    run = new_run(folder, plan={"scheduler": "slurm", **ON_TAIWANIA}, code=1)
    run.stderr.write_text("Traceback (most recent call last):\nModuleNotFoundError: No module named 'peft'\n")
    return kept(run, 8)


@pytest.mark.parametrize(
    ("made", "way"),
    [
        (of_little_time, r"with `hpc-llm submit --resume \S+ --partition gp1d --time 0[67]:\d0:00 --logs [^`]+`  \(10000 steps of 2 s"),
        (of_more_than_any_time, r"with `hpc-llm submit --resume \S+ --partition gp4d --time 4-00:00:00 --logs [^`]+`  \(no partition allows"),
        (of_nearly_enough_time, r"with `hpc-llm submit --resume \S+ --time 00:30:00 --logs [^`]+`  \(what is left"),
        (of_little_memory, r"with `hpc-llm submit --resume \S+ --micro-batch-size 2 --gradient-accumulation-steps \d --logs [^`]+`  \(a smaller"),
        (of_no_package, r"pip install peft; then, as it kept .* with `hpc-llm submit --resume \S+ --logs [^`]+`$"),
    ],
)  # fmt: skip
def test_what_was_kept_is_gone_on_with_by_one_command_that_does_not_end_so_again(
    tmp_path: Path, made: Callable[[Path], RunPaths], way: str
) -> None:
    """The same in diagnose and in what the report says is to be done."""
    run = made(tmp_path / "logs")
    remedy = diagnose_run(run).remedy
    assert re.search(way, remedy, re.MULTILINE), remedy
    assert command(["report", str(run.root), "-o", str(tmp_path / "out")]) == 0
    told = (tmp_path / "out" / "results.md").read_text().replace("\\", "")
    line = next(one for one in remedy.splitlines() if "--resume" in one)
    assert line in told.partition("To do: ")[2]


@pytest.mark.parametrize("made_before", [0, 5000])
@pytest.mark.parametrize("has_kept", [False, True])
def test_advised_steps_fit_by_the_runs_own_start_and_what_stands_between_its_steps(
    tmp_path: Path, has_kept: bool, made_before: int
) -> None:
    """A start of 400 s, then 700 steps of 1 s, each with a second for what is saved, of 1800 s; none fit that would not again."""
    asked = {"time_s": 1800, "steps": 10_000, "scheduler": "slurm", **ON_TAIWANIA}
    run = new_run(tmp_path / "logs", plan=asked, code=143, signal="TERM", time_limit_s=1800, ended_at=MOMENT + 1800)
    run.stderr.write_text(
        "slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-05-01T10:01:00 DUE TO TIME LIMIT ***\n"
    )
    rows = (
        {"step": made_before + k, "loss": 1.0, "step_time_s": 1.0, "time": MOMENT + 399 + 2 * k} for k in range(1, 701)
    )
    run.steps.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = made_before + 700 if has_kept else made_before
    if has_kept:
        kept(run, done)
    remedy = diagnose_run(run).remedy
    [line] = [one for one in remedy.splitlines() if "--steps" in one]
    [steps] = map(int, re.findall(r"--steps (\d+)", line))
    assert 1200 < 400 + 2 * (steps - done) <= 1800 and "fit into 00:30:00; 10000 were planned)" in line
    whole = rf"or with `hpc-llm submit --resume {run.run_id} --steps {steps} --logs [^`]+`  \("
    assert bool(re.match(whole, line)) is has_kept and (has_kept or line.startswith("--steps "))


def test_each_change_of_a_run_that_kept_something_is_a_whole_command(tmp_path: Path) -> None:
    for line in diagnose_run(of_little_memory(tmp_path)).remedy.splitlines():
        assert not line.startswith("--") or "peft" in line or "…" in line, line


def test_what_passes_by_itself_is_gone_on_with_as_it_was(tmp_path: Path) -> None:
    run = kept(new_run(tmp_path, plan={"scheduler": "slurm", **ON_TAIWANIA}, code=143, signal="TERM"), 8)
    run.stderr.write_text(
        "slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-05-01T10:01:00 DUE TO PREEMPTION ***\n"
    )
    first = diagnose_run(run).remedy.splitlines()[0]
    assert re.fullmatch(
        r"it kept what it had trained: go on behind step 8 with `hpc-llm submit --resume \S+ --logs [^`]+`", first
    )


def test_an_error_of_ours_is_shown_to_its_end_and_its_remedy_lets_it_speak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends in what is to be done, be that with a file or with a setting."""
    run = new_run(tmp_path)
    place = "/a/long/way/to/data" * 20
    said = f"{place}/latin.txt line 1 is not written in UTF-8. Write it anew: iconv -f LATIN1 {place}/latin.txt, and give that file."
    record = {
        "rank": 0,
        "local_rank": 0,
        "host": "gn7",
        "time": MOMENT,
        "attempt": "0",
        "type": "DataFileError",
        "message": said,
    }
    text = f'Traceback (most recent call last):\n  File "t.py", line 1, in f\nhpc_llm.errors.DataFileError: {said}\n'
    run.failure(0).parent.mkdir(parents=True, exist_ok=True)
    run.failure(0).write_text(json.dumps({**record, "traceback": text, "outcome": "FAILED"}))
    assert command(["diagnose", str(run.root)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "data_error" in told and "and give that file." in told
    assert "the file or with the setting that it names" in told and "no setting is wrong" not in told
