"""How batch systems say what became of a job: the fixed parts of their messages, for the patterns of several causes."""

from __future__ import annotations

import functools
import re

AT = r"(?: AT \S{8,30})?"
# Slurm's own messages stand at the beginning of a line, behind a rank's prefix, or behind an unfinished progress bar.
SLURM = r"(?:^[^\n\"']{0,60}|slurmstepd: error: | error: (?=\*\*\* ))"

NODE_REFUSED = (
    r"(?:Communication connection failure|Zero Bytes were transmitted|Job credential expired|Invalid job credential"
    r"|User not found on host|Slurmd could not|Socket timed out|Unable to create TMPDIR)"
)
"""Why slurmd did not start a task that a node can start."""
UNAVAILABLE = (
    r"(?:Socket timed out|Unable to contact|Unable to connect to database|Zero Bytes were transmitted|Resource temporarily unavailable"
    r"|Slurm temporarily unable|Slurm backup controller in standby|I/O error writing script|Connection (?:refused|timed out|reset)"
    r"|Communication (?:connection|shutdown) failure)"
)
"""Why Slurm's controller did not take a request, where it takes the same one a little later."""
BEYOND_NODE = (
    r"(?:Unable to (?:satisfy cpu bind request|layout tasks on given cpus|satisfy \w+ request)|More processors requested"
    r"|Requested node configuration|Invalid (?!MPI\b)\w+|Memory required)"
)
"""Why no node would have."""


def lsf(reasons: str) -> str:
    """The line by which LSF's report, or bacct, says why it killed a job: one of `reasons`, a pattern."""
    return rf"^TERM_(?:{reasons}): job killed|^[^\n]{{0,80}}Completed <exit>; TERM_(?:{reasons})\b"


def flux(kinds: str) -> str:
    """The line by which Flux says why it ended a job: an exception of one of `kinds`, a pattern; in its log of events, too.

    One of a severity above 0 ends nothing.
    """
    return (
        rf"^(?:\S{{0,24}}: )?\d+\.\d+s: job\.exception (?:\S{{1,40}} )?type=(?:{kinds}) severity=0\b"
        rf"|^[^\n\"']{{0,40}}\bexception type=\"(?:{kinds})\" severity=0\b"
    )


FLUX_LITERALS = ("job.exception ", "exception type=")


def pbs_status(statuses: str) -> str:
    """PBS's word on how a job ended: one of `statuses`, a pattern; of PBS Professional and of Torque."""
    return rf"(?:^|[\s;])Exit_status ?= ?(?:{statuses})(?![\d.])"


def by_signal(*numbers: int) -> str:
    """The statuses that PBS gives a job whose script was ended by one of these signals."""
    return "|".join(str(256 + number) for number in numbers)


def openmpi_signal(number: int, name: str) -> str:
    """How mpirun says that a signal ended a rank; a release breaks its sentence into lines of a fixed width."""
    return rf"exited on signal {number} \({name}\)|^(?:on )?signal {number} \({name}\)\.$"


_SPEAKS = re.compile(
    rb"slurm(?:step)?d(?:-[\w.-]{1,80})?: |\b(?:srun|salloc|sbatch): (?!command not found)|\*\*\* (?:JOB|STEP) |=>> PBS: "
)
"""Where on a line a scheduler begins to speak."""
_LABELS = tuple(
    re.compile(rb" {0,8}(?:" + label + rb") {0,2}")
    for label in (
        rb"\[(?:rank|default|Rank )?\d{1,5}\]:?",
        rb"\[\d+,(?:mpirank:)?\d+[^\]\n]{0,40}\]",
        rb"<std(?:out|err)>:?",
        rb"\[?[\d:T.,/+Z-]{2,40}\]?",
        rb"\d{1,5}:",
        rb"[\w.-]{0,60}\d[\w.-]{0,20}:",
        rb"\|\|?",
        rb"[0-9a-f]{6,40}",
        rb"\([^()\n]{3,60}pid=\d+[^()\n]{0,60}\)",
        rb"slurm(?:step)?d[^ \n]{0,80}",
        rb"error:",
        rb"[\w.-]{1,60}(?:\.(?:py|sh)|#\d{1,6}):(?= )",
    )
)
"""What stands before it where a launcher, a program that starts others or a collector of logs names the process or the time."""
_MOST_LABELS = 6
_BAR = re.compile(rb"\d%\||it/s|s/it|\[\d+:\d\d<")
_LOOKED_BACK = 1 << 13
_FENCE = re.compile(rb"^ {0,3}```", re.MULTILINE)


def is_quoted(text: bytes, begin: int, end: int) -> bool:
    """Whether what stands there is a scheduler's message that somebody else repeats: a sample, a prompt, a diff, a document.

    A scheduler writes whole lines. Before its own words stand at most labels of launchers, or, without a space, a line
    that the program had not ended, such as a progress bar.

    >>> line = b"srun: error: n1: task 0: Killed"
    >>> is_quoted(line, 0, 9), is_quoted(b"> " + line, 2, 9), is_quoted(b" 3: " + line, 4, 9), is_quoted(b"4.1s/it]" + line, 8, 9)
    (False, True, False, False)
    """
    line = text.rfind(b"\n", 0, begin) + 1
    speaks = _SPEAKS.search(text, line, end)
    if speaks is None:
        return False
    before = text[line : speaks.start()]
    if before and not _are_labels(before) and not _is_unfinished(before):
        return True
    return before.isspace() or (_has_fences(text) and _is_fenced(text[max(0, line - _LOOKED_BACK) : line]))


def _are_labels(before: bytes) -> bool:
    """Whether labels are all of it: of each place the longest, for to try all ways in which digits can be parted takes for ever."""
    position = 0
    for _ in range(_MOST_LABELS):
        position = max((found.end() for label in _LABELS if (found := label.match(before, position))), default=position)
    return position == len(before)


@functools.lru_cache(maxsize=1)
def _has_fences(text: bytes) -> bool:
    """Whether it may hold blocks of code: asked of one text for each of its lines."""
    return b"```" in text


def _is_fenced(before: bytes) -> bool:
    return len(_FENCE.findall(before)) % 2 == 1


def _is_unfinished(before: bytes) -> bool:
    """Whether a line ends so without its end, rather than goes on with a quotation."""
    if _BAR.search(before):
        return True
    last = before[-1:]
    return (last.isalnum() or last in b"])%.|/" or last >= b"\x80") and before[:1] not in b"+-<>#\"'`|"


_JOB = re.compile(r"\*\*\* (?:JOB|STEP) (\d{1,18})\b")
_OUTPUT_OF = re.compile(r"(?:^|/)slurm-(\d{1,18})\.(?:out|err|log)$")
_PARTS_OF_ONE_JOB = 128
"""The parts of a heterogeneous job have ids of their own, one after the other."""


def job_of(file: str) -> int | None:
    """The id of the job whose output Slurm itself named so; None of an array, whose tasks have other ids.

    >>> job_of("logs/slurm-812.out"), job_of("slurm-812_3.out"), job_of("train-812.log")
    (812, None, None)
    """
    found = _OUTPUT_OF.search(file)
    return int(found[1]) if found else None


def is_of_another_job(line: str, job: int | None) -> bool:
    """Whether Slurm's message is of another job than the one whose output it stands in: then it was printed by a program."""
    said = _JOB.search(line)
    return job is not None and said is not None and not 0 <= int(said[1]) - job < _PARTS_OF_ONE_JOB
