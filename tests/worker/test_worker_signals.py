"""SIGTERM ends the program with a record; SIGUSR1 shows where each rank stands, and the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from copied_ranks import variables_for
from tells_its_pid import told_in
from tiny_plans import make_plan, start_worker

import hpc_llm
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train

WORKER = ("-m", "hpc_llm.worker.pretrain_llm")
PROGRAM = Path(__file__).with_name("tells_its_pid.py")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def wait_for_steps(paths: RunPaths, count: int = 5) -> None:
    deadline = time.monotonic() + 200
    while not (paths.steps.exists() and paths.steps.read_text().count("\n") > count):
        assert time.monotonic() < deadline, "it does not train"
        time.sleep(0.05)


def test_sigterm_leaves_what_was_measured(tmp_path: Path, copies: Path) -> None:
    process = start_worker(tmp_path / "run", make_plan("z2", steps=100_000), *WORKER, **variables_for(copies))
    paths = RunPaths(tmp_path / "run")
    wait_for_steps(paths)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 143
    result = read_json(paths.result)
    assert result is not None
    assert result["outcome"] == "UNKNOWN"
    assert "stopped by SIGTERM after step" in result["outcome_reason"]
    assert result["measured_steps"] >= 3


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_told_of_a_run_that_was_stopped_is_what_is_written_down(
    ranks: int, tmp_path: Path, copies: Path
) -> None:
    """Steps of few milliseconds: many would end while the signal's thread writes the result, on either rank."""
    program = str(Path(__file__).with_name("slow_disk.py"))
    launch = (*TWO, program) if ranks == 2 else (program,)
    paths = RunPaths(tmp_path / "run")
    plan = make_plan("ddp", world_size=ranks, steps=100_000, micro_batch_size=1, sequence_length=16, engine="plain")
    process = start_worker(paths.root, plan, *launch, **variables_for(copies))
    wait_for_steps(paths, 50)
    for rank in told_in(paths.root, ranks):
        os.kill(rank, signal.SIGTERM)
    process.communicate(timeout=300)
    rows, result = list(read_json_lines(paths.steps)), read_json(paths.result)
    times = [row["step_time_s"] for row in rows if not row["warmup"]]
    assert result is not None and result["outcome"] == "UNKNOWN" and len(times) > 20
    assert result["step_times_s"] == times and result["measured_steps"] == len(times)
    assert (result["loss_first"], result["loss_last"]) == (rows[0]["loss"], rows[-1]["loss"])
    assert f"after step {rows[-1]['step']} of" in result["outcome_reason"] or ranks == 2
    [row] = hpc_llm.parse(paths.root)
    assert (row.measured_steps, row.loss_last) == (len(times), rows[-1]["loss"])


def test_sigusr1_shows_where_each_rank_stands_and_the_run_goes_on(tmp_path: Path, copies: Path) -> None:
    paths = RunPaths(tmp_path / "run")
    log = tmp_path / "log.err"
    plan = make_plan("z2", world_size=2, steps=40)
    process = start_worker(paths.root, plan, *TWO, str(PROGRAM), errors=log, **variables_for(copies))
    wait_for_steps(paths)
    for pid in (process.pid, *told_in(paths.root, 2)):  # torchrun's agent too, as Slurm does it
        os.kill(pid, signal.SIGUSR1)
    process.communicate(timeout=300)
    errors = log.read_text()
    assert process.returncode == 0, errors[-3000:]
    for rank in range(2):
        assert f"pretrain_llm: rank {rank} of 2 on {os.uname().nodename}, " in errors
    assert errors.count("steps done, stands at:\n") == 2
    assert errors.count("in run_steps\n") == 2
    result = read_json(paths.result)
    assert result is not None and result["outcome"] == "COMPLETED"


BEFORE_IT_LISTENS = """
import os, signal
from hpc_llm.worker import signals
signals.survive()
os.kill(os.getpid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR2)
print("goes on")
"""


def test_no_user_signal_ends_the_program_while_it_starts() -> None:
    done = subprocess.run([sys.executable, "-c", BEFORE_IT_LISTENS], capture_output=True, text=True, check=True)
    assert done.stdout == "goes on\n"
    assert 'File "<string>", line 5 in <module>' in done.stderr


STARTS_A_PROGRAM = """
import os, signal, subprocess, sys
from pathlib import Path
from tiny_plans import make_plan
from hpc_llm.records.run import RunPaths
from hpc_llm.worker import signals
from hpc_llm.worker.ranks import find_ranks
from hpc_llm.worker.result import Record
signals.survive()
signals.listen(Record(paths=RunPaths(Path(sys.argv[1])), ranks=find_ranks({}), plan=make_plan()))
program = subprocess.Popen(["sleep", "0.5"])
os.killpg(0, signal.SIGUSR1)
print("compiled", program.wait())
"""


def test_a_program_that_the_worker_runs_outlives_sigusr1(tmp_path: Path) -> None:
    """Such as a compiler, just when a run that seems to hang is asked where it stands."""
    done = subprocess.run(
        [sys.executable, "-c", STARTS_A_PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    assert done.stdout == "compiled 0\n"
    assert "pretrain_llm: rank 0 of 1 on " in done.stderr
