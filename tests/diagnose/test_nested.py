"""Tracebacks that stand within something else: torchrun's report, the message of another exception, the words of an actor."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]

TRACE = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 9, in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "/home/u/train.py", line 4, in main
    step()
"""
OUTER = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in <module>
    main()
  File "/opt/env/lib/python3.12/site-packages/lib/core.py", line 4, in get
    raise e
"""
ONE_LINE, BELOW = (
    "ValueError: widths differ: 3 and 4\n",
    "ValueError: \n        widths differ: 3 and 4\n        more\n\n",
)
LABELS = ("", "[rank0]: ", "0: ", "[0]:", "(Worker pid=4) ")


def indented(text: str, blanks: int) -> str:
    return "".join(" " * blanks + line for line in text.splitlines(keepends=True))


def labelled(text: str, label: str) -> str:
    return "".join(label + line for line in text.splitlines(keepends=True))


def of_rank(rank: int, traceback: str) -> str:
    return f"""\
[{rank}]:
  time      : 2026-01-01_10:00:0{rank}
  host      : n1
  rank      : {rank} (local_rank: {rank})
  exitcode  : 1 (pid: 9{rank})
  error_file: /tmp/torchelastic_x/attempt_0/{rank}/error.json
  traceback : {indented(traceback, 2)[2:]}  \n"""


def report(root: str, *others: str) -> str:
    line, between = "=" * 60 + "\n", "-" * 60 + "\n"
    failures = "".join(of_rank(number, other) for number, other in enumerate(others, 1)) or "  <NO_OTHER_FAILURES>\n"
    return (
        "E0101 10:00:00.1 12 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 90)\n"
        f"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{line}train FAILED\n{between}Failures:\n{failures}"
        f"{between}Root Cause (first observed failure):\n{of_rank(0, root)}{line}"
    )


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("error", [ONE_LINE, BELOW])
def test_the_exception_in_torchruns_report_is_the_cause(error: str, label: str, diagnose: Diagnose) -> None:
    log = labelled(report(TRACE + error), label)
    found = diagnose(log)
    assert (found.cause.id, found.details["exception"]) == ("python_exception", "ValueError")
    assert "widths differ: 3 and 4" in found.summary
    assert parse_stream("x", io.BytesIO(log.encode())).rows[0].outcome_reason == "ValueError: widths differ: 3 and 4"


def test_of_a_report_the_root_cause_counts_and_of_that_the_first_exception(diagnose: Diagnose) -> None:
    later = TRACE + "RuntimeError: stopped as another one failed\n"
    chained = (
        f"{TRACE}{ONE_LINE}\nThe above exception was the direct cause of the following exception:\n\n{TRACE}"
        "RuntimeError: \n        the stage failed\n"
    )
    found = diagnose(report(chained, later, later))
    assert found.details["message"] == "widths differ: 3 and 4"
    assert any("another one failed" in one.text for one in found.evidence)
    assert diagnose(report(TRACE + ONE_LINE)).details["message"] == "widths differ: 3 and 4"


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(
    ("wrapper", "inner"),
    [
        ("lib.ActorError: Actor call trainer.push failed.\n", " Traceback of where the remote call failed (most recent call last):\n"),
        ("RuntimeError: Caught ValueError in DataLoader worker process 0.\n", "Original Traceback (most recent call last):\n"),
        ("lib.CheckpointException: CheckpointException ranks:dict_keys([0])\n", "Traceback (most recent call last): (RANK 0)\n"),
        (
            "torch.multiprocessing.spawn.ProcessRaisedException: \n\n",
            "-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n",
        ),
    ],
)  # fmt: skip
def test_the_exception_in_the_message_of_another_is_the_cause(
    wrapper: str, inner: str, label: str, diagnose: Diagnose
) -> None:
    frames = '  File "/opt/env/lib/python3.12/site-packages/lib/work.py", line 4, in run\n    f()\n'
    log = labelled(f"{OUTER}{wrapper}{inner}{frames}{ONE_LINE}", label)
    found = diagnose(log)
    assert found.details["message"] == "widths differ: 3 and 4"
    assert len(found.evidence) == 2 and wrapper.split(":")[0] in found.evidence[1].text
    # It is no more caught than the one that holds it.
    steps = [f"{{'loss': {3 - n / 100}, 'learning_rate': 1e-05, 'epoch': {n / 100}}}\n" for n in range(1, 34)]
    assert diagnose("".join((*steps[:30], log, *steps[30:]))).details["message"] == "widths differ: 3 and 4"


def test_of_the_ranks_of_a_checkpoint_the_first_counts(diagnose: Diagnose) -> None:
    ranks = "".join(
        f'Traceback (most recent call last): (RANK {rank})\n  File "/e/x.py", line 4, in f\n    g()\nKeyError: "key {rank}"\n'
        for rank in range(3)
    )
    log = f"{OUTER}lib.CheckpointException: CheckpointException ranks:dict_keys([0, 1, 2])\n{ranks}"
    for blanks in (0, 2, 4):
        found = diagnose(indented(log, blanks))
        assert found.details["exception"] == "KeyError" and "key 0" in found.details["message"]


def test_what_stands_below_an_exception_is_another_ones(diagnose: Diagnose) -> None:
    """Ranks without labels, and what was raised while the first one was handled: the first counts."""
    for between in ("", "\nDuring handling of the above exception, another exception occurred:\n\n"):
        found = diagnose(f"{OUTER}{ONE_LINE}{between}{OUTER}RuntimeError: peer is gone\n")
        assert found.details["exception"] == "ValueError"
    assert diagnose(f"{OUTER}AssertionError\nwidths differ\n").details.get("message") in (None, "")
