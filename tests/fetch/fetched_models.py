"""Models as they lie on the Hub, and what a command said and left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from hub_server import Content

CONFIG = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 512, "max_position_embeddings": 64,
}  # fmt: skip


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What stderr says, which must be one line."""
        (line,) = self.err.splitlines()
        return line.removeprefix("hpc-llm: ")


def weights(number: int, size: int = 300_000) -> bytes:
    """A file of safetensors, the bytes of which differ at each place behind its table."""
    data = b"".join(b"%d:%d " % (number, i) for i in range(size // 8))[:size]
    if len(data) <= _TABLE + 8:
        return data
    left = len(data) - _TABLE - 8
    table = json.dumps({"layer.weight": {"dtype": "BF16", "shape": [left // 2], "data_offsets": [0, left // 2 * 2]}})
    return _TABLE.to_bytes(8, "little") + table.encode().ljust(_TABLE) + data[-(left // 2 * 2) :]


_TABLE = 120


UNNEEDED: Content = {
    ".gitattributes": b"*.bin filter=lfs\n",
    "pytorch_model.bin": weights(90),
    "consolidated.safetensors": weights(91),
    "original/consolidated.00.pth": weights(92),
    "flax_model.msgpack": weights(93),
    "onnx/model.onnx": weights(94),
    "model.fp16.safetensors": weights(95),
    "modeling_own.py": b"raise SystemExit\n",
}
"""What lies beside the weights on the Hub and no run loads."""


def model(shards: int = 2, size: int = 300_000) -> Content:
    """What a run needs of a model."""
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    index = {"metadata": {}, "weight_map": {f"layer.{i}": name for i, name in enumerate(names)}}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "generation_config.json": b"{}",
        "tokenizer.json": b'{"a": 1}',
        "tokenizer.model": b"\0\1",
        "LICENSE.txt": b"free\n",
        "README.md": b"# A model\n",
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{name: weights(i, size) for i, name in enumerate(names)},
    }


def files_in(folder: Path) -> Content:
    """What a folder holds, without what is hpc-llm's."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in found}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith(".hpc-llm/")}
