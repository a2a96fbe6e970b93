"""A port that is taken: by another program, which may be gone at the next try, or by the job itself, which then ends in the same way."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pace import is_within

OLD = (
    "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:{0} "
    "(errno: 98 - Address already in use). The server socket has failed to bind to 0.0.0.0:{0} (errno: 98 - Address already in use).\n"
)
NEW = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: {0}, useIpv6: false, code: -98, "
    "name: EADDRINUSE, message: address already in use\n"
)
ACCELERATE = (
    "ConnectionError: Tried to launch distributed communication on port `{0}`, but another process is utilizing it. "
    "Please specify a different port\n"
)
MESSAGES = (OLD, NEW, ACCELERATE)
HEADING = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    main()\n'


def says(message: str, labels: list[str], ports: list[int]) -> str:
    return "".join(
        f"{label}{line}\n"
        for label, port in zip(labels, ports, strict=True)
        for line in (HEADING + message.format(port)).splitlines()
    )


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize(
    "labels",
    [["0: ", "1: ", "2: "], ["[rank0]: ", "[rank1]: "], ["gpu315: ", "gpu316: "], ["n1: 0: ", "n1: 1: "], ["[1,0]<stderr>:", "[1,3]<stderr>:"],
     ["0: ", "0: ", "1: "], ["1: "], ["3: ", "7: "]],
)  # fmt: skip
def test_tasks_that_want_one_port_collide_with_each_other(message: str, labels: list[str], diagnose: Any) -> None:
    found = diagnose(says(message, labels, [29500] * len(labels)))
    assert (found.cause.id, found.retry) == ("port_in_use", False)
    assert "Processes of this job" in found.meaning and "--ntasks-per-node=1" in found.remedy
    assert "choose another port" not in found.remedy and "another try, ends in the same way" in found.remedy


@pytest.mark.parametrize("message", MESSAGES)
def test_without_labels_srun_says_that_they_were_several(message: str, diagnose: Any) -> None:
    twice = says(message, ["", ""], [29500] * 2)
    assert not diagnose(twice + "srun: error: n1: tasks 0-1: Exited with exit code 1\n").retry
    assert diagnose(twice + "srun: error: n1: task 0: Exited with exit code 1\n").retry
    # One process, whose exception another one follows, and the tasks that it left alone.
    chained = (
        says(message, [""], [29500])
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + says(message, [""], [29500])
    )
    assert diagnose(chained + "srun: error: n1: tasks 0-1: Exited with exit code 1\n").retry


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("label", ["", "0: ", "[rank0]: ", "gpu315: ", "n1: 0: "])
def test_one_process_alone_met_another_program(message: str, label: str, diagnose: Any) -> None:
    others = (
        "1: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n"
    )
    found = diagnose(says(message, [label, label], [29500] * 2) + others)
    assert (found.cause.id, found.retry) == ("port_in_use", True)
    assert "Another program" in found.meaning


def test_tasks_that_met_others_at_ports_of_their_own(diagnose: Any) -> None:
    assert diagnose(says(OLD, ["0: ", "gpu2: 0: "], [29500, 29501])).retry


def test_a_storm_of_them_takes_no_time(diagnose: Any) -> None:
    text, begin = "".join(f"0: {NEW.format(29500)}" for _ in range(4_000)), time.process_time()
    assert diagnose(text).retry
    assert is_within(time.process_time() - begin, 3)
