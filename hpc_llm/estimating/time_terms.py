"""The seconds of a step, term by term, from what is to be done and how fast a machine is. Pure.

The GPU computes while Python asks for what comes next: the slower of the two decides. Where all ranks wait for each other, or the
host's memory does the work, that is added.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from hpc_llm.estimating.rates import Rates
from hpc_llm.estimating.time_work import Work

_LAYER_LAUNCHES = 100.0
"""Operations of a layer of the Llama family in forward and backward, as profilers count them; what a launch takes is fitted to it."""
_MORE_OF_T5 = 2.0
"""How many times as many one of a T5 is: its attention adds a bias, decoders have two of it. By one run, flan-t5-large with 4 x 512 on an H100."""
_EAGER_LAUNCHES = 45.0
"""What eager attention adds to a layer: its mask, a softmax in fp32, keys and values repeated. By two runs on an H100 (results/settings.csv)."""
_SHARED_LAUNCHES = 75.0
"""What a layer that ranks share adds: sums of its halves, and no part of it fused. By four runs on two H200 (results/two_gpus.csv)."""
_INT8_CALLS = 1.7
"""How many times as many operations as a matrix in 4 bits one in int8 takes, which looks for outliers. By five runs, of the same file."""
_SMOOTHNESS = 4.0
"""How sharply the slower of GPU and host takes over: the two alternate within a step, and neither hides all of the other."""
_CALLED, _CALLED_OF_ADAPTER = 13, 4
"""Modules of a layer that are called, and those that an adapter adds (its base, its dropout, A and B): ZeRO-3 fetches and gives up around each."""
FP8_SPEED = 2.0
"""How often the products of 16 bits those of fp8 are made in the same time."""
_ROUNDED, _WEIGHT_ROUNDED = 5.3, 16.5
"""Bytes that move to round a number that enters or leaves a linear layer, and a weight, in forward and backward: of a layer of a 7B on an H100 by
`benchmarks/fp8_layers.py`, at 4096 and 16384 places."""
_NOT_PINNED = 1.4e9
"""Bytes a second from a device into memory of the host that is asked for at each copy: what DeepSpeed steps on the device goes to
the host's 16-bit copy in fp32 that way. Of eight runs on an H100; seven later ones came within 0.81 and 1.02 (RESULTS.md)."""
_BITSANDBYTES_S, _BITSANDBYTES_TENSOR_S = 18.4e-12, 79e-6
"""What an AdamW of bitsandbytes takes for a number and for a tensor of a whole model, beside what it takes for the embeddings of a quantized
one, which the constants are of: it is called for each tensor, and reckons in fp32. By five runs on H100 and H200 with states of 8 bits, within
5 % of each; fifteen later ones of 8 bits came within 0.80 and 1.33, one of 32 at 0.93 (RESULTS.md)."""
_COMPILED_CALL_S = 1.1e-4
"""Of AdamWBF16's, by two runs on H200 of models with biases, whose tensors are many and small."""
_BY_TENSOR = ("plain", "fsdp2")
"""Engines whose optimizer steps the model's own tensors: the others join them."""
_OLDER_BUS, _OLDER_HOST = 32e9, 0.6
"""Hosts of PCIe up to generation 4 have DDR4, whose channels carry that part of what DDR5's do."""


