"""Pretraining: a causal language model trained on text or synthetic tokens, every step measured."""

from __future__ import annotations

from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import bitsandbytes_name
from hpc_llm.planning.tasks.task import DATA_FIELDS, TaskKind


def packages(plan: Plan) -> tuple[str, ...]:
    """torch, transformers, and what the engine, the quantization, the optimizer and the adapters are made of."""
    quantized = plan.model.quantization is not None
    wanted = {
        "bitsandbytes": quantized or bitsandbytes_name(plan.optimizer.type) is not None,
        "accelerate": quantized
        and plan.model.weights == "checkpoint",  # transformers loads quantized weights through it
        "peft": plan.model.peft is not None,
    }
    return (
        "torch",
        "transformers",
        *engines.find(plan.engine.name).packages,
        *(name for name, is_wanted in wanted.items() if is_wanted),
    )


KIND = TaskKind(
    name="pretrain",
    worker="hpc_llm.worker.pretrain_llm",
    packages=packages,
    plan_fields=frozenset(
        """method letters model weights data_parallel micro_batch_size gradient_accumulation_steps global_batch_size
        sequence_length steps warmup_steps seed precision attention recompute quantization peft optimizer lr_ramp_steps
        engine engine_module engine_fallback data loss_floor_nats deepspeed peak_flops""".split()
    )
    | DATA_FIELDS,
    result_fields=frozenset(
        """num_parameters trainable_parameters data_parallel micro_batch_size gradient_accumulation_steps global_batch_size
        sequence_length weights loss_floor_nats precision engine warmup_steps measured_steps step_time_s_mean step_time_s_p50
        step_time_s_p90 step_times_s tokens_per_second tokens_per_second_per_gpu model_tflops_per_gpu peak_flops mfu
        loss_first loss_last skipped_steps flops_per_token held_bytes""".split()
    ),
)
