"""What Slurm itself does to a job, and what status makes of it: with accounting, with the queue alone, with neither."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from checkout import ROOT
from login_node import COMMAND, job_id, printed, until
from made_runs import make_run, send_job, send_runs
from scratch_slurm import ScratchSlurm

from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.records.run import ARRAY, Outcome, RunPaths
from hpc_llm.runs import RunStatus, cancel, status, wait
from hpc_llm.schedulers import new_run_id
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.runs import read_identity
from hpc_llm.schedulers.slurm.records import SACCT_DELIMITER, SACCT_FIELDS

pytestmark = pytest.mark.slurm

LEAVES_A_RECORD = """\
finish() { code=$?; echo '{"schema": 1, "exit_code": '$code', "signal": null, "stage": "done"}' > "$run/exit.json"; exit $code; }
trap finish EXIT
"""


class Bench:
    """Runs whose scripts are a few lines of shell."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._rng = random.Random()
        self._taken: list[str] = []

    def run(self, body: str, *flags: str, partition: str = "gtest") -> RunPaths:
        """A submitted run; `$run` is its folder."""
        run_id = self._run_id()
        script = self._script(self.logs / run_id, ("-p", partition, *flags), f"run={self.logs / run_id}\n{body}")
        return send_job(self.logs, run_id, {"run_id": run_id, "plan": {"cluster": "scratch", "steps": 4}}, script)

    def array(self, count: int, body: str, *flags: str) -> list[RunPaths]:
        """Runs that are one job array."""
        name = self._run_id()
        folder = self.logs / f".array-{name}"
        own = f"run=$(readlink -f {folder}/$SLURM_ARRAY_TASK_ID)"
        script = self._script(folder / "%a", (f"--array=0-{count - 1}", *flags), f"{own}\n{body}")
        return send_runs(self.logs, [(i, {"run_id": i}) for i in [self._run_id() for _ in range(count)]], script, name)

    def _run_id(self) -> str:
        self._taken.append(new_run_id("scratch", "z3", "tiny", datetime.now(), self._rng, self._taken))
        return self._taken[-1]

    @staticmethod
    def _script(folder: Path, flags: Sequence[str], body: str) -> str:
        """As a real one it says first where it runs: of a host's own files none is late."""
        where, _, rest = body.partition("\n")
        body = (
            f'{where}\necho \'{{"host": "\'$(hostname)\'", "time": \'$(date +%s)\'}}\' >> "$run/started.jsonl"\n{rest}'
        )
        header = "".join(f"#SBATCH {flag}\n" for flag in (" ".join(flags), "--time=00:05:00", "--mem=100M"))
        return f"#!/bin/bash\n{header}#SBATCH -o {folder}/log.out\n#SBATCH -e {folder}/log.err\n{body}\n"


@pytest.fixture
def bench(on_cluster: ScratchSlurm, tmp_path: Path) -> Bench:
    return Bench(tmp_path / "logs")


def identity_of(run: RunPaths) -> Identity:
    identity = read_identity(run)
    assert identity is not None
    return identity


def one(run: RunPaths) -> RunStatus:
    return status([run])[0]


def ended(run: RunPaths) -> RunStatus:
    return wait([run])[0]


def running(run: RunPaths) -> None:
    until("the job runs", lambda: one(run).state == "RUNNING")


def test_a_script_that_is_killed_has_failed(bench: Bench) -> None:
    state = ended(bench.run("kill -9 $$"))
    assert (state.state, state.outcome, state.exit_code) == ("FAILED", Outcome.FAILED, 137)
    assert state.reason == "ended by SIGKILL"


def test_nobody_knows_what_became_of_a_script_that_succeeds_without_a_result(bench: Bench) -> None:
    state = ended(bench.run(LEAVES_A_RECORD))
    assert (state.outcome, state.exit_code) == (Outcome.UNKNOWN, 0)
    assert state.reason == "the job ended with exit code 0 and left no result"


def test_memory_that_slurm_takes_back_is_an_oom_of_the_host(bench: Bench) -> None:
    hungry = "python3 -c 'import time; block = bytearray(400 << 20); time.sleep(60)'"
    state = ended(bench.run(f"srun {hungry}", "--mem=50M"))
    assert state.outcome is Outcome.OOM_HOST, printed(RunPaths(bench.logs / state.run_id))


