"""What a step of a plan has to do, in numbers that hold on any machine: tokens, products, numbers that train, bytes to move.

Pure. Whoever knows a machine's rates makes seconds of it (`time_terms.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hpc_llm.estimating.case import Case
from hpc_llm.estimating.deepspeed import kept_back
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.planning.encoder_decoder import EncoderDecoder
from hpc_llm.planning.engines import offload_place, zero_stage
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import Architecture, Shape, architecture, layer_counts, num_parameters, shared_matrices
from hpc_llm.planning.optimizers import PURE_BF16, bitsandbytes_name
from hpc_llm.planning.recompute import spread

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, kw_only=True)
class Layers:
    """The layers of a model, as far as they cost time. Sizes are counts of elements."""

    number: int
    matrices: dict[str, tuple[int, int]]
    """The linear layers of one of them: width of input and of output."""
    hidden: int
    inner: int
    """Width of the MLP."""
    attention: int
    """Heads times their size."""
    vocabulary: int
    vectors: int
    """Norms and biases of one layer."""
    share: float = 1.0
    """Of the tokens of a sample, how many each layer sees: a T5 reads one half and writes the other."""

    @property
    def weights(self) -> int:
        """In the products of one layer."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def tensors(self) -> int:
        """Of the whole model: those of the layers, the embeddings and the last norm; a head of its own is one more, and not counted."""
        return self.number * (len(self.matrices) + self.vectors) + 2

    @property
    def head(self) -> int:
        """Weights of the output head."""
        return self.vocabulary * self.hidden


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one rank does in one optimizer step."""

    layers: Layers
    tokens: int
    """Of a micro batch."""
    length: int
    """Tokens of a sequence."""
    micro_batches: int
    width: int
    """Bytes of a number in products."""
    parameters: int
    """The model's own, of shared layers those of this rank."""
    trained: int
    """Numbers that train, on all ranks together."""
    trains_layers: bool
    """Whether the layers' own weights get gradients."""
    adapters: int
    """Linear layers with an adapter, of one layer."""
    adapter_weights: int
    """Of one layer."""
    quantized_bytes: float
    """Of a weight as it is packed, 0 where the weights are not."""
    recompute: float
    """Share of the layers whose forward pass is done once more."""
    has_fused_attention: bool
    engine: str
    cuda_graph: bool
    compiles: bool
    """Whether norm, MLP and rotary positions are few kernels, each for itself or with the whole layer."""
    compiles_layers: bool
    """Whether each layer is compiled as a whole."""
    overlaps: bool
    """Whether ranks exchange numbers beside the computation."""
    fused_optimizer: bool
    keeps_parameters: bool
    """Whether what was gathered for the forward pass stays for the backward pass."""
    layers_per_unit: int
    is_shared: bool
    """Whether ranks share each layer."""
    is_hybrid: bool
    """Whether what is split is split within each node alone."""
    sums_in: int
    """Bytes of a gradient as FSDP2 sums it over the ranks."""
    stage: int
    offloads_optimizer: bool
    offloads_parameters: bool
    kept_back: int
    """Of the numbers whose optimizer step this rank does, those that are stepped on the device though the optimizer is offloaded."""
    streamed_bytes: float
    """Of a number's states and gradient, that an engine which streams them by itself moves to the device and back; 0 else."""
    optimizer: str
    ranks: int
    ranks_per_node: int
    nodes: int
    fp8: bool = False
    """Whether the linear layers multiply in fp8."""

    @property
    def is_offloaded(self) -> bool:
        return self.offloads_optimizer or self.offloads_parameters

    @property
    def trained_here(self) -> int:
        """Numbers whose optimizer step this rank does."""
        if not self.stage:
            return self.trained
        return self.trained // (self.ranks // self.nodes if self.is_hybrid else self.ranks)

    @property
    def has_pure_bf16(self) -> bool:
        return self.optimizer in PURE_BF16

    @property
    def is_stepped_by_bitsandbytes(self) -> bool:
        return bitsandbytes_name(self.optimizer) is not None

    @property
    def has_8bit_states(self) -> bool:
        return "8bit" in self.optimizer.lower()


