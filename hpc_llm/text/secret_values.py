"""Whether a value that stands behind the name of a secret is a secret.

It is none where it is a switch, a reference to a variable, the name of a type or a word of a message.

Standard library only.
"""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import (
    is_collective,
    is_key_of_data,
    is_of_a_service,
    is_secret_name,
    is_trackers,
    kind_of,
)
from hpc_llm.text.secret_shapes import RANDOM, is_random

HIDDEN = "(hidden)"
_PLACEHOLDER = "VALUE"
"""Stands for a value where a message says how something is written, as in KEY=VALUE."""
_HARMLESS = late_pattern(r"(?:true|false|yes|no|on|off|none|null|empty|nan|inf|[+-]?\d{0,3}(?:\.\d*)?)", re.IGNORECASE)
"""Switches, small numbers, and what stands for no key, as OPENAI_API_KEY=EMPTY of servers that want none."""
_NUMBER = late_pattern(r"[+-]?\d{1,9}(?:\.\d*)?(?:[eE][+-]?\d{1,3}|(?:\*{1,2}\d{1,9}){1,3})?")
_LONG_NUMBER = late_pattern(r"\d{7,100}")
_REFERENCE = late_pattern(
    r"\$[A-Za-z_]+\d?|\$[A-Z_][A-Z0-9_]*|\$\d|\$\{[^{}\n]{0,200}\}|\$\(.*|\$\{?\{.*|\{\{.*|\{[a-z_.]*\}|<[^<>0-9]*>|%\(\w{1,40}\)s|%s|%[A-Z_]+%|`[^`]*`"
)
"""Other variables, what a command prints, and what a template fills in."""
_MASKED = late_pattern(r"\A(?:\*{2,}.{0,4}|[xX]{3,}|\.{2,}|…|-+|_+|\[?(?:redacted|REDACTED|masked|MASKED|removed)\]?)")
_WITHIN = late_pattern(
    r"\$\{\w{1,60}\}|\$[A-Z_][A-Z0-9_]{0,60}(?!\w)|(?<![\w$])\$[a-z_]{1,60}(?!\w)|\{[a-z_.]{0,60}\}|%s|(?:[Bb]earer|[Bb]asic|[Tt]oken)\ "
)
_LEAST = 4
"""So many characters of a value are its own, and not those of other variables."""
_PROSE = late_pattern(r"(?i:[a-z]{1,30}(?:ed|ing|able|ible|ly|ory|ary|ent|ant|ous|ful|less|ive|en|id|al)[.:!?]?)\Z")
_NO_PASSWORDS = frozenset(
    """too long short weak strong good safe not only also never always still already same what which kept read taken sent shown used
    known here there then when where password passwd passphrase none null true false string text bytes optional required missing invalid wrong incorrect empty unset str secretstr value yes no see set
    hidden your this that from with prompt authentication failed unbound undefined command cannot must is was has are found permission
    denied holds says names comes takes stands needs should will expired for the and""".split()
)
"""What stands behind these words in source and messages."""
_CALL = late_pattern(r"\A(?:[A-Za-z_][\w.]*[(\[])")
_IDENTIFIER = late_pattern(r"\A(?:(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*))")
_OBJECT = late_pattern(
    r"\A(?:(?:self|args|cfg|config|conf|os|sys|settings|options|opts|params|kwargs|env|request|ctx)\.[\w.]+)"
)
_TYPE = late_pattern(r"\A(?:[\w.]*(?:Tensor|Dict|List|Module|Callable|ndarray|Any|Path|Enum|Literal|Union))")
_VERSION = late_pattern(r"\A(?:\d{1,4}(?:\.\d{1,6}){1,4}(?:\.?[a-z]{1,4}\d{0,8})?)")
_PATH = late_pattern(r"\A(?:(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)+|~/[\w.-]+)")
_BEARER = late_pattern(r"(?:[\w.-]{1,80}=)?\s{0,5}[Bb]earer\ {1,3}[^\s$]{6,}\s{0,5}")
"""A whole value; within a text two such words can be anything."""
_KEY_LIKE = late_pattern(r"[0-9a-f]{32,100}|(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_=-]{24,2000}")
DIGITS_APART = late_pattern(r"\d[A-Za-z_]{1,40}\d")
_NO_LETTER = late_pattern(r"[^A-Za-z0-9]+")


def is_kept(name: str, value: str) -> bool:
    """Whether the value of a secret's name is one: a switch is none, nor is the path of a file of credentials."""
    if is_trackers(name) and is_key_of_trackers(value):
        return True
    if _BEARER.fullmatch(value) or (RANDOM.fullmatch(value) and is_random(value)):
        return True
    kind = kind_of(name)
    if kind is None:
        return is_collective(name) and is_mixed(value)
    if is_harmless(value) or (kind == "key" and is_number(value) and not is_long_number(name, value)):
        return False
    if is_key_of_data(name):
        return is_generated(value)
    return not (value.startswith(("/", "~/", "${", "./")) and "CRED" in name.upper())


def is_key_of_trackers(value: str) -> bool:
    """Whether a tracker's key can look so."""
    return _KEY_LIKE.fullmatch(value.strip()) is not None


