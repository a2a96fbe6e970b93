"""What the driver answers where it, its libraries and compiled code are of releases that do not fit."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, Sign, sign

_FAILED = r"(?:Error: |CUDA error: |what\(\): {1,4}|Error \[CUDA\]: )[^\n]{0,300}?"
"""Words of one that gave up: torch warns of the same where it looks for GPUs, and goes on without them."""


def _answers(literals: tuple[str, ...], remedy: str, is_warned_of: bool = True) -> tuple[Sign, ...]:
    """The signs of what it answers, in the words of the runtime and by the name of the error."""
    words = "|".join(literals)
    failed = sign(literals, f"{_FAILED}(?:{words})", remedy=remedy)
    told = sign(literals, confidence=0.75, precedence=46, survived_after=STARTED, remedy=remedy)
    return (failed, told) if is_warned_of else (failed,)


_TWO_DRIVERS = (
    "the libcuda that was loaded is not of the driver that the node runs: `nvidia-smi` and `cat /proc/driver/nvidia/version` show its release, "
    "`ldconfig -p | grep libcuda` and LD_LIBRARY_PATH which libcuda comes first\n"
    "take the host's: no path of a toolkit's stubs, of cuda-compat or of another node's driver in LD_LIBRARY_PATH; a container gets it with --nv "
    "(Apptainer) or --gpus all (Docker)\n"
    "where nothing of the job brings one, the node's driver was updated by halves: leave it out with --sbatch exclude={node}, and tell the site"
)
_COMPATIBLE = (
    "a libcuda of the package cuda-compat was loaded, which runs on NVIDIA's data-centre GPUs alone, and not on each old driver: take its folder out of "
    "LD_LIBRARY_PATH (as /usr/local/cuda/compat in a container), or unload that module\n"
    "then take a torch, or an image, whose CUDA the node's own driver knows: `nvidia-smi` there says the newest"
)
_NEWER_PTX = (
    "the driver is older than the toolkit that compiled this code, and cannot translate it for the GPU: take a build (torch, triton, an extension) "
    "of a CUDA that the driver knows, `nvidia-smi` on the node says the newest, or a node with a newer driver\n"
    "what compiles while it runs (numba, triton, CuPy, nvcc of a module) is to take a toolkit of that release, too"
)
_OLD_CALL = (
    "the node's driver is older than what the program asks of it: take a torch, or an image, whose CUDA the driver knows "
    "(`nvidia-smi` there says the newest), or a node with a newer driver"
)
_BAD_IMAGE = (
    "what was compiled is not for this GPU, or is damaged: remove the cache of kernels (~/.triton/cache or TRITON_CACHE_DIR, ~/.cache/torch_extensions, "
    "~/.nv/ComputeCache), which nodes with other GPUs may have filled, and give each kind of node its own\n"
    "if it comes again, install a build of torch and triton, or of the extension, that has code for this GPU"
)

SIGNS = (
    *_answers(
        ("system has unsupported display driver / cuda driver combination", "rrorSystemDriverMismatch"), _TWO_DRIVERS
    ),
    *_answers(
        ("forward compatibility was attempted on non supported HW", "rrorCompatNotSupportedOnDevice"), _COMPATIBLE
    ),
    *_answers(
        (
            "PTX was compiled with an unsupported toolchain",
            "rrorUnsupportedPtxVersion",
            "ERROR_UNSUPPORTED_PTX_VERSION",
        ),
        _NEWER_PTX,
        is_warned_of=False,
    ),
    *_answers(
        ("API call is not supported in the installed CUDA driver", "rrorCallRequiresNewerDriver"),
        _OLD_CALL,
        is_warned_of=False,
    ),
    *_answers(("device kernel image is invalid", "rrorInvalidKernelImage"), _BAD_IMAGE, is_warned_of=False),
)
