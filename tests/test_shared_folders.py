"""Folders in which others write: what they put there is not followed, waited for, read without end, run or believed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rights import GROUP, as_user, needs_root
from standin import Machine

from hpc_llm.api.find import find_run
from hpc_llm.api.handle import status
from hpc_llm.api.rows import parse
from hpc_llm.cli import run as command
from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.records.files import append_to, append_within, read_json_lines, read_own, write_json
from hpc_llm.records.run import RunPaths, Stop
from hpc_llm.records.shared import who_can_rename
from hpc_llm.reporting.earlier import RECORD
from hpc_llm.runs.adoption import written_by_others
from hpc_llm.schedulers import NewRun, Submission, create_runs
from hpc_llm.schedulers.process import describe_process, is_alive
from hpc_llm.schedulers.slurm import sbatch_session
from hpc_llm.schedulers.snapshot import code_snapshot

ME, OTHER, THIRD = 12345, 12346, 12347
PRIVATE = "only-I-may-read-this"
SECRET = "hf_abcdEFGH12345678ijkl"
UUID = "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b"


def fill(run: RunPaths, script: str = "#!/bin/bash\n") -> None:
    """A run that failed, with all the records of one."""
    plan = {"method": "z3", "model": "tiny", "steps": 3, "cluster": "here", "task": "pretrain"}
    write_json(run.experiment, {"schema": 1, "run_id": run.run_id, "plan": plan})
    job = {"schema": 2, "scheduler": "local", "uuid": UUID, "job_id": "7", "run_id": run.run_id}
    write_json(run.job, job)
    write_json(run.exit, {"schema": 1, "exit_code": 1, "stage": "launch", "started_at": 1.79e9, "ended_at": 1.79e9 + 5})
    write_json(run.result, {"schema": 1, "outcome": "FAILED", "outcome_reason": "rank 0: ValueError: no"})
    write_json(run.failure(0), {"schema": 1, "rank": 0, "type": "ValueError", "message": "no", "time": 1.79e9})
    run.script.write_text(script)
    run.stdout.write_text("hello\n")
    run.stderr.write_text("ValueError: no\n")
    run.steps.write_text('{"step": 1, "loss": 2.0}\n')


# --- what others lead to --------------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that a group writes, with a run of each of two members, and what only I may read in a folder beside it."""
    needs_root("act for several users")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    logs, mine = folder / "logs", folder / "mine"
    logs.mkdir()
    os.chown(logs, -1, GROUP)
    logs.chmod(0o2770)
    mine.mkdir(0o700)
    (mine / "words").write_text(PRIVATE)
    fill(RunPaths(mine / "run"), f"# {PRIVATE}\n")
    for name in ("exit.json", "result.json", "failures/rank-0.json"):
        record = json.loads((mine / "run" / name).read_text())
        write_json(mine / "run" / name, {**record, "reason": PRIVATE, "outcome_reason": PRIVATE, "message": PRIVATE})
    (mine / "run" / "log.err").write_text(f"ValueError: {PRIVATE}\n")
    (mine / "some.log").write_text(f"ValueError: {PRIVATE}\n")
    for path in [mine, *mine.rglob("*")]:
        os.chown(path, ME, ME)
    assert as_user(ME, lambda: fill(RunPaths(logs / "r-mine"))) == 0
    assert as_user(OTHER, lambda: fill(RunPaths(logs / "r-other"))) == 0
    yield folder
    shutil.rmtree(folder)


_imported: list[bool] = []


def all_that_is_told(folder: Path, user: int, capfd: pytest.CaptureFixture[str]) -> str:
    """What `user` sees of the folder, and hands on: every table, and the page."""
    logs, out = folder / "logs", folder / f"out-{user}"
    words = [
        ["status", "--json", "--logs", str(logs)],
        ["parse", "--format=json", str(logs)],
        ["diagnose", "--json", str(logs)],
        ["report", str(logs), "-o", str(out)],
    ]

    def tell() -> None:
        for each in words:
            assert command(each) == 0, each

    out.mkdir()
    os.chown(out, user, user)
    if not _imported:
        tell()  # what it imports the user may not be able to read
        _imported.append(True)
        shutil.rmtree(out)
        out.mkdir()
        os.chown(out, user, user)
    capfd.readouterr()
    assert as_user(user, tell) == 0, capfd.readouterr().err
    printed = capfd.readouterr()
    return printed.out + "".join(path.read_text(errors="replace") for path in out.rglob("*.*") if path.suffix != ".png")