def is_harmless(value: str) -> bool:
    """Whether a value says nothing: a switch, a small number, another variable, or what stands for what is hidden.

    >>> is_harmless("true"), is_harmless("${HF_TOKEN}"), is_harmless("<your token>"), is_harmless("s3cr$t99")
    (True, True, True, False)
    """
    value = value.strip()
    if value.startswith(HIDDEN) or value.strip(".,;:()'\"`") == _PLACEHOLDER:
        return True
    return _HARMLESS.fullmatch(value) is not None or is_reference(value)


def is_reference(value: str) -> bool:
    """Whether it is another variable, or stands for what is hidden or to be filled in.

    >>> is_reference("$PASSWORD"), is_reference("${A}:${B}"), is_reference("***"), is_reference("pa$$w0rd")
    (True, True, True, False)
    """
    if _REFERENCE.fullmatch(value) or _MASKED.fullmatch(value) or value.startswith(HIDDEN):
        return True
    if not ("$" in value or "{" in value or "%" in value or " " in value):  # without which nothing stands within it
        return False
    return len(value) < 500 and _WITHIN.search(value) is not None and len(_WITHIN.sub("", value)) < _LEAST


def is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value.strip()) is not None


def is_long_number(name: str, value: str) -> bool:
    """Whether digits alone are a key: the variable of one says so surely, and no vocabulary has as many words.

    >>> is_long_number("HF_TOKEN", "98765432"), is_long_number("STOP_TOKEN", "98765432"), is_long_number("HF_TOKEN", "128001")
    (True, False, False)
    """
    return _LONG_NUMBER.fullmatch(value.strip()) is not None and is_of_a_service(name)


def is_mixed(value: str) -> bool:
    """Whether letters of both cases and digits are mixed as in a key, and not as in a name or a number.

    >>> is_mixed("aB3dE6gH9jK2mN5pQ8sT1vW4"), is_mixed("20260101-120000"), is_mixed("0123456789abcdef0123")
    (True, False, False)
    """
    return is_generated(value, least=20) and len({c.isupper() for c in value if c.isalpha()}) == 2


def is_told(value: str) -> bool:
    """Whether it can be a secret, and is no word of a message on it.

    >>> is_told("swordfish"), is_told("required"), is_told("correct horse battery"), is_told("is not set")
    (True, False, True, False)
    """
    words = value.split()
    if not words or len(words) > _MOST_WORDS:
        return False
    plain = [word.strip("*.:!?,\"'`").lower() for word in words]
    if len(words) > 1 and any(is_composed(word) for word in words):
        return True
    return not any(word in _NO_PASSWORDS or word == "" or _PROSE.match(word) for word in plain)


_MOST_WORDS = 8


def is_expression(value: str) -> bool:
    """Whether source means something else by an unquoted value: a call, a type, an attribute, or another variable."""
    if _CALL.match(value) or any(one.fullmatch(value) for one in (_OBJECT, _TYPE, _PATH, _VERSION)):
        return True
    named = _IDENTIFIER.fullmatch(value)
    if named is None or not is_secret_name(named[1]):
        return False
    return not (DIGITS_APART.search(value) and is_generated(value, least=8))  # a drawn word may end in `pw`


def is_composed(value: str, marks: str = "!#$%^&*+=?@~|\\") -> bool:
    """Whether it is no plain word: letters with digits or with marks that words do not have."""
    value = value[:_LONGEST]
    letters = any(map(str.isalpha, value))
    digits = any(map(str.isdigit, value))
    return letters and (digits or any(mark in value for mark in marks))


def is_generated(value: str, least: int = 16) -> bool:
    """Whether letters and digits are mixed as no words with numbers are.

    >>> is_generated("0123456789abcdef0123"), is_generated("layers_0_attention_weight_4096"), is_generated("a1b2c3d4", least=8)
    (True, False, True)
    """
    if _DIGIT.search(value, 0, _LONGEST) is None:  # of most values that is all to be seen
        return False
    plain = _NO_LETTER.sub("", value[:_LONGEST])
    if len(plain) < least or plain.isdigit():
        return False
    changes = len(_RUNS.findall(plain)) - 1
    return changes * 4 >= len(plain) or _HEXADECIMAL.fullmatch(plain) is not None


def is_mixed_word(value: str, least: int = 8) -> bool:
    """Whether capitals, small letters and digits are mixed as chance mixes them, in a word shorter than the keys of services.

    >>> is_mixed_word("Kd3xWm9Tq"), is_mixed_word("Qwen2TokenizerFast"), is_mixed_word("gpuA100x8"), is_mixed_word("LLaMA2Chat7B")
    (True, False, False, False)
    """
    if not is_generated(value, least) or _ONE_WORD.fullmatch(value) is None:
        return False
    rest = _PLAIN_WORD.sub("", value)
    upper, lower, digits = (sum(map(kind, rest)) for kind in (str.isupper, str.islower, str.isdigit))
    return upper > 1 and lower > 1 and digits > 0


_ONE_WORD = late_pattern(r"[A-Za-z0-9][A-Za-z0-9_.~+/=!#$%^&*@?-]{5,199}")
_PLAIN_WORD = late_pattern(r"[A-Z]?[a-z]{3,}")
"""Such words, and what is left of them in a name, tell nothing of chance."""
_LONGEST = 200
_DIGIT = late_pattern(r"[0-9]")
_RUNS = late_pattern(r"[0-9]+|[A-Z]+|[a-z]+")
_HEXADECIMAL = late_pattern(r"[0-9a-f]{16,}|[0-9A-F]{16,}")
