"""Which keys a DeepSpeed config may hold. Standard library only.

DeepSpeed ignores an unknown top-level key without a word, so a typo would change nothing; the names are checked here.
Read from DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/config.py); a test holds the lists against the installed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.planning.deepspeed_limits import check_limits
from hpc_llm.planning.deepspeed_monitors import MONITORS
from hpc_llm.planning.deepspeed_values import check_together, check_values

TOP_LEVEL = frozenset(
    """activation_checkpointing aio amp autotuning bf16 bfloat16 checkpoint comet comms_logger communication_data_type
    compile compression_training csv_monitor curriculum_learning data_efficiency data_types dataloader_drop_last
    datastates_ckpt disable_allgather disable_python_gc dump_state eigenvalue elasticity expert_parallel
    flops_profiler fp16 gradient_accumulation_steps gradient_allreduce_op gradient_clipping
    gradient_predivide_factor graph_harvesting hybrid_engine log_level managed_gradient_accumulation
    memory_breakdown nebula optimizer pipeline prescale_gradients progressive_layer_drop quantize_training
    scheduler seq_parallel_communication_data_type sparse_attention sparse_gradients steps_per_print
    tensor_parallel tensorboard timers torch_autocast train_batch_size train_micro_batch_size_per_gpu
    use_data_before_expert_parallelism vocabulary_size wall_clock_breakdown wandb weight_quantization
    zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization""".split()
)
"""Some are of features that today's DeepSpeed has given up and refuses; the one on a cluster may be older and take them."""

ZERO = frozenset(
    """stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce
    allgather_partitions allgather_bucket_size overlap_comm compute_grad_norm load_from_fp32_weights
    elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size cpu_offload_param
    cpu_offload_use_pin_memory cpu_offload prefetch_bucket_size stage3_prefetch_bucket_size
    param_persistence_threshold stage3_param_persistence_threshold model_persistence_threshold
    stage3_model_persistence_threshold max_live_parameters stage3_max_live_parameters max_reuse_distance
    stage3_max_reuse_distance gather_16bit_weights_on_model_save stage3_gather_16bit_weights_on_model_save
    module_granularity_threshold stage3_module_granularity_threshold use_all_reduce_for_fetch_params
    stage3_use_all_reduce_for_fetch_params allgather_sequential stage3_allgather_sequential
    stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1 round_robin_gradients
    parameter_alignment zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights
    zero_quantized_gradients memory_efficient_linear pipeline_loading_checkpoint override_module_apply
    log_trace_cache_warnings enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module""".split()
)

COMPUTED = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Follow from the batch shape and the number of ranks; never typed in a method."""


BLOCKS = (
    "zero_optimization",
    "fp16",
    "bf16",
    "bfloat16",
    "optimizer",
    "scheduler",
    "activation_checkpointing",
    *MONITORS,
)
"""Top-level keys that hold keys of their own and that are read here or in the plan."""


def check_keys(config: Mapping[str, Any], where: str) -> None:
    """Raise a RequestError for the first key that is unknown, cannot hold its value, or would make the plan's numbers wrong."""
    check_limits(config, where)
    for key in config:
        if key not in TOP_LEVEL:
            raise RequestError(unknown_name("DeepSpeed key", str(key), TOP_LEVEL, where=where))
    for key in BLOCKS:
        if key in config and not isinstance(config[key], Mapping):
            raise RequestError(f"{where}, {key}: holds {config[key]!r}, keys of its own are needed.")
    zero = config.get("zero_optimization", {})
    for key in zero:
        if key not in ZERO:
            raise RequestError(unknown_name("DeepSpeed key", str(key), ZERO, where=f"{where}, zero_optimization"))
    stage = zero.get("stage", 0)
    if isinstance(stage, bool) or stage not in (0, 1, 2, 3):
        raise RequestError(f"{where}, zero_optimization: stage is {stage!r}. Valid: 0, 1, 2, 3.")
    check_values(config, where)
    check_together(config, where)
