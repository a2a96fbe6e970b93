"""A run is its own job's and nobody else's: what is recorded before sbatch is asked, and what an answer has to prove."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from login_node import LoginNode, job_id, until
from made_runs import make_run, send_job, send_runs
from pace import is_within
from rights import mounted, needs_root
from scratch_slurm import ScratchSlurm

from hpc_llm.cli import run as command
from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs import (
    Deed,
    cancel,
    cancel_job,
    cancel_jobs,
    cancellation,
    cut_off,
    homeless,
    make_way,
    reconcile,
    reconciliation,
    status,
)
from hpc_llm.runs.adoption import Standing, standings
from hpc_llm.schedulers import UnclearAnswer
from hpc_llm.schedulers.runs import answer_file, asking_file, read_identity, submitit_folder
from hpc_llm.schedulers.slurm import questions
from hpc_llm.schedulers.slurm.clients import cluster_name
from hpc_llm.schedulers.slurm.proving import proven
from hpc_llm.schedulers.slurm.questions import _by_name, _sacct, ask
from hpc_llm.schedulers.slurm.records import SACCT_DELIMITER, SACCT_FIELDS, read_sacct
from hpc_llm.schedulers.submission import submission_of

pytestmark = pytest.mark.slurm

HELD = "#!/bin/bash\n#SBATCH --hold --output=/dev/null --time=00:05:00 --mem=10M --partition=gtest\ntrue\n"
HELD_ARRAY = HELD.replace("--hold", "--hold --array=0-2")


@pytest.fixture
def logs(on_cluster: ScratchSlurm, tmp_path: Path) -> Path:
    return tmp_path / "logs"


def held(logs: Path, name: str = "r", **asked: Any) -> RunPaths:
    return send_job(logs, name, {"run_id": name, "plan": {}}, HELD, **asked)


def record(run: RunPaths) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.job.read_text())
    return found


def change(run: RunPaths, **values: Any) -> None:
    write_json(run.job, {**record(run), **values})


def made_long_ago(run: RunPaths) -> None:
    """Slurm's lists may lack a job for a while after its submission."""
    written = run.job.stat().st_mtime - 120
    os.utime(run.job, (written, written))


def state_of(slurm: ScratchSlurm, job: str) -> str:
    return slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def client(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """Put a client of Slurm first on PATH that does `body`; `real` in it is Slurm's own."""
    path = folder / "wrapped" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/bash\nreal() {{ /usr/bin/{name} "$@"; }}\n{body}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)


def sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    client(folder, monkeypatch, "sbatch", body)


