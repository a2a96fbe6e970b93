"""One log and the runs in it: what the parser finds of each is what is explained."""

from __future__ import annotations

import io
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import IO

from hpc_llm.causes.found import CUT, SHOWN, Found
from hpc_llm.causes.log import LogFindings, verdict_on
from hpc_llm.causes.memory import DEVICE_OOM
from hpc_llm.causes.numerics import NAN_LOSS
from hpc_llm.causes.program import NONE, PYTHON_EXCEPTION
from hpc_llm.causes.verdict import Verdict, decide
from hpc_llm.diagnosis.diagnosis import Diagnosis, conclude, unexplained
from hpc_llm.diagnosis.elsewhere import where_it_infers
from hpc_llm.diagnosis.notebook_cells import with_failed_cells
from hpc_llm.diagnosis.stated import without_what_is_taken
from hpc_llm.parsing.losses import Losses
from hpc_llm.parsing.read import Reading, parse_stream
from hpc_llm.parsing.registry import document_formats
from hpc_llm.parsing.rows import INFER, Row
from hpc_llm.records.metrics import has_bf16
from hpc_llm.records.run import Outcome
from hpc_llm.text import sources
from hpc_llm.text.blocks import Block, open_blocks

WHOLE = 1 << 24
"""Bytes of a log that is parsed whole, to tell its runs apart."""
BEGINNING, END = 1 << 19, 1 << 21
"""Bytes of a larger one that are: what the program is stands at the beginning, how it ended at the end."""
_TOO_LARGE = "the last run of several: of so large a log `hpc-llm parse` lists them all"
_TOO_MANY = "the last run of {}: of so many `hpc-llm parse` lists how each ended"
_MOST_NAMED = 10
"""So many earlier attempts are named."""
_MOST_RUNS = 100
"""So many runs of a log are each told of; more would be read by nobody."""
NO_NUMBER = (
    "The loss of the evaluation is no number, and those of training are: look at the evaluation's data and labels; "
    "where all labels of a batch are left out (-100), its mean is 0/0."
)
_MOST_LINES = 1000
"""So many runs of a log are looked up in it; more are a log of something else."""


def diagnose_log(log: LogFindings, again: Callable[[], IO[bytes]]) -> Diagnosis:
    """The diagnosis of a log from what it says and how the parser reads it; `again` opens it once more.

    The parser knows the steps of each program and so what its messages are worth: where the log by itself says something
    else than the run that the parser finds last in it, that one counts.
    """
    made = with_failed_cells(_diagnosed(log, again), log)
    earlier = [f"{one.cause.id} (line {one.line})" for one in log.earlier[-_MOST_NAMED:]]
    return (
        replace(made, several=f"the last of several attempts; before it: {', '.join(earlier)}")
        if earlier and not made.several
        else made
    )


def _diagnosed(log: LogFindings, again: Callable[[], IO[bytes]]) -> Diagnosis:
    verdict, found = verdict_on([log])
    with again() as file:
        reading, is_whole = _read(log.file, file)
        why = sources.why_unread(file)
    if why is not None:
        return replace(conclude(log.file, [log], verdict, found), summary=f"The output was not read: {why}.")
    if reading.is_document:
        return _of_document(log.file, reading.rows)
    count = len(reading.verdicts or ())
    if count > (_MOST_RUNS if is_whole else 1):
        last = _agreed(log, (reading.verdicts or [])[-1], verdict, found)
        return replace(conclude(log.file, [log], *last), several=_TOO_MANY.format(count) if is_whole else _TOO_LARGE)
    verdicts = reading.verdicts
    if verdicts is None or (not verdicts and verdict.cause is not NONE):
        return _with_what_is_left(conclude(log.file, [log], verdict, found), again)
    if not verdicts:
        return conclude(log.file, [log], decide([], completed=False), [])
    if len(verdicts) == 1:
        verdict, found = _agreed(log, verdicts[0], verdict, found)
        if verdict.cause is NAN_LOSS or (verdict.root is not None and verdict.root.line is None):
            with again() as file:
                verdict, found = _first_of(log.file, verdicts, open_blocks(file, log.file)) or (verdict, found)
        return _with_what_is_left(_in_words_of(conclude(log.file, [log], verdict, found), reading.rows[0]), again)
    with again() as file:
        lines = _lines(verdicts, open_blocks(file, log.file))
    placed = [_placed(log.file, one, line) for one, line in zip(verdicts, lines, strict=True)]
    runs = tuple(_of_run(row, *one) for row, one in zip(reading.rows, placed, strict=True))
    last = placed[-1] if verdict.cause is not verdicts[-1].cause else _of_last(verdict, found, placed) or placed[-1]
    headline = conclude(log.file, [log], *last)
    return replace(
        headline, outcome=runs[-1].outcome, reason=runs[-1].reason, runs=(*runs[:-1], _of(runs[-1], headline))
    )


