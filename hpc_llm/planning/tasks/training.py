"""What all tasks that train a language model demand, heed and measure."""

from __future__ import annotations

from hpc_llm.planning import engines
from hpc_llm.planning.deepspeed_monitors import monitor_packages
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import bitsandbytes_name
from hpc_llm.planning.tasks.task import DATA_FIELDS


def packages(plan: Plan) -> tuple[str, ...]:
    """torch, transformers, and what the engine with its trackers, the quantization, the optimizer and the adapters are made of."""
    quantized = plan.model.quantization is not None
    wanted = {
        "bitsandbytes": quantized or bitsandbytes_name(plan.optimizer.type) is not None,
        "accelerate": quantized
        and plan.model.weights == "checkpoint",  # transformers loads quantized weights through it
        "peft": plan.model.peft is not None,
    }
    monitors = monitor_packages(plan.engine.deepspeed) if plan.engine.name == "deepspeed" else ()
    return (
        "torch",
        "transformers",
        *engines.find(plan.engine.name).packages,
        *monitors,
        *(name for name, is_wanted in wanted.items() if is_wanted),
    )


PLAN_FIELDS = (
    frozenset(
        """method letters model weights data_parallel micro_batch_size gradient_accumulation_steps global_batch_size
    sequence_length steps warmup_steps seed precision attention recompute fp8 quantization peft optimizer lr_ramp_steps
    lr_schedule eval_every save_every keep resume profile profile_kernels engine engine_module engine_fallback cuda_graph fused_dequantization fused_lora
    fused_loss fused_layers layers_per_unit keeps_parameters hybrid_sharding reduce_precision compiled_layers overlap fused_optimizer
    offloaded_step moments_precision
    loss_floor_nats deepspeed peak_flops""".split()
    )
    | DATA_FIELDS
)

RESULT_FIELDS = frozenset(
    """num_parameters trainable_parameters parameter_types data_parallel tensor_parallel micro_batch_size gradient_accumulation_steps global_batch_size
    sequence_length weights loss_floor_nats precision recompute engine fused warmup_steps measured_steps step_time_s_mean step_time_s_p50
    step_time_s_p90 step_times_s tokens_per_second tokens_per_second_per_gpu model_tflops_per_gpu peak_flops mfu
    loss_first loss_last skipped_steps flops_per_token held_bytes trained_tokens epoch_time_s eval_loss perplexity best_step
    """.split()
)
