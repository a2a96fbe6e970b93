"""Words of bash and of sbatch: a value of any origin becomes one word, or is refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from hpc_llm.errors import RequestError

_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")


def shell_word(value: Any) -> str:
    """`value` as one word of bash, on one line, in which nothing is expanded.

    >>> print(shell_word("it's"), shell_word("two\\nlines"))
    'it'"'"'s' $'two\\nlines'
    """
    text = _carried(str(value))
    if not _CONTROL.search(text):
        return shlex.quote(text)
    # One line of the script per value: readable, and no terminal that shows the script obeys what is in it.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "$'" + _CONTROL.sub(lambda match: f"\\{ord(match.group()):03o}", escaped) + "'"


def sbatch_word(value: str) -> str:
    """`value` as one word of an #SBATCH line, which sbatch reads by rules of its own.

    A backslash escapes there even between single quotes, unlike in a shell.
    """
    text = _carried(value)
    if _CONTROL.search(text):
        raise RequestError(f"{text!r} holds a control character, which would break a #SBATCH line.")
    return shlex.quote(text).replace("\\", "\\\\")


def _carried(text: str) -> str:
    """`text`, refused where no script can carry it."""
    if "\0" in text or not _is_encodable(text):
        raise RequestError(f"{text!r} holds a character that a script cannot carry. Write it in UTF-8, without NUL.")
    return text


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def variables_in(texts: Iterable[str]) -> list[str]:
    """The variables that `shell_expand` leaves to the shell in these texts, each once.

    >>> variables_in(["/work/${USER}/$ENV", "~/${ENV}"])
    ['USER', 'ENV']
    """
    return list(dict.fromkeys(one[1] or one[2] for text in texts for one in _VARIABLE.finditer(text)))


def shell_expand(value: Any) -> str:
    """`value` as one shell word in which ${NAME} and $NAME and a leading ~/ are expanded and nothing else is.

    >>> print(shell_expand("/work/${USER}/a b"))
    /work/"${USER}"'/a b'
    """
    text = str(value)
    text = "${HOME}" + text[1:] if text.startswith("~/") else text
    parts, start = [], 0
    for match in _VARIABLE.finditer(text):
        parts.append(text[start : match.start()])
        parts.append(f'"${{{match.group(1) or match.group(2)}}}"')
        start = match.end()
    parts.append(text[start:])
    return "".join(p if i % 2 else shell_word(p) if p else "" for i, p in enumerate(parts)) or "''"


def shell_comment(value: Any) -> str:
    """`value` on one line, fit for a comment."""
    return "".join(c if c.isprintable() else " " for c in str(value))
