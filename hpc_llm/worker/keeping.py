"""What a training keeps while it goes on, and how it goes on from that: checkpoints between steps, the model at its end."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hpc_llm.errors import ModelFileError, WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.checkpoints import Kept, came_of_it, kept_in, last_before, last_sound, not_finite_from, start_of
from hpc_llm.records.files import read_json, read_json_lines, read_text
from hpc_llm.records.metrics import finite
from hpc_llm.records.removed import removed_from
from hpc_llm.records.run import RunPaths
from hpc_llm.text.pasted import with_logs
from hpc_llm.worker.engines import Engine
from hpc_llm.worker.engines.checkpoint import TrainingProgress
from hpc_llm.worker.engines.weights import save_adapter, save_weights
from hpc_llm.worker.engines.whole_folder import together
from hpc_llm.worker.measure.meter import Meter
from hpc_llm.worker.result import Record, ToldToStop, best_evaluation, trained_tokens

_SAVE, _STOP = 1.0, 1e9
"""What a rank wishes at the end of a step; any number of ranks may wish the first and their sum is below the second."""
_MOST_TRIES = 2
"""Tries in a row that make no new step before a job that is queued again gives up."""


class Keeping:
    """Saves at the steps of the plan, and where a signal asks for it; a `Between` of the loop.

    `start` is where the training goes on; with no checkpoint it is the beginning.
    """

    def __init__(self, record: Record, engine: Engine) -> None:
        self._record, self._engine, self._plan = record, engine, record.plan
        self._every = record.plan.training.save_every
        self._wish = 0.0
        self._meter: Meter | None = None
        self.start = TrainingProgress(0, 0, trained_tokens=0)
        self._saved = 0
        self._lost_before: int | None = None
        self._begin()

    def _begin(self) -> None:
        """Go on from this run's own newest checkpoint, else from the plan's. Collective."""
        found = _from_first_rank(lambda: _start(self._record))
        if found is not None:
            self.start = self._engine.load(found.path)
            self._saved = self.start.step
            self._record.resumed = {"step": self.start.step, "checkpoint": str(found.path)}
            self._record.before = self.start
            self._say(f"goes on behind step {self.start.step}, from {found.path}")
            if self._record.ranks.rank == 0:
                self._look_back(found)
            if self.start.data != data_of(self._plan):
                self._record.adaptations.append(
                    f"The checkpoint {found.path} was trained on other data: this one's is read from its beginning."
                )
        if self._every is not None:
            self._note_kept()

    def _look_back(self, found: Kept) -> None:
        """Say where the training goes on from behind a loss that is not a finite number."""
        lost = not_finite_from(RunPaths(found.path.parent.parent))
        if lost is not None and last_sound([found], lost) is None:
            self._say(
                f"the loss was not a finite number from step {lost} on, and this checkpoint {came_of_it(found, lost)}"
            )
        if found.path.parent == self._record.paths.checkpoints and lost is not None and lost <= found.step:
            self._lost_before = lost

    @property
    def used(self) -> int:
        """Sequences of the plan's data that all ranks together have trained on already (`data.batches(used=…)`)."""
        return self.start.sequences if self.start.data == data_of(self._plan) else 0

    def listen(self, meter: Meter) -> None:
        """Heed signals from now on, at the end of the step in which they come or of the one behind it."""
        if self._every is not None:
            self._meter = meter
            meter.wish = self._say_wish
            self._record.stop = self.on_signal

    def on_signal(self, number: int) -> bool:
        """Take a signal, in whatever thread; whether the training saves for it."""
        self._wish = max(self._wish, _STOP if number == signal.SIGTERM else _SAVE)
        return True

    def _say_wish(self) -> float:
        wish = self._wish
        if wish == _SAVE:  # said once: who asks for a checkpoint wants one
            self._wish = 0.0
        return wish

    def is_due(self, number: int) -> bool:
        """Every so many steps, behind the last one, and where a rank has a signal."""
        if self._every is None:
            return False
        planned = number % self._every == 0 or number == self._plan.workload.steps
        return planned or self._wished() > 0

    def _wished(self) -> float:
        return 0.0 if self._meter is None else self._meter.wished()

    def act(self, number: int) -> bool:
        """Keep what is needed to go on behind step `number`. Raises ToldToStop on all ranks where one was told to end."""
        if number > self._saved:
            self._record.is_saving = True
            self._save(number)
            self._record.is_saving = False
        if self._wished() >= _STOP and number < self._plan.workload.steps:
            raise ToldToStop(f"saved behind step {number}{self.way_on}")
        return True

    @property
    def way_on(self) -> str:
        """How to go on. A job that may be queued again goes on by itself, and a second one beside it would train the same steps; one whose
        time was over needs more, which `diagnose` counts.

        What is written down here is read anywhere, so the folder of the runs is named.
        """
        paths, job = self._record.paths, self._plan.job
        is_at_limit = (read_text(paths.stop) or "").strip() == "USR1"  # which is sent before that alone
        diagnose = f"`hpc-llm diagnose {paths.run_id}`"
        stays_ended = not _is_job(paths) or "no-requeue" in job.sbatch
        if job.time_s is None and stays_ended:
            way = f", go on with `hpc-llm submit --resume {paths.run_id}`"
        elif stays_ended or is_at_limit:
            way = f", go on with what {diagnose} says"
        else:
            way = (
                f": where the job is queued again it goes on by itself, and once `hpc-llm status {paths.run_id}` tells its end, "
                f"{diagnose} says how to go on"
            )
        return with_logs(way, paths.root.parent)

    def _save(self, number: int) -> None:
        paths = self._record.paths
        together(lambda: _clear(paths, number), only_rank=0, what=f"{paths.checkpoints} cannot be written")
        self._engine.save(paths.checkpoint(number), self._progress(number), data_of(self._plan))
        self._saved = number
        together(
            self._remove_older,
            only_rank=0,
            what=f"an older checkpoint in {paths.checkpoints} cannot be removed",
        )
        self._note_kept()
        self._say(f"kept behind step {number}: {paths.checkpoint(number)}")

    def _progress(self, number: int) -> TrainingProgress:
        more = (number - self.start.step) * self._plan.batch.global_batch_size
        steps = self._meter.steps if self._meter is not None else []
        return TrainingProgress(
            step=number,
            sequences=self.used + more,
            trained_tokens=trained_tokens(self._record, steps),
            best=best_evaluation(self._record),
        )

    def _remove_older(self) -> None:
        """The newer one is whole by now; the last one before a loss that is not a finite number stays, in place of an older one."""
        steps = self._meter.steps if self._meter is not None else []
        lost = self._lost_before or next(
            (s.number for s in steps if s.loss is not None and finite(s.loss) is None), None
        )
        kept = kept_in(self._record.paths.root)
        stays = last_before(kept, lost)
        others = [one for one in kept if one != stays]
        for old in others[: -max(1, self._plan.training.keep - (stays is not None))]:
            shutil.rmtree(old.path)

    def finish(self) -> None:
        """Behind the last step: keep the model for use, where anything is kept. Collective."""
        self._record.stop = None
        if self._every is not None:
            folder = self._record.paths.model
            save_for_use(self._engine, self._plan, folder)
            self._record.kept = {**(self._record.kept or {}), "model": str(folder)}
            self._say(f"kept for use: {folder}")

    def _note_kept(self) -> None:
        kept = kept_in(self._record.paths.root)
        self._record.kept = {"checkpoints": [str(one.path) for one in kept], "model": None}

    def _say(self, sentence: str) -> None:
        if self._record.ranks.rank == 0:
            print(f"{self._record.program}: {sentence}", flush=True)


