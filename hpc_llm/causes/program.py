"""The program: an exception of which no other cause is known; and what is left."""

from __future__ import annotations

from hpc_llm.causes.cause import Cause, Role, sign
from hpc_llm.records.run import Outcome

PYTHON_EXCEPTION = Cause(
    id="python_exception",
    title="a Python exception",
    meaning="The program raised an error that hpc-llm does not know by name.",
    remedy="read the last lines of the traceback: the fault is in the program or in what it was given",
    retry=False,
    precedence=45,
    signs=(
        # What a rank says when another one has died; `tracebacks` finds the exceptions themselves.
        sign("onnection closed by peer", role=Role.CASCADE),
        sign("onnection reset by peer", role=Role.CASCADE),
        sign(
            (
                "remote process exited or there was a network error",
                "ncclRemoteError",
                "unexpected exit of a remote peer",
                "onnection closed by remote peer",
            ),
            role=Role.CASCADE,
        ),
        sign(
            "Too many open files",
            r"\[Errno 24\] Too many open files",
            precedence=46,
            confidence=0.9,
            remedy="allow more open files in the job (ulimit -n 65536), or use fewer data loader workers",
        ),
        sign("NCCL communicator was aborted", role=Role.CASCADE),
        sign("is killed by signal: Terminated", role=Role.CASCADE),
        sign("Broken pipe", r"BrokenPipeError|: Broken pipe", role=Role.CASCADE),
        sign(
            ("SyntaxError: ", "IndentationError: "),
            r"^(?:\[\w+\]: )?(?P<exception>SyntaxError|IndentationError): (?P<message>[^\n]{1,200})",
            confidence=0.85,
        ),
        # Without a traceback only these are taken for the end of a program: others write lines like them and go on.
        sign(
            "Error: ",
            r"^(?:\[rank\d+\]: )?(?P<exception>(?:torch\.Accelerator|Runtime|Assertion|Import|FileNotFound|FileExists|Permission|Value|Type|Key|Index|Attribute"
            r"|Name|NotImplemented|ZeroDivision|Recursion|UnicodeDecode|ConnectionRefused|OS)Error)"
            r": (?P<message>\S[^\n]{0,300})",
            confidence=0.75,
            not_after="Traceback (most recent call last)",
        ),
        sign(
            ") ***",
            r"(?:slurmstepd: error: |^[^\n\"']{0,60} error: )\*\*\* STEP \S{1,40}(?: ON \S{1,200})? FAILED \([^\n)]{1,80}\) \*\*\*",
            role=Role.CONFIRMATION,
        ),
        sign("ChildFailedError", role=Role.CONFIRMATION),
        sign("exits with return code = ", r"exits with return code = -?\d+", role=Role.CONFIRMATION),
        sign(
            "Exited with exit code",
            r"^[^\n]{0,12}srun: error: [^\n]{1,120}: Exited with exit code \d+",
            role=Role.CONFIRMATION,
        ),
    ),
)

UNKNOWN = Cause(
    id="unknown",
    title="not recognised",
    meaning="Nothing in the output says why it ended. What is killed from outside leaves no word.",
    remedy=(
        "ask the scheduler: sacct -j JOB -o JobID,State,ExitCode,MaxRSS,Elapsed,NodeList\n"
        "look at the other output: standard error and the logs of the other ranks"
    ),
    retry=False,
    precedence=0,
    outcome=Outcome.UNKNOWN,
)

NONE = Cause(
    id="none",
    title="nothing failed",
    meaning="The run came to its end.",
    remedy="nothing to do",
    retry=False,
    precedence=0,
    outcome=Outcome.COMPLETED,
)

CAUSES = (PYTHON_EXCEPTION, UNKNOWN, NONE)
