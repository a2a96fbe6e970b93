"""Who can rename the folders of a local queue's runs: nothing of what they put there is run, and no file elsewhere is written."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from login_node import until, until_dead
from made_runs import submit_local

from hpc_llm.records.run import RunPaths, Stop
from hpc_llm.runs import Deed, reconcile, send, wait
from hpc_llm.schedulers import NewRun, Submission, create_runs
from hpc_llm.schedulers.local import submit
from hpc_llm.schedulers.local.marks import end_run, living
from hpc_llm.schedulers.submission import digest_of

ENDS = '#!/bin/bash\necho \'{"schema": 1, "exit_code": 0}\' > "$HPC_LLM_RUN_DIR/exit.json"\n'


class Planted:
    """What does something when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self._mark}'",)


@pytest.fixture
def pwned(tmp_path: Path) -> Path:
    """What a planted script or pickle makes."""
    return tmp_path / "pwned"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Submission, list[RunPaths]]]:
    """Two runs of one queue with scripts of their own, which was not asked yet."""
    texts = [f"{ENDS}echo {name}\n" for name in ("r0", "r1")]
    submission = Submission(scheduler="local", digests=tuple(digest_of(text.encode()) for text in texts))
    new = [
        NewRun(run_id=f"r{k}", experiment={"plan": {"cluster": "local"}}, script=text) for k, text in enumerate(texts)
    ]
    [runs] = create_runs(tmp_path / "logs", [(submission, new)])
    yield submission, runs
    for one in living().found:
        if tmp_path in one.folder.parents:
            end_run(one.uuid, one.folder.name, grace_s=0.5)


def swap(run: RunPaths, script: str | None = None) -> RunPaths:
    """Rename the folder away and put another there, with the same records, and perhaps another script."""
    aside = run.root.with_name(f".was-{run.run_id}")
    run.root.rename(aside)
    shutil.copytree(aside, run.root)
    if script is not None:
        run.script.write_text(script)
    return run


def over(run: RunPaths, uuid: str) -> None:
    until("the queue is gone", lambda: living().queue_of(uuid) is None and not living().of_run(uuid, run.run_id))


@pytest.mark.parametrize("swapped", [0, 1])
@pytest.mark.parametrize("moment", ["_ask_fork", "_hand_over", "detach", "_mark_as_queue", "record_job"])
def test_a_folder_that_is_swapped_while_it_is_submitted_runs_nothing_of_its_own(
    made: tuple[Submission, list[RunPaths]], pwned: Path, moment: str, swapped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission, runs = made
    original, first = getattr(submit, moment), [True]

    def swap_first(*given: object) -> object:
        if first:
            first.clear()
            swap(runs[swapped], f"touch '{pwned}'\n{ENDS}")
        return original(*given)

    monkeypatch.setattr(submit, moment, swap_first)
    send(submission, runs, f"{ENDS}echo r0\n")
    codes = [state.exit_code for state in wait(runs)]
    over(runs[0], submission.uuid)
    assert not pwned.exists()
    assert codes == [Stop.CODE_CHANGED.value if k == swapped else 0 for k in range(2)]
    assert runs[1 - swapped].stdout.read_text() == f"r{1 - swapped}\n"


@pytest.fixture
def held_queue(
    made: tuple[Submission, list[RunPaths]], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[RunPaths], int, str]:
    """A queue whose first process is stopped before it has begun: its runs, its number, their UUID."""
    submission, runs = made
    popen = subprocess.Popen

    def stopped(words: Sequence[str], **more: object) -> subprocess.Popen[bytes]:
        # It stops itself: a signal that is sent to it may come when it has begun.
        line = ["bash", "-c", 'kill -STOP $$; exec "$@"', "-", *words]
        process: subprocess.Popen[bytes] = popen(line, **more)  # type: ignore[call-overload]
        stat = Path(f"/proc/{process.pid}/stat")
        until("it is stopped", lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        return process

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", stopped)
        number = int(submit_local(runs))
    return runs, number, submission.uuid


@pytest.mark.parametrize("how", ["in its place", "swapped"])
def test_no_file_of_a_folder_is_unpickled(held_queue: tuple[list[RunPaths], int, str], pwned: Path, how: str) -> None:
    runs, number, uuid = held_queue
    if how == "swapped":
        swap(runs[0])
    (runs[0].submitit / f"{number}_submitted.pkl").write_bytes(pickle.dumps(Planted(pwned)))
    os.kill(number, signal.SIGCONT)
    assert [state.exit_code for state in wait(runs)] == [0, 0]
    over(runs[0], uuid)
    assert not pwned.exists()


@pytest.mark.parametrize("how", ["link", "hard link"])
@pytest.mark.parametrize("name", ["log.out", "log.err"])
def test_no_script_prints_into_a_file_elsewhere(
    held_queue: tuple[list[RunPaths], int, str], tmp_path: Path, how: str, name: str
) -> None:
    runs, number, uuid = held_queue
    mine = tmp_path / "mine"
    mine.write_text("as it was\n")
    swapped = swap(runs[0])
    (swapped.root / name).symlink_to(mine) if how == "link" else os.link(mine, swapped.root / name)
    os.kill(number, signal.SIGCONT)
    assert [state.exit_code for state in wait(runs)] == [127, 0]
    over(runs[0], uuid)
    assert mine.read_text() == "as it was\n"


def test_runs_that_are_reconciled_are_held_to_the_scripts_that_were_read(
    held_queue: tuple[list[RunPaths], int, str], pwned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, number, uuid = held_queue
    queue = {number, *(one.pid for one in living().found if one.is_queue_of(uuid))}
    os.kill(number, signal.SIGKILL)
    until_dead(queue)
    (runs[0].root / ".claim").unlink()
    hand_over = submit._hand_over

    def swap_second(*given: object) -> None:
        swap(runs[1], f"touch '{pwned}'\n{ENDS}")
        hand_over(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(submit, "_hand_over", swap_second)
    assert {one.deed for one in reconcile(runs)} == {Deed.SUBMITTED}
    assert [state.exit_code for state in wait(runs)] == [0, Stop.CODE_CHANGED.value]
    assert not pwned.exists()
