"""What the report knows of each run: its row, its steps, and the plan, versions and script in its folder."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hpc_llm.diagnosis import explain_look
from hpc_llm.errors import RequestError, pass_over, unknown_name
from hpc_llm.parsing import UNKNOWN_FORMAT, Row, inputs
from hpc_llm.parsing.formats.own_run import row_of, steps_of_last_try, tries_of
from hpc_llm.parsing.parallel import read_all
from hpc_llm.parsing.read import sample_of
from hpc_llm.parsing.rows import measures_nothing
from hpc_llm.parsing.sample import LossAt, StepSample
from hpc_llm.planning.experiment import flat_plan
from hpc_llm.planning.study import StudyRun
from hpc_llm.records.adapted import adaptations_of
from hpc_llm.records.files import read_text
from hpc_llm.records.possible import bounded
from hpc_llm.records.run import Outcome, RunPaths, is_run
from hpc_llm.reporting.profiles import Profile, read_profile
from hpc_llm.reporting.repeats import flat, is_a_repeats, settings_of
from hpc_llm.reporting.same_logs import SameLogs, measured_by
from hpc_llm.reporting.sharing import Pool
from hpc_llm.reporting.telemetry import Curve, utilization
from hpc_llm.runs.looks import Look, look
from hpc_llm.runs.ownership import doubt, job_of, other_owner, owner_of, say_whose
from hpc_llm.runs.records import Records
from hpc_llm.site.schedulers import scheduler_of
from hpc_llm.text.json_text import mapping
from hpc_llm.text.secrecy import redacted, without_secrets

_LARGEST_TEXT = 1 << 18

# What of a plan makes two runs the same measurement, besides the columns of the table.
_CONFIGURATION = (
    "deepspeed", "recompute", "fp8", "attention", "quantization", "peft", "optimizer", "lr_ramp_steps", "weights", "env", "launcher",
    "data", "packing", "too_long", "train_samples", "tensor_parallel",
)  # fmt: skip
_BATCH = frozenset(
    f"deepspeed.{name}"
    for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
)
"""Columns of the table already."""
_UNSAID = {"tensor_parallel": 1, "fp8": False}
"""What plans meant before they said it."""
_COMPUTED = "deepspeed.optimizer."
"""A plan's optimizer once more, in DeepSpeed's words."""

_TEXTS = ("cluster", "gpu", "method", "model", "task", "precision")
ASSUMABLE = (*_TEXTS, "nodes", "world_size", "micro_batch_size", "gradient_accumulation_steps", "sequence_length")
"""What may be said of logs that do not say it: what tells runs apart, never what was measured."""


RAN = "ran."
"""Begins the names of what was not planned: the software, and what was done otherwise. A run that lacks one did not come to tell."""
_NOTHING = "none"


@dataclass(kw_only=True)
class RanHere:
    """Where and when a run ran that no scheduler kept apart from others, in seconds since 1970."""

    host: str
    began: float
    ended: float


@dataclass(kw_only=True)
class ReportedRun:
    """One run and what stands behind its numbers. A foreign log has no plan, script or result."""

    row: Row
    steps: list[LossAt] = field(default_factory=list)
    num_steps: int = 0
    """Steps that the log holds; `steps` may be fewer."""
    utilization: Curve = field(default_factory=list)
    """Of its GPUs over time; empty where nothing was recorded."""
    profile: Profile | None = None
    """What its steps were made of, where that was looked into."""
    submission: Hashable | None = None
    """What it and all copies of its folder have in common; None where nothing tells."""
    measured: Sequence[Hashable] = ()
    """What it and all copies of its figures have in common."""
    doubt: int = 0
    """Of several copies the one with the least counts."""
    owner: str | None = None
    """`user NAME` where somebody else can have written what it says."""
    is_ours: bool = False
    """Whether it is a run folder of hpc-llm."""
    ran_here: RanHere | None = None
    """None where a scheduler keeps runs apart, and of one that is not over."""
    folder: str | None = None
    of_search: str | None = None
    """Folder of the search of which it is a try."""
    study: StudyRun | None = None
    """Its place in its study, with what is expected of it."""
    plan: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Any] = field(default_factory=dict)
    notices: list[Any] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)
    git_commit: str | None = None
    templates: str | None = None
    """Digest of the templates of its script, where they were its user's own."""
    script: tuple[str, ...] = ()
    """Its lines."""
    result: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    """Why it did not complete, in the keys of `hpc-llm diagnose --json`; empty where nobody asked."""

    @property
    def marks(self) -> list[Hashable]:
        """What tells it and its copies from all other runs; empty where nothing does."""
        return [
            *([] if self.submission is None else [self.submission]),
            *((self.row.try_, one) for one in self.measured),
        ]

    @property
    def is_known(self) -> bool:
        """Whether anything was recognised in the input."""
        return self.row.format != UNKNOWN_FORMAT

    @property
    def source(self) -> str:
        """The file or folder that it was read from."""
        return self.row.source or ""

    @property
    def settings(self) -> dict[str, Any]:
        """All of the plan as `path -> value`, without what repeats of a run may differ in."""
        ran = self.result.get("engine") if self.plan else None  # the plan's fallback may have run
        plan = {**self.plan, "engine": ran} if ran else self.plan
        return settings_of(plan) | (self._ran if self.plan and self.row.outcome == Outcome.COMPLETED.value else {})

    @property
    def _ran(self) -> dict[str, Any]:
        """What was not planned and still makes another measurement: the software, what ran fused, and what was done otherwise."""
        versions = mapping(self.result.get("versions"))
        ran: dict[str, Any] = {f"{RAN}{name}": value for name, value in sorted(versions.items()) if value is not None}
        ran[f"{RAN}fused"] = " ".join(sorted(map(str, _items(self.result.get("fused"))))) or _NOTHING
        ran[f"{RAN}templates"] = self.templates or _NOTHING
        said = sorted(one.partition(":")[0] for one in adaptations_of(self.result))
        ran[f"{RAN}adaptations"] = "; ".join(said) or _NOTHING
        return ran

    @property
    def configuration(self) -> dict[str, Any]:
        """The settings behind the method's name as `path -> value`; empty where there is no plan."""
        given = {**_UNSAID, **self.plan} if self.plan else {}
        settings = flat({name: given[name] for name in _CONFIGURATION if name in given})
        return {
            path: value
            for path, value in settings.items()
            if path not in _BATCH and not path.startswith(_COMPUTED) and not is_a_repeats(path)
        }


