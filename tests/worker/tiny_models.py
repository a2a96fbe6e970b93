"""Checkpoints of several families, tiny and with fixed weights, and the loss that transformers itself gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data import batches
from hpc_llm.worker.ranks import Ranks

_LLAMA = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "sliding_window": None},
    "qwen2": {**_LLAMA, "tie_word_embeddings": True},
    "qwen3": {**_LLAMA, "head_dim": 32},
    "gpt2": {
        "vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    },
    "t5": {
        "vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "dropout_rate": 0.0, "decoder_start_token_id": 0,
    },
    "gpt_neox": {
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 128,
    },
}  # fmt: skip


def save(folder: Path, family: str, shards: bool = False, pickled: bool = False, **changes: Any) -> Path:
    """Write a model of `family`, with `changes` to its config; each weight in a file of its own with `shards`, as pytorch_model.bin with `pickled`."""
    from transformers import AutoConfig

    from hpc_llm.worker.model.weights import model_class

    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **{**FAMILIES[family], **changes})
    model: Any = model_class(config).from_config(config, dtype=torch.float32)
    model.save_pretrained(folder, max_shard_size=70_000 if shards else "5GB")
    assert (folder / "model.safetensors.index.json").exists() == shards
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def first_loss(folder: Path, plan: Plan) -> float:
    """transformers' own loss of the checkpoint on the first batches of all ranks."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    count, cpu = plan.parallel.world_size, torch.device("cpu")
    drawn = [
        next(batches(plan, 512, Ranks(rank, count, rank, count, "", 0, ""), cpu))["input_ids"] for rank in range(count)
    ]
    tokens = torch.cat(drawn)
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens).loss)
