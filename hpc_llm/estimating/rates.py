"""How fast a machine is: what the makers say of its GPUs, and which part of that is reached. Rates are per second.

The makers' figures are facts. What is reached of them, and what the host adds, are constants that were fitted to measured runs;
they lie in `time_constants.json` with the record of that, and `hpc-llm estimate --calibrate` fits those of one cluster anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PER_BANDWIDTH = 300.0
"""FLOP in 16 bits that a data centre's GPU does in the time in which it reads a byte: for those that the table lacks."""


@dataclass(frozen=True)
class GpuFacts:
    """Bytes per second of a GPU, from the makers' data sheets, one direction where there are two."""

    memory: float
    pcie: float
    peers: float | None
    """To the other GPUs of its node; None where they are on PCIe, or nobody knows."""


_GEN3, _GEN4, _GEN5 = 16e9, 32e9, 64e9

# Names as in the table of peaks (records/metrics.py), more particular ones first. NVLink: 300 GB/s both ways on V100, 600 on A100,
# 900 on H100 and H200, 1800 on B200, whose 8 TB/s are an eighth of what the DGX B200 data sheet says of eight. AMD's bridges
# depend on the server, so theirs are not taken for granted.
_FACTS: tuple[tuple[str, GpuFacts], ...] = (
    ("V100S", GpuFacts(1134e9, _GEN3, None)),
    ("V100 PCIE", GpuFacts(900e9, _GEN3, None)),
    ("V100", GpuFacts(900e9, _GEN3, 150e9)),
    ("T4", GpuFacts(320e9, _GEN3, None)),
    ("A100 PCIE", GpuFacts(1555e9, _GEN4, None)),
    ("A100 80GB", GpuFacts(2039e9, _GEN4, 300e9)),
    ("A100", GpuFacts(1555e9, _GEN4, 300e9)),
    ("A40", GpuFacts(696e9, _GEN4, None)),
    ("A30", GpuFacts(933e9, _GEN4, None)),
    ("A10", GpuFacts(600e9, _GEN4, None)),
    ("L40S", GpuFacts(864e9, _GEN4, None)),
    ("L40", GpuFacts(864e9, _GEN4, None)),
    ("L4", GpuFacts(300e9, _GEN4, None)),
    ("RTX 5090", GpuFacts(1792e9, _GEN5, None)),
    ("RTX 4090", GpuFacts(1008e9, _GEN4, None)),
    ("RTX 3090", GpuFacts(936e9, _GEN4, None)),
    ("H100 PCIE", GpuFacts(2000e9, _GEN5, None)),
    ("H100 NVL", GpuFacts(3900e9, _GEN5, None)),
    ("H100", GpuFacts(3350e9, _GEN5, 450e9)),
    ("H200 NVL", GpuFacts(4800e9, _GEN5, None)),
    ("H200", GpuFacts(4800e9, _GEN5, 450e9)),
    ("GH200", GpuFacts(4000e9, 450e9, 450e9)),
    ("B200", GpuFacts(8000e9, _GEN5, 900e9)),
    ("MI100", GpuFacts(1228.8e9, _GEN4, None)),
    ("MI210", GpuFacts(1638.4e9, _GEN4, None)),
    ("MI250X", GpuFacts(1638.4e9, _GEN4, None)),
    ("MI250", GpuFacts(1638.4e9, _GEN4, None)),
    ("MI300X", GpuFacts(5300e9, _GEN5, 448e9)),
    ("MI300A", GpuFacts(5300e9, _GEN5, 384e9)),
)


def gpu_facts(model: str) -> GpuFacts | None:
    """What the maker says of the GPU of that name, a driver's or a profile's; None where it is in no table here.

    >>> gpu_facts("NVIDIA H200").memory
    4800000000000.0
    """
    words = _words(model)
    return next((facts for name, facts in _FACTS if set(name.split()) <= words), None)


def gpu_kind(model: str) -> str | None:
    """The table's name of the GPU: what two drivers call by two names is one."""
    words = _words(model)
    return next((name for name, _ in _FACTS if set(name.split()) <= words), None)


def _words(model: str) -> set[str]:
    return set(re.split(r"[^A-Z0-9]+", model.upper()))


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The constants of a machine that are fitted, all positive. What a program does is no matter of the machine (`Program`)."""

    matmul: float
    """Part of the peak that large products reach."""
    memory: float
    """Part of the device's memory bandwidth that is reached."""
    launch_s: float
    """Time in which Python asks for one operation of the GPU."""
    link: float
    """Part of the bandwidth between GPUs that collectives reach."""
    host_memory: float
    """Bytes per second that an optimizer on the host reaches, all ranks of a node together."""
    between_nodes: float
    """Bytes per second of a node to the others, one direction."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The constants of the programs, of one release of each: how many operations a layer is, how many bytes a number moves."""

    recompute_launches: float
    """Operations of a layer's second forward pass."""
    adapter_launches: float
    """Operations that an adapter of one linear layer adds, forward and backward."""
    quantized_launches: float
    """Operations that one quantized linear layer adds in a pass."""
    deepspeed_launches: float
    """Operations that DeepSpeed's hooks add to a layer whose weights train, or whose adapters do."""
    stage_launches: float
    """The same for ZeRO-1 and ZeRO-2."""
    gather_launches: float
    """What ZeRO-3 adds to a layer in a forward and backward pass, in operations."""
    peer_launches: float
    """What it adds besides where there is somebody to gather from."""
    fsdp_launches: float
    """The same of FSDP2."""
    step_launches: float
    """Operations of a step besides the layers' and the optimizer's."""
    activation_passes: float
    """How often the elements of the activations move, of those that are counted."""
    compiled_passes: float
    """The same where what lies between products is compiled."""
    adapter_passes: float
    """How often the input and the output of a layer with an adapter move for its sake."""
    logit_bytes: float
    """Bytes that move for one logit, loss and gradient included."""
    unpack_bytes: float
    """Bytes that move for one weight of a quantized layer in a pass."""
    optimizer_bytes: float
    """Bytes that move for a number in a step of AdamW on the device, clipping and conversion included."""
    fused_optimizer_bytes: float
    """The same where it is one kernel."""
    packed_optimizer_bytes: float
    """The same with moments of 8 bits."""
    host_optimizer_bytes: float
    """The same on the host."""
    transfer_bytes: float
    """Bytes that cross PCIe for a number of an optimizer on the host."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a step of a plan is reckoned with."""

    peak: float
    """FLOP per second of one GPU at the plan's precision; in 16 bits where linear layers multiply in fp8."""
    gpu: GpuFacts
    fitted: Fitted
    program: Program


def guessed_facts(peak: float) -> GpuFacts:
    """For a GPU that no table has: memory in proportion to its products, PCIe of the last generation but one."""
    return GpuFacts(peak / PER_BANDWIDTH, _GEN4, None)
