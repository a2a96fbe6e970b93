"""Local runs whose queue, submitter, folder or disk fails them: none is lost, run twice, or taken for another."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from login_node import COMMAND, until, until_dead
from made_runs import make_run, submit_local
from rights import mounted, mounted_again, needs_root
from small_disk import SmallDisk

from hpc_llm.api.answers import diagnose
from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.records.files import read_json
from hpc_llm.records.run import NO_EXIT_WRITTEN, Outcome, RunPaths
from hpc_llm.runs import (
    Deed,
    RunStatus,
    cancel,
    cancel_job,
    cancel_orphan,
    homeless,
    make_way,
    reconcile,
    send,
    status,
    wait,
)
from hpc_llm.runs.adoption import Standing, standings
from hpc_llm.schedulers import NewRun, Submission, create_runs, process
from hpc_llm.schedulers.local.marks import end_run, living
from hpc_llm.schedulers.local.start import revoke_start, take_start
from hpc_llm.schedulers.process import describe_process, is_alive

LEAVES_A_RECORD = """\
run=$HPC_LLM_RUN_DIR
echo began >> "$HPC_LLM_RUN_DIR/../began-$(basename "$run")"
trap 'echo "{\\"schema\\": 1, \\"exit_code\\": $?}" > "$run/exit.json"' EXIT
trap 'exit 143' TERM
"""
UNTIL_TOLD = 'until [ -e "$run/../go" ]; do sleep 0.05; done'


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs"
    for one in living().found:  # whatever a test that failed has left
        if tmp_path in one.folder.parents or str(tmp_path) in str(one.process):
            end_run(one.uuid, one.folder.name, grace_s=0.5)
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)  # one that is stopped hears nothing else


def sweep(logs: Path, names: str, body: str = "true") -> tuple[Submission, list[RunPaths]]:
    """Runs of one request whose command has died before it submitted them."""
    submission = Submission(scheduler="local", sweep=uuid.uuid4().hex)
    new = [
        NewRun(run_id=name, experiment={"run_id": name, "plan": {"cluster": "local"}}, script=script(body))
        for name in names.split()
    ]
    [runs] = create_runs(logs, [(submission, new)])
    (runs[0].root / ".claim").unlink()
    for run in runs:
        record = json.loads(run.job.read_text())
        run.job.write_text(json.dumps({**record, "submitter": {**record["submitter"], "pid": 2**22 + 1}}))
    return submission, runs


def script(body: str) -> str:
    return f"#!/bin/bash\n{LEAVES_A_RECORD}{body}\n"


def lives(pid: int) -> bool:
    return is_alive(describe_process(pid))


def uuid_of(run: RunPaths) -> str:
    return str(json.loads(run.job.read_text())["uuid"])


def diagnosed(run: RunPaths) -> tuple[str, float]:
    """The cause, and how sure it is."""
    [found] = diagnose([run.root])
    return found.cause.id, found.confidence


def one(run: RunPaths) -> RunStatus:
    return status([run])[0]


def begun(run: RunPaths) -> int:
    """How often its script was started."""
    file = run.root.parent / f"began-{run.run_id}"
    return len(file.read_text().splitlines()) if file.exists() else 0


def go(logs: Path) -> None:
    (logs / "go").touch()


def started(run: RunPaths) -> None:
    until("the script runs", lambda: one(run).state == "RUNNING" and begun(run) == 1)


def queue_of(run: RunPaths) -> list[int]:
    return [each.pid for each in living().found if each.is_queue_of(uuid_of(run))]


def kill_queue(run: RunPaths) -> None:
    queue = queue_of(run)
    for pid in queue:
        os.kill(pid, signal.SIGKILL)
    until_dead(queue)


@contextmanager
def submitting(
    runs: list[RunPaths], patch: str, deed: str = "print(made_runs.submit_local(runs), flush=True)"
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that submits, with something done to it on the way."""
    program = (
        "import os, signal, sys; from pathlib import Path; from hpc_llm.records.run import RunPaths; import hpc_llm.schedulers.local.submit as local; "
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r}); import made_runs; "
        f"{patch}; runs = [RunPaths(Path(each)) for each in sys.argv[1:]]; {deed}"
    )
    command = [sys.executable, "-c", program, *(str(run.root) for run in runs)]
    with subprocess.Popen(command, stdout=-1) as process:
        yield process
        process.kill()


