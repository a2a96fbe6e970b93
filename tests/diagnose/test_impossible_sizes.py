"""More memory than any machine has was asked for: the size was wrong, and a smaller batch is no remedy."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hpc_llm.parsing import parse_stream

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 4, in <module>\n    gather(x)\n'
TIMED_OUT = (
    "[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=BROADCAST, NumelIn=12, "
    "NumelOut=12, Timeout(ms)=1800000) ran for 1800344 milliseconds before timing out.\n"
)
DEVICE = "torch.cuda.OutOfMemoryError: {} out of memory. Tried to allocate {}\n"
IMPOSSIBLE = [
    DEVICE.format("CUDA", "more than 1EB memory."),
    DEVICE.format("HIP", "more than 1EB memory."),
    DEVICE.format("CUDA", "17179869184.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 70.00 GiB is free."),
    DEVICE.format("CUDA", "133792483.00 MiB (GPU 0; 23.65 GiB total capacity; 1.00 GiB already allocated; 20.00 GiB free; 2.00 GiB reserved)"),
    "RuntimeError: MPS backend out of memory (MPS allocated: 1.00 GiB, max allowed: 9.07 GiB). Tried to allocate 1048576.00 GiB on private pool.\n",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9223372036854775808 bytes. Error code 12 (Cannot allocate memory)\n",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 EiB for an array with shape (1152921504606846976,) and data type float64\n",
    "MemoryError: Unable to allocate 4096.0 TiB for an array with shape (7,)\n",
]  # fmt: skip


@pytest.mark.parametrize("said", IMPOSSIBLE)
@pytest.mark.parametrize("before", ["", TRACEBACK])
def test_a_size_that_no_machine_has_is_no_lack_of_memory(said: str, before: str, diagnose: Any) -> None:
    found = diagnose(before + said)
    assert (found.cause.id, found.retry) == ("python_exception", False)
    assert "no memory ran out" in found.meaning and "micro batch" not in found.remedy and "more:" not in found.remedy
    (row,) = parse_stream("x", io.BytesIO((before + said).encode())).rows
    assert row.outcome == "FAILED"


@pytest.mark.parametrize("said", IMPOSSIBLE[:4])
def test_a_time_out_before_it_is_the_cause(said: str, diagnose: Any) -> None:
    found = diagnose(TIMED_OUT + TRACEBACK + said)
    assert found.chain == ("collective_timeout", "python_exception")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (DEVICE.format("CUDA", "2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free."), "device_oom"),
        (DEVICE.format("CUDA", "16384.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 70.00 GiB is free."), "device_oom"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 549755813888 bytes.\n", "host_oom"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.50 TiB for an array with shape (7,)\n", "host_oom"),
    ],
)  # fmt: skip
def test_what_a_program_may_ask_for_is_still_a_lack_of_memory(said: str, cause: str, diagnose: Any) -> None:
    assert diagnose(TRACEBACK + said).cause.id == cause
