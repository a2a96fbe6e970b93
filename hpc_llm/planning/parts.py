"""The parts of a plan, one class a subject. Standard library only.

Sizes are counts, times are seconds, rates are per second. A field whose short name in `--set` and in tables is not its own
says so with `short`; short names are unique over all parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning.recompute import Share

Precision = Literal["bf16", "fp16", "fp32"]
"""Number format of weights and activations."""


def short(name: str, **more: Any) -> Any:
    """A field that `--set` and tables call `name`."""
    return field(metadata={"short": name}, **more)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What every task has to do; a task adds what is its own."""

    steps: int
    """Steps in all, warm-up included: of the optimizer where something is trained."""
    warmup_steps: int
    """First steps that are left out of the measurement."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class Training(Workload):
    """Optimizer steps on prepared data or on synthetic tokens."""

    lr_ramp_steps: int
    """First steps over which the learning rate rises in a straight line to the optimizer's; they may be measured."""
    lr_schedule: str = "constant"
    """How the learning rate goes on behind the ramp: one of schedule.SCHEDULES."""
    eval_every: int | None = None
    """Steps from one evaluation on held-out data to the next; 0: at the end alone; None: never, and nothing is held out."""
    data: list[str]
    """Sources as `corpus.sources` reads them; none means synthetic tokens."""
    loss_floor_nats: float | None
    """Mean loss that no model can go below on the data, nats a token; None where nobody knows it."""
    corpus: str | None = None
    """Folder of the prepared tokens of `data`."""
    caches: str | None = None
    """Where data are to be prepared."""
    packing: str | None = None
    """How samples fill the sequences, one of corpus.rows.PACKINGS; None for synthetic tokens."""
    too_long: str | None = None
    """What becomes of samples that are longer than a sequence, one of corpus.rows.TOO_LONG; None for synthetic tokens."""
    epochs: float | None = None
    """How often the steps see all of the data; None for synthetic tokens, which never come again."""
    columns: dict[str, str] = field(default_factory=dict)
    """Which fields of a row are text, or prompt and completion, or messages; empty where their names say it."""
    validation_fraction: float | None = None
    """Part of the data that is for validation; None: none of it, of PDF files a tenth."""
    train_samples: int | None = None
    """Most samples that are prepared for training."""
    validation_samples: int | None = None
    """Most samples that are prepared for validation."""
    save_every: int | None = None
    """Steps after which what is needed to go on is kept, again and again and at the end; None keeps nothing."""
    keep: int = 2
    """So many of the newest checkpoints stay."""
    resume: str | None = None
    """Folder of a run, or one checkpoint of it, that the training goes on from; None begins at the beginning."""
    profile: str | None = None
    """What looks into a few steps behind the measured ones: one of `planning.profilers.NAMES`; None: nothing does."""
    profile_kernels: int | None = None
    """So many kernels ncu looks into; None: `planning.profilers.KERNELS`."""


