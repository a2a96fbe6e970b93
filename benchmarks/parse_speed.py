"""How fast and in how much memory `hpc-llm parse` reads a long log, beside the loop that people write.

    python benchmarks/parse_speed.py [--size 200M] [--kind homework …] [--repeat 3] [--no-loop]

Writes a training log of that size in the form of the program, then reads it in fresh processes, one after the other: with
the usual loop (line by line, four `re.search`, the numbers kept in lists) and with `parse_paths`. Times are of the
reading, without starting Python; memory is the proportional share (PSS) of all processes together, sampled, and the largest
resident size of any one of them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
MIB = 2**20


def homework(step: int, x: float) -> str:
    stamp = f"[2025-08-25 16:53:{step % 60:02},863]"
    return (
        f"{stamp} [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, lr=[2e-05], mom=[(0.9, 0.999)]\n"
        f"{stamp} [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec="
        f"15.261113189344046, CurrSamplesPerSec={15 + x:.14f}, MemAllocated=5.29GB, MaxMemAllocated=5.78GB\n"
        f"[Step {step}/100000000] Loss: {5 + x:.4f} | Global Tokens/s: {5300 + 50 * x:.2f} | GPU Mem (GB): 5.27"
        " | Peak Mem: 5.78\n"
    )


def hf_trainer(step: int, x: float) -> str:
    return f"{{'loss': {2 + x:.4f}, 'grad_norm': {x}, 'learning_rate': {x * 1e-5}, 'epoch': {step / 1e5:.2f}}}\n"


def hf_trainer_bars(step: int, x: float) -> str:
    """As it stands in a job's output: a bar that is drawn at each step, a dictionary at each tenth."""
    bar = f"\r  1%|█         | {step}/100000000 [03:35<21:35,  1.34s/it]"
    return bar if step % 10 else f"{bar}\r{' ' * 48}\r{hf_trainer(step, x)}{bar[1:]}"