LED = {
    "the script": ("job.sh", "words"),
    "a result": ("result.json", "run/result.json"),
    "an end": ("exit.json", "run/exit.json"),
    "the output": ("log.err", "run/log.err"),
    "a folder of records": ("failures", "run/failures"),
    "steps": ("steps.jsonl", "some.log"),
}


def test_a_link_of_somebody_else_shows_nothing_of_mine(shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def plant() -> None:
        for number, (name, target) in enumerate(LED.values()):
            run = RunPaths(shared / "logs" / f"r-other-{number}")
            fill(run)
            path = run.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.symlink_to(shared / "mine" / target)

    assert as_user(OTHER, plant) == 0
    told = all_that_is_told(shared, ME, capfd)
    assert not [line for line in told.splitlines() if PRIVATE in line]
    assert all(f"r-other-{number}" in told for number in range(len(LED))) and "r-mine" in told


def test_a_link_in_my_own_folder_counts_only_if_i_made_it(shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As in a folder of an earlier version, in which the group writes."""
    root = shared / "logs" / "r-mine"
    root.chmod(0o2777)

    def plant() -> None:
        (root / "job.sh").unlink()
        (root / "job.sh").symlink_to(shared / "mine" / "words")

    assert as_user(OTHER, plant) == 0
    assert PRIVATE not in all_that_is_told(shared, ME, capfd)


@pytest.mark.parametrize("target", ["run", "some.log"])
def test_a_run_or_a_log_is_not_found_through_a_link_of_somebody_else(
    shared: Path, target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    link = shared / "logs" / f"r-linked.{target}"
    assert as_user(OTHER, lambda: link.symlink_to(shared / "mine" / target)) == 0
    assert PRIVATE not in all_that_is_told(shared, ME, capfd)
    link.unlink()
    assert as_user(ME, lambda: link.symlink_to(shared / "mine" / target)) == 0
    shutil.rmtree(shared / f"out-{ME}")
    # My own link is my own will, to a run; what is no run came perhaps with a folder that I unpacked.
    assert (PRIVATE in all_that_is_told(shared, ME, capfd)) is (target == "run")


def test_members_of_a_group_read_each_other_s_runs_and_their_links(
    shared: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def link() -> None:
        root = shared / "logs" / "r-other"
        (root / "job.sh").rename(root / "kept.sh")
        (root / "kept.sh").write_text("# words-of-theirs\n")
        (root / "job.sh").symlink_to("kept.sh")

    assert as_user(OTHER, link) == 0
    for reader in (ME, OTHER, THIRD):
        told = all_that_is_told(shared, reader, capfd)
        assert "words-of-theirs" in told and "r-mine" in told and "r-other" in told


def test_a_secret_in_a_script_or_a_result_reaches_no_page(shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def leave() -> None:
        run = RunPaths(shared / "logs" / "r-other")
        run.script.write_text(
            f"#!/bin/bash\nexport HF_TOKEN={SECRET}\nexport API_KEY=0123456789\necho words-of-theirs\n"
        )
        result = {"schema": 1, "outcome": "FAILED", "adaptations": [SECRET], "versions": {"x": SECRET}}
        write_json(run.result, {**result, "error": {"type": "E", "message": SECRET, "traceback": SECRET}})

    assert as_user(OTHER, leave) == 0
    told = all_that_is_told(shared, ME, capfd)
    assert SECRET not in told and "API_KEY=0123456789" not in told and "words-of-theirs" in told


# --- what blocks, and what does not end -----------------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


STRANGE: dict[str, Callable[[Path], None]] = {"a pipe": _pipe, "a device": _device, "a hole": _hole}


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    made = RunPaths(tmp_path / "logs" / "r")
    fill(made)
    return made


def put(path: Path, what: str) -> None:
    path.unlink()
    STRANGE[what](path)


def test_no_file_of_a_run_keeps_a_report_from_its_end(run: RunPaths, tmp_path: Path) -> None:
    names = ("job.sh", "steps.jsonl", "log.err", "log.out", "telemetry.jsonl")
    cases = [(name, what) for name in names for what in STRANGE]
    for number, (name, what) in enumerate(cases):
        one = RunPaths(run.root.with_name(f"r-{number}-end"))
        fill(one)
        (one.root / name).touch()
        put(one.root / name, what)
    assert command(["report", str(run.root.parent), "-o", str(tmp_path / "out")]) == 0
    table = (tmp_path / "out" / "results.csv").read_text()
    assert [number for number in range(len(cases)) if f"r-{number}-end" not in table] == []


@pytest.mark.parametrize("what", ["a pipe", "a device"])
def test_a_script_that_is_none_is_not_compared(run: RunPaths, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(run.script, what)
    words = ["render", "--cluster", "local", "--method", "z3", "--diff", "r", "--logs", str(run.root.parent)]
    assert command(words) == 2
    assert f"--diff: {run.script} cannot be read, or is no regular file." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        ("a pipe", 2, " is no regular file: it holds no output."),
        ("a device", 1, ": it is a link that leads out of the run's folder, and is not followed."),
    ],
)
def test_output_that_is_none_is_not_waited_for(
    run: RunPaths, what: str, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(run.stdout, what)
    assert command(["logs", "r", "--logs", str(run.root.parent)]) == code
    assert f"{run.stdout}{told}" in capsys.readouterr().err


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_model_whose_files_are_none_is_refused(
    tmp_path: Path, what: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"hidden_size": 8}')
    (model / name).touch()
    put(model / name, what)
    assert command(["render", "--cluster", "local", "--method", "z3", "--model", str(model)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"{model / name}" in err


@pytest.mark.parametrize("what", ["a pipe"])
def test_weights_that_are_a_pipe_are_refused(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    STRANGE[what](tmp_path / "model.safetensors")
    assert command(["render", "--cluster", "local", "--method", "z3", "--model", str(tmp_path)]) == 2
    assert "cannot be read: it is no regular file" in capsys.readouterr().err


def test_lines_that_are_added_while_they_are_read_keep_nobody_reading(run: RunPaths) -> None:
    for number, _ in enumerate(read_json_lines(run.steps)):
        assert number == 0
        with run.steps.open("a") as file:
            file.write('{"step": 2}\n' * 10_000)


def test_what_is_appended_goes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    (tmp_path / "telemetry.jsonl").symlink_to("mine")
    with pytest.raises(OSError, match="symbolic link"):
        append_to(tmp_path / "telemetry.jsonl")
    for _ in range(2):
        with append_to(tmp_path / "other.jsonl") as file:
            file.write("a\n")
    assert ((tmp_path / "mine").read_text(), (tmp_path / "other.jsonl").read_text()) == ("x", "a\na\n")


@pytest.mark.parametrize("links", ["", "run", "run/submitit", "run/submitit/queue.log", "hard"])
def test_what_is_printed_goes_through_no_link_of_any_part(tmp_path: Path, links: str) -> None:
    mine = tmp_path / "mine"
    (mine / "submitit").mkdir(parents=True)
    (mine / "submitit" / "queue.log").write_text("x")
    place, root = tmp_path / (links if links != "hard" else "run/submitit/queue.log"), tmp_path / "run"
    place.parent.mkdir(parents=True, exist_ok=True)
    if links == "hard":
        os.link(mine / "submitit" / "queue.log", place)
    elif links:
        place.symlink_to(mine / Path(links).relative_to("run"))
    else:
        (root / "submitit").mkdir(parents=True)
    if links:
        with pytest.raises(OSError):
            append_within(root, "submitit", "queue.log")
    else:
        os.close(append_within(root, "submitit", "queue.log"))
        assert (root / "submitit" / "queue.log").stat().st_mode & 0o022 == 0
    assert (mine / "submitit" / "queue.log").read_text() == "x"


@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [(ME, 0o755, None), (0, 0o755, None), (0, 0o1777, None), (ME, 0o1777, None), (OTHER, 0o1777, "belongs to"), (OTHER, 0o755, "belongs to"),
     (ME, 0o777, "no sticky bit"), (0, 0o775, "no sticky bit")],
)  # fmt: skip
@pytest.mark.parametrize("below", ["", "mine", "mine/not/there"])
def test_who_can_rename_runs_is_known(shared: Path, owner: int, mode: int, said: str | None, below: str) -> None:
    place = shared / "place"
    (place / "mine").mkdir(parents=True)
    os.chown(place / "mine", ME, -1)
    os.chown(place, owner, GROUP)
    place.chmod(mode)

    def look() -> None:
        found = who_can_rename(place / below)
        assert (
            (found is None) == (said is None) and (said or "") in (found or "") and (not found or str(place) in found)
        )

    assert as_user(ME, look) == 0


# --- the job script -------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


@pytest.mark.parametrize("name", ["started.jsonl", "exit.json"])
@pytest.mark.parametrize("exists", [True, False])
def test_the_script_writes_through_no_link(machine: Machine, name: str, exists: bool) -> None:
    text, mine = machine.script(), machine.folder / "precious"
    if exists:
        mine.write_text("mine")
    (machine.logs / "run-1" / name).symlink_to(mine)
    ended = machine.run(text)
    assert ended.code == 0 and ended.exit["exit_code"] == 0
    assert mine.exists() == exists and (not exists or mine.read_text() == "mine")


@pytest.mark.parametrize(("name", "code"), [("job.json", Stop.NO_RUN_FOLDER), ("result.json", 0), ("started.jsonl", 0)])
def test_the_script_waits_for_no_pipe(machine: Machine, name: str, code: int) -> None:
    text, path = machine.script(), machine.logs / "run-1" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert machine.run(text).code == code


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(machine: Machine) -> Path:
    """A folder of this user's own that is no run's, with files that are called like those of one."""
    folder = machine.folder / "project"
    folder.mkdir()
    for name in ("result.json", "steps.jsonl", "log.out", "exit.json"):
        (folder / name).write_text("precious")
    return folder


@pytest.mark.parametrize(
    "job", [None, '{"uuid": "8d0d1a3e-0000-4000-8000-000000000000"}', '{"uuid": "other"}', "no JSON"]
)
@pytest.mark.parametrize("kind", ["link", "folder"])
@pytest.mark.parametrize("changed", [False, True])
def test_what_is_no_folder_of_the_run_is_not_touched(
    machine: Machine, project: Path, kind: str, job: str | None, changed: bool
) -> None:
    """Who owns the folder of the runs can rename what lies in it, and put a link, or another folder of the victim's, there."""
    text, run = machine.script(cluster=machine.cluster(scheduler="slurm"), scheduler="slurm"), machine.logs / "run-1"
    run.rename(machine.logs / ".gone")
    if job is not None:
        (project / "job.json").write_text(job)
    if kind == "link":
        run.symlink_to(project)
    else:
        project = project.rename(run)
    before = content(project)
    if changed:
        machine.support.path.write_text("echo other")
    ended = machine.run(text, SLURM_JOB_NAME="tiny-z3-0123abcd", SLURM_JOB_ID="7", SLURM_CLUSTER_NAME="x")
    assert ended.code == (Stop.CODE_CHANGED if changed else Stop.NO_RUN_FOLDER), ended.stderr
    assert content(project) == before and ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "how", ["elsewhere", "to the run, from a link", "a copy elsewhere", "no job.json", "another's link"]
)
def test_a_task_of_an_array_is_led_to_nothing_but_its_run(machine: Machine, project: Path, how: str) -> None:
    text, [run, _] = machine.array("z2", "z3")
    links = machine.logs / ".array-sweep"
    slurm = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "9", "SLURM_JOB_NAME": "sweep-0123abcd"}
    if how == "to the run, from a link":
        links.rename(machine.folder / "links")
        links.symlink_to(machine.folder / "links")
    elif how == "no job.json":
        (run / "job.json").unlink()
    elif how == "another's link":
        needs_root("give a link to somebody else")
        os.chown(links / "0", OTHER, -1, follow_symlinks=False)
    else:
        (links / "0").unlink()
        if how == "a copy elsewhere":
            shutil.copy(run / "job.json", project)
        (links / "0").symlink_to(project)
    before = content(machine.folder / "project"), content(run)
    ended = machine.run(text, run, **slurm)
    assert ended.code == Stop.NO_RUN_FOLDER and ended.stderr.count("\n") == 1, ended.stderr
    after = content(machine.folder / "project"), content(run)
    after[1].pop("started.jsonl", None)  # of its own run, whoever made the link to it
    assert after == before