@dataclass(frozen=True, kw_only=True)
class Inference(Training):
    """Queries that a model answers, a batch of them a step. Nothing is trained, and the fields that say how are not heeded."""

    queries: int | None = None
    """Queries that are measured, over all ranks; those of the warm-up are some of them, answered once more."""
    split: str | None = None
    """Split of the prepared data whose samples are the queries; None for synthetic tokens."""
    prompt_tokens: int | None = None
    """Tokens of each prompt; None where the samples have prompts of their own."""
    new_tokens: int = 128
    """Most tokens that are generated for a query."""
    stop_at_end: bool | None = None
    """Whether an answer ends with the model's own end token; if not, each has `new_tokens` tokens."""
    temperature: float = 0.0
    """What the scores are divided by before a token is drawn; 0 takes the likeliest one."""
    top_p: float = 1.0
    """A token is drawn among the likeliest ones that together have this probability."""
    keep_outputs: bool = False
    """Whether what was generated is written to outputs.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Tuning(Training):
    """A search for the micro batch: many short trainings, whose steps are those of a training here."""

    lengths: list[int] = field(default_factory=list)
    """Sequence lengths, each with a search of its own; empty: that of the batch alone."""
    kept_global_batch: int | None = None
    """Sequences of an optimizer step that each try keeps by accumulation; None: a step is one micro batch of each rank."""
    margin: float = 0.05
    """Part of the memory of GPU and node that must be left for a size to count as one that fits."""
    confirm_steps: int = 50
    """Steps of the longer training that confirms what was found."""
    try_time_s: int = 600
    """Seconds after which a try counts as one that hangs; a longer one has as much more as it has more steps."""
    most_tries: int = 40
    """After so many the search ends as it stands."""


def short_name(one: Field[Any]) -> str:
    """What `--set` and tables call a field."""
    name: str = one.metadata.get("short", one.name)
    return name


def own_fields(workload: type[Training]) -> list[Field[Any]]:
    """The fields that a task's workload has besides those of all training."""
    common = {one.name for one in fields(Training)}
    return [one for one in fields(workload) if one.name not in common]


def default_of(one: Field[Any]) -> Any:
    """The default of a field. Raises TypeError where it has none."""
    if one.default_factory is not MISSING:
        return one.default_factory()
    if one.default is MISSING:
        raise TypeError(f"the field {one.name} has no default")
    return one.default


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """bitsandbytes storage of the frozen linear layers."""

    kind: str
    """`nf4`, `fp4` or `int8`."""
    double_quant: bool = False
    """Whether the quantization constants are quantized too (4-bit kinds)."""
    compute_dtype: str | None = None
    """Precision in which the layers multiply."""


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters on frozen weights."""

    kind: str = "lora"
    r: int
    """Rank of the update."""
    alpha: int
    dropout: float
    target_modules: str | list[str]
    """Names of layers, or `all-linear`."""


@dataclass(frozen=True, kw_only=True)
class ModelSetup:
    """The model and how its weights and activations are held."""

    name: str = short("model")
    """Preset name or checkpoint folder."""
    weights: str
    """What the run starts from: `random`, or `checkpoint`, the weights in the folder `name`."""
    precision: Precision
    attention: str
    """`sdpa`, `eager` or `flash_attention_2`."""
    recompute: Share
    """Layers whose activations are recomputed (gradient checkpointing): all, none, or a share of them."""
    quantization: Quantization | None
    peft: Lora | None
    fp8: bool = False
    """Whether the linear layers of the decoder multiply in fp8; weights and activations are in `precision` all the same."""

    @property
    def multiplies_in(self) -> str:
        """The precision by whose peak a GPU is judged."""
        return "fp8" if self.fp8 else self.precision


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """How many tokens one optimizer step sees."""

    micro_batch_size: int
    """Sequences per rank and forward pass."""
    gradient_accumulation_steps: int
    global_batch_size: int
    """Sequences per optimizer step over all groups of ranks."""
    sequence_length: int
    """Tokens per sequence."""


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Where the ranks are, and what each group of them shares."""

    nodes: int
    gpus_per_node: int
    """0 means the CPU."""
    tasks_per_node: int
    """Ranks per node."""
    world_size: int
    data: int = short("data_parallel")
    """Groups of ranks that each train on samples of their own."""
    tensor: int = field(default=1, metadata={"short": "tensor_parallel"})
    """Ranks that share each layer."""
    pipeline: int = field(default=1, metadata={"short": "pipeline_parallel"})
    """Groups of ranks among which the layers are divided."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSetup:
    """The optimizer of the trained weights."""

    type: str
    """One of optimizers.NAMES."""
    lr: float = 1e-3
    """Peak learning rate; PyTorch's and DeepSpeed's own where a file of the homework names none."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EngineSetup:
    """What carries out the steps."""

    name: str = short("engine")
    """One of `planning.engines`."""
    module: str | None = short("engine_module", default=None)
    """Of an engine of another package: the module that the worker finds it in."""
    fallback: str | None = short("engine_fallback")
    """What does where a node's software cannot run that one; None means that the run fails then."""
    deepspeed: dict[str, Any]
    """The complete DeepSpeed config."""
    cuda_graph: bool = False
    """Whether forward and backward are recorded once and sent to the GPU as one."""
    fused_dequantization: bool = False
    """Whether a weight that is packed in 4 bits is unpacked in one pass, its scales included."""
    fused_lora: bool = False
    """Whether a layer and its adapter are computed as one."""
    fused_loss: bool = False
    """Whether the loss is computed with the output head, without all logits at once."""
    fused_layers: bool = False
    """Whether norm, gated MLP and rotary positions are compiled into one kernel each."""
    layers_per_unit: int = 1
    """Decoder layers that are split, gathered and given up together, where the engine splits them itself."""
    keeps_parameters: bool = False
    """Whether what was gathered for the forward pass stays for the backward pass."""
    hybrid_sharding: bool = False
    """Whether what is split is split among the ranks of a node, so that each node holds all of it, where the engine splits it itself."""
    reduce_precision: str = "fp32"
    """In which precision gradients are summed over the ranks, by the engine that splits layers itself: `fp32` or `bf16`."""
    compiled_layers: bool = False
    """Whether each decoder layer is compiled."""
    overlap: bool = False
    """Whether ranks exchange gradients and parameters beside the computation, where the engine can do either."""
    fused_optimizer: bool = False
    """Whether clipping, AdamW and rounding are compiled into one kernel."""
    offloaded_step: str = "none"
    """Where an engine that keeps states on the host by itself steps them: `device`, through which they are streamed, or `host`."""
    moments_precision: str = "fp32"
    """Of moments that such an engine keeps on the host: `fp32`, or `bf16`, rounded at random."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What is asked of the scheduler, and what the job finds in its environment."""

    scheduler: str
    """Its name: `slurm`, `local`, or that of one from elsewhere."""
    launcher: str
    """Name of a launcher: `srun`, `torchrun`, `mpirun`, `python`, or one of another package."""
    partition: str | None
    account: str | None
    time_s: int | None
    """Wall time limit."""
    name: str = short("job_name")
    cpus_per_task: int | None
    """CPU cores per rank."""
    mem: str | None
    """Value for --mem where the site wants it."""
    sbatch: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of the job that the request adds or replaces; never a secret."""
    env_file: str | None = None
    """File of the user's own variables, which the job reads: only its path is kept."""


