"""From paths to rows and steps: who reads which file."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, groupby, zip_longest
from pathlib import Path
from typing import IO, Any

from hpc_llm import outside
from hpc_llm.causes.program import NONE, UNKNOWN
from hpc_llm.causes.schedulers import job_of
from hpc_llm.causes.verdict import Verdict
from hpc_llm.errors import counted, notice, pass_over
from hpc_llm.parsing import cells, jobs, notebook, retold
from hpc_llm.parsing.believed import leave_out_impossible
from hpc_llm.parsing.held import tells_settings_alone
from hpc_llm.parsing.inputs import STDIN, inputs
from hpc_llm.parsing.joining import MOST_RUNS
from hpc_llm.parsing.lost import hold_to_its_losses
from hpc_llm.parsing.registry import (
    FolderFormat,
    LineFormat,
    document_formats,
    folder_formats,
    formats_in,
    is_own,
)
from hpc_llm.parsing.rows import STEP_COLUMNS, UNKNOWN_FORMAT, Row, Step
from hpc_llm.parsing.rules import REPORTED, Value
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.sample import StepSample
from hpc_llm.parsing.scan import Scanner
from hpc_llm.parsing.standing_in import Again, StandIn, of_stream, stand_in, tell_of_lost_steps
from hpc_llm.parsing.summary import row_of
from hpc_llm.parsing.told_steps import ToldSteps
from hpc_llm.parsing.unparsed import Unparsed
from hpc_llm.records.run import Outcome
from hpc_llm.text import sources
from hpc_llm.text.json_weight import is_too_heavy

_BLOCKS_BETWEEN = 32
_JSON = (".json", ".jsonl")
_SLURM_NAME = re.compile(r"slurm-(\d+)(?:_\d+)?(?:\.\w+)*$")
_ENDINGS = re.compile(r"(?:\.(?:log|out|err|txt|json|jsonl|ipynb|md|gz|xz|zst|bz2))+$")


@dataclass
class Reading:
    """What one input held."""

    source: str
    rows: list[Row] = field(default_factory=list)
    unparsed: Unparsed = field(default_factory=Unparsed)
    left_empty: list[str] = field(default_factory=list)
    """Figures that are printed and not taken: the log does not say which of their meanings they have, or they cannot be."""
    verdicts: list[Verdict] | None = None
    """How each run ended, of a log that is read line by line."""
    samples: list[StepSample | None] = field(default_factory=list)
    """Some steps of the run of each row, where they were asked for and there are any."""
    is_document: bool = False
    """Whether it is a file of a known form that was read whole, in which only what its fields say counts."""
    resembles_document: bool = False
    """Whether it looked like one, and could not be read: it may be cut short."""

    @staticmethod
    def of_runs(source: str, runs: Sequence[LogRun], unparsed: Unparsed) -> Reading:
        """What the runs of a log come to."""
        runs = retold.rejoined(jobs.rejoined(list(runs), job_of(source)))
        for run in runs:
            run.tail.job, run.tail.source = job_of(source), source
        left_out = sum(run.left_out_before for run in runs)
        if left_out:
            kept = f"the first {MOST_RUNS} and the last are read"
            pass_over(
                source,
                f"it holds {len(runs) + left_out} runs, of which {kept}: a file a run, or parts of it, tell more",
            )
        _tell_damage(source, unparsed)
        known = _known_runs(runs)
        cannot_be = [leave_out_impossible(row) for _, row in known]
        left_empty = [said for said in (*(run.left_empty for run in runs), *cannot_be) if said is not None]
        verdicts, samples = [run.verdict() for run, _ in known], [run.sample for run, _ in known]
        return Reading(source, _named(source, known), unparsed, left_empty, verdicts, samples)

    @property
    def is_unknown_json(self) -> bool:
        """Whether it is a file of JSON that no format knows: settings, or a table of something else."""
        if self.resembles_document or Path(self.source).suffix.lower() not in _JSON:
            return False
        return all(row.format == UNKNOWN_FORMAT for row in self.rows)

    def with_samples(self) -> Iterator[tuple[Row, StepSample | None]]:
        """The rows with the steps that were kept of their runs."""
        return zip_longest(self.rows, self.samples[: len(self.rows)])


def read_inputs(paths: Sequence[Path], *, verbose: bool = False, sampled: bool = False) -> Iterator[Reading]:
    """The rows of files, folders that are runs, or stdin (`-`), in their order; `sampled` keeps steps of each log's runs."""
    for is_folder, group in groupby(paths, key=lambda path: str(path) != STDIN and path.is_dir()):
        if is_folder:
            yield from _read_folders(list(group))
        else:
            yield from (_read_file(path, verbose, sampled) for path in group)


def _read_folders(folders: Sequence[Path]) -> Iterator[Reading]:
    for one, group in groupby(folders, key=_folder_format):
        given = list(group)
        for folder, row in zip(given, one.rows(given), strict=True):
            yield Reading(row.source or "", [row, *one.within(folder, row)])


