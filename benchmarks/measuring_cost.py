"""What measuring costs: the same steps with the meter, the telemetry and the log of steps, and without, in turn.

    python benchmarks/measuring_cost.py [--model llama3.2-1b] [--steps 100] [--rounds 5]

One process on one GPU, or on the CPU where there is none. Prints one line of JSON: medians of all rounds, wall time by the host's
clock with the device waited for at both ends, and by how much the measured steps are longer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from hpc_llm.planning.experiment import Experiment  # noqa: E402
from hpc_llm.planning.method import load_method  # noqa: E402
from hpc_llm.planning.plan import Site, plan  # noqa: E402
from hpc_llm.site.cluster import load_cluster  # noqa: E402
from hpc_llm.site.hardware import detect  # noqa: E402
from hpc_llm.worker import device as devices  # noqa: E402
from hpc_llm.worker import engines  # noqa: E402
from hpc_llm.worker.data import batches  # noqa: E402
from hpc_llm.worker.loop import StepLog, run_steps, take_step  # noqa: E402
from hpc_llm.worker.measure import samplers  # noqa: E402
from hpc_llm.worker.measure.meter import Meter  # noqa: E402
from hpc_llm.worker.measure.telemetry import INTERVAL_S, Telemetry  # noqa: E402
from hpc_llm.worker.ranks import find_ranks  # noqa: E402

_ALONE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def main() -> int:
    arguments = read_arguments()
    os.environ.update(_ALONE)
    hardware = detect()
    asked = Experiment(
        cluster="local",
        method="ddp",
        model=arguments.model,
        micro_batch_size=1,
        sequence_length=350 if hardware.gpus else 64,
        steps=arguments.steps,
        warmup_steps=1,
    )
    site = Site(scheduler="local", hardware=hardware)
    planned = plan(asked, load_cluster("local"), load_method("ddp"), site).plan
    device = devices.choose_device(0, min(hardware.gpus, 1))
    kind = engines.find(planned.engine.name)
    kind.join(device)
    built = kind.build(planned, device)
    source = batches(planned, built.engine.module.config.vocab_size, find_ranks(os.environ), device)
    bare(built.engine, source, planned)  # compiled, recorded and warm
    found: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(arguments.rounds):
        found["without"].append(timed(device, lambda: bare(built.engine, source, planned)))
        found["with"].append(timed(device, lambda: measured(built.engine, source, planned, device)))
    told = {
        f"step_ms_{name}": round(1e3 * statistics.median(all_) / arguments.steps, 3) for name, all_ in found.items()
    }
    longer = told["step_ms_with"] / told["step_ms_without"] - 1
    gpu = torch.cuda.get_device_name(0) if device.type == "cuda" else "CPU"
    about = {"model": arguments.model, "steps": arguments.steps, "device": gpu, "torch": torch.__version__}
    print(json.dumps({**told, "longer_by": round(longer, 5), **about, "rounds": arguments.rounds}))
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama3.2-1b")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def timed(device: torch.device, do: Any) -> float:
    devices.synchronize(device)
    began = time.perf_counter()
    do()
    devices.synchronize(device)
    return time.perf_counter() - began


def bare(engine: Any, source: Iterator[Any], planned: Any) -> None:
    for _ in range(planned.workload.steps):
        take_step(engine, source, planned)


def measured(engine: Any, source: Iterator[Any], planned: Any, device: torch.device) -> None:
    """As the worker does it, but that what it prints goes nowhere."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        meter = Meter(device, planned.workload.steps, planned.workload.warmup_steps, 1, 0, 1)
        log = StepLog(Path(folder) / "steps.jsonl", planned)
        address = devices.pci_address(device) if device.type == "cuda" else None
        sampler = samplers.open_sampler([address], torch.version.hip is not None) if address else None
        looking = Telemetry(sampler, Path(folder) / "telemetry.jsonl", [], INTERVAL_S) if sampler else None
        if looking is not None:
            looking.start()
        run_steps(engine, source, meter, planned, log)
        if looking is not None:
            looking.stop()
        log.close()


if __name__ == "__main__":
    raise SystemExit(main())
