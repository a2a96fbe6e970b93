"""Records that somebody else wrote, in a folder that is this user's since it was cloned or unpacked: they end, take and start nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from login_node import job_id, until
from made_runs import make_run, send_job, send_runs
from rights import mounted
from scratch_slurm import ScratchSlurm

from hpc_llm.errors import Notice, RequestError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs import Deed, cancel, make_way, reconcile, status
from hpc_llm.schedulers import ledger
from hpc_llm.schedulers.local.marks import living
from hpc_llm.schedulers.process import describe_process, is_alive
from hpc_llm.schedulers.runs import answer_file, read_identity
from hpc_llm.schedulers.submission import Submission

HELD = "#!/bin/bash\n#SBATCH --hold --output=/dev/null --time=00:05:00 --mem=10M --partition=gtest\ntrue\n"
UUID = "cafe1234-9147-4c42-bfe9-9c443dfc2748"
SWEEP = "0c8c5d2e-0000-4000-8000-00000000000a"


@pytest.fixture
def logs(on_cluster: ScratchSlurm, tmp_path: Path) -> Path:
    return tmp_path / "logs"


def own_job(slurm: ScratchSlurm, *words: str) -> str:
    """A job that this user has submitted by hand, and that is no run of ours."""
    usual = ("--hold", "--parsable", "--time=5", "--mem=10M", "--partition=gtest", "--wrap=true")
    return slurm.run("sbatch", *words, *usual).strip()


def forged(logs: Path, **record: Any) -> RunPaths:
    """A run's folder as it comes with a clone."""
    run = RunPaths(logs / "evil")
    write_json(run.experiment, {"schema": 1, "run_id": "evil", "plan": {}})
    intent = Submission(scheduler="slurm", cluster="scratch", uuid=UUID).intent(run.root, 0)
    submitter = {**intent["submitter"], "pid": 1 << 22}
    write_json(run.job, {**intent, "submitter": submitter, "intended_at": "2026-01-01T00:00:00+00:00", **record})
    run.script.write_text("#!/bin/bash\n")
    os.utime(run.job, (1e9, 1e9))
    return run


def record(run: RunPaths) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.job.read_text())
    return found


def forget(run: RunPaths) -> None:
    """As in another home, or of a version that noted nothing."""
    (ledger.notes_folder() / f"{record(run)['uuid']}.json").unlink()


@pytest.mark.parametrize("knows_the_id", [True, False])
@pytest.mark.parametrize("by", ["name", "output", "both"])
def test_a_job_that_only_a_forged_record_calls_ours_is_neither_ended_nor_taken(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, by: str, knows_the_id: bool
) -> None:
    output = tmp_path / "myexp" / "log.out"
    job = own_job(
        slurm,
        f"--job-name={'my' if by == 'output' else 'resnet-cafe1234'}",
        f"--output={'/dev/null' if by == 'name' else output}",
    )
    run = forged(logs, job_name="resnet-cafe1234", run_dir=str(output.parent), job_id=job if knows_the_id else None)
    before = run.job.read_text()
    [seen] = status([run])
    assert seen.outcome is None and seen.reason is not None and f"`scancel {job}` ends it" in seen.reason
    [refused] = cancel([run])
    assert refused.problem is not None and f"nothing proves that job {job}" in refused.problem
    assert {one.deed for one in reconcile([run])} <= {Deed.LEFT}
    with pytest.raises(RequestError, match="already a run evil"):
        make_way(logs, ["evil"])
    assert run.job.read_text() == before and not run.cancelled.exists()
    assert slurm.job_state(job) == "PENDING"
    slurm.run("scancel", job)


@pytest.mark.parametrize("knows_the_id", [True, False])
def test_the_uuid_of_another_run_proves_nothing(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, knows_the_id: bool
) -> None:
    """The queue shows it to everybody, so a folder that somebody else made may name it."""
    run = send_job(logs, "r", {"run_id": "r", "plan": {}}, HELD)
    job, own = job_id(run), record(run)
    known = {"job_id": job} if knows_the_id else {}
    demo = forged(tmp_path / "foreign", uuid=own["uuid"], job_name=own["job_name"], **known)
    assert status([demo])[0].state != "PENDING"
    assert cancel([demo])[0].was_over is knows_the_id and slurm.job_state(job) == "PENDING"
    reconcile([demo])
    assert record(demo).get("job_id") == known.get("job_id") and slurm.job_state(job) == "PENDING"
    assert status([run])[0].state == "PENDING" and cancel([run])[0].problem is None


def test_nor_is_one_that_has_ended_taken_by_its_name(logs: Path, slurm: ScratchSlurm) -> None:
    job = own_job(slurm, "--job-name=resnet-cafe1234", "--output=/dev/null")
    until("accounting has its name", lambda: "cafe" in slurm.run("sacct", "-nPX", "-j", job, "-o", "JobName%40"))
    slurm.run("scancel", job)
    until("accounting has it", lambda: "CANCELLED" in slurm.run("sacct", "-nPX", "-j", job, "-o", "State"))
    run = forged(logs, job_name="resnet-cafe1234")
    status([run])
    assert record(run)["job_id"] is None
    assert {one.deed for one in reconcile([run], dry_run=True)} == {Deed.CLEARED}


