"""What messages tell of passwords and keys: that they were refused, what they are, whose they are, and the values that a check refused.

Standard library only. Each pattern goes a bounded way; its last group is the secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import tells
from hpc_llm.text.secret_values import is_composed, is_generated, is_harmless, is_mixed_word, is_number, is_told

_SAID_IN_WORDS = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:password|passwd|passphrase|passcode|api[ ]key|secret[ ]key|access[ ]token)["']?[\ ](?i:is|was)(?:[\ ]now)?:?[\ ]{1,3}["'`]?)([^\s"'`,;$<(\[{)\]}]{4,200})"""
)
_REFUSED = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:(?:incorrect|invalid|wrong|bad|unknown|expired)\ (?:api[ _]key|(?:access\ |auth\ )?token|password|credentials?)(?:\ provided)?:?\ |api\ key\ must\ be\ [^\n:]{1,60},\ yours\ was\ \d{1,4}:\ )["'`]?)([^\s"'`,;$<(\[{)\]}]{6,200})"""
)
"""What a service says of the key that it was given."""
_SAID_OF_KEYS = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:token|secret|key|jwt|bearer|pw|pwd|psk|pass|auth|cookie)["']?[\ ](?i:is|was)(?:[\ ]now)?:?[\ ]{1,3}["'`]?)([^\s"'`,;$<(\[{)\]}]{8,200})"""
)
_NOT_TAKEN = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:(api[ _-]?key|passwo?r?d|passphrase|token|secret|credentials?|cookie|pw|key)s?\ [^\n:=]{0,60}?(?:valid|wrong|rejected|refused|denied|expired|unknown
    |accepted|correct|recogni[sz]ed|found)[^\n:]{0,30}:\ {1,3}["'`]?))([^\s"'`,;$<(\[{)\]}]{6,200})""",
    re.VERBOSE,
)
"""What is said of a key before it is told: `api_key not valid: …`."""
_NOT_TAKEN_WORD = late_pattern(
    r"(?i)valid|wrong|rejected|refused|denied|expired|unknown|accepted|correct|recogni[sz]ed|found"
)
_USER_AND_PASSWORD = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:(basic|login|userpwd|userpass)|user(?:name)?|account|credentials?|auth|proxy)["']?(?:=|:\ ?|\ )["']?[A-Za-z][\w.@+-]{0,60}:)([^\s"'$<>(|;&`,/:@]{4,200})(?![\w:/@])"""
)
_CHECKED = late_pattern(
    r"""(?<![\w.])((\w{0,40}(?i:token|key|pass(?:word|wd|phrase)?|secret|credentials?)):?\ [^\n]{0,120}?\[type=\w{1,60},\ input_value=["'])([^"'\n]{4,300})"""
)
"""What pydantic says of a field and its value."""
_NO_CHOICE = late_pattern(
    r"""(argument\ (?:-\w(?:,\ |/))?--?([\w-]{2,60})(?:/-{1,2}[\w-]{1,60})?:\ invalid\ (?:\w{1,20}\ value|choice):\ ["'])([^"'\n]{4,300})"""
)
"""What argparse says of an option and its value."""
_CALLED = late_pattern(
    r"""((?:(?<=:)|\A)[\ \t]{0,8}(?:export:\ )?["'`=]{0,2})([A-Za-z0-9_+/=-]{20,200})(?=["']?:\ (?:command\ not\ found|not\ a\ valid\ identifier))"""
)
_NOT_FOUND = late_pattern(r"""(command\ not\ found:\ ["'`=]{0,2})([A-Za-z0-9_+/=-]{20,200})""")
"""What a shell says of a word that it was to call, as behind `KEY= value`; zsh names it behind."""


def is_password(found: re.Match[str]) -> bool:
    """Whether what stands behind "the password is", or an option for one, can be one, and is no word on it."""
    return not is_harmless(found[2]) and is_told(found[2])


def _is_mixed(found: re.Match[str]) -> bool:
    return is_mixed_word(found[found.re.groups].rstrip("."))


def _is_not_taken(found: re.Match[str]) -> bool:
    """Of a key in general the value has to be drawn: models have keys and tokens, too."""
    is_named = found[2].lower().startswith(("api", "pass"))
    return is_mixed_word(found[3].rstrip(".")) or (
        is_named and not is_harmless(found[3]) and is_told(found[3]) and is_composed(found[3].rstrip("."), marks="")
    )


def _is_user_and_password(found: re.Match[str]) -> bool:
    return is_mixed_word(found[3]) or (found[2] is not None and is_composed(found[3]) and not is_number(found[3]))


def _is_refused(found: re.Match[str]) -> bool:
    return is_password(found) and is_composed(found[2].rstrip("."))


def _is_drawn(found: re.Match[str]) -> bool:
    """No program has a name that was drawn."""
    return is_generated(found[2], least=20)


def _is_checked(found: re.Match[str]) -> bool:
    return tells(found[2]) == "surely" and not is_harmless(found[3])


def _says_so(text: str) -> bool:
    """Whether a word on a key that was not taken stands in a text, and a colon: most have none."""
    return ": " in text and _NOT_TAKEN_WORD.search(text) is not None


def in_messages(text: str) -> list[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]]]:
    """The patterns to look for in a text, by the words before a secret, and whether what stands there is one."""
    return [*_IN_MESSAGES, (_NOT_TAKEN, _is_not_taken)] if _says_so(text) else _IN_MESSAGES


_IN_MESSAGES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]]] = [
    (_SAID_IN_WORDS, is_password),
    (_REFUSED, _is_refused),
    (_SAID_OF_KEYS, _is_mixed),
    (_USER_AND_PASSWORD, _is_user_and_password),
    (_CHECKED, _is_checked),
    (_NO_CHOICE, _is_checked),
    (_CALLED, _is_drawn),
    (_NOT_FOUND, _is_drawn),
]
