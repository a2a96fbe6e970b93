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


NUMBERS = {"cat -n": "{:6}\t", "grep -n": "{}:"}
TRACEBACK = 'Traceback (most recent call last):\n  File "/w/train.py", line 4, in <module>\n    main()\n{}\n'
RAISED = {
    "": "ValueError: widths differ",
    "[rank3]:": "ValueError: widths differ",
    "2026-01-01 10:00:00,123 ": "pkg.ShapeMismatch: widths differ",
}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("first", [1, 98])
@pytest.mark.parametrize(("label", "raised"), RAISED.items())
def test_the_numbers_of_lines_hide_no_exception(
    label: str, raised: str, first: int, number: str, diagnose: Diagnose
) -> None:
    text = f"it begins\n{TRACEBACK.format(raised)}a last line\n"
    lines = [label + line for line in text.splitlines(keepends=True)]
    found = diagnose("".join(number.format(n) + line for n, line in enumerate(lines, first)))
    assert (found.cause.id, found.details) == ("python_exception", diagnose("".join(lines)).details)
    assert found.details["message"] == "widths differ"


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize(("message", "cause"), MESSAGES.items())
def test_the_numbers_of_lines_hide_no_message(message: str, cause: str, number: str, diagnose: Diagnose) -> None:
    log = "".join(number.format(n) + line for n, line in enumerate(message.splitlines(keepends=True), 9))
    assert diagnose(log).cause.id == cause


def test_ranks_in_turns_are_no_numbers_of_lines(diagnose: Diagnose) -> None:
    ranks = [TRACEBACK.format(f"ValueError: of {rank}").splitlines() for rank in range(3)]
    log = "".join(f"{rank}: {lines[n]}\n" for n in range(4) for rank, lines in enumerate(ranks))
    assert diagnose(log).details["message"] == "of 0"


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