def test_a_node_that_dies_ends_the_run_unless_slurm_starts_it_again(bench: Bench, slurm: ScratchSlurm) -> None:
    last = bench.run("sleep 300", "--no-requeue", partition="gpuA100x8")
    again = bench.run(f"{LEAVES_A_RECORD}\n[ -z $SLURM_RESTART_COUNT ] || exit 7\nsleep 300", partition="gpuA100x8")
    running(last)
    running(again)
    slurm.crash_node("delta8")
    assert ended(last).outcome is Outcome.NODE_FAIL
    assert "delta8" in (one(last).reason or "")
    waiting = one(again)
    assert (waiting.state, waiting.outcome) == ("PENDING", None)
    slurm.bring_back("delta8")
    state = ended(again)
    assert (state.outcome, state.exit_code) == (Outcome.FAILED, 7)


@pytest.mark.parametrize("accounting", [True, False], ids=["accounting", "none"])
def test_a_job_whose_folder_is_renamed_while_it_waits_is_told_before_it_fails_and_after(
    bench: Bench, slurm: ScratchSlurm, accounting: bool, request: pytest.FixtureRequest
) -> None:
    if not accounting:
        request.getfixturevalue("without_accounting")
    run = bench.run(LEAVES_A_RECORD, "--hold")
    there = one(run)
    assert there.state == "PENDING" and (there.reason or "").startswith("JobHeldUser: it is held")
    bench.logs.rename(bench.logs.parent / "logs-2026")
    moved = RunPaths(bench.logs.parent / "logs-2026" / run.run_id)
    waits = one(moved)
    assert waits.state == "PENDING" and (waits.reason or "").startswith("its job will fail"), waits.reason
    assert str(run.root) in (waits.reason or "") and f"`hpc-llm cancel {run.run_id}" in (waits.reason or "")
    slurm.run("scontrol", "release", job_id(moved))
    state = ended(moved)
    assert state.outcome is Outcome.FAILED and "the output file could not be opened" in (state.reason or "")
    assert str(run.root) in (state.reason or "")


def test_a_folder_that_holds_no_more_files_is_told(
    bench: Bench, slurm: ScratchSlurm, without_accounting: ScratchSlurm
) -> None:
    """slurmd cannot make the output file: a directory of that name stands there, as no file can be made where a quota is full."""
    run = bench.run(LEAVES_A_RECORD, "--hold")
    run.stdout.mkdir()
    slurm.run("scontrol", "release", job_id(run))
    state = ended(run)
    assert (state.state, state.outcome) == ("FAILED", Outcome.FAILED)
    assert "or no file can be made there" in (state.reason or "")


def test_a_job_that_makes_room_was_preempted(bench: Bench) -> None:
    all_of_it = ("--nodes=2", "--gpus-per-node=4")
    meek = bench.run("srun sleep 300", *all_of_it, partition="gpuA100x4-preempt")
    running(meek)
    strong = bench.run(LEAVES_A_RECORD, *all_of_it, partition="gpuA100x4")
    assert ended(meek).outcome is Outcome.PREEMPTED
    assert ended(strong).outcome is Outcome.UNKNOWN  # it leaves no result


def test_a_job_cancelled_by_somebody_else_is_cancelled(bench: Bench, slurm: ScratchSlurm) -> None:
    run = bench.run("sleep 300")
    running(run)
    slurm.run("scancel", job_id(run))
    state = ended(run)
    assert (state.outcome, state.reason) == (Outcome.CANCELLED, "cancelled, and nothing in its folder says by whom")


def test_every_task_of_an_array_prints_into_its_own_run(bench: Bench) -> None:
    body = "echo task $SLURM_ARRAY_TASK_ID; [ $SLURM_ARRAY_TASK_ID != 3 ] || kill -9 $$"
    runs = bench.array(5, f"{LEAVES_A_RECORD}{body}")
    states = wait(runs)
    assert [run.stdout.read_text() for run in runs] == [f"task {k}\n" for k in range(5)]
    assert [state.exit_code for state in states] == [0, 0, 0, 137, 0]
    assert [state.job_id for state in states] == [f"{str(states[0].job_id)[:-2]}_{k}" for k in range(5)]


