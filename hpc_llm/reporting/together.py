"""Runs that shared a machine without a scheduler between them: each took time from the others, so none of them is the best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hpc_llm.errors import counted
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
    names = [str(run.row.run_id) for run, is_beside in zip(runs, beside, strict=True) if is_beside]
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [
        f"{counted(len(names), 'run')} of this report ran at the same time as others of it on one machine without a scheduler, which makes "
        f"each of them slower: no row that holds one is the best. {', '.join(names[:_NAMED])}{more}."
    ]


def _take_turns(one: ReportedRun, other: ReportedRun) -> bool:
    return (one.of_search or one.folder or 0) == (other.of_search or other.folder or 1)