def megatron(step: int, x: float) -> str:
    return (
        f" [2025-05-27 15:23:{step % 60:02}] iteration {step:8}/100000000 | consumed samples: {step * 16:12} |"
        f" elapsed time per iteration (ms): {2000 + 99 * x:.1f} | throughput per GPU (TFLOP/s/GPU): {40 + x:.1f} |"
        f" learning rate: {x * 1e-5:.6E} | global batch size:    16 | lm loss: {2 + x:.6E} | loss scale: 1.0 |"
        f" grad norm: {x:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def torchtitan(step: int, x: float) -> str:
    return (
        f"[rank0]:[titan] 2025-06-04 11:02:{step % 60:02},404 - root - INFO - step: {step:2}  loss: {2 + x:7.4f}  grad_norm:"
        f" {x:7.4f}  memory: 30.89GiB(32.51%)  tps: {6000 + 900 * x:,.0f}  tflops: {360 + x:.2f}  mfu: {37 + x:.2f}%\n"
    )


# Per kind: the line, and the four patterns that one would write for it.
KINDS: dict[str, tuple[Callable[[int, float], str], tuple[str, ...]]] = {
    "homework": (homework, (r"\[Step (\d+)/\d+\]", r"Loss: ([\d.]+)", r"Tokens/s: ([\d.]+)", r"Peak Mem: ([\d.]+)")),
    "hf-trainer": (
        hf_trainer,
        (r"'loss': ([\d.]+)", r"'grad_norm': ([\d.e-]+)", r"'learning_rate': ([\d.e-]+)", r"'epoch': ([\d.]+)"),
    ),
    "hf-trainer-bars": (
        hf_trainer_bars,
        (r"'loss': ([\d.]+)", r"'grad_norm': ([\d.e-]+)", r"'learning_rate': ([\d.e-]+)", r"'epoch': ([\d.]+)"),
    ),
    "megatron": (
        megatron,
        (
            r"iteration +(\d+)/",
            r"lm loss: ([\d.E+-]+)",
            r"elapsed time per iteration \(ms\): ([\d.]+)",
            r"grad norm: ([\d.]+)",
        ),
    ),
    "torchtitan": (
        torchtitan,
        (r"step: +(\d+)", r"loss: +([\d.]+)", r"memory: +([\d.]+)GiB", r"mfu: +([\d.]+)%"),
    ),
}


def write_log(path: Path, kind: str, size: int) -> int:
    """Write a log of about `size` bytes; the number of its lines."""
    line, _ = KINDS[kind]
    rng = random.Random(1)
    step = written = lines = 0
    with path.open("wb") as file:
        while written < size:
            block = "".join(line(step + i, rng.random()) for i in range(1, 4001)).encode()
            step += 4000
            written += file.write(block)
            lines += block.count(b"\n")
    return lines


def usual_loop(path: Path, kind: str) -> None:
    """What people write."""
    patterns = [re.compile(pattern) for pattern in KINDS[kind][1]]
    found: list[list[float]] = [[] for _ in patterns]
    with path.open(encoding="utf-8") as file:
        for line in file:
            for pattern, numbers in zip(patterns, found, strict=True):
                match = pattern.search(line)
                if match:
                    numbers.append(float(match[1]))


def ours(path: Path, kind: str) -> None:
    from hpc_llm.parsing import parse_paths

    (row,) = parse_paths([path])
    assert row.loss_last is not None, kind


READERS = {"loop": usual_loop, "hpc-llm": ours}


def pss(pid: int) -> int:
    """Proportional share of memory of a process and its children, in bytes."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                total += one.memory_full_info().pss
    return total


def in_fresh_process(reader: str, path: Path, kind: str) -> dict[str, Any]:
    """Seconds and memory of one reading."""
    command = [sys.executable, __file__, "--read", reader, str(path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0

        def watch() -> None:
            nonlocal peak
            while process.poll() is None:
                peak = max(peak, pss(process.pid))
                time.sleep(0.02)

        watcher = threading.Thread(target=watch)
        watcher.start()
        output, _ = process.communicate()
        watcher.join()
    if process.returncode:
        raise SystemExit(f"{reader} ended with {process.returncode}")
    return {**json.loads(output), "peak_pss_bytes": peak}


def read(reader: str, path: Path, kind: str) -> None:
    begin = time.perf_counter()
    READERS[reader](path, kind)
    seconds = time.perf_counter() - begin
    largest = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"seconds": seconds, "largest_rss_bytes": largest * 1024}))


def measure(kind: str, size: int, repeat: int, with_loop: bool, folder: Path) -> dict[str, Any]:
    path = folder / f"{kind}.log"
    lines = write_log(path, kind, size)
    readers = [name for name in READERS if with_loop or name != "loop"]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in readers}
    for _ in range(repeat):
        for name in readers:
            runs[name].append(in_fresh_process(name, path, kind))
    result: dict[str, Any] = {"kind": kind, "bytes": path.stat().st_size, "lines": lines}
    path.unlink()
    for name in readers:
        result[name] = {key: min(run[key] for run in runs[name]) for key in runs[name][0]}
        result[name]["seconds_all"] = [round(run["seconds"], 3) for run in runs[name]]
    if with_loop:
        result["ratio"] = result["loop"]["seconds"] / result["hpc-llm"]["seconds"]
    return result


def show(result: dict[str, Any]) -> None:
    print(f"{result['kind']}: {result['bytes'] / 1e6:.0f} MB, {result['lines'] / 1e6:.2f} M lines")
    for name in READERS:
        if name in result:
            one = result[name]
            print(
                f"  {name:8} {one['seconds']:8.3f} s  {result['bytes'] / 1e6 / one['seconds']:7.0f} MB/s"
                f"  PSS {one['peak_pss_bytes'] / MIB:5.0f} MiB  largest process {one['largest_rss_bytes'] / MIB:5.0f} MiB"
            )
    if "ratio" in result:
        print(f"  {result['ratio']:.1f} times as fast")


def size_of(text: str) -> int:
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=size_of("200M"))
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--no-loop", action="store_true", help="only hpc-llm, for sizes at which the loop takes minutes"
    )
    parser.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read[0], Path(arguments.read[1]), arguments.read[2])
        return
    print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for kind in arguments.kind:
            results.append(measure(kind, arguments.size, arguments.repeat, not arguments.no_loop, Path(folder)))
            show(results[-1])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
