"""What looks like a secret, by its name or by its shape: no record, script, page or message may keep it.

Standard library only. A name counts by its whole words, so TOKENIZERS_PARALLELISM and SSH_AUTH_SOCK are none; a value by
the prefixes and forms that services give their keys, so that a secret is found under any name.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.text.assignments import secrets_assigned
from hpc_llm.text.bare_values import REDIRECTION
from hpc_llm.text.connection_strings import OF_ORACLE
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_addresses import secrets_in_addresses
from hpc_llm.text.secret_blocks import secrets_in_blocks
from hpc_llm.text.secret_encoded import is_login, secrets_encoded
from hpc_llm.text.secret_inputs import secrets_in_inputs
from hpc_llm.text.secret_logins import secrets_in_logins
from hpc_llm.text.secret_messages import in_messages, is_password
from hpc_llm.text.secret_names import OF_VARIABLES, is_collective, is_secret_name, of_variable, words_of
from hpc_llm.text.secret_options import secrets_in_options
from hpc_llm.text.secret_pairs import name_of_value, secrets_in_pairs
from hpc_llm.text.secret_programs import CERTIFICATE, is_of_certificate, secrets_in_commands
from hpc_llm.text.secret_shapes import OF_A_SERVICE, PREFIXED, RANDOM, SHAPES, is_drawn, is_random
from hpc_llm.text.secret_values import HIDDEN, is_composed, is_harmless, is_kept, is_mixed_word, is_number
from hpc_llm.text.shell_joins import lines_joined, words_joined
from hpc_llm.text.shown import shown
from hpc_llm.text.word_lists import as_command, hidden_words, with_lists_as_commands

_HEADER = late_pattern(
    r"""(?<![A-Za-z0-9_])((?i:(?:proxy-)?authorization|x-[a-z-]{0,20}(?:api-?key|token|secret)|api-key|private-token)["']?[\ ]{0,2}[:=][\ ]{0,2}["']?)((?:[A-Za-z][A-Za-z0-9-]{1,20}\ )?[^\s"',;$(]{4,500})"""
)
"""Headers of HTTP that let somebody in, and their value, with the scheme before it."""
_BASIC = late_pattern(r"(?<![A-Za-z0-9])[Bb]asic\ ([A-Za-z0-9+/]{6,200}={0,2})(?![A-Za-z0-9+/=])")
_CLIENT = late_pattern(
    r"""(?<![\w-])((?:mysql|mariadb)[a-z-]{0,12}\ (?:[^\n|;&]{0,200}?\ )?-p)["']?([^\s"'$<(-](?:(?!"""
    + REDIRECTION
    + r""")[^\s"']){0,200})"""
)
"""A client of a database takes the password without a blank."""
_WHOLE_LOGIN = late_pattern(r"(?!(?i:sha\d{1,3}|md5|blake\w{1,3}):)[A-Za-z][\w.@+-]{0,60}:([^\s/:@]{4,200})")
_MOST_WORDS = 12
"""So many words of a name are taken for the program whose options its value has."""
_SAYS_LOGIN = frozenset("BASIC LOGIN USER USERNAME ACCOUNT USERPWD USERPASS HTTP PROXY REGISTRY".split())
_PAIR = late_pattern(
    r"""(?<![A-Za-z0-9])((?i:auth=|\w{0,12}(?:basic|digest|proxy)auth)\(["'][^"'\n]{1,100}["'],\ {0,2}["'])([^"'\n]{4,200})"""
)
"""A user and a password, as libraries of HTTP take them."""
_LOGIN = late_pattern(
    r"""(?<![\w-])((?:login\ (?:[^\n|;&]{0,200}?\ )?-p[\ =]?|login\ [^\s:]{1,100}\ {1,5}password\ {1,5})["']?)([^\s"'$<(-][^\s"']{3,200})"""
)
"""Logging in to a registry of containers, and a line of .netrc."""
_ENCODED = late_pattern(
    r"(?<![A-Za-z0-9._~-])([A-Za-z0-9._~-]{1,80}%3[Aa])((?:[A-Za-z0-9._~!*()-]|%(?!40)[0-9A-Fa-f]{2}){1,100})(?=%40)"
)
"""User and password of an address, in the spelling that addresses have within others."""
_VARIABLE = late_pattern(rf"""(?<![A-Za-z0-9_$])({"|".join(sorted(OF_VARIABLES))})=["']?([^\s"',;]{{1,500}})""")
"""A variable whose whole name means a secret, wherever a request writes one."""
_ENVIRONMENTS = frozenset(("env", "environment", "proxy_env"))
"""Keys under which variables of the environment stand."""
_SHORT = 400
_WORD = late_pattern(r"[A-Za-z0-9_.-]{0,7}|[a-z]{1,12}\d?(?:[_.-][a-z]{1,12}\d?){0,8}|\d{1,12}(?:\.\d{1,17})?")
"""A word too short for the shape of any secret, one of short words as keys are, or a number: whether it is one depends on its name alone."""
WAY_IN = (
    "Records and scripts are read by others: write NAME=VALUE into a file, `chmod 600` it, and name it by --env-file FILE "
    "(env.file in a profile); the job reads it and nothing keeps what it holds."
)


def is_secret(text: str, name: str = "") -> bool:
    """Whether `text`, the value of `name`, is or holds a secret.

    >>> is_secret("hf_abcdEFGH12345678"), is_secret("any words", "HF_TOKEN"), is_secret("1", "HF_TOKEN")
    (True, True, False)
    """
    return _is_short_secret(text, name) if len(text) <= _SHORT else _is_secret(text, name)


@functools.lru_cache(maxsize=20_000)
def _is_short_secret(text: str, name: str) -> bool:
    """The same: most words of plans stand in many runs."""
    return _is_secret(text, name)


def _is_secret(text: str, name: str) -> bool:
    if _WORD.fullmatch(text):
        return is_kept(name, text) or _is_login(name, text)
    if not text.isprintable() and (plain := lines_joined(shown(text))) != text and _is_secret(plain, name):
        return True
    if (joined := words_joined(text)) != text and _is_secret(joined, name):
        return True
    if with_lists_as_commands(text, _redacted) != text:
        return True
    if any(is_kept(of_variable(found[1]), found[2]) for found in _VARIABLE.finditer(text)):
        return True
    return has_secret_shape(text) or is_kept(name, text) or is_kept("", text) or _is_login(name, text)


def _is_login(name: str, text: str) -> bool:
    """Whether it is the `auth` of a registry, as docker keeps it, a user and a password, or the words of a program that takes one."""
    words = words_of(name)
    if words[-1:] == ["AUTH"] and is_login(text):
        return True
    if login := _WHOLE_LOGIN.fullmatch(text):
        is_named = not _SAYS_LOGIN.isdisjoint(words) and is_composed(login[1])
        return is_mixed_word(login[1]) or (is_named and not is_harmless(login[1]) and not is_number(login[1]))
    programs = [word.lower() for word in dict.fromkeys(words)][:_MOST_WORDS] if text.startswith("-") else ()
    return any(next(secrets_in_commands(f"{program} {text}"), None) for program in programs)


def find_secret(value: Any, place: str = "") -> str | None:
    """The dotted place of the first secret in a value of JSON types; None where there is none."""
    return next(_secrets(value, place, ""), None)


def _secrets(value: Any, place: str, name: str, in_environment: bool = False) -> Iterator[str]:
    """The places of secrets; `in_environment` is what stands under a name of variables, however deep."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if is_secret(str(key)):
                yield f"{place}.{HIDDEN}".lstrip(".")
            else:
                of_one, inside = _name_within(value, key, in_environment)
                yield from _secrets(inner, f"{place}.{key}".lstrip("."), of_one, inside)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _secrets(inner, place, name, in_environment)
        if line := as_command(value):
            yield from _secrets(line, place, "")
    elif value is not None and not isinstance(value, bool) and is_secret(str(value), name):
        yield place


def _name_within(pairs: Mapping[Any, Any], key: Any, in_environment: bool) -> tuple[str, bool]:
    """By which name the value of a key counts, and whether what stands below it are variables of the environment."""
    name = str(key)
    of_pair = name_of_value(pairs) if name.lower() == "value" else ""
    named = of_variable(name) if in_environment else name
    return of_pair or named, in_environment or name.rpartition(".")[2].lower() in _ENVIRONMENTS


def refuse_secrets(value: Any, where: str) -> None:
    """Raise a RequestError that names the place, and not the secret, where `value` holds one."""
    place = find_secret(value)
    if place is not None:
        raise RequestError(f"{where}{': ' if place else ''}{place} holds what looks like a secret. {WAY_IN}")


def redacted(text: str) -> str:
    """`text` without the secrets that are known by their shape, or by the name that they are assigned to.

    What nobody sees splits no secret: where one shows without hidden characters, or in lines and words that the shell joins, the
    text is given without them, or joined.
    """
    safe = _by_line(text)
    whole = lines_joined(text)
    if whole == text:
        return safe
    joined = redacted(whole)
    return safe if joined == lines_joined(safe) else joined


def _by_line(text: str) -> str:
    if not text.isprintable():
        plain = shown(text)
        if plain != text and (safe := redacted(plain)) != plain:
            return safe
    text = _without_found(text, _OVER_LINES)
    if "\n" in text and "PRIVATE KEY" not in text:  # nothing else goes over several lines
        return "\n".join(map(redacted, text.split("\n")))
    safe, whole = _of_line(text), words_joined(text)
    if whole == text:
        return safe
    joined = _of_line(whole)
    return safe if joined in (whole, words_joined(safe)) else joined


def _of_line(text: str) -> str:
    text = with_lists_as_commands(text, _redacted)
    return _short_redacted(text) if len(text) <= _SHORT else _redacted(text)


@functools.lru_cache(maxsize=20_000)
def _short_redacted(text: str) -> str:
    """The same: most lines of scripts stand in many runs."""
    return _redacted(text)


def _redacted(text: str) -> str:
    text = _without_found(text, _BEFORE_SHAPES)
    for pattern, is_one in _SHAPED:
        text = pattern.sub(functools.partial(_hidden, is_one), text)
    for pattern, is_one in (*_NAMED, *in_messages(text)) if _may_be_named(text) else ():
        text = pattern.sub(functools.partial(_without_value, is_one), text)
    return _without_found(text, _BEHIND_SHAPES)


def _without_found(text: str, detectors: Iterable[Detector]) -> str:
    """`text` without what each of these finds in it as it is."""
    return _without(text, [place for find in detectors for place in find(text)])


def _without(text: str, places: Iterable[tuple[int, int]]) -> str:
    """`text` without what stands at some places, which may lie within one another."""
    kept, end = [], 0
    for start, stop in sorted(places):
        if start >= end:
            kept += [text[end:start], HIDDEN]
        end = max(end, stop)
    return "".join([*kept, text[end:]])


def without_secrets(value: Any, name: str = "", in_environment: bool = False) -> Any:
    """A value of JSON types in which each text that is, or holds, a secret is hidden.

    >>> without_secrets({"env": {"HF_TOKEN": "abc"}, "steps": 3, "line": "export API_KEY=12345678x"})
    {'env': {'HF_TOKEN': '(hidden)'}, 'steps': 3, 'line': 'export API_KEY=(hidden)'}
    """
    if isinstance(value, Mapping):
        within = {key: _name_within(value, key, in_environment) for key in value}
        return {redacted(str(key)): without_secrets(inner, *within[key]) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        inner = [without_secrets(one, name, in_environment) for one in value]
        return hidden_words(inner, redacted, HIDDEN)
    if not isinstance(value, str):
        return value
    is_named = is_secret_name(name) or is_collective(name)
    is_one = (is_named and is_kept(name, value)) or _is_login(name, value)
    return HIDDEN if is_one else redacted(value)


def has_secret_shape(text: str) -> bool:
    """Whether a secret that is known by its shape stands anywhere in `text`."""
    if any(is_one(found) for pattern, is_one in _SHAPED for found in pattern.finditer(text)):
        return True
    if any(next(find(text), None) for find in (*_BEFORE_SHAPES, *_BEHIND_SHAPES, *_OVER_LINES)):
        return True
    if not _may_be_named(text):
        return False
    return any(is_one(found) for pattern, is_one in (*_NAMED, *in_messages(text)) for found in pattern.finditer(text))


Detector = Callable[[str], Iterator[tuple[int, int]]]
"""Finds the places of secrets in a text. Each stands in one of three groups: all are asked to refuse, and group by group to hide."""
_OVER_LINES: tuple[Detector, ...] = (secrets_in_pairs, secrets_in_blocks, secrets_in_inputs, secrets_in_logins)
"""Look at several lines, so they see the text before it is parted into its lines."""
_BEFORE_SHAPES: tuple[Detector, ...] = (secrets_in_addresses, secrets_in_commands, secrets_encoded)
"""Know what they look for by what stands around it: they see a line before a part of that is hidden for its shape."""
_BEHIND_SHAPES: tuple[Detector, ...] = (secrets_assigned, secrets_in_options)
"""Take whatever stands behind a name: they see a line last, when what is more surely a secret within it is hidden."""
_SHAPED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (SHAPES, lambda found: True),
    (OF_A_SERVICE, lambda found: True),
    (PREFIXED, lambda found: is_drawn(found[1])),
    (RANDOM, lambda found: is_random(found[0])),
)
"""What is known by its shape alone, and whether what was found is one."""
_WORDS_OF_NAMED = (
    "auth",
    "key",
    "token",
    "pass",
    "basic ",
    "mysql",
    "mariadb",
    "login",
    "%3a",
    "input_value",
    "credential",
    "secret",
    "user",
    "account",
    "proxy",
    "oracle",
    "cert",
    "cookie",
    "jwt",
    "bearer",
    "pw",
    "psk",
    "command not found",
    "valid identifier",
)


def _may_be_named(text: str) -> bool:
    """Whether a word stands there without which no pattern of `_NAMED` finds anything; most lines have none."""
    lower = text.lower()
    return any(word in lower for word in _WORDS_OF_NAMED)


def _is_no_switch(found: re.Match[str]) -> bool:
    """Whether what stands behind the name of a header or an option is no switch, number or name of a variable."""
    return not (is_harmless(found[2]) or is_number(found[2]))


def _is_encoded(found: re.Match[str]) -> bool:
    """Whether a password stands there, and not the scheme of an address before a user."""
    value = found[2].lower()
    return not found[1].lower().startswith("mailto%") and not (value.startswith("%2f") and "%3a" not in value)


def _is_basic(found: re.Match[str]) -> bool:
    """Whether it is `user:password` in base64."""
    try:
        return b":" in base64.b64decode(found[1], validate=True)
    except ValueError:
        return False


def _hidden(is_one: Callable[[re.Match[str]], bool], found: re.Match[str]) -> str:
    return HIDDEN if is_one(found) else found[0]


def _without_value(is_one: Callable[[re.Match[str]], bool], found: re.Match[str]) -> str:
    value = found[found.re.groups]
    return found[0][: -len(value)] + HIDDEN if is_one(found) else found[0]


_NAMED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_HEADER, _is_no_switch),
    (_BASIC, _is_basic),
    (_CLIENT, is_password),
    (_PAIR, is_password),
    (_LOGIN, is_password),
    (_ENCODED, _is_encoded),
    (OF_ORACLE, is_password),
    (CERTIFICATE, is_of_certificate),
)
"""What is known by the words before it: the last group of each is the secret."""