def _folder_format(folder: Path) -> FolderFormat:
    return next(f for f in folder_formats() if f.is_in(folder))


def _read_file(path: Path, verbose: bool, sampled: bool) -> Reading:
    if str(path) == STDIN:
        return parse_stream(STDIN, sys.stdin.buffer, verbose=verbose, sampled=sampled)
    with sources.open_log(path) as file:
        return parse_stream(str(path), file, verbose=verbose, sampled=sampled, again=_opened_again(path))


def _opened_again(path: Path) -> Again | None:
    return None if path.is_fifo() else partial(sources.open_log, path, quietly=True)


def parse_stream(
    name: str, file: IO[bytes], *, verbose: bool = False, sampled: bool = False, again: Again | None = None
) -> Reading:
    """The rows of an open log; `name` is what they give as their source, `again` opens it once more."""
    again = again or of_stream(file)
    text = sources.reads(file, name)
    first = sources.head(text)
    reason = _not_a_log(first)
    if reason is not None:
        why = sources.why_unread(file)
        return Reading(name, [_unknown(name, f"it was not read: {why}" if why else reason)])
    document, first, text = _document(name, first, text)
    if document is not None:
        rows = _document_rows(name, document)
        if rows:
            samples = [sample_of(steps) if sampled else None for _, steps in rows]
            left_empty = [said for row, _ in rows if (said := leave_out_impossible(row)) is not None]
            return Reading(name, [row for row, _ in rows], left_empty=left_empty, samples=samples, is_document=True)
        first = _text_of(document)
    formats, other, text = _formats_of(name, first, text, again)
    scanner = Scanner(formats, count_unparsed=verbose, sampled=sampled, stands_in=other.stands_in)
    for _ in _scan(scanner, first, text):
        pass
    runs = scanner.finish()
    if other.is_open:
        tell_of_lost_steps(name, runs)
    reading = Reading.of_runs(name, runs, scanner.unparsed)
    reading.resembles_document = document is not None
    return reading


def _formats_of(
    name: str, first: bytes, rest: Iterator[bytes], again: Again | None
) -> tuple[tuple[LineFormat, ...], StandIn, Iterator[bytes]]:
    """The formats of what was read first; what stands in for the program's steps; and the rest."""
    cleaned = sources.clean(first)
    formats, more = formats_in(cleaned), next(rest, b"")
    other = stand_in(name, cleaned, formats, again if more else partial(io.BytesIO, first))
    return (*formats, *other.formats), other, chain((more,) if more else (), rest)


def sample_of(steps: Iterable[Step]) -> StepSample:
    """Some of these steps, in bounded memory."""
    sample = StepSample()
    for step in steps:
        sample.add(step.step, step.loss)
    return sample


def parse_steps(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Step]:
    """One row a step of everything under `paths`, as it is read."""
    for path in inputs(paths):
        if str(path) == STDIN:
            yield from parse_stream_steps(STDIN, sys.stdin.buffer)
        elif path.is_dir():
            yield from _folder_format(path).steps(path)
        else:
            with sources.open_log(path) as file:
                yield from parse_stream_steps(str(path), file, again=_opened_again(path))


def parse_stream_steps(name: str, file: IO[bytes], *, again: Again | None = None) -> Iterator[Step]:
    """The steps of an open log, as it is read; `again` opens it once more."""
    again = again or of_stream(file)
    text = sources.reads(file, name)
    first = sources.head(text)
    if _not_a_log(first) is not None:
        return
    document, first, text = _document(name, first, text)
    if document is not None:
        rows = _document_rows(name, document)
        if rows:
            for _, steps in rows:
                yield from steps
            return
        first = _text_of(document)
    told = ToldSteps(whole=document is not None)
    formats, other, text = _formats_of(name, first, text, again)
    scanner = Scanner(
        formats, on_step=lambda number, step: told.see(scanner.run, number, step), stands_in=other.stands_in
    )
    for _ in _scan(scanner, first, text):
        yield from _steps_of(name, told.ready())
    runs = scanner.finish()
    yield from _steps_of(name, told.rest())
    if other.is_open:
        tell_of_lost_steps(name, runs)
    _tell_damage(name, scanner.unparsed)
    for run in runs:
        if run.mixed is not None:
            pass_over(name, run.mixed)


def _tell_damage(name: str, unparsed: Unparsed) -> None:
    if unparsed.damaged:
        notice(f"{name}: no number is taken of {counted(unparsed.damaged, 'line')} with a hole (bytes that are lost)")


def _scan(scanner: Scanner, first: bytes, rest: Iterator[bytes]) -> Iterator[None]:
    """Feed all there is, and look now and then for the output of further programs."""
    scanner.feed(first)
    yield
    for number, block in enumerate(rest):
        if number % _BLOCKS_BETWEEN == 0:
            scanner.look_for_formats(sources.clean(block[: sources.SAMPLE]))
        scanner.feed(block)
        yield