@dataclass(frozen=True, kw_only=True)
class ExpectedGpu:
    """The GPU that the ranks should find."""

    model: str | None = short("expected_gpu")
    peak_flops: float | None
    """Dense peak of one GPU at the planned precision, FLOP/s."""
    network: str | None = short("expected_network", default=None)
    """What NCCL is to use between nodes, by its own name; None: whatever it finds."""


def read_part(kind: Any, values: Any, kinds: Mapping[str, Any] | None = None) -> Any:
    """An object of the dataclass `kind` from a mapping, and so for its parts; `kinds` are those of some fields."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} is {values!r} and no mapping")
    parts = _parts(kind) | dict(kinds or {})
    for key in values:
        if key not in parts:
            raise RequestError(unknown_name("plan field", key, parts, next_step="Was it written by a newer version?"))
    read = {
        name: read_part(part, values[name]) for name, part in parts.items() if part and values.get(name) is not None
    }
    return kind(**{**values, **read})


@cache
def _parts(kind: Any) -> dict[str, Any]:
    """The dataclass that each field of another one holds, or None."""
    types = get_type_hints(kind)
    kinds = {one.name: (types[one.name], *get_args(types[one.name])) for one in fields(kind)}
    return {name: next(filter(is_dataclass, several), None) for name, several in kinds.items()}
