"""What the values of sbatch's options may be, for those that have a form of their own: a wrong one is refused only when it is submitted.

Tried with Slurm's own sbatch, which a test asks again. An option that is not here may have any value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.numbers import whole_number

_LISTS = {
    "mail-type": "none begin end fail requeue all invalid_depend stage_out time_limit time_limit_90 time_limit_80 time_limit_50 array_tasks",
    "profile": "all none energy task filesystem lustre network",
}
"""Options whose values are words with commas between them, in capitals or not."""
_WORDS = {
    "open-mode": "append truncate",
    "hint": "compute_bound memory_bound multithread nomultithread",
    "kill-on-invalid-dep": "yes no",
    "wait-all-nodes": "0 1",
    "gres-flags": "disable-binding enforce-binding one-task-per-sharing multiple-tasks-per-sharing allow-task-sharing",
}
_ALONE_OR = {
    "exclusive": "user mcs topo",
    "no-kill": "off",
}
"""Options that stand alone, or with one of these words."""
_LIMITS = frozenset("AS CORE CPU DATA FSIZE MEMLOCK NOFILE NPROC RSS STACK".split())
"""What --propagate takes beside ALL and NONE alone, in capitals."""
_COUNTS = (
    "mincpus",
    "thread-spec",
    "threads-per-core",
    "cores-per-socket",
    "sockets-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
)
_COUNT = late_pattern(r"\+?0{0,20}[1-9][0-9]{0,9999}")
"""How long a number may be is said elsewhere."""
_AMOUNT = late_pattern(r"[0-9]{1,12}(?:[KMGT]B?)?", re.IGNORECASE)
_RANGES = {"nice": (-2147483645, 2147483645), "priority": (0, 4294967293)}
"""Options whose number has bounds; behind it, and in its place, sbatch takes anything."""
_WHOLE = late_pattern(r"[+-]?[0-9]+")
_BEGINNING = late_pattern(r"([+-]?)([0-9]+)")
_JOB = r"\ *\+?-?[0-9]+(?:_(?:[0-9]+|\*|\[[0-9,%-]+\]))?"
_AFTER = rf"(?:after(?:any|burstbuffer|corr|notok|ok)?|expand)(?::{_JOB}(?:\+[1-9][^:,?]*)?)+"
_WAITS = rf"(?:singleton|{_AFTER}|{_JOB})"
_SPEED = r"(?:low|medium|high|highm1|[0-9]+)"
_SAMPLING = r"(?:[^,]{0,99}(?:task|energy|filesystem|network)=)?\ *\+?(?!-0{0,20}1(?![0-9]))-?[0-9][^,]*"
"""Seconds, with the program of accounting before them or none; -1 is none."""
_PLACES = r"(?:\*[^:]*|\ *\+?[0-9]{1,9}[KkMm]?(?:-\+?[0-9]{1,9}[KkMm]?)?)?"
_GOVERNOR = late_pattern(r"co|perf|pow|user|onde|sche", re.IGNORECASE)
_NAMED_SPEED = late_pattern(r"(lo)|(med)|(hi(?!m1|ghm1))|(hi)", re.IGNORECASE)
_LARGEST = 2**32
_FORMS = {
    "distribution": (
        late_pattern(r"plane=\ *[1-9][0-9]{0,8}|(?:(?:\*|block|cyclic)?(?::(?:\*|block|cyclic|fcyclic)?){0,2}|arbitrary)(?:,(?:(?:no)?pack)?)?|(?:no)?pack", re.IGNORECASE),
        "block, cyclic, arbitrary or plane=N; behind block and cyclic :block, :cyclic or :fcyclic for sockets and for cores; ,Pack or ,NoPack at the end",
    ),
    "licenses": (
        late_pattern(r"[^\s:,;|]+(?::[0-9][^\s:,;|]*)?(?:[,;|]+[^\s:,;|]+(?::[0-9][^\s:,;|]*)?)*[,;|]*"),
        "the name of a license, and behind it :NUMBER where more than one is needed, with commas between several, as in matlab:2,ansys",
    ),
    **dict.fromkeys(
        ("constraint", "prefer"),
        (
            late_pattern(r"(?:[^\s*]|\*(?=[0-9]))+"),
            "names of features without blanks, with & for all or | for any between them, as in a100&nvme",
        ),
    ),
    "gpu-bind": (
        late_pattern(r"(?:verbose,)?(?:c|n|(?:single|per_task):|map(?:_gpu)?:(?![a-z])|mask(?:_gpu)?:(?![g-z])).*", re.IGNORECASE),
        "closest, none, per_task:N, single:N, map_gpu:LIST, mask_gpu:LIST, and verbose, before them",
    ),
    "gpu-freq": (
        late_pattern(rf"(?:(?:(?:memory=)?{_SPEED}|verbose)?,)*(?:(?:memory=)?{_SPEED}|verbose)?"),
        "low, medium, high, highm1 or a number of MHz, memory= before one of these, and verbose, with commas between them",
    ),
    "dependency": (
        late_pattern(rf"{_WAITS}(?:(?:,{_WAITS})*|(?:\?{_WAITS})*)", re.IGNORECASE),
        "afterok:JOB, afterany:JOB, after:JOB+MINUTES, afternotok:JOB, aftercorr:JOB, afterburstbuffer:JOB or singleton, with , for all or ? for any between them and not both; JOB is a number",
    ),
    "mem-bind": (
        late_pattern(r"(?:q|quiet|v|verbose|no|none|rank|local|sort|nosort|p|prefer|m(?:ap|ask)_mem:.+)(?:[,;].*)?", re.IGNORECASE),
        "local, none, rank, map_mem:LIST or mask_mem:LIST, and quiet, verbose, prefer, sort or nosort, with commas between them",
    ),
    "delay-boot": (late_pattern(r"-?[0-9][0-9:-]*|unlimited|infinite", re.IGNORECASE), "minutes, or a time as in 00:10:00"),
    "tmp": (_AMOUNT, "a whole number, of MB or with one of K, M, G and T behind it, as in 64G"),
    "core-spec": (late_pattern(r"\+?[0-9]{1,18}"), "a whole number"),
    "acctg-freq": (
        late_pattern(rf",*(?:{_SAMPLING}(?:,+{_SAMPLING})*,*)?", re.IGNORECASE),
        "seconds, or task=, energy=, filesystem= or network= with seconds behind it, with commas between them",
    ),
    "switches": (late_pattern(r"\+?0{0,20}[1-9][0-9]{0,17}(?:@.*)?"), "a whole number from 1 on, and behind it the longest time to wait for that, as in 1@00:10:00"),
    "extra-node-info": (
        late_pattern(rf"{_PLACES}(?::{_PLACES}(?::{_PLACES}(?::.*)?)?)?"),
        "sockets, sockets:cores or sockets:cores:threads of a node, each a whole number or *",
    ),
    "get-user-env": (late_pattern(r"[0-9]{0,9}[SL]?", re.IGNORECASE), "get-user-env alone, seconds to wait, and S or L behind them, as in 10L"),
}  # fmt: skip
"""Options with a form of their own, and what to write."""
_TIMES = ("begin", "deadline")


def _names_no_day(value: str) -> bool:
    from hpc_llm.site.sbatch_times import names_no_day  # few requests say when

    return names_no_day(value, datetime.now())


def _names_moment(value: str) -> bool:
    """Whether it is one, or at least a day that would be one if it existed."""
    from hpc_llm.site.sbatch_times import moment_of, names_no_day

    now = datetime.now()
    return moment_of(value, now) is not None or names_no_day(value, now)


def wrong_value(name: str, value: str) -> str | None:
    """What is wrong with the value, in whole sentences; None where nothing is, or nobody knows."""
    if (valid := valid_values(name, value)) is not None:
        return f"sbatch does not know that. Valid: {valid}."
    if name in _TIMES and _names_no_day(value):
        return "there is no such day, and Slurm would take one of the next month for it. Name another."
    if name in _RANGES and value and not _WHOLE.fullmatch(value) and (name, value.upper()) != ("priority", "TOP"):
        read = _BEGINNING.match(value)
        held = " and hold the job" if name == "priority" and not read else ""
        return f"sbatch would read it as {read[0] if read else 0}{held}. Write a whole number."
    return None


def valid_values(name: str, value: str) -> str | None:
    """What may stand there, where the value is none of it; None where it is, or nobody knows.

    >>> valid_values("mail-type", "BEGIN,END"), valid_values("open-mode", "x"), valid_values("begin", "soon")
    (None, 'append, truncate', 'now+30minutes, now+2hours, now+1day, tomorrow, 16:00, 2027-01-20T12:34')
    """
    if name in _LISTS and not _are_among(value.split(","), _LISTS[name]):
        return _shown(_LISTS[name].upper())
    if name in _WORDS and not _are_among([value], _WORDS[name]):
        return _shown(_WORDS[name])
    if name in _ALONE_OR and value and not _are_among([value], f"{_ALONE_OR[name]} {name}"):
        return ", ".join((f"{name} alone", *(f"{name}={word}" for word in _ALONE_OR[name].split())))
    if name == "propagate" and value not in ("", "ALL", "NONE") and not set(value.split(",")) <= _LIMITS | {""}:
        return f"propagate alone, ALL, NONE, or some of {', '.join(sorted(_LIMITS))}"
    if name in _FORMS and not _FORMS[name][0].fullmatch(value):
        return _FORMS[name][1]
    if name in _RANGES and not _is_within(value, *_RANGES[name]):
        return "a whole number from {} to {}".format(*_RANGES[name])
    if name in _COUNTS and not _COUNT.fullmatch(value):  # how many there may be is held to the site elsewhere
        return "a whole number from 1 on"
    if name == "cpu-freq" and not _is_cpu_frequency(value):
        return (
            "low, medium, high, highm1 or a number of kHz; two of these as in 1000000-high, the lower one first, and behind them :GOVERNOR; or a "
            "governor alone, as performance"
        )
    if name in _TIMES and not _names_moment(value):
        return "now+30minutes, now+2hours, now+1day, tomorrow, 16:00, 2027-01-20T12:34"
    return None


def _is_cpu_frequency(value: str) -> bool:
    """Whether sbatch reads it as a governor, a frequency or two of them, the lower one first, and a governor behind them."""
    frequencies, colon, governor = value.partition(":")
    if _GOVERNOR.match(frequencies):
        return not colon and "-" not in frequencies
    ranks = [_rank(one) for one in frequencies.split("-", 1)]
    if None in ranks or ranks != sorted(ranks, key=lambda rank: rank or 0):
        return False
    return not colon or (len(ranks) > 1 and _GOVERNOR.match(governor) is not None)


def _rank(frequency: str) -> int | None:
    """Where it stands among all frequencies, those with a name behind those in numbers; None of what is none."""
    if named := _NAMED_SPEED.match(frequency):
        return _LARGEST + (named.lastindex or 0)
    number = _BEGINNING.match(frequency)
    return (whole_number(number[2]) or 0) % _LARGEST or None if number else None


def _is_within(value: str, least: int, most: int) -> bool:
    """Whether the number at the beginning of a value, if there is one, is within its bounds."""
    found = _BEGINNING.match(value)
    number = whole_number(found[2]) if found else 0
    return number is not None and least <= (-number if found and found[1] == "-" else number) <= most


def _are_among(said: Iterable[str], known: str) -> bool:
    return set(map(str.lower, said)) <= set(known.split())


def _shown(known: str) -> str:
    return ", ".join(known.split())