@dataclass(frozen=True, kw_only=True)
class StepTerms:
    """Seconds of one optimizer step, by what takes them."""

    products: float
    """Matrix products and attention, recomputation included."""
    traffic: float
    """Activations, weights and logits through the device's memory."""
    unpacking: float
    """Quantized weights, made numbers again in each pass."""
    launches: float
    """The host, asking for operations: hides behind the GPU's work, or the other way round."""
    communication: float
    optimizer: float
    """On the device."""
    host_optimizer: float
    transfers: float
    """Between host and device."""

    @property
    def device(self) -> float:
        """What the GPU computes in forward and backward."""
        return self.products + self.traffic + self.unpacking

    @property
    def passes(self) -> float:
        """Forward and backward: the slower of the GPU and the host that feeds it."""
        slower, faster = max(self.device, self.launches), min(self.device, self.launches)
        return float(slower * (1 + (faster / slower) ** _SMOOTHNESS) ** (1 / _SMOOTHNESS)) if slower else 0.0

    @property
    def total(self) -> float:
        return self.passes + self.communication + self.optimizer + self.host_optimizer + self.transfers

    def by_name(self) -> dict[str, float]:
        """Seconds by term; those that hide behind each other add up to more than the step."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def step_terms(work: Work, rates: Rates) -> StepTerms:
    """All terms of a step."""
    times = work.micro_batches
    bandwidth = rates.gpu.memory * rates.fitted.memory
    return StepTerms(
        products=times * (flops(work) - _saved_by_fp8(work)) / (rates.peak * rates.fitted.matmul),
        traffic=times * (traffic_bytes(work, rates) + rounded_bytes(work)) / bandwidth,
        unpacking=times * unpacked_bytes(work, rates) / bandwidth,
        launches=(times * launches(work, rates) + _launches_of_step(work, rates)) * rates.fitted.launch_s,
        communication=communication_s(work, rates),
        optimizer=max(optimizer_bytes(work, rates) / bandwidth + _bitsandbytes_s(work), _asked_for_s(work)),
        host_optimizer=_host_optimizer_s(work, rates),
        transfers=transferred_bytes(work, rates) / rates.gpu.pcie + 4 * work.kept_back / _NOT_PINNED,
    )


def flops(work: Work) -> float:
    """Of a micro batch: a product of each weight forward, one for the gradient of its input, one for its own where it trains."""
    through_head = 2 * work.tokens * work.layers.share * work.layers.head
    head_trained = 0.0 if work.adapters else through_head
    return _linear_flops(work) + 2 * through_head + head_trained + _attention_flops(work)


def _linear_flops(work: Work) -> float:
    """Those of the linear layers within layers."""
    layers = work.layers
    of_a_weight = 2 * work.tokens * layers.share * layers.number
    trained = layers.weights if work.trains_layers else work.adapter_weights
    return of_a_weight * ((2 + work.recompute) * (layers.weights + work.adapter_weights) + trained)


def _saved_by_fp8(work: Work) -> float:
    return _linear_flops(work) * (1 - 1 / FP8_SPEED) if work.fp8 else 0.0


def rounded_bytes(work: Work) -> float:
    """Of a micro batch: what enters a product in fp8 is read for its scale, and read and written to be rounded."""
    if not work.fp8:
        return 0.0
    layers = work.layers
    numbers = work.tokens * layers.share * sum(map(sum, layers.matrices.values()))
    return layers.number * (3 + work.recompute) / 3 * (_ROUNDED * numbers + _WEIGHT_ROUNDED * layers.weights)


def _attention_flops(work: Work) -> float:
    """Scores and their weighted sum: the lower half alone where a fused kernel does it, whose backward pass does them once more."""
    layers = work.layers
    forward = 4 * work.tokens * layers.share * work.length * layers.share * layers.attention * layers.number
    if work.has_fused_attention:
        forward /= 2
    backward = 2.5 if work.has_fused_attention else 2.0
    return forward * (1 + backward + work.recompute)


def traffic_bytes(work: Work, rates: Rates) -> float:
    """Of a micro batch: activations, the weights once a pass and their gradients, logits."""
    layers, program = work.layers, rates.program
    tokens = work.tokens * layers.share
    passes = 3 + work.recompute  # a backward pass moves twice what a forward one does
    elements = 10 * layers.hidden + 4 * layers.inner + 4 * layers.attention
    own = (program.compiled_passes if work.compiles else program.activation_passes) * elements * passes
    adapters = program.adapter_passes * _adapter_elements(work) * passes
    weights = 0 if work.quantized_bytes else (passes - 1) * layers.weights + work.trains_layers * layers.weights
    return (
        layers.number * work.width * (tokens * (own + adapters) + weights)
        + tokens * layers.vocabulary * program.logit_bytes
        + 3 * work.width * layers.head
    )


def _adapter_elements(work: Work) -> float:
    sizes = work.layers.matrices.values()
    return work.adapters / len(sizes) * sum(map(sum, sizes)) if work.adapters else 0.0


def unpacked_bytes(work: Work, rates: Rates) -> float:
    """Of a micro batch: packed weights are read, and written as numbers, in each pass."""
    if not work.quantized_bytes:
        return 0.0
    passes = 2 + work.recompute
    return passes * work.layers.number * work.layers.weights * rates.program.unpack_bytes


def launches(work: Work, rates: Rates) -> float:
    """Operations that Python asks for in a micro batch, and what the engine adds, counted in them."""
    if work.cuda_graph:
        return 0.0  # one call sends them all
    program = rates.program
    again = 1 + 0.5 * work.recompute  # a pass forward is half of one backward
    own = _LAYER_LAUNCHES * (1.0 if work.layers.share == 1.0 else _MORE_OF_T5)
    layer = own + work.recompute * program.recompute_launches
    if not work.compiles_layers:  # else an adapter is a part of its layer
        layer += again * work.adapters * program.adapter_launches
    if work.is_shared:
        layer += again * _SHARED_LAUNCHES
    if not work.has_fused_attention:
        layer += again * _EAGER_LAUNCHES
    if work.quantized_bytes:
        calls = program.quantized_launches * (_INT8_CALLS if work.quantized_bytes == 1.0 else 1.0)
        layer += (2 + work.recompute) * len(work.layers.matrices) * calls
    return work.layers.number * (layer + _engine_launches(work, rates))


def _launches_of_step(work: Work, rates: Rates) -> float:
    """Besides the layers'. A recorded graph of small operations takes about as long for each micro batch, by two runs on an H200."""
    return rates.program.step_launches * (work.micro_batches if work.cuda_graph else 1)


