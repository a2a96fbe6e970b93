"""Where a crash is said to have been it is told; and what is said of a process that was killed fits the one that it was."""

from __future__ import annotations

from typing import Any

import pytest

FRAMES = (
    '  File "/e/site-packages/bitsandbytes/cextension.py", line 72 in <module>\n  File "/w/train.py", line 3 in main\n'
)
OTHER = 'Thread 0x00007f2 (most recent call first):\n  File "/e/lib/python3.11/threading.py", line 331 in wait\n\n'
CURRENT = "Current thread 0x00007f1 (most recent call first):\n"
STEPS = "step 9 loss 2.5\n"


@pytest.mark.parametrize(
    "text",
    [
        f"Fatal Python error: Segmentation fault\n\n{CURRENT}{FRAMES}",
        f"Fatal Python error: Segmentation fault\n\n{OTHER}{OTHER}{CURRENT}{FRAMES}\nExtension modules: numpy (total: 1)\n",
        "".join(f"[rank1]: {line}\n" for line in f"Fatal Python error: Segmentation fault\n\n{CURRENT}{FRAMES}".splitlines()),
        f"Fatal Python error: Segmentation fault\n\n{CURRENT}srun: error: n1: task 0: Segmentation fault\nslurmstepd: error: n1 [0]: done\n{FRAMES}",
        f"srun: error: n1: task 0: Segmentation fault\nFatal Python error: Segmentation fault\n\n{CURRENT}{FRAMES}",
        f"Fatal Python error: Aborted\n\n{CURRENT}{FRAMES}srun: error: n1: task 3: Aborted (core dumped)\n",
    ],
)  # fmt: skip
def test_the_place_of_a_crash_is_told_where_faulthandler_was_on(text: str, diagnose: Any) -> None:
    found = diagnose(STEPS + text)
    assert found.cause.id == "segfault" and found.details["crashed_at"].startswith(
        "/e/site-packages/bitsandbytes/cextension.py:72 in"
    )
    assert "bitsandbytes/cextension.py:72" in found.remedy and "PYTHONFAULTHANDLER" not in found.remedy


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: n1: task 3: Segmentation fault (core dumped)\n",
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1 (most recent call first):\n  <no Python frame>\n",
    ],
)
def test_without_a_place_faulthandler_is_advised(text: str, diagnose: Any) -> None:
    found = diagnose(STEPS + text)
    assert found.cause.id == "segfault" and "PYTHONFAULTHANDLER=1" in found.remedy and "crashed_at" not in found.details


def test_an_abort_behind_a_reason_is_not_the_cause(diagnose: Any) -> None:
    waited = (
        "[rank1]:[E320 10:10:10.100 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=410, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600070 milliseconds before timing out.\n"
    )
    assert diagnose(f"{waited}Fatal Python error: Aborted\n\n{CURRENT}{FRAMES}").cause.id == "collective_timeout"


def test_a_checkpoint_that_torch_does_not_load_is_not_called_missing(diagnose: Any) -> None:
    found = diagnose("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded\n")
    assert (
        found.cause.id == "model_missing" and "The file is there" in found.meaning and "no network" not in found.meaning
    )


def test_fewer_workers_are_advised_where_one_was_killed(diagnose: Any) -> None:
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.\n"
    worker = "RuntimeError: DataLoader worker (pid 4411) is killed by signal: Killed. \n"
    found = diagnose(STEPS + worker + oom)
    assert (
        found.cause.id == "host_oom"
        and found.remedy.startswith("fewer data loader workers")
        and "--mem" in found.remedy
    )
    assert "data loader" not in diagnose(STEPS + oom).remedy


def test_a_node_that_ray_calls_full_is_not_first_asked_for_more(diagnose: Any) -> None:
    found = diagnose(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.0.0.4) where the task was running was 958.60GB / 1007.51GB (0.951461)\n"
    )
    assert found.cause.id == "host_oom" and found.remedy.startswith("fewer or smaller tasks")
    assert found.remedy.splitlines()[-1].startswith("ask for more only where")
