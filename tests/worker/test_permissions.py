"""Who may read what hpc-llm writes: the umask says so, and several users can keep their runs in one folder."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from copied_ranks import variables_for
from rights import GROUP, as_user, needs_root

from hpc_llm.errors import SubmissionError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers import NewRun, Submission, code_snapshot, create_runs


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0o022)
    os.umask(before)
    yield lambda mask: os.umask(mask) and None
    os.umask(before)


def make_runs(logs: Path, name: str, package: Path | None = None) -> list[RunPaths]:
    """An array of two runs, and the code that travels with it."""
    code_snapshot(logs, package) if package else code_snapshot(logs)
    new = [
        NewRun(run_id=f"{name}-{k}", experiment={"schema": 1, "run_id": f"{name}-{k}"}, script="x") for k in range(2)
    ]
    [runs] = create_runs(logs, [(Submission(scheduler="slurm", array=name), new)])
    for run in runs:
        write_json(run.result, {"schema": 1})
        write_json(run.failure(0), {"schema": 1})
    return runs


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o022, 0o002])
def test_files_and_folders_follow_the_umask(mask: int, tmp_path: Path, umask: Callable[[int], None]) -> None:
    umask(mask)
    make_runs(tmp_path / "logs", "r")
    for path in (tmp_path / "logs").rglob("*"):
        if path.is_symlink():
            continue
        mode, is_shared = stat.S_IMODE(path.stat().st_mode), path.name == ".code"
        full = (
            0o755 if path.is_dir() or path.name == "job.sh" else 0o644
        )  # only its owner ever changes what is of a run
        sticky = stat.S_ISVTX if is_shared and mask == 0o002 else 0
        assert mode == ((0o777 if is_shared else full) & ~mask) | sticky, path


@pytest.mark.train
def test_a_whole_run_follows_the_umask(tmp_path: Path, copies: Path) -> None:
    """What the script, submitit and the training program write, in a folder that hands its group down."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    options = (
        "--cluster local --method z2 --model tiny --steps 6 --warmup-steps 1 --sequence-length 16 --run-id r --wait"
    )
    command = [
        "bash",
        "-c",
        'umask 027; exec "$@"',
        "bash",
        sys.executable,
        "-m",
        "hpc_llm",
        "submit",
        *options.split(),
    ]
    environ = {**os.environ, **variables_for(copies)}
    done = subprocess.run(
        [*command, "--logs", str(shared)], capture_output=True, text=True, check=False, timeout=500, env=environ
    )
    assert done.returncode == 0, done.stderr
    found = [path for path in (shared / "r").rglob("*") if not path.is_symlink()]
    assert {"result.json", "steps.jsonl", "exit.json", "log.out", "job.json", "process.json"} <= {
        path.name for path in found
    }
    for path in found:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o2750 if path.is_dir() else 0o750 if path.name == "job.sh" else 0o640), path


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that a group writes, where its members can get to it."""
    needs_root("act for several users")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(Path(__file__).parents[2] / "hpc_llm", folder / "hpc_llm")
    for path in (folder / "hpc_llm").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (folder / "logs").mkdir()
    os.chown(folder / "logs", -1, GROUP)
    (folder / "logs").chmod(0o2770)
    yield folder
    shutil.rmtree(folder)


def test_several_users_share_a_folder(common: Path) -> None:
    """The first of them makes .code and .arrays, and the others need them too."""
    logs = common / "logs"
    for user in (12345, 12346, 12345):
        name = f"r{user}-{len(list(logs.iterdir()))}"
        assert as_user(user, lambda name=name: make_runs(logs, name, common / "hpc_llm")) == 0  # type: ignore[misc]
    copies = list((logs / ".code").iterdir())
    assert sorted(path.stem.rpartition("-")[2] for path in copies) == ["12345"] * 2 + ["12346"] * 2
    assert all(str(path.stat().st_uid) == path.stem.rpartition("-")[2] for path in copies)
    assert list(logs.glob(".incoming*")) == []


def test_another_user_s_copy_is_never_used(common: Path) -> None:
    """Who may write in the common folder can put something where my copy would be."""
    logs, name = common / "logs", code_snapshot(common / "elsewhere", common / "hpc_llm").name
    mine = name.replace(f"-{os.geteuid()}.", "-12346.")

    def plant() -> None:
        (logs / ".code").mkdir()
        (logs / ".code").chmod(0o2770)
        shutil.copy(common / "elsewhere" / ".code" / name, logs / ".code" / mine)

    assert as_user(12345, plant) == 0
    assert (logs / ".code" / mine).stat().st_uid == 12345

    def refused() -> None:
        with pytest.raises(SubmissionError, match="somebody else's folder without the sticky bit"):
            code_snapshot(logs, common / "hpc_llm")

    assert as_user(12346, refused) == 0
    assert (logs / ".code" / mine).stat().st_uid == 12345


def test_what_cannot_be_taken_away_is_refused(common: Path) -> None:
    logs, name = common / "logs", code_snapshot(common / "elsewhere", common / "hpc_llm").name
    mine = name.replace(f"-{os.geteuid()}.", "-12346.")

    def plant() -> None:
        (logs / ".code" / mine).mkdir(parents=True)
        (logs / ".code").chmod(0o3770)  # as in /tmp, only the owner of a thing may rename it

    def refused() -> None:
        with pytest.raises(SubmissionError, match=r"operation not permitted\. Use another --logs, in a folder"):
            code_snapshot(logs, common / "hpc_llm")

    assert as_user(12345, plant) == 0
    assert as_user(12346, refused) == 0
    assert [path.name for path in (logs / ".code").iterdir()] == [mine]
