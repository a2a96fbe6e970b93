"""A training checkpoint: a folder that holds all from which training goes on as if it had not stopped, or is not there.

    checkpoint.json   what it is of, how far training was, loss scale and schedule, every file with its size and checksums; written last
    engine/           parameters that train and their moments, by name, as `shards` writes them
    random-N.pt       where the random numbers of rank N stand

Frozen parameters are not in it: they are made or loaded anew as the plan says, and their sum must be the same then.
"""

from __future__ import annotations

import json
import os
import random
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from hpc_llm.errors import ModelFileError, WorkerError
from hpc_llm.records.checkpoints import MANIFEST, OWN_DIGEST, SCHEMA, not_own, own_digest, read_manifest
from hpc_llm.records.digests import DigestedFile, digest_of_piece, share_of, take_digests
from hpc_llm.records.files import write_json
from hpc_llm.text.json_text import DamagedRecordError, decoded
from hpc_llm.worker import device as devices
from hpc_llm.worker.engines import state
from hpc_llm.worker.engines.whole_folder import together, whole_folder
from hpc_llm.worker.tensor_file import load_tensors

if TYPE_CHECKING:
    from hpc_llm.worker.engines.engine import Engine

_WAY_ON = "Go on from another one (--resume RUN/checkpoints/step-N), or remove it if it is the run's own."
_NEEDED = ("world_size", "trained", "frozen_sum", "moments", "shares", "steering", "step", "sequences", "data", "files")


@dataclass(frozen=True)
class TrainingProgress:
    """How far training was."""

    step: int
    """Optimizer steps that are done."""
    sequences: int
    """That all ranks together have trained on; the data goes on behind them (`data.batches(used=…)`)."""
    data: Mapping[str, Any] | None = None
    """What they were of, as it was given to `save`."""
    trained_tokens: int | None = None
    """Tokens that were predicted since the beginning; None where the checkpoint does not say."""
    best: Mapping[str, Any] | None = None
    """The best evaluation so far, by `step` and `eval_loss`; None where there was none."""


def save(engine: Engine, folder: Path, progress: TrainingProgress, data: Mapping[str, Any] | None = None) -> None:
    """Write a checkpoint to `folder`, which must not be there yet. Collective.

    `data` says in JSON what was trained on, for `TrainingProgress.data`.

    Raises WorkerError on every rank where it could not be written on one of them; there is no `folder` then.
    """
    facts = _facts(engine)
    with whole_folder(folder) as made:
        engine.write_state(made / "engine")
        with DigestedFile(made / f"random-{dist.get_rank()}.pt") as file:
            torch.save(_random_states(engine.device), file)
        made.finish = lambda: _write_manifest(made.path, facts | asdict(replace(progress, data=data)))


