"""Advice does not ask for what the log shows: NCCL's own word on the call that failed."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

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


INTERNAL = (
    "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: /w/NCCLUtils.hpp:259, internal error - please report this issue, NCCL version 2.20.5\n"
    "[rank{0}]: ncclInternalError: Internal check failed.\n[rank{0}]: Last error:\n[rank{0}]: Socket recv failed while polling for opId=0x7f\n"
)
OWN = '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "/w/train.py", line 9, in <module>\n[rank{0}]:     main()\n[rank{0}]: {1}\n'


def reason(text: str) -> str | None:
    return parse_stream("a.log", io.BytesIO(text.encode())).rows[-1].outcome_reason


@pytest.mark.parametrize("said", ["KeyError: 'input_ids'", "ValueError: no such shard: 7"])
def test_what_nccl_says_in_a_rank_follows_from_the_exception_of_another(said: str) -> None:
    for text in (INTERNAL.format(5) + OWN.format(2, said), OWN.format(2, said) + INTERNAL.format(5)):
        assert reason("step 1 loss 2.5\n" + text) == said


@pytest.mark.parametrize(
    "other",
    [
        "",
        OWN.format(5, "KeyError: 'x'"),
        OWN.format(2, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"),
    ],
)
def test_alone_or_with_what_follows_from_it_it_stays_the_cause(other: str) -> None:
    assert "internal error" in str(reason("step 1 loss 2.5\n" + INTERNAL.format(5) + other))
