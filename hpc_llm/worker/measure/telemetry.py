"""How busy, full and hot the GPUs are while the steps run, about once a second, in telemetry.jsonl.

One process of each node asks the driver in a thread of its own, for all GPUs that the run uses there. The thread
never touches CUDA, and the driver's library is called without Python's lock, so no step waits for it.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from hpc_llm.records.files import append_to, read_json_lines
from hpc_llm.worker import device as devices
from hpc_llm.worker.measure import samplers
from hpc_llm.worker.measure.window import Window
from hpc_llm.worker.ranks import Ranks
from hpc_llm.worker.result import Record

INTERVAL_S = 1.0
MIN_SAMPLES = 3
"""Fewer in the measured window say little: one covers up to a second, and the first what was before."""
_WAIT_FOR_DRIVER_S = 5.0


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a run, as the process sees them that samples those of its node."""

    node: int = 0
    """Nodes count from 0 in the order of their ranks."""
    addresses: tuple[str, ...] = ()
    """PCI addresses of the GPUs on this node, in the order of the ranks; empty where they cannot be told."""
    total: int = 0
    """On all nodes; 0 where those of one cannot be told."""


def find_gpus(device: torch.device, ranks: Ranks) -> Gpus:
    """Which GPUs the ranks of this node use: some launchers show each rank its own only. Collective on GPUs."""
    if device.type != "cuda":
        return Gpus()
    own = (socket.gethostname(), devices.pci_address(device))
    everyone = [own] * ranks.world_size
    if ranks.world_size > 1:
        dist.all_gather_object(everyone, own)
    return place(everyone, own[0])


def place(everyone: Sequence[tuple[str, str | None]], host: str) -> Gpus:
    """`Gpus` of `host`, from the host and PCI address of each rank."""
    if any(address is None for _, address in everyone):
        return Gpus()
    distinct = list(dict.fromkeys(everyone))  # ranks may share a GPU
    hosts = list(dict.fromkeys(name for name, _ in everyone))
    here = tuple(str(address) for name, address in distinct if name == host)
    return Gpus(node=hosts.index(host), addresses=here, total=len(distinct))


class Telemetry:
    """Appends a line for each GPU and sample to `path` until it is stopped."""

    def __init__(self, sampler: samplers.Sampler, path: Path, sentences: list[str], interval_s: float) -> None:
        self._sampler = sampler
        self._path = path
        self._sentences = sentences
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._has_failed = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the present sample. A driver that hangs is not waited for: the thread ends with the process."""
        self._end.set()
        self._thread.join(_WAIT_FOR_DRIVER_S)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._end.wait(max(0.0, due - time.monotonic())):
            try:
                self._sample()
            except Exception as error:  # the run matters more than its telemetry
                self._say_once(error)
            due = max(due + self._interval_s, time.monotonic())

    def _sample(self) -> None:
        now = time.time()
        rows = [{"time": now, "gpu": gpu, **state.to_dict()} for gpu, state in enumerate(self._sampler.sample())]
        with append_to(self._path) as file:
            file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))

    def _say_once(self, error: Exception) -> None:
        if not self._has_failed:
            self._sentences.append(f"The GPU telemetry has gaps: {type(error).__name__}: {error}.")
        self._has_failed = True


@contextlib.contextmanager
def recording(record: Record, gpus: Gpus) -> Iterator[None]:
    """Record the node's GPUs meanwhile, on one rank of the node, where there is a way to ask for them."""
    telemetry = _open(record, gpus) if gpus.addresses and record.ranks.local_rank == 0 else None
    if telemetry is None:
        yield
        return
    telemetry.start()
    try:
        yield
    finally:
        telemetry.stop()


def _open(record: Record, gpus: Gpus) -> Telemetry | None:
    try:
        sampler = samplers.open_sampler(gpus.addresses, torch.version.hip is not None)
    except Exception as error:  # a driver's library can fail in many ways, and none is a reason not to train
        record.adaptations.append(f"There is no GPU telemetry: {type(error).__name__}: {error}.")
        return None
    if sampler is None:
        return None
    return Telemetry(sampler, record.paths.telemetry_of(gpus.node), record.adaptations, INTERVAL_S)


def means(record: Record, gpus: Gpus, device: torch.device) -> dict[str, float]:
    """The means that a result has, and the energy of all GPUs. Collective on GPUs.

    A key is left out where one of the GPUs has too few samples.
    """
    window = record.window
    if window is None or window.span is None or window.elapsed_s is None or gpus.total == 0:
        return {}
    sums = _over_all(record, [_told_here(record, gpus, window, key) for key in samplers.MEANS], device)
    found = {
        name: total / gpus.total
        for name, (total, told) in zip(samplers.MEANS.values(), sums, strict=True)
        if told == gpus.total
    }
    if "gpu_power_w_mean" in found:
        found["energy_j"] = found["gpu_power_w_mean"] * gpus.total * window.elapsed_s
    return found


def _is_of_steps(time_s: float, window: Window) -> bool:
    """Whether a sample of that time saw the measured steps: one behind an evaluation or a checkpoint still covers it."""
    assert window.span is not None
    is_inside = window.span[0] <= time_s <= window.span[1]
    return is_inside and not any(begin <= time_s <= end + INTERVAL_S for begin, end in window.left_out)


def _told_here(record: Record, gpus: Gpus, window: Window, key: str) -> tuple[float, float]:
    """The sum of the means of this node's GPUs, and how many of them have one; of one rank of the node."""
    told = _means_here(record, gpus, window, key) if record.ranks.local_rank == 0 else []
    return math.fsum(told), float(len(told))


def _over_all(record: Record, here: list[tuple[float, float]], device: torch.device) -> list[tuple[float, float]]:
    if record.ranks.world_size == 1:
        return here
    on_device = torch.tensor(here, device=device, dtype=torch.float64)
    dist.all_reduce(on_device)
    return [(total, told) for total, told in on_device.tolist()]


def _means_here(record: Record, gpus: Gpus, window: Window, key: str) -> list[float]:
    """The mean of each GPU of this node that has enough samples."""
    values: dict[int, list[float]] = {}
    for row in read_json_lines(record.paths.telemetry_of(gpus.node)):
        if _is_of_steps(row["time"], window) and row.get(key) is not None:
            values.setdefault(row["gpu"], []).append(row[key])
    return [math.fsum(of_gpu) / len(of_gpu) for of_gpu in values.values() if len(of_gpu) >= MIN_SAMPLES]
