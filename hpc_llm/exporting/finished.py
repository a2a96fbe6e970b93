"""A finished run as trackers take it: its plan, its figures, its steps, and a name that stays the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpc_llm.errors import RequestError, pass_over
from hpc_llm.exporting.history import Point, history, is_figure
from hpc_llm.parsing.formats.own_run import row_of
from hpc_llm.planning.experiment import flat_plan, nested_plan
from hpc_llm.planning.study import StudyRun
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs.fields import moment_of
from hpc_llm.runs.looks import Look, look
from hpc_llm.runs.ownership import doubt, other_owner, say_whose
from hpc_llm.runs.records import Records
from hpc_llm.text.json_text import DamagedRecordError, mapping
from hpc_llm.text.secrecy import without_secrets
from hpc_llm.text.shown import whole_text

SCHEMA = 1
"""Of what is sent; a higher one sends runs anew that an earlier version of hpc-llm has sent."""
_NOT_SENT = (("job", "env"), ("job", "env_file"))
"""Of the plan: variables of the user's own concern nobody elsewhere, whatever they hold."""
_OF_THE_PLACE = frozenset(("run_id", "source", "format", "study", "study_run"))
"""Columns of a row that are no result; `source` is a path of this site."""
_NAMED = frozenset("gpu outcome outcome_reason invalid_reason cause kind expect job_id started_at".split())


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """All that is sent of one run; it holds no secret."""

    paths: RunPaths
    key: str
    """32 hexadecimal digits, of the UUID of its submission."""
    study: str | None
    outcome: Outcome
    started_at: float
    """Unix time."""
    ended_at: float
    config: Mapping[str, Any]
    """The plan, and with what it was carried out: JSON types, nested."""
    summary: Mapping[str, Any]
    """Numbers and texts, flat."""
    digest: str
    """SHA-256 of all of it: what was sent with the same needs not to be sent again."""

    @property
    def run_id(self) -> str:
        return whole_text(self.paths.run_id)

    def history(self) -> Iterator[Point]:
        """Its figures by rising step."""
        return (replace(point, figures=_writable(point.figures)) for point in history(self.paths))

    def flat_config(self) -> dict[str, Any]:
        """The plan with the names of nested fields joined by dots; lists as JSON, without what is not set."""
        return dict(_flat(self.config, ""))


