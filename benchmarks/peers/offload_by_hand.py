"""DeepSpeed with states on the host as its examples have it: fp16, recompute, no clipping; with --parameters those are there, too.

torchrun --standalone --nproc-per-node 2 benchmarks/peers/offload_by_hand.py --model-config llama.json
"""

from __future__ import annotations

from typing import Any

import torch
from common import llama_config, own_device, read_arguments, tell, timed

ON_HOST = {"device": "cpu", "pin_memory": True}
ADAMW = {"lr": 1e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
SHARED = {"overlap_comm": True, "contiguous_gradients": True, "offload_optimizer": ON_HOST}
STAGE_2 = {"stage": 2, "reduce_bucket_size": 2e8, **SHARED}
STAGE_3 = {
    "stage": 3, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8, "reduce_scatter": True, "sub_group_size": 1e12,
    "offload_param": ON_HOST, **SHARED,
}  # fmt: skip


def main() -> None:
    import deepspeed
    from transformers import AutoModelForCausalLM

    arguments = read_arguments(__doc__, "--parameters")
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
    fp16 = {"enabled": True, "loss_scale": 20 if arguments.parameters else 1024}
    return {
        "train_micro_batch_size_per_gpu": arguments.micro_batch_size,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 10**9,
        "optimizer": {"type": "AdamW", "params": ADAMW},
        "zero_optimization": STAGE_3 if arguments.parameters else STAGE_2,
        **({"fp16": fp16} if low == torch.float16 else {"bf16": {"enabled": True}}),
    }


if __name__ == "__main__":
    main()
