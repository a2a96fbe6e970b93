"""What loading a checkpoint takes of a node's memory: anonymous and shared, over all ranks of the node, beside the checkpoint's size.

    python benchmarks/loading_memory.py --parameters 5e8 --ranks 2
    python benchmarks/loading_memory.py --model llama2-7b --device cuda --csv loading.csv

Makes a Llama of about so many parameters, or of a preset's shape, with random weights in a temporary folder, starts ranks that load it as each engine does, and adds
up what the kernel says of them (Pss_Anon and Pss_Shmem of smaps_rollup) every few milliseconds. On a machine without GPUs what a rank
keeps of the model lies on the host as well; `beside` is the peak without that, which is what a node with GPUs holds. With --device cuda
each rank loads onto a GPU of its own, and the peak is what the node holds.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests" / "worker"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ddp", {"engine": "plain"}),
    "plain in fp16": ("ddp", {"engine": "plain", "precision": "fp16"}),
    "z2": ("z2", {}),
    "z3": ("z3", {}),
    "fsdp2": ("z3", {"engine": "fsdp2"}),
    "z3+lora": ("z3lora", {}),
    "fsdp2 with lora": ("z3lora", {"engine": "fsdp2"}),
    "flat": ("z3", {"engine": "flat"}),
}
"""Method and changes of a plan of the tests."""
_HIDDEN, _VOCABULARY = 1024, 12000


def shape_of(parameters: float, preset: str | None) -> dict[str, Any]:
    """Values of a LlamaConfig: of a preset, or of about so many parameters."""
    if preset:
        sys.path.insert(0, str(TESTS.parent.parent))
        from hpc_llm.planning.model import Architecture, architecture

        found = architecture(preset)
        assert isinstance(found, Architecture), f"{preset} is no Llama"
        return found.config_values()
    layer = 4 * _HIDDEN**2 + 3 * _HIDDEN * 4 * _HIDDEN
    layers = max(1, round((parameters - 2 * _HIDDEN * _VOCABULARY) / layer))
    return {
        "vocab_size": _VOCABULARY, "hidden_size": _HIDDEN, "intermediate_size": 4 * _HIDDEN, "num_hidden_layers": layers,
        "num_attention_heads": 16, "max_position_embeddings": 512,
    }  # fmt: skip


def make_checkpoint(folder: Path, shape: dict[str, Any]) -> int:
    """A Llama in bf16, in files of at most a few gigabytes; its size in bytes."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**shape, "dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]})
    config.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: each.shape for name, each in LlamaForCausalLM(config).state_dict().items()}
    where: dict[str, str] = {}
    names = list(shapes)
    for number, begin in enumerate(range(0, len(names), 60)):
        file = f"model-{number:05}.safetensors"
        part = {name: random_values(shapes[name]) for name in names[begin : begin + 60]}
        save_file(part, folder / file, {"format": "pt"})
        where |= dict.fromkeys(part, file)
    size: int = sum(2 * shape.numel() for shape in shapes.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return size


@lru_cache
def _drawn() -> Any:
    import torch

    return torch.randn(2**24, dtype=torch.bfloat16) * 0.02


def random_values(shape: Any) -> Any:
    """Drawn at once for 16 million, which are repeated: nobody computes with them, and a core draws few a second."""

    drawn = _drawn()
    return drawn.repeat(-(-shape.numel() // drawn.numel()))[: shape.numel()].clone().view(shape)


def rank(case: str, folder: Path, kind: str) -> None:
    """One rank: says when it is ready, loads when all are, says what it keeps of the model."""
    sys.path.insert(0, str(TESTS))
    import peft  # what is imported takes memory too, and none of the checkpoint's
    import torch
    import torch.distributed as dist
    from tiny_plans import make_plan  # type: ignore[import-not-found]
    from transformers import LlamaForCausalLM

    assert peft and LlamaForCausalLM
    method, changes = CASES[case]
    world = int(os.environ["WORLD_SIZE"])
    plan = make_plan(method, world, model=str(folder / "model"), steps=1, warmup_steps=0, **changes)
    torch.set_num_threads(1)
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    build = builder(plan, device)
    if kind == "cuda":  # the driver's and the collectives' own memory is none of the checkpoint's
        dist.all_reduce(torch.zeros(1, device=device))
        torch.cuda.synchronize()
    own = folder / f"rank-{os.environ['RANK']}"
    own.write_text("")
    while not (folder / "go").exists():
        time.sleep(0.01)
    dist.barrier()
    model = build()
    own.write_text(json.dumps(kept_bytes(model, device)))
    while not (folder / "end").exists():
        time.sleep(0.01)


def builder(plan: Any, device: Any) -> Any:
    """What loads the model as the plan's engine does, before anything that an optimizer keeps."""
    import torch.distributed as dist

    collectives = "nccl" if device.type == "cuda" else "gloo"
    if plan.engine.name == "fsdp2":
        import torch

        from hpc_llm.worker.engines import fsdp2
        from hpc_llm.worker.model.prepare import prepare
        from hpc_llm.worker.model.shapes import DTYPES, skeleton

        dist.init_process_group(collectives)

        def load() -> Any:
            frozen = DTYPES[plan.model.precision] if plan.model.peft else torch.float32
            model = prepare(skeleton(plan, frozen), plan)
            fsdp2._materialise(model, plan, device, None)
            return model

        return load
    from hpc_llm.worker.model.build import build_model

    if plan.engine.name in ("plain", "flat"):
        dist.init_process_group(collectives)
        return lambda: build_model(plan, {}, device)
    import deepspeed

    deepspeed.init_distributed(collectives, verbose=False)
    return lambda: build_model(plan, plan.engine.deepspeed, device)


def kept_bytes(model: Any, device: Any) -> int:
    """Of the parameters, what lies in this process's own memory of the host."""
    total = 0
    if device.type == "cuda":
        return total
    for parameter in model.parameters():
        part = getattr(parameter, "ds_tensor", parameter)
        part = part.to_local() if hasattr(part, "to_local") else part
        total += part.numel() * part.element_size()
    return total


def held(pids: list[int]) -> int:
    """Anonymous and shared memory of all of them, bytes; what they share counts once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1]) << 10
    return total


def measure(case: str, folder: Path, ranks: int, kind: str) -> dict[str, int]:
    """What they hold at most above what they held before, and what they keep."""
    for name in ("go", "end", *(f"rank-{number}" for number in range(ranks))):
        (folder / name).unlink(missing_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    started = [_started(case, folder, {**meeting, "RANK": str(number)}, kind) for number in range(ranks)]
    try:
        return _watched(folder, [one.pid for one in started], started)
    finally:
        for one in started:
            one.kill()
            one.wait()


def _started(case: str, folder: Path, place: dict[str, str], kind: str) -> subprocess.Popen[bytes]:
    # What is freed goes back to the system at once: here the allocator of the host stands for that of a GPU too.
    at_once = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    environ = {**os.environ, **at_once, **place, "LOCAL_RANK": place["RANK"], "OMP_NUM_THREADS": "1"}
    with (folder / f"said-{place['RANK']}").open("w") as said:
        words = [sys.executable, __file__, "--device", kind, "--rank", case, str(folder)]
        return subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=said)


def _watched(folder: Path, pids: list[int], started: list[subprocess.Popen[bytes]]) -> dict[str, int]:
    files = [folder / f"rank-{number}" for number in range(len(pids))]
    while not all(file.exists() for file in files):
        _check(folder, started)
        time.sleep(0.05)
    before = peak = held(pids)
    (folder / "go").touch()
    while not all(file.read_text() for file in files):
        _check(folder, started)
        peak = max(peak, held(pids))
    after = held(pids)
    return {"peak": peak - before, "after": after - before, "kept": sum(int(file.read_text()) for file in files)}


def _check(folder: Path, started: list[subprocess.Popen[bytes]]) -> None:
    for number, one in enumerate(started):
        if one.poll() is not None:
            raise SystemExit(f"rank {number} has ended:\n{(folder / f'said-{number}').read_text()[-3000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=5e8)
    parser.add_argument("--model", help="a preset of Llama's kind, whose shape it is, in place of --parameters")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--csv", type=Path, help="file that gets a line for each case")
    parser.add_argument("--folder", type=Path, help="where the checkpoint is made, or lies; default: a temporary one")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.rank:
        rank(words.rank[0], Path(words.rank[1]), words.device)
        return
    if words.make:  # in a process of its own, so that this one stays small
        print(make_checkpoint(words.make / "model", shape_of(words.parameters, words.model)))
        return
    with tempfile.TemporaryDirectory() as name:
        measure_all(words, words.folder or Path(name))


def measure_all(words: argparse.Namespace, folder: Path) -> None:
    """The checkpoint, where it is not there yet, and every case."""
    index = folder / "model" / "model.safetensors.index.json"
    if not index.exists():
        (folder / "model").mkdir(parents=True)
        made = [sys.executable, __file__, "--parameters", str(words.parameters), "--make", str(folder)]
        subprocess.run(
            [*made, *(["--model", words.model] if words.model else [])], check=True, stdout=subprocess.DEVNULL
        )
    size = json.loads(index.read_text())["metadata"]["total_size"]
    print(f"checkpoint {size / 2**30:.2f} GiB, {words.ranks} ranks; times the checkpoint:", flush=True)
    for case in words.cases.split(","):
        began = time.monotonic()
        found = measure(case, folder, words.ranks, words.device)
        took = time.monotonic() - began
        peak, after, kept = (found[key] / size for key in ("peak", "after", "kept"))
        beside = max(0.0, peak - kept)
        print(
            f"{case:20} peak {peak:5.2f}  after {after:5.2f}  model's own {kept:5.2f}  beside {beside:5.2f}  {took:.0f} s",
            flush=True,
        )
        if words.csv:
            figures = {"peak": peak, "after": after, "own": kept, "beside": beside}
            write(words, {"case": case, "checkpoint_bytes": size, **{k: round(v, 4) for k, v in figures.items()}})


def write(words: argparse.Namespace, row: dict[str, Any]) -> None:
    about = {"model": words.model or f"{words.parameters:g}", "ranks": words.ranks, "device": words.device}
    line, is_new = {**about, **row}, not words.csv.exists()
    with words.csv.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(line))
        if is_new:
            writer.writeheader()
        writer.writerow(line)


if __name__ == "__main__":
    main()
