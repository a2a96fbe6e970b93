"""FSDP2 as its authors advise: fp32 shares, bf16 in between, compiled layers, eight a unit, kept from forward to backward.

torchrun --standalone --nproc-per-node 2 benchmarks/peers/fsdp2_by_hand.py --model-config llama.json
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from common import llama_config, own_device, read_arguments, tell, timed

LAYERS = 8


def main() -> None:
    arguments = read_arguments(__doc__, "--eager", "--four-micro-batches")
    device = own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(arguments.seed)
    model = split(arguments, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=device.type == "cuda" or None)
    shape = (arguments.micro_batch_size, arguments.sequence_length)
    tokens = torch.randint(0, model.config.vocab_size, shape, device=device)

    micro_batches = 4 if arguments.four_micro_batches else 1

    def step() -> torch.Tensor:
        for number in range(micro_batches):
            model.set_requires_gradient_sync(number == micro_batches - 1)
            loss: torch.Tensor = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            (loss / micro_batches).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    tell(timed(step, device, arguments.steps, arguments.warmup_steps))
    dist.destroy_process_group()


def split(arguments: Any, device: torch.device) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        config = llama_config(arguments.model_config)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    how = {
        "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        "reshard_after_forward": False,
    }
    layers = list(model.model.layers)
    for begin in range(0, len(layers), LAYERS):
        fully_shard(layers[begin : begin + LAYERS], **how)
    if device.type == "cuda" and not arguments.eager:
        for layer in layers:
            layer.compile()
    fully_shard(model, **how)
    model.to_empty(device=device)
    begin_values(model, config, device)
    model.train()
    return model


def begin_values(model: Any, config: Any, device: torch.device) -> None:
    """Random weights, and the buffers of the rotary positions, which no initialisation makes on the meta device."""
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.02) if parameter.dim() > 1 else parameter.fill_(1.0)
    rotary = type(model.model.rotary_emb)(config, device=device)
    model.model.rotary_emb = rotary


if __name__ == "__main__":
    main()
