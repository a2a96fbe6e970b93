"""What the driver refuses, and packages that are of another release than the one they belong to."""

from __future__ import annotations

from typing import Any

import pytest

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\n'
COUNTED = "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? "
E803 = COUNTED + "Error 803: system has unsupported display driver / cuda driver combination"
E804 = COUNTED + "Error 804: forward compatibility was attempted on non supported HW"
WARNED = "/e/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: {} (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)\n"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (f"RuntimeError: {E803}", "--nv"),
        (f"RuntimeError: {E804}", "/usr/local/cuda/compat"),
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.", "older than the toolkit"),
        ("torch.AcceleratorError: CUDA error: API call is not supported in the installed CUDA driver", "the driver knows"),
        ("RuntimeError: Triton Error [CUDA]: device kernel image is invalid", "TRITON_CACHE_DIR"),
        ("RuntimeError: CUDA error: invalid device function", "TORCH_CUDA_ARCH_LIST"),
        ("Error invalid device function at line 679 in file /bitsandbytes/csrc/ops.hip", "PYTORCH_ROCM_ARCH"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", TRACEBACK])
def test_what_the_driver_refuses_is_a_mismatch(said: str, advice: str, before: str, diagnose: Any) -> None:
    found = diagnose(f"{before}{said}\n")
    assert (found.cause.id, found.retry) == ("driver_mismatch", False) and advice in found.remedy


@pytest.mark.parametrize("said", [E803, E804])
def test_what_torch_warned_of_is_why_it_then_finds_no_gpu(said: str, diagnose: Any) -> None:
    without = f"{WARNED.format(said)}{TRACEBACK}RuntimeError: No CUDA GPUs are available\n"
    assert diagnose(without).cause.id == "driver_mismatch"
    trained = "".join(f"{{'loss': {5 - n / 10}, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n" for n in range(1, 4))
    assert diagnose(WARNED.format(said) + trained).cause.id != "driver_mismatch"


@pytest.mark.parametrize(
    "said", ["CUDA driver initialization failed, you might not have a CUDA gpu.", "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing"]
)  # fmt: skip
def test_cuda_that_does_not_start_is_a_gpu_that_is_missing(said: str, diagnose: Any) -> None:
    assert diagnose(f"{TRACEBACK}RuntimeError: {said}\n").cause.id == "gpu_missing"
    assert diagnose(WARNED.format(said) + "evaluating on the processors\n").cause.id == "unknown"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major versions. PyTorch has CUDA Version=12.1", "torch torchvision"),
        ("OSError: Detected that PyTorch and TorchAudio were compiled with different CUDA versions. PyTorch has CUDA version 12.4", "torch TorchAudio"),
        ("RuntimeError: operator torchvision::nms does not exist", "torch torchvision"),
        ("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend. This could be because", "torch torchvision"),
        ("ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found tokenizers==0.19.1.", "pip install 'tokenizers>=0.21,<0.22'"),
        ("ImportError: huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module, but found huggingface-hub==1.0.1.", "huggingface-hub==1.0.1 is there"),
    ],
)  # fmt: skip
def test_a_package_of_another_release_is_there(said: str, advice: str, diagnose: Any) -> None:
    found = diagnose(f"{TRACEBACK}{said}\nTry: `pip install transformers -U`\n")
    assert found.cause.id == "packages_apart" and advice in found.remedy
    assert "another Python" not in found.remedy
