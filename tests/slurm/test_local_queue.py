"""Runs on this machine: one after the other, out of reach of the shell that submitted them, and ended on request."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from login_node import COMMAND, until
from made_runs import make_run, submit_local

from hpc_llm.errors import RequestError
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs import RunStatus, cancel, cancel_job, homeless, status, wait
from hpc_llm.schedulers.local import queue
from hpc_llm.schedulers.local.start import take_start
from hpc_llm.schedulers.process import describe_process, end_group, is_alive

PYTHON = str(Path(COMMAND).with_name("python"))

LEAVES_A_RECORD = """\
finish() {
  code=$?
  echo '{"schema": 1, "exit_code": '$code', "signal": '${signal:-null}', "started_at": '$SECONDS'}' > "$run/exit.json"
  exit $code
}
trap finish EXIT
trap 'signal=\\"TERM\\"; exit 143' TERM
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def new_run(logs: Path, name: str, body: str) -> RunPaths:
    script = f"#!/bin/bash\nrun={logs / name}\n{LEAVES_A_RECORD}{body}\n"
    return make_run(logs, name, {"run_id": name, "plan": {"cluster": "local", "steps": 4}}, script)


def one(run: RunPaths) -> RunStatus:
    return status([run])[0]


def started(run: RunPaths) -> None:
    until("the script runs", lambda: one(run).state == "RUNNING")


def script_process(run: RunPaths) -> dict[str, object]:
    """As its queue writes it down, which is a moment after its marks show that it runs."""
    until("the script is written down", lambda: "script" in json.loads(run.process.read_text()))
    process: dict[str, object] = json.loads(run.process.read_text())["script"]
    return process


def test_runs_of_one_submission_never_overlap(logs: Path) -> None:
    body = 'date +%s%N > "$run/from"; sleep 0.3; date +%s%N > "$run/to"'
    runs = [new_run(logs, f"r{k}", body) for k in range(3)]
    submit_local(runs)
    assert one(runs[2]).state == "PENDING"
    wait(runs)
    times = [int((run.root / name).read_text()) for run in runs for name in ("from", "to")]
    assert times == sorted(times)


def test_output_goes_to_the_run_as_on_slurm(logs: Path) -> None:
    run = new_run(logs, "r", "echo to stdout; echo to stderr >&2; exit 3")
    submit_local([run])
    state = wait([run])[0]
    assert (run.stdout.read_text(), run.stderr.read_text()) == ("to stdout\n", "to stderr\n")
    assert (state.state, state.outcome, state.exit_code) == ("FAILED", Outcome.FAILED, 3)


