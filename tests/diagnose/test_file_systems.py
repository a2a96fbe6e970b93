"""What a file system refuses or loses, locks and other waits that are none of the network, and ranks that nothing launched."""

from __future__ import annotations

from typing import Any

import pytest

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    {}\n'
SAVES = TRACEBACK.format('torch.save(sd, "/lustre/u/ckpt.pt")')


@pytest.mark.parametrize(
    "said",
    [
        "[Errno 5] Input/output error: '/lustre/u/ckpt.pt'",
        "[Errno 107] Transport endpoint is not connected: '/lustre/u/ckpt.pt'",
        "[Errno 108] Cannot send after transport endpoint shutdown: '/lustre/u/ckpt.pt'",
        "[Errno 121] Remote I/O error: '/lustre/u/ckpt.pt'",
    ],
)
def test_a_file_system_that_was_lost_is_not_somebody_who_replaces_files(said: str, diagnose: Any) -> None:
    found = diagnose(f"{SAVES}OSError: {said}\n")
    assert (found.cause.id, found.retry) == ("file_system", True)
    assert "replaces" not in found.remedy and "tell the site" in found.remedy
    assert "replaces" in diagnose(f"{SAVES}OSError: [Errno 116] Stale file handle: '/lustre/u/a'\n").remedy


@pytest.mark.parametrize(
    ("before", "said", "advice"),
    [
        (SAVES, "OSError: [Errno 30] Read-only file system: '/sw/ckpt.pt'", "write elsewhere"),
        (SAVES, "OSError: [Errno 37] No locks available: '/nfs/a.lock'", "has locks"),
        (SAVES, "NotImplementedError: FileSystem does not appear to support flock; use SoftFileLock instead", "has locks"),
        (SAVES, "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, errno = 37, error message = 'No locks available')", "HDF5_USE_FILE_LOCKING"),
        (TRACEBACK.format("fcntl.flock(fd, fcntl.LOCK_EX)"), "OSError: [Errno 38] Function not implemented", "has locks"),
    ],
)  # fmt: skip
def test_what_a_file_system_never_does_is_not_tried_again(before: str, said: str, advice: str, diagnose: Any) -> None:
    found = diagnose(f"{before}{said}\n")
    assert (found.cause.id, found.retry) == ("file_system", False) and advice in found.remedy
    assert "submit it again" not in found.remedy


def test_a_call_that_is_not_implemented_is_no_lock_by_itself(diagnose: Any) -> None:
    assert diagnose(f"{SAVES}OSError: [Errno 38] Function not implemented\n").cause.id == "python_exception"


def test_a_cache_that_cannot_be_written_is_gone_on_without(diagnose: Any) -> None:
    said = "WARNING: mkdir -p failed for path /.config/matplotlib: [Errno 30] Read-only file system: '/.config'\n"
    assert diagnose(said).cause.id == "unknown"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("filelock._error.Timeout: The file lock '/home/u/.cache/x.lock' could not be acquired.", "HF_HOME"),
        ("filelock.Timeout: The file lock '/home/u/.cache/x.lock' could not be acquired.", "HF_HOME"),
        ("subprocess.TimeoutExpired: Command '['nvcc', '--version']' timed out after 60 seconds", "waited for"),
        ("concurrent.futures._base.TimeoutError", "waited for"),
        ("multiprocessing.context.TimeoutError", "waited for"),
    ],
)
def test_a_time_out_of_the_program_itself_is_none_of_the_network(said: str, advice: str, diagnose: Any) -> None:
    found = diagnose(f"{SAVES}{said}\n")
    assert found.cause.id == "python_exception" and advice in found.remedy
    assert "network" not in found.remedy and "address" not in found.remedy


def test_a_time_out_of_the_network_is_one(diagnose: Any) -> None:
    assert "over the network" in diagnose(f"{SAVES}requests.exceptions.Timeout: of 10 s\n").remedy


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_ranks_that_nothing_launched_are_told_how(name: str, diagnose: Any) -> None:
    torchs = f"ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set\n"
    asked = TRACEBACK.format(f'os.environ["{name}"]') + f"KeyError: '{name}'\n"
    for said in (SAVES + torchs, asked):
        found = diagnose(said)
        assert (found.cause.id, found.retry) == ("launch_failed", False)
        assert "without a launcher" in found.meaning and "torchrun" in found.remedy


def test_a_column_of_that_name_is_no_rank(diagnose: Any) -> None:
    assert diagnose(TRACEBACK.format("table['RANK']") + "KeyError: 'RANK'\n").cause.id == "python_exception"


@pytest.mark.parametrize(
    ("said", "cause", "advice", "retry"),
    [
        ("file too large", "file_system", "ulimit -f", False),
        ("no space left on device", "disk_full", "df -h", False),
        ("disk quota exceeded", "disk_full", "quota", False),
        ("read-only file system", "file_system", "scratch", False),
        ("stale file handle", "file_system", "somebody replaces", True),
        ("permission denied", "python_exception", "ls -ld", False),
        ("too many open files", "open_files", "ulimit -n", False),
    ],
)
def test_what_the_system_says_to_our_own_program_is_no_setting(
    said: str, cause: str, advice: str, retry: bool, diagnose: Any
) -> None:
    for what in ("the folder /s/r/checkpoints/step-9 cannot be written", "the checkpoint /s/r/step-9 cannot be read"):
        found = diagnose(f"{SAVES}hpc_llm.errors.WorkerError: {what}: {said}.\n")
        assert (found.cause.id, found.retry) == (cause, retry) and advice in found.remedy, (found.cause, found.remedy)


@pytest.mark.parametrize(
    "said", ["OSError: [Errno 27] File too large: 'model.bin'", "line 7: 4242 File size limit exceeded"]
)  # fmt: skip
def test_a_file_that_may_not_grow_is_told_its_limit(said: str, diagnose: Any) -> None:
    found = diagnose(f"{SAVES}{said}\n")
    assert (found.cause.id, "ulimit -f" in found.remedy, found.retry) == ("file_system", True, False)
