"""Sharing the work over processes: many small logs in groups, a large one in pieces.

Results come in the order of the inputs. A caller with threads of its own is served by one process: forking beside
running threads can lock up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hpc_llm.causes.catalogue import all_causes
from hpc_llm.parsing import streams
from hpc_llm.parsing.inputs import STDIN
from hpc_llm.parsing.joining import join, leave_out
from hpc_llm.parsing.read import Reading, read_inputs
from hpc_llm.parsing.registry import formats, formats_in, line_format
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.scan import Scanner
from hpc_llm.parsing.standing_in import stand_in
from hpc_llm.parsing.unparsed import Unparsed
from hpc_llm.text import sources

T = TypeVar("T")

PIECE = 1 << 24
"""Fewest bytes of a large log that one process reads at a time."""
LARGEST_PIECE = 1 << 28
WORTHWHILE = 1 << 24
"""With less to read than this, starting processes costs more than it saves."""
GROUP = 1 << 22
"""Bytes of small logs that are handed to a process together."""
MOST_TOGETHER = 512
"""Inputs of such a group: runs have no size of their own."""
MOST_PROCESSES = 8


@dataclass(frozen=True)
class Task:
    """What one process does at a time: a group of whole inputs, or one piece of a log."""

    paths: tuple[str, ...]
    size: int
    verbose: bool
    sampled: bool
    piece: tuple[int, int] | None = None
    """First and last byte of the piece."""
    last: bool = True
    """The piece is the log's last one."""
    formats: tuple[str, ...] = ()
    """Formats that are in the beginning of the log."""
    stands_in: bool = False
    """A library's steps are those of the program in the log."""


@dataclass
class Done:
    """What came of a task."""

    task: Task
    readings: list[Reading]
    runs: list[LogRun]
    unparsed: Unparsed


def processes() -> int:
    """How many processes may run at once."""
    return min(
        MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def size_of(path: Path) -> int:
    """Bytes of a file, 0 for everything else."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def read_all(
    paths: Sequence[Path], *, verbose: bool, jobs: int | None, sampled: bool = False
) -> Iterator[tuple[list[Reading], int]]:
    """What was read since the last item, in the order of the inputs, and the number of bytes that it took.

    `sampled` keeps some steps of each log's runs. The output and the errors of one job are one where their names say so.
    """
    read = _read_each(paths, verbose=verbose, jobs=jobs, sampled=sampled)
    errors = streams.pairs(paths)
    return streams.together(read, errors) if errors else read


def _read_each(
    paths: Sequence[Path], *, verbose: bool, jobs: int | None, sampled: bool
) -> Iterator[tuple[list[Reading], int]]:
    sizes = [size_of(path) for path in paths]
    count = jobs if jobs is not None else processes()
    if count < 2 or not _is_worthwhile(sum(sizes)):
        for reading, size in zip(read_inputs(paths, verbose=verbose, sampled=sampled), sizes, strict=True):
            yield [reading], size
        return
    import multiprocessing

    _know_all()
    tasks = list(_tasks(paths, sizes, partial(Task, verbose=verbose, sampled=sampled), count))
    with multiprocessing.get_context("fork").Pool(min(count, len(tasks))) as pool:
        yield from _gather(pool.imap(_do, tasks))


def of_each(work: Callable[[list[Path]], T], jobs: Sequence[list[Path]]) -> Iterator[T]:
    """What `work`, a function of a module, makes of the files of each job, in their order, several jobs at once."""
    count = min(processes(), len(jobs))
    if count < 2 or not _is_worthwhile(sum(size_of(path) for paths in jobs for path in paths)):
        yield from map(work, jobs)
        return
    import multiprocessing

    _know_all()
    with multiprocessing.get_context("fork").Pool(count) as pool:
        yield from pool.imap(work, jobs)


def _know_all() -> None:
    """Load what other packages bring before there are several processes, so that what is wrong with it is said once."""
    formats()
    all_causes()


def _is_worthwhile(size: int) -> bool:
    return size >= WORTHWHILE and threading.active_count() == 1 and hasattr(os, "fork")


def _tasks(paths: Sequence[Path], sizes: Sequence[int], task: partial[Task], count: int) -> Iterator[Task]:
    group: list[str] = []
    total = 0
    for path, size in zip(paths, sizes, strict=True):
        alone = str(path) == STDIN or (size > PIECE and sources.is_plain(path))
        if group and (alone or total + size > GROUP or len(group) == MOST_TOGETHER):
            yield task(tuple(group), total)
            group, total = [], 0
        if alone and size:
            yield from _pieces(path, size, task, count)
        else:
            group.append(str(path))
            total += size
    if group:
        yield task(tuple(group), total)


def _pieces(path: Path, size: int, task: partial[Task], count: int) -> Iterator[Task]:
    """The pieces of a large log, two for each of `count` processes or more; all are told what its beginning shows."""
    with sources.open_log(path) as file:
        first = sources.clean(sources.head(sources.reads(file, path), sources.HEAD))
    found = formats_in(first[: sources.BLOCK])
    other = stand_in(str(path), first, found, partial(sources.open_log, path, quietly=True))
    formats = tuple(one.name for one in (*found, *other.formats))
    length = min(max(PIECE, -(-size // (2 * count))), LARGEST_PIECE)
    for begin in range(0, size, length):
        end = min(begin + length, size)
        yield task(
            (str(path),), end - begin, piece=(begin, end), last=end == size, formats=formats, stands_in=other.stands_in
        )


def _do(task: Task) -> Done:
    if task.piece is None:
        given = [Path(path) for path in task.paths]
        return Done(task, list(read_inputs(given, verbose=task.verbose, sampled=task.sampled)), [], Unparsed())
    formats = tuple(map(line_format, task.formats))
    scanner = Scanner(formats, count_unparsed=task.verbose, sampled=task.sampled, stands_in=task.stands_in)
    path = Path(task.paths[0])
    with sources.open_log(path) as file:
        for number, block in enumerate(sources.reads(sources.Piece(file, *task.piece), path)):
            if number == 0:
                scanner.look_for_formats(sources.clean(block[: sources.SAMPLE]))
            scanner.feed(block)
    return Done(task, [], scanner.finish(), scanner.unparsed)


def _gather(done: Iterable[Done]) -> Iterator[tuple[list[Reading], int]]:
    """Put the pieces of a log together again."""
    runs: list[LogRun] = []
    unparsed = Unparsed()
    for one in done:
        if one.task.piece is None:
            yield one.readings, one.task.size
            continue
        runs = join((runs, one.runs))
        leave_out(runs)
        unparsed.merge(one.unparsed)
        source = one.task.paths[0]
        yield [Reading.of_runs(source, runs, unparsed)] if one.task.last else [], one.task.size
        if one.task.last:
            runs, unparsed = [], Unparsed()
