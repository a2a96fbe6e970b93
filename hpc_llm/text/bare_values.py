"""Where a value without quotes ends. A password may hold the marks that end other values: `&`, `;`, `<`, `>`, `%` and quotes.

Standard library only. Each look goes a bounded way.
"""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern

BARS = "|│┃║"
"""What stands between the cells of a printed table."""
_CELL = late_pattern(rf"[^{BARS}]*")
_BARE = late_pattern(
    r"""(?:[^\s,;&'"`<>|│┃║%\\\x00-\x1f\x7f]{1,500}|(?<=[\w$!@\#^*+=~.-])['](?=[\w$!@\#^*+=~-])|%(?!2[267]|3[bB])|\\(?![nrt"'u])|,(?=[^\s"',={}\[\]:]{1,60}(?:[\s;&'"`)\]}|]|\Z))"""
    r"""|(?<=[^\s|=:])\|(?=[^\s|"'`<>&;,)\]}])(?![A-Za-z_][\w.-]{1,40}[=:])){0,500}"""
)
"""A comma, or a `|` without blanks, goes on where no further name with a value of its own follows. It is matched by `bare_end`."""
_PAIR = r"(?:[A-Za-z_][\w.:-]{0,60}|(?:[A-Z][A-Za-z]{0,20}\ ){1,3}[A-Z][A-Za-z]{0,20})\ ?(?:=(?=[^\s=])|%3[Dd])"
"""The next pair of a query or of a connection string, whose names may have blanks: `Data Source=`."""
_FILE = r"""(?:&[0-9-](?![\w.])|(?:/(?:dev|tmp|home|scratch|work|projects?|data|var|mnt|u)/|~/|\.{1,2}/)[\w./$\{}%+-]{1,200}|\$\{?[A-Z_]{1,40}\}?"""
_FILE += r"""|[\w./$\{}-]{1,100}\.(?:txt|log|out|err|jsonl?|csv|tsv|ya?ml|sql|html|md|pkl|gz))(?=[\s;&|)"'`]|\Z)"""
REDIRECTION = rf"""(?:&?>>?\|?|<)\ ?{_FILE}"""
"""What a shell writes to or reads from, where it is surely that and no end of a password: `>out.txt`, `>>/tmp/x`, `>&2`."""
_MARK = late_pattern(
    rf"""(?!{REDIRECTION})(?:(?:&(?!&|(?:amp|lt|gt|quot|apos|nbsp|\#x?[0-9A-Fa-f]{{1,6}});)|;(?!;)|%26|%3[Bb])(?!\s{{0,3}}{_PAIR})(?=[^\s\x00-\x1f\x7f])
    |["'`](?=[^\s,;:.)\]}}"'`])|%2[27](?=[A-Za-z0-9])|<(?!/|(?:br|p|td|tr|li|div|span|b|i|code|pre|a)\b[^<>]{{0,80}}>)|>)""",
    re.VERBOSE,
)
"""A mark that other values end at and a password may go on behind: no end of a command, no entity, tag, or closing quote."""
_BRACED = late_pattern(r"""\{[^{}\s]{1,200}\}(?=[;\s"']|\Z)""")
"""How connection strings of ODBC write a value with marks in it."""
_CLOSING = late_pattern(r"""(?:["'`<>&;:.,]|/>)+\Z""")
_QUOTES = {'"': r"\"", "'": r"'", "`": r"`", "%22": "%22", "%27": "%27"}
_OPENERS = {quote: late_pattern(rf"(?<![\w\\]){mark}|(?<!\\){mark}(?!\w)") for quote, mark in _QUOTES.items()}
"""Quotes but for the apostrophe within a word."""
_BRACKETS = frozenset(")]}")
_LONGEST, _LINE = 500, 300
_SEEN = _LONGEST + 100
"""So far a look goes, which is farther than a value and what decides on its last mark."""


def bare(text: str, start: int, is_cell: bool = False) -> str:
    """A value without quotes that begins at `start`; that of a cell ends at a bar."""
    return as_value(text[start : bare_end(text, start, is_cell)])


def as_value(run: str) -> str:
    """The value that a run of letters and marks is, without what closes something else."""
    return _closed(run.rstrip(":"))


def bare_end(text: str, start: int, is_cell: bool = False) -> int:
    """Where the letters and marks end that all values may have: runs of letters are passed over at once, as a text may be full of names."""
    cell = _CELL.match(text, start, start + _SEEN) if is_cell else None
    found = _BARE.match(text, start, cell.end() if cell else start + _SEEN)
    return min(found.end(), start + _LONGEST) if found else start


def bare_password(text: str, start: int, begin: int, *, is_in_tag: bool = False, end: int | None = None) -> str:
    """The same of a password whose name begins at `begin`: up to a blank, a quote that was opened before, or a further pair.

    `end` is where other values end, if that is known.

    >>> bare_password("PASSWORD=a7;x9&y", 9, 0), bare_password("'PASSWORD=a7<b' x", 10, 1), bare_password("pwd=a;b=c", 4, 0)
    ('a7;x9&y', 'a7<b', 'a')
    """
    if braced := _BRACED.match(text, start):
        return braced[0]
    end = bare_end(text, start) if end is None else end
    first = text[start:end]
    value = _closed(first.rstrip(":"))
    if len(value) < len(first.rstrip(":")):  # behind the bracket that closes a call stands no password
        return value
    while end - start < _LONGEST:
        mark = _AMPERSAND.match(text, end) if is_in_tag else _MARK.match(text, end)
        if mark is None or (mark[0] in _QUOTES and _is_open(mark[0], text, begin)):
            break
        end = bare_end(text, mark.end())
    whole = text[start:end]
    return whole if is_in_tag or whole == first else _closed(_CLOSING.sub("", whole)) or value


_AMPERSAND = late_pattern(r"""[&;"'`>%]""")
"""Within an element all but `<` belongs to the value."""


def _is_open(quote: str, text: str, begin: int) -> bool:
    """Whether a quote of that kind was opened on the line before the name, and not closed."""
    since = max(text.rfind("\n", max(0, begin - _LINE), begin) + 1, begin - _LINE)
    if text.find(quote, since, begin) < 0:
        return False
    return len(_OPENERS[quote].findall(text[since:begin])) % 2 == 1


def _closed(value: str) -> str:
    """Without the brackets that were opened before it."""
    if value[-1:] not in _BRACKETS:
        return value
    for opened, closed in ("()", "[]", "{}"):
        while value.endswith(closed) and value.count(closed) > value.count(opened):
            value = value[:-1]
    return value
