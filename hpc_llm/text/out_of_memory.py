"""The words for memory that ran out, as torch, the vendors' libraries and the system write them. Standard library only.

The worker travels with them to the compute node and names its own failure by them; the causes find them in any text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """One way to say it: a pattern, and texts of which every match contains one."""

    pattern: str
    literals: tuple[str, ...]


SIZE = r"[\d.]+ (?:bytes|[KMGT]i?B)"

DEVICE_ALLOCATION = Words(
    rf"(?P<vendor>CUDA|HIP|XPU|NPU) out of memory\. Tried to allocate (?P<asked>{SIZE})",
    ("out of memory. Tried to allocate",),
)
"""torch's allocator; the amounts follow."""
DEVICE_ERROR_TYPE = Words(
    r"(?:OutOfMemory|Runtime)Error: (?:CUDA|HIP|XPU) out of memory",
    ("Error: CUDA out of memory", "Error: HIP out of memory", "Error: XPU out of memory"),
)
DEVICE_LIBRARY = Words(
    r"(?:CU|HIP|ROC)(?:BLAS|DNN|BLASLT|SPARSE)_STATUS_ALLOC_FAILED",
    ("STATUS_ALLOC_FAILED",),
)
DEVICE_HANDLE = Words(
    r"(?:CU|HIP)BLAS_STATUS_NOT_INITIALIZED when calling `(?:cu|hip)blasCreate",
    ("STATUS_NOT_INITIALIZED when calling `cublasCreate", "STATUS_NOT_INITIALIZED when calling `hipblasCreate"),
)
"""The library did not start: memory that ran out is one reason of several, so this alone does not say so."""
DEVICE_DRIVER = Words(
    r"(?:CUDA|HIP) (?:driver )?error: out of memory|(?<!Search for `)(?:hipErrorOutOfMemory|cudaErrorMemoryAllocation)"
    r"|CUDA_ERROR_OUT_OF_MEMORY",
    (" error: out of memory", "rrorOutOfMemory", "rrorMemoryAllocation", "_ERROR_OUT_OF_MEMORY"),
)
DEVICE_COLLECTIVES = Words(
    r"\b(?:Cuda|HIP) failure (?:\d+ )?'out of memory'",
    ("Cuda failure", "HIP failure"),
)
DEVICE_COLLECTIVES_ROOM = Words(
    r"Failed to (?:CUDA|HIP) (?:c|m)alloc(?: async)? \d+ bytes",
    ("Failed to CUDA ", "Failed to HIP "),
)
"""NCCL says so of any call that failed while it asked for memory (`ncclCudaCallocAsyncDebug` of its alloc.h): most often, and
not always, there was none, so this alone does not say so either."""
DEVICE_RUNTIME = Words(r"\b(?:cuda|hip) runtime error \(2\) ?: out of memory", ("runtime error (2)",))

HOST_ALLOCATOR = Words(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory(?::[^\n]{0,40}allocate (?P<asked>\d+) bytes)?"
    r"|\[Errno 12\] Cannot allocate memory|[Ff]ork: Cannot allocate memory|mmap[^\n]{0,400}Cannot allocate memory",
    ("an't allocate memory", "annot allocate memory", "not enough memory: you tried"),
)
HOST_CPP = Words(r"\bstd::bad_alloc\b", ("bad_alloc",))
HOST_NUMPY = Words(rf"MemoryError: Unable to allocate (?P<asked>{SIZE})", ("Error: Unable to allocate",))
PAGE_LOCKED = Words(
    r"(?:cudaHostAlloc|hipHostMalloc|CachingHostAllocator|pin_memory)[^\n]{0,200}"
    r"(?:out of memory|invalid argument|failed|resource exhausted)",
    ("cudaHostAlloc", "hipHostMalloc", "pin_memory", "CachingHostAllocator"),
)
"""Page-locked host memory is asked from the GPU's driver, whose answer does not say which memory ran out."""

ASKED = Words(
    r"(?:[Tt]ried|Unable) to allocate (?:(?P<beyond>more than 1EB)|(?P<asked>\d{1,40}(?:\.\d{1,40})?) ?(?P<unit>bytes|[KMGTPE]i?B)\b)",
    ("ried to allocate", "Unable to allocate"),
)
"""How much was asked for, of whichever memory."""
_MOST_OF_A_DEVICE = 1 << 46
"""64 TiB: more than all GPUs of a rack have. What is asked of one device beyond that is no size of a batch or a model."""
_MOST_OF_A_NODE = 1 << 50
"""1 PiB: twenty times what the largest node has; an absurd setting, as a rank of 10^12 of adapters, asks for less."""
_POWERS = "KMGTPE"

_DEVICE = (
    DEVICE_ALLOCATION, DEVICE_ERROR_TYPE, DEVICE_LIBRARY, DEVICE_DRIVER, DEVICE_COLLECTIVES, DEVICE_RUNTIME,
)  # fmt: skip
_HOST = (HOST_ALLOCATOR, HOST_CPP, HOST_NUMPY)
_LAST_FRAMES = re.compile("|".join(PAGE_LOCKED.literals))


def is_device(text: str) -> bool:
    """Whether an error's `Type: message` says that the GPU's memory ran out.

    >>> is_device("RuntimeError: HIP error: out of memory"), is_device("ValueError: out of memory")
    (True, False)
    """
    return not asks_the_impossible(text) and any(re.search(words.pattern, text) for words in _DEVICE)


def is_host(text: str) -> bool:
    """Whether it says that the host's did."""
    return not asks_the_impossible(text) and any(re.search(words.pattern, text) for words in _HOST)


def asks_the_impossible(text: str) -> bool:
    """Whether more is asked for than any machine has, so that the size was wrong, and nothing ran out.

    >>> asks_the_impossible("CUDA out of memory. Tried to allocate more than 1EB memory.")
    True
    >>> asks_the_impossible("you tried to allocate 9223372036854775808 bytes"), asks_the_impossible("Tried to allocate 2.00 TiB")
    (True, False)
    """
    asked = re.search(ASKED.pattern, text)
    if asked is None or asked["beyond"]:
        return asked is not None
    power = 0 if asked["unit"] == "bytes" else 1 + _POWERS.index(asked["unit"][0])
    most = _MOST_OF_A_DEVICE if asked[0].startswith("Tried") else _MOST_OF_A_NODE  # as torch says it of a device alone
    return bool(float(asked["asked"]) * 1024**power >= most)


def is_page_locking(frames: str) -> bool:
    """Whether the code that a traceback shows asks for page-locked host memory."""
    return _LAST_FRAMES.search(frames) is not None
