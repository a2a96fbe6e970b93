"""One decoder layer, forward and backward, compiled: its products in fp8 beside bf16, and where the time goes.

    python benchmarks/fp8_layers.py [--model llama2-7b] [--places 350,4096,16384] [--kernels 24]

Prints a line a number of places (tokens of a micro batch, in sequences of 2048 at most) with milliseconds, their ratio and what
is kept for the backward pass, and the kernels of the last one in fp8. Needs a GPU with fp8, torch and transformers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaModel  # noqa: E402

from hpc_llm.planning.model import architecture  # noqa: E402
from hpc_llm.worker.kernels.fp8 import fp8_layers  # noqa: E402
from hpc_llm.worker.model.shapes import layers_of  # noqa: E402

DEVICE, LONGEST, STEPS, WARMUP = torch.device("cuda", 0), 2048, 12, 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama2-7b")
    parser.add_argument("--places", default="350,4096,16384")
    parser.add_argument("--kernels", type=int, default=24)
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {arguments.model}")
    run = None
    for places in map(int, arguments.places.split(",")):
        found = []
        for fp8 in (False, True):
            run = one_layer(arguments.model, places, fp8)
            found.append((milliseconds(run), kept_mib(run)))
        (plain, plain_kept), (eight, eight_kept) = found
        print(
            f"{places} places: bf16 {plain:.3f} ms, fp8 {eight:.3f} ms, {plain / eight:.3f} times; "
            f"kept {plain_kept:.0f} and {eight_kept:.0f} MiB",
            flush=True,
        )
    print(kernels(run, arguments.kernels))
    return 0


def one_layer(name: str, places: int, fp8: bool) -> Any:
    """What computes one layer of the model on a batch: forward, which gives what backward starts from."""
    torch._dynamo.reset()
    config = LlamaConfig(**{**architecture(name).config_values(), "num_hidden_layers": 1, "vocab_size": 64})
    torch.manual_seed(0)
    model = LlamaModel(config).to(DEVICE, torch.bfloat16)
    if fp8:
        fp8_layers(layers_of(model), DEVICE)
    for layer in layers_of(model):
        layer.compile(dynamic=False)
    length = min(places, LONGEST)
    x = torch.randn(places // length, length, config.hidden_size, dtype=torch.bfloat16, device=DEVICE).requires_grad_()
    above = torch.randn_like(x) / places
    return lambda: (model(inputs_embeds=x, use_cache=False).last_hidden_state, above)


def milliseconds(run: Any) -> float:
    """Of forward and backward, the median."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + WARMUP + 1)]
    marks[0].record()
    for mark in marks[1:]:
        out, above = run()
        out.backward(above)
        mark.record()
    torch.cuda.synchronize()
    times = [one.elapsed_time(other) for one, other in zip(marks[WARMUP:], marks[WARMUP + 1 :], strict=False)]
    return float(statistics.median(times))


def kept_mib(run: Any) -> float:
    before = torch.cuda.memory_allocated()
    out, _ = run()
    kept: int = torch.cuda.memory_allocated() - before - out.nbytes
    return kept / 2**20


def kernels(run: Any, count: int) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            out, above = run()
            out.backward(above)
        torch.cuda.synchronize()
    found = [one for one in profile.key_averages() if one.self_device_time_total]
    found.sort(key=lambda one: -one.self_device_time_total)
    lines = [f"{one.self_device_time_total / 3000:9.3f} ms {one.count / 3:5.1f} times {one.key[:150]}" for one in found]
    return "\n".join(lines[:count])


if __name__ == "__main__":
    sys.exit(main())
