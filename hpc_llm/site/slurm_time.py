"""Times as Slurm reads and writes them. Standard library only."""

from __future__ import annotations

import re

from hpc_llm.errors import RequestError

_ENDLESS = ("UNLIMITED", "INFINITE")
LONGEST_S = 2**31 - 1
"""Slurm counts seconds no further: of more it makes another time without a word."""
_LAST = 59
_TIME = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,9})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?")


def parse_time(text: str) -> int:
    """Seconds of a Slurm time: `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`.

    >>> parse_time("00:30:00"), parse_time("2-00:00:00"), parse_time("90")
    (1800, 172800, 5400)
    """
    match = _TIME.fullmatch(text.strip())
    if is_endless(text):
        raise RequestError(
            f"'{text}' is not a time that can be planned with. Write how long it may take, as D-HH:MM:SS."
        )
    if not match:
        raise RequestError(f"'{text}' is not a time. Write HH:MM:SS, D-HH:MM:SS or minutes.")
    days, *rest = match.groups()
    parts = [int(p) for p in rest if p is not None]
    # Only what stands first may be as long as it likes: `90:30` is an hour and a half, `25:61` mostly a slip.
    of_sixty = parts[1:]
    if any(part > _LAST for part in of_sixty):
        raise RequestError(
            f"'{text}' is not a time: {max(of_sixty)} minutes or seconds behind a colon are more than {_LAST}. "
            "Write HH:MM:SS, D-HH:MM:SS or minutes."
        )
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    if len(parts) == 2:
        return parts[0] * 60 + parts[1]
    return (parts[0] * 60 + parts[1]) * 60 + parts[2]


def is_endless(text: str) -> bool:
    """Whether it is one of Slurm's words for no limit."""
    return text.strip().upper() in _ENDLESS


def parse_limit(text: str) -> int:
    """Seconds of a limit; what has none ends with what Slurm can count.

    >>> parse_limit("UNLIMITED") == LONGEST_S, parse_limit("1-00:00:00")
    (True, 86400)
    """
    return LONGEST_S if is_endless(text) else parse_time(text)


def format_time(seconds: int) -> str:
    """Seconds as Slurm writes them.

    >>> format_time(172800), format_time(1800)
    ('2-00:00:00', '00:30:00')
    """
    minutes, secs = divmod(seconds, 60)
    hours, mins = divmod(minutes, 60)
    days, hrs = divmod(hours, 24)
    clock = f"{hrs:02}:{mins:02}:{secs:02}"
    return f"{days}-{clock}" if days else clock
