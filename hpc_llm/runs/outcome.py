"""How a run ended: the one judge that status, parse, diagnose and report ask. Pure: no clock, no file, no command.

Everything that is known becomes a sign of a cause, the causes' own rules pick the root, and the outcome is that cause's: so
the two cannot contradict each other. Nothing is remembered but evidence, so an answer follows whatever arrives late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpc_llm.causes.cause import STARTED
from hpc_llm.causes.found import Found
from hpc_llm.causes.program import NONE, UNKNOWN
from hpc_llm.causes.requeues import since, taken_down
from hpc_llm.causes.verdict import Verdict, decide, is_undone
from hpc_llm.records.run import EXIT_FILE, HALF_EXIT, Outcome
from hpc_llm.runs.killed import with_the_count
from hpc_llm.runs.known import Judgement, Known
from hpc_llm.runs.pending import explain_wait, wait_in_vain
from hpc_llm.runs.records import Records
from hpc_llm.runs.signs import ENDED_BY_SLURM, NAMED_BY_WORKER, is_weak_taking_down, of_invalid, signs_of
from hpc_llm.schedulers.job_record import JobRecord

GRACE_S = 60.0
"""How long files of a shared file system, or a job in Slurm's lists, may be late."""
ENDING = "ENDING"
"""The job is over, or its script has ended, and what they leave may still be on its way."""
_NOT_OVER = Verdict(NONE, 0.95, None, ())
_NOT_KNOWN = Verdict(UNKNOWN, 0.3, None, ())
_OF_THE_START = frozenset(
    "port_in_use gpu_missing gpu_shared driver_mismatch module_missing conda_not_initialised package_missing model_missing "
    "config_error python_exception".split()
)
"""Causes that keep a program from training, or show in a rank's own record."""
_WITHOUT_A_RECORD = frozenset("walltime preempted cancelled node_fail host_oom device_oom disk_full".split())
"""Causes for which a script may leave no record of its end."""


def judge(known: Known) -> Judgement:
    """What became of the run, from all that is known of it."""
    records = known.records
    if records.newer is not None:
        reason = f"written by a newer version ({records.newer}): update hpc-llm to see what became of it"
        return Judgement(state="UNKNOWN", outcome=Outcome.UNKNOWN, reason=reason, verdict=_NOT_KNOWN)
    return _not_over(known) or _ended(known)


def is_settled(records: Records) -> bool:
    """Whether the records alone say it all: nobody needs to be asked."""
    ended_well = records.exit is not None and records.exit.exit_code == 0 and not records.exit.signal
    return records.newer is not None or (records.is_whole and ended_well)


def needs_text(known: Known) -> bool:
    """Whether what the run printed may change the judgement."""
    records = known.records
    if records.newer is not None or records.is_whole or not records.has_output or _says_it_all(records):
        return False
    return _not_over(known) is None or _may_be_over(known)


def _says_it_all(records: Records) -> bool:
    """Whether the script or the worker itself names the cause, so that its output can only say the same at length."""
    if records.exit is None:
        return False
    return records.exit.stop is not None or any(one.outcome in NAMED_BY_WORKER for one in records.failures)


def _is_recent(moment: float | None, now: float) -> bool:
    """Whether it was within the grace. Clocks disagree, by hours too: what lies far ahead is old."""
    return moment is not None and -GRACE_S <= now - moment < GRACE_S


def _going(state: str, reason: str | None = None, remedy: str | None = None) -> Judgement:
    return Judgement(state=state, outcome=None, reason=reason, verdict=_NOT_OVER, remedy=remedy)


def _not_over(known: Known) -> Judgement | None:
    """The judgement on a run that is not over; None where it is."""
    records = known.records
    if is_settled(records):
        return None
    going = _job_goes_on(known) if known.job is not None else _goes_on_without_a_job(known)
    if going is not None:
        return going
    return _going(ENDING, "its files are not visible here yet") if _files_are_late(known) else None


def _job_goes_on(known: Known) -> Judgement | None:
    job, records = known.job, known.records
    if job is None or not job.is_live:
        return None
    if job.state == "PENDING":
        identity = records.identity
        if records.gone_from is not None:
            wait = wait_in_vain(records.gone_from, records.run.run_id)
        else:
            wait = explain_wait(job, identity.job_id if identity else None, known.now)
        return _going("PENDING", wait.sentence, wait.remedy)
    left = records.exit
    ended_at = left.ended_at if left else None
    if job.state not in ("RUNNING", "COMPLETING") or ended_at is None or ended_at < (job.started_at or 0.0):
        return _going(job.state)  # what its folder holds is of an earlier try
    if _is_recent(ended_at, known.now):
        return _going(ENDING, f"its script has ended, and {known.title} has not said how")
    return None