def _engine_launches(work: Work, rates: Rates) -> float:
    """What an engine adds to a layer, in operations: the one place where engines differ in it."""
    program = rates.program
    again = 1 + 0.5 * work.recompute
    peers = program.peer_launches if work.ranks > 1 else 0.0
    if work.engine == "fsdp2":
        return program.fsdp_launches * again / work.layers_per_unit  # what it calls, it calls for a unit
    if work.engine in ("plain", "flat"):
        return 0.0  # what flat adds is a call for each unit
    if work.stage == 3:
        modules = 1 + work.adapters * _CALLED_OF_ADAPTER / _CALLED
        return (program.gather_launches + peers) * again * modules
    return program.deepspeed_launches + (program.stage_launches if work.stage else 0.0)


def optimizer_bytes(work: Work, rates: Rates) -> float:
    """Through the device's memory, for the numbers of this rank."""
    program = rates.program
    is_one_kernel = work.fused_optimizer or work.has_pure_bf16
    each = program.fused_optimizer_bytes if is_one_kernel else program.optimizer_bytes
    stepped = work.kept_back if work.offloads_optimizer else work.trained_here
    return stepped * (program.packed_optimizer_bytes if work.has_8bit_states else each)


def _bitsandbytes_s(work: Work) -> float:
    """Of its AdamW on a whole model: what is no traffic, of the GPU's own arithmetic and of the host that calls it."""
    if not (work.is_stepped_by_bitsandbytes and work.trains_layers):
        return 0.0
    called = _BITSANDBYTES_TENSOR_S * work.layers.tensors if work.engine in _BY_TENSOR else 0.0
    return _BITSANDBYTES_S * work.trained_here + called


