"""The formulas behind every figure of a result: pure, standard library only. Rates are per second, sizes are counts.

tokens_per_second is global: data-parallel groups x micro batch x accumulation x sequence length over the mean measured
step time.
FLOPs are model FLOPs: what the mathematics needs, so recomputed activations do not count (MFU, not HFU).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import TypeGuard

CLOCK_TOLERANCE = 0.02
"""By how much two clocks may differ over the same steps."""

MIN_MEASURED_STEPS = 3
"""Fewer give no mean that can be judged."""


def tokens_per_step(
    data_parallel: int, micro_batch_size: int, gradient_accumulation_steps: int, sequence_length: int
) -> int:
    """Tokens that one optimizer step consumes: ranks that share a batch (one data-parallel group) count once.

    >>> tokens_per_step(8, 1, 2, 350)
    5600
    """
    return data_parallel * micro_batch_size * gradient_accumulation_steps * sequence_length


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def tokens_per_second(tokens: int, step_times_s: Sequence[float]) -> float | None:
    """Global throughput of steps of `tokens` tokens each; None when none was measured.

    >>> tokens_per_second(2800, [0.25, 0.75])
    5600.0
    """
    average = mean(step_times_s)
    return tokens / average if average else None


_UNSTEADY = 2.0
"""So many times the median is the mean of steps of which a few are not like the others."""


def is_unsteady(mean_s: float | None, median_s: float | None) -> bool:
    """Whether a few steps took so long that their mean, and the rate that follows from it, is not that of most.

    >>> is_unsteady(0.21, 0.011), is_unsteady(0.012, 0.011), is_unsteady(None, 0.011)
    (True, False, False)
    """
    return mean_s is not None and median_s is not None and mean_s > _UNSTEADY * median_s > 0


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value below which `percent` of the values lie, by linear interpolation between the closest two.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.5
    """
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def is_figure(value: object) -> TypeGuard[float]:
    """Whether `value` is a number, and no larger than those that a float holds.

    >>> is_figure(3), is_figure(True), is_figure(math.nan), is_figure(10**400), is_figure("3")
    (True, False, False, False, False)
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def finite(value: float | None) -> float | None:
    """The value, None where it is missing or not a finite number, which JSON has not.

    >>> finite(1.5), finite(math.nan)
    (1.5, None)
    """
    return value if value is not None and math.isfinite(value) else None


def perplexity(loss: float) -> float | None:
    """e^loss of a mean cross entropy in nats; None when it is not a finite number."""
    if not math.isfinite(loss) or loss > 700:  # e^710 is beyond a double
        return None
    return math.exp(loss)


def flops_per_token(
    weights: int,
    num_layers: int,
    attention_width: int,
    sequence_length: int,
    trained_weights: int | None = None,
    causal: bool = False,
) -> float:
    """Model FLOPs of forward and backward for one token.

    Each of the `weights` in products costs 2 FLOPs in the forward pass, 2 for the gradient of its input and, where it
    trains, 2 for its own gradient: 6N when all N train, 4N + 2T when only T do (LoRA, a quantized base). N holds the
    output head and no input embedding, which is looked up and not multiplied; a matrix that is both counts once.
    Attention scores and their weighted sum add 12 x layers x attention width (heads x their size) x sequence length,
    which holds no weights and so does not shrink with freezing, nor with fewer key-value heads. By the usual convention
    that counts the full square of the attention matrix; `causal=True` counts its lower half.
    """
    trained = weights if trained_weights is None else trained_weights
    attention = 12 * num_layers * attention_width * sequence_length
    return float(4 * weights + 2 * trained + (attention // 2 if causal else attention))


def model_tflops_per_gpu(tokens_per_second_per_gpu: float, flops_per_token: float) -> float:
    """Model TFLOP/s that one GPU delivers."""
    return tokens_per_second_per_gpu * flops_per_token / 1e12


def mfu(tflops_per_gpu: float | None, peak_flops: float | None, quantized: bool = False) -> float | None:
    """Share of the dense peak in use, 0 to 1.

    None when the peak is unknown, and for quantized weights, whose products have no single peak to compare with.
    """
    if tflops_per_gpu is None or not peak_flops or quantized:
        return None
    return tflops_per_gpu * 1e12 / peak_flops


# Dense peaks in TFLOP/s: (16-bit with fp32 accumulation, fp32 without tensor cores, whether it has bf16). Of a card
# with two dies the figure is of one die, which is what the framework shows as one GPU. From the makers' data sheets.
_PEAKS: tuple[tuple[str, float, float, bool], ...] = (
    ("V100S", 130.0, 16.4, False),  # NVIDIA V100 data sheet (2020)
    ("V100 PCIE", 112.0, 14.0, False),
    ("V100", 125.0, 15.7, False),  # SXM2
    ("T4", 65.0, 8.1, False),  # NVIDIA T4 data sheet
    ("A100", 312.0, 19.5, True),  # NVIDIA A100 data sheet, without sparsity
    ("A40", 149.7, 37.4, True),  # NVIDIA A40 data sheet, without sparsity
    ("A30", 165.0, 10.3, True),  # NVIDIA A30 data sheet, without sparsity
    ("A10", 125.0, 31.2, True),  # NVIDIA A10 data sheet, without sparsity
    ("L40S", 362.05, 91.6, True),  # NVIDIA L40S data sheet, without sparsity
    ("L40", 181.05, 90.5, True),  # NVIDIA L40 data sheet, without sparsity
    ("L4", 121.0, 30.3, True),  # NVIDIA L4 data sheet, half of the sparse figure
    ("RTX 5090", 209.5, 104.8, True),  # NVIDIA RTX Blackwell architecture paper, fp32 accumulation
    ("RTX 4090", 165.2, 82.6, True),  # NVIDIA Ada architecture paper, fp32 accumulation
    ("RTX 3090", 71.0, 35.6, True),  # NVIDIA Ampere GA102 architecture paper, fp32 accumulation
    ("H100 PCIE", 756.0, 51.0, True),  # NVIDIA H100 data sheet, half of the sparse figure
    ("H100 NVL", 835.0, 60.0, True),
    ("H100", 989.4, 67.0, True),  # SXM5
    ("H200 NVL", 835.0, 60.0, True),  # NVIDIA H200 data sheet, half of the sparse figure
    ("H200", 989.4, 67.0, True),
    ("GH200", 989.4, 67.0, True),  # NVIDIA GH200 data sheet, half of the sparse figure
    ("B200", 2250.0, 75.0, True),  # NVIDIA HGX B200 data sheet (36 and 0.6 PFLOP/s of eight), half of the sparse figure
    ("MI100", 184.6, 23.1, False),  # AMD MI100 data sheet; its bf16 runs at half the rate, so none is given
    ("MI210", 181.0, 22.6, True),  # AMD MI210 data sheet
    ("MI250X", 191.5, 23.95, True),  # AMD MI250X data sheet (383.0 and 47.9), one of its two dies
    ("MI250", 181.05, 22.65, True),  # AMD MI250 data sheet (362.1 and 45.3), one of its two dies
    ("MI300X", 1307.4, 163.4, True),  # AMD MI300X data sheet
    ("MI300A", 980.6, 122.6, True),  # AMD MI300A data sheet
)

_FP8 = {
    "L40S": 733.0, "L40": 362.0, "L4": 242.5, "RTX 5090": 419.0, "RTX 4090": 330.3, "H100 PCIE": 1513.0, "H100 NVL": 1670.5,
    "H100": 1978.9, "H200 NVL": 1670.5, "H200": 1978.9, "GH200": 1978.9, "B200": 4500.0,
}  # fmt: skip
"""The same of fp8 with fp32 accumulation, from the same data sheets, half of the sparse figure where that alone is given."""
_SIZES = {"A100": (40, 80), "H100 PCIE": (80,), "H100 NVL": (94,), "H100": (80,)}
"""The memory in GB of the GPUs that those data sheets are of. Others of the name are chips made for one site, with other clocks or
other numbers of cores: the A100 of 64 GB of Leonardo, the H100 of 64 GB of MareNostrum 5."""
_VARIANTS = frozenset("LAPTOP MOBILE MAX MIG VGPU GRID TI SUPER D NVL FHHL".split())
"""Words that make another GPU of a name: a part of one, another chip, or the same chip at lower clocks (Max-Q)."""
_SLICE = re.compile(r"\d{1,2}[ABCQ]")
"""The size of a part, as in `MIG 3g.20gb` and `A40-48Q`."""
_MIG_SLICE = re.compile(r"\d{1,2}G")
_FORMS = {"PCIE": "PCIE", "SXM": "SXM", "HBM3": "SXM", "ADA": "ADA", "PRO": "PRO"}
"""Words that tell two kinds of one name apart where both have one; of the H100 the driver says HBM3 for SXM5."""


def peak_flops(gpu_name: str, precision: str) -> float | None:
    """Dense peak of one GPU in FLOP/s at `bf16`, `fp16`, `fp32` or `fp8`; None for a GPU that is not in the table.

    `gpu_name` may be a driver's name (`NVIDIA A100-SXM4-40GB`) or a profile's (`V100-SXM2-32GB`).
    """
    found = {
        {"fp16": half, "bf16": half if has_bf16 else None, "fp32": single, "fp8": _FP8.get(name)}.get(precision)
        for name, half, single, has_bf16 in _entries(gpu_name)
        if (size := _gigabytes(gpu_name)) is None or size in _SIZES.get(name, (size,))
    }
    tflops = found.pop() if len(found) == 1 else None  # a name of two chips is the name of neither
    return None if tflops is None else tflops * 1e12


def fastest_tflops() -> float:
    """The largest 16-bit peak in the table, in TFLOP/s."""
    return max(half for _, half, _, _ in _PEAKS)


def _entries(gpu_name: str) -> list[tuple[str, float, float, bool]]:
    """What the table has of that name: the most particular entry; one for each chip where the name holds two."""
    words = _words(gpu_name)
    found: list[tuple[str, float, float, bool]] = []
    for entry in _PEAKS:
        names = set(entry[0].split())
        known = any(names <= set(one[0].split()) for one in found)
        if names <= words and _variant(words) <= names and not known:
            found.append(entry)
    return found


def has_bf16(gpu_name: str) -> bool | None:
    """Whether the GPU computes in bf16 as fast as in fp16; None for a GPU that is not in the table.

    >>> has_bf16("Tesla V100-SXM2-32GB"), has_bf16("A100-SXM4-40GB"), has_bf16("Unheard-of 1")
    (False, True, None)
    """
    found = {has_bf16 for _, _, _, has_bf16 in _entries(gpu_name)}
    return found.pop() if len(found) == 1 else None


def _words(gpu_name: str) -> set[str]:
    return set(_spelled(gpu_name).split())


def _spelled(gpu_name: str) -> str:
    """The name in capitals, its words apart: `4090D` and `4090 D` are one."""
    return re.sub(r"(\d{4})(TI|SUPER|D)\b", r"\1 \2", re.sub(r"[^A-Z0-9]+", " ", gpu_name.upper()))


def _variant(words: set[str]) -> set[str]:
    """What makes it another GPU than the plain one of its name."""
    sliced = _MIG_SLICE if "MIG" in words else _SLICE
    return {word for word in words if word in _VARIANTS or sliced.fullmatch(word)}


def _forms(words: set[str]) -> set[str]:
    return {form for word, form in _FORMS.items() for one in words if re.fullmatch(rf"{word}\d?", one)}


def same_gpu(planned: str, found: str) -> bool | None:
    """Whether the GPU found is of the planned kind; None when the names do not tell.

    What only one of the names says, a size or a form, is no difference; a part of a GPU or a variant of its chip is one.
    A driver may give two chips one name.

    >>> same_gpu("V100-SXM2-32GB", "Tesla V100-SXM2-32GB"), same_gpu("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU")
    (True, False)
    """
    chips = [_chips(planned), _chips(found)]
    if not chips[0] or not chips[1]:
        return None
    words = [_words(planned), _words(found)]
    if chips[0] != chips[1] and chips[0] & chips[1] and max(map(len, chips)) > 1:
        return None
    if chips[0] != chips[1] or _variant(words[0]) != _variant(words[1]):
        return False
    forms = [_forms(one) for one in words]
    sizes = [_gigabytes(planned), _gigabytes(found)]
    return not (forms[0] and forms[1] and forms[0] != forms[1]) and (None in sizes or sizes[0] == sizes[1])


def _chips(gpu_name: str) -> set[str]:
    """The chip that a name names; two where it is that of either, as `AMD Instinct MI250X / MI250`."""
    pattern = r"\b(?:RTX )?((?:[A-Z]{1,3}\d{2,4}|[ALT]\d|\d{4})[A-Z]?)\b"
    first = [re.search(pattern, _spelled(part)) for part in gpu_name.split("/")]
    return {one.group(1) for one in first if one is not None}


def _gigabytes(gpu_name: str) -> int | None:
    if "GH200" in gpu_name.upper():
        return None  # its name holds the size of the host's memory
    match = re.search(r"(\d+)\s*GB", gpu_name.upper())
    return int(match.group(1)) if match else None


def _is_network(found: str, expected: str) -> bool:
    """Whether NCCL's name for a network holds the words of the expected one: `AWS Libfabric` those of `Libfabric`."""
    return set(expected.lower().split()) <= set(found.lower().split())


