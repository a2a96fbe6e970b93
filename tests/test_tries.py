"""One folder, several tries: each says first of all which job it is, and what an earlier one left is never lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rights import mounted
from standin import UUID, Ended, Machine

from hpc_llm.records.files import read_json_lines
from hpc_llm.records.run import RunPaths

LEFT = {"exit.json", "result.json", "steps.jsonl", "failures", "telemetry.jsonl", "telemetry-1.jsonl"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


@pytest.fixture
def run(machine: Machine) -> RunPaths:
    return RunPaths(machine.logs / "run-1")


def tried(machine: Machine, words: str, restarts: int | None = 0) -> Ended:
    """One try of the run, in which the program does what `words` say."""
    text = machine.script()
    machine.behave(words)
    environ = {} if restarts is None else {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restarts)}
    return machine.run(text, **environ)


def started(run: RunPaths) -> list[dict[str, Any]]:
    return list(read_json_lines(run.started))


def of_try(folder: RunPaths) -> set[str]:
    """Whose the files are: the numbers that the stand-in's program wrote into them."""
    texts = [path.read_text() for path in (folder.steps, *folder.telemetry_files(), folder.result) if path.exists()]
    return {number for text in texts for number in "123456789" if f'"{number}' in text}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- the first statement --------------------------------------------------------------------------------------------


def test_a_local_script_leaves_nothing_in_a_folder_that_was_made_anew_for_another_run(
    machine: Machine, run: RunPaths
) -> None:
    text, mine, other = machine.script(), str(uuid4()), str(uuid4())
    run.job.write_text(json.dumps({"schema": 2, "uuid": other}, indent=1))
    before = files(run.root)
    marks = {"HPC_LLM_RUN_DIR": str(run.root), "HPC_LLM_RUN_UUID": mine}
    ended = machine.run(text, **marks)
    assert (ended.code, ended.stdout, ended.stderr, files(run.root)) == (76, "", "", before)
    assert machine.run(text, **{**marks, "HPC_LLM_RUN_UUID": other}).code == 0
    run.job.write_text(json.dumps({"schema": 2, "run_id": "run-1", "uuid": other}, indent=1))
    assert machine.run(text).code == 0  # by hand
    assert machine.run(text, HPC_LLM_RUN_DIR="/another/run", HPC_LLM_RUN_UUID=mine).code == 0  # by hand, within a run


def test_the_first_statement_tells_which_job_it_is(machine: Machine, run: RunPaths) -> None:
    before = time.time()
    slurm = {
        "SLURM_JOB_ID": "45",
        "SLURM_CLUSTER_NAME": "scratch",
        "SLURM_RESTART_COUNT": "2",
        "HOSTNAME": "gn1",
        "SLURM_JOB_NAME": "a b-0123abcd",
    }
    assert machine.run(machine.script(), **slurm).code == 0
    [said] = started(run)
    assert before - 1 <= said.pop("time") <= time.time()
    assert said == {
        "schema": 1, "job_id": "45", "array_task": None, "cluster": "scratch", "host": "gn1", "restart_count": 2,
        "job_name": "a?b-0123abcd",
    }  # fmt: skip


def test_without_a_scheduler_there_is_no_job_to_tell(machine: Machine, run: RunPaths) -> None:
    assert tried(machine, "0", restarts=None).code == 0
    [said] = started(run)
    assert (said["job_id"], said["cluster"], said["array_task"], said["restart_count"]) == (None, None, None, 0)
    assert said["host"] == os.uname().nodename


def test_it_needs_no_program(machine: Machine, run: RunPaths) -> None:
    """Whatever is broken on the node, the job is known."""
    path = machine.folder / "job.sh"
    path.write_text(machine.script())
    subprocess.run([str(shutil.which("bash")), path], env={"PATH": "/nowhere", "SLURM_JOB_ID": "8"}, check=False)
    assert [said["job_id"] for said in started(run)] == ["8"]


def test_each_try_adds_its_line(machine: Machine, run: RunPaths) -> None:
    for restarts in range(3):
        tried(machine, "1", restarts)
    assert [(said["job_id"], said["restart_count"]) for said in started(run)] == [("7", 0), ("7", 1), ("7", 2)]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.UTF-8"])
@pytest.mark.parametrize(
    "name", ['a"b', "back\\slash", "new\nline\ttab", "é漢", b"\xff\xfe", "$(touch x)`y`", "%s%d", ""]
)
def test_the_line_is_valid_json_whatever_the_host_is_called(
    machine: Machine, run: RunPaths, name: str | bytes, locale: str
) -> None:
    path = machine.folder / "job.sh"
    path.write_text(machine.script())
    environ = {os.fsencode(key): os.fsencode(value) for key, value in machine.environ.items()}
    environ |= {b"HOSTNAME": os.fsencode(name), b"SLURM_CLUSTER_NAME": os.fsencode(name), b"LC_ALL": locale.encode()}
    subprocess.run(["bash", str(path)], env=environ, check=True, capture_output=True)
    [line] = run.started.read_bytes().splitlines()
    said = json.loads(line)
    assert said["host"] == said["cluster"]
    assert name == "" or set(said["host"]) <= set("abcdefghijklmnopqrstuvwxyz?")
    assert run.exit.is_file()


