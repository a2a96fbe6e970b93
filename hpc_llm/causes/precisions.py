"""Precisions that a GPU does not have, or that are refused because torch sees no GPU: libraries say both in words of a setting."""

from __future__ import annotations

from hpc_llm.causes.cause import sign

_SURER = 0.96
"""So much more than the other signs of a precision that is refused."""
_SEES_NONE = "The program asked for what only a GPU does, and torch sees none there."
_NO_GPU = (
    "ask for a GPU, on a partition that has some: sbatch --gres=gpu:1; `nvidia-smi` or `rocm-smi` in the job shows what it got\n"
    "if it got one, this torch may be built for the CPU alone: `python -c 'import torch; print(torch.version.cuda, torch.version.hip)'` says so; install a build for the GPU\n"
    "see that nothing hides them: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES in the job\n"
    "where it is to run without one, leave out what the evidence names"
)
_READ_ON_CPU = "\nwhere only the file is to be read, torch.load(..., map_location='cpu')"
_NO_BF16 = (
    "this GPU has no bf16, which NVIDIA's have from Ampere on (A100, RTX 30, A10): take fp16 in its place (fp16: true and bf16: false, or mixed_precision: fp16), or fp32; or a newer GPU\n"
    "where `python -c 'import torch; print(torch.cuda.is_available())'` says False in the job, torch sees no GPU at all: ask for one, or install a build of torch for it"
)
_NO_TF32 = "this GPU has no TF32, which NVIDIA's have from Ampere on: leave it out (tf32: false, or without the flag), or take a newer GPU"

WITHOUT_GPU = (
    sign(
        (
            "Mixed precision training with AMP",
            "mixed precision requires a GPU (not 'cpu')",
            "setup doesn't support bf16/gpu.",
            "A GPU is needed for quantization",
            "No supported gpu backend found!",
            "nsloth c",
        ),
        r"Error: FP16 Mixed precision training with AMP[^\n]{1,160} can only be used on CUDA\b|mixed precision requires a GPU \(not 'cpu'\)"
        r"|setup doesn't support bf16/gpu\.(?:$| You need to assign use_cpu)|No GPU found\. A GPU is needed for quantization|No supported gpu backend found!"
        r"|NotImplementedError: (?:Unsloth: No [\w, ]{1,40} GPU found\? )?Unsloth c(?:annot find any torch accelerator\?|urrently only (?:works on|supports) [^\n]{0,60}GPUs)",
        confidence=0.85,
        meaning=_SEES_NONE,
        remedy=_NO_GPU,
    ),
    sign(
        "Attempting to deserialize object on ",
        r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
        confidence=0.85,
        meaning=_SEES_NONE,
        remedy=_NO_GPU + _READ_ON_CPU,
    ),
    sign("You requested gpu: ", r"Exception: You requested gpu: \[[\d, ]{1,200}\]$", confidence=0.85),
)
"""What is refused where torch sees no GPU, or fewer than were asked for."""
OF_OLD_GPUS = (
    sign(
        ("setup doesn't support bf16/gpu. You need ", "bf16 mixed precision requires PyTorch"),
        r"setup doesn't support bf16/gpu\. You need (?:torch>=[\d.]+, using )?Ampere|bf16 mixed precision requires PyTorch >= 1\.10 and a supported device",
        confidence=_SURER,
        remedy=_NO_BF16,
    ),
    sign("tf32 requires Ampere", r"--tf32 requires Ampere or a newer GPU", confidence=_SURER, remedy=_NO_TF32),
)
"""What a GPU is too old for."""
