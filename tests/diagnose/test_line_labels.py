"""What a launcher writes before each line hides no message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.causes.schedulers import is_quoted
from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]

LABELS = ("0: ", "12: ", "[0]:", "[default0]:", "[1,0]<stderr>:", "worker-0: ", "gn01: ", "0: [rank0]: ")
MESSAGES = {
    '  File "/w/train.py", line 5\n    x = f(y)\nIndentationError: unexpected indent\n': "python_exception",
    '  File "/w/train.py", line 5\n    x = = y\nSyntaxError: invalid syntax\n': "python_exception",
    '  File "/w/train.py", line 5\n    x = y\nTabError: inconsistent use of tabs and spaces in indentation\n': "python_exception",
    "RuntimeError: the shards of the two ranks differ\n": "python_exception",
    "/usr/bin/python3: No module named train_all\n": "package_missing",
    "train.py: error: unrecognized arguments: --lr_rate 3\n": "config_error",
    "Error: No such option: --lr_rate\n": "config_error",
    "nvcc fatal   : Unsupported gpu architecture 'compute_30'\n": "build_failed",
    "memory allocation of 8589934592 bytes failed\n": "host_oom",
}


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(("message", "cause"), MESSAGES.items())
def test_a_message_behind_labels_is_the_same(message: str, cause: str, label: str, diagnose: Diagnose) -> None:
    log = "".join(label + line for line in message.splitlines(keepends=True))
    found = diagnose(log)
    assert found.cause.id == cause == diagnose(message).cause.id
    assert found.confidence == diagnose(message).confidence


@pytest.mark.parametrize("before", ["the answer 0: ", "see worker-0: ", "0: it said ", "> 0: "])
def test_words_before_it_are_no_label(before: str, diagnose: Diagnose) -> None:
    for message in ("SyntaxError: invalid syntax\n", "nvcc fatal   : Unsupported gpu architecture 'compute_30'\n"):
        assert diagnose(before + message).cause.id == "unknown"


OOM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=43622791.67. Some of the step tasks have been OOM Killed.\n"
)


@pytest.mark.parametrize("before", ["launch.py: ", "run.sh: ", "launch.py: srun#64: ", "srun#64: "])
def test_what_starts_a_step_names_itself_before_slurms_words(before: str, diagnose: Diagnose) -> None:
    assert diagnose(before + OOM).cause.id == diagnose(OOM).cause.id == "host_oom"


@pytest.mark.parametrize("before", ["launch.py:", "see launch.py: ", "> launch.py: ", "notes.md: "])
def test_who_quotes_them_does_not_say_them(before: str, diagnose: Diagnose) -> None:
    assert diagnose(before + OOM).cause.id == "unknown"


def test_many_digits_before_a_schedulers_words_are_no_labels_and_take_no_time() -> None:
    """They could be parted in billions of ways."""
    for digits in (400, 4000):
        line = (
            b"1" * digits
            + b" slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T10:00:00 DUE TO TIME LIMIT ***"
        )
        assert is_quoted(line, line.index(b"***"), len(line))
    for before in (
        b"0: ",
        b"[rank3]: ",
        b"2026-05-01T10:00:00.123 ",
        b"12ab34cd  [1,0]<stderr>:",
        b"worker-3: ",
        b"(main, pid=77) ",
    ):
        line = before + b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T10:00:00 DUE TO TIME LIMIT ***"
        assert not is_quoted(line, line.index(b"***"), len(line)), before
