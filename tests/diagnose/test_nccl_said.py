"""Advice does not ask for what the log shows: NCCL's own word on the call that failed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]
WARNED = "n1:140:140 [0] misc/socket.h:333 NCCL WARN Call to listen failed : Too many users\n"
TRACED = 'Traceback (most recent call last):\n  File "train.py", line 186, in <module>\n    main()\n'
FAILED = {
    "system": f"{TRACED}RuntimeError: NCCL error in: /w/ProcessGroupNCCL.cpp:264, unhandled system error\n",
    "driver": f"{TRACED}torch.distributed.DistBackendError: NCCL error in: /w/NCCLUtils.hpp:219, unhandled cuda error, NCCL version 2.18.5\n",
    "usage": f"{TRACED}torch.distributed.DistBackendError: NCCL error in: /w/NCCLUtils.hpp:219, invalid usage, NCCL version 2.18.5\n",
    "internal": f"{TRACED}torch.distributed.DistBackendError: NCCL error in: /w/NCCLUtils.hpp:219, internal error - please report, NCCL version 2.18.5\n",
}


@pytest.mark.parametrize("why", FAILED)
def test_nccls_line_stands_in_place_of_the_advice_to_ask_for_it(why: str, diagnose: Diagnose) -> None:
    asked = diagnose("step 1 loss 2.5\n" + FAILED[why])
    assert "NCCL_DEBUG=" in asked.remedy
    for text in (f"step 1 loss 2.5\n{WARNED}{FAILED[why]}", f"step 1 loss 2.5\n{FAILED[why]}{WARNED}"):
        found = diagnose(text)
        number = text[: text.index("n1:140")].count("\n") + 1
        assert found.cause == asked.cause and "NCCL_DEBUG=" not in found.remedy
        assert f"NCCL says in line {number} what failed: Call to listen failed : Too many users" in found.remedy
        assert (number, WARNED.strip()) in [(one.line, one.text) for one in found.evidence]


def test_the_line_next_before_the_error_is_shown(diagnose: Diagnose) -> None:
    early = "n1:140:140 [0] NCCL WARN Cannot open a file of topologies\n"
    plugin = "n1:140:140 [0] NCCL WARN NET/Plugin: no such plugin\n"
    found = diagnose(early + WARNED + plugin + FAILED["system"])
    assert "in line 2 what failed" in found.remedy
    assert "NCCL_DEBUG=" in diagnose(plugin + FAILED["system"]).remedy
