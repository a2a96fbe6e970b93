"""Weights & Biases: an offline folder a run, written by its own library, that `wandb sync` sends from where there is a key."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from hpc_llm.errors import HpcLlmError
from hpc_llm.exporting.finished import FinishedRun
from hpc_llm.exporting.folders import MARK, is_there, put, room_in, sent
from hpc_llm.exporting.tracker import UNCHANGED, Send, Sent, Target, Tracker
from hpc_llm.outside import away_from_here, reason_of
from hpc_llm.records.files import read_json
from hpc_llm.records.run import Outcome

_FOLDER = "wandb"
"""In which `wandb sync` looks for runs."""
_OF_THIS_MACHINE = {
    "console": "off", "disable_code": True, "disable_git": True, "email": "", "host": "", "mode": "offline", "program": "",
    "reinit": "create_new", "run_notes": "", "run_tags": (), "save_code": False, "silent": True, "symlink": False,
    "username": "", "x_disable_machine_info": True, "x_disable_meta": True, "x_disable_stats": True,
    "x_save_requirements": False, "resume": "never", "run_group": None, "run_job_type": None, "sweep_id": None,
}  # fmt: skip
"""Settings by which nothing of this machine, its user or its environment is written: they are not those of the run."""


@contextmanager
def connect(target: Target) -> Iterator[Send]:
    """Writes into the folder `wandb` of the target's folder."""
    target = replace(target, folder=target.folder.absolute())
    with _without_its_own_settings(), room_in(target.folder / _FOLDER) as room, away_from_here():
        import wandb

        try:
            yield partial(_send, target, room)
        finally:
            wandb.teardown()


@contextmanager
def _without_its_own_settings() -> Iterator[None]:
    """Variables of the environment for runs that report as they go neither steer this nor are written down."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("WANDB_")}
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # nothing is told to anybody
    try:
        yield
    finally:
        del os.environ["WANDB_ERROR_REPORTING"]
        os.environ.update(before)


def _send(target: Target, room: Path, run: FinishedRun) -> Sent:
    folder, project = target.folder / _FOLDER, target.project_of(run)
    stamp = datetime.fromtimestamp(run.started_at, timezone.utc).strftime("%Y%m%d_%H%M%S")
    place = folder / f"offline-run-{stamp}-{run.key}"
    if is_there(run, place, project):
        return sent(run, place)
    done = put(run, _written(room, project, run), place, project, room)
    for earlier in folder.glob(f"offline-run-*-{run.key}"):  # of a try before, which began at another time
        if earlier != place and (read_json(earlier / MARK) or {}).get("id") == run.key:
            shutil.rmtree(earlier, ignore_errors=True)
    return done


def _written(room: Path, project: str, run: FinishedRun) -> Path:
    """The folder that the library wrote for the run, in the room, with what has to be sent alone."""
    import wandb

    own = room / run.key
    own.mkdir()
    known = {name: value for name, value in _OF_THIS_MACHINE.items() if name in wandb.Settings.model_fields}
    settings = wandb.Settings(**known, root_dir=str(own), run_id=run.key, run_name=run.run_id, project=project)
    try:
        _log(wandb.init(settings=settings, config=dict(run.config)), run)
    except (wandb.Error, OSError) as error:
        raise HpcLlmError(f"wandb could not write run {run.run_id}: {reason_of(error)}.") from error
    found = sorted(own.glob(f"{_FOLDER}/offline-run-*"))
    if len(found) != 1 or not any(found[0].glob("*.wandb")):
        raise HpcLlmError(f"wandb {wandb.__version__} left no offline run in {own}: another version may do so.")
    for besides in ("logs", "tmp"):
        shutil.rmtree(found[0] / besides, ignore_errors=True)
    return found[0]


def _log(to: Any, run: FinishedRun) -> None:
    for point in run.history():
        to.log({**point.figures, **_time(point.time, run.started_at)}, step=point.step)
    to.summary.update(_texts_and_numbers(run.summary))
    to.finish(exit_code=0 if run.outcome is Outcome.COMPLETED else 1)


def _time(moment: float | None, began: float) -> dict[str, float]:
    """When it was, in place of when it is sent."""
    return {} if moment is None else {"_timestamp": moment, "_runtime": max(0.0, moment - began)}


def _texts_and_numbers(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if value is not None}


def _next_step(runs: list[Sent], target: Target) -> str:
    changed = [one.place for one in runs if one.state != UNCHANGED]
    if not changed:
        return "All of it was written before; `wandb sync` sends what has not been sent."
    every = f"{shlex.quote(str(target.folder / _FOLDER))}/offline-run-*"
    return (
        f"`wandb sync {every if len(changed) > 1 else shlex.quote(changed[0])}` sends them, from where there is a key."
    )


TRACKER = Tracker(
    name="wandb",
    title="Weights & Biases",
    modules=("wandb",),
    install="wandb",
    connect=connect,
    next_step=_next_step,
)
