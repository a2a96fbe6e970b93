"""What must be done once is done once: who makes, clears, submits or gives up a run holds a claim to it meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from login_node import job_id, until
from made_runs import make_run, send_runs
from rights import needs_root
from scratch_slurm import ScratchSlurm
from test_identity import HELD, HELD_ARRAY, change, ghost, logs, made_long_ago, record, sbatch

from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs import Deed, cancel, make_way, reconcile, reconciliation, status
from hpc_llm.runs.adoption import Standing, standings
from hpc_llm.schedulers import NewRun, Submission, create_runs
from hpc_llm.schedulers import runs as submitted_runs
from hpc_llm.schedulers.claim import STALE_S, claim, claim_folder, release
from hpc_llm.schedulers.process import describe_process
from hpc_llm.schedulers.runs import take_back
from hpc_llm.schedulers.submission import submission_of

pytestmark = pytest.mark.slurm
__all__ = ["logs"]  # a fixture

RACER = """\
import sys
from pathlib import Path
from hpc_llm.schedulers.claim import claim
folder, rounds, gate = Path(sys.argv[1]), int(sys.argv[2]), sys.stdin
for number in range(rounds):
    gate.readline()
    print(int(claim(folder / str(number))), flush=True)
gate.readline()
"""


@contextmanager
def another_process(*statements: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does these, says so and stays."""
    body = "; ".join(
        ["import sys; from pathlib import Path", *statements, "print('done', flush=True); sys.stdin.read()"]
    )
    with subprocess.Popen([sys.executable, "-c", body], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield process
        process.kill()


def claims(folder: Path) -> str:
    return f"from hpc_llm.schedulers.claim import claim; assert claim(Path({str(folder)!r}))"


def test_of_many_that_find_a_dead_one_s_claim_one_gets_it(tmp_path: Path) -> None:
    rounds, racers = 30, 6
    dead = {**describe_process(os.getpid()), "pid": 2**22 + 1}
    for number in range(rounds):
        write_json(tmp_path / str(number) / ".claim", {"schema": 1, **dead})
    command = [sys.executable, "-c", RACER, str(tmp_path), str(rounds)]
    started = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(racers)]
    won = []
    for _ in range(rounds):
        for one in started:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        won.append(sum(int(one.stdout.readline()) for one in started if one.stdout is not None))
    for one in started:
        one.communicate("")
    assert won == [1] * rounds


@pytest.mark.parametrize(("age", "free"), [(STALE_S - 300, False), (STALE_S + 300, True)])
def test_a_claim_of_another_host_counts_for_a_while(tmp_path: Path, age: float, free: bool) -> None:
    folder = tmp_path / "r"
    write_json(folder / ".claim", {"schema": 1, **describe_process(1), "host": "another", "boot_id": "another"})
    moment = time.time() - age
    os.utime(folder / ".claim", (moment, moment))
    assert claim(folder) is free


def test_a_claim_is_given_up_by_whom_it_is(tmp_path: Path) -> None:
    with another_process(claims(tmp_path)):
        release(tmp_path)
        assert (tmp_path / ".claim").exists() and not claim(tmp_path)
    assert claim(tmp_path)
    release(tmp_path)
    assert not (tmp_path / ".claim").exists()