def _asked_for_s(work: Work) -> float:
    """What the host needs to ask for the change of each tensor, where each is a call of a compiled kernel."""
    is_called = work.has_pure_bf16 and work.trains_layers and work.engine in _BY_TENSOR
    return _COMPILED_CALL_S * work.layers.tensors if is_called else 0.0


def communication_s(work: Work, rates: Rates) -> float:
    """Collectives of a step over the slowest link between the ranks: those that nothing hides."""
    if work.ranks == 1:
        return 0.0
    if work.is_hybrid:
        return _within_and_between_s(work, rates)
    part = (work.ranks - 1) / work.ranks
    return (collective_bytes(work) - _hidden_bytes(work)) * part / link_bandwidth(work, rates)


def _within_and_between_s(work: Work, rates: Rates) -> float:
    """All within a node, and then the nodes sum what each rank of one has for itself."""
    inside = (rates.gpu.peers or rates.gpu.pcie) * rates.fitted.link
    peers = work.ranks // work.nodes
    within = collective_bytes(work) * (peers - 1) / peers / inside
    summed = 2 * work.micro_batches * work.trained * _summed_width(work) * (work.nodes - 1) / work.nodes
    return within + summed / link_bandwidth(work, rates)


def _hidden_bytes(work: Work) -> float:
    """Flat's gathers go on while the optimizer steps the next unit; both take about as long."""
    return work.trained * work.width if work.engine == "flat" and work.overlaps else 0.0


def collective_bytes(work: Work) -> float:
    """What a rank sends in a step, each number counted once for a gather or a scatter, twice for an all-reduce."""
    gradients = work.trained * _summed_width(work)
    if work.engine == "flat":  # parameters are gathered when they were stepped, and stay
        return work.micro_batches * gradients + work.trained * work.width
    if work.stage == 3:
        gathers = (1 if work.keeps_parameters else 2 + work.recompute) * work.micro_batches
        frozen = work.parameters if not work.quantized_bytes else work.parameters * work.quantized_bytes / work.width
        return gathers * frozen * work.width + work.micro_batches * gradients
    if work.stage:
        scatters = work.micro_batches if work.stage == 2 else 1
        return scatters * gradients + work.trained * work.width
    return 2 * gradients


def _summed_width(work: Work) -> int:
    """Bytes of a gradient between ranks."""
    if work.engine == "fsdp2":
        return work.sums_in
    return 4 if work.engine == "plain" and not work.has_pure_bf16 else work.width


def link_bandwidth(work: Work, rates: Rates) -> float:
    """Bytes per second of a rank. A ring through all ranks crosses the border of each node once, and has its whole link there."""
    inside = (rates.gpu.peers or rates.gpu.pcie) * rates.fitted.link
    return inside if work.nodes == 1 else min(inside, rates.fitted.between_nodes)


def _host_optimizer_s(work: Work, rates: Rates) -> float:
    """The ranks of a node share its memory."""
    if not work.offloads_optimizer:
        return 0.0
    on_node = (work.trained_here - work.kept_back) * work.ranks_per_node
    memory = rates.fitted.host_memory * (1.0 if rates.gpu.pcie > _OLDER_BUS else _OLDER_HOST)
    if work.streamed_bytes:  # both directions of the link are used at a time
        return max(on_node * work.streamed_bytes / memory, work.trained_here * work.streamed_bytes / 2 / rates.gpu.pcie)
    return on_node * rates.program.host_optimizer_bytes / memory


def transferred_bytes(work: Work, rates: Rates) -> float:
    """Over a rank's PCIe: gradients to the host and numbers back, and where the parameters lie there, these in each pass."""
    is_counted = bool(work.streamed_bytes)  # with the optimizer on the host
    moved = work.trained_here * rates.program.transfer_bytes if work.offloads_optimizer and not is_counted else 0.0
    if work.offloads_parameters:
        passes = 2 + work.recompute
        moved += passes * work.micro_batches * work.width * work.parameters / work.ranks
    return moved