def load(engine: Engine, folder: Path) -> TrainingProgress:
    """Put `engine`, built from a plan of the same model, where the checkpoint was. Collective.

    On another number of ranks each rank's random numbers are new ones.
    Raises WorkerError where the checkpoint is not whole, not this user's, or of something else.
    """
    what = f"the checkpoint {folder} cannot be read"
    together(lambda: _check_files(folder), only_rank=0, what=what)
    found = _manifest(folder)
    together(lambda: _check_contents(folder, found), only_rank=None, what=what)
    _check_same(folder, found, _facts(engine))
    engine.read_state(folder / "engine")
    engine.take_steering(found["steering"])
    sharing = engine.tensor.size if engine.tensor is not None else 1
    if (found["world_size"], found.get("tensor_parallel", 1)) == (dist.get_world_size(), sharing):
        together(lambda: _take_random_states(folder, engine.device), only_rank=None, what=what)
    else:  # the same on ranks that share layers
        torch.manual_seed(found["step"] * 100003 + dist.get_rank() // sharing)
    return TrainingProgress(
        step=found["step"],
        sequences=found["sequences"],
        data=found["data"],
        trained_tokens=found.get("trained_tokens"),
        best=found.get("best"),
    )


def _facts(engine: Engine) -> dict[str, Any]:
    """What the checkpoint and the engine that loads it must agree in, and what it was made with. Collective."""
    return {
        "schema": SCHEMA,
        "engine": engine.name,
        "world_size": dist.get_world_size(),
        "tensor_parallel": engine.tensor.size if engine.tensor is not None else 1,
        "trained": engine.trained(),
        "frozen_sum": engine.frozen_sum(),
        "moments": state.kind_of_moments(engine.optimizer_name),
        "shares": engine.placed().shares,
        "steering": engine.steering(),
        "versions": devices.versions(),
    }


def _check_same(folder: Path, found: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if found["trained"] != own["trained"]:
        raise WorkerError(f"the checkpoint {folder} is of another model, or trains other parameters of it.")
    if found["frozen_sum"] != own["frozen_sum"] and None not in (found["frozen_sum"], own["frozen_sum"]):
        raise WorkerError(
            f"the checkpoint {folder} was trained on other frozen weights than are here: give the same model, seed, "
            "precision and quantization."
        )
    if found["moments"] != own["moments"]:
        raise WorkerError(
            f"the checkpoint {folder} has the moments of the optimizer {found['moments']}, here it is {own['moments']}: go on "
            "with the same, or start anew from weights that were written for transformers."
        )
    if state.is_packed(own["moments"]) and found["shares"] != own["shares"]:
        raise WorkerError(
            f"the checkpoint {folder} has moments in 8 bits, whose scales are those of the shares of {found['shares']}, here is "
            f"{own['shares']}: go on with the same. Moments of AdamW go on with any engine on any number of ranks."
        )


def _write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    missing = [rank for rank in range(facts["world_size"]) if not (folder / f"random-{rank}.pt").is_file()]
    if missing:
        raise WorkerError(f"what rank {missing[0]} wrote is not seen in {folder}: do all nodes share that folder?")
    digests = take_digests(folder)
    sizes = {name: (folder / name).stat().st_size for name in digests}
    manifest = decoded(json.dumps({**facts, "files": sizes, "digests": digests}, allow_nan=False))  # as it will be read
    write_json(folder / MANIFEST, {**manifest, OWN_DIGEST: own_digest(manifest)})


def _manifest(folder: Path) -> dict[str, Any]:
    if not os.path.lexists(folder / MANIFEST):
        raise ModelFileError(f"{folder} is no checkpoint of hpc-llm: there is no {MANIFEST}.")
    try:
        found = read_manifest(folder)
    except DamagedRecordError as error:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: {error}. {_WAY_ON}") from None
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: it lacks {', '.join(missing)}. {_WAY_ON}")
    return found


def _check_files(folder: Path) -> None:
    """Raise WorkerError where a file is missing, cut off, or could have been written by somebody else.

    PyTorch and DeepSpeed run what such a file says.
    """
    for name, size in _manifest(folder)["files"].items():
        try:
            file = os.lstat(folder / name)
        except OSError as error:
            raise ModelFileError(f"the checkpoint {folder} is not whole: {name}: {error.strerror}.") from None
        if not stat.S_ISREG(file.st_mode) or file.st_size != size:
            raise ModelFileError(f"the checkpoint {folder} is not whole: {name} has {file.st_size} of {size} bytes.")
    if (path := not_own(folder)) is not None:
        raise WorkerError(
            f"the checkpoint {folder} is not used: {path.name} belongs to somebody else, or others may write it."
        )


def _check_contents(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise WorkerError where this rank's share of the files is not what was written; an older checkpoint has no checksums."""
    for name, number, digest in share_of(manifest.get("digests") or {}, dist.get_rank(), dist.get_world_size()):
        if digest_of_piece(folder / name, number) != digest:
            raise ModelFileError(
                f"the checkpoint {folder} is damaged: {name} does not hold what was written, by its checksum. {_WAY_ON}"
            )


def _random_states(device: torch.device) -> dict[str, Any]:
    version, state, gauss = random.getstate()
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(state), gauss]}
    if device.type == "cuda":
        states["device"] = torch.cuda.get_rng_state(device)
    return states


def _take_random_states(folder: Path, device: torch.device) -> None:
    name = f"random-{dist.get_rank()}.pt"
    states = load_tensors(folder / name, f"the checkpoint {folder}", _WAY_ON)
    try:
        _set_random_states(states, device)
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise ModelFileError(f"the checkpoint {folder} is damaged: {name} holds no random states. {_WAY_ON}") from None


def _set_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    version, state, gauss = states["python"]
    random.setstate((version, tuple(state), gauss))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "device" in states:
        torch.cuda.set_rng_state(states["device"], device)