def _of_document(source: str, rows: Sequence[Row]) -> Diagnosis:
    """What a file says that states how its runs ended: no text in it does."""
    runs = tuple(_stated(row) for row in rows)
    return replace(runs[-1], source=source, runs=runs if len(runs) > 1 else ())


def _stated(row: Row) -> Diagnosis:
    if row.cause == NAN_LOSS.id:
        verdict = Losses(ends_not_finite=True).verdict(decide([], completed=False), row.invalid_reason)
        return _of_run(row, verdict, [])
    ended = row.outcome == Outcome.COMPLETED.value
    why = f"{row.outcome_reason[:1].upper()}{row.outcome_reason[1:]}." if row.outcome_reason else ""
    verdict = decide([], completed=ended)
    made = unexplained(row.run_id or "", verdict, (), (), ended, why)
    return replace(made, outcome=row.outcome, reason=row.outcome_reason)


def has_come_to_its_end(name: str, file: IO[bytes]) -> bool:
    """Whether the parser finds in a log a run that did."""
    reading, _ = _read(name, file)
    return any(row.outcome == Outcome.COMPLETED.value for row in reading.rows)


def _read(name: str, file: IO[bytes]) -> tuple[Reading, bool]:
    """The log as the parser reads it, and whether that is all of it: of a large one the beginning and the end."""
    text = sources.reads(file, name)
    first = sources.head(text, WHOLE)
    may_be_document = first.lstrip().startswith(b"{") and any(one.is_in(first) for one in document_formats())
    most = sources.LARGEST_DOCUMENT if may_be_document else WHOLE
    if len(first) < most:
        first = sources.head(chain((first,), text), most)
    if len(first) < most:
        return parse_stream(name, io.BytesIO(first)), True
    parts = deque((first[BEGINNING:],))
    size = len(parts[0])
    for part in text:
        parts.append(part)
        size += len(part)
        while size - len(parts[0]) > END:
            size -= len(parts.popleft())
    first, rest = first[:BEGINNING], b"".join(parts)[-END:]
    return parse_stream(name, io.BytesIO(first[: first.rfind(b"\n") + 1] + rest[rest.find(b"\n") + 1 :])), False


def _agreed(log: LogFindings, parsed: Verdict, verdict: Verdict, found: list[Found]) -> tuple[Verdict, list[Found]]:
    """What the log says where the parser says the same; else the parser's word, with the line that shows it."""
    is_other = (
        parsed.cause is PYTHON_EXCEPTION and parsed.root and verdict.root and parsed.root.text != verdict.root.text
    )
    if parsed.cause is verdict.cause and not is_other:
        return verdict, found
    if parsed.root is None:
        return parsed, []
    seen = next((one for one in found if one.text == parsed.root.text and one.cause is parsed.cause), None)
    root = seen or replace(parsed.root, file=log.file, line=None)
    return replace(parsed, root=root), [root]


def _first_of(file: str, verdicts: Sequence[Verdict], blocks: Iterable[Block]) -> tuple[Verdict, list[Found]] | None:
    """The line that shows the verdict of the only run, where the log by itself has another; None where there is none."""
    (line,) = _lines(verdicts, blocks)
    return None if line is None else _placed(file, verdicts[0], line)


