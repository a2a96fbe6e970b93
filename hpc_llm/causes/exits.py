"""The words by which launchers say with which code a process ended.

A negative code is the signal that ended it, and 128 and the signal's number is what a shell makes of that. A launcher in Python that
ends with a negative code itself leaves 256 less that.
"""

from __future__ import annotations

_WORDS = (
    r"(?:\b[Ee]xit(?:ed|s)? (?:with )?(?:exit )?(?:[Cc]ode|[Ss]tatus)|\b[Ee]xit[Cc]ode|\bexited with(?: non-zero)? (?:code|status)"
    r"|\bnon-zero (?:exit )?(?:code|status)|\b[Rr]eturn[ _]?code|\breturned non-zero exit status|\bterminated with code)"
    r"(?: of)? ?[:=]?[ \t]{0,4}\(?"
)
_PAIRS = (
    "ode ",
    "ode: ",
    "ode=",
    "ode = ",
    "ode:    ",
    "ode  : ",
    "ode of ",
    "tatus ",
    "tatus: ",
    "tatus=",
    "tatus (",
)
"""How the last letters of the word and the number mostly stand together."""
_END = r"(?![\w%]|[.,]\d)"


def exit_code(*signals: int) -> str:
    """A pattern for a process that one of these signals ended, by the code that a launcher, a shell or a container names.

    Composer's last words on each process are left out: it says so of those, too, that it ended itself for the sake of another.
    """
    codes = "|".join(f"-{number}|{128 + number}" for number in signals)
    of_python = "|".join(str(256 - number) for number in signals)
    return (
        rf"(?<!\d\) ){_WORDS}(?:{codes}){_END}|\bExited \((?:{'|'.join(str(128 + number) for number in signals)})\)"
        rf"|\b(?:return code = |returned non-zero exit status )(?:{of_python}){_END}"
    )


def exit_texts(*signals: int) -> tuple[str, ...]:
    """Texts of which each match of `exit_code` that a program is known to write contains one."""
    codes = [str(code) for number in signals for code in (-number, 128 + number)]
    said = [f"{before}{code}" for before in _PAIRS for code in codes]
    of_python = [f"{before}{256 - number}" for before in ("code = ", "status ") for number in signals]
    return (*said, *of_python, *(f"xited ({128 + number})" for number in signals))
