"""Jobs whose runs are not where they were made: the folder is gone or renamed, and the job goes on printing to its place of old."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpc_llm.records.files import read_json
from hpc_llm.records.run import iter_runs
from hpc_llm.runs.local_orphans import local_orphans
from hpc_llm.runs.reconciliation import Deed, Reconciled
from hpc_llm.schedulers.answer import Printing
from hpc_llm.schedulers.ledger import notes_in
from hpc_llm.schedulers.runs import is_run_of
from hpc_llm.schedulers.scheduler import Scheduler, with_jobs
from hpc_llm.text.pasted import for_runs_in

_Told = tuple[Scheduler, list[Printing], "str | None"]
"""A scheduler, the jobs of ours that print into a folder, and why it did not answer."""


def homeless(logs: Path) -> list[Reconciled]:
    """Jobs of ours that write into `logs` and whose run folder is gone from it: nothing is done about them."""
    return _cut_off(logs, _told(logs))[0]


def cut_off(logs: Path) -> list[Reconciled]:
    """The same, and the runs whose folders were renamed while their jobs go on: a job prints to the name of old. And the folder itself,
    where a scheduler to which this user has submitted runs of it does not say what goes on."""
    told = _told(logs)
    gone, renamed = _cut_off(logs, told)
    silent = [(each, " ".join(silence.split()).rstrip(".")) for each, _, silence in told if silence]
    noted = {one.scheduler for one in notes_in(logs)} if silent else set()
    why = "whether a job goes on whose folder is gone or renamed, for {} does not answer: {}. Ask again later"
    return [
        *gone,
        *renamed,
        *(
            Reconciled(str(logs), Deed.UNKNOWN, why=why.format(each.title, silence))
            for each, silence in silent
            if each.name in noted
        ),
    ]


def _told(logs: Path) -> list[_Told]:
    return [(each, *each.jobs_under(logs.absolute())) for each in with_jobs()]


def _cut_off(logs: Path, told: Sequence[_Told]) -> tuple[list[Reconciled], list[Reconciled]]:
    printing = (one for _, jobs, _ in told for one in jobs)
    adrift = [one for one in printing if not is_run_of(one.folder, one.uuid)]
    adrift += [Printing(one.job_id, one.script.uuid, one.folder) for one in local_orphans(logs)]
    names = _names_now(logs, {one.uuid for one in adrift})
    gone = [(one.job_id, one.folder) for one in adrift if one.uuid not in names]
    why = "its folder is gone, and its job goes on: `hpc-llm cancel {}` ends it"
    back = "it was made as {}, where its job prints: rename it back, or `hpc-llm cancel {}` ends the job"
    return [Reconciled(folder.name, Deed.LEFT, job_id, why.format(job_id)) for job_id, folder in gone], [
        Reconciled(name, Deed.LEFT, one.job_id, for_runs_in(logs, back.format(one.folder.name, name)))
        for one in adrift
        for name in names.get(one.uuid, {}).get(one.folder.name, [])
    ]


def _names_now(logs: Path, uuids: set[str]) -> dict[str, dict[str, list[str]]]:
    """Of the submissions `uuids` the folders in `logs` that do not bear the name of their run: UUID, that name, their own."""
    found: dict[str, dict[str, list[str]]] = {}
    for run in iter_runs(logs) if uuids else ():
        record = read_json(run.job) or {}
        uuid, name = record.get("uuid"), record.get("run_id")
        if uuid in uuids and isinstance(name, str) and name != run.run_id:
            found.setdefault(str(uuid), {}).setdefault(name, []).append(run.run_id)
    return found
