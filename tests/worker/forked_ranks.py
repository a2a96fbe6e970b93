"""Program that imports once and forks the ranks of one session after another: what each found lies in `found-RANK.json`."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from sessions import session
from two_ranks import free_port

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.main import run as run_program
from hpc_llm.worker.pretrain_llm import PROGRAM
from hpc_llm.worker.ranks import Ranks
from hpc_llm.worker.result import Record
from hpc_llm.worker.tasks import training


def import_all() -> None:
    """What every rank needs; nothing of it may start a thread before the ranks are there."""
    import peft  # noqa: F401
    from transformers import AutoTokenizer  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    from hpc_llm.worker.engines import deepspeed

    deepspeed.imported()


def whole_parameters(engine: Any) -> str:
    """A digest of every parameter that ranks hold whole, which must stay the same on all that share layers."""
    from hpc_llm.worker.tensor_parallel.split import slice_of

    found = hashlib.sha256()
    for parameter in engine.module.parameters():
        whole = engine.whole(parameter)
        if slice_of(parameter) is None:
            found.update(whole.detach().float().contiguous().numpy().tobytes())
    return found.hexdigest()


def train(wanted: dict[str, Any], folder: Path, ranks: Ranks) -> dict[str, Any]:
    """The task's own program, as a job runs it."""
    found: dict[str, Any] = {}
    measure = training._measure

    def measure_and_look(record: Record, engine: Any, device: Any, kept: Any) -> None:
        measure(record, engine, device, kept)
        found["whole"] = whole_parameters(engine)

    training._measure = measure_and_look
    record = Record(paths=RunPaths(folder), ranks=ranks, plan=Plan.from_dict(wanted["plan"]))
    found["code"] = run_program(PROGRAM, record)
    return found


def rank_of(number: int, wanted: dict[str, Any], folder: Path, port: int) -> int:
    ranks = Ranks(number, wanted["ranks"], number, wanted["ranks"], "127.0.0.1", port, "torchrun")
    try:
        carry_out = train if wanted["trains"] else session
        write_json(folder / f"found-{number}.json", carry_out(wanted, folder, ranks))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(folder: Path) -> None:
    import_all()
    gc.collect()
    gc.freeze()  # DeepSpeed collects often, and would look through all modules, which copies them
    for name, wanted in json.loads((folder / "request.json").read_text()).items():
        place, port = folder / name, free_port()
        place.mkdir(exist_ok=True)
        children = []
        for number in range(wanted["ranks"]):
            child = os.fork()
            if not child:
                code = rank_of(number, wanted, place, port)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            sys.exit(f"{name} failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
