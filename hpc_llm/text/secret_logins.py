"""Passwords that a call of `login` is given, and those written into the files from which programs log in. Standard library only.

Each look goes a bounded way around the call or the file's name.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_values import is_harmless, is_told

_CALL = late_pattern(
    r"""(?<![A-Za-z0-9_])(?:login|notebook_login|set_access_token)\(\ {0,3}(?:["'][^"'\n]{0,100}["'],\ {0,3})?"""
    r"""(?:(?:token|key|api_key|password|passwd|relogin)\ ?=\ ?)?\\{0,2}["'](?P<said>[^"'\\\n]{4,300})\\{0,2}["']\ {0,3}[,)]"""
)
"""Of a user and a password the password."""
_FILE = late_pattern(
    r"\.pgpass\b|pgpass\.conf|[._]netrc\b|\.my\.cnf\b|\.mylogin\.cnf|\.(?:smb|cifs)(?:cred(?:ential)?s?)?\b|\.git-credentials|\.authinfo\b"
)
_WRITES = late_pattern(r"""(?<![\w-])(?:echo|printf|tee|cat|sed|EOF|write\w{0,10})(?![\w-])|<<""")
"""A line that names such a file and does none of these writes nothing into it."""
_BEFORE, _BEHIND = 600, 600
_ENTRY_OF_PGPASS = late_pattern(
    r"""(?<![^\s"'`(])(?:[\w.*-]{1,100}|\[[0-9a-f:]{2,40}\]):(?:\d{1,5}|\*):[^\s:"']{1,60}:[^\s:"']{1,60}:(?P<said>(?:[^\s"'\\$<>(){]|\\(?![nrt]))[^\s"'\\]{2,200})"""
)
_ENTRY = late_pattern(
    r"""(?:(?<![A-Za-z0-9_-])|(?<=\\[nt]))(?:password|passwd|pass)(?:\ ?=\ ?|(?:\ |\t|\\[nt]){1,5})["']?(?P<said>[^\s"'\\$<>(){=-][^\s"'\\]{2,200})"""
)
"""The same of `.netrc` and `.my.cnf`, in lines or in the escapes that printf makes lines of."""
_IN_ADDRESS = late_pattern(r"""://?[^\s:/@"'$]{1,80}:(?P<said>[^\s:/@"'$<({]{3,200})@""")


def secrets_in_logins(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand.

    >>> text = "login('hunter22'); echo 'h:5432:db:me:hunter33' > ~/.pgpass"
    >>> [text[start:end] for start, end in secrets_in_logins(text)]
    ['hunter22', 'hunter33']
    """
    if "(" in text:
        for call in _CALL.finditer(text):
            if not is_harmless(call["said"]) and is_told(call["said"]):
                yield call.span("said")
    looked = 0
    for file in _FILE.finditer(text):
        begin, end = max(looked, file.start() - _BEFORE), min(len(text), file.end() + _BEHIND)
        looked = max(looked, end)
        if _WRITES.search(text, max(0, begin - 1), end) is None:
            continue
        for pattern in (_ENTRY_OF_PGPASS, _ENTRY, _IN_ADDRESS):
            for found in pattern.finditer(text, begin, end):
                if not is_harmless(found["said"]) and is_told(found["said"]):
                    yield found.span("said")
