"""From an experiment to its plan, its script and its runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Union

from hpc_llm.api.batches import Places, batches
from hpc_llm.api.door import is_path, shown
from hpc_llm.api.find import logs_folder
from hpc_llm.api.handle import Run, submitted
from hpc_llm.api.preparing import ready
from hpc_llm.api.request import Request, read_request
from hpc_llm.api.sending import send
from hpc_llm.errors import RequestError
from hpc_llm.text.pasted import refuse_file

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hpc_llm.job.batch import Batch
    from hpc_llm.job.render import Script
    from hpc_llm.planning.experiment import PlanWithOrigins

AnExperiment = Union[str, "os.PathLike[str]", Mapping[str, Any], None]
"""A YAML file, or a mapping with the same keys."""


class Options(TypedDict, total=False):
    """What an experiment may say, as on the command line; these win over the experiment that is given."""

    cluster: str | Sequence[str]
    method: str | Sequence[str]
    task: str
    model: str | os.PathLike[str]
    nodes: int
    gpus_per_node: int
    tensor_parallel: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    sequence_length: int
    steps: int
    epochs: float
    warmup_steps: int
    seed: int
    data: Sequence[str | os.PathLike[str]]
    save_every: int
    over: str
    resume: str | os.PathLike[str]
    profile: str
    partition: str
    account: str
    time: str
    name: str
    sbatch: Sequence[str] | Mapping[str, Any]
    env_file: str | os.PathLike[str]
    set: Sequence[str] | Mapping[str, Any]
    smoke: bool
    max_parallel: int
    only: Sequence[str] | str


def prepare(
    experiment: AnExperiment = None,
    *,
    logs: str | os.PathLike[str] | None = None,
    templates: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    preview: bool = True,
    **options: Unpack[Options],
) -> list[Batch]:
    """Everything that was asked for, planned, checked and rendered, nothing written: a batch for each
    cluster, and within it for each script that its runs need.

    With `preview` and no `run_id` a placeholder stands where the run ids will be.

    Raises:
        RequestError: what is asked for cannot be read, or contradicts itself.
        PlanError: a cluster, its GPU or a method cannot do it.
    """
    return batches(*_asked(experiment, options, logs, templates, run_id), preview=preview)


def _asked(
    experiment: AnExperiment,
    options: Mapping[str, Any],
    logs: str | os.PathLike[str] | None,
    templates: str | os.PathLike[str] | None,
    run_id: str | None,
) -> tuple[Request, Places]:
    """What is asked for, and where."""
    if templates is not None and not is_path(templates):
        raise RequestError(f"templates is {shown(templates)}: the path of a folder, as text or a Path, is needed.")
    if run_id is not None and not isinstance(run_id, str):
        raise RequestError(f"run_id is {shown(run_id)}: text is needed.")
    folder = logs_folder(logs)
    refuse_file("logs", folder)
    places = Places(logs=folder, templates=None if templates is None else Path(templates), run_id=run_id)
    beside = {"logs": logs, "templates": templates, "run_id": run_id}
    return read_request(experiment, options, beside=beside, spelled=""), places


def plan(experiment: AnExperiment = None, **options: Unpack[Options]) -> list[PlanWithOrigins]:
    """One plan a run, each with the origin of every value and what the user should be told. Raises as `prepare` does."""
    return [planned for batch in prepare(experiment, **options) for planned in batch.planned]


def render(
    experiment: AnExperiment = None,
    *,
    logs: str | os.PathLike[str] | None = None,
    templates: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    **options: Unpack[Options],
) -> list[Script]:
    """The scripts that `submit` would send: one a run, or one for all runs of a job array. Raises as `prepare` does."""
    made = prepare(experiment, logs=logs, templates=templates, run_id=run_id, **options)
    return [script for batch in made for script in batch.distinct_scripts]


def submit(
    experiment: AnExperiment = None,
    *,
    logs: str | os.PathLike[str] | None = None,
    templates: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    force: bool = False,
    **options: Unpack[Options],
) -> list[Run]:
    """Plan, check, render and submit; returns the runs, which go on without this program.

    Data that nobody has prepared yet are prepared first where the runs are this machine's.

    `force` submits what does not fit, and where this seems not to be the cluster of the profile.

    Raises:
        RequestError, PlanError: as `prepare`; nothing was submitted.
        SubmissionError: the scheduler refused, or did not answer.
    """
    made = ready(*_asked(experiment, options, logs, templates, run_id), waits=False, force=force)
    return submitted(send(made, logs_folder(logs), chosen_ids=run_id is not None))
