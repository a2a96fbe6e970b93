"""The answer: cause, confidence, evidence, what it means, what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpc_llm.causes.cause import Cause, Role
from hpc_llm.causes.found import Found
from hpc_llm.causes.log import LogFindings, overcome_in
from hpc_llm.causes.memory import CACHE_REMEDY, DEVICE_OOM, PAGE_LOCKED_REMEDY, SHARE_REMEDY
from hpc_llm.causes.program import NONE, PYTHON_EXCEPTION, UNKNOWN
from hpc_llm.causes.tensorflow_memory import HELD_BY_OTHERS
from hpc_llm.causes.verdict import KILLED, SURE, Verdict
from hpc_llm.causes.workload import SERVES, TRAINS
from hpc_llm.diagnosis import after_end, standard_library, unnamed
from hpc_llm.diagnosis.batch_systems import in_its_words, speaking
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.details import explain, of_the_node
from hpc_llm.diagnosis.device_memory import is_filled_by_others, is_refused
from hpc_llm.diagnosis.elsewhere import fit_for, in_other_words
from hpc_llm.diagnosis.environment import of_the_job
from hpc_llm.diagnosis.nccl_said import instead_of_asking
from hpc_llm.diagnosis.phases import meaning_in
from hpc_llm.diagnosis.remedies import BY_FACTS, BY_PLAN, filled, page_locked, without_what_it_has
from hpc_llm.diagnosis.silence import in_words
from hpc_llm.diagnosis.silent import of_others
from hpc_llm.text.secrecy import redacted

_SHOWN = 6
_OF_A_STEP = 20
"""Precedence of Slurm's word that it cancelled a step; what says less of who did it is below."""
_GUESSED = {
    "host_oom": f"{KILLED[:1].upper()}{KILLED[1:]}.",
    "device_oom": (
        "A library of the GPU did not get what it needs there, and nothing says why: most often the memory was full, or a call before had failed."
    ),
}
"""What a guess means, by its cause."""
_LIMIT_REACHED = (
    "The job reached the limit of its memory at some time, which by itself ends nothing: what ended it is not said."
)
_OF_AN_ENGINE = "The GPU's memory ran out: the model's weights and the cache of what it has read do not fit into the part that the program may use."
_CALL_FAILED = "A call of the program, or of a library that it uses, failed: the evidence says which."
_OF_SOMETHING = "The memory of the GPU or accelerator ran out: what the program keeps there does not fit."
_NOT_FULL = (
    "The GPU's memory was asked for and refused, though by these figures clearly more of it was free: the model does not fill it, and "
    "something else is in the way."
)
_SIGNALLED_EARLY = "The signal that the job had asked for told it that its time limit was near, and ended it while there was time to save."
_ENDED_BY_SIGNAL = (
    "The program was told to end by a signal, and nothing here says by whom: a time limit, a preemption, a person or a "
    "launcher."
)
_ASK_WHO = "ask the scheduler how the job ended, as with sacct -j JOB -o JobID,State,ExitCode,Elapsed,Timelimit"
_OVERCAME = "Whether it did all that it was to do, the output does not say."
_SEE_RESULTS = "see whether the results are whole: what failed on the way is in the evidence"
_RAISED = re.compile(r"^[^\n\"']{0,80}?\b\w{0,60}(?:Error|Exception): ")
"""What a traceback writes before a message that a record of the run holds alone."""
_NUMBER = re.compile(r"[\d.]+")
_OPEN = "Standard error alone does not say whether the job went on: give its output as well. Until then the run is listed as UNKNOWN."


@dataclass(frozen=True)
class Evidence:
    """A line that says so."""

    file: str
    line: int | None
    """Its number from 1; None where the text stands there several times and it is not known which it is."""
    text: str

    def __post_init__(self) -> None:
        # A program may have printed its environment, and what is shown here is shown to others.
        object.__setattr__(self, "text", redacted(self.text))


