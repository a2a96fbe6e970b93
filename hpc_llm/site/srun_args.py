"""What a profile's arguments of srun may be: options for the tasks, none by which the plan or the run's output is lost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hpc_llm.site.sbatch_options import KNOWN, takes_word

_SIZES = ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node")
_OF_OUTPUT = frozenset("chdir error input output open-mode".split())
_NO_RUN = frozenset("help het-group jobid multi-prog pty test-only usage version".split())
_SHORT = {
    "D": "chdir", "N": "nodes", "V": "version", "e": "error", "h": "help", "i": "input", "n": "ntasks", "o": "output", "t": "time",
}  # fmt: skip
_SWITCHES = frozenset("EHOQXZkKlqsuv")
"""Letters that take no word behind them, so that further letters may follow."""
_LONG_SWITCHES = frozenset(
    "disable-status exact interactive kill-on-bad-exit label no-allocate overlap preserve-env quit-on-interrupt unbuffered whole".split()
)
"""Options of srun alone that take no word behind them."""


def wrong_argument(words: Sequence[str]) -> str | None:
    """What is wrong with the first argument that cannot stand there; None where none is.

    >>> wrong_argument(["--mpi=none", "-c", "8", "-ul", "--cpu-bind", "cores", "--export=ALL,A=1"])
    >>> wrong_argument(["-uo", "x"]), wrong_argument(["--label", "echo"])
    ("-uo: the run's records need the tasks' output and folder as they are. Leave it out", 'echo: srun would begin its program there. Leave it out')
    """
    may_have_word = False
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            if not may_have_word or word in ("-", "--"):
                return f"{word}: srun would begin its program there. Leave it out"
            may_have_word = False
            continue
        name, joined, value = _option(word)
        if (why := _why_not(name, value, words)) is not None:
            return f"{word}: {why}"
        may_have_word = not joined and name not in _LONG_SWITCHES and (name not in KNOWN or takes_word(name))
    return None


def _option(word: str) -> tuple[str, bool, str]:
    """Its name, whether a value or the next letters are joined to it or it takes none, and the value."""
    if word.startswith("--"):
        name, sign, value = word[2:].partition("=")
        return name, bool(sign), value
    letters = word[1:].lstrip("".join(_SWITCHES))
    return (_SHORT.get(letters[0], letters[0]), len(letters) > 1, letters[1:]) if letters else (word[1:], True, "")


def _why_not(name: str, value: str, words: Sequence[str]) -> str | None:
    if _means(name, _SIZES):
        return "the plan decides how many nodes and tasks there are. Leave it out"
    if _means(name, ("time",)):
        return "the plan decides how long a job takes. Leave it out, and use defaults.time"
    if _means(name, _OF_OUTPUT):
        return "the run's records need the tasks' output and folder as they are. Leave it out"
    if _means(name, _NO_RUN):
        return "no rank would be started as a task of the job. Leave it out"
    separate = next((after for word, after in itertools.pairwise(words) if word == f"--{name}"), "")
    if _means(name, ("export",)) and (value or separate).split(",")[0] != "ALL":
        return "the ranks need the job's variables. Leave it out, and set others under env"
    return None


def _means(name: str, options: Sequence[str] | frozenset[str]) -> bool:
    """Whether srun takes it for one of these, in full or by a beginning that may be one of theirs."""
    return name in options or (name not in KNOWN and len(name) > 1 and any(one.startswith(name) for one in options))
