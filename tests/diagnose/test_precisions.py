"""A precision that is refused: because torch sees no GPU, or because the GPU is too old for it."""

from __future__ import annotations

from typing import Any

import pytest

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\n'
FP16 = "ValueError: FP16 Mixed precision training with AMP or APEX (`--fp16`) and FP16 half precision evaluation (`--fp16_full_eval`) can only be used on CUDA "


@pytest.mark.parametrize(
    "said",
    [
        FP16 + "devices.",
        FP16 + "or MLU devices or NPU devices or certain XPU devices (with IPEX).",
        "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
        "ValueError: Your setup doesn't support bf16/gpu.",
        "ValueError: Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU.",
        "RuntimeError: No GPU found. A GPU is needed for quantization.",
        "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only machine",
    ],
)
@pytest.mark.parametrize("before", ["", TRACEBACK])
def test_what_a_library_refuses_without_a_gpu_is_a_gpu_that_is_missing(said: str, before: str, diagnose: Any) -> None:
    found = diagnose(before + said + "\n")
    assert found.cause.id == "gpu_missing" and "torch sees none" in found.meaning
    assert "--gres=gpu:1" in found.remedy and "built for the CPU alone" in found.remedy
    assert ("map_location" in found.remedy) == ("deserialize" in said)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0", "take fp16"),
        ("ValueError: Your setup doesn't support bf16/gpu. You need Ampere+ GPU with cuda>=11.0", "take fp16"),
        ("ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device.", "take fp16"),
        ("ValueError: --tf32 requires Ampere or a newer GPU arch, cuda>=11 and torch>=1.7", "tf32: false"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", 'attn_implementation="sdpa"'),
        ("ValueError: Type bf16 is not supported on your device.", "fp16 or fp32"),
    ],
)  # fmt: skip
def test_what_a_gpu_is_too_old_for_is_replaced(said: str, instead: str, diagnose: Any) -> None:
    found = diagnose(TRACEBACK + said + "\n")
    assert found.cause.id == "config_error" and instead in found.remedy
    assert "correct the setting named" not in found.remedy and "--set" not in found.remedy


def test_another_device_without_fp16_is_no_missing_gpu(diagnose: Any) -> None:
    assert diagnose("ValueError: fp16 mixed precision requires a GPU (not 'mps').\n").cause.id != "gpu_missing"
