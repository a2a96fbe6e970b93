"""What can be known of a run whose folder is gone: the scheduler's queue, and this user's own note of the submission."""

from __future__ import annotations

from pathlib import Path

from hpc_llm.runs.adrift import homeless
from hpc_llm.schedulers.ledger import notes_of_place
from hpc_llm.schedulers.scheduler import find


def jobs_of_gone_run(name: str, logs: Path) -> list[str]:
    """The ids of jobs that hold a UUID of ours and print into the folder of a run of that name, which is gone from `logs`."""
    return [one.job_id for one in homeless(logs) if one.run_id == name and one.job_id is not None]


def of_gone_run(name: str, logs: Path) -> str | None:
    """Why no job of that run can be ended, and how a person does; None where this user has noted no such submission."""
    place = logs.absolute() / name
    for note in notes_of_place(str(place)):
        scheduler = find(note.scheduler)
        if scheduler.is_this_machine:
            continue
        _, silence = scheduler.jobs_under(place.parent)
        lists = (
            f"does not say what goes on ({' '.join(silence.split())})"
            if silence
            else "lists no job that is proven to be its own"
        )
        way = scheduler.way_to_end("JOB")
        return (
            f"the folder of run {name} is gone from {logs}, and {scheduler.title} {lists}: nothing was done. A job whose name ends in "
            f"-{note.uuid[:8]} is this run's{f': `{way}` ends it' if way else ''}."
        )
    return None
