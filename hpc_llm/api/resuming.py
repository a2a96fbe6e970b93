"""Which checkpoint a request goes on from, and whether what is planned can: before anything is queued."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import RequestError
from hpc_llm.records.metrics import MIN_MEASURED_STEPS

if TYPE_CHECKING:
    from hpc_llm.planning.experiment import PlanWithOrigins
    from hpc_llm.planning.parts import Training
    from hpc_llm.records.checkpoints import Kept
    from hpc_llm.records.run import RunPaths

_SAME = ("model", "peft", "quantization")
"""Fields of the plan without which the weights of a checkpoint are none of the model's."""
_RATES = ("lr_ramp_steps", "lr_schedule")
"""Fields of the plan by which the learning rate goes on, beside its number of steps."""


def with_start(values: dict[str, Any], logs: Path) -> dict[str, Any]:
    """The options with the folder that their `resume` means: a run's, whose newest checkpoint is taken, or a checkpoint.

    Of a search it is that of another one, whose tries count. Raises RequestError where there is no whole checkpoint, or no try.
    """
    from hpc_llm.planning.tasks import find

    text = values["resume"]
    is_search = find(str(values.get("task", "pretrain"))).search is not None
    return {**values, "resume": str(_search_of(text, logs) if is_search else _place_of(text, logs))}


def _search_of(text: str, logs: Path) -> Path:
    """The folder of a search that has tried something."""
    from hpc_llm.api.find import find_run

    run = find_run(text, logs, whole=True)
    if not run.search_tries():
        raise RequestError(f"--resume {text}: {run.root} holds no tries of a search for the micro batch. Leave it out.")
    _refuse_others_tries(text, run)
    return run.root.absolute()


def _refuse_others_tries(text: str, run: RunPaths) -> None:
    """Raise RequestError where somebody else has written, or may have written, what the search would take for its own findings."""
    from hpc_llm.records.files import OTHERS_MAY_WRITE
    from hpc_llm.runs.ownership import owner_of

    folders = [run.root, run.search, *(one.root for _, one in run.search_tries())]
    tries = [(one.experiment, one.result, one.exit) for _, one in run.search_tries()]
    paths = [path for path in (*folders, *(path for each in tries for path in each)) if path.exists()]
    owner = owner_of(paths)
    open_ = next((path for path in paths if path.stat().st_mode & OTHERS_MAY_WRITE), None)
    if owner is None and open_ is None:
        return
    whose = f"it belongs to {owner}" if owner else f"others may write {open_}"
    raise RequestError(
        f"--resume {text}: {whose}, and a search believes what its tries say. If you trust who can have written them, make a copy of "
        f"your own, `cp -r {quote(str(run.root))} COPY && chmod -R go-w COPY`, and give that: --resume COPY."
    )


def asked_with(text: str, logs: Path) -> tuple[RunPaths, dict[str, Any], bool]:
    """The run that `resume` means, what it was asked with, empty where its record does not hold it, and whether this user has
    said that. A checkpoint that lies in no run of this user's was asked with nothing that is known."""
    from hpc_llm.api.find import find_run
    from hpc_llm.errors import notice
    from hpc_llm.records.checkpoints import MANIFEST
    from hpc_llm.records.files import read_json
    from hpc_llm.records.run import RunPaths

    given = Path(os.path.abspath(os.path.expanduser(text)))
    if (given / MANIFEST).is_file():
        found = _own_run_of(given)
        if found is None:
            notice(f"--resume {text}: it lies in no run of yours, so all else is as the command line says")
            return RunPaths(given), {}, True
        run, told = found
        is_own = _is_noted_there(run)
    else:
        run = find_run(text, logs, whole=True)
        record = _own_record(run.experiment)
        told = record or read_json(run.experiment) or {}
        is_own = record is not None and _is_noted_there(run)
    asked = told.get("asked")
    return run, asked if isinstance(asked, dict) else {}, is_own


def _is_noted_there(run: RunPaths) -> bool:
    """Whether this user has noted its submission, in the folder where it lies: what was unpacked is this user's file and not their word."""
    from hpc_llm.runs.wanted import same_place
    from hpc_llm.schedulers.ledger import is_noted
    from hpc_llm.schedulers.runs import read_identity

    identity = read_identity(run)
    if identity is None or identity.run_dir is None or not is_noted(identity):
        return False
    return same_place(run.root) == same_place(identity.run_dir)


def _own_run_of(checkpoint: Path) -> tuple[RunPaths, dict[str, Any]] | None:
    """The run that keeps a checkpoint, and its record, where nobody but this user can have written that; else None."""
    from hpc_llm.records.checkpoints import run_of

    run = run_of(checkpoint)
    record = _own_record(run.experiment) if run is not None else None
    return (run, record) if run is not None and record is not None else None