def child_of(process: subprocess.Popen[bytes]) -> int:
    found: list[int] = []

    def is_stopped() -> bool:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        found[:] = [
            int(pid) for pid in text if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        ]
        return bool(found)

    until("its other half is stopped", is_stopped)
    return found[0]


STOPPED_BEFORE = "real = local.{0}; local.{0} = lambda *given: (os.kill(os.getpid(), signal.SIGSTOP), real(*given))[1]"


def test_a_queue_starts_no_run_that_was_made_anew_under_its_name(logs: Path) -> None:
    _, [first, second] = sweep(logs, "first second", UNTIL_TOLD)
    submit_local([first, second])
    started(first)
    queue = queue_of(first)
    shutil.rmtree(second.root)
    again = make_run(logs, "second", {"plan": {}}, script(UNTIL_TOLD))
    submit_local([again])
    started(again)
    go(logs)
    until("the first queue has ended", lambda: not any(map(lives, queue)))
    wait([first, again])
    assert (begun(again), one(again).exit_code) == (1, 0)


def test_who_submits_goes_on_when_its_command_is_killed_and_nobody_else_begins(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1", UNTIL_TOLD)
    with submitting(runs, STOPPED_BEFORE.format("_start_queue")) as command:
        half = child_of(command)
        command.kill()
    assert {found.standing for found in standings(runs)} == {Standing.ASKING}
    assert {found.deed for found in reconcile(runs)} == {Deed.LEFT}
    assert {state.state for state in status(runs)} == {"SUBMITTING"}
    with pytest.raises(RequestError, match="already a run r1"):
        make_way(logs, ["r1"])
    os.kill(half, signal.SIGCONT)
    started(runs[0])
    assert one(runs[1]).state == "PENDING" and reconcile(runs) == []
    go(logs)
    wait(runs)
    assert [begun(run) for run in runs] == [1, 1]


def test_who_submits_again_goes_on_when_its_command_is_killed(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1", UNTIL_TOLD)
    submit_local(runs)
    started(runs[0])
    kill_queue(runs[0])
    cancel(runs[:1])
    again = "from hpc_llm.runs import reconcile; reconcile(runs)"
    with submitting(runs[1:], STOPPED_BEFORE.format("_start_queue"), again) as command:
        half = child_of(command)
        command.kill()
    assert standings(runs)[1].standing is Standing.ASKING and reconcile(runs)[0].deed is Deed.LEFT
    os.kill(half, signal.SIGCONT)
    started(runs[1])
    go(logs)
    assert wait(runs)[1].exit_code == 0 and begun(runs[1]) == 1


def test_a_command_that_is_killed_before_it_names_its_other_half_starts_nothing(logs: Path) -> None:
    _, runs = sweep(logs, "r")
    with submitting(runs, STOPPED_BEFORE.format("_hand_over")) as command:
        until("it is stopped", lambda: Path(f"/proc/{command.pid}/stat").read_text().split()[2] == "T")
        command.kill()
    until("nobody is at it", lambda: standings(runs)[0].standing is Standing.NOTHING)
    assert [found.deed for found in reconcile(runs)] == [Deed.CLEARED]
    assert not runs[0].root.exists() and begun(runs[0]) == 0


@pytest.mark.parametrize("moment", ["record_job", "_mark_as_queue"])
def test_an_other_half_that_is_killed_leaves_one_truth(logs: Path, moment: str) -> None:
    """Before the queue is started the command is told so, and nothing is; after that it is, and has its number."""
    _, runs = sweep(logs, "r")
    kill = f"local.{moment} = lambda *given: os.kill(os.getpid(), signal.SIGKILL)"
    with submitting(runs, kill) as command:
        told, _ = command.communicate()
    if moment == "record_job":
        assert told.strip().isdigit()
        [state] = wait(runs)
        assert (state.job_id, state.exit_code, begun(runs[0])) == (told.decode().strip(), 0, 1)
    else:
        assert (told, command.returncode) == (b"", 1)
        assert standings(runs)[0].standing is Standing.NOTHING


def signal_queue(run: RunPaths, number: signal.Signals) -> None:
    for pid in queue_of(run):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def revoked_from_a_stopped_queue(logs: Path) -> RunPaths:
    """A run whose queue was stopped before it took it, which it may do before it can be stopped."""
    for number in range(20):
        _, [run] = sweep(logs, f"r{number}")
        submit_local([run])
        signal_queue(run, signal.SIGSTOP)
        state, found = one(run).state, reconcile([run])
        if revoke_start(run, uuid_of(run)):
            assert state == "PENDING" and found == []  # it is only slow
            return run
        signal_queue(run, signal.SIGCONT)
        wait([run])
    raise AssertionError("no queue was stopped in time")


def test_a_queue_that_wakes_up_late_does_not_start_what_was_given_to_another(logs: Path) -> None:
    run = revoked_from_a_stopped_queue(logs)
    assert not take_start(run, uuid_of(run))
    queue = queue_of(run)
    signal_queue(run, signal.SIGCONT)
    until_dead(queue)
    assert begun(run) == 0
    [again] = reconcile([run])
    assert again.deed is Deed.SUBMITTED
    assert wait([run])[0].exit_code == 0 and begun(run) == 1


def test_of_many_that_start_a_run_one_does(logs: Path) -> None:
    _, [run] = sweep(logs, "r")
    won: list[bool] = []
    racers = [threading.Thread(target=lambda: won.append(take_start(run, uuid_of(run)))) for _ in range(20)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(won) == [False] * 19 + [True]


def test_the_next_run_of_a_dead_queue_waits_for_the_script_that_goes_on(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1 r2", UNTIL_TOLD)
    submit_local(runs)
    started(runs[0])
    kill_queue(runs[0])
    assert one(runs[0]).state == "RUNNING"
    left = reconcile(runs)
    assert [(found.run_id, found.deed) for found in left] == [("r1", Deed.LEFT), ("r2", Deed.LEFT)]
    assert "run r0 of the same request" in left[0].why and runs[1].root.exists()
    assert reconcile(runs[1:])[0].deed is Deed.LEFT  # though nobody names the one that runs
    go(logs)
    until("the script has ended", runs[0].exit.exists)
    until("it is gone", lambda: not living().of_run(uuid_of(runs[0]), "r0"))
    assert f"`hpc-llm reconcile --logs {logs}` submits it again" in (one(runs[1]).reason or "")
    assert [found.deed for found in reconcile(runs)] == [Deed.SUBMITTED, Deed.SUBMITTED]
    wait(runs)
    assert [begun(run) for run in runs] == [1, 1, 1] and [one(run).exit_code for run in runs] == [0, 0, 0]


def test_a_run_whose_queue_is_gone_can_be_given_up(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1", UNTIL_TOLD)
    submit_local(runs)
    started(runs[0])
    kill_queue(runs[0])
    assert [(done.problem, done.was_over) for done in cancel(runs)] == [(None, False), (None, False)]
    assert not living().of_run(uuid_of(runs[0]), "r0")
    assert reconcile(runs) == [] and one(runs[1]).outcome is Outcome.CANCELLED and begun(runs[1]) == 0


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_run_whose_processes_nobody_could_write_down_is_known_and_ended(logs: Path, is_damaged: bool) -> None:
    _, [first, second] = sweep(logs, "first second", UNTIL_TOLD)
    for run in (first, second):
        run.process.mkdir(parents=True)
        (run.process / "in the way").touch()
    submit_local([first, second])
    started(first)
    if is_damaged:
        shutil.rmtree(first.process)
        first.process.write_text('{"queue": 1, "script": {"pid": "x"}}')
    assert [state.state for state in status([first, second])] == ["RUNNING", "PENDING"]
    assert reconcile([first, second]) == []
    assert cancel([first])[0].problem is None
    assert not living().of_run(uuid_of(first), "first") and one(first).outcome is Outcome.CANCELLED
    started(second)
    go(logs)
    assert wait([second])[0].exit_code == 0 and begun(first) == 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", "4m") as small:
        yield small


def test_a_disk_that_is_full_for_a_moment_costs_no_run(disk: SmallDisk) -> None:
    """Full when a script starts, runs and ends: nothing of that can be written down."""
    logs = disk.folder / "logs"
    go_file = disk.folder.parent / "go"
    body = f"until [ -e {go_file} ]; do sleep 0.05; done; sleep 0.2; exit 3"
    runs = [make_run(logs, f"r{k}", {"plan": {}}, f"#!/bin/bash\n{body}\n") for k in range(2)]
    submit_local(runs)
    until("it runs", lambda: one(runs[0]).state == "RUNNING")
    runs[0].process.unlink()
    disk.fill()
    assert [state.state for state in status(runs)] == ["RUNNING", "PENDING"]
    assert reconcile(runs) == []
    go_file.touch()
    until("its script has ended", lambda: not living().of_run(uuid_of(runs[0]), "r0"))
    time.sleep(1.5)
    assert one(runs[0]).outcome is None and queue_of(runs[0])
    disk.make_room()
    assert [state.exit_code for state in wait(runs)] == [3, 3]


@pytest.mark.parametrize("is_script_known", [True, False])
def test_a_run_whose_script_had_no_room_for_its_last_word_says_so(disk: SmallDisk, is_script_known: bool) -> None:
    """The script has begun its record and given up; what it began goes where the queue's takes its place.

    The disk may have been full before the queue wrote which process the script is.
    """
    logs = disk.folder / "logs"
    go_file = disk.folder.parent / "go"
    body = f"until [ -e {go_file} ]; do sleep 0.05; done; echo end > $HPC_LLM_RUN_DIR/.exit.json.1.2; exit 3"
    run = make_run(logs, "r", {"plan": {}}, f"#!/bin/bash\n{body}\n")
    submit_local([run])
    until("its queue wrote which process it is", lambda: "script" in (read_json(run.process) or {}))
    if not is_script_known:
        run.write(
            run.process, {name: value for name, value in (read_json(run.process) or {}).items() if name != "script"}
        )
    assert one(run).state == "RUNNING"
    script = [each.pid for each in living().of_run(uuid_of(run), "r")]
    disk.fill()
    go_file.touch()
    until_dead(script)
    ending = one(run)
    assert ending.state == "ENDING" and f"the file system of {run.root} is full" in (ending.reason or "")
    [told] = diagnose(run.root)
    assert "is full" in told.summary and "make room on it" in told.remedy and "--watch" not in told.remedy
    disk.make_room()
    ended = wait([run])[0]
    assert (ended.exit_code, ended.outcome) == (3, Outcome.FAILED)
    cause, confidence = diagnosed(run)
    assert (ended.reason, cause) == (NO_EXIT_WRITTEN, "disk_full") and confidence < 0.65  # a guess
    assert not run.half_exits()


def test_a_submission_that_a_full_disk_prevents_is_refused_and_starts_nothing(disk: SmallDisk) -> None:
    submission, [run] = sweep(disk.folder / "logs", "r")
    disk.fill()
    with pytest.raises(SubmissionError, match="could not be started"):
        send(submission, [run], run.script.read_text(), keep=True)
    assert run.script.exists() and not queue_of(run)
    disk.make_room()
    assert standings([run])[0].standing is Standing.NOTHING and "never became a job" in (one(run).reason or "")


def test_a_resubmission_that_fails_keeps_the_runs(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1", UNTIL_TOLD)
    submit_local(runs)
    started(runs[0])
    kill_queue(runs[0])
    cancel(runs[:1])
    shutil.rmtree(runs[1].submitit)
    runs[1].submitit.write_text("in the way")
    [left] = reconcile(runs)
    assert left.deed is Deed.LEFT and "cannot be written" in left.why and runs[1].script.exists()
    runs[1].submitit.unlink()
    (logs.parent / "other name").symlink_to(logs)
    elsewhere = [RunPaths(logs.parent / "other name" / run.run_id) for run in runs]
    assert [found.deed for found in reconcile(elsewhere)] == [Deed.SUBMITTED]
    go(logs)
    assert wait(runs)[1].exit_code == 0 and begun(runs[1]) == 1


LEAVES_A_RANK = 'setsid sleep 300 & disown; echo $! > "$run/rank"; sleep 0.2'


def test_what_a_script_leaves_behind_ends_before_the_next_one_starts(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1", f'[ "$(basename "$run")" = r0 ] || exit 0; {LEAVES_A_RANK}')
    submit_local(runs)
    wait(runs)
    assert not lives(int((runs[0].root / "rank").read_text()))


def test_ranks_that_outlive_their_script_and_its_queue_are_seen_and_ended(logs: Path) -> None:
    _, runs = sweep(logs, "r0 r1", f"{LEAVES_A_RANK}; sleep 300")
    submit_local(runs)
    started(runs[0])
    until("it has a rank", lambda: (runs[0].root / "rank").exists() and (runs[0].root / "rank").read_text())
    rank = int((runs[0].root / "rank").read_text())
    until("the rank outlives its script", lambda: os.getsid(rank) == rank)
    kill_queue(runs[0])
    [script_of_run, *_] = living().of_run(uuid_of(runs[0]), "r0")
    os.killpg(script_of_run.pid, signal.SIGKILL)
    until("it is gone", lambda: not is_alive(script_of_run.process))
    state = one(runs[0])
    assert state.state == "RUNNING" and f"process {rank}" in (state.reason or "")
    assert reconcile(runs[1:])[0].deed is Deed.LEFT  # the machine is not free
    assert cancel(runs[:1])[0].problem is None and not lives(rank)
    assert one(runs[0]).outcome is Outcome.CANCELLED


def test_a_name_is_not_used_again_while_the_script_of_a_removed_run_goes_on(logs: Path) -> None:
    _, [run] = sweep(logs, "r", UNTIL_TOLD)
    queue = submit_local([run])
    started(run)
    shutil.rmtree(run.root)
    with pytest.raises(RequestError, match=f"`hpc-llm cancel {queue}`"):
        make_way(logs, ["r"])
    (logs.parent / "other name").symlink_to(logs)
    assert [found.run_id for found in homeless(logs.parent / "other name")] == ["r"]
    done = cancel_orphan("r", logs)
    assert done is not None and (done.problem, done.run_id) == (None, "r")
    assert cancel_orphan("r", logs) is None
    make_way(logs, ["r"])


def test_a_copy_of_a_run_does_not_end_it(logs: Path) -> None:
    _, [run] = sweep(logs, "r", UNTIL_TOLD)
    submit_local([run])
    started(run)
    shutil.copytree(logs, logs.parent / "copy")
    [refused] = cancel([RunPaths(logs.parent / "copy" / "r")])
    assert f"a copy of run {run.root}" in (refused.problem or "") and one(run).state == "RUNNING"
    renamed = RunPaths(logs / "s")
    shutil.copytree(run.root, renamed.root)
    renamed.experiment.write_text(json.dumps({**json.loads(run.experiment.read_text()), "run_id": "r"}))
    record = json.loads(run.job.read_text())
    renamed.job.write_text(json.dumps({**record, "run_id": "s", "run_dir": str(renamed.root)}))
    [refused] = cancel([renamed])
    assert refused.problem == "its folder is a copy of run r: cancel that" and one(run).state == "RUNNING"
    assert "a copy of run r" in (one(renamed).reason or "")
    shutil.rmtree(renamed.root)
    os.rename(logs, logs.parent / "moved")
    shutil.rmtree(logs.parent / "copy")
    moved = RunPaths(logs.parent / "moved" / "r")
    assert one(moved).state == "RUNNING" and cancel([moved])[0].problem is None
    assert not living().of_run(uuid_of(moved), "r")


def test_a_run_is_itself_through_a_second_mount_and_a_copy_of_it_is_none(logs: Path) -> None:
    _, [run] = sweep(logs, "r", UNTIL_TOLD)
    submit_local([run])
    started(run)
    with mounted_again(logs, logs.parent / "again") as again:
        seen = RunPaths(again / "r")
        assert one(seen).state == "RUNNING" and "copy" not in (one(seen).reason or "")
        shutil.copytree(run.root, again / "s")
        for copy in (again / "s", logs / "s"):
            [refused] = cancel([RunPaths(copy)])
            assert "a copy of run" in (refused.problem or "") and one(run).state == "RUNNING"
        [done] = cancel([seen])
        assert done.problem is None and not living().of_run(uuid_of(run), "r")


def test_what_a_removed_run_has_left_is_known_through_a_second_mount(logs: Path) -> None:
    _, [run] = sweep(logs, "r", UNTIL_TOLD)
    queue = submit_local([run])
    started(run)
    shutil.rmtree(run.root)
    with mounted_again(logs, logs.parent / "again") as again:
        with pytest.raises(RequestError, match=f"`hpc-llm cancel {queue}`"):
            make_way(again, ["r"])
        assert [found.run_id for found in homeless(again)] == ["r"]
        done = cancel_orphan("r", again)
    assert done is not None and done.problem is None


def seen_from(run: RunPaths, **other: str) -> None:
    """As if the records had been made elsewhere, or before a restart."""
    for path in (run.process, run.job):
        record = json.loads(path.read_text())
        for name in ("queue", "process", "submitter"):
            record[name] = {**record.get(name, {}), **other}
        path.write_text(json.dumps(record))


def test_a_restart_of_the_machine_loses_no_run_that_waited(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "machine_id", lambda: "this")  # a container has none, where this runs all the same
    _, runs = sweep(logs, "r0 r1", UNTIL_TOLD)
    submit_local(runs)
    started(runs[0])
    kill_queue(runs[0])
    cancel(runs[:1])
    seen_from(runs[1], boot_id="before")
    runs[1].process.write_text(json.dumps({**json.loads(runs[1].process.read_text()), "machine": "this"}))
    assert [found.deed for found in reconcile(runs)] == [Deed.SUBMITTED]
    go(logs)
    assert wait(runs)[1].exit_code == 0


@pytest.mark.parametrize("other", [{"pid_namespace": "pid:[1]"}, {"host": "elsewhere"}])
def test_a_queue_of_another_container_or_machine_is_left_to_it(logs: Path, other: dict[str, str]) -> None:
    _, runs = sweep(logs, "r0 r1", UNTIL_TOLD)
    submit_local(runs)
    started(runs[0])
    kill_queue(runs[0])
    cancel(runs[:1])
    seen_from(runs[1], **other)
    state = one(runs[1])
    assert (state.state, state.outcome) == ("PENDING", None) and reconcile(runs) == []
    [refused] = cancel(runs[1:])
    assert "cancel it there" in (refused.problem or "") and not runs[1].cancelled.exists()


LOOK = (
    "import sys; from pathlib import Path; from hpc_llm.records.run import RunPaths; from hpc_llm.runs import status; "
)
LOOK += "state = status([RunPaths(Path(sys.argv[1]))])[0]; print(state.state, state.outcome, state.reason)"


def test_a_run_of_another_user_is_not_said_to_be_gone_where_their_processes_are_hidden(logs: Path) -> None:
    needs_root("hide processes")
    _, [run] = sweep(logs, "r", UNTIL_TOLD)
    submit_local([run])
    started(run)
    for folder in (logs, *list(logs.parents)[:-2]):  # up to the folder of temporary files
        folder.chmod(folder.stat().st_mode | 0o555)
    hidden = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"'
    look = ["unshare", "--mount", "sh", "-c", hidden, "sh", sys.executable, "-c", LOOK, str(run.root)]
    told = subprocess.run(look, check=True, capture_output=True, text=True).stdout
    assert told.startswith("RUNNING None") and "another user" in told
    cancel([run])


def test_a_folder_that_is_gone_is_not_said_to_be_somebody_else_s(logs: Path) -> None:
    _, [run] = sweep(logs, "r")
    found = standings([run])[0]
    shutil.rmtree(run.root)
    again = standings([run])[0]
    assert found.standing is Standing.NOTHING
    assert (again.standing, again.why) == (Standing.OPEN, "its folder is gone")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], check=False, capture_output=True, text=True)


def test_a_number_of_two_jobs_is_refused_and_both_are_named(logs: Path) -> None:
    _, [run] = sweep(logs, "here", UNTIL_TOLD)
    queue = submit_local([run])
    started(run)
    there = make_run(logs, "there", {"plan": {}}, "#!/bin/bash\n", "slurm")
    there.job.write_text(json.dumps({**json.loads(there.job.read_text()), "job_id": queue}))
    done = command("cancel", queue, "--logs", str(logs))
    assert (done.returncode, done.stdout) == (2, "")
    assert "here (on this machine)" in done.stderr and "there (of Slurm)" in done.stderr
    assert one(run).state == "RUNNING" and not there.cancelled.exists()
    done = command("cancel", "here", "--logs", str(logs))
    assert done.returncode == 0 and one(run).outcome is Outcome.CANCELLED
    over = make_run(logs, "over", {"plan": {}}, "#!/bin/bash\nsleep 300\n")
    again = submit_local([over])
    run.job.write_text(run.job.read_text().replace(f'"job_id": "{queue}"', f'"job_id": "{again}"'))
    until("it runs", lambda: one(over).state == "RUNNING")
    assert run.exit.exists() and command("cancel", again, "--logs", str(logs)).returncode == 0
    assert one(over).outcome is Outcome.CANCELLED


def test_a_run_that_is_gone_is_cancelled_by_its_name(logs: Path) -> None:
    _, [run] = sweep(logs, "r", UNTIL_TOLD)
    queue = submit_local([run])
    started(run)
    shutil.rmtree(run.root)
    done = command("cancel", "r", "--logs", str(logs))
    assert (done.returncode, done.stdout) == (0, "r  cancelled\n")
    with pytest.raises(RequestError, match="no run of job"):
        cancel_job(queue)
