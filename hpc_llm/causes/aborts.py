"""Compiled code that ends its process by itself: an exception of C++ that nobody caught, a check that failed. It says what of."""

from __future__ import annotations

import re

from hpc_llm.causes.cause import sign

_THROWN = (
    "compiled code threw what the evidence says, and nobody caught it: that sentence, and the frames below it, name the library and the call\n"
    "where it speaks of one of your files, settings or versions, correct that; mixed builds are the usual reason of others\n"
    "a thread of a library that is torn down while it works throws as well: see whether another rank, or the program, had failed before"
)
_CHECKED = (
    "compiled code found something that must not be, which the evidence names, and ended the process: look for that sentence in the library's issues\n"
    "mixed builds are the usual reason: one CUDA or ROCm, one MPI, extensions built for this torch"
)
_UNSAID = (
    "compiled code threw an exception that nobody caught, and its words are not here: where ranks print into one another, look for `what():` near the evidence\n"
    "otherwise let the system keep a core file (`ulimit -c unlimited` in the job), which `gdb -batch -ex bt PROGRAM CORE` shows"
)
_NOT_JOINED = (
    "a thread was still running when its owner went away: this comes of a program that ends, or fails, without stopping its threads\n"
    "look for an error before it; else let it end its process groups and loaders first: torch.distributed.destroy_process_group()"
)
_OF_NCCL = (
    "NCCL ended the process: --set env.NCCL_DEBUG=INFO shows the call that failed, in the first line with NCCL WARN\n"
    "where it says `unhandled cuda error`, a call of the GPU's driver failed, which is no failure of the network: see that each rank has a GPU of its own, and "
    "`df -h /dev/shm` on the node\n"
    "where it says `invalid usage`, two ranks have the same GPU, or call it with different things"
)
_LOST = (
    "this process ended because another one no longer answered it: look at the output of the other ranks for one that ended before\n"
    "if all of them say the same, see the network: --set env.NCCL_DEBUG=INFO, and the node that is missing"
)
_TERMINATE = re.compile(rb"\bterminate called (?:after throwing|recursively)")
_NEAR = 1 << 12
"""Bytes before the words of an exception in which its type stands: all ranks of a node may print theirs in between."""

_OF_OTHERS = (
    r"[^\n]{0,300}\b(?:closed by (?:remote )?peer|reset by (?:remote )?peer|[Bb]roken pipe|remote process exited|ncclRemoteError|communicator was aborted"
    r"|detected by watchdog at work|Timeout at NCCL work|NCCL operations have failed or timed out|unexpected exit of a remote peer)"
)
"""What it says where it lost another process: that it aborts follows."""


def _is_of_cpp(text: bytes, position: int) -> bool:
    """Whether C++ says shortly before that an exception ends the process: others have a `what()`, too, and print it."""
    return _TERMINATE.search(text, max(0, position - _NEAR), position) is not None


def _is_all_it_says(text: bytes, position: int) -> bool:
    """Whether the words of the exception do not stand shortly behind."""
    return text.find(b"what(): ", position, position + _NEAR) < 0


SIGNS = (
    sign(
        "what():",
        r"^[ \t]{0,8}what\(\): {1,4}(?P<message>(?=" + _OF_OTHERS + r")\S[^\n]{0,400})",
        where=_is_of_cpp,
        precedence=40,
        confidence=0.5,
        remedy=_LOST,
    ),
    sign(
        "what():",
        r"^[ \t]{0,8}what\(\): {1,4}(?P<message>(?!" + _OF_OTHERS + r")(?=[^\n]{0,300}\bNCCL error\b)\S[^\n]{0,400})",
        where=_is_of_cpp,
        precedence=41,
        confidence=0.81,
        remedy=_OF_NCCL,
    ),
    # The words say more than the type; where they name a cause that is known, that one counts.
    sign(
        "what():",
        r"^[ \t]{0,8}what\(\): {1,4}(?P<message>(?!" + _OF_OTHERS + r")\S[^\n]{0,400})",
        where=_is_of_cpp,
        precedence=41,
        confidence=0.8,
        remedy=_THROWN,
    ),
    sign(
        "libc++abi: ",
        r"^libc\+\+abi(?:\.dylib)?: terminat(?:ing|e called) (?:due to |with )?uncaught (?:\S{1,20} )?exception(?: of type [^\n:]{1,200}(?:::[^\n:]{1,200}){0,8}: (?P<message>\S[^\n]{0,400}))?",
        precedence=41,
        confidence=0.8,
        remedy=_THROWN,
    ),
    sign(
        "Check failed: ",
        r"^F(?:\d{4}|20\d{6}) [\d:.]{8,15} +\d{1,10} [\w./-]{1,200}:\d{1,6}\] (?P<message>Check failed: [^\n]{1,400})",
        precedence=41,
        confidence=0.8,
        remedy=_CHECKED,
    ),
    # The words of assert() of C.
    sign(
        "' failed.",
        r"^[^\n\"'`]{1,200}: [^\n\"'`]{0,40}\b[\w./-]{1,200}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp):\d{1,6}: [^\n`]{1,300}: (?P<message>Assertion `[^\n]{1,300}' failed\.)$",
        precedence=41,
        confidence=0.8,
        remedy=_CHECKED,
    ),
    sign(
        "terminate called without an active exception",
        r"^terminate called without an active exception",
        precedence=40,
        confidence=0.7,
        remedy=_NOT_JOINED,
    ),
    sign(
        "terminate called ",
        r"^terminate called (?:after throwing an instance of|recursively)",
        where=_is_all_it_says,
        precedence=40,
        confidence=0.7,
        remedy=_UNSAID,
    ),
)