def test_the_intent_and_the_arguments_are_on_disk_before_sbatch_is_asked(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    sbatch(tmp_path, monkeypatch, f'cp {logs}/r/job.json {seen}; real "$@"')
    run = held(logs, comment="mine")
    before, after = json.loads(seen.read_text()), record(run)
    assert (before["uuid"], before["job_id"], before["cluster"]) == (after["uuid"], None, "scratch")
    assert after["job_id"] == job_id(run)
    cancel([run])


def test_slurm_has_the_uuid_short_in_the_name_and_whole_in_the_comment(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs, job_name="my job", comment="for the paper")
    uuid = record(run)["uuid"]
    shown = slurm.run("squeue", "-h", "-j", job_id(run), "-o", "%j|%k").strip()
    assert shown == f"my job-{uuid[:8]}|hpc-llm:{uuid} for the paper"
    cancel([run])


def test_accounting_that_keeps_no_comment_is_believed_by_the_name(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    job = job_id(run)
    until("accounting has its name", lambda: "hpc-llm-" in slurm.run("sacct", "-nPX", "-j", job, "-o", "JobName"))
    cancel([run])
    until("accounting has it", lambda: "CANCELLED" in slurm.run("sacct", "-nPX", "-j", job, "-o", "State"))
    assert slurm.run("sacct", "-nPX", "-j", job, "-o", "Comment").strip() == ""
    identity = read_identity(run)
    assert identity is not None
    answered = ask([identity]).record_of(identity)
    assert answered is not None and answered.state == "CANCELLED"


def test_a_job_that_was_cancelled_before_accounting_had_its_name_is_known_by_its_time(
    logs: Path, slurm: ScratchSlurm
) -> None:
    run = held(logs)
    slurm.run("scancel", job_id(run))
    until("accounting has it", lambda: "CANCELLED" in slurm.run("sacct", "-nPX", "-j", job_id(run), "-o", "State"))
    identity = read_identity(run)
    assert identity is not None
    told, _ = _sacct([f"--jobs={job_id(run)}"])
    answered = proven([identity], told.jobs, in_queue=False)
    assert slurm.run("sacct", "-nPX", "-j", job_id(run), "-o", "JobName").strip() in ("allocation", identity.job_name)
    assert answered[identity.key].state == "CANCELLED"


def test_a_stranger_s_job_of_the_same_id_is_no_answer_and_is_not_cancelled(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    cancel([run])
    stranger = slurm.run("sbatch", "--hold", "--parsable", "--output=/dev/null", "--time=5", "--wrap=true").strip()
    run.cancelled.unlink()
    run.scheduler_record.unlink(missing_ok=True)
    run.kept_answer.unlink(missing_ok=True)
    change(run, job_id=stranger)
    identity = read_identity(run)
    assert identity is not None and ask([identity]).record_of(identity) is None
    [refused] = cancel([run])
    assert refused.problem is not None or refused.was_over
    with pytest.raises(RequestError, match="is not proven to be one of your runs"):
        cancel_job(stranger)
    assert state_of(slurm, stranger) == "PENDING"
    slurm.run("scancel", stranger)


def test_a_job_of_another_run_with_the_same_name_but_another_uuid_is_no_answer(logs: Path, slurm: ScratchSlurm) -> None:
    first, second = held(logs, "first"), held(logs, "second")
    change(first, job_id=job_id(second))
    [refused] = cancel([first])
    assert refused.problem is not None and "is proven to be this run's" in refused.problem
    assert state_of(slurm, job_id(second)) == "PENDING"
    change(first, job_id=None)
    assert status([first])[0].state == "PENDING"  # found again by its UUID
    cancel([first, second])


def test_the_copy_of_a_run_does_not_speak_for_its_job(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    copy = RunPaths(logs / "copy")
    shutil.copytree(run.root, copy.root)
    [refused] = cancel([copy])
    assert refused.problem == "its folder is a copy of run r: cancel that"
    assert reconcile([copy]) == [] and copy.root.exists()
    assert state_of(slurm, job_id(run)) == "PENDING"
    cancel([run])


def test_a_copy_of_somebody_else_has_no_job_whatever_its_records_say(logs: Path, slurm: ScratchSlurm) -> None:
    needs_root("give a folder to somebody else")
    run = held(logs)
    copied = logs / "copied"
    shutil.copytree(run.root, copied)
    change(RunPaths(copied), run_id="copied", run_dir=str(copied))
    os.chown(copied, 12345, -1)
    [original, copy] = status([run, RunPaths(copied)])
    assert original.job_id is not None and original.state in ("PENDING", "RUNNING")
    assert (copy.job_id, copy.state) == (None, "UNKNOWN")
    assert f"its folder is a copy of run {run.run_id}" in (copy.reason or "")
    cancel([run])


def test_a_run_of_another_slurm_cluster_is_left_alone(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    change(run, cluster="elsewhere")
    seen = status([run])[0]
    assert (seen.outcome, "elsewhere" in (seen.reason or "")) == (None, True)
    [refused] = cancel([run])
    assert refused.problem is not None and "Slurm's cluster elsewhere" in refused.problem
    assert state_of(slurm, job_id(run)) == "PENDING"
    change(run, cluster="scratch")
    cancel([run])


@pytest.mark.parametrize("kind", ["single", "array"])
def test_a_job_whose_id_nobody_wrote_down_is_found_by_its_uuid(logs: Path, slurm: ScratchSlurm, kind: str) -> None:
    if kind == "single":
        runs, folder = [held(logs)], logs / "r" / "submitit"
    else:
        runs = send_runs(logs, [(f"r{k}", {}) for k in range(3)], HELD_ARRAY, "a")
        folder = logs / ".array-a" / "submitit"
    ids = [job_id(run) for run in runs]
    answer_file(folder).unlink()
    for run in runs:
        change(run, job_id=None)
    assert [one.deed for one in reconcile(runs, dry_run=True)] == [Deed.ADOPTED] * len(runs)
    assert record(runs[0])["job_id"] is None
    assert [state.state for state in status(runs)] == ["PENDING"] * len(runs)
    assert [job_id(run) for run in runs] == ids
    assert reconcile(runs) == []
    cancel(runs)


def test_a_job_that_ended_meanwhile_is_found_in_accounting(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    job = job_id(run)
    until("accounting has its name", lambda: "hpc-llm-" in slurm.run("sacct", "-nPX", "-j", job, "-o", "JobName"))
    slurm.run("scancel", job)
    until("accounting has its end", lambda: "CANCELLED" in slurm.run("sacct", "-nPX", "-j", job, "-o", "State"))
    answer_file(run.submitit).unlink()
    change(run, job_id=None)
    identity = read_identity(run)
    assert identity is not None
    assert _by_name([identity]).job_ids == {identity.key: job}


def test_the_script_s_own_word_of_its_job_is_enough(logs: Path) -> None:
    run = held(logs)
    job = job_id(run)
    answer_file(run.submitit).unlink()
    change(run, job_id=None)
    for cluster, known in (("elsewhere", None), ("scratch", job)):
        run.started.write_text(json.dumps({"schema": 1, "job_id": job, "cluster": cluster}) + "\n")
        identity = read_identity(run)
        assert identity is not None and identity.job_id == known
    change(run, job_id=job)
    cancel([run])


def test_an_answer_that_timed_out_after_slurm_took_the_job_loses_nothing(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    sbatch(tmp_path, monkeypatch, f'real "$@" >/dev/null; echo "{said}" >&2; exit 1')
    run = held(logs)
    assert job_id(run) and status([run])[0].state == "PENDING"
    with pytest.raises(RequestError, match=r"already a run r \(job \d+\)"):
        make_way(logs, ["r"])
    cancel([run])


@pytest.mark.parametrize("code", [1, 137])
def test_a_job_that_sbatch_took_is_kept_however_a_wrapper_around_it_ends(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    quiet = "" if code == 1 else ">/dev/null"
    sbatch(tmp_path, monkeypatch, f'real "$@" {quiet}; echo "site: could not log your submission" >&2; exit {code}')
    run = held(logs)
    assert status([run])[0].state == "PENDING"
    cancel([run])


def test_a_site_s_notice_of_another_job_is_not_taken_for_the_answer(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: ScratchSlurm
) -> None:
    notice = "Submitted batch job 3 (your last one, see the portal)"
    refusal = "echo 'sbatch: error: Invalid account or account/partition combination specified' >&2; exit 1"
    sbatch(tmp_path, monkeypatch, f"echo '{notice}'; {refusal}")
    with pytest.raises(SubmissionError, match="Invalid account"):
        held(logs)
    assert list(logs.glob("[!.]*")) == []
    sbatch(tmp_path, monkeypatch, f"echo '*** {notice}'; echo '{notice}'; real \"$@\"")
    run = held(logs)
    assert job_id(run) != "3" and state_of(slurm, job_id(run)) == "PENDING"
    cancel([run])


@pytest.mark.parametrize("array", [None, "a"])
def test_a_job_whose_name_and_comment_a_site_rewrites_is_known_by_where_it_prints(
    logs: Path, slurm: ScratchSlurm, array: str | None
) -> None:
    output = logs / (".array-a/%a" if array else "r") / "log.out"
    script = HELD.replace("/dev/null", str(output)).replace("--hold", "--hold --array=0-0" if array else "--hold")
    [run] = send_runs(logs, [("r", {})], script, array)
    slurm.run("scontrol", "update", f"jobid={job_id(run)}", "jobname=billed", "comment=proj42")
    assert status([run])[0].state == "PENDING"
    with pytest.raises(RequestError, match="already a run r"):
        make_way(logs, ["r"])
    job = job_id(run)
    change(run, job_id=None)
    answer_file(submitit_folder(run, array)).unlink()
    assert [one.deed for one in reconcile([run])] == [Deed.ADOPTED] and job_id(run) == job
    assert cancel([run])[0].problem is None
    assert state_of(slurm, job) in ("CANCELLED", "")  # of a task that waited nothing is left


def test_a_stranger_s_job_is_not_cancelled_even_by_who_may(logs: Path, slurm: ScratchSlurm) -> None:
    """An operator may cancel anybody's job, and a folder can be made to name one."""
    run = held(logs)
    cancel([run])
    slurm.run("sacctmgr", "--immediate", "add", "user", "nobody", "account=ACD110018")
    words = (
        *record(run)["arguments"],
        "--uid=65534",
        "--account=ACD110018",
        "--partition=gtest",
        "--hold",
        "--parsable",
        "--output=/dev/null",
        "--time=5",
    )
    theirs = slurm.run("sbatch", *words, "--wrap=true").strip()
    change(run, job_id=theirs)
    run.cancelled.unlink()
    [refused] = cancel([run])
    assert refused.problem is not None and "user 65534" in refused.problem and state_of(slurm, theirs) == "PENDING"
    slurm.run("scancel", theirs)


def test_a_field_that_accounting_does_not_know_is_left_out(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = held(logs)
    slurm.run("scancel", job_id(run))
    until("accounting has it", lambda: "CANCELLED" in slurm.run("sacct", "-nPX", "-j", job_id(run), "-o", "State"))
    path = tmp_path / "wrapped" / "sacct"
    path.parent.mkdir()
    path.write_text(
        """#!/bin/bash
for word; do case $word in --format=*Reason*) echo 'sacct: fatal: Invalid field requested: "Reason"' >&2; exit 1;; esac; done
exec /usr/bin/sacct "$@"
"""
    )
    path.chmod(0o755)
    (tmp_path / "wrapped" / "squeue").write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n"
    )
    (tmp_path / "wrapped" / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    monkeypatch.setattr(questions, "_unknown_fields", set())
    assert status([run])[0].outcome is Outcome.CANCELLED


def test_one_id_that_slurm_does_not_like_hides_no_other_job(logs: Path, slurm: ScratchSlurm) -> None:
    good, bad = held(logs), ghost(logs, "bad")
    change(bad, job_id="4294967295")
    for job in ("0", "4294967295", "٣", "1" * 5000):
        change(bad, job_id=job)
        assert status([good, bad])[0].state == "PENDING", job
    bad.job.write_text(json.dumps({**record(bad), "job_id": None, "job_name": "a\0b\ud800"}))
    assert status([good, bad])[0].state == "PENDING"
    assert cancel([good])[0].problem is None


def test_while_slurm_does_not_answer_an_unclear_submission_stays(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch(tmp_path, monkeypatch, "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1")
    for name in ("squeue", "sacct"):
        path = tmp_path / "wrapped" / name
        path.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
        path.chmod(0o755)
    with pytest.raises(UnclearAnswer, match="is open: `hpc-llm reconcile` finds out"):
        held(logs)
    run = RunPaths(logs / "r")
    assert [one.deed for one in reconcile([run])] == [Deed.LEFT]
    for name in ("squeue", "sacct"):
        (tmp_path / "wrapped" / name).unlink()
    assert [one.deed for one in reconcile([run])] == [Deed.CLEARED]


def test_a_refusal_leaves_nothing_and_the_name_is_free(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch(tmp_path, monkeypatch, "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1")
    with pytest.raises(SubmissionError, match="invalid partition"):
        held(logs)
    assert list(logs.glob("[!.]*")) == [] and list(logs.glob(".incoming*")) == []


@pytest.mark.parametrize("killed", ["command", "all but sbatch"])
def test_a_run_whose_sbatch_is_still_at_work_is_being_submitted(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    sbatch(tmp_path, monkeypatch, f'touch {tmp_path}/asked; until [ -e {tmp_path}/go ]; do sleep 0.1; done; real "$@"')
    program = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; from made_runs import send_job; "
        f"send_job(Path(sys.argv[1]), 'r', {{'plan': {{}}}}, {HELD!r})"
    )
    tests = str(Path(__file__).parents[1])
    command = subprocess.Popen([sys.executable, "-c", program, str(logs), tests], start_new_session=True)
    until("sbatch was asked", (tmp_path / "asked").exists)
    os.killpg(command.pid, 9)
    command.wait()
    run = RunPaths(logs / "r")
    if killed == "all but sbatch":  # as by a guard of the login node
        os.kill(json.loads(asking_file(run.submitit).read_text())["pid"], signal.SIGKILL)
    assert standings([run])[0].standing is Standing.ASKING
    assert [one.deed for one in reconcile([run])] == [Deed.LEFT]
    with pytest.raises(RequestError, match="already a run r"):
        make_way(logs, ["r"])
    with pytest.raises(RequestError, match="already a run r"):
        make_run(logs, "r", {}, "x")
    [refused] = cancel([run])
    assert refused.problem is not None and "has no job id yet" in refused.problem
    (tmp_path / "go").touch()
    until("Slurm has it", lambda: standings([run])[0].standing is Standing.HAS_JOB)
    assert status([run])[0].state == "PENDING"
    cancel([run])


def test_a_ghost_is_cleared_and_makes_way(logs: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; from made_runs import make_run; "
        "make_run(Path(sys.argv[1]), 'r', {'plan': {}}, 'x', 'slurm'); os.kill(os.getpid(), 9)"
    )
    tests = str(Path(__file__).parents[1])
    for clears in ("reconcile", "retry"):
        subprocess.run([sys.executable, "-c", program, str(logs), tests], check=False)
        run = RunPaths(logs / "r")
        assert standings([run])[0].standing is Standing.NOTHING
        if clears == "reconcile":
            assert [one.deed for one in reconcile([run], dry_run=True)] == [Deed.CLEARED]
            assert run.root.exists()
            assert [one.deed for one in reconcile([run])] == [Deed.CLEARED]
        else:
            make_way(logs, ["r"])
        assert not run.root.exists()


@pytest.mark.parametrize("other", ["notes.txt", "checkpoints/step-5/weights.pt", "model/model.safetensors", "log.out"])
def test_a_ghost_that_holds_what_submission_does_not_make_is_left(logs: Path, other: str) -> None:
    run = ghost(logs)
    path = run.root / other
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("data")
    for dry_run in (True, False):
        [left] = reconcile([run], dry_run=dry_run)
        assert left.deed is Deed.LEFT and other.partition("/")[0] in left.why
    with pytest.raises(RequestError, match="already a run g"):
        make_way(logs, ["g"])
    assert path.read_text() == "data" and run.job.exists()
    path.unlink()
    if path.parent != run.root:
        shutil.rmtree(run.root / other.partition("/")[0])
    (run.root / ".job.json.17.4").write_text("half")  # what a killed command was writing
    assert [one.deed for one in reconcile([run])] == [Deed.CLEARED] and not run.root.exists()


@pytest.mark.parametrize("hours", [-3.0, 0.0, 3.0])
def test_a_submission_of_another_host_is_waited_for_whatever_that_host_holds_for_the_time(
    logs: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    run = ghost(logs)
    now = time.time()
    elsewhere = {**record(run)["submitter"], "host": "another-login-node", "boot_id": "another"}
    change(run, submitter=elsewhere, submitted_at=now + hours * 3600)
    monkeypatch.setattr(time, "time", lambda: now - hours * 3600)
    assert standings([run])[0].standing is Standing.ASKING
    assert [one.deed for one in reconcile([run])] == [Deed.LEFT] and run.root.exists()
    os.utime(run.job, (now - 3600, now - 3600))
    assert [one.deed for one in reconcile([run])] == [Deed.CLEARED]


def test_only_the_missing_members_of_a_sweep_are_submitted(logs: Path, slurm: ScratchSlurm) -> None:
    """Two arrays of one request; the command died between them."""
    sweep = "0c8c5d2e-0000-4000-8000-000000000001"
    first = send_runs(logs, [(f"a{k}", {}) for k in range(3)], HELD_ARRAY, "a", sweep=sweep)
    program = (
        "import os, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; import made_runs; "
        "made_runs.send = lambda *_: os.kill(os.getpid(), 9); "
        f"made_runs.send_runs(Path(sys.argv[1]), [(f'b{{k}}', {{}}) for k in range(3)], {HELD_ARRAY!r}, 'b', sweep={sweep!r})"
    )
    tests = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-c", program, str(logs), tests], check=False)
    second = [RunPaths(logs / f"b{k}") for k in range(3)]
    ids = [job_id(run) for run in first]
    assert [one.deed for one in reconcile([*first, *second])] == [Deed.SUBMITTED] * 3
    assert [job_id(run) for run in first] == ids
    array = job_id(second[0]).partition("_")[0]
    assert [job_id(run) for run in second] == [f"{array}_{k}" for k in range(3)]
    assert slurm.stored_script(array) == HELD_ARRAY.encode()
    assert reconcile([*first, *second]) == []
    cancel([*first, *second])


def ghost(logs: Path, name: str = "g", **asked: Any) -> RunPaths:
    """The folder of a run whose command died before it had asked sbatch."""
    program = (
        "import os, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]; import made_runs; "
        "made_runs.send = lambda *_: os.kill(os.getpid(), 9); "
        f"made_runs.send_job(Path(sys.argv[1]), {name!r}, {{'plan': {{}}}}, {HELD!r}, **{asked!r})"
    )
    subprocess.run([sys.executable, "-c", program, str(logs), str(Path(__file__).parents[1])], check=False)
    return RunPaths(logs / name)


def test_a_run_that_was_submitted_while_slurm_was_asked_is_not_cleared(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look finds a ghost; until it is acted on another command has submitted it."""
    run = ghost(logs)
    first = standings([run])
    assert first[0].standing is Standing.NOTHING
    change(run, job_id="4711")
    for deed in (
        lambda: reconciliation._clear(first),
        lambda: reconciliation._submit(submission_of(record(run)), first),
    ):  # type: ignore[arg-type]
        assert not deed() and run.root.exists()


def test_what_is_cleared_is_never_outside_of_the_runs(logs: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    for array in (str(precious), "../../precious", "", ".", 3):
        run = ghost(logs)
        change(run, array=array)
        reconcile([run])
        assert precious.is_dir() and logs.is_dir()
        shutil.rmtree(run.root, ignore_errors=True)


def test_what_somebody_else_made_is_left_to_them(logs: Path, slurm: ScratchSlurm) -> None:
    sweep = "0c8c5d2e-0000-4000-8000-000000000002"
    mine, theirs, alone = held(logs, sweep=sweep), ghost(logs, "theirs", sweep=sweep), ghost(logs, "alone")
    for run in (theirs, alone):
        os.chown(run.script, 65534, 65534)
    assert [(one.deed, one.why) for one in reconcile([mine, theirs, alone])] == [
        (Deed.LEFT, "it belongs to another user")
    ] * 2
    assert theirs.root.exists() and alone.root.exists()
    cancel([mine])


def test_a_refusal_while_reconciling_keeps_the_run(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = "0c8c5d2e-0000-4000-8000-000000000003"
    mine, missing = held(logs, sweep=sweep), ghost(logs, sweep=sweep)
    sbatch(tmp_path, monkeypatch, "echo 'sbatch: error: Required partition not available' >&2; exit 1")
    [left] = reconcile([mine, missing])
    assert left.deed is Deed.LEFT and "Required partition not available" in left.why and missing.script.exists()
    (tmp_path / "wrapped" / "sbatch").unlink()
    assert [one.deed for one in reconcile([mine, missing])] == [Deed.SUBMITTED]
    cancel([mine, missing])


def test_a_copied_or_moved_ghost_is_not_submitted(logs: Path) -> None:
    sweep = "0c8c5d2e-0000-4000-8000-000000000004"
    mine, missing = held(logs, sweep=sweep), ghost(logs, sweep=sweep)
    copy = RunPaths(logs / "copy")
    shutil.copytree(missing.root, copy.root)
    elsewhere = logs.parent / "elsewhere"
    shutil.copytree(logs, elsewhere)
    moved = [RunPaths(elsewhere / name) for name in ("r", "g")]
    assert [one.deed for one in reconcile(moved)] == [Deed.LEFT]
    found = {one.run_id: one for one in reconcile([mine, missing, copy])}
    assert (found["g"].deed, found["copy"].deed) == (Deed.SUBMITTED, Deed.LEFT)
    cancel([mine, missing])


def test_a_ghost_that_was_cancelled_is_not_submitted(logs: Path) -> None:
    sweep = "0c8c5d2e-0000-4000-8000-000000000005"
    mine, missing = held(logs, sweep=sweep), ghost(logs, sweep=sweep)
    cancel([missing])
    assert status([missing])[0].outcome is Outcome.CANCELLED
    assert reconcile([mine, missing]) == [] and missing.root.exists()
    cancel([mine])


def test_a_run_of_which_slurm_knows_nothing_any_more_makes_way(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    with pytest.raises(RequestError, match="already a run r"):
        make_way(logs, ["r"])
    cancel([run])
    run.cancelled.unlink()
    change(run, job_id="999999")
    assert reconcile([run]) == [] and run.root.exists()
    with pytest.raises(RequestError, match=r"already a run r \(job 999999\)"):
        make_way(logs, ["r"])  # it may be too new for Slurm's lists
    made_long_ago(run)
    make_way(logs, ["r"])
    assert not run.root.exists()


def test_an_answer_that_is_cut_in_the_number_is_no_job_id(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: ScratchSlurm
) -> None:
    """The job that the number seems to name may be anybody's; ours is found by its UUID."""
    cut = 'said=$(real "$@") || exit; said=${said%?}; printf "%s" "${said:-Submitted batch job 1}"'
    with monkeypatch.context() as patch:
        patch.setattr("hpc_llm.runs.sending._LATE_S", 120.0)  # a busy machine's controller may take its time
        sbatch(tmp_path, patch, cut)
        run = held(logs)
    [found] = slurm.run("squeue", "-h", "-n", str(record(run)["job_name"]), "-o", "%i").split()
    assert status([run])[0].state == "PENDING" and job_id(run) == found
    cancel([run])
    assert state_of(slurm, found) in ("", "CANCELLED")


def test_a_job_that_late_lists_do_not_show_yet_is_not_submitted_again(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: ScratchSlurm
) -> None:
    """Sites keep squeue's answer for a while, so that a job of a moment ago is in no list."""
    run = held(logs)
    job = job_id(run)
    with monkeypatch.context() as patch:
        client(tmp_path, patch, "squeue", 'real "$@" | head -n 1; true')
        client(tmp_path, patch, "sacct", 'real "$@" | head -n 1; true')
        assert status([run])[0].state == "PENDING"
        with pytest.raises(RequestError, match=rf"already a run r \(job {job}\)"):
            make_way(logs, ["r"])
    assert state_of(slurm, job) == "PENDING" and job_id(run) == job
    cancel([run])


@pytest.mark.parametrize("name", ["训练" * 60, "  lead,comma", "a|b"])
def test_a_job_of_any_name_is_cancelled(logs: Path, slurm: ScratchSlurm, name: str) -> None:
    run = held(logs, job_name=name, comment="训练作业 é")
    [done] = cancel([run])
    assert done.problem is None and state_of(slurm, job_id(run)) == "CANCELLED"


def test_a_renamed_job_is_still_its_run_s(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    slurm.run("scontrol", "update", f"jobid={job_id(run)}", "name=other")
    assert status([run])[0].state == "PENDING"
    assert cancel([run])[0].problem is None and state_of(slurm, job_id(run)) == "CANCELLED"


def test_a_job_that_goes_on_without_its_folder_is_told(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HELD.replace("--output=/dev/null", f"--output={logs}/gone/log.out")
    run = send_job(logs, "gone", {"plan": {}}, text)
    assert homeless(logs) == []
    shutil.rmtree(run.root)
    [told] = homeless(logs)
    assert told.deed is Deed.LEFT and told.job_id is not None and f"cancel {told.job_id}" in told.why
    silent = tmp_path / "silent" / "squeue"
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    silent.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{silent.parent}:{os.environ['PATH']}")
        assert [one.deed for one in cut_off(logs)] == [Deed.UNKNOWN] and homeless(logs) == []
        assert cut_off(logs.parent / "others") == []  # into which nothing was ever submitted
        for more in ((), ("--dry-run",), ("--json",)):
            capsys.readouterr()
            assert command(["reconcile", "--logs", str(logs), *more]) == 1
            said = capsys.readouterr()
            assert "cannot be told" in said.out and "Slurm does not answer" in said.out and "agree" not in said.err
    assert cancel_job(told.job_id).problem is None and homeless(logs) == []


def test_a_job_leaves_a_folder_alone_that_was_made_anew(logs: Path, slurm: ScratchSlurm, tmp_path: Path) -> None:
    node = LoginNode(tmp_path, slurm)
    node.add_cluster(
        "lab", extends="local", scheduler="slurm", gpu={"vendor": "none", "per_node": 0},
        launch={"single_node": "srun", "multi_node": "srun", "allowed": ["srun"]},
    )  # fmt: skip
    words = ("--cluster=lab", "--partition=gtest", "--gpus-per-node=0", "--method=z3", "--model=tiny", "--sbatch=hold")
    words += ("--set=tasks_per_node=1", "--time=00:05:00", "--set=precision=fp32")
    [first], [other] = node.submit(*words, "--run-id=r"), node.submit(*words, "--run-id=other")
    job = job_id(first)
    shutil.rmtree(first.root)
    assert f"job {job} prints into {first.root}" in node.ask("submit", *words, "--run-id=r").stderr
    second = renamed(other, "r")
    slurm.run("scontrol", "release", job)
    until("the first has ended", lambda: state_of(slurm, job) == "FAILED")
    assert "belongs to another job by now" in second.stderr.read_text()
    assert not second.exit.exists() and read_identity(second).job_id != job  # type: ignore[union-attr]
    node.do("cancel", "r")


def test_the_id_of_an_array_names_its_members_and_a_number_is_never_a_date(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path
) -> None:
    node = LoginNode(tmp_path, slurm)
    runs = send_runs(logs, [(f"20261121-{k}", {}) for k in range(3)], HELD_ARRAY, "a")
    array = job_id(runs[0]).partition("_")[0]
    assert len(node.do("status", array).splitlines()) >= 5
    assert node.ask("cancel", "2026").returncode == 2
    assert [state_of(slurm, job_id(run)) for run in runs] == ["PENDING"] * 3
    node.do("cancel", array)
    assert slurm.run("squeue", "-h", "-j", array, "-o", "%i").strip() == ""


def test_a_job_whose_run_is_gone_is_cancelled_by_its_id(logs: Path, slurm: ScratchSlurm) -> None:
    run = held(logs)
    job = job_id(run)
    run.root.rename(logs / ".gone")
    assert cancel_job(job).problem is None
    assert state_of(slurm, job) == "CANCELLED"
    assert cancel_job(job).was_over
    with pytest.raises(RequestError, match="nor a job of that id"):
        cancel_job("999999")


def test_the_id_of_an_array_of_other_folders_names_its_members(logs: Path, slurm: ScratchSlurm, tmp_path: Path) -> None:
    runs = send_runs(logs, [(f"r{k}", {}) for k in range(3)], HELD_ARRAY, "a")
    array = job_id(runs[0]).partition("_")[0]
    slurm.run("scancel", f"{array}_2")
    other = str(tmp_path / "other")
    Path(other).mkdir()
    assert command(["cancel", array, "--logs", other]) == 0
    assert not {state_of(slurm, f"{array}_{k}") for k in range(3)} & {"PENDING", "RUNNING"}
    assert command(["cancel", array, "--logs", other]) == 0  # all of it was over


def test_an_array_that_nothing_proves_to_be_ours_is_left_alone(logs: Path, slurm: ScratchSlurm) -> None:
    told = slurm.run("sbatch", "--parsable", "--hold", "--array=0-1", "--wrap=true", "-p", "gtest", "-o", "/dev/null")
    array = told.strip()
    with pytest.raises(RequestError, match=rf"job {array}_[01] \(wrap\) is not proven to be one of your runs: nothing"):
        cancel_jobs(array)
    assert [state_of(slurm, f"{array}_{k}") for k in range(2)] == ["PENDING"] * 2
    slurm.run("scancel", array)


@pytest.mark.parametrize("by", ["run", "job id"])
def test_cancelling_one_waiting_task_leaves_the_others(logs: Path, slurm: ScratchSlurm, by: str) -> None:
    runs = send_runs(logs, [(f"r{k}", {}) for k in range(3)], HELD_ARRAY, "a")
    if by == "run":
        assert cancel([runs[1]])[0].problem is None
    else:
        runs[1].root.rename(logs / ".gone")
        assert cancel_job(job_id(RunPaths(logs / ".gone"))).problem is None
    assert [state_of(slurm, job_id(run)) for run in (runs[0], runs[2])] == ["PENDING", "PENDING"]
    slurm.run("scancel", job_id(runs[0]).partition("_")[0])


def test_the_id_of_an_array_names_members_whose_folder_is_gone_too(logs: Path, slurm: ScratchSlurm) -> None:
    runs = send_runs(logs, [(f"a{k}", {}) for k in range(3)], printing(logs), "a")
    array = job_id(runs[0]).partition("_")[0]
    shutil.rmtree(runs[1].root)
    assert command(["cancel", array, "--logs", str(logs)]) == 0
    assert [state_of(slurm, f"{array}_{k}") for k in range(3)] == ["", "", ""]
    runs = send_runs(logs, [(f"b{k}", {}) for k in range(3)], printing(logs, "b"), "b")
    array = job_id(runs[0]).partition("_")[0]
    for run in runs:
        shutil.rmtree(run.root)
    assert command(["cancel", array, "--logs", str(logs)]) == 0
    assert [state_of(slurm, f"{array}_{k}") for k in range(3)] == ["", "", ""]


def printing(logs: Path, array: str = "a") -> str:
    return HELD_ARRAY.replace("/dev/null", f"{logs}/.array-{array}/%a/log.out")


def test_a_scancel_that_fails_without_a_word_has_failed(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = held(logs)
    with monkeypatch.context() as patch:
        client(tmp_path, patch, "scancel", "exit 1")
        assert "scancel failed" in (cancel([run])[0].problem or "")
        assert "scancel failed" in (cancel_job(job_id(run)).problem or "")
    assert cancel([run])[0].problem is None


def test_a_run_that_cannot_be_written_is_cancelled_all_the_same(logs: Path, slurm: ScratchSlurm) -> None:
    with mounted(logs.parent / "mount", "1m") as disk:
        run = held(disk.folder / "logs")
        disk.make_read_only()
        [done] = cancel([run])
        assert done.problem is None and state_of(slurm, job_id(run)) == "CANCELLED"
        assert status([run])[0].outcome is Outcome.CANCELLED


def test_a_run_of_version_0_1_is_read_and_not_acted_on(logs: Path, slurm: ScratchSlurm) -> None:
    """Its record has no UUID: that its job was submitted at the same time is good enough to be shown."""
    job = slurm.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--time=5", "--wrap=true").strip()
    moment = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    run = RunPaths(logs / "old")
    write_json(run.experiment, {"schema": 1, "run_id": "old", "plan": {}})
    submission = {"schema": 1, "scheduler": "slurm", "job_id": job, "array_task": None, "submitted_at": moment}
    write_json(run.submission, submission)
    assert status([run])[0].state == "PENDING"
    [refused] = cancel([run])
    assert refused.problem is not None and f"scontrol show job {job}" in refused.problem
    write_json(run.submission, {**submission, "submitted_at": "2020-01-01T00:00:00+00:00"})
    assert status([run])[0].state != "PENDING"
    assert state_of(slurm, job) == "PENDING"
    slurm.run("scancel", job)


def test_the_cluster_s_name_is_known_without_its_controller(
    on_cluster: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("# a site's file\n  ClusterName = far-away\nSlurmctldHost=nowhere.invalid\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("PATH", "/nowhere")
    assert cluster_name() == "far-away"


def test_a_sweep_of_a_thousand_stores_its_script_once_and_is_sent_at_once(logs: Path) -> None:
    script = HELD.replace("--hold", "--hold --array=0-999")
    started = time.process_time()
    runs = send_runs(logs, [(f"r{k:04}", {"plan": {}}) for k in range(1000)], script, "a")
    assert is_within(
        time.process_time() - started, 10.0
    )  # benchmarks/slurm_cli.py measures it; here a machine may be busy
    assert len({run.script.stat().st_ino for run in runs}) == 1
    assert job_id(runs[999]).endswith("_999")
    cancel(runs)


def test_the_command_line_reconciles(slurm: ScratchSlurm, on_cluster: ScratchSlurm, tmp_path: Path) -> None:
    node = LoginNode(tmp_path, slurm)
    run = held(node.logs)
    answer_file(run.submitit).unlink()
    asking_file(run.submitit).unlink()
    job = job_id(run)
    change(run, job_id=None)
    assert node.do("reconcile", "--dry-run") == f"r  would be adopted as job {job}\n"
    assert json.loads(node.do("reconcile", "--json"))["runs"][0]["deed"] == "adopted"
    assert node.ask("reconcile").stderr == "hpc-llm: the runs and the scheduler agree: there is nothing to put right\n"
    assert node.do("cancel", job) == "r  cancelled\n"


def printing_job(logs: Path, name: str = "r") -> RunPaths:
    """A job that waits, and that will print into its run's folder."""
    return send_job(logs, name, {"run_id": name, "plan": {}}, HELD.replace("/dev/null", f"{logs}/{name}/log.out"))


def renamed(run: RunPaths, name: str) -> RunPaths:
    return RunPaths(run.root.rename(run.root.with_name(name)))


@pytest.mark.parametrize("way", ["removed", "renamed"])
def test_a_name_into_which_a_job_prints_is_not_given_again(logs: Path, slurm: ScratchSlurm, way: str) -> None:
    run = printing_job(logs)
    job = job_id(run)
    shutil.rmtree(run.root) if way == "removed" else renamed(run, "kept")
    with pytest.raises(RequestError, match=f"job {job} prints into {logs}/r, from .* `hpc-llm cancel {job}`"):
        make_way(logs, ["r"])
    make_way(logs, ["another"])
    make_way(logs, ["r"], chosen=False)  # an id that was just drawn is nobody's
    slurm.run("scancel", job)
    make_way(logs, ["r"])


def test_a_name_is_not_given_again_while_slurm_does_not_say_who_prints_there(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client(tmp_path, monkeypatch, "squeue", "exit 1")
    with pytest.raises(RequestError, match="squeue ended with exit code 1 and without a word"):
        make_way(logs, ["r"], schedulers=["slurm"])
    make_way(logs, ["r"])


def test_a_run_whose_folder_was_renamed_is_shown_and_cancelled_under_its_new_name(
    logs: Path, slurm: ScratchSlurm
) -> None:
    run = printing_job(logs)
    job = job_id(run)
    kept = renamed(run, "kept")
    assert status([kept])[0].state == "PENDING" and homeless(logs) == []
    [told] = cut_off(logs)
    assert (told.run_id, told.job_id) == ("kept", job)
    assert f"rename it back, or `hpc-llm cancel kept --logs {logs}`" in told.why
    assert reconcile([kept]) == []
    other = printing_job(logs)  # made under the old name all the same, as by another version
    assert [one.run_id for one in cut_off(logs)] == ["kept"]
    [done] = cancel([kept])
    assert (done.problem, done.job_id) == (None, job)
    assert (state_of(slurm, job), state_of(slurm, job_id(other))) == ("CANCELLED", "PENDING")
    cancel([other])


def test_a_run_that_never_was_a_job_and_was_renamed_is_left(logs: Path) -> None:
    run = make_run(logs, "r", {"run_id": "r", "plan": {}}, HELD, "slurm")
    change(run, submitter={"pid": 1 << 22, **dict.fromkeys(("start_ticks",))})
    (run.root / ".claim").unlink()
    kept = renamed(run, "kept")
    [left] = reconcile([kept])
    assert left.deed is Deed.LEFT and kept.root.exists()


def test_that_slurm_was_asked_to_end_a_job_is_not_that_it_ended(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "_LOOKS_S", (0.1, 0.0))
    gone, run = printing_job(logs, "gone"), held(logs)
    job = job_id(gone)
    shutil.rmtree(gone.root)
    with monkeypatch.context() as patch:
        client(tmp_path, patch, "scancel", "exit 0")
        assert cancel_job(job).problem == "Slurm was asked to end it, and lists it as PENDING still"
    with monkeypatch.context() as patch:
        client(tmp_path, patch, "squeue", f'[ ! -e {tmp_path}/asked ] && real "$@"')
        client(tmp_path, patch, "scancel", f'touch {tmp_path}/asked; real "$@"')
        told = "Slurm was asked to end it, and whether it did cannot be told: squeue ended with exit code 1"
        assert told in (cancel_job(job).problem or "")
        (tmp_path / "asked").unlink()
        assert told in (cancel([run])[0].problem or "")
        assert run.cancelled.exists()  # should it start after all, its script sees that
    assert (state_of(slurm, job), state_of(slurm, job_id(run))) == ("CANCELLED", "CANCELLED")


def test_a_job_that_the_queue_has_let_go_does_not_wait_whatever_accounting_says(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the members of an array accounting learns late; until then it lists them as waiting."""
    runs = send_runs(logs, [(f"r{k}", {}) for k in range(2)], HELD_ARRAY.replace("0-2", "0-1"), "a")
    array = job_id(runs[0]).partition("_")[0]
    fields = ["--duplicates", "--parsable2", f"--delimiter={SACCT_DELIMITER}", f"--format={SACCT_FIELDS}"]
    until("accounting has it", lambda: "PENDING" in slurm.run("sacct", "-j", array, *fields))
    (tmp_path / "frozen").write_text(slurm.run("sacct", "-j", array, *fields))
    client(tmp_path, monkeypatch, "sacct", f"cat {tmp_path}/frozen")
    assert cancel(runs[1:])[0].problem is None
    until("the queue has let it go", lambda: [one.outcome for one in status(runs)] == [None, Outcome.CANCELLED])
    assert cancel(runs[1:])[0].was_over
    assert cancel(runs)[0].problem is None


def test_a_job_that_ended_while_it_was_looked_at_is_over(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounting still has it as running when the queue already lists its end."""
    run = send_job(logs, "r", {"run_id": "r", "plan": {}}, HELD.replace("--hold ", "").replace("true\n", "sleep 60\n"))
    fields = ["--duplicates", "--parsable2", f"--delimiter={SACCT_DELIMITER}", f"--format={SACCT_FIELDS}"]
    frozen = tmp_path / "frozen"

    def accounting_has_it_as_running() -> bool:
        frozen.write_text(slurm.run("sacct", "-j", job_id(run), *fields))
        return {one.state for one in read_sacct(frozen.read_text()).jobs.get(job_id(run), ())} == {"RUNNING"}

    until("accounting has it as running", accounting_has_it_as_running)
    client(tmp_path, monkeypatch, "sacct", f"cat {frozen}")
    slurm.run("scancel", job_id(run))
    until("the queue lists its end", lambda: state_of(slurm, job_id(run)) == "CANCELLED")
    [done] = cancel([run])
    assert (done.was_over, done.outcome, done.problem) == (True, "CANCELLED", None)