def assumptions(pairs: Sequence[str]) -> dict[str, Any]:
    """`COLUMN=VALUE` pairs as columns of a row.

    Raises:
        RequestError: a pair has another form, its column cannot be assumed, or a count is no whole number.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not value:
            raise RequestError(f"--assume {pair}: write it as COLUMN=VALUE, e.g. model=llama2-7b.")
        if name not in ASSUMABLE:
            raise RequestError(unknown_name("column to assume", name, ASSUMABLE))
        if name in _TEXTS:
            found[name] = value
        elif value.isdecimal():
            found[name] = int(value)
        else:
            raise RequestError(f"--assume {pair}: {name} is a whole number.")
    return found


def collect(
    paths: Sequence[str | os.PathLike[str]], without: Path | None = None, assumed: Mapping[str, Any] | None = None
) -> list[ReportedRun]:
    """All runs under `paths`, each once, however often it was named; what lies in `without` is left out.

    `assumed` fills columns of which a run says nothing; each such run gets a notice that says so.

    Raises:
        RequestError: a path is not there, or is stdin, which cannot be read twice.
    """
    if any(str(path) == "-" for path in paths):
        raise RequestError("report reads files and folders, not stdin: write the log to a file, and give its name.")
    found: dict[tuple[str, str | None], ReportedRun] = {}
    seen: dict[Hashable, ReportedRun] = {}
    logs = SameLogs()
    for run in _read(paths):
        key = _identity(run.row.source, run.row.run_id)
        if key in found or (without is not None and Path(key[0]).is_relative_to(without.resolve())):
            continue
        if not run.is_ours and (copied := logs.first_of(run.row)) is not None:
            pass_over(run.row.source, f"a copy of {copied}: one measurement counts once")
            continue
        if not run.is_ours and (other := logs.rank_of(run.row)) is not None:
            pass_over(run.row.source, f"of another rank of the training of {other}: one measurement counts once")
            continue
        first = next((seen[one] for one in run.marks if one in seen), run)
        counts, copy = (run, first) if run.doubt < first.doubt else (first, run)
        seen |= dict.fromkeys((*copy.marks, *counts.marks), counts)
        if first is not run:
            pass_over(copy.source, f"a copy of {counts.source}: one measurement counts once")
            found = {name: one for name, one in found.items() if one is not copy}
        if counts is run:
            found[key] = run
    for run in found.values():
        _clean(run)
        _fill(run, assumed or {})
    say_whose((run.owner for run in found.values()), "their figures are what these wrote, and have rows of their own")
    return list(found.values())


def _clean(run: ReportedRun) -> None:
    """Have its texts show no secret; of logs too, whoever wrote them."""
    for name in (*_TEXTS, "run_id", "source"):
        if (text := getattr(run.row, name)) is not None:
            setattr(run.row, name, bounded(name, redacted(text)))


def _read(paths: Sequence[str | os.PathLike[str]]) -> Iterator[ReportedRun]:
    """Runs of ours as the judge sees them, and logs as they are parsed, in order."""
    for is_ours, group in groupby(inputs(paths), key=is_run):
        given = list(group)
        if is_ours:
            yield from own_runs(given)
            continue
        for readings, _ in read_all(given, verbose=False, jobs=None, sampled=True):
            for row, sample in (pair for reading in readings for pair in reading.with_samples()):
                drawn = sample or StepSample()
                owner = owner_of([Path(row.source or "")])
                yield ReportedRun(row=row, steps=drawn.drawn(), num_steps=drawn.count, owner=owner)


def own_runs(folders: Sequence[Path]) -> Iterator[ReportedRun]:
    """Runs of ours, each with what stands behind it, and where it did not complete with the reason."""
    pool = Pool()
    looks = look(RunPaths(folder.absolute()) for folder in folders)
    for folder, seen in zip(folders, looks, strict=True):
        row = row_of(seen, str(folder))
        of_run = _reported(seen, row, pool)
        if not measures_nothing(row.task):
            yield of_run
        for one, of_try in tries_of(folder, row):
            name = f"{row.run_id}, try {of_try.try_}"
            run = _reported(one, replace(of_try, run_id=name), pool)
            run.study, run.of_search = of_run.study, of_run.folder
            if row.outcome == of_try.outcome == Outcome.CANCELLED.value:
                run.diagnosis = of_run.diagnosis
            run.owner, run.doubt = of_run.owner, of_run.doubt
            if of_run.submission is not None:
                run.submission = (of_run.submission, of_try.try_)
            yield run


def _reported(seen: Look, row: Row, pool: Pool) -> ReportedRun:
    run = ReportedRun(row=row, folder=row.source or "", is_ours=True)
    run.submission, run.owner = job_of(seen.records), other_owner(seen.run)
    run.measured = measured_by(seen.records)
    run.doubt = 2 * doubt(seen.run, seen.records.identity) + (run.submission is None)
    _read_folder(run, seen.records, pool)
    if seen.judgement.outcome is not Outcome.COMPLETED:
        run.diagnosis = pool.record(explain_look(seen).to_dict())
    return run


def _fill(run: ReportedRun, assumed: Mapping[str, Any]) -> None:
    filled = {name: value for name, value in assumed.items() if run.is_known and getattr(run.row, name) is None}
    for name, value in filled.items():
        setattr(run.row, name, value)
        run.notices.append(f"{name} {value} was given on the command line, the log does not say it")


def _identity(source: str | None, run_id: str | None) -> tuple[str, str | None]:
    return str(Path(source or "").resolve()), run_id


def _read_folder(run: ReportedRun, records: Records, pool: Pool) -> None:
    paths, experiment = records.run, records.experiment
    result = records.result.values if records.result else {}
    if records.has_steps:
        sample = sample_of(steps_of_last_try(paths, run.row))
        run.steps, run.num_steps = sample.drawn(), sample.count
    experiment, result = (
        without_secrets(experiment),
        without_secrets(result),
    )  # anybody may have written them, or led here
    run.plan = pool.record(flat_plan(mapping(experiment.get("plan"))))
    run.ran_here = _ran_here(run.plan, records)
    run.study = StudyRun.of_record(experiment.get("study"))
    run.origins = pool.record(mapping(experiment.get("origins")))
    run.notices = [*_items(experiment.get("notices")), *_items(result.get("adaptations")), *_told_at_the_end(records)]
    run.versions = pool.record({**mapping(experiment.get("versions")), **mapping(result.get("versions"))})
    commit = experiment.get("git_commit")
    run.git_commit = str(commit) if commit else None
    run.templates = str(experiment["templates"])[:64] if experiment.get("templates") else None
    run.result = pool.record({name: value for name, value in result.items() if name != "step_times_s"})
    run.script = pool.lines(redacted(read_text(paths.script, _LARGEST_TEXT) or ""))
    run.utilization = utilization(paths)
    run.profile = read_profile(paths)
    run.failure = mapping(result.get("error")) or without_secrets(_first_failure(records))


def _ran_here(plan: Mapping[str, Any], records: Records) -> RanHere | None:
    left, name = records.exit, plan.get("scheduler")
    if left is None or left.started_at is None or left.ended_at is None or not records.host:
        return None
    if not isinstance(name, str) or not scheduler_of(name).is_this_machine:
        return None
    return RanHere(host=records.host, began=left.started_at, ended=left.ended_at)


def _told_at_the_end(records: Records) -> list[str]:
    """What the job script had to say of a run that came to its end all the same."""
    left = records.exit
    return [redacted(left.reason)] if left is not None and left.exit_code == 0 and left.reason else []


def _first_failure(records: Records) -> dict[str, Any]:
    if not records.failures:
        return {}
    first = records.failures[0]
    return {"type": first.type, "message": first.message, "traceback": first.traceback}


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []
