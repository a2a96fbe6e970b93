"""Passwords of connection strings, `Server=db1;Uid=train;Pwd=word;`, whose names mean other things elsewhere, and of those
without names. Standard library only."""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_values import is_told

OF_ORACLE = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:jdbc:oracle:\w{1,10}:|userid=)["']?[A-Za-z][\w.$\#-]{0,60}/)([^\s"'@/$<({]{3,100})(?=@)"""
)
"""User and password of a string for Oracle, `jdbc:oracle:thin:train/word@db1`."""
_NAMES = frozenset("pwd pw pass".split())
_LINE = 500
_OTHER = late_pattern(
    r"""(?:(?:\A|[\s;'"`{(=,?]|://|\\[nrt])(?i:server|data\ source|address|addr|host|hostname|driver|provider|dsn|uid|user|user\ id|userid|username
    |database|initial\ catalog|dbq|port)\ {0,2}=)|://[^\s;]{1,200};""",
    re.VERBOSE,
)
"""A pair that only the string of a connection has beside a password, or the address that one of Java's begins with."""
_PATH = late_pattern(r"(?:~|\.{1,2})?/|~\Z|\.{1,2}\Z|[A-Za-z]:[\\/]")
_JOINED = late_pattern(r"\A\s{0,2}[+.&]\s|\A[+]|\A&\s|[}%]\{?\w*[+]\Z")
"""How source goes on behind the end of a text, where the name's own quote is taken for one that opens a value."""


def is_of_connection(name: str) -> bool:
    """Whether the name is that of a password in such strings only."""
    return name.lower() in _NAMES


def in_connection_string(text: str, begin: int, end: int) -> bool:
    """Whether pairs with `;` between them, one of a server or a user, stand around the pair from `begin` to `end`.

    >>> text = "Uid=train;Pwd=word;"
    >>> in_connection_string(text, 10, 18), in_connection_string("lr=1;pwd=word", 5, 13)
    (True, False)
    """
    before = text[max(text.rfind("\n", max(0, begin - _LINE), begin) + 1, begin - _LINE) : begin].rstrip(" ")
    behind = text[end : end + _LINE].partition("\n")[0].lstrip("\"'} ")
    if before.endswith(";") and _OTHER.search(before):
        return True
    return behind.startswith(";") and _OTHER.search(behind) is not None


def is_password_of_connection(value: str) -> bool:
    """Whether the value can be one: a path is the working directory, and a word of a message or a piece of source is none."""
    return not (_PATH.match(value) or _JOINED.search(value)) and is_told(value)
