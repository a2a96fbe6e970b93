"""What launchers write before a line of a rank, a task or a host."""

from __future__ import annotations

import re

WHOSE = (
    r"(?:[ \t]{0,8}\d{1,9}\t)?(?:[ \t]{0,8}(?:\d{1,5}|\[(?:rank|default|Rank )?\d{1,5}\]|\[\d{1,5},(?:mpirank:)?\d{1,5}[^\]\n]{0,40}\](?:<std\w{1,4}>)?"
    r"|[A-Za-z](?:[\w-]{0,60}\d)(?:\.[\w.-]{1,80})?|\([^()\n]{3,60}pid=\d+[^()\n]{0,60}\))(?::[ \t]?|(?<=[\])])[ \t])){0,2}"
)
"""`0: `, `[default0]:`, `[1,0]<stdout>:`, `worker-0: `, one or two of them or none; before them the line's number as `cat -n` writes it."""
_ANCHOR = re.compile(r"(?<![\\\[])\^(?!\[\^)")


def behind_labels(pattern: str) -> str:
    r"""The pattern, for which a line begins behind its labels; one that lets anything stand before its words needs none of that.

    >>> bool(re.search(behind_labels("^Killed$"), "0: Killed")), behind_labels(r"^[^\n]{0,9}Killed$")
    (True, '^[^\\n]{0,9}Killed$')
    """
    return _ANCHOR.sub(lambda _: f"^{WHOSE}", pattern)
