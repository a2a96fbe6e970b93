"""Program of two ranks: trains one plan after another and writes how many numbers each rank holds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from masking import masked

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.engines import Engine
from hpc_llm.worker.main import run as run_program
from hpc_llm.worker.pretrain_llm import PROGRAM
from hpc_llm.worker.ranks import Ranks, find_ranks
from hpc_llm.worker.result import Record
from hpc_llm.worker.tasks import training


def masked_batches(batches: Any, plan: Plan, vocab_size: int, ranks: Ranks, device: Any, used: int = 0) -> Any:
    return masked(batches(plan, vocab_size, ranks, device, used), ranks.rank)


def meet(folder: Path, rank: int) -> int:
    """The port at which both ranks meet for one plan: rank 0 looks for a free one now, for others start beside this.

    It lies below those that the system gives to clients, so that no connection takes it meanwhile.
    """
    told = folder / "port"
    if rank == 0:
        write_json(told, {"port": free_port()})
    deadline = time.monotonic() + 300
    while (record := read_json(told)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 named no port")
        time.sleep(0.01)
    return int(record["port"])


def free_port() -> int:
    while True:
        port = random.SystemRandom().randrange(15_000, 20_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def digest(engine: Engine, *, trains: bool) -> str:
    """A digest of every bit of what trains, or of what must not, the scales of packed weights included. Collective."""
    import torch

    found = hashlib.sha256()
    for parameter in (each for each in engine.module.parameters() if each.requires_grad == trains):
        state: Any = getattr(parameter, "quant_state", None)
        scales = [] if state is None else [state.absmax, *([state.state2.absmax] if state.nested else [])]
        for tensor in (engine.whole(parameter), *scales):
            found.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def main(folder: Path) -> None:
    start = dict(os.environ)
    ranks = find_ranks(start)
    measure, batches = training._measure, training.batches
    current = folder

    def measure_and_look(record: Record, engine: Engine, device: Any, kept: Any) -> None:
        before = digest(engine, trains=False) if record.plan.task == "finetune" else None
        measure(record, engine, device, kept)
        if before is not None:
            after = {trains: digest(engine, trains=trains) for trains in (False, True)}
            left = {"before": before, "after": after[False], "trained": after[True]}
            write_json(current / f"digests-{ranks.rank}.json", left)
        write_json(current / f"held-{ranks.rank}.json", engine.held())

    training._measure = measure_and_look
    for name, wanted in json.loads((folder / "request.json").read_text()).items():
        os.environ.clear()
        os.environ.update(start)
        current = folder / name
        current.mkdir(exist_ok=True)
        plan = Plan.from_dict(wanted["plan"])
        training.batches = partial(masked_batches, batches) if wanted["mask"] else batches
        record = Record(paths=RunPaths(current), ranks=replace(ranks, master_port=meet(current, ranks.rank)), plan=plan)
        if run_program(PROGRAM, record):
            os._exit(1)
