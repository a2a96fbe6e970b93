"""Looking at runs: their records, one question to the scheduler for many of them, their output, and the judge's word.

Everything that says what became of a run asks here. The runs pass in chunks, so that ten thousand need no more memory than a
few hundred.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

from hpc_llm.errors import pass_over
from hpc_llm.records.files import reason_of
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.adoption import adopt, has_begun, is_being_asked
from hpc_llm.runs.finality import is_for_good, is_proven
from hpc_llm.runs.known import Judgement, Known
from hpc_llm.runs.local_process import local_state
from hpc_llm.runs.outcome import is_settled, judge, needs_text
from hpc_llm.runs.printed import read_output
from hpc_llm.runs.reading import read_records
from hpc_llm.runs.records import SCHEMA, Damage, KeptRecord, Records
from hpc_llm.schedulers.answer import Answer
from hpc_llm.schedulers.asking import Answers, ask
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.local.marks import Living, living
from hpc_llm.text.pasted import for_runs_in

AT_ONCE = 500
_LONGEST_KEEPING_S = 0.3
"""A look never spends more on keeping what Slurm said of one chunk; the next look asks and keeps again."""
_DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look at a run found."""

    run: RunPaths
    known: Known
    judgement: Judgement

    @property
    def records(self) -> Records:
        return self.known.records

    @property
    def job(self) -> JobRecord | None:
        """The scheduler's record."""
        return self.known.job


def look(runs: Iterable[RunPaths], now: float | None = None) -> Iterator[Look]:
    """What became of each of `runs`, in their order; `now` is Unix time, the clock's by default."""
    rest, schedulers = iter(runs), _Schedulers()
    while chunk := list(islice(rest, AT_ONCE)):
        yield from _look_at(chunk, now, schedulers)


class _Schedulers:
    """Asks for one chunk of runs after the other; one that gave no answer at all is not asked again for the next."""

    def __init__(self) -> None:
        self._silent: dict[str, Answer] = {}

    def ask(self, wanted: Sequence[Identity]) -> Answers:
        answers = ask(one for one in wanted if one.scheduler not in self._silent)
        told = {**self._silent, **answers.by_scheduler}
        self._silent = {name: one for name, one in told.items() if not one.answered and not one.records}
        return Answers(told)


def _look_at(runs: Sequence[RunPaths], now: float | None, schedulers: _Schedulers) -> Iterator[Look]:
    records = [_read(run) for run in runs]
    moment = time.time() if now is None else now
    wanted = [one for one in map(_to_ask_for, records) if one is not None]
    answers = schedulers.ask(wanted)
    asked: set[object] = {one.key for one in wanted}
    adopt(((one.run, one.identity) for one in records if one.identity is not None), answers)
    records = [_with_job(one, answers) for one in records]
    _keep(records, answers, asked, moment)
    host = socket.gethostname()
    here = living() if any(map(_is_open_here, records)) else Living()
    for one in records:
        known = _with_output(_known(one, answers, asked, moment, host, here))
        yield Look(run=one.run, known=known, judgement=_told(judge(known), one.run))


def _told(judgement: Judgement, run: RunPaths) -> Judgement:
    """The same, in which the commands that are advised look where the run lies."""
    if judgement.reason is None:
        return judgement
    return replace(judgement, reason=for_runs_in(run.root.parent, judgement.reason))


def _read(run: RunPaths) -> Records:
    try:
        records = read_records(run)
    except OSError as error:  # the folder is gone, or somebody else's
        damage = Damage(file="", why=reason_of(error))
        records = Records(run=run, experiment={}, plan={}, damages=(damage,))
    if records.damages:
        first, more = records.damages[0], len(records.damages) - 1
        pass_over(run.root / first.file, f"{first.why}, and {more} more of this run" if more else first.why)
    return records


def _with_job(records: Records, answers: Answers) -> Records:
    """The same, of which the scheduler told the job id if nobody had written it down."""
    identity = records.identity
    job_id = answers.job_id_of(identity) if identity is not None else None
    return records if identity is None or job_id is None else replace(records, identity=identity.with_job(job_id))


def _to_ask_for(records: Records) -> Identity | None:
    """The job to ask the scheduler for; None where nothing that it may say matters, or it has said all."""
    identity = records.identity
    if identity is None or not identity.has_job or is_settled(records):
        return None
    return None if records.kept is not None and is_for_good(records.kept, records) else identity


def _is_open_here(records: Records) -> bool:
    return records.identity is not None and not records.identity.has_job and records.exit is None


def _known(records: Records, answers: Answers, asked: set[object], now: float, host: str, here: Living) -> Known:
    identity = records.identity
    kept = records.kept.record if records.kept and not records.kept.record.is_revoked else None
    known = Known(records=records, now=now, job=kept, ran_here=records.host == host)
    if identity is None:
        return known
    if not has_begun(records):
        known = replace(known, is_being_submitted=is_being_asked(records.run, identity))
    if not identity.has_job:
        state = local_state(records, here) if records.exit is None else None
        if state is not None and state.is_gone and records.run.exit.exists():  # it ended after its records were read
            records = _read(records.run)
            known, state = replace(known, records=records), state if records.exit is None else None
        return replace(known, job=None, local=state, ran_here=known.ran_here or state is not None)
    if identity.key not in asked:
        return known
    answer = answers.of(identity)
    told = answer.record_of(identity)
    revoked = told is not None and told.is_revoked
    can_tell = answer.can_tell(identity)
    if kept is not None and not can_tell and records.kept is not None and not is_proven(records.kept, records):
        kept = None
    return replace(
        known,
        job=kept if revoked else told or kept,
        can_tell=can_tell,
        complaint=answer.complaint,
        is_silent=answer.is_silent,
        doubt=answer.doubts.get(identity.key),
        elsewhere=answer.belongs_to(identity) or ("that its federation has given it to" if revoked else None),
    )


def _with_output(known: Known) -> Known:
    if not needs_text(known):
        return known
    logs, begun = read_output(known.records.run)
    return replace(known, logs=logs, begun=begun)


def _keep(records: Sequence[Records], answers: Answers, asked: set[object], now: float) -> None:
    """Keep final records of schedulers with their runs: sites forget their jobs after days. Best effort."""
    deadline = time.monotonic() + _LONGEST_KEEPING_S
    for one in records:
        identity = one.identity
        job = answers.of(identity).record_of(identity) if identity is not None and identity.key in asked else None
        if identity is None or identity.key not in asked:
            continue
        if job is None and one.kept is not None and answers.of(identity).can_tell(identity):
            job = one.kept.record  # that the scheduler has forgotten it says once more that it is over
        if job is None or job.is_live or job.is_revoked or not _is_news(job, one.kept, now):
            continue
        if time.monotonic() > deadline:
            return
        since = one.kept.since if one.kept is not None and one.kept.record == job else now
        kept = {"schema": SCHEMA, "uuid": identity.uuid, "job_id": identity.job_id, "asked_at": now, "since": since}
        with contextlib.suppress(OSError):  # somebody else's run, or a full disk: it can be asked for again
            one.run.write(one.run.scheduler_record, {**kept, "record": asdict(job)})


def _is_news(job: JobRecord, kept: KeptRecord | None, now: float) -> bool:
    """Whether it says something else than what is kept, or says it late enough to be for good."""
    if kept is None or kept.record != job or kept.asked_at is None:
        return True
    ended_at = job.ended_at if job.ended_at is not None else kept.since
    return ended_at is not None and kept.asked_at - ended_at <= _DAY_S < now - ended_at