def _is_job(paths: RunPaths) -> bool:
    """Whether the run is a job, which its scheduler may queue again, and not processes of a machine; one that nobody submitted
    is of the job in which it was started, if any."""
    told = (read_json(paths.job) or {}).get("is_this_machine")
    return not told if isinstance(told, bool) else "SLURM_JOB_ID" in os.environ


def data_of(plan: Plan) -> dict[str, Any]:
    """By what the order of the sequences is given, in JSON."""
    training = plan.training
    return {
        "files": training.data,
        "corpus": training.corpus and Path(training.corpus).name,  # which follows from what it was made of
        "packing": training.packing,
        "too_long": training.too_long,
        "seed": training.seed,
        "sequence_length": plan.batch.sequence_length,
    }


def save_for_use(engine: Engine, plan: Plan, folder: Path) -> None:
    """Write what was trained as Hugging Face's libraries load it, in place of what an earlier try left. Collective.

    That is the whole model, or where PEFT's adapters are trained these alone. Raises WorkerError on all ranks where it
    cannot be written.
    """
    if plan.model.peft is not None:
        save_adapter(engine, plan, folder, replace=True)
    else:
        save_weights(engine, plan, folder, replace=True)


def _from_first_rank(find: Any) -> Any:
    """What `find` gives, or raises, on the first rank: nodes may see a shared folder at different times. Collective."""
    found: list[Any] = [None]

    def look() -> None:
        found[0] = find()

    together(look, only_rank=0, what="what is kept cannot be read")
    dist.broadcast_object_list(found, src=0)
    return found[0]


def _start(record: Record) -> Kept | None:
    """The checkpoint to go on from. Raises WorkerError where there is none, or going on leads nowhere."""
    paths, resume = record.paths, record.plan.training.resume
    own = next(reversed(kept_in(paths.root)), None)
    if record.plan.training.save_every is not None:
        refuse_endless_tries(paths)
    if own is not None or resume is None:
        return own
    found = start_of(Path(resume))
    if found is None:
        raise ModelFileError(
            f"{resume} holds no whole checkpoint to go on from: "
            + (
                removed_from(Path(resume))
                or "look whether this node sees it, and whether it was removed or damaged since the run was submitted"
            )
            + "."
        )
    return found


def refuse_endless_tries(paths: RunPaths) -> None:
    """Raise WorkerError where the last tries of this run got no further than those before: another one would not either."""
    furthest, in_vain = 0, 0
    for one in paths.earlier_tries():
        last = max((int(row.get("step") or 0) for row in read_json_lines(one.steps)), default=0)
        in_vain = 0 if last > furthest else in_vain + 1
        furthest = max(furthest, last)
    if in_vain >= _MOST_TRIES:
        told = (
            f"the last {in_vain} tries of this run made no new step behind step {furthest}, so it is not tried again: see what "
            f"`hpc-llm diagnose {paths.run_id}` says, and go on with `hpc-llm submit --resume {paths.run_id}`."
        )
        raise WorkerError(with_logs(told, paths.root.parent))


def _clear(paths: RunPaths, number: int) -> None:
    """Take away what has the checkpoint's name and is none: half of one that somebody left, or damaged."""
    folder = paths.checkpoint(number)
    if folder.is_symlink():
        raise WorkerError(f"{folder} is a link, and nothing is written through it: remove it.")
    if folder.exists():
        shutil.rmtree(folder)
    os.makedirs(paths.checkpoints, mode=0o755, exist_ok=True)
