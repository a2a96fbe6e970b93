"""What to do about a library that the loader did not find, by the family to which it belongs.

Which release of CUDA brings it is said where the number behind `.so` tells: several have numbers of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpc_llm.diagnosis.environment import of_the_profile

_PARTS = {
    "cudart": "cuda_runtime",
    "cublas": "cublas",
    "cublasLt": "cublas",
    "cusparse": "cusparse",
    "cusparseLt": "cusparselt",
    "cusolver": "cusolver",
    "cufft": "cufft",
    "curand": "curand",
    "cufile": "cufile",
    "cupti": "cuda_cupti",
    "cudnn": "cudnn",
    "nccl": "nccl",
    "nvrtc": "cuda_nvrtc",
    "nvrtc-builtins": "cuda_nvrtc",
    "nvJitLink": "nvjitlink",
    "nvToolsExt": "nvtx",
    "nvshmem_host": "nvshmem",
}
"""Libraries of CUDA's that torch's wheels bring, and the folder of each below site-packages/nvidia (up to CUDA 12)."""
_RELEASES = {
    **{(name, n): n for name in ("cudart", "cublas", "cublasLt", "nvrtc", "cupti", "nvJitLink") for n in (11, 12, 13)},
    ("cusparse", 11): 11,
    ("cusolver", 12): 13,
    ("cufft", 11): 12,
    ("cufft", 12): 13,
}
"""The release of CUDA whose library has that number; those that two releases share are left out."""
_NAME = re.compile(r"^lib(?P<name>.{1,120}?)\.so(?:\.(?P<number>\d{1,4}))?")
_FIND = "see whether the node has it: `find $CONDA_PREFIX $VIRTUAL_ENV /usr/lib64 /usr/lib -name '{library}*'`; where it has, put that folder on LD_LIBRARY_PATH in the job"


def _cuda(library: str, name: str, number: int | None) -> list[str] | None:
    """The wheels of torch's own CUDA first: they lie where the loader looks only for torch itself."""
    part = "cudnn" if name.startswith("cudnn") else _PARTS.get(name)
    if part is None:
        return None
    release = _RELEASES.get((name, number or 0))
    of, shows = (f"CUDA {release}" if release else "CUDA"), "torch.version.cuda"
    if part == "cudnn":
        of, shows = (f"cuDNN {number}" if number else "cuDNN"), "torch.backends.cudnn.version()"
    folders = [part] * (release != 13) + ["cu13"] * (release in (None, 13))
    path = ":".join(f"SITE-PACKAGES/nvidia/{folder}/lib" for folder in folders)
    return [
        f"{library} is of {of}, with which what asks for it was built; `python -c 'import torch; print({shows})'` shows what torch has, "
        "whose packages bring their libraries (python -m pip list | grep -i nvidia)",
        f"where they have it, tell the loader its folder in the job: export LD_LIBRARY_PATH={path}:$LD_LIBRARY_PATH",
        f"where they are of another release: load the site's module of {of} in the job; or install a build of what asks for it that is for torch's CUDA, "
        "or torch, with all that was built against it, for the CUDA of that build",
    ]


def _rocm(library: str) -> list[str]:
    return [
        f"{library} belongs to one release of ROCm, with which what asks for it was built: "
        "`python -c 'import torch; print(torch.version.hip)'` shows torch's",
        "load the module of that ROCm in the job (`module avail rocm`); or install a build of it for torch's ROCm",
    ]


def _mpi(library: str) -> list[str]:
    kind = "Open MPI"
    if re.search(r"mpi\.so\.12\b|mpi_(?:cray|gnu|intel|nvidia|amd)|libmpi(?:cxx|fort|ch)\.so", library):
        kind = "MPICH or one of its kind (Intel MPI, MVAPICH, Cray MPICH)"
    elif not re.search(r"open-(?:rte|pal)|mpi\w{0,20}\.so\.[2-9]\d\b", library):
        kind = "an MPI"
    return [
        f"{library} is of {kind}: load in the job, before python, the module of the MPI with which what asks for it was built (`module avail mpi`)",
        "where mpi4py asks for it, it can be built for the MPI whose module the job loads: "
        "MPICC=mpicc python -m pip install --force-reinstall --no-deps --no-cache-dir --no-binary mpi4py mpi4py; "
        "where only a library imports it that does not need MPI, remove it: python -m pip uninstall mpi4py",
    ]


_CONDA = {
    "GL": "libgl",
    "EGL": "libegl",
    "gthread-2.0": "glib",
    "glib-2.0": "glib",
    "SM": "xorg-libsm",
    "ICE": "xorg-libice",
    "Xext": "xorg-libxext",
    "Xrender": "xorg-libxrender",
    "X11": "xorg-libx11",
}
"""Libraries of a desktop, which compute nodes have none of, by the packages of conda-forge that bring them."""
_SYSTEM = {
    "sndfile": "libsndfile",
    "aio": "libaio",
    "gomp": "libgomp",
    "openblas": "libopenblas",
    "numa": "numactl",
    **dict.fromkeys(("avcodec", "avformat", "avutil", "avfilter", "avdevice", "swscale", "swresample"), "ffmpeg"),
}


def _desktop(library: str, name: str) -> list[str]:
    return [
        f"{library} is of a desktop, and the node has none. Where cv2 asks for it, the build without a display needs none: "
        "python -m pip uninstall opencv-python opencv-contrib-python; python -m pip install --force-reinstall --no-deps opencv-python-headless",
        f"where something else does: conda install -c conda-forge {_CONDA[name]}, or the site's module that brings it",
    ]


def _torch(library: str) -> list[str]:
    return [
        f"{library} is torch's own: what asks for it was imported before torch (import torch above it), or built for another torch than the one that is there",
        "build or install it again for this torch: `python -m pip show torch` tells which that is",
    ]


def _unknown(library: str, name: str, number: int | None) -> list[str]:
    brought = _SYSTEM.get(name)
    wanted = f", in its release {number}" if brought == "ffmpeg" and number else ""
    first = (
        f"the package {brought} brings {library}{wanted}: conda install -c conda-forge {brought}, or the site's module of it"
        if brought
        else f"{library} is not on the loader's path on that node: load in the job, before the program, the module or environment that brings it: "
        "the one with which what asks for it (the last frame above) was built"
    )
    return [first, _FIND.format(library=library)]


def not_found(facts: Mapping[str, Any]) -> list[str]:
    """What to do about the library that was not found; nothing where none is named."""
    library = str(facts.get("missing_library") or "")
    if not library:
        return []
    return [*_by_family(library), *of_the_profile(facts.get("cluster"))]


def _by_family(library: str) -> list[str]:
    if "/" in library:
        return [
            f"the file {library} is not there on that node: see its name, that it lies on a disk which the node has, and that what brings it is installed whole"
        ]
    said = _NAME.match(library)
    name, number = (said["name"], int(said["number"]) if said["number"] else None) if said else (library, None)
    if (of_cuda := _cuda(library, name, number)) is not None:
        return of_cuda
    if re.match(r"(?:roc|hip|amd|hsa-|rccl|MIOpen)", name):
        return _rocm(library)
    if re.match(r"mpi|pmi[x2]?$|open-(?:rte|pal)$", name):
        return _mpi(library)
    if name in _CONDA:
        return _desktop(library, name)
    if re.match(r"(?:torch(?:$|_cuda|_cpu|_python|_hip)|c10)", name):
        return _torch(library)
    return _unknown(library, name, number)