def work_of(plan: Plan) -> Work:
    """What the plan has to do in a step. Raises RequestError where the shape of its model cannot be seen from here."""
    shape = architecture(plan.model.name)
    layers = _shared(_layers(shape), plan.parallel.tensor)
    own = num_parameters(shape) - layers.number * (_layers(shape).weights - layers.weights)
    adapted = _adapted(plan, layers)
    per_layer = (plan.model.peft.r if plan.model.peft else 0) * sum(map(sum, adapted))
    return Work(
        layers=layers,
        tokens=plan.batch.micro_batch_size * plan.batch.sequence_length,
        length=plan.batch.sequence_length,
        micro_batches=plan.batch.gradient_accumulation_steps,
        width=_BYTES[plan.model.precision],
        parameters=own,
        trained=_trained(plan, own, layers, per_layer),
        trains_layers=plan.model.peft is None and plan.model.quantization is None,
        adapters=len(adapted),
        adapter_weights=per_layer,
        quantized_bytes=_packed(plan),
        recompute=_recomputed(plan, layer_counts(shape)),
        has_fused_attention=plan.model.attention != "eager",
        engine=plan.engine.name,
        cuda_graph=plan.engine.cuda_graph,
        fp8=plan.model.fp8,
        compiles=plan.engine.fused_layers or plan.engine.compiled_layers,
        overlaps=plan.engine.overlap,
        fused_optimizer=plan.engine.fused_optimizer,
        keeps_parameters=plan.engine.keeps_parameters,
        compiles_layers=plan.engine.compiled_layers,
        layers_per_unit=plan.engine.layers_per_unit,
        is_shared=plan.parallel.tensor > 1,
        is_hybrid=plan.engine.hybrid_sharding,
        sums_in=_BYTES[plan.engine.reduce_precision],
        stage=zero_stage(plan.engine.deepspeed),
        offloads_optimizer=offload_place(plan.engine.deepspeed, "optimizer") is not None,
        offloads_parameters=offload_place(plan.engine.deepspeed, "param") is not None,
        kept_back=_kept_back(plan),
        streamed_bytes=_streamed(plan),
        optimizer=plan.optimizer.type,
        ranks=plan.parallel.data,
        ranks_per_node=plan.parallel.tasks_per_node,
        nodes=plan.parallel.nodes,
    )


def _recomputed(plan: Plan, rows: Sequence[int]) -> float:
    return sum(len(spread(plan.model.recompute, layers)) for layers in rows) / sum(rows)


def _kept_back(plan: Plan) -> int:
    offload = (plan.engine.deepspeed.get("zero_optimization") or {}).get("offload_optimizer") or {}
    is_partial = offload.get("device") == "cpu" and offload.get("ratio", 1) < 1
    return kept_back(Case(plan, sizes_in(plan))) if is_partial else 0


def _streamed(plan: Plan) -> float:
    """Gradients leave once and come once for the step; states come and go."""
    engine, width = plan.engine, _BYTES[plan.model.precision]
    if engine.offloaded_step == "none":
        return 0.0
    moments = 4 if engine.moments_precision == "bf16" else 8
    copies = 4 if engine.offloaded_step == "host" else 4 - width
    weights = width if offload_place(engine.deepspeed, "param") else 0
    return 2.0 * (moments + copies + weights + width)


def _packed(plan: Plan) -> float:
    quantization = plan.model.quantization
    if quantization is None:
        return 0.0
    return 1.0 if quantization.kind == "int8" else 0.5 + 1 / 64


def _adapted(plan: Plan, layers: Layers) -> list[tuple[int, int]]:
    if plan.model.peft is None:
        return []
    wanted = plan.model.peft.target_modules
    names: Collection[str] = layers.matrices if isinstance(wanted, str) else wanted
    return [size for name, size in layers.matrices.items() if name in names]


def _trained(plan: Plan, parameters: int, layers: Layers, adapter_weights: int) -> int:
    if plan.model.peft is not None:
        return layers.number * adapter_weights
    if plan.model.quantization is not None:
        return parameters - layers.number * layers.weights
    return parameters


def _shared(layers: Layers, ranks: int) -> Layers:
    """What one of so many ranks that share each layer has to do in it; the sums that they tell each other are not counted."""
    if ranks == 1:
        return layers
    return replace(
        layers,
        matrices=shared_matrices(layers.matrices, ranks),
        inner=layers.inner // ranks,
        attention=layers.attention // ranks,
    )


def _layers(shape: Shape) -> Layers:
    return _encoder_decoder(shape) if isinstance(shape, EncoderDecoder) else _decoder(shape)


def _decoder(shape: Architecture) -> Layers:
    width, inner, pairs = shape.hidden_size, shape.intermediate_size, shape.num_key_value_heads * shape.head_dim
    attention = {"q_proj": (width, width), "k_proj": (width, pairs), "v_proj": (width, pairs), "o_proj": (width, width)}
    return Layers(
        number=shape.num_hidden_layers,
        matrices=attention | {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)},
        hidden=width,
        inner=inner,
        attention=width,
        vocabulary=shape.vocab_size,
        vectors=2 + 3 * shape.qkv_bias,
    )


def _encoder_decoder(shape: EncoderDecoder) -> Layers:
    """Layers of the encoder and of the decoder as one kind: half of the second one's attention is counted to each of them."""
    width, inner = shape.hidden_size, shape.intermediate_size
    heads = shape.num_attention_heads * shape.head_dim
    both = shape.num_hidden_layers + shape.num_decoder_layers
    attentions = (shape.num_hidden_layers + 2 * shape.num_decoder_layers) / both
    scaled = round(heads * attentions)
    names = ("wi_0", "wi_1") if shape.is_gated else ("wi",)
    return Layers(
        number=both,
        matrices=dict.fromkeys(("q", "k", "v", "o"), (width, scaled))
        | dict.fromkeys(names, (width, inner))
        | {"wo": (inner, width)},
        hidden=width,
        inner=inner,
        attention=scaled,
        vocabulary=shape.vocab_size,
        vectors=2,
        share=0.5,
    )