def test_where_the_folder_is_not_visible_one_line_says_so(machine: Machine, run: RunPaths) -> None:
    text = machine.script()
    shutil.rmtree(run.root)
    ended = machine.run(text)
    assert (ended.code, ended.stderr.count("\n")) == (76, 1)
    assert ended.stderr.startswith(f"hpc-llm: run folder {run.root} is not visible on ")
    assert not run.root.exists()


def test_a_line_that_cannot_be_written_stops_nothing(machine: Machine, run: RunPaths) -> None:
    text = machine.script()
    run.started.mkdir()
    ended = machine.run(text)
    assert (ended.code, ended.stderr) == (0, "")


def test_each_task_of_an_array_writes_into_its_run(machine: Machine) -> None:
    text, folders = machine.array("z2", "z3")
    for task, folder in enumerate(folders):
        slurm = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_JOB_ID": "9", "SLURM_JOB_ID": str(10 + task)}
        slurm["SLURM_JOB_NAME"] = f"sweep-{UUID[:8]}"
        assert machine.run(text, folder, **slurm).code == 0
        assert [(said["job_id"], said["array_task"]) for said in started(RunPaths(folder))] == [("9", task)]


# --- tries ----------------------------------------------------------------------------------------------------------


def test_what_earlier_tries_left_is_kept_apart(machine: Machine, run: RunPaths) -> None:
    for restarts in range(2):
        assert tried(machine, "train FAILED 1", restarts).code == 1
    assert tried(machine, "train COMPLETED 0", 2).code == 0
    first, second = run.earlier_tries()
    assert (first.run_id, second.run_id) == ("1", "2")
    assert files(first.root) == files(second.root) == LEFT
    assert [of_try(each) for each in (first, second, run)] == [{"1"}, {"2"}, {"3"}]
    counts = [json.loads(each.exit.read_text())["restart_count"] for each in (first, second, run)]
    assert counts == [0, 1, 2]
    assert not run.failures.exists()


def test_a_try_that_died_without_a_word_is_kept_too(machine: Machine, run: RunPaths) -> None:
    text = machine.script()
    machine.behave("until 0")
    run.steps.write_text('{"step": 1}\n')
    process = machine.start(text)
    machine.ready()
    run.steps.write_text('{"step": 2}\n')
    os.killpg(process.pid, signal.SIGKILL)
    machine.end(process)
    assert not run.exit.exists()
    assert tried(machine, "train COMPLETED 0", 1).code == 0
    assert [each.steps.read_text() for each in run.earlier_tries()] == ['{"step": 1}\n', '{"step": 2}\n']


@pytest.mark.parametrize("outcome", ["COMPLETED", "INVALID"])
def test_a_whole_measurement_is_not_done_again(machine: Machine, run: RunPaths, outcome: str) -> None:
    tried(machine, f"train {outcome} 0")
    first_end = run.exit.read_bytes()
    before = {name: (run.root / name).read_bytes() for name in LEFT - {"failures", "exit.json"}}
    ended = tried(machine, "7", 1)
    assert (ended.code, ended.exit["exit_code"], ended.exit["stage"], ended.exit["restart_count"]) == (0, 0, "done", 1)
    assert "the run had come to its end already" in ended.exit["reason"]
    assert ended.stderr.count("\n") == 1 and "had come to its end already" in ended.stderr
    assert {name: (run.root / name).read_bytes() for name in before} == before
    [earlier] = run.earlier_tries()
    assert files(earlier.root) == {"exit.json"} and earlier.exit.read_bytes() == first_end


def test_a_whole_measurement_whose_node_died_then_is_whole(machine: Machine, run: RunPaths) -> None:
    tried(machine, "train COMPLETED 0")
    run.exit.unlink()
    ended = tried(machine, "7", 1)
    assert (ended.code, ended.exit["stage"]) == (0, "done")
    assert run.earlier_tries() == []


@pytest.mark.parametrize(
    "text", ['{"outcome": "COMPL', "", '{"outcome": "FAILED", "error": "\\"outcome\\": \\"COMPLETED\\""}']
)
def test_a_result_that_is_no_whole_measurement_is_moved(machine: Machine, run: RunPaths, text: str) -> None:
    machine.script()
    run.result.write_text(text)
    assert tried(machine, "train COMPLETED 0", 1).code == 0
    [earlier] = run.earlier_tries()
    assert earlier.result.read_text() == text