@dataclass(frozen=True)
class Diagnosis:
    """Why one run or log ended as it did."""

    source: str
    cause: Cause
    confidence: float
    """How sure, 0 to 1."""
    summary: str
    """What this failure's own numbers say; empty if nothing."""
    meaning: str
    remedy: str
    """One action a line, the first one first."""
    retry: bool
    """Whether the same job may be submitted again as it is."""
    evidence: tuple[Evidence, ...] = ()
    chain: tuple[str, ...] = ()
    """Ids from the root to its consequences; empty where nothing failed."""
    details: Mapping[str, str] = field(default_factory=dict)
    outcome: str | None = None
    """How `hpc-llm parse` lists it; None where it was not asked."""
    reason: str | None = None
    runs: tuple[Diagnosis, ...] = ()
    """Each run of a log that holds several, in order; the log's own diagnosis is the last one's."""
    several: str = ""
    """What to know of a log that holds several runs, where they are not listed here."""
    is_over: bool = True
    """Whether the job has ended: of one that waits or runs there is nothing to diagnose yet."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", redacted(self.summary))
        object.__setattr__(self, "details", {name: redacted(value) for name, value in self.details.items()})

    @property
    def is_in_doubt(self) -> bool:
        """Whether so little speaks for the cause that nobody can say whether the same job ends so again."""
        return self.confidence < SURE

    def to_dict(self) -> dict[str, Any]:
        """JSON types, with stable keys; `retry` is None where nobody can say."""
        return {
            "source": redacted(self.source),
            "cause": self.cause.id,
            "title": self.cause.title,
            "confidence": self.confidence,
            "summary": self.summary,
            "meaning": self.meaning,
            "evidence": [{"file": redacted(e.file), "line": e.line, "text": e.text} for e in self.evidence],
            "remedy": self.remedy,
            "retry": self.retry or (None if self.is_in_doubt else False),
            "chain": list(self.chain),
            "details": dict(self.details),
            "runs": [one._as_run() for one in self.runs],
        }

    def _as_run(self) -> dict[str, Any]:
        """What is said of one run of several: the keys of a diagnosis that `parse` has too, and its evidence."""
        shown = self.to_dict()
        kept = ("cause", "title", "confidence", "evidence", "remedy", "retry")
        return {"run_id": shown["source"], "outcome": self.outcome, "reason": self.reason} | {k: shown[k] for k in kept}


def conclude(source: str, logs: Sequence[LogFindings], verdict: Verdict, found: Sequence[Found]) -> Diagnosis:
    """The diagnosis of one job of which nothing but its logs is there."""
    made = _concluded(source, logs, verdict, found)
    said = [one.text for one in found] + [one.text for one in made.evidence]
    said += [log.last_line[1] for log in logs if log.last_line]
    return in_nccls_words(replace(made, remedy=in_its_words(made.remedy, speaking(said))), logs)


def in_nccls_words(made: Diagnosis, logs: Sequence[LogFindings]) -> Diagnosis:
    """With the line in which NCCL says what failed, where the advice is to let it say so."""
    remedy, line = instead_of_asking(made.remedy, logs)
    if line is None:
        return made
    shown = dict.fromkeys((*made.evidence[:1], Evidence(*line), *made.evidence[1:]))
    return replace(made, remedy=remedy, evidence=tuple(shown)[:_SHOWN])


def _concluded(source: str, logs: Sequence[LogFindings], verdict: Verdict, found: Sequence[Found]) -> Diagnosis:
    if verdict.root is None or not verdict.root.is_root:
        ended = verdict.cause is NONE
        summary = f"{in_words(logs, found, ended)} {_complaint(overcome_in(logs))}".strip()
        return _without_root(source, verdict, found, logs, summary, ended)
    made = _of_its_program(explained(source, verdict, found), verdict, logs)
    behind = after_end.told(made.cause.id, made.remedy, verdict.root, logs)
    if behind is None:
        return made
    return replace(made, summary=f"{made.summary} {behind[0]}".strip(), remedy=behind[1], retry=False)


def _of_its_program(made: Diagnosis, verdict: Verdict, logs: Sequence[LogFindings]) -> Diagnosis:
    """With advice and words that are right for what the program does, as far as its log says."""
    if not logs:
        return made
    does = {log.workload for log in logs if log.workload}
    workload = next(iter(does)) if len(does) == 1 else None
    meaning = made.meaning
    has_own_words = verdict.root is not None and verdict.root.sign.remedy is not None
    if meaning == DEVICE_OOM.meaning and (has_own_words or workload != TRAINS):
        meaning = _OF_AN_ENGINE if workload == SERVES and not has_own_words else _OF_SOMETHING
    return replace(made, meaning=meaning, remedy=fit_for(made.cause.id, made.remedy, workload))


def _complaint(overcome: Sequence[Found]) -> str:
    """What the script said of something that did not load, and went on without."""
    first = next(iter(overcome), None)
    return f"Its script went on after a complaint ({first.file}:{first.line}: {first.text.strip()})." if first else ""


def explained(
    source: str,
    verdict: Verdict,
    found: Sequence[Found],
    *,
    case: Case | None = None,
    is_ours: bool = False,
) -> Diagnosis:
    """The diagnosis of a job whose root is known. `case` is what is known of a run of ours beside the evidence."""
    if verdict.root is None or not verdict.root.is_root:
        return _without_root(source, verdict, found, (), "", False)
    summary, details = explain(verdict.root, found)
    if verdict.is_open:
        summary = f"{summary} {_OPEN}".strip()
    elif verdict.is_guess and verdict.outcome is not verdict.cause.outcome:
        summary = f"{summary} This is a guess, so the run is listed as {verdict.outcome.value}.".strip()
    others = of_others(details, case, verdict.root, found)
    details = {**(case.facts if case else {}), **details, **others}
    details |= of_the_node(verdict.root, found, details)
    # A fact may be a secret that stood where a name was expected, and an advice is shown to others as evidence is.
    details = {name: redacted(value) for name, value in details.items()}
    own = verdict.root.sign
    return Diagnosis(
        source=source,
        cause=verdict.cause,
        confidence=verdict.confidence,
        summary=summary,
        meaning=_meaning(verdict, details),
        remedy=_ASK_WHO
        if _is_only_signal(verdict)
        else of_the_job(_remedy(verdict, case and replace(case, facts=details), details, is_ours), details),
        retry=verdict.cause.retry if own.retry is None else own.retry,
        evidence=_evidence(verdict, found),
        chain=tuple(cause.id for cause in verdict.chain),
        details=details,
    )


def _meaning(verdict: Verdict, details: Mapping[str, str]) -> str:
    if verdict.root is not None and verdict.root.sign.meaning is not None:
        return verdict.root.sign.meaning
    if verdict.cause.id == "package_missing" and (of_python := standard_library.meaning_of(details)) is not None:
        return of_python
    if verdict.cause.id == "walltime" and "signalled_after_s" in details:
        return _SIGNALLED_EARLY
    if verdict.cause.id == "device_oom" and is_refused(details):
        return _NOT_FULL
    if verdict.cause.id == "device_oom" and is_filled_by_others(details):
        return HELD_BY_OTHERS
    if verdict.cause.id == "device_oom" and not _has_own_remedy(verdict) and (there := meaning_in(details)) is not None:
        return there
    if verdict.cause.id == "device_oom" and not verdict.is_guess and (details.get("engine") or _is_of_engine(verdict)):
        return _OF_AN_ENGINE
    if _is_only_signal(verdict):
        return _ENDED_BY_SIGNAL
    if verdict.cause is PYTHON_EXCEPTION and _has_own_remedy(verdict):
        return _CALL_FAILED
    if verdict.is_guess and verdict.root is not None and verdict.root.sign.at_any_time:
        return _LIMIT_REACHED
    return _GUESSED.get(verdict.cause.id, verdict.cause.meaning) if verdict.is_guess else verdict.cause.meaning


def _has_own_remedy(verdict: Verdict) -> bool:
    """Whether the text that shows the root has an advice of its own."""
    return verdict.root is not None and verdict.root.sign.remedy is not None


def _is_of_engine(verdict: Verdict) -> bool:
    """Whether the words themselves are those of a program that only infers."""
    return verdict.root is not None and verdict.root.sign.remedy in (CACHE_REMEDY, SHARE_REMEDY)


def _is_only_signal(verdict: Verdict) -> bool:
    """Whether all that is known is that a signal ended it, in words of the program, a launcher or a shell."""
    return (
        verdict.cause.id == "cancelled"
        and verdict.root is not None
        and verdict.root.precedence < _OF_A_STEP
        and verdict.root.position >= 0
    )


def unexplained(
    source: str, verdict: Verdict, found: Sequence[Found], logs: Sequence[LogFindings], completed: bool, summary: str
) -> Diagnosis:
    """The diagnosis of a run of ours of which no cause is known, or that has none."""
    return _without_root(source, verdict, found, logs, summary or in_words(logs, found, completed), completed)


def _remedy(verdict: Verdict, case: Case | None, details: Mapping[str, str], is_ours: bool) -> str:
    """What the evidence itself points at first, then what the plan or the facts say, then what helps in general."""
    cause, own = verdict.cause, verdict.root.sign.remedy if verdict.root else None
    if case is not None and own == PAGE_LOCKED_REMEDY:
        return "\n".join(page_locked(case))
    lines: list[str] = []
    if own is None and case is not None and cause.id in BY_PLAN:
        lines = BY_PLAN[cause.id](case)
    elif own is None and cause.id in BY_FACTS:
        lines = BY_FACTS[cause.id](details)
    if lines:
        return "\n".join(lines)
    remedy = filled(own or cause.remedy, details)
    if not is_ours:
        return in_other_words(cause.id, remedy, is_of_cause=own is None)
    return without_what_it_has(remedy, case.plan) if case else remedy


def _evidence(verdict: Verdict, found: Sequence[Found]) -> tuple[Evidence, ...]:
    """The root's line first, then others of its cause, then what confirms it or follows from it; each kind of line once."""
    root = verdict.root
    order = sorted(found, key=lambda f: (f is not root, f.cause is not verdict.cause, f.sign.role is Role.CASCADE))
    lines: dict[str, Evidence] = {}
    for one in order:
        if len(lines) >= _SHOWN:
            break
        if not any(_is_same(one.text, other.text) for other in lines.values()):
            lines.setdefault(_shape(one), Evidence(one.file, one.line, one.text))
    return tuple(lines.values())


