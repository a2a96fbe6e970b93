"""The output and the errors of one job, in two files that their names tell to be one job's: they are one run, and one row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpc_llm.causes.found import OF_SHELLS
from hpc_llm.causes.log import LogFindings, verdict_on
from hpc_llm.parsing.read import Reading
from hpc_llm.parsing.rows import FIGURES, UNKNOWN_FORMAT, Row
from hpc_llm.parsing.summary import ended_of
from hpc_llm.records.run import Outcome
from hpc_llm.text import sources
from hpc_llm.text.blocks import open_blocks

_ERRORS = re.compile(
    r"(?P<err>\.err|\.e(?P<job>\d{1,18})|(?P<std>stderr)(?P<text>\.txt|\.log)?)(?P<packed>\.(?:gz|xz|zst|bz2))?\Z"
)
_OF_THE_RUN = "job_id started_at gpu cluster model precision nodes gpus_per_node world_size sequence_length".split()
"""Facts that either file may state."""

Read = tuple[list[Reading], int]


def pairs(paths: Iterable[Path]) -> dict[str, str]:
    """The files of errors among `paths`, each with the file of its job's output.

    >>> pairs(map(Path, ["a.out", "a.err", "b.o7", "b.e7", "c.log", "c.err", "stdout.txt", "stderr.txt", "d.err"]))
    {'a.err': 'a.out', 'b.e7': 'b.o7', 'c.err': 'c.log', 'stderr.txt': 'stdout.txt'}
    """
    given = list(map(str, paths))
    known = set(given)
    found = ((one, next((name for name in _outputs(one) if name in known), None)) for one in given)
    return {errors: output for errors, output in found if output is not None}


def _outputs(errors: str) -> Sequence[str]:
    """The names that the output beside such a file may have."""
    said = _ERRORS.search(errors)
    if said is None:
        return ()
    stem, packed = errors[: said.start()], said["packed"] or ""
    if said["job"]:
        return (f"{stem}.o{said['job']}{packed}",)
    if said["std"]:
        return (f"{stem}stdout{said['text'] or ''}{packed}",)
    return (f"{stem}.out{packed}", f"{stem}.log{packed}")


def together(read: Iterable[Read], errors: dict[str, str]) -> Iterator[Read]:
    """What was read, with the two files of one job as one; the first of them waits for the other."""
    outputs = set(errors.values())
    waiting: dict[str, Reading] = {}
    for readings, size in read:
        ready: list[Reading] = []
        for one in readings:
            output = errors.get(one.source, one.source)
            if output not in outputs:
                ready.append(one)
            elif output in waiting:
                ready += _of_one_job(*sorted((waiting.pop(output), one), key=lambda it: it.source in errors))
            else:
                waiting[output] = one
        yield ready, size
    yield list(waiting.values()), 0


def _of_one_job(output: Reading, errors: Reading) -> list[Reading]:
    """The two readings, the rows of both in one of them; as they are where it is not certain which belong together."""
    main, other = sorted((output, errors), key=_figures, reverse=True)
    is_unclear = len(other.rows) != 1 or (len(main.rows) > 1 and not _is_silent(other.rows[0]))
    if is_unclear or len(main.rows) == 0:
        return [output, errors]
    if len(main.rows) == 1:
        named = replace(main.rows[0], source=output.source, run_id=output.rows[0].run_id)
        main.rows = [_joined(named, other.rows[0], output.source, errors.source)]
    return [main, replace(other, rows=[], samples=[])]


def _figures(reading: Reading) -> tuple[int, bool]:
    count = sum(getattr(row, name) is not None for row in reading.rows for name in FIGURES)
    return count, any(row.format != UNKNOWN_FORMAT for row in reading.rows)


def _is_silent(row: Row) -> bool:
    """Whether it says nothing of how the run ended."""
    return row.outcome == Outcome.UNKNOWN.value


def _is_complaint(row: Row) -> bool:
    """Whether it ends with what a shell says of its environment: the other file may show that the job went on."""
    return row.cause in OF_SHELLS and row.outcome in (Outcome.UNKNOWN.value, Outcome.FAILED.value)


def _joined(main: Row, other: Row, output: str, errors: str) -> Row:
    """One row of both: the figures of one file, what both say of the run, and how it ended by both together."""
    more = {name: getattr(other, name) for name in _OF_THE_RUN if getattr(main, name) is None}
    row = replace(main, **more)
    is_told = not _is_silent(other) and (other.outcome, other.cause) != (main.outcome, main.cause)
    if not (is_told or _is_complaint(main) or (_is_complaint(other) and main.outcome == Outcome.FAILED.value)):
        return row
    found = [_findings(name) for name in (output, errors)]
    verdict, _ = verdict_on(found)
    if verdict.outcome is not Outcome.UNKNOWN and main.invalid_reason is None:
        ended = main.outcome == Outcome.COMPLETED.value and verdict.root is not None and not found[1].has_steps
        row.outcome, row.outcome_reason, row.cause = verdict.outcome.value, verdict.reason, verdict.cause.id
        if ended and main.source == output:
            row.outcome_reason = f"{ended_of(main.kind)} had ended before: {verdict.reason}"
        elif main.outcome == row.outcome == Outcome.COMPLETED.value and is_told:
            row.outcome_reason = f"{ended_of(main.kind)} had ended before: {other.outcome_reason}"
        row.cause_confidence = verdict.confidence if verdict.root is not None else None
    elif _is_complaint(main):
        row.outcome, row.outcome_reason = verdict.outcome.value, verdict.reason or other.outcome_reason
        row.cause, row.cause_confidence = verdict.cause.id, verdict.confidence
    return row


def _findings(name: str) -> LogFindings:
    with sources.open_log(Path(name), quietly=True) as file:
        return LogFindings(name).read(open_blocks(file, name))
