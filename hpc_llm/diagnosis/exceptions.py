"""What to do about a Python exception of which no other cause is known, by its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_OF_THE_PROGRAM = frozenset(
    """NameError UnboundLocalError TypeError AttributeError KeyError IndexError AssertionError ValueError ZeroDivisionError NotImplementedError
    RecursionError SyntaxError IndentationError ImportError UnicodeDecodeError FileNotFoundError FileExistsError IsADirectoryError
    NotADirectoryError""".split()
)
"""Exceptions that Python raises of the code that runs and of what it was given, and of nothing else."""
_OF_ANOTHER = frozenset(("CalledProcessError", "ChildFailedError", "ProcessRaisedException", "ProcessExitedException"))
"""Exceptions by which a program says that another one failed."""
_OF_A_LOCK = re.compile(r"^The file lock '[^'\n]{1,300}' could not be acquired")
_OF_A_WAIT = re.compile(
    r"^(?:subprocess|multiprocessing|concurrent|asyncio|joblib|queue|signal|filelock|func_timeout|pebble)\b"
)
"""Packages whose time-outs are of what a program itself waited for."""
_OF_THE_NETWORK = re.compile(
    r"Connection|Timeout|Socket|HTTP|URL|SSL|DistNetworkError|DistStoreError|DistBackendError|gaierror|RemoteDisconnected"
)
_NO_NETWORK = (
    (
        re.compile(r"unhandled (?:cuda|hip) error|\b(?:Cuda|HIP) failure\b"),
        (
            "a call of the GPU's driver failed inside NCCL: by itself that is no failure of the network",
            "run it once with NCCL_DEBUG=INFO: the first line with NCCL WARN names the call, and the one behind it what it was for",
            "if that is shared memory: `df -h /dev/shm` on the node; a container wants --ipc=host, or more with --shm-size",
            "see that each rank has a GPU of its own and sees those of the other ranks: `nvidia-smi` in the job, inside a container too",
            "what else the call may lack only a person can decide who knows the node and the program",
        ),
    ),
    (
        re.compile(r"\binvalid usage\b|\binvalid argument\b"),
        (
            "NCCL was asked for what it cannot do: most often two ranks have the same GPU, or ranks call it with different things",
            "run it once with NCCL_DEBUG=WARN: the line with NCCL WARN says which",
        ),
    ),
    (
        re.compile(r"\binternal error\b"),
        (
            "NCCL gave up, and the exception does not say why: run it once with NCCL_DEBUG=INFO, the first line with NCCL WARN does",
            "what to change then is for a person to decide",
        ),
    ),
)
"""What NCCL says of failures that are none of the network, though the exception is that of a collective."""


def python_exception(facts: Mapping[str, Any]) -> list[str]:
    """Where to look, by the kind of the exception; nothing where it is not known or says nothing by itself."""
    name = str(facts.get("exception") or "").rpartition(".")[2]
    if "cannot open shared object file" in str(facts.get("message") or ""):
        return [
            "the loader found that library and could not open it: the words behind the last colon say why, as rights or a file system do"
        ]
    if name in _OF_THE_PROGRAM:
        return ["read the last lines of the traceback: the fault is in the program or in what it was given"]
    if name in _OF_ANOTHER:
        return ["a process that it started failed: its own output says why, above this error or in a log of its own"]
    if name == "DistBackendError":
        said = str(facts.get("message") or "")
        for words, lines in _NO_NETWORK:
            if words.search(said):
                return list(lines)
    if _OF_A_LOCK.search(str(facts.get("message") or "")):
        return [
            "another process held the lock that the message names, or one that is gone left it: `ls -l` of it shows since when; remove it once nobody uses it",
            "give each job, or each rank that fills it, a cache of its own (HF_HOME and its like), or fill it once before the job",
            "some file systems give no locks (Lustre mounted without flock, some NFS): put the cache on another one, as the node's own disk",
        ]
    if "Timeout" in name and _OF_A_WAIT.search(str(facts["exception"])):
        return [
            "read the last lines of the traceback: they show what the program waited for, and how long at most",
            "look for what that did meanwhile, in its own output; allow it more time where it only took long",
        ]
    if _OF_THE_NETWORK.search(name):
        return [
            "read the last lines of the traceback: they show what was asked for over the network, and of whom",
            "see the output of the other ranks for one that ended before, and whether the node reaches that address",
        ]
    return []
