"""A port at which ranks meet that is taken: by another program, or by the job itself."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from hpc_llm.causes.cause import Cause, sign

_NEAR = 1 << 16
"""Bytes before and behind a message in which others of the same job say it, too."""
_OF_STORE = (
    r"(?:bind|listen)[^\n]{0,80}?(?:\[::\]|0\.0\.0\.0|\?UNKNOWN\?)?:?(?P<port>\d{2,5})?[^\n]{0,40}errno: 98"
    r"|(?:port: (?P<port_2>\d{2,5})\b[^\n]{0,80})?EADDRINUSE|distributed communication on port `(?P<port_3>\d+)`, but another process is utilizing it"
    r"|RuntimeError: [Aa]ddress already in use"
)
"""In the words of torch's store, in which one process of a job opens the port, and of accelerate, which looks before it starts ranks."""
_LITERALS = ("ddress already in use", "EADDRINUSE", "another process is utilizing it")
_SAID = re.compile(
    rb"\berrno: 98\b|EADDRINUSE|, but another process is utilizing it|RuntimeError: [Aa]ddress already in use"
)
"""The same in short."""
_LONGEST, _MOST_LINES = 1000, 100
"""Bytes of a line, and lines, that are looked at: a storm of equal ones says nothing more."""
_LABEL = re.compile(
    rb"[ \t]{0,80}(?:(?P<node>[A-Za-z][\w-]{0,60}\d(?:\.[\w.-]{1,80})?): ?)?"
    rb"(?:(?:\[(?:rank|default|Rank )?(?P<rank>\d{1,5})\]:?|(?P<task>\d{1,5}):(?= |$)|\[\d{1,5},(?:mpirank:)?(?P<mpi>\d{1,5})[^\]\n]{0,40}\](?:<std\w{1,4}>)?:?))?"
)
"""Who says it: what launchers write before a line of a node, a task or a rank."""
_PORT = re.compile(rb"(?:(?:\[::\]|0\.0\.0\.0|\]):|\bport:? `?)(\d{2,5})\b")
_SEVERAL_TASKS = re.compile(rb"^[^\n]{0,12}srun: error: \S{1,80}: tasks \d+[-,][^\n]{1,80}: Exited with exit code", re.MULTILINE)  # fmt: skip
_TRACEBACK = re.compile(rb"^(?P<chained>During handling of the above exception|The above exception was the direct cause)|^(?P<heading>[^\n]{0,80}Traceback \(most recent call last\))", re.MULTILINE)  # fmt: skip
_RAISED = re.compile(rb"(?:[\w.]{1,80}\.)?(?:RuntimeError|DistNetworkError|ConnectionError|OSError): ")


def _collides_with_itself(text: bytes, position: int) -> bool:
    """Whether several processes of the job wanted the port, or one that is not the first: another program need not have it."""
    start, end = max(0, position - _NEAR), position + _NEAR
    port = _port_of(_line(text, position))
    said = [line for line in _lines(text, start, end) if _port_of(line) == port]
    who = {_labels(line) for line in said}
    labelled = {one for one in who if any(one)}
    if len({node for node, _ in labelled}) > 1 or len({number for _, number in labelled}) > 1:
        return True
    if any(number not in (None, b"0") for _, number in labelled):
        return True
    return not labelled and _SEVERAL_TASKS.search(text, position, end) is not None and _processes(text, start, end) > 1


def _lines(text: bytes, start: int, end: int) -> list[bytes]:
    """The lines with one of the messages between these positions, each once."""
    places = _places(text)
    first = bisect_left(places, start)
    return [_line(text, place) for place in places[first : min(first + _MOST_LINES, bisect_left(places, end))]]


@lru_cache(maxsize=1)
def _places(text: bytes) -> list[int]:
    """Where each line with one of the messages has the first of them: of a storm each message asks for those near it."""
    places, end = [], -1
    for found in _SAID.finditer(text):
        if found.start() > end:
            places.append(found.start())
            end = text.find(b"\n", found.end())
            if end < 0:
                break
    return places


def _line(text: bytes, position: int) -> bytes:
    """The beginning of the line at `position`."""
    begin = text.rfind(b"\n", 0, position) + 1
    end = text.find(b"\n", position, begin + _LONGEST)
    return text[begin : end if end >= 0 else begin + _LONGEST]


@lru_cache(maxsize=256)
def _port_of(line: bytes) -> bytes | None:
    """The last port that the line names: before it stand the numbers of ranks and of lines of code."""
    found = _PORT.findall(line)
    return found[-1] if found else None


@lru_cache(maxsize=256)
def _labels(line: bytes) -> tuple[bytes | None, bytes | None]:
    """The node and the number of the task or rank that say it, as far as the line begins with them."""
    found = _LABEL.match(line)
    return (found["node"], found["rank"] or found["task"] or found["mpi"]) if found else (None, None)


def _processes(text: bytes, start: int, end: int) -> int:
    """How many processes end with the message there: exceptions that follow from one another are of one process."""
    ended = [one for one in _lines(text, start, end) if _RAISED.match(one)]
    chained = sum(one["chained"] is not None for one in _TRACEBACK.finditer(text, start, end))
    return len(ended) - chained


_ITSELF = (
    "Processes of this job took the port from each other: more than the one of rank 0 tried to open it, as each takes itself for the first, "
    "or each starts a launcher of its own."
)
_ONE_OPENS_IT = (
    "where srun or mpirun starts a launcher (torchrun, accelerate launch, deepspeed), let it start one a node: srun --ntasks-per-node=1\n"
    "where it starts the ranks themselves, give each its place before it sets up torch.distributed, within the task and not in the job script: "
    "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS python train.py'\n"
    "and all of them the first node's address and one port: "
    'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n'
    "another port, or another try, ends in the same way"
)

PORT_IN_USE = Cause(
    id="port_in_use",
    title="the rendezvous port is in use",
    meaning="Another program on the first node already listens on the port at which the ranks meet.",
    remedy=(
        "submit it again: each run picks a port of its own\n"
        "in a script of your own take a port from the job id, or torchrun --standalone on one node"
    ),
    retry=True,
    precedence=85,
    explains=frozenset(("collective_timeout", "unreachable", "python_exception")),
    signs=(
        sign(
            _LITERALS,
            _OF_STORE,
            where=_collides_with_itself,
            confidence=0.9,
            precedence=86,
            retry=False,
            meaning=_ITSELF,
            remedy=_ONE_OPENS_IT,
        ),
        sign(
            _LITERALS,
            _OF_STORE + r"|Error(?:: \[Errno 98\]|:)[^\n]{0,60} ?[Aa]ddress already in use",
        ),
    ),
)