def test_nobody_acts_on_a_run_while_its_command_still_waits_for_slurm(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch gives up at once, and Slurm takes the job seconds later, as a controller does that is too busy to answer."""
    late, go = tmp_path / "late", tmp_path / "go"
    sbatch(
        tmp_path,
        monkeypatch,
        f"cat > {tmp_path}/script; "
        f'(until [ -e {go} ]; do sleep 0.1; done; real "$@" {tmp_path}/script > {late}) >/dev/null 2>&1 </dev/null & '
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
    )
    tests = str(Path(__file__).parents[1])
    program = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; import made_runs; "
        "from hpc_llm.runs import sending; sending._LATE_S = 200.0; "
        f"made_runs.send_job(Path(sys.argv[1]), 'r', {{'plan': {{}}}}, {HELD!r})"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(logs), tests]) as sending:
        run = RunPaths(logs / "r")
        until("sbatch was asked", (run.submitit / "sbatch.json").exists)
        assert standings([run])[0].standing is Standing.ASKING
        assert [one.deed for one in reconcile([run])] == [Deed.LEFT] and run.root.exists()
        with pytest.raises(RequestError, match="already a run r"):
            make_way(logs, ["r"])
        go.touch()
        assert sending.wait() == 0
    assert job_id(run) in late.read_text()
    assert not (run.root / ".claim").exists()
    cancel([run])


def test_a_submission_that_failed_takes_back_its_own_runs_alone(logs: Path) -> None:
    mine = make_run(logs, "r", {"plan": {}}, HELD, "slurm")
    change(mine, uuid="00000000-0000-4000-8000-000000000000")  # another submission has made it anew
    take_back([mine], None, "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b")
    assert mine.script.exists()


def test_a_run_that_is_cancelled_while_it_is_looked_at_is_not_submitted(logs: Path, slurm: ScratchSlurm) -> None:
    run = ghost(logs)
    first = standings([run])
    cancelled = cancel([run])
    assert (cancelled[0].problem, cancelled[0].was_over) == (None, False)
    submission = submission_of(record(run))
    assert submission is not None and not reconciliation._submit(submission, first)
    assert slurm.run("squeue", "-h", "-n", str(record(run)["job_name"])) == "" and run.cancelled.exists()


def test_a_run_that_another_command_is_about_to_submit_is_not_said_to_be_cancelled(logs: Path) -> None:
    run = ghost(logs)
    with another_process(claims(claim_folder(run, None))):
        [refused] = cancel([run])
        assert refused.problem is not None and not run.cancelled.exists()
    assert cancel([run])[0].problem is None and run.cancelled.exists()


def test_clearing_one_task_leaves_what_the_others_print_through(logs: Path, slurm: ScratchSlurm) -> None:
    """Slurm has forgotten the first task, and the second still waits."""
    first, second = send_runs(logs, [("a0", {}), ("a1", {})], HELD_ARRAY.replace("0-2", "0-1"), "a")
    array = job_id(first).partition("_")[0]
    slurm.run("scontrol", "release", array)
    change(first, job_id=str(int(array) + 100_000) + "_0")  # an id of which Slurm has nothing
    made_long_ago(first)
    make_way(logs, ["a0"], dry_run=True)
    assert first.root.exists() and (logs / ".array-a" / "0").is_symlink()
    make_way(logs, ["a0"])
    assert not first.root.exists() and not (logs / ".array-a" / "0").is_symlink()
    assert (logs / ".array-a" / "1" / "job.sh").exists()
    until("the second task has run", lambda: status([second])[0].is_over)
    assert status([second])[0].exit_code in (0, None) and (logs / ".array-a").is_dir()
    assert json.loads(second.job.read_text())["job_id"] == f"{array}_1"


def test_links_that_somebody_planted_lead_nowhere(logs: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious" / "photos"
    precious.mkdir(parents=True)
    old = time.time() - 2 * STALE_S
    os.utime(precious, (old, old))
    logs.mkdir()
    planted = logs / ".incoming-a"
    planted.symlink_to(precious)
    os.utime(planted, (old, old), follow_symlinks=False)
    reconciliation._clear_staging(logs)
    assert precious.is_dir() and planted.is_symlink()
    staged = logs / ".incoming-b"
    staged.mkdir()
    os.utime(staged, (old, old))
    os.chown(staged, 65534, 65534)
    reconciliation._clear_staging(logs)
    assert staged.is_dir()
    os.chown(staged, os.getuid(), os.getgid())
    reconciliation._clear_staging(logs)
    assert not staged.exists()


def test_a_run_that_somebody_else_put_in_the_place_of_ours_is_not_submitted(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without the sticky bit others can rename what is being made there."""
    needs_root("give a folder to somebody else")
    make, theirs = submitted_runs._make, logs / "theirs"

    def swapped(staging: Path, *rest: Any) -> None:
        make(staging, *rest)
        shutil.copytree(staging / "r", theirs)
        shutil.rmtree(staging / "r")
        theirs.rename(staging / "r")
        os.chown(staging / "r", 65534, 65534)

    monkeypatch.setattr(submitted_runs, "_make", swapped)
    with pytest.raises(SubmissionError, match=f"what was made as {logs}/r is somebody else's by now"):
        make_run(logs, "r", {"plan": {}}, HELD)
    assert (logs / "r").is_dir()  # theirs to remove


def test_what_all_arrays_share_is_nobody_s(logs: Path) -> None:
    """Each array has a folder of its own beside the runs: who had made a common one could rename what is in it."""
    runs = [NewRun(run_id=f"r{k}", experiment={}, script=HELD) for k in range(2)]
    create_runs(logs, [(Submission(scheduler="slurm", array="a"), runs)])
    assert sorted(path.name for path in logs.iterdir()) == [".array-a", "r0", "r1"]
    assert (logs / ".array-a" / "1").resolve() == (logs / "r1").resolve()
