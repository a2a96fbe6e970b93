"""How long and in how much memory `hpc-llm report` reports on very long logs.

    python benchmarks/report_speed.py [--size 1G] [--logs 10] [--kind homework text …]

Writes one log of that size and gives it so many names, so that the page cache holds all of them; reports on the folder in a
fresh process. `text` is what a log holds least of elsewhere: the sources of the installed Python packages, with
a Trainer's step line every 215 kB and an out of memory at the end. Memory is the proportional share (PSS) of all processes
together, sampled. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from parse_speed import KINDS, MIB, hf_trainer, pss, size_of, write_log

TEXT = "text"
_BETWEEN_STEPS = 215_000
_END = b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.74 GiB.\n"


def sources() -> Iterator[bytes]:
    """The Python sources of this installation, again and again."""
    files = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")) + sorted(
        Path(sysconfig.get_path("stdlib")).rglob("*.py")
    )
    for path in cycle(files):
        try:
            yield path.read_bytes() + b"\n"
        except OSError:
            continue


def write_text(path: Path, size: int) -> None:
    rng = random.Random(1)
    written = since = step = 0
    with path.open("wb") as file:
        for text in sources():
            written += file.write(text)
            since += len(text)
            if since > _BETWEEN_STEPS:
                since, step = 0, step + 1
                file.write(hf_trainer(1000 * step, rng.random()).encode())
            if written > size:
                break
        file.write(_END)


def write_logs(folder: Path, kind: str, size: int, count: int) -> None:
    """`count` names of one log, beside `folder`."""
    log = folder.with_suffix(".one")
    if kind == TEXT:
        write_text(log, size)
    else:
        write_log(log, kind, size)
    folder.mkdir()
    for number in range(count):
        os.link(log, folder / f"run-{number}.log")
    log.unlink()


def measure(kind: str, size: int, count: int, scratch: Path) -> dict[str, Any]:
    folder = scratch / kind
    write_logs(folder, kind, size, count)
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "hpc_llm", "report", str(folder), "-o", str(scratch / f"{kind}-report")]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, pss(process.pid))
            time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"report ended with {process.returncode}")
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for log in folder.iterdir():
        log.unlink()
    return {"kind": kind, "logs": count, "bytes": size, "seconds": seconds, "cpu_seconds": cpu, "peak_pss_bytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=size_of("1G"))
    parser.add_argument("--logs", type=int, default=10)
    parser.add_argument("--kind", nargs="+", choices=[*KINDS, TEXT], default=["homework", TEXT])
    arguments = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory() as folder:
        found = [measure(kind, arguments.size, arguments.logs, Path(folder)) for kind in arguments.kind]
    for one in found:
        print(
            f"{one['kind']:16} {one['logs']} × {one['bytes'] / 1e6:.0f} MB: {one['seconds']:6.1f} s, "
            f"{one['cpu_seconds']:6.1f} CPU s, PSS {one['peak_pss_bytes'] / MIB:4.0f} MiB"
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