def test_the_script_sees_the_submitter_s_devices_and_no_other_job_s_ranks(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = 'echo "${CUDA_VISIBLE_DEVICES-unset} ${SLURM_PROCID-unset} $(env | grep -c ^SUBMITIT)"'
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    with_devices = new_run(logs, "with", show)
    submit_local([with_devices])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    without = new_run(logs, "without", show)
    submit_local([without])
    wait([with_devices, without])
    assert with_devices.stdout.read_text() == "5,6 unset 0\n"
    assert without.stdout.read_text() == "unset unset 0\n"


SUBMIT_AND_SLEEP = """
import sys, time
from pathlib import Path
from hpc_llm.records.run import RunPaths
sys.path.insert(0, TESTS)
from made_runs import submit_local
print(submit_local([RunPaths(Path(folder)) for folder in sys.argv[1:]]), flush=True)
time.sleep(60)
""".replace("TESTS", repr(str(Path(__file__).parents[1])))


def test_runs_survive_their_command_and_its_whole_process_group(logs: Path) -> None:
    runs = [new_run(logs, f"r{k}", "sleep 1; echo done") for k in range(2)]
    folders = [str(run.root) for run in runs]
    command = subprocess.Popen(
        [PYTHON, "-c", SUBMIT_AND_SLEEP, *folders], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert command.stdout is not None and command.stdout.readline().strip().isdigit()
    os.killpg(command.pid, signal.SIGKILL)
    command.wait()
    assert command.stdout.read() == ""  # and the reader of its output is not kept waiting by the queue
    wait(runs)
    assert [run.stdout.read_text() for run in runs] == ["done\n", "done\n"]


def test_cancelling_ends_the_running_script_with_all_that_it_started(logs: Path) -> None:
    running = new_run(logs, "running", 'setsid sleep 300 & echo $! > "$run/child"; sleep 300')
    waiting, last = new_run(logs, "waiting", "echo ran"), new_run(logs, "last", "echo ran")
    submit_local([running, waiting, last])
    started(running)
    until("the script has started a child", (running.root / "child").exists)
    child = describe_process(int((running.root / "child").read_text()))
    assert [done.was_over for done in cancel([running, waiting])] == [False, False]
    assert not is_alive(child) and not is_alive(script_process(running))
    states = wait([running, waiting, last])
    assert [state.outcome for state in states[:2]] == [Outcome.CANCELLED, Outcome.CANCELLED]
    assert not waiting.stdout.exists()
    assert last.stdout.read_text() == "ran\n"  # the queue goes on with the next


def test_cancelling_what_is_over_says_so(logs: Path) -> None:
    run = new_run(logs, "r", "exit 4")
    submit_local([run])
    wait([run])
    [done] = cancel([run])
    assert (done.was_over, done.outcome) == (True, "FAILED")
    assert not run.cancelled.exists()


def test_a_script_that_ignores_the_request_is_killed(logs: Path) -> None:
    run = new_run(logs, "r", "trap '' TERM; while :; do sleep 1; done")
    submit_local([run])
    started(run)
    until("it ignores SIGTERM", lambda: _ignored_signals(run) & 1 << (signal.SIGTERM - 1) != 0)
    process = script_process(run)
    assert end_group(process, grace_s=0.5)
    until("the queue has spoken for it", run.exit.exists)
    record = json.loads(run.exit.read_text())
    assert (record["exit_code"], record["signal"], record["stage"]) == (137, "KILL", "launch")
    assert one(run).outcome is Outcome.FAILED


def _ignored_signals(run: RunPaths) -> int:
    """Bit n-1 stands for signal n."""
    status = Path(f"/proc/{script_process(run)['pid']}/status").read_text()
    return int(status.split("SigIgn:")[1].split()[0], 16)


def test_a_queue_that_is_gone_leaves_no_run_alive(logs: Path) -> None:
    first, second = new_run(logs, "first", "sleep 300"), new_run(logs, "second", "true")
    controller = submit_local([first, second])
    started(first)
    script, queue = script_process(first), json.loads(first.process.read_text())["queue"]
    for pid in (int(controller), queue["pid"]):
        os.kill(pid, signal.SIGKILL)
    os.killpg(int(str(script["pid"])), signal.SIGKILL)
    until("it is noticed", lambda: all(state.is_over for state in status([first, second])))
    assert [state.outcome for state in status([first, second])] == [Outcome.UNKNOWN, Outcome.UNKNOWN]
    assert "left no record" in (one(first).reason or "")


def test_a_recycled_process_id_is_not_taken_for_the_run(logs: Path) -> None:
    run = new_run(logs, "r", "true")
    queue = submit_local([run])
    wait([run])
    until("the queue has ended", lambda: not is_alive(describe_process(int(queue))))
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    marks = json.loads(run.process.read_text())
    marks["script"]["pid"] = bystander.pid
    run.process.write_text(json.dumps(marks))
    run.exit.unlink()
    assert one(run).outcome is Outcome.UNKNOWN
    cancel([run])
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_run_whose_folder_is_gone_does_not_stop_the_queue(logs: Path) -> None:
    go = logs.parent / "go"
    first, gone, last = (
        new_run(logs, name, f"until [ -e {go} ]; do sleep 0.1; done") for name in ("first", "gone", "last")
    )
    submit_local([first, gone, last])
    started(first)
    subprocess.run(["rm", "-rf", str(gone.root)], check=True)
    go.touch()
    assert wait([first, last])[1].exit_code == 0


def test_runs_of_another_machine_are_shown_as_last_seen_and_not_touched(logs: Path) -> None:
    run = new_run(logs, "r", "sleep 300")
    queue = submit_local([run])
    started(run)
    texts = {path: path.read_text() for path in (run.process, run.job)}
    cancel([run])  # the processes of this machine would tell otherwise
    until("the queue has ended", lambda: not is_alive(describe_process(int(queue))))
    for left in (run.exit, run.cancelled):
        left.unlink()
    for path, text in texts.items():
        path.write_text(text.replace(f'"host": "{os.uname().nodename}"', '"host": "login2"'))
    state = one(run)
    assert (state.state, state.outcome) == ("RUNNING", None)
    assert "login2" in (state.reason or "")
    [refused] = cancel([run])
    assert "login2" in (refused.problem or "")


def test_submitting_waits_for_no_run_and_works_less_than_a_second(logs: Path) -> None:
    go = logs.parent / "go"
    run = new_run(logs, "r", f"until [ -e {go} ]; do sleep 0.1; done")
    before = os.times()
    submit_local([run])
    after = os.times()
    assert sum(after[:4]) - sum(before[:4]) < 1.0
    assert not one(run).is_over
    assert datetime.fromisoformat(json.loads(run.job.read_text())["submitted_at"]).tzinfo is not None
    go.touch()
    wait([run])


def test_a_script_whose_folder_was_removed_is_named_and_can_be_ended(logs: Path) -> None:
    runs = [new_run(logs, name, "sleep 300 & wait") for name in ("gone", "next")]
    queue = submit_local(runs)
    started(runs[0])
    script = script_process(runs[0])
    shutil.rmtree(runs[0].root)
    [named] = homeless(logs)
    assert (named.run_id, named.job_id) == ("gone", queue) and f"hpc-llm cancel {queue}" in named.why
    assert cancel_job(queue).problem is None and not is_alive(script)
    assert homeless(logs) == [] and not runs[0].root.exists()
    started(runs[1])
    cancel([runs[1]])
    with pytest.raises(RequestError, match="no run of job"):
        cancel_job(queue)


def test_a_removed_folder_does_not_come_back(logs: Path) -> None:
    go = logs.parent / "go"
    run = new_run(logs, "r", f"exec sh -c 'until [ -e {go} ]; do sleep 0.1; done'")
    queue = submit_local([run])
    started(run)
    shutil.rmtree(run.root)
    go.touch()
    until("the queue has ended", lambda: not is_alive(describe_process(int(queue))))
    assert not run.root.exists()


def test_a_run_that_was_made_anew_under_the_same_name_is_not_ended(logs: Path) -> None:
    waits = "#!/bin/bash\nsleep 300 & wait\n"
    run = make_run(logs, "r", {"plan": {}}, waits)
    queue = submit_local([run])
    started(run)
    script = script_process(run)
    shutil.rmtree(run.root)
    again = make_run(logs, "r", {"plan": {}}, waits)
    submit_local([again])
    started(again)
    assert cancel_job(queue).problem is None and not is_alive(script)
    assert one(again).state == "RUNNING"
    cancel([again])


def test_a_script_that_was_changed_while_it_waited_does_not_run(logs: Path) -> None:
    go = logs.parent / "go"
    runs = [
        new_run(logs, "r0", f"until [ -e {go} ]; do sleep 0.1; done"),
        new_run(logs, "r1", "true"),
        new_run(logs, "r2", "true"),
    ]
    submit_local(runs)
    runs[1].script.write_text(f"touch {logs.parent}/planted\n")
    go.touch()
    wait(runs)
    assert not (logs.parent / "planted").exists()
    record = json.loads(runs[1].exit.read_text())
    assert (record["exit_code"], record["stage"], record["reason"]) == (
        78,
        "prelude",
        "job.sh is not what was submitted",
    )
    assert [one(run).exit_code for run in (runs[0], runs[2])] == [0, 0]


@pytest.mark.parametrize("in_place", [True, False])
def test_a_script_that_is_swapped_after_it_was_checked_runs_as_it_was(
    logs: Path, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at its digest and the shell lies the start of the run, which may wait for a disk for minutes."""
    run = new_run(logs, "r", "echo as submitted")

    def take_and_swap(taken: RunPaths, uuid: str) -> bool:
        if not in_place:
            taken.script.unlink()
        taken.script.write_text("echo swapped\n")
        return take_start(taken, uuid)

    monkeypatch.setattr(queue, "take_start", take_and_swap)
    identity = json.loads(run.job.read_text())
    script = queue.QueuedScript(str(run.root), identity["uuid"], queue.digest_of(run.script.read_bytes()))
    assert queue.RunScripts((script,))() == [0]
    assert (run.stdout.read_text(), run.stderr.read_text()) == ("as submitted\n", "")


def test_a_script_that_is_changed_while_it_runs_goes_on_as_it_was(logs: Path) -> None:
    """bash reads a long script piece by piece, as it comes to them."""
    go = logs.parent / "go"
    padding = "# nothing\n" * 50_000
    run = new_run(logs, "r", f"echo $#\nuntil [ -e {go} ]; do sleep 0.1; done\n{padding}echo original")
    submit_local([run])
    started(run)
    with run.script.open("r+") as file:  # the same file, whose end is another now
        text = file.read().replace("echo original", "echo swapped!")
        file.seek(0)
        file.write(text)
    go.touch()
    wait([run])
    assert (run.stdout.read_text(), run.stderr.read_text()) == ("0\noriginal\n", "")


def test_nothing_of_the_working_directory_is_imported(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "submitit").mkdir(parents=True)
    for name in ("submitit/__init__.py", "cloudpickle.py", "hpc_llm.py"):
        (here / name).write_text("raise SystemExit('planted')\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", "") + ":/some/where")
    run = new_run(logs, "r", 'printf %s "$PYTHONPATH" > "$run/path"')
    submit_local([run])
    wait([run])
    assert one(run).exit_code == 0
    assert (run.root / "path").read_text() == os.environ["PYTHONPATH"]


def test_a_local_run_of_somebody_else_is_theirs_to_cancel(logs: Path) -> None:
    theirs, mine = (new_run(logs, name, "sleep 300 & wait") for name in ("theirs", "mine"))
    for run in (theirs, mine):
        submit_local([run])
        started(run)
    os.chown(theirs.script, 65534, 65534)
    refused, done = cancel([theirs, mine])
    assert "another user" in (refused.problem or "") and not theirs.cancelled.exists()
    assert done.problem is None and one(theirs).state == "RUNNING"
    os.chown(theirs.script, os.getuid(), os.getgid())
    cancel([theirs])


def test_who_submits_beside_a_run_is_told_of_it(logs: Path, tmp_path: Path) -> None:
    words = ["--cluster=local", "--method=z3", "--model=tiny", f"--logs={tmp_path / 'other'}", "--run-id=second"]
    run = new_run(logs, "0-neighbour", "sleep 100")  # the first three by name are told, whatever else runs here
    submit_local([run])
    started(run)
    done = subprocess.run([COMMAND, "submit", *words], capture_output=True, text=True, check=False)
    cancel([RunPaths(tmp_path / "other" / "second"), run])
    assert done.returncode == 0, done.stderr
    [said] = [line for line in done.stderr.splitlines() if "under way on this machine" in line]
    assert "0-neighbour" in said and str(tmp_path / "other") not in said
