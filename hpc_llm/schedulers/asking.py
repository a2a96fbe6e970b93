"""One question about many runs, of whatever schedulers: each is asked for its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hpc_llm.errors import ProfileError
from hpc_llm.schedulers.answer import Answer
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.scheduler import find


@dataclass(frozen=True)
class Answers:
    """What the schedulers said about the runs asked for."""

    by_scheduler: Mapping[str, Answer] = field(default_factory=dict)

    def of(self, identity: Identity) -> Answer:
        """The answer of the run's own scheduler; one that says nothing where it was not asked."""
        return self.by_scheduler.get(identity.scheduler, Answer())

    def job_id_of(self, identity: Identity) -> str | None:
        """The job id of a run of which nobody knew it."""
        return self.of(identity).job_ids.get(identity.key)


def ask(identities: Iterable[Identity]) -> Answers:
    """What the schedulers know of these runs; each is asked once, for those of its runs that are jobs."""
    return Answers({name: _ask(name, wanted) for name, wanted in _by_scheduler(identities).items()})


def queued(identities: Collection[Identity]) -> tuple[dict[object, JobRecord], dict[str, str]]:
    """What is queued or runs of these, by `Identity.key`, and by its name what a scheduler complains about that is silent."""
    found: dict[object, JobRecord] = {}
    complaints: dict[str, str] = {}
    for name, wanted in _by_scheduler(identities).items():
        try:
            records, complaint = find(name).queued(wanted)
        except ProfileError as error:
            records, complaint = {}, str(error)
        if complaint:
            complaints[name] = complaint
        found |= records
    return found, complaints


def _by_scheduler(identities: Iterable[Identity]) -> dict[str, list[Identity]]:
    groups: dict[str, list[Identity]] = {}
    for one in identities:
        if one.has_job:
            groups.setdefault(one.scheduler, []).append(one)
    return groups


def _ask(name: str, identities: Collection[Identity]) -> Answer:
    try:
        return find(name).ask(identities)
    except ProfileError as error:
        return Answer(answered=False, complaint=str(error))