@pytest.mark.parametrize("array", [None, "a"])
def test_without_a_note_a_job_whose_comment_a_site_rewrites_is_shown_and_left(
    logs: Path, slurm: ScratchSlurm, array: str | None
) -> None:
    output = logs / (".array-a/%a" if array else "r") / "log.out"
    script = HELD.replace("/dev/null", str(output)).replace("--hold", "--hold --array=0-0" if array else "--hold")
    [run] = send_runs(logs, [("r", {})], script, array)
    forget(run)
    assert status([run])[0].state == "PENDING"  # by its comment
    job = job_id(run)
    slurm.run("scontrol", "update", f"jobid={job}", "comment=proj42")
    [seen] = status([run])
    assert (seen.outcome, f"`scancel {job}` ends it" in (seen.reason or "")) == (None, True)
    os.utime(run.job, (1e9, 1e9))
    with pytest.raises(RequestError, match="already a run r"):
        make_way(logs, ["r"])
    assert cancel([run])[0].problem is not None and slurm.job_state(job) == "PENDING"
    slurm.run("scancel", job)


def test_an_end_of_which_accounting_keeps_no_comment_is_shown_without_a_note_by_its_time(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = send_job(logs, "r", {"run_id": "r", "plan": {}}, HELD)
    job = job_id(run)
    until("accounting has its name", lambda: "hpc-llm-" in slurm.run("sacct", "-nPX", "-j", job, "-o", "JobName%40"))
    slurm.run("scancel", job)
    until("accounting has it", lambda: "CANCELLED" in slurm.run("sacct", "-nPX", "-j", job, "-o", "State"))
    forget(run)
    (tmp_path / "bin").mkdir()
    squeue = tmp_path / "bin" / "squeue"
    squeue.write_text('#!/bin/sh\n/usr/bin/squeue "$@" | head -n 1\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(squeue.parent), prepend=os.pathsep)
    assert status([run])[0].outcome is Outcome.CANCELLED


def hanging(tmp_path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_process_that_only_a_record_names_is_ended_where_the_run_is_noted(tmp_path: Path, is_noted: bool) -> None:
    run = make_run(tmp_path / "logs", "r", {"run_id": "r", "plan": {}}, "true\n")
    (run.root / ".claim").unlink()
    if not is_noted:
        forget(run)
    with hanging(tmp_path) as process:
        run.submitit.mkdir(exist_ok=True)
        write_json(run.process, {"schema": 1, "script": describe_process(process.pid)})
        [done] = cancel([run])
        lives = is_alive(describe_process(process.pid))
        process.kill()
    assert lives is not is_noted and (done.problem is None) is is_noted
    assert is_noted or f"`kill {process.pid}` ends it" in (done.problem or "")


@pytest.mark.parametrize("scheduler", ["local", "slurm"])
@pytest.mark.parametrize("what", ["forged", "its script", "its place"])
def test_what_this_user_has_not_submitted_is_not_submitted_anew(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, scheduler: str
) -> None:
    """Two runs of a sweep, of which one was begun: the other's script would be run."""
    pwned = tmp_path / "pwned"
    if what == "forged":
        begun, missing = pair(logs, scheduler)
        for run in (begun, missing):
            forget(run)
    elif what == "its script":
        begun, missing = pair(logs, scheduler)
    else:
        begun, missing = pair(tmp_path / "other", scheduler)
        (tmp_path / "other").rename(logs)
        begun, missing = RunPaths(logs / "a"), RunPaths(logs / "b")
    monkeypatch.chdir(tmp_path)
    if what != "its script":
        for run in (begun, missing):
            write_json(run.job, {**record(run), "run_dir": f"logs/{run.run_id}"})
    if what != "its place":
        missing.script.write_text(
            f"#!/bin/bash\n#SBATCH --output=/dev/null --time=5 --partition=gtest\ntouch {pwned}\n"
        )
    os.utime(missing.job, (1e9, 1e9))
    for dry_run in (True, False):
        left = [one for one in reconcile([begun, missing], dry_run=dry_run) if one.run_id == "b"]
        assert [one.deed for one in left] == [Deed.LEFT]
        assert "submit it anew" in left[0].why and str(ledger.notes_folder()) in left[0].why
    assert not pwned.exists() and missing.script.exists()
    assert record(missing)["job_id"] is None and not living().of_run(record(missing)["uuid"], "b")


def pair(logs: Path, scheduler: str) -> tuple[RunPaths, RunPaths]:
    """Two submissions of one request, of which the first one's run has ended and the second was never made."""
    program = (
        "import sys; from pathlib import Path; from hpc_llm.schedulers import NewRun, Submission, create_runs; "
        "submissions = [Submission(scheduler=sys.argv[2], sweep=sys.argv[3], cluster=sys.argv[4] or None) for _ in 'ab']; "
        "create_runs(Path(sys.argv[1]), [(one, [NewRun(run_id=name, experiment={'plan': {}}, script=sys.argv[5])]) "
        "for one, name in zip(submissions, 'ab')])"
    )
    cluster = "scratch" if scheduler == "slurm" else ""
    subprocess.run([sys.executable, "-c", program, str(logs), scheduler, SWEEP, cluster, HELD], check=True)
    begun = RunPaths(logs / "a")
    write_json(begun.exit, {"schema": 1, "exit_code": 0, "stage": "done"})
    if scheduler == "slurm":
        write_json(begun.job, {**record(begun), "job_id": "1"})
    return begun, RunPaths(logs / "b")


def test_what_was_noted_is_submitted_anew_and_noted_again(logs: Path) -> None:
    begun, missing = pair(logs, "slurm")
    first = record(missing)["uuid"]
    assert [one.deed for one in reconcile([begun, missing]) if one.run_id == "b"] == [Deed.SUBMITTED]
    identity = read_identity(missing)
    assert identity is not None and identity.uuid != first and ledger.is_noted(identity)
    cancel([missing])


def test_a_note_is_written_before_sbatch_is_asked_and_is_for_nobody_else(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(f'#!/bin/sh\nls {ledger.notes_folder()} > {tmp_path}/seen\n/usr/bin/sbatch "$@"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(sbatch.parent), prepend=os.pathsep)
    run = send_job(logs, "r", {"run_id": "r", "plan": {}}, HELD)
    [note] = ledger.notes_folder().glob(f"{record(run)['uuid']}.json")
    assert note.name in (tmp_path / "seen").read_text().split()
    assert note.stat().st_mode & 0o777 == 0o600 and note.parent.stat().st_mode & 0o777 == 0o700
    cancel([run])


@pytest.mark.parametrize("home", ["missing", "a file", "read-only", "full", "open to others"])
def test_a_home_in_which_nothing_can_be_noted_keeps_nobody_from_submitting(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    place = tmp_path / "home"
    monkeypatch.setenv("HOME", str(place))
    if home == "a file":
        place.write_text("")
    elif home == "open to others":
        place.mkdir()
        ledger.notes_folder().mkdir(parents=True)
        ledger.notes_folder().chmod(0o777)
    with mounted(place, "1m") if home in ("read-only", "full") else nothing() as disk:
        if home == "read-only":
            disk.make_read_only()
        elif home == "full":
            ledger.notes_folder().mkdir(parents=True)
            disk.fill()
        with pytest.warns(Notice, match="cannot be written .* the comment of its job alone proves that it is yours"):
            run = send_job(logs, "r", {"run_id": "r", "plan": {}}, HELD)
    assert not place.exists() or home != "missing"
    answer_file(run.submitit).unlink()
    job = job_id(run)
    write_json(run.job, {**record(run), "job_id": None})
    assert status([run])[0].state == "PENDING" and job_id(run) == job  # the comment is proof enough
    assert cancel([run])[0].problem is None


def nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_notes_go_with_their_runs_or_when_they_are_old(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_LOOKED_AT", 10_000)  # other tests have left notes
    runs = send_runs(logs, [(f"r{k}", {}) for k in range(2)], HELD.replace("--hold", "--hold --array=0-1"), "a")
    old = ledger.notes_folder() / f"{UUID}.json"
    old.write_text("{}")
    os.utime(old, (1e9, 1e9))
    kept = ledger.notes_folder() / f"{record(runs[0])['uuid']}.json"
    cancel(runs)
    begun, ghost = pair(logs, "slurm")
    ledger._prune(ledger.notes_folder())  # a submission looks at a few of them, drawn by chance
    assert not old.exists() and kept.exists()
    note = ledger.notes_folder() / f"{record(ghost)['uuid']}.json"
    assert note.exists()
    write_json(begun.job, {**record(begun), "sweep": "another"})
    assert [one.deed for one in reconcile([begun, ghost]) if one.run_id == "b"] == [Deed.CLEARED]
    assert not note.exists()


def test_a_process_of_another_run_is_not_ended_by_a_folder_with_its_uuid(tmp_path: Path) -> None:
    """Its own marks say where its run was made; the note of the submission may be in another home."""
    made = make_run(tmp_path / "logs", "evil", {"run_id": "evil", "plan": {}}, "true\n")
    marks = {"HPC_LLM_RUN_UUID": record(made)["uuid"], "HPC_LLM_RUN_DIR": str(made.root)}
    forget(made)
    foreign = forged(tmp_path / "foreign", uuid=record(made)["uuid"], scheduler="local")
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(words, start_new_session=True, env={**os.environ, **marks}) as process:
        until("its marks can be read", lambda: living().of_run(record(made)["uuid"], "evil"))
        [done] = cancel([foreign])
        lives = is_alive(describe_process(process.pid))
        process.kill()
    assert lives and f"was started for the run in {made.root}: cancel that" in (done.problem or "")
