"""The pattern of a site's accounts: regular expressions without what can take forever. Standard library only.

A profile may be a stranger's, and a few characters are enough for a match that never ends. So a pattern is short, repeats
single characters and no groups, and has few places where more than one way can be tried.
"""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern

LONGEST_PATTERN, LONGEST_ACCOUNT = 80, 64
"""Characters."""
MOST_CHOICES = 4
"""Repetitions of no fixed length, optional parts and lists of alternatives: in 64 characters four cost less than a second."""
_ONE = r"(?:\\[dDwWsS.^$*+?()\[\]{}|\\/-]|\[\^?\]?(?:\\.|[^\]\\])+\]|[^\\\[\](){}|*+?^$])"
_TOKEN = late_pattern(
    rf"""\A(?: (?P<choice>{_ONE}(?:[*+?]|\{{\d{{1,2}},\d{{0,2}}\}}) | \)\?)
    | (?P<group>\((?:\?:)?) | (?P<bar>\|) | {_ONE}(?:\{{\d{{1,2}}\}})? | \) | [\^$] )""",
    re.VERBOSE,
)


def check_pattern(pattern: str) -> None:
    """Raise a ValueError that says why `pattern` is no pattern of accounts."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"it has {len(pattern)} characters, {LONGEST_PATTERN} are allowed")
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    choices, lists, depth, rest = 0, {0: False}, 0, pattern
    while rest:
        token = _TOKEN.match(rest)
        if token is None:
            raise ValueError(
                f"at '{rest[:10]}' it goes beyond letters, sets as in [0-9], groups of alternatives, and repetitions of "
                "single characters or sets"
            )
        if token["group"]:
            depth += 1
            lists[depth] = False
        elif token["choice"] or (token["bar"] and not lists[depth]):
            choices += 1
            lists[depth] = lists[depth] or bool(token["bar"])
        depth -= token[0].startswith(")")
        rest = rest[token.end() :]
    if choices > MOST_CHOICES:
        raise ValueError(
            f"{choices} parts of it can match in more than one way (*, +, ?, {{m,n}}, |), {MOST_CHOICES} are allowed"
        )


def fits(pattern: str, account: str) -> bool:
    """Whether an account matches somewhere; one that is longer than any account does not.

    >>> fits("^(ACD|MST)[0-9]+$", "ACD110018"), fits("-gpu$", "lab-cpu")
    (True, False)
    """
    return len(account) <= LONGEST_ACCOUNT and re.search(pattern, account) is not None
