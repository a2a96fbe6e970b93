"""Symbols that a compiled library lacks although nothing is of another version, told by the symbol's name."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Sign, sign

_ABOVE_A_MISMATCH = 83
"""Precedence: the name of the symbol says more than that one is missing."""
_LACKS = r"(?:^|[:\s])(?P<library>(?:/|\.)?[^\s:]{1,300}\.so[\w.]*): undefined symbol: "
_MEANING = (
    "A compiled library calls a function of {name}, with which it was not linked and which nothing else has loaded. That function is in every release of "
    "{name}: no version is wrong, and the same build made again lacks it again."
)
_OF_CUDA = (
    "preload {name}: export LD_PRELOAD=/PATH/TO/{name}.so, that of the CUDA toolkit torch was built with (in its lib64), or of the package "
    "nvidia-{part}-cu12 or its like (nvidia/{part}/lib in site-packages)\n"
    "or build it once more with that library among those it is linked with (-l{part}), and the toolkit's lib64 in LIBRARY_PATH and LD_LIBRARY_PATH"
)
_OF_DEEPSPEED = (
    "\nwhere it is one of DeepSpeed's (cpu_adam and its like): newer releases link it (python -m pip install --upgrade deepspeed); remove what was built before, as "
    "its folder in ~/.cache/torch_extensions, and let it be compiled when it is first used, without DS_BUILD_OPS and DS_BUILD_CPU_ADAM at the installation"
)
_OF_AIO = (
    "install libaio on the nodes (libaio1, libaio-devel), or load its module, and build the library once more: with DeepSpeed's async_io remove its folder in "
    "~/.cache/torch_extensions, and see that `ds_report` finds async_io compatible\n"
    "preload it where it is there: export LD_PRELOAD=/PATH/TO/libaio.so.1"
)


def _unlinked(prefix: str, symbol: str, name: str, remedy: str) -> Sign:
    """The sign of a function that each release of that library has."""
    return sign(
        f"undefined symbol: {prefix}",
        _LACKS + rf"(?P<symbol>{symbol})(?:$|[\s)])(?!version )",
        confidence=0.9,
        precedence=_ABOVE_A_MISMATCH,
        survived_after=STARTED,
        meaning=_MEANING.format(name=name),
        remedy=remedy,
    )


UNLINKED = (
    _unlinked(
        "curand",
        r"curand[A-Z]\w{1,60}",
        "libcurand",
        _OF_CUDA.format(name="libcurand", part="curand") + _OF_DEEPSPEED,
    ),
    _unlinked("cublas", r"cublas\w{1,60}_v2", "libcublas", _OF_CUDA.format(name="libcublas", part="cublas")),
    _unlinked(
        "cufft",
        r"cufft(?:Exec|Plan|Create|Destroy|Set)\w{0,60}",
        "libcufft",
        _OF_CUDA.format(name="libcufft", part="cufft"),
    ),
    _unlinked("io_", r"io_(?:setup|destroy|submit|getevents|cancel)", "libaio", _OF_AIO),
)
"""Functions that are as old as their libraries: who lacks one was not linked with it."""

OF_MKL = sign(
    "undefined symbol: iJIT_",
    r"libtorch_cpu\.so: undefined symbol: iJIT_\w{1,40}",
    precedence=_ABOVE_A_MISMATCH,
    meaning="This build of torch needs a function that MKL has no more since its release 2024.1.",
    remedy=(
        "take an older MKL in that environment: conda install 'mkl<2024.1' (with pip: python -m pip install 'mkl<2024.1')\n"
        "or a newer torch, which does without it; load no other MKL by a module or LD_LIBRARY_PATH"
    ),
)
