"""Kernels that failed on the GPU, and compiled code that ended its process: each says itself of what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]
FRAMES = 'Traceback (most recent call last):\n  File "/w/t.py", line 114, in forward\n    return F.linear(input, self.weight)\n'
KERNELS = (
    "an illegal memory access was encountered", "unspecified launch failure", "an illegal instruction was encountered", "misaligned address",
    "device-side assert triggered", "invalid program counter", "the launch timed out and was terminated",
)  # fmt: skip


@pytest.mark.parametrize(
    "raised", ["torch.AcceleratorError: CUDA error: ", "RuntimeError: HIP error: ", "  what():  CUDA error: "]
)
@pytest.mark.parametrize("error", KERNELS)
def test_a_kernel_that_failed_is_no_crash_of_the_process(error: str, raised: str, diagnose: Diagnose) -> None:
    ended = "terminate called after throwing an instance of 'c10::Error'\n" if "what" in raised else FRAMES
    for more in (
        "",
        "n1: line 4: 77 Aborted                 (core dumped) python train.py\n",
        "srun: error: n1: task 0: Segmentation fault\n",
    ):
        found = diagnose(f"{ended}{raised}{error}\n{more}")
        assert found.cause.id == "kernel_failed" and error in found.evidence[0].text
        assert found.cause.title == "a kernel failed on the GPU" and "CUDA_LAUNCH_BLOCKING" in found.remedy
        assert "PYTHONFAULTHANDLER" not in found.remedy and not found.retry


def test_a_kernel_that_a_faulty_gpu_stopped_is_not_at_fault(diagnose: Diagnose) -> None:
    said = "[412345.678] NVRM: Xid (PCI:0000:4e:00): 79, pid=991, GPU has fallen off the bus.\n"
    assert diagnose(FRAMES + "RuntimeError: CUDA error: unspecified launch failure\n" + said).chain[:2] == (
        "gpu_hardware", "kernel_failed",
    )  # fmt: skip


ABORTED = {
    "": "",
    "shell": "n1: line 4: 77 Aborted                 (core dumped) python train.py\n",
    "faulthandler": "Fatal Python error: Aborted\n\nThread 0x00007f0 (most recent call first):\n<no Python frame>\n",
    "torchrun": "api.py:869] failed (exitcode: -6) local_rank: 3 (pid: 9) of binary: python\n  traceback : Signal 6 (SIGABRT) received by PID 9\n",
}
OF_CPP = {
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.06 GiB is free.": "device_oom",
    "CUDA error: out of memory": "device_oom",
    "CUDA error: an illegal memory access was encountered": "kernel_failed",
    "CUDA error: uncorrectable ECC error encountered": "gpu_hardware",
    "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5": "python_exception",
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran": "collective_timeout",
    "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5": "segfault",
    "Expected tensor for argument #1 'indices' to have scalar type Long": "segfault",
    "Connection reset by peer": "segfault",
}


@pytest.mark.parametrize("ended", ABORTED.values(), ids=ABORTED)
@pytest.mark.parametrize("label", ["", "[rank3]: ", "3: "])
@pytest.mark.parametrize("said", OF_CPP)
def test_what_cpp_says_of_its_exception_is_the_evidence(said: str, label: str, ended: str, diagnose: Diagnose) -> None:
    thrown = f"{label}terminate called after throwing an instance of 'c10::Error'\n{label}  what():  {said}\n"
    found = diagnose(thrown + ended)
    assert found.cause.id == OF_CPP[said] and said[:60] in found.evidence[0].text
    assert "PYTHONFAULTHANDLER" not in found.remedy
    assert ("NCCL_DEBUG" in found.remedy) == ("NCCL error" in said or "reset" in said)


@pytest.mark.parametrize(
    "said",
    [
        "terminate called without an active exception",
        "terminate called after throwing an instance of 'int'",
        "libc++abi: terminating with uncaught exception of type std::runtime_error: tile 64 is not 128",
        "F20250612 14:02:11.482000 140213 comm.cpp:99] Check failed: n > 0 (0 vs. 0)",
        "python: /build/src/comm.cpp:99: void init(int, int): Assertion `n > 0' failed.",
    ],
)
def test_compiled_code_that_ends_its_process_needs_no_frames_of_python(said: str, diagnose: Diagnose) -> None:
    found = diagnose(f"step 3 loss 2.1\n{said}\n{ABORTED['shell']}")
    assert found.cause.id == "segfault" and found.evidence[0].text == said and "PYTHONFAULTHANDLER" not in found.remedy


def test_a_rank_that_lost_a_killed_one_does_not_hide_that(diagnose: Diagnose) -> None:
    lost = "terminate called after throwing an instance of 'c10::Error'\n  what():  Connection closed by peer\n"
    killed = "api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: python\n"
    assert diagnose(lost + killed).cause.id == "host_oom"
    assert (
        diagnose("the handler printed what():  tile 64 is not 128\n  what():  tile 64 is not 128\n").cause.id
        == "unknown"
    )


@pytest.mark.parametrize(("code", "signal", "is_crash"), [(-6, "SIGABRT", False), (-11, "SIGSEGV", True)])
def test_a_process_that_was_aborted_for_a_reason_did_not_crash(
    code: int, signal: str, is_crash: bool, diagnose: Diagnose
) -> None:
    found = diagnose(
        "[rank1]:[E1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
        f"E1 torch/distributed/elastic/api.py:882] failed (exitcode: {code}) local_rank: 1 (pid: 77) of binary: /e/bin/python\n"
        f"  exitcode  : {code} (pid: 77)\n  traceback : Signal {-code} ({signal}) received by PID 77\n"
    )
    assert "collective_timeout" in found.chain and ("segfault" in found.chain) is is_crash