def _is_same(text: str, other: str) -> bool:
    """Whether two lines say the same: a record repeats what the script printed, without our name before it."""
    return text.removeprefix("hpc-llm: ").strip() == other.removeprefix("hpc-llm: ").strip()


def _shape(one: Found) -> str:
    """Equal for what several ranks print of one event."""
    return f"{one.cause.id} {_NUMBER.sub('', _RAISED.sub('', one.text))[:60]}"


def _without_root(
    source: str,
    verdict: Verdict,
    found: Sequence[Found],
    logs: Sequence[LogFindings],
    summary: str,
    ended: bool,
) -> Diagnosis:
    """Nothing failed, or nothing is recognised: then the last line is all there is to show."""
    first = sorted(found, key=lambda one: one is not verdict.root)
    lines = [] if verdict.cause is NONE else [Evidence(one.file, one.line, one.text) for one in first[:_SHOWN]]
    for log in logs:
        last = log.ended_line if ended else log.last_line
        if last is not None and last[1] and not any((log.file, last[0]) == (one.file, one.line) for one in lines):
            lines.append(Evidence(log.file, *last))
    overcame = verdict.cause is not NONE and any(log.went_on for log in logs)
    meaning, remedy = (_OVERCAME, _SEE_RESULTS) if overcame else (verdict.cause.meaning, verdict.cause.remedy)
    if verdict.cause is UNKNOWN and not overcame and (died := unnamed.of_a_worker(found)) is not None:
        meaning, remedy = died
    word = unnamed.told(logs) if verdict.cause is UNKNOWN and not overcame else None
    if word is not None and (said := word[0].error_line) is not None:
        meaning, remedy = word[1:]
        shown = Evidence(word[0].file, *said)
        lines = [shown, *(one for one in lines if one != shown)]
    return Diagnosis(
        source=source,
        cause=verdict.cause,
        confidence=verdict.confidence,
        summary=summary,
        meaning=meaning,
        remedy=remedy,
        retry=verdict.cause.retry,
        evidence=tuple(lines[:_SHOWN]),
    )