def _without_its_precision(made: Diagnosis, row: Row) -> Diagnosis:
    """Without the advice to take the precision that the run has, or its GPU has not."""
    if row.precision != "bf16" and has_bf16(row.gpu or "") is not False:
        return made
    lines = [line for line in made.remedy.splitlines() if not line.startswith("bf16 instead of fp16")]
    return replace(made, remedy="\n".join(lines))


def _in_words_of(made: Diagnosis, row: Row) -> Diagnosis:
    """With what only the parser knows of the run: at which step its loss was no number, and which precision it has."""
    if made.cause is NAN_LOSS and row.invalid_reason and row.invalid_reason.startswith("the loss "):
        made = replace(made, summary=f"T{row.invalid_reason[1:]}.")
    if (
        row.kind == INFER
        and (instead := where_it_infers(made.cause.id)) is not None
        and made.details.keys().isdisjoint(("engine", "phase"))
    ):
        made = replace(made, remedy=instead)
    if made.cause is NONE and row.eval_loss is not None and not math.isfinite(row.eval_loss):
        made = replace(made, summary=NO_NUMBER)
    return _without_its_precision(made, row)


def _with_what_is_left(made: Diagnosis, again: Callable[[], IO[bytes]]) -> Diagnosis:
    """With what the log, which is of one run, does not show to be taken already; its settings stand at its beginning."""
    if made.cause is not DEVICE_OOM and "export " not in made.remedy:
        return made
    with again() as file:
        text = sources.head(sources.reads(file, made.source), END)
    return replace(made, remedy=without_what_is_taken(made.remedy, text))


def _of_last(
    verdict: Verdict, found: list[Found], placed: Sequence[tuple[Verdict, list[Found]]]
) -> tuple[Verdict, list[Found]] | None:
    """What the log says by itself, without what is of the runs before the last; None where it speaks of one of those."""
    lines = [one.line for _, of_run in placed[:-1] for one in of_run]
    earlier = max((line for line in lines if line is not None), default=0)
    if None in lines or (verdict.root is not None and (verdict.root.line or 0) <= earlier):
        return None
    return verdict, [one for one in found if (one.line or 0) > earlier]


def _placed(file: str, verdict: Verdict, line: int | None) -> tuple[Verdict, list[Found]]:
    if verdict.root is None:
        return verdict, []
    root = replace(verdict.root, file=file, line=line)
    return replace(verdict, root=root), [root]


def _of_run(row: Row, verdict: Verdict, found: list[Found]) -> Diagnosis:
    made = _in_words_of(conclude(row.run_id or "", (), verdict, found), row)
    return replace(made, outcome=row.outcome, reason=row.invalid_reason or row.outcome_reason)


def _of(run: Diagnosis, headline: Diagnosis) -> Diagnosis:
    """The last run, as the log's own diagnosis explains it."""
    return replace(headline, source=run.source, outcome=run.outcome, reason=run.reason)


def _lines(verdicts: Sequence[Verdict], blocks: Iterable[Block]) -> list[int | None]:
    """The line that shows each verdict. Where a text stands there more often than it is one, it is not known which."""
    texts = [one.root.text.strip(CUT) if one.root is not None and one.root.position >= 0 else None for one in verdicts]
    wanted = {text.encode("utf-8", "surrogateescape") for text in texts if text}
    places: dict[bytes, list[int]] = defaultdict(list)
    for block in blocks if 0 < len(wanted) <= _MOST_LINES else ():
        for text in wanted:
            _note(places[text], text, block)
    of_each = {text: iter(lines) for text, lines in places.items() if len(lines) == texts.count(text.decode())}
    return [next(of_each.get((text or "").encode(), iter(())), None) for text in texts]


def _note(lines: list[int], text: bytes, block: Block) -> None:
    start = block.text.find(text)
    while start >= 0 and len(lines) <= _MOST_LINES:
        whole = block.line(start).strip()
        if whole == text or len(text) >= SHOWN - 4:
            lines.append(block.line_number(start))
        start = block.text.find(text, start + len(text))
