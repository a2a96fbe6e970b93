"""Libraries that the loader did not find, by the name that it says: who asked for them is there."""

from __future__ import annotations

import re

from hpc_llm.causes.cause import STARTED, sign

_OF_GPUS = (
    r"lib(?:cudart|cudnn|cublas|cusparse|cusolver|cufft|curand|cufile|cupti|cutensor|nccl|nvrtc|nvJitLink|nvjitlink|nvToolsExt|nvshmem|npp|nvinfer|nvjpeg"
    r"|amdhip64|hsa-runtime64|amd_comgr|roctx64|roctracer64|roc(?:blas|solver|sparse|fft|rand)|rccl|hip(?:blas|solver|sparse|fft|rand)|MIOpen)[\w.+-]{0,40}"
)
_OF_THE_DRIVER = r"lib(?:cuda\.so|nvidia-[\w-]{1,40}\.so)"
_NOT_FOUND = r": cannot open shared object file(?:$|: No such file)"
_RAISED = r"\b(?:Import|OS|Runtime)Error: (?:[^\n]{0,160}[ (])?"
_ABOVE_A_MISMATCH = 83
"""Precedence: that a library was loaded whose own needs are missing says more than that it does not work."""
_WEAK = 44
"""Precedence of what is said at an import, and matters where it is needed."""
_NEEDED = re.compile(
    rb"CUDA Setup failed despite GPU being available|RuntimeError: \s{0,40}CUDA Setup failed|name 'str2optimizer"
    rb"|'NoneType' object has no attribute 'c[dqgaliptr]|Attempted to use bitsandbytes native library"
)
_LATER, _NEAR = 1 << 18, 1 << 12
_NAMED = re.compile(rb"(?<![\w/.])lib[\w.+-]{1,60}: cannot open shared object file")
_MEANING_OF_GPUS = (
    "A library of CUDA or ROCm was not found on the node: what asks for it is there, and was built for the release to which that belongs. "
    "The driver has no part in it."
)
_MEANING = "The loader of the node did not find the library that the evidence names: what asks for it is there, and was built with it."


def _was_needed(text: bytes, position: int) -> bool:
    """Whether the program then asked for what bitsandbytes could not load."""
    return _NEEDED.search(text, position, position + _LATER) is not None


def is_not_for_lack_of_one(text: bytes, position: int) -> bool:
    """Whether no library that was not found is named shortly before `position`."""
    return _NAMED.search(text, max(0, position - _NEAR), position) is None


_OF_BITSANDBYTES = (
    r"^(?:[^\n\"']{0,120}?\bCould not load bitsandbytes native library: |[^\n\"']{0,120}?\bbitsandbytes library load error: )?"
    rf"(?P<missing_library>{_OF_GPUS}){_NOT_FOUND}"
)
NEEDED_LATER = sign(
    "cannot open shared object file",
    _OF_BITSANDBYTES,
    where=_was_needed,
    survived_after=STARTED,
    precedence=_ABOVE_A_MISMATCH,
    meaning=_MEANING_OF_GPUS,
)
"""bitsandbytes found its own library, and what that one needs is missing: told at the import, and needed behind it."""

OF_GPUS = (
    sign(
        "cannot open shared object file",
        rf"{_RAISED}(?P<missing_library>{_OF_GPUS}){_NOT_FOUND}",
        survived_after=STARTED,
        meaning=_MEANING_OF_GPUS,
    ),
    NEEDED_LATER,
    sign(
        "cannot open shared object file",
        _OF_BITSANDBYTES,
        survived_after=STARTED,
        precedence=_WEAK,
        confidence=0.7,
        meaning=_MEANING_OF_GPUS,
    ),
    sign(
        "SETUP ERROR: Missing dependency: ",
        r"(?:CUDA|ROCm|HIP) SETUP ERROR: Missing dependency: (?P<missing_library>[\w.+-]{1,80})",
        survived_after=STARTED,
        precedence=_ABOVE_A_MISMATCH,
        meaning=_MEANING_OF_GPUS,
    ),
)
"""Signs of a package that was built for another release of CUDA or ROCm than the one that is there."""

OF_THE_DRIVER = rf"(?:Import|OS)Error: {_OF_THE_DRIVER}[\w.]*: cannot open shared object file"

OTHERS = (
    sign(
        "cannot open shared object file",
        rf"{_RAISED}(?!{_OF_GPUS}:|{_OF_THE_DRIVER}|\S{{0,200}}torch_extensions/)(?P<missing_library>[^\s:'\"]{{1,300}}\.so[\w.]{{0,20}}){_NOT_FOUND}",
        survived_after=STARTED,
        confidence=0.9,
        meaning=_MEANING,
    ),
)
"""Signs of any other library that an import did not find."""