def invalid_reason(
    *,
    measured_steps: int,
    losses: Sequence[float | None],
    skipped_steps: int = 0,
    world_size: int,
    planned_world_size: int,
    gpu: str | None = None,
    expected_gpu: str | None = None,
    network: str | None = None,
    expected_network: str | None = None,
    device_clock_s: float | None = None,
    host_clock_s: float | None = None,
    first_step: int = 1,
) -> str | None:
    """Why a run that came to its end may not be compared with others; None when nothing speaks against it.

    `losses` are those of all steps from `first_step` on, None where no token was to be predicted, `skipped_steps` how many of the measured ones the loss scaler threw away. The clocks
    are those of the GPU and of the host around the measured steps.
    """
    if world_size != planned_world_size:
        return f"{world_size} ranks ran, {planned_world_size} were planned"
    if expected_gpu is not None and gpu is None:
        return f"it ran on the CPU, {expected_gpu} was planned"
    if expected_gpu is not None and gpu is not None and same_gpu(expected_gpu, gpu) is False:
        return f"it ran on {gpu}, {expected_gpu} was planned"
    if network is not None and expected_network is not None and not _is_network(network, expected_network):
        return f"NCCL used the network {network} between the nodes, and is to use {expected_network} there"
    bad = next(
        (
            number
            for number, loss in enumerate(losses, start=first_step)
            if loss is not None and not math.isfinite(loss)
        ),
        None,
    )
    if bad is not None:
        return f"the loss is not a finite number from step {bad} on"
    if losses and all(loss is None for loss in losses):
        return "no token of any step was to be predicted: nothing was learned"
    if measured_steps < MIN_MEASURED_STEPS:
        return f"{measured_steps} steps were measured, at least {MIN_MEASURED_STEPS} are needed"
    if skipped_steps >= measured_steps:
        return f"all {measured_steps} measured steps were skipped because the gradients overflowed"
    if device_clock_s and host_clock_s and abs(device_clock_s / host_clock_s - 1) > CLOCK_TOLERANCE:
        return (
            f"the measured steps took {device_clock_s:.3f} s by the GPU's clock and {host_clock_s:.3f} s by the host's"
        )
    return None
