"""A kernel of Jupyter's that died: the process of the cells ended, and what started it is left to say so."""

from __future__ import annotations

from hpc_llm.causes.cause import sign

KERNEL_DIED = sign(
    ("ernel crashed while executing code", "Canceled future for execute_request message", "The kernel ", "DeadKernelError: "),
    r"\bThe [Kk]ernel crashed while executing code|\bCanceled future for execute_request message|^The kernel (?:'[^'\n]{1,80}' )?died\b|\bDeadKernelError: Kernel died",
    precedence=40,
    confidence=0.6,
    meaning=(
        "The process that ran the cells ended, without an exception of Python's: it was killed, as where memory runs out, or crashed in compiled code. Nothing says which."
    ),
    remedy=(
        "see whether memory ran out: `free -h` and nvidia-smi while the cell runs; where it ran in a job, sacct -j JOB -o State,ReqMem,MaxRSS\n"
        "run the cells as a script, which shows where it ends: jupyter nbconvert --to script NAME.ipynb, then python -X faulthandler NAME.py\n"
        "mixed builds are the usual reason of crashes: one CUDA or ROCm, extensions built for this torch"
    ),
)  # fmt: skip