def test_a_run_that_is_replaced_while_it_goes_on_leaves_no_record_elsewhere(machine: Machine, project: Path) -> None:
    machine.script()
    machine.behave("wait 3")
    process = machine.start(machine.script())
    machine.ready()
    (machine.logs / "run-1").rename(machine.logs / ".gone")
    (machine.logs / "run-1").symlink_to(project)
    before = content(project)
    process.terminate()
    assert machine.end(process).code != 0
    assert content(project).keys() - before.keys() <= {"seen.json"}  # of the program, which has the path
    assert content(project).items() >= before.items()


def test_the_script_leaves_no_folder_that_others_can_write(machine: Machine) -> None:
    text = machine.script()
    for number in range(2):
        machine.behave("train FAILED 1")
        machine.start(f"umask 000\n{text}", SLURM_RESTART_COUNT=str(number)).communicate(timeout=300)
    made = [path for path in (machine.logs / "run-1" / "tries").rglob("*") if path.is_dir() and path.name != "failures"]
    assert made and all(not path.stat().st_mode & 0o022 for path in [machine.logs / "run-1" / "tries", *made])


def test_a_folder_of_somebody_else_in_the_place_of_the_run_is_left_alone(machine: Machine) -> None:
    needs_root("give a folder to somebody else")
    text = machine.script()
    os.chown(machine.logs / "run-1", OTHER, -1)
    ended = machine.run(text)
    assert ended.code == Stop.NO_RUN_FOLDER and "belongs to another user" in ended.stderr and ended.seen is None
    assert {path.name for path in ended.run.iterdir()} == {"job.json"}