def _steps_of(name: str, complete: Iterable[tuple[int, Mapping[str, Value]]]) -> Iterator[Step]:
    for run, step in complete:
        columns: dict[str, Any] = {column: value for column, value in step.items() if column in STEP_COLUMNS}
        yield Step(**{**columns, "run_id": run_id(name, run), "source": name})


def run_id(source: str, number: int) -> str:
    """Name of the run with that number, from 0, in `source`.

    >>> run_id("logs/nv/z3.out.gz", 0), run_id("z3.out", 1)
    ('z3', 'z3#2')
    """
    name = "stdin" if source == STDIN else Path(source).name
    stem = _ENDINGS.sub("", name) or name
    return stem if number == 0 else f"{stem}#{number + 1}"


def _named(source: str, runs: Sequence[tuple[LogRun, Row]]) -> list[Row]:
    """The rows of a log's runs with their names; one that says so where it holds none."""
    known = [row for _, row in runs]
    if not known:
        return [_unknown(source, "no line of a known format, and no message that says how it ended")]
    job = _SLURM_NAME.search(source)
    left_out = accumulate(run.left_out_before for run, _ in runs)
    for number, (row, more) in enumerate(zip(known, left_out, strict=True)):
        row.run_id, row.source = run_id(source, number + more), source
        if job and (row.job_id is None or job_of(source) is not None):
            row.job_id = job[1]
    return known


def _known_runs(runs: Sequence[LogRun]) -> list[tuple[LogRun, Row]]:
    """The runs with their rows; pieces of the log that hold no run at all are left out if others do."""
    for run in runs:
        run.tail.settle()
    cells.give_peaks(runs)
    seen = [run for run in runs if not run.empty] or runs[:1]
    for run in seen[:-1]:
        run.tail.is_followed = True
    worked = [run for run in seen if REPORTED in run.values or not (run.idle or tells_settings_alone(run))]
    rows = [(run, row_of(run)) for run in worked or seen]
    is_job = len(rows) > 1  # of several jobs one that said nothing is one
    known = [(run, row) for run, row in rows if row.format != UNKNOWN_FORMAT or (is_job and REPORTED in run.values)]
    cell = None if known else cells.as_run(runs)
    if cell is not None:
        return [(cell, row_of(cell))]
    return [one for one in known if not cells.only_raised(one[0])] or known


def _unknown(source: str, reason: str) -> Row:
    return Row(run_id=run_id(source, 0), source=source, format=UNKNOWN_FORMAT, outcome=Outcome.UNKNOWN.value,
               outcome_reason=reason)  # fmt: skip


def _not_a_log(first: bytes) -> str | None:
    """Why the input cannot be a log, from its first block."""
    if not first.strip(b"\0 \t\r\n"):
        return "the input is empty"
    return "binary data, not text" if sources.is_binary(first) else None


def _text_of(document: bytes) -> bytes:
    """What a notebook printed; other documents are read like a log."""
    text = notebook.printed(document) if notebook.is_notebook(document) else None
    return document if text is None else sources.clean(text)


def _document(name: str, first: bytes, rest: Iterator[bytes]) -> tuple[bytes | None, bytes, Iterator[bytes]]:
    """The whole input, if it may be a document rather than a log; what was read of it first, and the rest."""
    if not first.lstrip().startswith(b"{"):
        return None, first, rest
    if not notebook.is_notebook(first) and not any(f.is_in(first) for f in document_formats()):
        return None, first, rest
    whole = sources.head(chain((first,), rest), sources.LARGEST_DOCUMENT + 1)
    if len(whole) > sources.LARGEST_DOCUMENT:
        what = f"larger than {sources.LARGEST_DOCUMENT >> 20} MiB"
    elif is_too_heavy(whole):
        what = "of so many values"
    else:
        return whole, whole, rest
    pass_over(name, f"a document {what} is not read whole, but line by line")
    return None, first, _parts(whole, len(first), rest)


def _parts(whole: bytes, begin: int, rest: Iterator[bytes]) -> Iterator[bytes]:
    """What stands from `begin` on, in parts: of all at once each that reads it would make a copy."""
    for start in range(begin, len(whole), sources.HEAD):
        yield whole[start : start + sources.HEAD]
    yield from rest


def _document_rows(source: str, text: bytes) -> list[tuple[Row, list[Step]]]:
    """The runs of a document, empty if it is none of a known format."""
    for one in document_formats():
        if not one.is_in(text):
            continue
        try:
            found = [(row, list(steps)) for row, steps in one.read(text)]
        except (ValueError, RecursionError):
            continue
        except Exception as error:
            if is_own(one):
                raise
            pass_over(source, f"log format {one.name} of another package cannot read it: {outside.reason_of(error)}")
            continue
        for number, (row, steps) in enumerate(found):
            row.run_id, row.source = row.run_id or run_id(source, number), source
            hold_to_its_losses(row, steps)
            row.cause = row.cause or (NONE if row.outcome == Outcome.COMPLETED.value else UNKNOWN).id
            for step in steps:
                step.run_id, step.source = row.run_id, source
        if found:
            return found
    return []