def _writable(value: Any) -> Any:
    """The same with texts that can be written: a record may hold halves of a character, which no tracker takes."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, Mapping):
        return {whole_text(name): _writable(one) for name, one in value.items()}
    return [_writable(one) for one in value] if isinstance(value, list) else value


def _flat(values: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value is not None:
            yield f"{before}{name}", json.dumps(value) if isinstance(value, list) else value


def finished_runs(runs: Sequence[RunPaths]) -> list[FinishedRun]:
    """The runs as they are to be sent, in their order.

    Raises:
        RequestError: one of them is not over, or damaged, or of a newer version; the sentence names the first.
    """
    looks = _without_copies(list(look(runs)))
    problems = [(one.run.run_id, why) for one in looks if (why := _why_not(one)) is not None]
    if not problems:
        found = []
        for one in looks:
            try:
                found.append(_finished(one))
            except DamagedRecordError as error:
                problems.append((one.run.run_id, f"is damaged: {error}"))
    if problems:
        (run_id, why), more = problems[0], len(problems) - 1
        others = f" {more} more of the runs cannot be sent either." if more else ""
        raise RequestError(f"nothing was sent: run {run_id} {why}.{others} Name runs that are over and whole.")
    say_whose((other_owner(one.run) for one in looks), "what is sent of them is what these wrote")
    return found


def _why_not(found: Look) -> str | None:
    """Why a run is not to be sent; None where it is."""
    records, judgement = found.records, found.judgement
    if records.newer is not None:
        return f"was written by a newer version of hpc-llm ({records.newer}), which can send it"
    if records.damages:
        return f"is damaged: {records.damages[0].file}: {records.damages[0].why}"
    if judgement.outcome is None:
        return f"is not over: {judgement.state}" + (f", {judgement.reason}" if judgement.reason else "")
    if judgement.outcome is Outcome.UNKNOWN and records.result is None and not records.has_steps:
        return f"has nothing to send: {judgement.reason or 'it left no figures, and how it ended is not known'}"
    return None


def _without_copies(looks: Sequence[Look]) -> list[Look]:
    """A run and a copy of its folder are one run, and would take each other's place: the run itself is sent.

    Raises:
        RequestError: nothing tells which of two is the run.
    """
    counts: dict[str, Look] = {}
    for one in looks:
        first = counts.setdefault(_key(one.records), one)
        if first is one or first.run.root.resolve() == one.run.root.resolve():
            continue
        better, copy = sorted((first, one), key=_doubt)
        if _doubt(better) == _doubt(copy):
            names = f"{first.run.run_id} and {one.run.run_id}"
            raise RequestError(f"nothing was sent: {names} are the same run, one a copy: name one.")
        pass_over(copy.run.root, f"a copy of {better.run.root}, which is sent")
        counts[_key(one.records)] = better
    chosen = {id(one) for one in counts.values()}
    return [one for one in looks if id(one) in chosen]


def _doubt(found: Look) -> int:
    return doubt(found.run, found.records.identity)


def _finished(found: Look) -> FinishedRun:
    records, outcome = found.records, found.judgement.outcome
    assert outcome is not None
    study = StudyRun.of_record(records.experiment.get("study"))
    began, ended = _times(records)
    config, summary = (_writable(without_secrets(one)) for one in (_config(records, study), _summary(found)))
    return FinishedRun(
        paths=found.run,
        key=_key(records),
        study=whole_text(study.study) if study is not None else None,
        outcome=outcome,
        started_at=began,
        ended_at=ended,
        config=config,
        summary=summary,
        digest=_digest(found.run, {"config": config, "summary": summary, "began": began, "ended": ended}),
    )


def _key(records: Records) -> str:
    """Of the submission, so that a renamed folder is the same run; of the plan where none drew a UUID, as in version 0.1."""
    identity = records.identity
    if identity is not None and identity.uuid is not None:
        said = f"{identity.uuid} {identity.array_task}"
        if not identity.has_job and identity.run_id is not None:  # a queue of this machine is several runs
            said += f" {identity.run_id}"
    else:
        said = json.dumps([records.run.run_id, records.experiment], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _digest(run: RunPaths, facts: Mapping[str, Any]) -> str:
    """Of all that is sent; reads the history once, so that what is damaged shows before anything is written."""
    sum_ = hashlib.sha256(json.dumps([SCHEMA, run.run_id, facts], sort_keys=True, default=str).encode())
    for point in history(run):
        sum_.update(repr((point.step, point.time, sorted(point.figures.items()))).encode())
    return sum_.hexdigest()


def _times(records: Records) -> tuple[float, float]:
    """When it began and ended, in Unix time, as well as that is known."""
    left = records.exit
    written = records.result.values.get("started_at") if records.result else None
    stated = [
        left.started_at if left else None,
        _moment(written),
        records.starts[-1].time if records.starts else None,
        records.identity.submitted_at if records.identity else None,
        _moment(records.experiment.get("created_at")),
        records.made_at,
    ]
    began = next((moment for moment in stated if moment), 1.0)
    elapsed = records.result.values.get("elapsed_s") if records.result else None
    ended = left.ended_at if left is not None and left.ended_at else began + (elapsed or 0.0)
    return began, max(began, ended)


def _moment(text: object) -> float | None:
    moment = moment_of(text) if isinstance(text, str) else None
    return moment if moment and 0 < moment < 1e11 else None


def _config(records: Records, study: StudyRun | None) -> dict[str, Any]:
    """The plan as it was recorded, and which programs and machine carried it out."""
    plan = nested_plan(flat_plan(mapping(records.experiment.get("plan"))))
    for section, name in _NOT_SENT:
        if isinstance(plan.get(section), dict):
            plan[section].pop(name, None)
    result = records.result.values if records.result else {}
    hardware = result.get("hardware")
    versions = {**mapping(records.experiment.get("versions")), **mapping(result.get("versions"))}
    return {
        **plan,
        "run_id": records.run.run_id,
        "versions": versions,
        "git_commit": records.experiment.get("git_commit"),
        "hardware": {name: value for name, value in mapping(hardware).items() if name != "host"},
        "study": {"name": study.study, "run": study.name, "smoke": study.smoke} if study is not None else None,
    }


def _summary(found: Look) -> dict[str, Any]:
    """What `parse` says of the run, and the further numbers of its result."""
    row = row_of(found, "")
    columns = {name: value for name, value in row.to_dict().items() if value is not None and name not in _OF_THE_PLACE}
    planned = mapping(found.records.plan)
    known = {n: v for n, v in columns.items() if n in _NAMED or (not isinstance(v, str) and n not in planned)}
    result = found.records.result.values if found.records.result else {}
    further = {n: v for n, v in _flat(result, "") if n not in columns and n != "schema" and is_figure(n, v)}
    unplanned = {n: v for n, v in further.items() if n not in planned and not n.startswith(("versions.", "hardware."))}
    return {**unplanned, **known}