def _own_record(path: Path) -> dict[str, Any] | None:
    """What the very bytes say that only this user can have written; None of other files."""
    from hpc_llm.records.files import read_own
    from hpc_llm.text.json_text import decoded

    try:
        found = decoded(read_own(path).decode())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _place_of(text: str, logs: Path) -> Path:
    from hpc_llm.api.find import find_run
    from hpc_llm.records.checkpoints import MANIFEST, start_of
    from hpc_llm.records.run import RunPaths, is_run

    given = Path(os.path.abspath(os.path.expanduser(text)))
    place = given if (given / MANIFEST).is_file() else find_run(text, logs, whole=True).root.absolute()
    if start_of(place) is None:
        if is_run(place) and _has_saved(RunPaths(place)):
            raise RequestError(
                f"--resume {text}: {place} has kept checkpoints and holds no whole one any more: {_what_became(place)}."
                f"{_model_left(RunPaths(place))}"
            )
        holds = (
            f"holds no whole checkpoint in {RunPaths(place).checkpoints.name}/"
            if place != given or is_run(place)
            else f"is no whole one: {_damage(place)}"
        )
        raise RequestError(
            f"--resume {text}: {place} {holds}. A run keeps them with --save-every N; `hpc-llm clean` lists what is kept."
        )
    return place


def _has_saved(run: RunPaths) -> bool:
    """Whether a run has kept checkpoints, by what it was asked and what it made."""
    from hpc_llm.records.files import read_json
    from hpc_llm.runs.progress import read_pace

    planned = _plan_in(read_json(run.experiment) or {})
    every, pace = planned.get("save_every"), read_pace(run.steps) if run.steps.is_file() else None
    return isinstance(every, int) and every > 0 and pace is not None and (pace.step or 0) >= every


def _what_became(run: Path) -> str:
    """Of the checkpoints of a run that has none that is whole: what ails the last of them, or that none is there."""
    from hpc_llm.records.checkpoints import not_whole_in
    from hpc_llm.text.shown import one_line

    broken = not_whole_in(run)
    if not broken:
        return "they were removed, as `hpc-llm clean --checkpoints` does"
    place, why = max(broken.items(), key=lambda one: (len(one[0].name), one[0].name))
    return f"in {one_line(place.name)} {one_line(why)}"


def _model_left(run: RunPaths) -> str:
    """What of its training can be gone on with in another way."""
    from hpc_llm.records.models import is_whole_model

    if is_whole_model(run.model) and (run.model / "config.json").is_file():
        return f" Its model is there: --model {quote(str(run.model))} trains from its weights as a new run."
    return " Submit it again without --resume."


def _damage(checkpoint: Path) -> str:
    from hpc_llm.records.checkpoints import whole_checkpoint
    from hpc_llm.text.json_text import DamagedRecordError
    from hpc_llm.text.shown import one_line

    try:
        whole_checkpoint(checkpoint)
    except DamagedRecordError as error:
        return one_line(str(error))
    return "it was while it was looked at"


def check_start(planned: PlanWithOrigins) -> PlanWithOrigins:
    """The same, with what is to be told of so few steps that they cannot be measured, or of a time limit that is too short for them.

    Raises:
        RequestError: nothing would be left to train, or another model would be.
    """
    from hpc_llm.api.remaining import cut_off_again
    from hpc_llm.api.searching import searches
    from hpc_llm.planning.experiment import Plan
    from hpc_llm.planning.parts import Training
    from hpc_llm.records.checkpoints import start_of
    from hpc_llm.records.models import is_whole_model

    plan: Plan = planned.plan
    if not isinstance(plan.workload, Training) or plan.workload.resume is None or searches(plan):
        return planned
    start = start_of(Path(plan.workload.resume))
    if start is None:
        raise RequestError(f"--resume {plan.workload.resume}: it holds no whole checkpoint any more.")
    _refuse_foreign(start.path)
    kept_by = _own_run_of(start.path)
    is_done = kept_by is not None and start.step == plan.workload.steps and is_whole_model(kept_by[0].model)
    if is_done or start.step > plan.workload.steps:
        raise RequestError(
            f"--resume: {start.path} was kept after step {start.step}, and the steps of this training are {plan.workload.steps}: nothing "
            f"is left to train. Steps count from the beginning of the training: give {_more_than(start.step, planned)}."
        )
    said = filter(None, (_behind_loss(start), _too_few(start.step, plan.workload, _is_by_epochs(planned))))
    planned = replace(planned, notices=(*planned.notices, *said))
    if kept_by is None:
        return planned
    planned = _with_its_rates(planned, *kept_by)
    own, before = plan.flat(), _plan_in(kept_by[1])
    for name in (name for name in _SAME if name in before and before[name] != own[name]):
        raise RequestError(
            f"--resume: {start.path} was trained {_trained(name, before[name], own[name])}, and what is asked for is trained "
            f"{_trained(name, own[name], before[name])}: its weights do not fit. {_ways(name, own, before, kept_by[0].model)}"
        )
    told = cut_off_again(planned, start, kept_by[0], before)
    return replace(planned, notices=(*planned.notices, told)) if told else planned


def _behind_loss(start: Kept) -> str | None:
    """That the run's loss was no finite number at some step, and what that means for the checkpoint."""
    from hpc_llm.records.checkpoints import came_of_it, kept_in, last_sound, not_finite_from
    from hpc_llm.records.run import RunPaths

    run = RunPaths(start.path.parent.parent)
    lost = not_finite_from(run)
    if lost is None:
        return None
    is_so = f"the loss of {run.run_id} is not a finite number from step {lost} on"
    kept = kept_in(run.root)
    if last_sound([start], lost) is not None:
        newest = kept[-1].path.name if kept else start.path.name
        return (
            f"{is_so}: it goes on from {start.path.name}, kept before that, and not from {newest}"
            if newest != start.path.name
            else None
        )
    sound = last_sound(kept, lost)
    way = (
        f"--resume {quote(str(sound.path))} was kept before that"
        if sound
        else "begin the training anew, without --resume"
    )
    return f"{is_so}, and {start.path.name}, from which it goes on, {came_of_it(start, lost)}: {way}"


def _with_its_rates(planned: PlanWithOrigins, run: RunPaths, record: dict[str, Any]) -> PlanWithOrigins:
    """The same with the ramp and the schedule of the learning rate that the run had, where nobody says them anew: derived from more
    steps, the ramp would let the rate of a training that is behind it fall."""
    before, own = _plan_in(record), planned.plan.flat()
    derived = [name for name in _RATES if planned.origins.get(name, "").startswith("default") and name in before]
    if before.get("task") != own["task"]:
        return planned
    kept = {name: before[name] for name in derived if before[name] != own[name]}
    if not kept:
        return planned
    why = {name: f"as in {run.run_id}, which it goes on with ({planned.origins[name]}: {own[name]})" for name in kept}
    return replace(planned, plan=planned.plan.changed(**kept), origins={**planned.origins, **why})


def _is_by_epochs(planned: PlanWithOrigins) -> bool:
    """Whether the steps follow from epochs, beside which --steps would be refused."""
    return not planned.origins.get("epochs", "computed").startswith("computed")


def _more_than(steps: int, planned: PlanWithOrigins) -> str:
    return f"more --epochs, which make more than {steps} steps" if _is_by_epochs(planned) else f"more than {steps}"


def _too_few(done: int, work: Training, is_by_epochs: bool) -> str | None:
    """That what is left of a training cannot be measured, and what could; it may be all that somebody wants, so it is not refused."""
    left = work.steps - done
    if left - work.warmup_steps >= MIN_MEASURED_STEPS:
        return None
    enough = done + work.warmup_steps + MIN_MEASURED_STEPS
    way = f"{f'--epochs that make {enough} steps' if is_by_epochs else f'--steps {enough}'} or more can be measured"
    if left >= MIN_MEASURED_STEPS:
        way = f"--warmup-steps {left - MIN_MEASURED_STEPS}, or {way}"
    return (
        f"steps left behind the checkpoint: {left}, of which {min(left, work.warmup_steps)} of warm-up, and {MIN_MEASURED_STEPS} must be "
        f"measured: the training is carried to its end, and the run is INVALID as a measurement. {way}"
    )


def _refuse_foreign(checkpoint: Path) -> None:
    """Raise RequestError where the job would refuse the checkpoint, by the same rule."""
    from hpc_llm.records.checkpoints import not_own
    from hpc_llm.records.files import reason_of

    try:
        path = not_own(checkpoint)
    except OSError as error:
        raise RequestError(f"--resume: {checkpoint} cannot be looked at: {reason_of(error)}.") from None
    if path is not None:
        raise RequestError(
            f"--resume: {path} belongs to somebody else, or others may write it, and training runs what a checkpoint says. If you "
            f"trust who can have written it, make a copy of your own, `cp -r {quote(str(checkpoint))} COPY && chmod -R go-w COPY`, "
            "and give that: --resume COPY."
        )


def _trained(name: str, value: Any, other: Any) -> str:
    """How the weights were trained, as far as it is not the same with the other: `without quantization`, `with model tiny`.

    >>> _trained("peft", {"kind": "lora", "r": 8}, {"kind": "lora", "r": 4}), _trained("peft", {"kind": "lora", "r": 8}, None)
    ('with peft r=8', 'with peft lora')
    """
    if value is None:
        return f"without {name}"
    if not isinstance(value, Mapping):
        return f"with {name} {value}"
    if not isinstance(other, Mapping):
        return f"with {name} {value.get('kind', '')}".rstrip()
    return f"with {name} {', '.join(f'{key}={value[key]}' for key in value if value[key] != other.get(key))}"


def _ways(name: str, own: Mapping[str, Any], before: Mapping[str, Any], model: Path) -> str:
    """How to go on, and how another training may begin where that one was; only a whole model can be given."""
    method = before.get("method")
    if name == "model":
        way = f"give --model {quote(str(before[name]))}"
    elif method in (None, own["method"]):
        way = f"leave out what changes {name}"
    else:
        way = f"leave --method out, or give --method {method}"
    new = f"; to begin a new training with its weights, give --model {quote(str(model))} in place of --resume"
    return f"To go on, {way}{new if (model / 'config.json').is_file() else ''}."


def _plan_in(record: dict[str, Any]) -> dict[str, Any]:
    """The flat plan in the record of a run; empty where there is none."""
    from hpc_llm.planning.experiment import flat_plan

    found = record.get("plan")
    return flat_plan(found) if isinstance(found, dict) else {}
