"""Plain DeepSpeed as its examples and courses have it: fp16, recompute, no clipping; stage 3, all of it on the GPUs.

torchrun --standalone --nproc-per-node 2 benchmarks/peers/deepspeed_by_hand.py --model-config llama.json

--states-on-host is stage 2 with the optimizer's states there, --all-on-host stage 3 with those and the parameters there.
"""

from __future__ import annotations

from typing import Any

import torch
from common import llama_config, own_device, read_arguments, tell, timed

ON_HOST = {"device": "cpu", "pin_memory": True}
ADAMW = {"lr": 1e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
SHARED = {"overlap_comm": True, "contiguous_gradients": True}
STAGE_2_ON_HOST = {"stage": 2, "reduce_bucket_size": 2e8, "offload_optimizer": ON_HOST, **SHARED}
STAGE_3 = {
    "stage": 3, "reduce_bucket_size": 1e8, "allgather_bucket_size": 1e8, "reduce_scatter": True, "sub_group_size": 5e7,
    "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5, "round_robin_gradients": True, **SHARED,
}  # fmt: skip
STAGE_3_ON_HOST = {
    "stage": 3, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8, "reduce_scatter": True, "sub_group_size": 1e12,
    "offload_param": ON_HOST, "offload_optimizer": ON_HOST, **SHARED,
}  # fmt: skip


def main() -> None:
    import deepspeed
    from transformers import AutoModelForCausalLM

    arguments = read_arguments(__doc__, "--states-on-host", "--all-on-host")
    device = own_device()
    deepspeed.init_distributed(verbose=False)
    torch.manual_seed(arguments.seed)
    low = torch.float16 if device.type == "cuda" else torch.bfloat16
    with device:
        config = llama_config(arguments.model_config)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=low, attn_implementation="sdpa")
    model.gradient_checkpointing_enable()
    model.train()
    trained = list(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=config_of(arguments, low))
    shape = (arguments.micro_batch_size, arguments.sequence_length)
    tokens = torch.randint(0, config.vocab_size, shape, device=device)

    def step() -> torch.Tensor:
        loss: torch.Tensor = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        return loss.detach()

    tell(timed(step, device, arguments.steps, arguments.warmup_steps))


def config_of(arguments: Any, low: torch.dtype) -> dict[str, Any]:
    zero: dict[str, Any] = STAGE_3
    fp16: dict[str, Any] = {"enabled": True}
    if arguments.states_on_host:
        zero, fp16 = STAGE_2_ON_HOST, {"enabled": True, "loss_scale": 1024}
    if arguments.all_on_host:
        zero, fp16 = STAGE_3_ON_HOST, {"enabled": True, "loss_scale": 20}
    return {
        "train_micro_batch_size_per_gpu": arguments.micro_batch_size,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 10**9,
        "optimizer": {"type": "AdamW", "params": ADAMW},
        "zero_optimization": zero,
        **({"fp16": fp16} if low == torch.float16 else {"bf16": {"enabled": True}}),
    }


if __name__ == "__main__":
    main()
