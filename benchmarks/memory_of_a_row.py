"""What holds the GPU's memory in a row of bench_gpu.py: tensors by kind, and blocks by the line that asked for them, at the peak.

    python benchmarks/memory_of_a_row.py q-1x350 [--set PATH=VALUE] [--csv benchmarks/results/q_memory.csv]

Ours alone, in this process, with torch's history of allocations on: for rows of one GPU. Needs what bench_gpu.py needs.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from bench_gpu import ROWS, planned

from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.tasks import training

_MIB = 2**20
_OURS = ("hpc_llm/", "transformers/", "bitsandbytes/")
_STEPS, _WARMUP = 12, 6
Block = tuple[int, str]
"""Bytes, and who asked for them."""


def main() -> None:
    arguments = read_arguments()
    row = next((one for one in ROWS if one.name == arguments.row), None)
    if row is None or row.gpus > 1:
        raise SystemExit(
            f"{arguments.row} is no row of one GPU; there are {', '.join(r.name for r in ROWS if r.gpus == 1)}"
        )
    row = replace(row, settings=(*row.settings, *arguments.set), model=arguments.model or row.model)
    if torch.cuda.is_available():
        torch.cuda.memory._record_memory_history(context="all", stacks="python", max_entries=1_000_000)
    with tempfile.TemporaryDirectory(prefix="hpc-llm-memory-") as scratch:
        paths = RunPaths(Path(scratch) / "run")
        paths.root.mkdir()
        made = planned(row, argparse.Namespace(steps=_STEPS, warmup_steps=_WARMUP))
        write_json(paths.experiment, {"schema": 1, "run_id": paths.run_id, "plan": made.to_dict()})
        os.environ["HPC_LLM_LAUNCHER"] = "python"
        training.profile_steps = lambda record, engine, batches: tell(engine, arguments.csv)
        from hpc_llm.worker.pretrain_llm import command

        sys.argv = ["pretrain_llm", "--run-dir", str(paths.root)]
        command()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="as hpc-llm takes it")
    parser.add_argument("--model", help="another one, to try the program")
    parser.add_argument("--csv", type=Path, help="file that gets a line for each kind of block")
    return parser.parse_args()


def tell(engine: Any, path: Path | None) -> None:
    """Behind the measured steps, while all is still there."""
    for name, size in kinds(engine).most_common():
        print(f"{size / _MIB:9.1f} MiB {name}")
    if not torch.cuda.is_available():
        return
    found = torch.cuda.memory._snapshot()
    is_pooled = pooled(found["segments"])
    pool = [one for one in found["segments"] if is_pooled(one["address"])]
    print(f"{sum(one['total_size'] for one in pool) / _MIB:9.1f} MiB are the graph's pool")
    peak = at_peak(found["device_traces"][torch.cuda.current_device()], is_pooled)
    parts = {
        "now, outside the graph's pool": held(found["segments"], is_pooled),
        "in the graph's pool at its peak": peak,
    }
    lines = [line for where, blocks in parts.items() for line in grouped(where, blocks)]
    for line in lines:
        print(" | ".join(map(str, line.values())))
    if path is not None and lines:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)


def kinds(engine: Any) -> Counter[str]:
    """Bytes of the tensors of model and optimizer."""
    found: Counter[str] = Counter()
    for parameter in engine.module.parameters():
        kind = "trains" if parameter.requires_grad else "frozen"
        found[f"parameters, {parameter.dtype}, {kind}"] += parameter.numel() * parameter.element_size()
        state = getattr(parameter, "quant_state", None)
        for scales in (state.absmax, getattr(state.state2, "absmax", None)) if state is not None else ():
            found["scales of packed weights"] += 0 if scales is None else scales.numel() * scales.element_size()
    for state in engine._stepper.optimizer.state.values():
        for name, tensor in state.items():
            if torch.is_tensor(tensor):
                found[f"optimizer, {name}, {tensor.dtype}"] += tensor.numel() * tensor.element_size()
    return found


def pooled(segments: Sequence[dict[str, Any]]) -> Callable[[int], bool]:
    """Whether an address lies in what a CUDA graph works in."""
    ranges = [
        (one["address"], one["address"] + one["total_size"])
        for one in segments
        if tuple(one.get("segment_pool_id", (0, 0))) != (0, 0)
    ]
    return lambda address: any(begin <= address < end for begin, end in ranges)


def held(segments: Sequence[dict[str, Any]], is_pooled: Callable[[int], bool]) -> list[Block]:
    own = [one for one in segments if not is_pooled(one["address"])]
    blocks = [block for one in own for block in one["blocks"] if block["state"].startswith("active")]
    return [(block["size"], asker(block.get("frames", []))) for block in blocks]


def at_peak(trace: Sequence[dict[str, Any]], counts: Callable[[int], bool]) -> list[Block]:
    """The blocks that were there when most bytes were, of those that count."""
    events = [one for one in trace if one["action"] in ("alloc", "free_completed") and counts(one["addr"])]
    sizes: dict[int, int] = {}
    total = most = place = 0
    for number, event in enumerate(events):
        if event["action"] == "alloc":
            sizes[event["addr"]] = event["size"]
            total += event["size"]
        else:
            total -= sizes.pop(event["addr"], 0)
        if total > most:
            most, place = total, number
    live: dict[int, Block] = {}
    for event in events[: place + 1]:
        live.pop(event["addr"], None)
        if event["action"] == "alloc":
            live[event["addr"]] = (event["size"], asker(event["frames"]))
    return list(live.values())


def asker(frames: Sequence[dict[str, Any]]) -> str:
    """The innermost lines of Python that can tell something."""
    told = [one for one in frames if any(name in one["filename"] for name in _OURS)][:3] or list(frames[:2])
    names = (f"{'/'.join(one['filename'].split('/')[-2:])}:{one['line']} {one['name']}" for one in told)
    return " < ".join(names) or "(no Python: autograd's thread)"


def grouped(where: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """A line for each size and who asked, the largest first; what makes less than a MiB is left out."""
    count = Counter(blocks)
    for (size, who), many in sorted(count.items(), key=lambda one: -one[0][0] * one[1]):
        if size * many >= _MIB:
            each = round(size / _MIB, 2)
            yield {"where": where, "who": who, "blocks": many, "mib_each": each, "mib": round(size * many / _MIB, 1)}


if __name__ == "__main__":
    main()
