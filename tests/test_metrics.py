"""The formulas, each against a figure worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hpc_llm.records import metrics


def test_tokens_per_second_is_global() -> None:
    tokens = metrics.tokens_per_step(8, 2, 4, 350)
    assert tokens == 22_400
    # steps of 1, 2 and 3 seconds: 2 on average
    assert metrics.tokens_per_second(tokens, [1.0, 2.0, 3.0]) == 11_200.0
    assert metrics.tokens_per_second(tokens, []) is None


def test_percentiles_interpolate() -> None:
    values = [5.0, 1.0, 2.0, 4.0, 3.0]
    assert metrics.percentile(values, 0) == 1.0
    assert metrics.percentile(values, 50) == 3.0
    assert metrics.percentile(values, 90) == pytest.approx(4.6)  # 0.6 of the way from 4 to 5
    assert metrics.percentile(values, 100) == 5.0
    assert metrics.percentile([], 50) is None


def test_flops_of_llama2_7b() -> None:
    # 6 738 415 616 parameters without 32 000 x 4096 looked up and 65 norms of 4096: 6 607 077 376, six times that is
    # 39 642 464 256; attention 12 x 32 layers x 4096 x 350 tokens = 550 502 400
    full = metrics.flops_per_token(6_607_077_376, 32, 4096, 350)
    assert full == 39_642_464_256 + 550_502_400
    assert metrics.flops_per_token(6_607_077_376, 32, 4096, 350, causal=True) == 39_642_464_256 + 275_251_200


def test_frozen_weights_save_their_own_gradient_only() -> None:
    # 1000 weights of which 10 train: 2 x 1000 forward, 2 x 1000 for the inputs' gradients, 2 x 10; attention 12
    assert metrics.flops_per_token(1000, 1, 1, 1, trained_weights=10) == 4 * 1000 + 2 * 10 + 12


def test_mfu_of_a_measured_run() -> None:
    # 369 tokens/s per GPU at 40.98 GFLOP a token = 15.12 TFLOP/s, of 989.4 dense
    tflops = metrics.model_tflops_per_gpu(369.0, 40_980_996_096.0)
    assert tflops == pytest.approx(15.122, abs=1e-3)
    assert metrics.mfu(tflops, 989.4e12) == pytest.approx(0.015284, abs=1e-6)


def test_mfu_is_unknown_rather_than_guessed() -> None:
    assert metrics.mfu(15.0, None) is None
    assert metrics.mfu(None, 989.4e12) is None
    assert metrics.mfu(15.0, 989.4e12, quantized=True) is None


def test_perplexity() -> None:
    assert metrics.perplexity(0.0) == 1.0
    assert metrics.perplexity(2.0) == pytest.approx(7.389056)
    assert metrics.perplexity(math.nan) is None
    assert metrics.perplexity(1e4) is None


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("Tesla V100-SXM2-32GB", "fp16", 125.0),
        ("Tesla V100-SXM2-32GB", "bf16", None),
        ("Tesla V100-SXM2-32GB", "fp32", 15.7),
        ("V100-SXM2-32GB", "fp16", 125.0),
        ("Tesla V100-PCIE-32GB", "fp16", 112.0),
        ("AMD Instinct MI210", "bf16", 181.0),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312.0),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 PCIe", "bf16", 756.0),
        ("NVIDIA H200", "bf16", 989.4),
        ("AMD Instinct MI250X", "fp16", 191.5),
        ("AMD Instinct MI250", "bf16", 181.05),
        ("AMD Instinct MI250X / MI250", "bf16", None),  # libdrm's amdgpu.ids, 740C 01: hosts of both chips
        ("AMD Instinct MI250X/MI250", "fp16", None),
        ("NVIDIA A100-SXM-64GB", "bf16", None),  # Leonardo's own A100
        ("NVIDIA H100 64GB", "bf16", None),  # MareNostrum 5's
        ("NVIDIA A100 80GB PCIe", "bf16", 312.0),
        ("NVIDIA H100 80GB HBM3", "fp16", 989.4),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 5090", "bf16", 209.5),
        ("Tesla T4", "bf16", None),
        ("NVIDIA L4", "fp16", 121.0),
        ("NVIDIA A40", "bf16", 149.7),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None),
        ("NVIDIA A100-SXM4-40GB", "fp32", 19.5),
        ("NVIDIA GeForce RTX 3090", "bf16", 71.0),
        ("NVIDIA GeForce RTX 3090 Ti", "bf16", None),
        ("NVIDIA GeForce RTX 4090 D", "bf16", None),
        ("RTX 4090D", "bf16", None),
        ("NVIDIA A40-48Q", "bf16", None),
        ("GRID A100-10C", "bf16", None),
        ("NVIDIA H100 NVL", "bf16", 835.0),
        ("NVIDIA H200 NVL", "bf16", 835.0),
        ("NVIDIA GH200 480GB", "bf16", 989.4),
        ("Some New GPU", "bf16", None),
        ("NVIDIA A100-SXM4-40GB", "fp8", None),
        ("NVIDIA H100 80GB HBM3", "fp8", 1978.9),
        ("NVIDIA L4", "fp8", 242.5),
        ("NVIDIA GH200 480GB", "fp8", 1978.9),
    ],
)
def test_peaks_are_dense_and_unknown_is_none(name: str, precision: str, tflops: float | None) -> None:
    peak = metrics.peak_flops(name, precision)
    assert peak == (None if tflops is None else pytest.approx(tflops * 1e12))


def test_a_gpu_without_a_peak_has_bf16_where_all_chips_of_its_name_have_it() -> None:
    assert metrics.has_bf16("AMD Instinct MI250X / MI250") is metrics.has_bf16("NVIDIA A100-SXM-64GB") is True
    assert metrics.has_bf16("AMD Instinct MI100") is False


@pytest.mark.parametrize(
    ("planned", "found", "same"),
    [
        ("V100-SXM2-32GB", "Tesla V100-SXM2-32GB", True),
        ("V100-SXM2-32GB", "Tesla V100-SXM2-16GB", False),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("MI210", "AMD Instinct MI210", True),
        ("MI210", "AMD Instinct MI250X", False),
        ("MI250", "AMD Instinct MI250X", False),
        ("MI250", "AMD Instinct MI250X / MI250", None),
        ("MI250X-128GB", "AMD Instinct MI250X/MI250", None),
        ("MI210", "AMD Instinct MI250X / MI250", False),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM-64GB", False),
        ("H100", "NVIDIA H200", False),
        ("GH200-96GB", "NVIDIA GH200 480GB", True),
        ("MI210", "AMD Radeon Graphics", None),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", False),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", True),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", False),
        ("A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", False),
        ("A40", "NVIDIA A40-48Q", False),
        ("A100-80G", "NVIDIA A100 80GB PCIe", True),
        ("W7900", "AMD Radeon PRO W7900", True),
        ("RTX 6000 Ada", "NVIDIA RTX PRO 6000 Blackwell Server Edition", False),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", True),
        ("H200", "NVIDIA H200", True),
        ("H200", "NVIDIA H200 NVL", False),
        ("H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", True),
        ("H100-SXM5-80GB", "NVIDIA H100 PCIe", False),
        ("H100 80GB HBM3", "NVIDIA H100 80GB HBM3", True),
        ("H100 80GB HBM3", "NVIDIA H100 PCIe", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 D", False),
        ("RTX 4090D", "NVIDIA GeForce RTX 4090 D", True),
        ("RTX 3090", "NVIDIA GeForce RTX 3090 Ti", False),
        ("RTX 5090", "NVIDIA GeForce RTX 5090", True),
        ("RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti", True),
        ("MI300X", "AMD Instinct MI300X", True),
        ("MI100", "AMD Instinct MI100", True),
    ],
)
def test_the_planned_gpu_is_recognised(planned: str, found: str, same: bool | None) -> None:
    assert metrics.same_gpu(planned, found) is same


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"measured_steps": 2}, "2 steps were measured, at least 3 are needed"),
        ({"world_size": 1}, "1 ranks ran, 2 were planned"),
        ({"losses": [6.0, math.nan, 5.0]}, "the loss is not a finite number from step 2 on"),
        ({"losses": [6.0, math.nan], "first_step": 7}, "the loss is not a finite number from step 8 on"),
        ({"gpu": None}, "it ran on the CPU, A100 was planned"),
        ({"gpu": "NVIDIA H200"}, "it ran on NVIDIA H200, A100 was planned"),
        ({"gpu": "AMD Radeon Graphics"}, None),
        ({"device_clock_s": 10.1, "host_clock_s": 10.0}, None),
        ({"device_clock_s": None, "host_clock_s": 10.0}, None),
        (
            {"device_clock_s": 9.0, "host_clock_s": 10.0},
            "the measured steps took 9.000 s by the GPU's clock and 10.000 s by the host's",
        ),
        ({"skipped_steps": 8}, "all 8 measured steps were skipped because the gradients overflowed"),
    ],
)
def test_a_run_that_cannot_be_compared_says_why(changes: dict[str, Any], reason: str | None) -> None:
    sound: dict[str, Any] = {
        "measured_steps": 8,
        "losses": [6.0, 5.0],
        "world_size": 2,
        "planned_world_size": 2,
        "gpu": "NVIDIA A100-SXM4-40GB",
        "expected_gpu": "A100",
    }
    assert metrics.invalid_reason(**{**sound, **changes}) == reason