MOVES = """\
#!/bin/bash
# Stand-in for mv that is interrupted at its call number $(cat at).
count=$(($(cat "$STANDIN/calls" 2>/dev/null || echo 0) + 1))
echo $count > "$STANDIN/calls"
if [ $count = "$(cat "$STANDIN/at")" ]; then {before}; fi
/usr/bin/mv "$@" || exit
if [ $count = "$(cat "$STANDIN/at")" ]; then {after}; fi
"""


def interrupt_moves(machine: Machine, at: int, before: str = ":", after: str = ":") -> Path:
    (machine.folder / "at").write_text(str(at))
    (machine.folder / "calls").unlink(missing_ok=True)
    path = machine.folder / "bin" / "mv"
    path.write_text(MOVES.format(before=before, after=after))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, len(LEFT) + 2))
def test_a_try_killed_while_it_moves_loses_and_mixes_nothing(
    machine: Machine, run: RunPaths, at: int, when: str
) -> None:
    tried(machine, "train FAILED 1")
    before = {name: (run.root / name).read_bytes() for name in LEFT - {"failures"}}
    stand_in = interrupt_moves(machine, at, **{when: "kill -9 0"})
    assert tried(machine, "train FAILED 1", 1).code == -signal.SIGKILL
    stand_in.unlink()
    assert tried(machine, "train COMPLETED 0", 2).code == 0
    [earlier] = run.earlier_tries()
    assert files(earlier.root) == LEFT and files(run.tries) == {"1"}
    assert {name: (earlier.root / name).read_bytes() for name in before} == before
    assert earlier.failure(0).is_file()
    assert of_try(run) == {"2"}


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_moves_waits_until_all_is_safe(machine: Machine, run: RunPaths, sent: signal.Signals) -> None:
    tried(machine, "train FAILED 1")
    text = machine.script()
    go = machine.folder / "go"
    interrupt_moves(machine, 3, after=f"touch '{run.root}/ready'; until [ -e '{go}' ]; do sleep 0.05; done")
    machine.behave("train COMPLETED 0")
    process = machine.start(text)
    machine.ready()
    os.killpg(process.pid, sent)
    go.touch()
    ended = machine.end(process)
    [earlier] = run.earlier_tries()
    assert files(earlier.root) == LEFT
    assert (ended.code, ended.exit["exit_code"], ended.exit["stage"]) == (128 + sent, 128 + sent, "prelude")
    assert ended.exit["signal"] == sent.name.removeprefix("SIG")


def test_where_an_earlier_try_cannot_be_moved_nothing_runs_and_all_stays(machine: Machine, run: RunPaths) -> None:
    tried(machine, "train FAILED 1")
    before = {name: (run.root / name).read_bytes() for name in LEFT - {"failures"}}
    run.tries.write_text("a file where the folder belongs")
    ended = tried(machine, "train COMPLETED 0", 1)
    assert ended.code == 1
    assert f"hpc-llm: what an earlier try left cannot be moved to {run.root}/tries on " in ended.stderr
    assert {name: (run.root / name).read_bytes() for name in before} == before


def test_a_run_without_a_scheduler_keeps_its_tries_as_well(machine: Machine, run: RunPaths) -> None:
    tried(machine, "train NOTHING 1", restarts=None)
    ended = tried(machine, "train COMPLETED 0", restarts=None)
    assert ended.exit["job_id"] is None
    assert [of_try(each) for each in run.earlier_tries()] == [{"1"}]
    assert of_try(run) == {"2"}


@pytest.mark.parametrize(("now", "left"), [("new", False), ("old", True)])
def test_a_script_whose_folder_became_another_job_s_leaves_no_record_in_it(
    machine: Machine, run: RunPaths, now: str, left: bool
) -> None:
    text = machine.script()
    run.job.write_text('{"schema": 2,\n "run_id": "run-1",\n "uuid": "old"}\n')
    machine.behave("wait 3")
    process = machine.start(text)
    machine.ready()
    run.job.write_text(f'{{"schema": 2,\n "run_id": "run-1",\n "uuid": "{now}"}}\n')
    process.terminate()
    assert machine.end(process).code != 0
    assert run.exit.exists() is left


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_at_the_end_costs_no_record(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "4m") as disk:
        machine = Machine(disk.folder / "a machine")
        run = RunPaths(machine.logs / "run-1")
        text = machine.script()
        machine.behave("until 3")
        process = machine.start(text)
        machine.ready()
        disk.fill()
        os.mkfifo(run.root / "go")  # it takes no room
        while not run.half_exits():
            assert process.poll() is None
            time.sleep(0.02)
        disk.make_room()
        assert machine.end(process).code == 3
        record = json.loads(run.exit.read_text())
        assert (record["exit_code"], record["stage"]) == (3, "done") and not run.half_exits()
