"""The diagnosis of a run of ours: the judge's word, explained with the lines that show it and the plan's own numbers."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpc_llm.causes.found import Found
from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.program import UNKNOWN
from hpc_llm.causes.requeues import since
from hpc_llm.causes.verdict import first_of
from hpc_llm.diagnosis.askable import askable
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.details import named_by_srun
from hpc_llm.diagnosis.diagnosis import Diagnosis, Evidence, explained, in_nccls_words, unexplained
from hpc_llm.diagnosis.environment import facts_of, job_python
from hpc_llm.diagnosis.going_on import from_the_beginning, with_way_on
from hpc_llm.diagnosis.inputs import diagnose_files
from hpc_llm.diagnosis.silent import node_names
from hpc_llm.errors import RequestError
from hpc_llm.planning import tasks
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.checkpoints import kept_in, last_sound, not_finite_from
from hpc_llm.records.files import read_json, read_text
from hpc_llm.records.run import Outcome, RunPaths, is_run
from hpc_llm.runs.looks import AT_ONCE, Look, look
from hpc_llm.runs.outcome import last_start
from hpc_llm.runs.printed import read_output
from hpc_llm.runs.progress import read_pace
from hpc_llm.runs.records import Records
from hpc_llm.site.cluster import Cluster, load_cluster
from hpc_llm.site.profiles import find_file
from hpc_llm.text.pasted import for_runs_in

_COUNTED = (
    "nodes",
    "world_size",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "global_batch_size",
    "sequence_length",
)
"""Of a plan; without these, or with some that cannot be, no advice has numbers."""
_LARGEST_EVIDENCE = 1 << 20
"""Bytes of a record in which a line is looked for."""


def diagnose_run(run: RunPaths) -> Diagnosis:
    """The diagnosis of a run from its folder and from what the scheduler says, which may not answer."""
    return next(diagnose_runs([run]))


def diagnose_runs(runs: Iterable[RunPaths]) -> Iterator[Diagnosis]:
    """The diagnosis of each run, in their order."""
    return map(explain_look, look(runs))


def diagnose_jobs(jobs: Iterable[Sequence[Path]]) -> Iterator[Diagnosis]:
    """The diagnosis of each job of `jobs_under`, in their order; runs of ours are looked at many at a time."""
    waiting: list[RunPaths] = []
    for paths in jobs:
        if is_run(paths[0]):
            waiting.append(RunPaths(paths[0].absolute()))
            if len(waiting) == AT_ONCE:
                yield from diagnose_runs(waiting)
                waiting = []
            continue
        yield from diagnose_runs(waiting)
        waiting = []
        yield diagnose_files(paths)
    yield from diagnose_runs(waiting)


def explain_look(found: Look) -> Diagnosis:
    """Explain what the judge said of one run, and how it goes on where it has kept a checkpoint."""
    made = _with_way_on(found)
    named = re.sub(r"(?<=--resume )RUN\b", lambda _: found.run.run_id, made.remedy)  # the cause's own words know no run
    if isinstance(tries := found.records.plan.get("most_tries"), int):
        named = named.replace("most_tries=N", f"most_tries={2 * tries}")
    remedy = askable(named, found.records.identity, [one.text for one in made.evidence])
    return replace(made, remedy=for_runs_in(found.run.root.parent, remedy))


def _with_way_on(found: Look) -> Diagnosis:
    made, over = _explained(found), found.judgement.is_over
    kept = kept_in(found.run.root) if over and found.judgement.outcome is not Outcome.COMPLETED else []
    if not kept:
        return made
    lost = not_finite_from(found.run)
    start = last_sound(kept, lost)
    if lost is not None and start is None:
        pace = read_pace(found.run.steps)
        is_its_start = pace is not None and 0 < pace.before == lost - 1
        return replace(made, remedy=from_the_beginning(made, lost, is_its_start))
    step = (start or kept[-1]).step
    submit = "hpc-llm submit" if (read_json(found.run.experiment) or {}).get("asked") else "hpc-llm submit …"
    remedy = with_way_on(made, f"{submit} --resume {found.run.run_id}", step, lost)
    return replace(made, remedy=remedy, details={**made.details, "kept_step": str(step)})


def _explained(found: Look) -> Diagnosis:
    judgement, name = found.judgement, found.run.run_id
    verdict = judgement.verdict
    if not judgement.is_over:
        return _not_over(found)
    if verdict.root is not None and verdict.root.is_root:
        shown = [*judgement.found, *_more_of_the_same(found)]
        verdict = replace(verdict, root=first_of(verdict.root, shown))
        made = explained(name, verdict, shown, case=_case(found), is_ours=True)
        if "NCCL_DEBUG=" in made.remedy:
            made = in_nccls_words(made, found.known.logs if found.known.logs is not None else _output(found))
        return replace(made, evidence=tuple(_placed(found.run, made.evidence)))
    completed = judgement.outcome is Outcome.COMPLETED
    logs = found.known.logs if found.known.logs is not None else _output(found)
    if completed:
        of_last = [replace(log, found=since(last_start(found.known), log.found)) for log in logs]
        return unexplained(name, verdict, (), of_last, True, _went_on(found.records))
    summary = "" if found.known.logs and judgement.reason is None else _sentence(judgement.reason)
    made = unexplained(name, verdict, judgement.found, logs, False, summary)
    is_silent = made.meaning == UNKNOWN.meaning
    return replace(made, meaning="Neither its records nor its output say more.") if is_silent else made


def _went_on(records: Records) -> str:
    """What a run overcame that came to its end."""
    again = max(len(records.starts) - 1, records.exit.restart_count if records.exit is not None else 0)
    return (
        f"Its job was taken down and started again {'once' if again == 1 else f'{again} times'}, and went on."
        if again > 0
        else ""
    )


def _more_of_the_same(found: Look) -> list[Found]:
    """Lines of the output that say the same, where the records settled it and nobody read the output for that."""
    if found.known.logs is not None or found.records.is_whole:
        return []
    return [one for log in _output(found) for one in log.found if one.cause is found.judgement.cause]


def _not_over(found: Look) -> Diagnosis:
    judgement = found.judgement
    made = unexplained(found.run.run_id, judgement.verdict, (), (), True, "")
    if judgement.state == "UNKNOWN":
        return replace(made, summary=_sentence(judgement.reason), is_over=False)
    state = f"The run is not over: {judgement.state}."
    why = f" {_sentence(judgement.reason)}" if judgement.reason and judgement.remedy else ""
    remedy = judgement.remedy or "wait for it: `hpc-llm status --watch`"
    return replace(made, summary=state + why, meaning="", remedy=remedy, is_over=False)


def _sentence(reason: str | None) -> str:
    return f"{reason.rstrip('.')}." if reason else ""


def _output(found: Look) -> list[LogFindings]:
    return read_output(found.run)[0] if found.records.has_output else []


def _case(found: Look) -> Case | None:
    if any(found.records.plan.get(name) is None for name in _COUNTED):
        return None
    with contextlib.suppress(RequestError):  # a task of another package says so which fields it adds to a plan
        tasks.find(str(found.records.plan.get("task")))
    try:
        plan = Plan.from_dict(found.records.plan)
    except (RequestError, TypeError):
        return None
    cluster, facts = _cluster(plan.cluster), {**_facts(found), "cluster": plan.cluster}
    if cluster is not None:
        facts |= facts_of(cluster.on(cluster.partition(plan.job.partition)), plan.parallel.nodes)
    hosts = {
        one.rank: one.host.partition(".")[0] for one in found.records.failures if one.host and one.rank is not None
    }
    nodes = node_names(found.job.nodes) if found.job and found.job.nodes else ()
    return Case(plan=plan, facts=facts, cluster=cluster, nodes=nodes, hosts=hosts)


def _cluster(name: str) -> Cluster | None:
    """The profile of that name as it is now; None where it is not here any more, or is wrong by now."""
    try:
        path = find_file("clusters", name)
        return _loaded(name, path, path.stat().st_mtime_ns)
    except (RequestError, OSError):
        return None


@functools.lru_cache(maxsize=32)
def _loaded(name: str, path: Path, changed_at: int) -> Cluster:
    """Read once for all runs of a command."""
    return load_cluster(name)


def _facts(found: Look) -> dict[str, str]:
    facts: dict[str, str] = {}
    node = _node(found)
    if node:
        facts["node"] = node
    if python := job_python(found.run):
        facts["python"] = python
    left = found.records.exit
    if left is not None and left.was_signalled_early and left.elapsed_s is not None:
        facts["signalled_after_s"] = f"{left.elapsed_s:.0f}"
    if (kept := kept_in(found.run.root)) and (start := last_sound(kept, not_finite_from(found.run))):
        facts["kept_step"] = str(start.step)
    pace = read_pace(found.run.steps, found.records.plan) if found.records.has_steps else None
    if pace and pace.step:
        facts["steps_made"] = str(pace.step)
        if pace.before:
            facts["steps_before"] = str(pace.before)
        began = _began(found)
        if pace.step_time_s and pace.ended_at and began is not None and pace.ended_at >= began:
            facts |= {"step_time_s": f"{pace.step_time_s:.6g}", "steps_ended_s": f"{pace.ended_at - began:.3f}"}
            if (start_up := pace.start_up_s(began)) is not None:
                facts["steps_began_s"] = f"{start_up:.3f}"
    return facts


def _began(found: Look) -> float | None:
    """Unix time at which the try began, of which the steps tell."""
    exit_record = found.records.exit
    if exit_record is not None and exit_record.started_at is not None:
        return exit_record.started_at
    return found.job.started_at if found.job else None


def _node(found: Look) -> str | None:
    """The node to blame, as Slurm calls it: that of a job on one node, that of the rank that failed first, or the one that srun names.

    The record of the script's end names the first node of several, which need not be the one that failed. Where Slurm lost a node no
    rank's record comes of it: who left one lived.
    """
    nodes = found.job.nodes if found.job else None
    if nodes and "," not in nodes and "[" not in nodes:
        return nodes
    records, is_lost = found.records, found.judgement.cause.id == "node_fail"
    host = records.failures[0].host if records.failures and not is_lost else None
    if host is None and records.plan.get("nodes") == 1 and records.exit is not None:
        host = records.exit.host
    if host is not None:
        return host.partition(".")[0]  # a host may give its full name, which Slurm does not know
    return None if is_lost else _named_by_srun(found)


def _named_by_srun(found: Look) -> str | None:
    root = found.judgement.verdict.root
    return named_by_srun(found.judgement.found, None if root is None else root.rank)


def _placed(run: RunPaths, evidence: Iterable[Evidence]) -> Iterator[Evidence]:
    """The evidence, that of records at the line on which it stands there."""
    for one in evidence:
        is_record = one.file.endswith(".json")
        yield replace(one, line=_line_of(run.root / one.file, one.text)) if is_record else one


def _line_of(path: Path, text: str) -> int:
    """The line of a record that holds `text`, or of `TYPE: MESSAGE` the message; JSON may have quoted it. Else 1."""
    lines = (read_text(path, _LARGEST_EVIDENCE) or "").splitlines()
    for part in (text, text.partition(": ")[2]):
        words = json.dumps(part, ensure_ascii=False)[1:-1][:60]
        for number, line in enumerate(lines, 1):
            if words and words in line:
                return number
    return 1
