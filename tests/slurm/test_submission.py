"""The parts of submission that need no scheduler, and the seams of submitit that the rest relies on."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run, send_job, send_runs
from rights import needs_root

import hpc_llm
from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.job import start
from hpc_llm.records.run import RunPaths, Stop
from hpc_llm.schedulers import (
    NewRun,
    Submission,
    code_digest,
    code_snapshot,
    create_runs,
    discard_run,
    new_run_id,
    support_of,
)
from hpc_llm.schedulers.environment import inherited_from_slurm, without_slurm
from hpc_llm.schedulers.runs import accepted_job_id
from hpc_llm.schedulers.slurm.submit import refusal
from hpc_llm.schedulers.snapshot import code_archive

NOW = datetime(2026, 11, 21, 9, 5, 7)


def test_a_run_id_tells_when_where_and_what() -> None:
    run_id = new_run_id("taiwania2", "z3+o", "/models/Llama 2 7B", NOW, random.Random(0))
    assert re.fullmatch(r"20261121-090507-taiwania2-z3-o-Llama-2-7B-[a-z0-9]{4}", run_id)


def test_run_ids_of_one_sweep_differ() -> None:
    class Stuck(random.Random):
        """Draws each four letters twice."""

        drawn = 0

        def choices(self, population, *args, k=1, **more):  # type: ignore[no-untyped-def]
            self.drawn += 1
            return [population[self.drawn // 2]] * k

    rng, ids = Stuck(), []
    for _ in range(10):
        ids.append(new_run_id("c", "m", "tiny", NOW, rng, ids))
    assert len(set(ids)) == 10


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_a_run_id_is_a_plain_file_name(cluster: str, method: str, model: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]+", new_run_id(cluster, method, model, NOW, random.Random()))


def test_a_run_is_never_made_over_another(tmp_path: Path) -> None:
    run = make_run(tmp_path / "logs", "r", {"a": 1}, "first")
    with pytest.raises(RequestError, match="there is already a run r"):
        make_run(tmp_path / "logs", "r", {}, "second")
    assert run.script.read_text() == "first"
    discard_run(run)
    assert make_run(tmp_path / "logs", "r", {}, "third").script.read_text() == "third"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_the_stored_script_is_the_text_itself(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), "r", {}, text)
        assert run.script.read_bytes() == text.encode()
        assert os.access(run.script, os.X_OK)


def test_the_tasks_of_an_array_lead_to_their_runs(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    new = [NewRun(run_id=f"r{k}", experiment={}, script="x") for k in range(3)]
    [runs] = create_runs(logs, [(Submission(scheduler="slurm", array="a"), new)])
    assert [(logs / ".array-a" / str(k)).resolve() for k in range(3)] == [run.root.resolve() for run in runs]
    moved = logs.rename(tmp_path / "moved")
    assert (moved / ".array-a" / "2" / "job.sh").read_text() == "x"


@pytest.mark.parametrize(
    ("answer", "job_id"),
    [
        ("Submitted batch job 4711\n", "4711"),
        ("Submitted batch job 4711 on cluster x\n", "4711"),
        ("Submitted batch job 4711", None),
        ("INFO: you have 3 jobs of 20, job 7 is pending\nSubmitted batch job 4711\n", "4711"),
        ("sbatch: error: no", None),
    ],
)
def test_the_job_id_is_found_among_a_site_s_own_words(answer: str, job_id: str | None) -> None:
    assert accepted_job_id(answer) == job_id


def test_only_what_changes_a_job_is_kept_from_it() -> None:
    environ = {
        "HOME": "/h", "SLURM_CONF": "/c", "SLURM_PROCID": "1", "SBATCH_QOS": "x", "SQUEUE_FORMAT": "%i", "SLURMD_NODENAME": "n",
        "SLURM_MEM_PER_NODE": "1", "SLURMISH": "1",
    }  # fmt: skip
    assert inherited_from_slurm(environ) == [
        "SBATCH_QOS", "SLURMD_NODENAME", "SLURM_MEM_PER_NODE", "SLURM_PROCID", "SQUEUE_FORMAT",
    ]  # fmt: skip
    assert without_slurm(environ) == {"HOME": "/h", "SLURM_CONF": "/c", "SLURMISH": "1"}


def test_without_sbatch_the_message_says_where_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SubmissionError, match="login node"):
        send_job(tmp_path, "r", {}, "x")
    assert not (tmp_path / "r").exists()


# the code that travels


def test_the_carried_code_is_found_under_what_it_holds(tmp_path: Path) -> None:
    target = code_snapshot(tmp_path)
    assert target == tmp_path / ".code" / f"{code_digest()[:12]}-{os.geteuid()}.zip" == code_archive(tmp_path)
    before = os.stat(target).st_ino
    assert code_snapshot(tmp_path) == target and os.stat(target).st_ino == before
    names = zipfile.ZipFile(target).namelist()
    assert "hpc_llm/worker/pretrain_llm.py" in names and not any("/cli/" in name for name in names)
    assert {path.name for path in target.parent.iterdir()} == {target.name, support_of(tmp_path).path.name}


def test_the_digest_is_what_sha256sum_says_and_nothing_of_the_moment(tmp_path: Path) -> None:
    target = code_snapshot(tmp_path)
    done = subprocess.run(["sha256sum", str(target)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == code_digest()
    copy = tmp_path / "later"
    shutil.copytree(Path(hpc_llm.__file__).parent, copy)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    assert code_digest(copy) == code_digest()


def plant(target: Path, what: str) -> None:
    """Do to the copy what somebody could who may write in its folder."""
    content = target.read_bytes()
    target.unlink()
    if what == "changed":
        target.write_bytes(content.replace(b"i", b"e", 1))
    elif what == "longer":
        target.write_bytes(content + b"x")
    elif what == "endless":
        with target.open("wb") as file:
            file.truncate(1 << 40)
    elif what == "link":
        target.with_name("moved").write_bytes(content[:9])
        target.symlink_to("moved")
    elif what == "link to a device":
        target.symlink_to("/dev/zero")
    elif what == "folder":
        (target / "deep").mkdir(parents=True)
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "somebody else's":
        needs_root("give a file to somebody else")
        target.write_bytes(content)
        os.chown(target, 12345, -1)


@pytest.mark.parametrize(
    "what",
    ["gone", "changed", "longer", "endless", "link", "link to a device", "folder", "pipe", "somebody else's"],
)
def test_a_copy_that_is_not_what_it_should_be_is_made_anew(what: str, tmp_path: Path) -> None:
    archive, support = code_snapshot(tmp_path), support_of(tmp_path)
    for target in (archive, support.path):
        plant(target, what)
    assert code_snapshot(tmp_path) == archive
    for target, digest in ((archive, code_digest()), (support.path, support.digest)):
        assert hashlib.sha256(target.read_bytes()).hexdigest() == digest
        found = target.lstat()
        assert stat.S_ISREG(found.st_mode) and not found.st_mode & 0o022 and found.st_uid == os.geteuid()
    assert {path.name for path in archive.parent.iterdir()} <= {archive.name, support.path.name, "moved"}


def test_where_the_copy_cannot_be_made_anew_nothing_is_submitted(tmp_path: Path) -> None:
    (tmp_path / ".code").write_text("no folder")
    with pytest.raises(
        SubmissionError,
        match=r"is a link or a file and not a folder to be trusted: nothing was submitted\. Remove it, or use another --logs",
    ):
        code_snapshot(tmp_path)


def test_any_change_of_the_code_is_another_snapshot(tmp_path: Path) -> None:
    package = tmp_path / "hpc_llm"
    shutil.copytree(Path(hpc_llm.__file__).parent, package)
    before = code_digest(package)
    assert before == code_digest()
    (package / "worker" / "loop.py").write_text("# changed\n")
    assert code_digest(package) != before


def start_carried(archive: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A rank as the job script starts it, in a Python that has nothing of ours."""
    command = [sys.executable, "-S", "-c", Path(start.__file__).read_text(), str(archive), code_digest(), *words]
    return subprocess.run(
        command, cwd=archive.parent, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )


