"""What a user writes without hpc-llm: a Hugging Face Llama, deepspeed.initialize and a bare loop.

It shares no code with hpc_llm, so that both can be compared:

    python benchmarks/plain_deepspeed.py --model-config llama.json --deepspeed-config ds.json --steps 15 --warmup-steps 3

Timed is the train step after the warm-up, with the device synchronised once on each side. The last line of stdout is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    arguments = read_arguments()
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    import deepspeed
    import torch

    config = json.loads(arguments.deepspeed_config.read_text())
    deepspeed.init_distributed(verbose=False)
    torch.manual_seed(arguments.seed)
    keep_alive: list[Any] = []
    model = (quantized_model if arguments.nf4 else plain_model)(arguments, config, keep_alive)
    model.config.use_cache = False
    model.train()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = None
    if arguments.nf4:
        import bitsandbytes

        optimizer = bitsandbytes.optim.AdamW8bit(trainable, lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trainable, optimizer=optimizer, config=config)
    print(json.dumps(measure(engine, arguments, model.config.vocab_size)), flush=True)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-config", type=Path, required=True, help="JSON with the values of LlamaConfig")
    parser.add_argument("--deepspeed-config", type=Path, required=True)
    parser.add_argument("--nf4", action="store_true", help="4-bit base, AdamW8bit on what trains")
    parser.add_argument("--micro-batch-size", type=int, default=1)
    parser.add_argument("--sequence-length", type=int, default=350)
    parser.add_argument("--steps", type=int, default=15, help="all steps, warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def plain_model(arguments: argparse.Namespace, config: dict[str, Any], keep_alive: list[Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    shape = LlamaConfig(**json.loads(arguments.model_config.read_text()))
    if config.get("zero_optimization", {}).get("stage") == 3:
        from transformers.integrations import HfDeepSpeedConfig

        keep_alive.append(HfDeepSpeedConfig(config))  # from_config then splits the model as it is built
        return AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16, attn_implementation="sdpa")
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16, attn_implementation="sdpa")


def quantized_model(arguments: argparse.Namespace, config: dict[str, Any], keep_alive: list[Any]) -> Any:
    """Random weights saved as a checkpoint and loaded in 4 bits, which is how transformers quantizes."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    how = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        plain_model(arguments, config, keep_alive).save_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.bfloat16,
            attn_implementation="sdpa",
            quantization_config=how,
            device_map={"": device},
        )


def measure(engine: Any, arguments: argparse.Namespace, vocab_size: int) -> dict[str, Any]:
    """Train and time. The tokens are a chain of the entropy of hpc-llm's; its learning rate rises first, this one does not."""
    import torch

    on_gpu = torch.cuda.is_available()
    shape = (arguments.steps, arguments.micro_batch_size, arguments.sequence_length)
    generator = torch.Generator(engine.device).manual_seed(arguments.seed * 100003)
    jumps = torch.tensor([5, 5, 5, 5, 17, 17, 29, 43], device=engine.device)
    drawn = torch.randint(8, shape, device=engine.device, generator=generator)
    tokens = jumps[drawn].cumsum(dim=-1) % 64 * (vocab_size // 64)
    losses, began = [], 0.0
    for step in range(arguments.steps):
        if step == arguments.warmup_steps:
            if on_gpu:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
        loss = engine(input_ids=tokens[step], labels=tokens[step], use_cache=False).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    if on_gpu:
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - began
    measured = arguments.steps - arguments.warmup_steps
    return {
        "tokens_per_second": measured * shape[1] * shape[2] / elapsed,
        "elapsed_s": elapsed,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "loss_first": losses[0].item(),
        "loss_last": losses[-1].item(),
    }


if __name__ == "__main__":
    main()