def _goes_on_without_a_job(known: Known) -> Judgement | None:
    records, identity = known.records, known.records.identity
    if known.is_silent and not records.is_whole and _may_be_queued_again(known):
        reason = f"{known.title} does not answer, and may have queued it again: {known.complaint}"
        return Judgement(state="UNKNOWN", outcome=None, reason=reason, verdict=_NOT_KNOWN)
    if records.exit is not None or (records.is_whole and not _script_goes_on(known)):
        return None
    if identity is None:
        return _being_submitted(known)
    if known.is_being_submitted:
        return _going("SUBMITTING")
    if not identity.has_job:
        local = known.local
        return None if local is None or local.is_gone else _going(local.state, local.reason, local.remedy)
    if known.elsewhere is not None:
        reason = f"it is a job of the {known.title} cluster {known.elsewhere}: look from there"
    elif known.doubt is not None:
        reason = known.doubt
    elif known.can_tell:
        if identity.job_id is None or records.is_cancelled or not _is_recent(identity.submitted_at, known.now):
            return None
        return _going("PENDING", f"not yet in {known.title}'s lists")
    else:
        reason = f"{known.title} does not answer: {known.complaint}"
    if _may_be_over(known) and _without_a_record(known) is not None:
        return None
    return Judgement(state="UNKNOWN", outcome=None, reason=reason, verdict=_NOT_KNOWN)


def _script_goes_on(known: Known) -> bool:
    """Whether its script still runs on this machine: a profile of further steps comes behind the result."""
    local = known.local
    return local is not None and local.state == "RUNNING" and local.reason is None and not local.is_gone


def _may_be_queued_again(known: Known) -> bool:
    """Whether the last that it says is that Slurm took it down for a reason after which it may start anew."""
    verdict = decide(_of_text(known), completed=False)
    return verdict.is_sure and verdict.cause.id in ("preempted", "node_fail")


def _being_submitted(known: Known) -> Judgement | None:
    records = known.records
    has_begun = records.has_output or records.has_steps or records.result is not None or records.failures
    if has_begun or records.is_cancelled or not _is_recent(records.made_at, known.now):
        return None
    return _going("SUBMITTING")


def _may_be_over(known: Known) -> bool:
    """Whether nobody can say that the job goes on, so that its own words may say that it does not."""
    identity = known.records.identity
    if known.job is not None or known.records.exit is not None or known.can_tell:
        return False
    return identity is None or identity.has_job


def _without_a_record(known: Known) -> Found | None:
    """The sign by which a run is over of which neither the scheduler nor the script says so."""
    records = known.records
    if records.result is not None and records.result.outcome is not Outcome.UNKNOWN and records.errors:
        return signs_of(records, None)[0]
    verdict = decide(_of_text(known), completed=False)
    sure = verdict.root if verdict.is_sure and verdict.cause.id in _WITHOUT_A_RECORD else None
    if sure is None and records.result is not None and records.result.outcome is not Outcome.UNKNOWN:
        return next(iter(signs_of(records, None)), None)
    return sure


def _files_are_late(known: Known) -> bool:
    """Whether the job is over and what it left may not be visible yet."""
    left, job, records = known.records.exit, known.job, known.records
    if known.ran_here or (job is not None and job.never_started):
        return False
    if left is not None and (left.ended_before_launch or not _lacks_result(records)):
        return False
    return _is_recent(_ended_at(known), known.now)


def _lacks_result(records: Records) -> bool:
    left = records.exit
    return left is not None and records.result is None and (left.exit_code == 0 or not records.failures)


def _ended_at(known: Known) -> float | None:
    job, left = known.job, known.records.exit
    if job is not None and job.ended_at is not None:
        return job.ended_at
    if job is not None and not job.is_live and job.started_at is not None and job.elapsed_s is not None:
        return job.started_at + job.elapsed_s
    return left.ended_at if left else None


def _ended(known: Known) -> Judgement:
    records = known.records
    job = known.job if known.job is not None and not known.job.is_live and not is_settled(records) else None
    if records.is_whole and records.result is not None:
        if records.result.outcome is not Outcome.INVALID and records.result.contradiction is None:
            return _completed(known, job)
        found = of_invalid(records.result)
        verdict = Verdict(found.cause, found.sign.confidence, found, (found.cause,))
        return _judgement(job, Outcome.INVALID, verdict.reason, verdict, [found])
    weighed = _weighed(known, job)
    verdict = decide(weighed, completed=False)
    if verdict.root is None or (_says_all_is_well(known, job) and not verdict.is_sure):
        nothing = replace(_NOT_KNOWN, confidence=0.5 if weighed else 0.3)
        return _judgement(job, Outcome.UNKNOWN, _why_unknown(known, job), nothing, weighed)
    reason, contradiction = _reason(verdict, weighed), records.result.contradiction if records.result else None
    reason = "; ".join(filter(None, (reason, contradiction))) or None
    return _judgement(job, verdict.outcome, reason, verdict, weighed)


