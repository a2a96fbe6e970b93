"""What is printed in sbatch's name, however much of it and for however long: the answer is kept, and nobody waits for the rest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from login_node import job_id
from made_runs import make_run, send_job
from scratch_slurm import ScratchSlurm

from hpc_llm.runs import cancel, status
from hpc_llm.schedulers.runs import accepted_job_id, is_refusal
from hpc_llm.schedulers.slurm import sbatch_session
from hpc_llm.schedulers.slurm.submit import submit_slurm
from hpc_llm.schedulers.submission import Submission, submission_of

SCRIPT = b"#!/bin/bash\n" + b"# a long line\n" * 20_000


MOST_KIB = 300_000
"""Of address space that asking may have, threads included."""


def ask(folder: Path, body: str, **limits: str) -> tuple[dict[str, Any], float]:
    """The kept answer of such an sbatch, and the seconds that it took; `limits` are constants of the program."""
    script, program, session = folder / "job.sh", folder / "sbatch", folder / "session.py"
    text = Path(sbatch_session.__file__).read_text()
    for name, value in limits.items():
        text, changed = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert changed == 1
    session.write_text(text)
    script.write_bytes(SCRIPT)
    program.write_text(f"#!/bin/bash\n{body}\n")
    program.chmod(0o755)
    records = [
        str(folder / "asking.json"),
        str(folder / "sbatch.json"),
        str(script),
        hashlib.sha256(SCRIPT).hexdigest(),
    ]
    asking = [sys.executable, "-I", str(session), str(os.getpid()), *records, str(program)]
    words = ["bash", "-c", f'ulimit -v {MOST_KIB} && exec "$@"', "limited", *asking]
    began = time.monotonic()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()  # nothing that sbatch has left running holds it open
    process.wait()
    answer: dict[str, Any] = json.loads((folder / "sbatch.json").read_text())
    code = answer["returncode"]
    assert process.returncode == (code if code >= 0 else 128 - code) and b"Traceback" not in said
    return answer, time.monotonic() - began


@pytest.mark.parametrize("order", ["{0}; {1}", "{1}; {0}", "({0}) >&2; {1}"], ids=["before", "after", "as an error"])
def test_of_a_flood_the_beginning_and_the_end_are_kept_and_memory_stays_small(tmp_path: Path, order: str) -> None:
    flood = "head -c 400000000 /dev/zero | tr '\\0' x; echo"
    answer, _ = ask(tmp_path, "cat > /dev/null; " + order.format(flood, "echo Submitted batch job 7"))
    assert accepted_job_id(answer["stdout"]) == "7" and answer["returncode"] == 0
    assert len(answer["stdout"] + answer["stderr"]) < 4 * sbatch_session.MOST_SAID


def test_a_number_that_a_flood_has_cut_is_no_job_id(tmp_path: Path) -> None:
    answer, _ = ask(tmp_path, f"printf 'Submitted batch job 7'; head -c {4 * sbatch_session.MOST_SAID} /dev/zero")
    assert accepted_job_id(answer["stdout"]) is None


@pytest.mark.parametrize(
    ("says", "how"),
    [("", "yes x >&2"), ("echo Submitted batch job 7; ", "trap '' TERM; while :; do yes x | head -c 99999999; done")],
)
def test_an_sbatch_that_prints_for_ever_is_ended_and_what_it_said_is_kept(tmp_path: Path, says: str, how: str) -> None:
    answer, seconds = ask(tmp_path, f"{says}{how}", MOST_READ="1 << 25", GRACE_S="0.5")
    assert answer["returncode"] in (-9, -15) and not is_refusal(answer) and seconds < 60
    assert accepted_job_id(answer["stdout"]) == ("7" if says else None)


def test_one_that_never_ends_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbatch_session, "LONGEST_S", 0.5)
    code, out, _ = sbatch_session.run(["bash", "-c", "echo Submitted batch job 7; exec sleep 600"], b"")
    assert code == -15 and accepted_job_id(out) == "7"


def test_what_an_endless_sbatch_has_submitted_is_asked_from_slurm(
    tmp_path: Path, on_cluster: ScratchSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has handed over the job, and its answer is lost in what it prints behind."""
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text('#!/bin/bash\n/usr/bin/sbatch "$@" >/dev/null\nexec yes x\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    held = "#!/bin/bash\n#SBATCH --hold --output=/dev/null --time=00:05:00 --mem=10M --partition=gtest\ntrue\n"
    run = send_job(tmp_path / "logs", "r", {"run_id": "r", "plan": {}}, held)
    assert status([run])[0].state == "PENDING" and job_id(run)
    assert cancel([run])[0].problem is None


def test_what_sbatch_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    body = f"echo Submitted batch job 9; sleep 120 & echo $! > {tmp_path}/pid; exit 0"
    answer, seconds = ask(tmp_path, body)
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert accepted_job_id(answer["stdout"]) == "9" and seconds < 60


def test_what_sbatch_says_a_moment_behind_its_end_belongs_to_the_answer(tmp_path: Path) -> None:
    answer, _ = ask(tmp_path, "(sleep 0.5; echo Submitted batch job 9) & exit 0")
    assert accepted_job_id(answer["stdout"]) == "9"


def test_a_whole_script_is_given_and_may_be_left_unread(tmp_path: Path) -> None:
    answer, _ = ask(tmp_path, "sha256sum; sleep 0.1")
    assert answer["stdout"].split()[0] == hashlib.sha256(SCRIPT).hexdigest()
    answer, _ = ask(tmp_path, "exec 0<&-; echo Submitted batch job 9")
    assert accepted_job_id(answer["stdout"]) == "9"


def test_a_run_is_submitted_while_a_child_of_sbatch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sbatch", "srun"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!/bin/bash\ncat >/dev/null; echo Submitted batch job 9; sleep 120 & echo $! > {tmp_path}/pid\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    run = make_run(tmp_path / "logs", "r", {"plan": {}}, "true\n", "slurm")
    submission = submission_of(json.loads(run.job.read_text()))
    assert isinstance(submission, Submission)
    began = time.monotonic()
    assert submit_slurm(submission, [run], "true\n") == ["9"]
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert time.monotonic() - began < 60
