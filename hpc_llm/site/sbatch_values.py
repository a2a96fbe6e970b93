"""What the values of sbatch's options may be, for those that have a form of their own: a wrong one is refused only when it is submitted.

Tried with Slurm's own sbatch, which a test asks again. An option that is not here may have any value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
_LIMITS = frozenset("ALL NONE AS CORE CPU DATA FSIZE MEMLOCK NOFILE NPROC RSS STACK".split())
"""What --propagate takes, in capitals."""
_COUNTS = (
    "core-spec",
    "mincpus",
    "thread-spec",
    "threads-per-core",
    "cores-per-socket",
    "sockets-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
)
_AMOUNT = late_pattern(r"[0-9]{1,12}(?:[KMGT]B?)?", re.IGNORECASE)
_RANGES = {"nice": (-2147483645, 2147483645), "priority": (0, 4294967293)}
"""Options whose number has bounds; behind it, and in its place, sbatch takes anything."""
_BEGINNING = late_pattern(r"([+-]?)([0-9]+)")
_JOB = r"\ *\+?-?[0-9]+(?:_(?:[0-9]+|\*|\[[0-9,%-]+\]))?"
_AFTER = rf"(?:after(?:any|burstbuffer|corr|notok|ok)?|expand)(?::{_JOB}(?:\+[1-9][^:,?]*)?)+"
_WAITS = rf"(?:singleton|{_AFTER}|{_JOB})"
_SPEED = r"(?:low|medium|high|highm1|[0-9]+)"
_FORMS = {
    "distribution": (
        late_pattern(r"plane=\ *[1-9][0-9]{0,8}|(?:(?:\*|block|cyclic)?(?::(?:\*|block|cyclic|fcyclic)?){0,2}|arbitrary)(?:,(?:(?:no)?pack)?)?|(?:no)?pack", re.IGNORECASE),
        "block, cyclic, arbitrary or plane=N; behind block and cyclic :block, :cyclic or :fcyclic for sockets and for cores; ,Pack or ,NoPack at the end",
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
        late_pattern(rf"{_WAITS}(?:[,?]{_WAITS})*", re.IGNORECASE),
        "afterok:JOB, afterany:JOB, after:JOB+MINUTES, afternotok:JOB, aftercorr:JOB, afterburstbuffer:JOB or singleton, with , for all or ? for any between them; JOB is a number",
    ),
    "mem-bind": (
        late_pattern(r"(?:q|quiet|v|verbose|no|none|rank|local|sort|nosort|p|prefer|m(?:ap|ask)_mem:.+)(?:[,;].*)?", re.IGNORECASE),
        "local, none, rank, map_mem:LIST or mask_mem:LIST, and quiet, verbose, prefer, sort or nosort, with commas between them",
    ),
    "delay-boot": (late_pattern(r"-?[0-9][0-9:-]*|unlimited|infinite", re.IGNORECASE), "minutes, or a time as in 00:10:00"),
    "tmp": (_AMOUNT, "a whole number, of MB or with one of K, M, G and T behind it, as in 64G"),
    "switches": (late_pattern(r"[0-9]{1,9}(?:@.{1,40})?"), "a whole number, and behind it the longest time to wait for that, as in 1@00:10:00"),
    "get-user-env": (late_pattern(r"[0-9]{0,9}[SL]?", re.IGNORECASE), "get-user-env alone, seconds to wait, and S or L behind them, as in 10L"),
}  # fmt: skip
"""Options with a form of their own, and what to write."""
_TIMES = ("begin", "deadline")
_CLOCK = r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?(?:\ ?[AaPp][Mm])?"
_MONTH, _OF_MONTH = r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12][0-9]|3[01])"
_DAY = rf"(?:[0-9]{{4}}-{_MONTH}-{_OF_MONTH}|{_MONTH}{_OF_MONTH}[0-9]{{2}}|{_MONTH}[./]{_OF_MONTH}(?:[./][0-9]{{2}}(?:[0-9]{{2}})?)?)"
_TIME = late_pattern(
    rf"""(?:now(?:\s?[+-]\s?[0-9]{{1,9}}\s?(?:s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:ours?)?|d(?:ays?)?|w(?:eeks?)?)?)?|today|tomorrow|midnight|noon|fika
    |elevenses|teatime|(?:today|tomorrow|{_DAY})[T\-\ ]{_CLOCK}|{_DAY}|{_CLOCK})""",
    re.VERBOSE | re.IGNORECASE,
)


def valid_values(name: str, value: str) -> str | None:
    """What may stand there, where the value is none of it; None where it is, or nobody knows.

    >>> valid_values("mail-type", "BEGIN,END"), valid_values("open-mode", "x"), valid_values("begin", "soon")
    (None, 'append, truncate', 'now+2hours, tomorrow, 16:00, 2027-01-20T12:34')
    """
    if name in _LISTS and not _are_among(value.split(","), _LISTS[name]):
        return _shown(_LISTS[name].upper())
    if name in _WORDS and not _are_among([value], _WORDS[name]):
        return _shown(_WORDS[name])
    if name in _ALONE_OR and value and not _are_among([value], f"{_ALONE_OR[name]} {name}"):
        return ", ".join((f"{name} alone", *(f"{name}={word}" for word in _ALONE_OR[name].split())))
    if name == "propagate" and value and not set(value.split(",")) <= _LIMITS:
        return ", ".join(("propagate alone", *sorted(_LIMITS)))
    if name in _FORMS and not _FORMS[name][0].fullmatch(value):
        return _FORMS[name][1]
    if name in _RANGES and not _is_within(value, *_RANGES[name]):
        return "a whole number from {} to {}".format(*_RANGES[name])
    if name in _COUNTS and not value.isdecimal():  # how many there may be is held to the site elsewhere
        return "a whole number"
    if name in _TIMES and not _TIME.fullmatch(value):
        return "now+2hours, tomorrow, 16:00, 2027-01-20T12:34"
    return None


def _is_within(value: str, least: int, most: int) -> bool:
    """Whether the number at the beginning of a value, if there is one, is within its bounds."""
    found = _BEGINNING.match(value)
    number = whole_number(found[2]) if found else 0
    return number is not None and least <= (-number if found and found[1] == "-" else number) <= most


def _are_among(said: Iterable[str], known: str) -> bool:
    return set(map(str.lower, said)) <= set(known.split())


def _shown(known: str) -> str:
    return ", ".join(known.split())