def _reason(verdict: Verdict, weighed: Sequence[Found]) -> str | None:
    """The sentence of a record that says as much as the root, else the line that shows it."""
    root = verdict.root
    if root is None or root.reason is not None or not root.is_root:
        return verdict.reason
    same = (one for one in weighed if one.is_root and one.cause is root.cause and one.precedence >= root.precedence)
    return next((one.reason for one in same if one.reason is not None), verdict.reason)


def _completed(known: Known, job: JobRecord | None) -> Judgement:
    """The measurement is whole; what happened to the job afterwards does not take it back."""
    left, reason = known.records.exit, None
    if left is not None and (left.signal or left.exit_code != 0):
        how = f"SIG{left.signal}" if left.signal else f"exit code {left.exit_code}"
        reason = f"the result was already written when the job ended with {how}"
    elif left is None and job is not None and job.state != "COMPLETED":
        reason = f"the result was already written when the job ended with {job.state}"
    return _judgement(job, Outcome.COMPLETED, reason, _NOT_OVER, [])


def _judgement(
    job: JobRecord | None, outcome: Outcome, reason: str | None, verdict: Verdict, found: Sequence[Found]
) -> Judgement:
    words = {Outcome.OOM_DEVICE: "FAILED", Outcome.OOM_HOST: "OUT_OF_MEMORY", Outcome.INVALID: "COMPLETED"}
    state = job.state if job is not None else words.get(outcome, outcome.value)
    return Judgement(state=state, outcome=outcome, reason=reason or None, verdict=verdict, found=tuple(found))


def _says_all_is_well(known: Known, job: JobRecord | None) -> bool:
    left = known.records.exit
    ended_well = left is None or (left.exit_code == 0 and not left.signal)
    return ended_well and (job.state == "COMPLETED" if job is not None else left is not None)


def _why_unknown(known: Known, job: JobRecord | None) -> str:
    records, identity = known.records, known.records.identity
    if records.exit is not None:
        return "the job ended with exit code 0 and left no result"
    if job is not None:
        return f"{known.title} says {job.state}, and the job left neither a result nor a record of its end"
    if identity is None and not (records.has_output or records.has_steps or records.result or records.failures):
        return "it was never submitted: the command that made it was interrupted"
    if identity is None:
        return "no result and no record of its end: running elsewhere, or killed"
    if identity.job_id is None:
        return "it never became a job: `hpc-llm reconcile` clears it, or submits it where its sweep was begun"
    if not identity.has_job:
        return known.local.reason or "it left no record" if known.local else "it left no record of its end"
    return f"{known.title} no longer knows job {identity.job_id}, and its script left no record"


def _weighed(known: Known, job: JobRecord | None) -> list[Found]:
    """The signs that count, the records' before those of the text."""
    records, stated = known.records, signs_of(known.records, job)
    if records.identity is None and records.is_cancelled and records.exit is None and job is None:
        stated[-1].reason = "cancelled before it was submitted"
    roots = [one for one in stated if one.is_root]
    said = [one for one in _of_text(known) if not _is_overruled(one, known, job)]
    if job is not None and job.state not in ENDED_BY_SLURM:
        said = [one for one in said if not is_weak_taking_down(one)]
        roots = [one for one in roots if one.file in ("scheduler", EXIT_FILE) or not is_weak_taking_down(one)]
    if any(one.is_root for one in said):  # an empty record of the end is for where nothing else could be written
        roots = [one for one in roots if one.file != HALF_EXIT]
    rest = [one for one in stated if not one.is_root]
    # without a root the first of what was printed says more than an exit code
    return with_the_count([*roots, *said, *rest], records)


def _is_overruled(one: Found, known: Known, job: JobRecord | None) -> bool:
    """Whether it kept no program from training: steps were made, and no rank recorded an error."""
    if not known.records.has_steps:
        return False
    if one.sign.survived_after == STARTED:
        return True
    taken = job is not None and job.state in ENDED_BY_SLURM
    return taken and not known.records.errors and one.is_root and one.cause.id in _OF_THE_START


def _of_text(known: Known) -> list[Found]:
    """What the output says of the last try."""
    found = [
        one
        for log in known.logs or ()
        for one in since(last_start(known), log.found)
        if not is_undone(one, log.ended_at, completed=False)
    ]
    if known.records.exit is None and not known.records.starts and known.begun > max(1, taken_down(found)):
        return []  # it was started again since
    return found


def last_start(known: Known) -> float:
    """When the last of several tries began, in Unix time; 0 if there was one only."""
    records = known.records
    if len(records.starts) > 1:
        return records.starts[-1].time or 0.0
    if records.exit is not None and records.exit.restart_count:
        return records.exit.started_at or 0.0
    return 0.0