def test_the_carried_code_runs_from_memory_and_needs_nothing_else_of_ours(tmp_path: Path) -> None:
    """What lies in the working directory, or comes to lie where the archive was, is not looked at."""
    (tmp_path / ".code").mkdir()
    (tmp_path / ".code" / "argparse.py").write_text("raise SystemExit('planted')")
    done = start_carried(code_snapshot(tmp_path), "hpc_llm.worker.pretrain_llm", "--run-dir", str(tmp_path / "none"))
    assert done.returncode == 2 and "--run-dir takes the folder of a submitted run" in done.stderr, done.stderr


def test_an_error_in_the_carried_code_shows_its_lines(tmp_path: Path) -> None:
    archive = code_snapshot(tmp_path)
    program = "import hpc_llm.worker.result as r, traceback\n        try: r.Record(None, None, None)\n        except Exception: traceback.print_exc()"
    start_text = Path(start.__file__).read_text().replace('runpy.run_module(sys.argv[0], run_name="__main__")', program)
    command = [sys.executable, "-S", "-c", start_text, str(archive), code_digest(), "x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f'File "{archive}/hpc_llm/worker/result.py", line' in done.stderr
    assert "return (read_json(self.paths.job) or {}).get(" in done.stderr


def test_the_archive_may_change_once_a_rank_has_read_it(tmp_path: Path) -> None:
    """Between the check and the import others may write: nothing is read twice."""
    archive = code_snapshot(tmp_path)
    swap = f"open({str(archive)!r}, 'wb').write(b'planted'); import hpc_llm.worker.request; print(hpc_llm.__file__)"
    text = Path(start.__file__).read_text().replace('runpy.run_module(sys.argv[0], run_name="__main__")', swap)
    done = subprocess.run(
        [sys.executable, "-S", "-c", text, str(archive), code_digest(), "x"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{archive}/hpc_llm/__init__.py\n"), done.stderr
    again = start_carried(archive, "hpc_llm.worker.pretrain_llm")
    assert again.returncode == Stop.CODE_CHANGED and "is not what was submitted with this run" in again.stderr


# submitit


def test_submitting_nothing_imports_no_submitit() -> None:
    code = "import sys, hpc_llm.schedulers, hpc_llm.runs; print([m for m in sys.modules if m.startswith(('submitit', 'pandas', 'torch'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_private_seams_of_submitit_are_where_they_were() -> None:
    """What the executor overrides or calls; a new submitit that moves one of these must be looked at by a person."""
    from submitit.core import core, utils
    from submitit.local.local import Controller, LocalExecutor
    from submitit.slurm.slurm import SlurmExecutor

    def parameters(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    assert parameters(SlurmExecutor._make_submission_file_text) == ["self", "command", "uid"]
    assert parameters(SlurmExecutor._make_submission_command) == ["self", "submission_file_path"]
    assert parameters(SlurmExecutor._internal_process_submissions) == ["self", "delayed_submissions"]
    assert parameters(SlurmExecutor._get_job_id_from_submission_command) == ["string"]
    assert parameters(SlurmExecutor._num_tasks) == ["self"]
    assert parameters(core.PicklingExecutor._submit_command) == ["self", "command"]
    assert isinstance(inspect.getattr_static(SlurmExecutor, "_submitit_command_str"), property)
    assert "self._make_submission_file_text(command, tmp_uuid)" in inspect.getsource(
        core.PicklingExecutor._submit_command
    )
    assert {"submitted_pickle", "submission_file"} <= set(dir(utils.JobPaths))
    assert 'parameters.get("timeout_min", 2.0)' in inspect.getsource(LocalExecutor._submit_command)
    assert "self.timeout_s" in inspect.getsource(Controller.wait)


def test_the_script_is_handed_over_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in sbatch that keeps what it is given: single and array, whatever the text."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, body in {
        "sbatch": f'cat > {tmp_path}/got; echo "$@" > {tmp_path}/words; echo Submitted batch job 12',
        "srun": ":",
    }.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder), prepend=os.pathsep)
    text = "#!/bin/bash\n# {{ jinja }} %j %% $(touch hacked) 'quotes' \"and\" ünïcode\n\ttab\n\n"
    logs = tmp_path / "logs"
    single = send_job(logs, "single", {}, text, nodes=2, tasks_per_node=4, time_s=90, comment="mine")
    record = json.loads(single.job.read_text())
    assert (tmp_path / "got").read_bytes() == text.encode()
    uuid = record["uuid"]
    assert record["arguments"] == [f"--job-name=hpc-llm-{uuid[:8]}", f"--comment=hpc-llm:{uuid} mine"]
    assert (tmp_path / "words").read_text() == " ".join(record["arguments"]) + "\n"
    runs = send_runs(logs, [(f"r{k}", {}) for k in range(3)], text + "#", "a")
    assert (tmp_path / "got").read_bytes() == (text + "#").encode()
    records = [json.loads(run.job.read_text()) for run in runs]
    assert [record["job_id"] for record in records] == ["12_0", "12_1", "12_2"]
    assert [record["array_task"] for record in records] == [0, 1, 2]
    assert len({record["uuid"] for record in records}) == 1 and records[0]["uuid"] != uuid


def test_submitit_finds_its_own_jobs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder stays one that submitit's own tools can open."""
    from submitit.slurm.slurm import SlurmJob

    test_the_script_is_handed_over_byte_for_byte(tmp_path, monkeypatch)
    job = SlurmJob(tmp_path / "logs" / ".array-a" / "submitit", "12_2")
    assert job.submission().function.args == (RunPaths(tmp_path / "logs" / "r2").root,)


@pytest.mark.parametrize(
    ("said", "line", "told"),
    [
        ("Batch job submission failed: Invalid feature specification", "--constraint=work", "request.constraint of the cluster's profile"),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "--account=me", "--account and"),
        ("invalid partition specified: gp9; Batch job submission failed: Invalid partition name specified", "--partition=gp9", "sinfo -s"),
        ("Batch job submission failed: Invalid qos specification", "--qos=high", "request.extra of the cluster's profile"),
        ("Batch job submission failed: Invalid generic resource (gres) specification", "--gres=gpu:v100:2", "request.gpu_type"),
        ("Memory specification can not be satisfied; Batch job submission failed", "--mem=900G", "--sbatch mem=SIZE"),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "--time=9-00:00:00", "--time HH"),
        ("Batch job submission failed: Requested reservation is invalid", "--reservation=x", "scontrol show reservation"),
        ("Batch job submission failed: Invalid node name specified", "--exclude=nosuch", "sinfo -N"),
        ("Batch job submission failed: Job dependency problem", "--dependency=afterok:1", "squeue -u $USER"),
        ("Batch job submission failed: Requested node configuration is not available", "--ntasks-per-socket=1", "what nodes have"),
        *(("Batch job submission failed: Requested node configuration is not available", line, "does not say which line")
          for line in ("--constraint=a100", "--nodelist=c1", "--exclude=c1", "--partition=cpu", "--mem-per-cpu=900G", "--gres=gpu:9")),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "--qos=high",
         "does not say which; `sacctmgr"),
        ("Batch job submission failed: Invalid license specification", "--licenses=x:1", "scontrol show licenses"),
    ],
)  # fmt: skip
def test_a_refusal_of_sbatch_names_the_line_that_it_is_about(said: str, line: str, told: str) -> None:
    """The messages are those of slurm_errno.c and of sbatch."""
    script = f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH {line}\necho '#SBATCH --x'\n"
    found = refusal(said, script)
    assert (
        found.startswith(f"sbatch refused the job: {said}. The script holds ")
        and f"{line}: " in found
        and told in found
    )
    assert refusal(said, "#!/bin/bash\n#SBATCH --hold\n") == f"sbatch refused the job: {said}."
    assert refusal("Batch job submission failed: Unspecified error", script).endswith("Unspecified error.")


@pytest.mark.parametrize(
    "said", ["unrecognized option '--fabric=3'; Try \"sbatch --help\" for more information", "invalid option --fabric"]
)
def test_an_option_that_sbatch_does_not_have_is_told_where_it_is(said: str) -> None:
    found = refusal(said, "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --fabric=3\n")
    assert "--fabric=3, which is none of its options" in found and "request.extra of the cluster's profile" in found
    assert refusal(said, "#!/bin/bash\n#SBATCH --nodes=1\n") == f"sbatch refused the job: {said}."
