"""A library that the loader does not find is told by its family, and by its name where none is known."""

from __future__ import annotations

from typing import Any

import pytest

TRACEBACK = 'Traceback (most recent call last):\n  File "/w/tune.py", line 2, in <module>\n    import thing\n'
NOT_FOUND = "{}: cannot open shared object file: No such file or directory\n"
THE_PROGRAM = "the fault is in the program"


@pytest.mark.parametrize(
    ("library", "cause", "said"),
    [
        ("libcublasLt.so.12", "driver_mismatch", ("CUDA 12", "nvidia/cublas/lib")),
        ("libnvJitLink.so.13", "driver_mismatch", ("CUDA 13", "nvidia/cu13/lib")),
        ("libcufft.so.11", "driver_mismatch", ("CUDA 12", "nvidia/cufft/lib")),
        ("libcusolver.so.11", "driver_mismatch", ("is of CUDA,", "nvidia/cusolver/lib")),
        ("libcudart.so.11.0", "driver_mismatch", ("CUDA 11", "nvidia/cuda_runtime/lib")),
        ("libcudnn_ops_infer.so.8", "driver_mismatch", ("cuDNN 8", "cudnn.version()")),
        ("librocblas.so.4", "driver_mismatch", ("ROCm", "torch.version.hip")),
        ("libmpi.so.12", "package_missing", ("MPICH", "module")),
        ("libmpi_gnu_123.so.12", "package_missing", ("Cray MPICH", "module")),
        ("libopen-rte.so.40", "package_missing", ("Open MPI", "module")),
        ("libgthread-2.0.so.0", "package_missing", ("opencv-python-headless", "conda-forge glib")),
        ("libavutil.so.57", "package_missing", ("conda-forge ffmpeg", "release 57")),
        ("libtorch_cuda_cu.so", "package_missing", ("torch's own", "for this torch")),
        ("libgsl.so.25", "package_missing", ("loader's path", "libgsl.so.25*")),
        ("/opt/app/lib/libmine.so", "package_missing", ("is not there on that node",)),
        ("libnvidia-ml.so.1", "driver_mismatch", ("NVIDIA's driver", "--nv")),
    ],
)
@pytest.mark.parametrize("raised", ["ImportError", "OSError"])
def test_a_library_that_is_not_found_is_told_by_its_family(
    library: str, cause: str, said: tuple[str, ...], raised: str, diagnose: Any
) -> None:
    found = diagnose(f"{TRACEBACK}{raised}: {NOT_FOUND.format(library)}")
    assert (found.cause.id, found.retry) == (cause, False)
    assert all(words in found.remedy for words in said) and THE_PROGRAM not in found.remedy, found.remedy


def test_a_library_that_may_not_be_opened_is_no_fault_of_the_program(diagnose: Any) -> None:
    found = diagnose(f"{TRACEBACK}ImportError: libgsl.so.25: cannot open shared object file: Permission denied\n")
    assert THE_PROGRAM not in found.remedy and "last colon" in found.remedy


LOADING = "CUDA SETUP: Loading binary /e/site-packages/bitsandbytes/libbitsandbytes_cuda117.so...\n"
OLD = (
    LOADING
    + NOT_FOUND
    + f"{TRACEBACK}RuntimeError: \n        CUDA Setup failed despite GPU being available. Please run\n"
)
LATER = "bitsandbytes library load error: " + NOT_FOUND
NEW = (
    LATER
    + f"{TRACEBACK}RuntimeError: \n🚨 CUDA SETUP ERROR: Missing dependency: {{}} 🚨\n\nCUDA 12.x runtime libraries were not found\n"
)
USED = f"Could not load bitsandbytes native library: {NOT_FOUND}{TRACEBACK}AttributeError: 'NoneType' object has no attribute 'cdequantize_blockwise_fp16'\n"


@pytest.mark.parametrize("text", [OLD, NEW, USED], ids=["old", "new", "used later"])
def test_bitsandbytes_that_lacks_a_library_of_cuda_is_not_told_to_be_the_wrong_one(text: str, diagnose: Any) -> None:
    found = diagnose(text.replace("{}", "libcublas.so.11"))
    assert found.cause.id == "driver_mismatch" and "nvidia/cublas/lib" in found.remedy, found.remedy
    assert "--upgrade" not in found.remedy and "has no library for" not in found.remedy


def test_what_bitsandbytes_lacks_and_nobody_needs_is_no_failure(diagnose: Any) -> None:
    trained = "{'loss': 1.5, 'epoch': 0.5}\n{'train_runtime': 100.0, 'epoch': 1.0}\n"
    assert diagnose(LATER.format("libcublas.so.11") + trained).cause.id == "none"


def test_a_newer_bitsandbytes_leaves_torch_as_it_is(diagnose: Any) -> None:
    found = diagnose("CUDA Setup failed despite GPU being available.\n")
    assert "has no library for" in found.remedy and "-c torch.txt bitsandbytes" in found.remedy
