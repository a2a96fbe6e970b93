"""A 4-bit base whose embeddings, norms and head train, forward and backward as one CUDA graph, in a loop written for it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from common import llama_config, own_device, read_arguments, tell, timed

WARM_UP = 4


def main() -> None:
    arguments = read_arguments(__doc__, "--eager")
    device = own_device()
    torch.manual_seed(arguments.seed)
    model = packed(arguments, device)
    trains = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trains, lr=2e-4, fused=device.type == "cuda" or None)
    shape = (arguments.micro_batch_size, arguments.sequence_length)
    tokens = torch.randint(0, model.config.vocab_size, shape, device=device)

    def learn() -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        return loss.detach()

    def change() -> None:
        torch.nn.utils.clip_grad_norm_(trains, 1.0, foreach=True)
        optimizer.step()

    is_recorded = device.type == "cuda" and not arguments.eager
    replay = recorded(learn, change, optimizer) if is_recorded else None

    def step() -> torch.Tensor:
        if replay is None:
            optimizer.zero_grad(set_to_none=True)
        loss = learn() if replay is None else replay()
        change()
        return loss

    tell(timed(step, device, arguments.steps, arguments.warmup_steps))


def packed(arguments: Any, device: torch.device) -> Any:
    """The model with its linear layers in NF4 with double quantization, but for the head."""
    from bitsandbytes.nn import Linear4bit, Params4bit
    from transformers import AutoModelForCausalLM

    with device:
        config = llama_config(arguments.model_config)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    kind: dict[str, Any] = {"compress_statistics": True, "quant_type": "nf4"}
    for part in [part for layer in model.model.layers for part in (layer.self_attn, layer.mlp)]:
        for name, old in list(part.named_children()):
            if isinstance(old, torch.nn.Linear):
                shape = (old.in_features, old.out_features)
                new = Linear4bit(*shape, bias=False, compute_dtype=torch.bfloat16, device="meta", **kind)
                new.weight = Params4bit(old.weight.data, requires_grad=False, **kind).to(device)
                setattr(part, name, new)
    model.train()
    return model


def recorded(
    learn: Callable[[], torch.Tensor], change: Callable[[], None], optimizer: Any
) -> Callable[[], torch.Tensor]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            optimizer.zero_grad(set_to_none=True)
            learn()
            change()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = learn()

    def replay() -> torch.Tensor:
        graph.replay()  # it writes the gradients and adds to nothing
        return loss

    return replay


if __name__ == "__main__":
    main()