def test_what_slurm_says_about_a_task_stands_in_its_run_s_log(bench: Bench, slurm: ScratchSlurm) -> None:
    first, second = bench.array(2, "sleep 300")
    running(first)
    running(second)
    cancel([second])
    assert ended(second).outcome is Outcome.CANCELLED
    # slurmstepd may write it after the controller knows of the end.
    until("the task's log tells of it", lambda: "CANCELLED" in second.stderr.read_text())
    assert one(first).state == "RUNNING" and first.stderr.read_text() == ""
    cancel([first])


def test_pending_runs_say_why(bench: Bench) -> None:
    run = bench.run("true", "--hold")
    state = one(run)
    assert (state.state, state.outcome, state.started_at) == ("PENDING", None, None)
    assert (
        f"JobHeldUser: it is held, and waiting does not help: release it: scontrol release {job_id(run)}"
        == state.reason
    )
    assert cancel([run])[0].was_over is False
    assert ended(run).outcome is Outcome.CANCELLED
    assert cancel([run])[0].was_over is True


def test_a_final_answer_is_kept_when_slurm_has_forgotten(
    bench: Bench, without_answers: ScratchSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", without_answers.environ["PATH"])
    run = bench.run("exit 3")
    before = ended(run)
    monkeypatch.setenv("PATH", "/nowhere")
    assert one(run) == before


def test_without_accounting_the_queue_tells(bench: Bench, without_accounting: ScratchSlurm) -> None:
    held = bench.run("true", "--hold")
    alive = bench.run("sleep 300")
    failed = bench.run(f"{LEAVES_A_RECORD}exit 3")
    killed = bench.run("kill -9 $$")
    running(alive)
    assert one(held).state == "PENDING"
    assert (ended(failed).outcome, one(failed).exit_code) == (Outcome.FAILED, 3)
    assert ended(killed).outcome is Outcome.FAILED
    cancel([alive, held])
    assert [state.outcome for state in wait([alive, held])] == [Outcome.CANCELLED, Outcome.CANCELLED]


def test_with_neither_the_run_s_own_record_tells(bench: Bench, without_answers: ScratchSlurm) -> None:
    failed, held = bench.run(f"{LEAVES_A_RECORD}exit 3"), bench.run("true", "--hold")
    assert (ended(failed).outcome, one(failed).exit_code) == (Outcome.FAILED, 3)
    unknown = one(held)
    assert (unknown.state, unknown.outcome) == ("UNKNOWN", None)
    assert "Slurm accounting storage is disabled" in (unknown.reason or "")
    cancel([held])


def test_a_job_that_slurm_has_forgotten_is_unknown_after_a_while(bench: Bench) -> None:
    run = bench.run("true", "--hold")
    record = json.loads(run.job.read_text())
    run.job.write_text(json.dumps({**record, "job_id": "999999"}))
    early, late = one(run), status([run], now=datetime.now().timestamp() + 3600)[0]
    assert (early.state, early.outcome) == ("PENDING", None)
    assert (late.state, late.outcome) == ("UNKNOWN", Outcome.UNKNOWN)
    assert "no longer knows job 999999" in (late.reason or "")


def test_a_refused_script_leaves_neither_run_nor_array(bench: Bench) -> None:
    with pytest.raises(SubmissionError, match="Invalid account"):
        bench.run("true", "--account=nobody")
    with pytest.raises(SubmissionError, match=r"sbatch refused the job: .*Invalid account"):
        bench.array(3, "true", "--account=nobody")
    for ask in (bench.run, partial(bench.array, 2)):  # which Slurm lists as failed before it began
        with pytest.raises(SubmissionError, match=r"sbatch refused the job: .*not available"):
            ask("true", "--tmp=999T")
    assert list(bench.logs.glob("[!.]*")) == []
    assert list(bench.logs.glob(".array-*")) == []


def test_an_array_never_takes_the_place_of_another(bench: Bench) -> None:
    first = bench.array(2, "true", "--hold")
    [folder] = bench.logs.glob(".array-*")
    with pytest.raises(RequestError, match="already a job array"):
        send_runs(bench.logs, [("second-0", {}), ("second-1", {})], "x", folder.name.removeprefix(ARRAY))
    assert list(bench.logs.glob("second-*")) == []
    assert (folder / "0").resolve() == first[0].root.resolve()
    cancel(first)


SUBMIT_AND_DIE = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from made_runs import send_runs
logs, array = Path(sys.argv[1]), sys.argv[2] == "array"
text = "#!/bin/bash\\n#SBATCH --hold" + (" --array=0-1" if array else "") + " -o /dev/null\\ntrue\\n"
send_runs(logs, [(f"run-{k}", {"run_id": f"run-{k}"}) for k in range(2 if array else 1)], text, "a" if array else None)
"""


@pytest.mark.parametrize("kind", ["single", "array"])
def test_a_command_killed_while_sbatch_works_loses_no_job(
    on_cluster: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The window in which Slurm has the job and nothing of ours has its id yet, held open by a slow sbatch."""
    slow = tmp_path / "slow" / "sbatch"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\ntouch "$0.asked"\nsleep 1\nexec /usr/bin/sbatch "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    logs = tmp_path / "logs"
    command = subprocess.Popen(
        [Path(COMMAND).with_name("python"), "-c", SUBMIT_AND_DIE, str(logs), kind, str(ROOT / "tests")]
    )
    until("sbatch was asked", Path(f"{slow}.asked").exists)
    command.send_signal(signal.SIGKILL)
    command.wait()
    runs = [RunPaths(folder) for folder in sorted(logs.glob("run-*"))]
    until("the job is known all the same", lambda: all(identity_of(run).job_id for run in runs))
    assert [state.state for state in status(runs)] == ["PENDING"] * len(runs)
    ids = [job_id(run) for run in runs]
    assert [("_" in each) for each in ids] == [kind == "array"] * len(runs)
    cancel(runs)
    assert {state.outcome for state in wait(runs)} == {Outcome.CANCELLED}


def test_a_command_killed_before_sbatch_leaves_a_run_that_is_not_alive(bench: Bench) -> None:
    run = make_run(bench.logs, "never", {"run_id": "never"}, "true", "slurm")
    assert (one(run).state, one(run).outcome) == ("SUBMITTING", None)  # this process has made it, and lives
    died = subprocess.Popen(["true"])
    record = json.loads(run.job.read_text())
    died.wait()
    run.job.write_text(json.dumps({**record, "submitter": {**record["submitter"], "pid": died.pid}}))
    assert one(run).outcome is Outcome.UNKNOWN
    assert (one(run).reason or "").startswith("it never became a job: ")


def test_a_killed_wait_does_not_end_the_job(bench: Bench) -> None:
    run = bench.run("sleep 300")
    running(run)
    waiting = "import sys; from pathlib import Path; from hpc_llm.records.run import RunPaths; from hpc_llm.runs import wait\n"
    waiting += "print('waits', flush=True); wait([RunPaths(Path(sys.argv[1]))])"
    words = [Path(COMMAND).with_name("python"), "-c", waiting, str(run.root)]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None and command.stdout.readline() == "waits\n"
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(timeout=1)
    command.kill()
    command.communicate()
    assert one(run).state == "RUNNING"
    cancel([run])


def test_an_end_that_the_queue_lists_counts_though_accounting_calls_the_job_running(
    bench: Bench, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the daemon of accounting lost what came late: sacct says for ever what it said while the job ran."""
    run = bench.run("sleep 5; exit 3")
    said = tmp_path / "said"
    fields = ["--duplicates", "--parsable2", f"--delimiter={SACCT_DELIMITER}", f"--format={SACCT_FIELDS}"]

    def accounting_has_it_as_running() -> bool:
        said.write_text(slurm.run("sacct", "-j", job_id(run), *fields))
        return "RUNNING" in said.read_text()

    until("accounting has it as running", accounting_has_it_as_running)
    clients = tmp_path / "clients"
    clients.mkdir()
    (clients / "sacct").write_text(f"#!/bin/sh\ncat {said}\n")
    (clients / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(clients), prepend=os.pathsep)
    assert status([run])[0].state == "RUNNING"
    until("the queue lists its end", lambda: status([run])[0].state == "FAILED")
    assert status([run])[0].outcome is Outcome.FAILED
