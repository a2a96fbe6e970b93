"""The parts of submission that need no scheduler, and the seams of submitit that the rest relies on."""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run, send_job, send_runs
from rights import needs_root

import hpc_llm
from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.run import RunPaths
from hpc_llm.submit import NewRun, Submission, code_digest, code_snapshot, create_runs, discard_run, new_run_id
from hpc_llm.submit.environment import inherited_from_slurm, without_slurm
from hpc_llm.submit.runs import accepted_job_id
from hpc_llm.submit.snapshot import code_folder

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
    assert [(logs / ".arrays" / "a" / str(k)).resolve() for k in range(3)] == [run.root.resolve() for run in runs]
    moved = logs.rename(tmp_path / "moved")
    assert (moved / ".arrays" / "a" / "2" / "job.sh").read_text() == "x"


@pytest.mark.parametrize(
    ("answer", "job_id"),
    [
        ("Submitted batch job 4711\n", "4711"),
        ("Submitted batch job 4711 on cluster x", "4711"),
        ("INFO: you have 3 jobs of 20, job 7 is pending\nSubmitted batch job 4711", "4711"),
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
    assert target == tmp_path / ".code" / f"{code_digest()[:12]}-{os.geteuid()}" == code_folder(tmp_path)
    before = os.stat(target).st_ino
    assert code_snapshot(tmp_path) == target and os.stat(target).st_ino == before
    assert (target / "hpc_llm" / "worker" / "pretrain_llm.py").is_file()
    assert not (target / "hpc_llm" / "cli").exists()
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_the_digest_is_what_the_shell_computes(tmp_path: Path) -> None:
    target = code_snapshot(tmp_path)
    command = "{ find . -type f -exec sha256sum {} + && find . ! -type f; } | LC_ALL=C sort | sha256sum"
    done = subprocess.run(["bash", "-c", command], cwd=target, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == code_digest()


def plant(target: Path, what: str) -> None:
    """Do to the copy what somebody could who may write in its folder."""
    own, package = Path(hpc_llm.__file__).parent, target / "hpc_llm"
    if what == "gone":
        (package / "run.py").unlink()
    elif what == "changed":
        (package / "worker" / "loop.py").write_text("raise SystemExit('planted')\n")
    elif what == "half":
        (package / "run.py").write_bytes((own / "run.py").read_bytes()[:100])
    elif what == "further file":
        (target / "torch.py").write_text("raise SystemExit('planted')\n")
    elif what == "further package":
        (target / "torch").mkdir()
    elif what == "compiled":
        (package / "__pycache__").unlink()
        (package / "__pycache__").mkdir()
        (package / "__pycache__" / "run.cpython-311.pyc").write_bytes(b"")
    elif what == "link to a file":
        (package / "run.py").unlink()
        (package / "run.py").symlink_to(own / "run.py")
    elif what == "link to a folder":
        shutil.rmtree(package / "worker")
        (package / "worker").symlink_to(own / "worker")
    elif what == "link to all":
        target.rename(target.with_name("moved"))
        target.symlink_to("moved")
    elif what == "file":
        shutil.rmtree(target)
        target.write_text("")
    elif what == "pipe":
        os.mkfifo(target / "pipe")
    elif what == "writable":
        (package / "run.py").chmod(0o666)
    elif what == "writable folder":
        package.chmod(0o777)
    elif what == "somebody else's":
        needs_root("give a file to somebody else")
        os.chown(package / "run.py", 12345, -1)


PLANTED = """gone, changed, half, further file, further package, compiled, link to a file, link to a folder, link to all, file, pipe,
    writable, writable folder, somebody else's"""
PLANTED_NAMES = [" ".join(name.split()) for name in PLANTED.split(",")]


@pytest.mark.parametrize("what", PLANTED_NAMES)
def test_a_copy_that_is_not_what_it_should_be_is_made_anew(what: str, tmp_path: Path) -> None:
    target = code_snapshot(tmp_path)
    plant(target, what)
    assert code_snapshot(tmp_path) == target
    assert not target.is_symlink() and code_digest(target / "hpc_llm") == code_digest()
    modes = {path: path.lstat().st_mode & 0o022 for path in [target, *target.rglob("*")]}
    assert set(modes.values()) == {0} and {path.owner() for path in modes} == {tmp_path.owner()}
    assert not (target / "torch.py").exists()


def test_the_copy_stays_as_it_is_while_it_runs(tmp_path: Path) -> None:
    """Compiled files beside it would be run unseen the next time, so Python must not be able to leave any."""
    target = code_snapshot(tmp_path)
    environ = {**os.environ, "PYTHONPATH": str(target)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-S", "-c", "import hpc_llm.worker.request"], cwd=tmp_path, env=environ, check=True)
    before = os.stat(target).st_ino
    assert os.stat(code_snapshot(tmp_path)).st_ino == before


def test_where_the_copy_cannot_be_made_anew_nothing_is_submitted(tmp_path: Path) -> None:
    (tmp_path / ".code").write_text("no folder")
    with pytest.raises(SubmissionError, match=r"cannot be written to .* Use another --logs, in a folder of your own"):
        code_snapshot(tmp_path)


def test_any_change_of_the_code_is_another_snapshot(tmp_path: Path) -> None:
    package = code_snapshot(tmp_path) / "hpc_llm"
    before = code_digest(package)
    assert before == code_digest()
    (package / "worker" / "loop.py").write_text("# changed\n")
    assert code_digest(package) != before


def test_the_carried_code_needs_nothing_else_of_ours(tmp_path: Path) -> None:
    code = "import hpc_llm.worker.request, hpc_llm.metrics, hpc_llm.model, hpc_llm.run; print(hpc_llm.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(code_snapshot(tmp_path)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


# submitit


def test_submitting_nothing_imports_no_submitit() -> None:
    code = "import sys, hpc_llm.submit, hpc_llm.runs; print([m for m in sys.modules if m.startswith(('submitit', 'pandas', 'torch'))])"
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
        "sbatch": f'for script; do :; done; cp "$script" {tmp_path}/got; echo "$@" > {tmp_path}/words; echo Submitted batch job 12',
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
    assert (tmp_path / "words").read_text().startswith(" ".join(record["arguments"]) + " /")
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
    job = SlurmJob(tmp_path / "logs" / ".arrays" / "a" / "submitit", "12_2")
    [script] = job.submission().function.scripts
    assert script.folder == str(RunPaths(tmp_path / "logs" / "r2").root)
