"""Runs whose rate is not that of their method: beside others on one machine, or of steps of which a few took far longer. None is the best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hpc_llm.errors import counted
from hpc_llm.parsing.rows import TRAIN
from hpc_llm.records.adapted import adaptations_of, in_short
from hpc_llm.records.metrics import is_unsteady
from hpc_llm.reporting.collect import ReportedRun

_NAMED = 3


def beside_others(runs: Sequence[ReportedRun]) -> list[bool]:
    """Of each run, whether another one of the report ran on its machine meanwhile; the tries of one search take turns."""
    found = [False] * len(runs)
    of_machine: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for i, run in enumerate(runs):
        if (here := run.ran_here) is not None:
            of_machine[here.host].append((here.began, here.ended, i))
    for members in map(sorted, of_machine.values()):
        for at, (_, ended, i) in enumerate(members):
            for began, _, j in members[at + 1 :]:
                if began >= ended:
                    break
                if not _take_turns(runs[i], runs[j]):
                    found[i] = found[j] = True
    return found


def note_of(runs: Sequence[ReportedRun], beside: Sequence[bool]) -> list[str]:
    """Which they are, in a sentence."""
    return _told(
        runs,
        beside,
        "{runs} of this report ran at the same time as others of it on one machine without a scheduler, which makes each of them slower: no "
        "row that holds one is the best.",
    )


def unsteady(runs: Sequence[ReportedRun]) -> list[bool]:
    """Of each run that trains, whether a few of its steps decide its rate."""
    return [run.row.kind == TRAIN and is_unsteady(run.row.step_time_s_mean, run.row.step_time_s_p50) for run in runs]


def note_of_unsteady(runs: Sequence[ReportedRun]) -> list[str]:
    """Which they are, in a sentence."""
    return _told(
        runs,
        unsteady(runs),
        "Of {runs} the mean step takes more than twice the median (Step p50): a few steps, slowed by something else, decide its tokens/s, and "
        "no row that holds one is the best.",
    )


def note_of_adapted(runs: Sequence[ReportedRun]) -> list[str]:
    """What ran otherwise than planned because of the node, with the runs that did, in a sentence."""
    names: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for sentence in adaptations_of(run.result):
            names[in_short(sentence)].append(str(run.row.run_id or run.row.source))
    told = [f"{said} ({', '.join(of[:_NAMED])}{_more(of)})" for said, of in list(names.items())[:_NAMED]]
    return [f"Adapted to the node, otherwise than planned: {'; '.join(told)}{_more(list(names))}."] if told else []


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""


def _told(runs: Sequence[ReportedRun], which: Sequence[bool], words: str) -> list[str]:
    """The sentence with how many they are, and the first few by name; nothing where there are none."""
    names = [str(run.row.run_id or run.row.source) for run, is_one in zip(runs, which, strict=True) if is_one]
    return (
        [f"{words.format(runs=counted(len(names), 'run'))} {', '.join(names[:_NAMED])}{_more(names)}."] if names else []
    )


def _take_turns(one: ReportedRun, other: ReportedRun) -> bool:
    return (one.of_search or one.folder or 0) == (other.of_search or other.folder or 1)