def test_the_job_s_own_folder_is_nobody_else_s(machine: Machine) -> None:
    """Also where the folder that is to hold it is not there yet."""
    text = machine.script()
    machine.behave("until 0")
    process = machine.start(f"umask 000\n{text}", TMPDIR=str(machine.folder / "no" / "tmp"))
    machine.ready()
    [own] = (machine.folder / "no" / "tmp").iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    (machine.logs / "run-1" / "go").touch()
    assert machine.end(process).code == 0 and not own.exists()


# --- what is handed to a scheduler, or ended ------------------------------------------------------------------------


def session(
    folder: Path, digest: str, script: str = "#!/bin/sh\n", says: str = ":"
) -> subprocess.CompletedProcess[str]:
    """sbatch in its session, a stand-in that keeps what it gets."""
    (folder / "script").write_text(script)
    records = [str(folder / name) for name in ("asking.json", "answer.json", "script")]
    program = [sys.executable, "-I", str(sbatch_session.__file__), str(os.getpid()), *records, digest]
    keep = ["sh", "-c", f"cat > '{folder}/got'; {says}; echo Submitted batch job 5"]
    return subprocess.run([*program, *keep], capture_output=True, text=True, check=False, start_new_session=True)


def test_sbatch_gets_the_script_that_was_decided_on_or_none(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert session(tmp_path, digest).returncode == 0 and (tmp_path / "got").read_text() == "#!/bin/sh\n"
    (tmp_path / "got").unlink()
    done = session(tmp_path, digest, "#!/bin/sh\nplanted\n")
    assert done.returncode == 1 and "is not what was to be submitted" in done.stderr
    assert not (tmp_path / "got").exists()
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["returncode"] == 1 and "not asked" in answer["stderr"]


def test_what_sbatch_prints_is_kept_without_secrets_and_controls(tmp_path: Path) -> None:
    """Others may read the answer, and a site's own program in place of sbatch prints whatever it knows."""
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    print_all = r"printf 'SITE_PASSWORD=hunter22x\n\033[31mred\n'; printf 'API_KEY=Zk81mQx0p7Lw\n' >&2"
    flood = "head -c 200000 /dev/zero | tr '\\0' x >&2; echo >&2; echo refused >&2"
    done = session(tmp_path, digest, says=f"{print_all}; {flood}")
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["stdout"] == done.stdout == "SITE_PASSWORD=(hidden)\nred\nSubmitted batch job 5\n"
    assert answer["stderr"] == done.stderr == "API_KEY=(hidden)\n[...]\nrefused\n"
    session(tmp_path, digest, says=print_all)
    assert json.loads((tmp_path / "answer.json").read_text())["stderr"] == "API_KEY=(hidden)\n"


@pytest.fixture
def missing(tmp_path: Path) -> RunPaths:
    """A run of a sweep that was never submitted, made with the umask of a group."""
    before = os.umask(0o002)
    try:
        new = NewRun(run_id="r", experiment={"schema": 1, "run_id": "r"}, script="#!/bin/sh\n")
        [[run]] = create_runs(tmp_path / "logs", [(Submission(scheduler="slurm"), [new])])
    finally:
        os.umask(before)
    return run


def test_what_we_made_only_we_can_have_written(missing: RunPaths) -> None:
    assert written_by_others(missing) == [] and read_own(missing.script) == b"#!/bin/sh\n"


@pytest.mark.parametrize("name", ["", "job.sh", "job.json", "submitit", "submitit/process.json"])
@pytest.mark.parametrize("how", ["the group writes", "all write", "somebody else's", "a link"])
def test_what_others_can_have_written_is_not_run(missing: RunPaths, name: str, how: str, tmp_path: Path) -> None:
    path = missing.root / name
    if name.endswith("process.json"):
        write_json(path, {})
    if how == "a link":
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
    elif how == "somebody else's":
        needs_root("give a file to somebody else")
        os.chown(path, OTHER, -1)
    else:
        path.chmod(path.stat().st_mode | (0o020 if how == "the group writes" else 0o002))
    assert path in written_by_others(missing)
    if name == "job.sh":
        with pytest.raises((OSError, ValueError)):
            read_own(path)


def test_a_record_that_lacks_something_is_of_no_process() -> None:
    mine = describe_process(os.getpid())
    assert is_alive(mine)
    assert not any(
        is_alive({name: value for name, value in mine.items() if name != left_out})
        for left_out in mine
        if left_out != "pid"
    )
    assert not is_alive({"pid": os.getpid()})


def test_a_folder_of_somebody_else_takes_no_job_id_from_a_run_of_mine(tmp_path: Path) -> None:
    needs_root("give a folder to somebody else")
    for name in ("a-theirs", "mine"):
        fill(RunPaths(tmp_path / name))
    for path in [tmp_path / "a-theirs", *(tmp_path / "a-theirs").rglob("*")]:
        os.chown(path, OTHER, -1)
    assert find_run("7", tmp_path).run_id == "mine"
    shutil.rmtree(tmp_path / "mine")
    assert find_run("7", tmp_path).run_id == "a-theirs"
    fill(RunPaths(tmp_path / "one"))
    fill(RunPaths(tmp_path / "two"))
    with pytest.raises(RequestError, match="2 runs"):
        find_run("7", tmp_path)


# --- what is written ------------------------------------------------------------------------------------------------

WRITING = {
    "report": ("results.md", ["report", "job.log", "-o", "out"]),
    "parse": ("rows.csv", ["parse", "job.log", "-o", "out/rows.csv"]),
    "render": ("job.sh", ["render", "--cluster", "local", "--method", "z2", "--model", "tiny", "-o", "out/job.sh"]),
}


@pytest.mark.parametrize("name", [*WRITING, "rows"])
def test_no_output_goes_through_a_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [WRITING[name][0], "results.csv", "results.tex", "index.html"] if name in WRITING else ["rows.csv"]
    Path("out").mkdir()
    Path("job.log").write_text("{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n")
    if name == "report":  # what is no report's is not replaced at all
        names.remove("index.html")
        assert command(WRITING[name][1]) == 0
    for file in names:
        Path(file).write_text(PRIVATE)
        Path("out", file).unlink(missing_ok=True)
        Path("out", file).symlink_to(Path(file).absolute())
    if name == "render":  # what `render` did not write it replaces neither there nor here
        assert (
            command(WRITING[name][1]) == 2 and Path("out/job.sh").is_symlink() and Path("job.sh").read_text() == PRIVATE
        )
        Path("out/job.sh").unlink()
        assert command(WRITING[name][1]) == 0
    elif name in WRITING:
        assert command(WRITING[name][1]) == 0
    else:
        parse("job.log").write("out/rows.csv")
    assert [Path(file).read_text() for file in names] == [PRIVATE] * len(names)
    written = Path("out", names[0])
    assert not written.is_symlink() and PRIVATE not in written.read_text() and written.stat().st_size > 9
    assert not [path for path in Path("out").iterdir() if path.name.startswith(".") and path.name != RECORD]


def test_a_report_waits_for_no_pipe_and_an_output_may_be_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.log").write_text("{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n")
    assert command(["report", "job.log", "-o", "out"]) == 0
    Path("out/results.md").unlink()
    os.mkfifo("out/results.md")
    assert command(["report", "job.log", "-o", "out"]) == 0
    assert Path("out/results.md").is_file()
    Path("out/index.html").unlink()
    os.mkfifo("out/index.html")
    assert command(["report", "job.log", "-o", "out"]) == 2
    assert command(["parse", "job.log", "-o", "/dev/null", "--format", "csv"]) == 0
    assert Path("/dev/null").is_char_device()


def test_a_report_goes_into_no_folder_that_somebody_leads_to(
    shared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert as_user(OTHER, lambda: os.symlink(shared / "mine", shared / "logs" / "page")) == 0
    monkeypatch.setattr("os.geteuid", lambda: THIRD)
    assert command(["report", str(shared / "logs" / "r-other"), "-o", str(shared / "logs" / "page")]) == 2
    assert "is a link of somebody to what is not theirs" in capsys.readouterr().err
    assert not (shared / "mine" / "index.html").exists()


@pytest.mark.parametrize("what", ["link", "open", "closed", "shared", "mine"])
def test_the_code_lies_in_no_folder_that_a_stranger_chose(what: str, shared: Path) -> None:
    place = shared / "logs" / ".code"

    def theirs() -> None:
        if what == "link":
            Path(shared / "logs" / "elsewhere").mkdir()
            place.symlink_to(shared / "logs" / "elsewhere")
        else:
            place.mkdir()
            place.chmod({"open": 0o777, "closed": 0o755, "shared": 0o3777, "mine": 0o755}[what])

    assert as_user(ME if what == "mine" else OTHER, theirs) == 0

    def submit() -> None:
        if what in ("shared", "mine"):
            assert code_snapshot(shared / "logs").is_file()
            return
        with pytest.raises(SubmissionError, match="not a folder to be trusted: nothing was submitted"):
            code_snapshot(shared / "logs")

    assert as_user(ME, submit) == 0
    assert what != "link" or not list((shared / "logs" / "elsewhere").iterdir())


@pytest.mark.parametrize("user", [ME, OTHER])
def test_a_copy_of_a_run_has_no_job(user: int, shared: Path) -> None:
    original = shared / "logs" / "r-mine"
    assert as_user(user, lambda: shutil.copytree(original, shared / "logs" / "r-copy")) == 0
    [copied] = status(shared / "logs" / "r-copy")
    [first] = status(original)
    assert (copied.job_id, first.job_id) == (None, "7")
    assert "a copy of run r-mine" in (copied.reason or "") and "copy" not in (first.reason or "")
