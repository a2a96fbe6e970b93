"""Code that failed on the GPU: the process learns of it at a later call, and ends by an exception or an abort of C++."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, sign

_BLOCKING = "--set env.CUDA_LAUNCH_BLOCKING=1 (on AMD: AMD_SERIALIZE_KERNEL=3) makes it stop at the call that does it"
_BUILDS = "mixed builds are a usual reason: extensions built for this torch, this GPU, this CUDA or ROCm"
_MEMORY = (
    "a kernel touched memory that is not its own: a GPU reports that late, so the traceback may show another call\n"
    f"{_BLOCKING}\n{_BUILDS}"
)
_CRASHED = (
    "a kernel crashed: a GPU reports that late, so the traceback may show another call\n"
    f"{_BLOCKING}\n{_BUILDS}\n"
    "if it happens on one node only, leave that node out: --sbatch exclude={node}; the lines NVRM: Xid of its `dmesg` tell whether the GPU is at fault"
)
_ASSERTED = (
    "an assertion in a kernel failed: a line with `Assertion` above says which, most often of an index (a token id, a position, a label) beyond its table\n"
    f"{_BLOCKING}\n"
    "the same batch on the CPU names the index"
)

_IN_CUBLAS = (
    "a line with `Assertion`, or another error of CUDA, above or of another rank says more: that is the reason then\n"
    f"{_BLOCKING}\n"
    "where the GPU's memory was nearly full, cuBLAS may not have got what it works in: a smaller micro batch shows it\n"
    "see that no other cuBLAS is loaded than torch's own: `echo $LD_LIBRARY_PATH`, and `pip list | grep -i cublas`"
)

KERNEL_FAILED = Cause(
    id="kernel_failed",
    title="a kernel failed on the GPU",
    meaning=(
        "Code that ran on the GPU was stopped there: it crashed, touched memory that is not its own, or an assertion in it failed. "
        "The process learned of it at a later call."
    ),
    remedy=_CRASHED,
    retry=False,
    precedence=58,
    explains=frozenset(("python_exception", "segfault", "collective_timeout", "unreachable")),
    signs=(
        sign(
            ("illegal memory access", "rrorIllegalAddress", "ERROR_ILLEGAL_ADDRESS"),
            r"an illegal memory access was encountered|\b(?:cuda|hip)ErrorIllegalAddress\b|\bCUDA_ERROR_ILLEGAL_ADDRESS\b",
            confidence=0.85,
            remedy=_MEMORY,
        ),
        sign(
            ("unspecified launch failure", "rrorLaunchFailure", "ERROR_LAUNCH_FAILED"),
            r"unspecified launch failure|\b(?:cuda|hip)ErrorLaunchFailure\b|\bCUDA_ERROR_LAUNCH_FAILED\b",
            confidence=0.85,
        ),
        sign(
            (
                "an illegal instruction was encountered",
                "misaligned address",
                "invalid program counter",
                "hardware stack error",
                "operation not supported on global/shared address space",
                "the launch timed out and was terminated",
                "rrorIllegalInstruction",
                "rrorMisalignedAddress",
                "rrorInvalidPc",
                "rrorLaunchTimeout",
                "ERROR_ILLEGAL_INSTRUCTION",
                "ERROR_MISALIGNED_ADDRESS",
                "ERROR_INVALID_PC",
                "ERROR_LAUNCH_TIMEOUT",
            ),
            r"\b(?:CUDA|HIP|[Cc]uda|[Hh]ip|Triton)\b[^\n]{0,120}\b(?:an illegal instruction was encountered|misaligned address|invalid program counter"
            r"|hardware stack error|operation not supported on global/shared address space|the launch timed out and was terminated)"
            r"|\b(?:cuda|hip)Error(?:IllegalInstruction|MisalignedAddress|InvalidPc|LaunchTimeout)\b"
            r"|\bCUDA_ERROR_(?:ILLEGAL_INSTRUCTION|MISALIGNED_ADDRESS|INVALID_PC|LAUNCH_TIMEOUT)\b",
            confidence=0.85,
        ),
        sign(
            ("device-side assert", "rrorAssert", "CUDA_ERROR_ASSERT"),
            r"device-side assert triggered|\b(?:cuda|hip)ErrorAssert\b|\bCUDA_ERROR_ASSERT\b",
            confidence=0.85,
            remedy=_ASSERTED,
        ),
        # The kernel prints it itself, a line a thread; what the assertion is of says more where it is known.
        sign(
            "Assertion `",
            r"\bblock: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion `[^\n]{1,300}[`'] failed",
            precedence=57,
            confidence=0.8,
            remedy=_ASSERTED,
        ),
        # What cuBLAS answers where a kernel, or a copy, failed that it had begun, or one before it.
        sign(
            ("BLAS_STATUS_EXECUTION_FAILED", "BLAS_STATUS_INTERNAL_ERROR"),
            r"\bCUDA error: (?:CU|HIP)BLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR) when calling\b",
            precedence=50,
            confidence=0.6,
            meaning="A multiplication of matrices failed on the GPU, in cuBLAS (on AMD: hipBLAS), which does not say why: often a call before it had failed.",
            remedy=_IN_CUBLAS,
        ),
    ),
)

CAUSES = (KERNEL_FAILED,)
