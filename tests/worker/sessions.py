"""Program of one or two ranks: one engine after another is built, loaded, trained, saved, and what came of it written down."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from two_ranks import meet

from hpc_llm.errors import HpcLlmError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import write_json
from hpc_llm.worker.ranks import Ranks, apply, find_ranks


def no_space(folder: Path) -> None:
    (folder / "begun").write_text("x")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def killed(folder: Path) -> None:
    (folder / "begun").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)


def session(wanted: dict[str, Any], folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Losses of the steps that the request asks for, between loading and saving."""
    import torch
    import torch.distributed as dist

    from hpc_llm.worker import engines
    from hpc_llm.worker.data import batches
    from hpc_llm.worker.device import choose_device
    from hpc_llm.worker.engines.checkpoint import TrainingProgress
    from hpc_llm.worker.engines.weights import save_weights
    from hpc_llm.worker.loop import set_rate, take_step

    plan = Plan.from_dict(wanted["plan"])
    device = choose_device(0, 0)
    apply(replace(ranks, master_port=meet(folder, ranks.rank)), os.environ)
    kind, _ = engines.choose(plan)
    kind.join(device)
    torch.manual_seed(plan.workload.seed)
    engine = kind.build(plan, device).engine
    torch.manual_seed(plan.workload.seed + ranks.rank)
    found: dict[str, Any] = {"losses": []}
    try:
        progress = engine.load(Path(wanted["load"])) if wanted["load"] else TrainingProgress(0, 0)
        found["progress"] = [progress.step, progress.sequences]
        done = progress.step
        used = wanted.get("used", progress.sequences)
        data = (plan, ranks)
        if wanted.get("same"):  # all ranks train on what one would
            used = done * plan.batch.micro_batch_size * plan.batch.gradient_accumulation_steps
            data = (plan.changed(world_size=1, data_parallel=1), replace(ranks, rank=0, world_size=1))
        stream = batches(data[0], engine.module.config.vocab_size, data[1], device, used=used)
        for name, does in {"fails_on": no_space, "dies_on": killed}.items():
            if wanted.get(name) == ranks.rank:
                engine.write_state = does  # type: ignore[method-assign]
        for number in range(done + 1, done + wanted["steps"] + 1):
            set_rate(engine, plan, number)
            loss, _ = take_step(engine, stream, plan)
            both = torch.stack([loss.total, torch.as_tensor(float(loss.targets), dtype=torch.float64)])
            dist.all_reduce(both)
            found["losses"].append(float(both[0] / both[1]))
            if number == wanted["after"]:  # in the midst of training, which goes on
                if wanted["save"]:
                    engine.save(Path(wanted["save"]), TrainingProgress(number, number * plan.batch.global_batch_size))
                if wanted["weights"]:
                    save_weights(engine, plan, Path(wanted["weights"]))
        found["held"] = engine.held()
    except HpcLlmError as error:
        found["error"] = str(error)
    engine.close()
    return found


def main(folder: Path) -> None:
    start = dict(os.environ)
    ranks = find_ranks(start)
    for name, wanted in json.loads((folder / "request.json").read_text()).items():
        os.environ.clear()
        os.environ.update(start)
        place = folder / name
        place.mkdir(exist_ok=True)
        try:
            found = session(wanted, place, ranks)
        except Exception:
            print(name, traceback.format_exc(), file=sys.stderr, flush=True)
            os._exit(1)
        write_json(place / f"found-{ranks.rank}.json", found)
