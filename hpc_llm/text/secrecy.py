"""What looks like a secret, by its name or by its shape: no record, script, page or message may keep it.

Standard library only. A name counts by its whole words, so TOKENIZERS_PARALLELISM and SSH_AUTH_SOCK are none; a value by
the prefixes and forms that services give their keys, so that a secret is found under any name.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.text.secret_shapes import OF_A_SERVICE, PREFIXED, RANDOM, SHAPES, is_drawn, is_random
from hpc_llm.text.shown import shown

_PASSWORDS = frozenset(
    "PASSWORD PASSWORDS PASSWD PASSPHRASE PASSCODE CREDENTIAL CREDENTIALS CREDS SECRET SECRETS".split()
)
_KEYS = frozenset(
    """TOKEN KEY KEYS APIKEY APIKEYS APITOKEN ACCESSKEY ACCESSTOKEN SECRETKEY PRIVATEKEY AUTHTOKEN AUTHKEY BEARER JWT AUTHORIZATION
    """.split()
)
"""Of these no plain number is one."""
_AT_THE_END = frozenset("PASS PWD PW AUTH PAT DSN COOKIE".split())
"""Words that mean a secret as the last of several: DB_PASS does, PWD and PASS_RATE do not."""
_RUN_TOGETHER = re.compile(
    r"\A[A-Z]{2,20}(?:PASSWORDS?|PASSWD|PASSPHRASE|APIKEYS?|APITOKEN|ACCESSKEY|ACCESSTOKEN|SECRETKEY|PRIVATEKEY|AUTHTOKEN)\Z"
)
_AT_THE_END_OF_A_WORD = re.compile(
    r"\A([A-Z]{2,20}?)(?:(KEYS?)|PASS|SECRETS?|(?<=\AHF)TOKEN|(?<=\AGH)TOKEN|(?<=HUB)TOKEN|(?<=WANDB)TOKEN|(?<=SESSION)TOKEN|(?<=BOT)TOKEN)\Z"
)
"""PGPASS and SIGNINGKEY, in one word."""
_NO_SECRETS_LEFT = frozenset(
    """MON DON TUR HOC JOC WHIS LAC FLUN HIC DIC RIC MIC O HO PO SMO MALAR SHA LATCH LOW HOT ANY NO BY SUB PUB PUBLIC SORT GROUP CACHE
    PRIMARY FOREIGN DICT MAP INDEX LOOKUP ROW COL COLUMN QUERY LOG OUTPUT INPUT TEXT LABEL IMAGE LOSS METRIC JSON PARTITION UNIQUE
    SHIFT FUNCTION STATE CONFIG COM BY TRES SUR OVER UNDER ENCOM FORWARD BACKWARD HIGH BAND ALL MULTI SINGLE ONE TWO FIRST SECOND LAST
    PRE NUM TEST RENDER NON WC""".split()
)
"""What stands before KEY or PASS in words that hold none: monkey, hotkey, public key, compass, forward pass."""
_ABOUT = frozenset(
    """PATH PATHS FILE FILES DIR FOLDER SOCK URL URI NAME HOST PORT ENDPOINT SIZE LENGTH LEN COUNT LIMIT TYPE TYPES MODE HEADS DIM
    TTL TIMEOUT EXPIRY METHOD PROVIDER PREFIX SUFFIX MASK ALGORITHM ALGORITHMS POLICY BACKEND HELPER HELPERS DROPOUT""".split()
)
"""Last words of names that say where a secret lies, or something of it, and not the secret itself."""
_HARMLESS = re.compile(r"(?:true|false|yes|no|on|off|none|null|[+-]?\d{0,3}(?:\.\d*)?|\$\{?\w+\}?)", re.IGNORECASE)
"""Switches, small numbers, and names of other variables."""
_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d*)?")
_HEADER = re.compile(
    r"""(?<![A-Za-z0-9_])((?i:(?:proxy-)?authorization|x-[a-z-]{0,20}(?:api-?key|token|secret)|api-key|private-token)["']?[\ ]{0,2}[:=][\ ]{0,2}["']?)((?:[A-Za-z][A-Za-z0-9-]{1,20}\ )?[^\s"',;$(]{4,500})"""
)
"""Headers of HTTP that let somebody in, and their value, with the scheme before it."""
_BEARER = re.compile(r"(?:[\w.-]{1,80}=)?\s{0,5}[Bb]earer\ {1,3}[^\s$]{6,}\s{0,5}")
"""A whole value; within a text two such words can be anything."""
_BASIC = re.compile(r"(?<![A-Za-z0-9])[Bb]asic\ ([A-Za-z0-9+/]{6,200}={0,2})(?![A-Za-z0-9+/=])")
_OPTION = re.compile(
    r"""(?<![\w-])--?((?:[a-z]{2,12}[-_]){0,2}(?:api[-_]?key|password|passwd|passphrase|secret(?:[-_]key)?|(?:access|auth|hf|hub|api)[-_]token))[\ =]["']?([^\s"'$<-][^\s"']{3,200})"""
)
"""An option of some program, and its value."""
_TOKEN = re.compile(r"""(?<![\w-])(--token)[\ =]["']?([^\s"'$<\[|-][^\s"']{3,200})""")
_CLIENT = re.compile(
    r"""(?<![\w-])((?:mysql|mariadb)[a-z-]{0,12}\ (?:[^\n|;&]{0,200}?\ )?-p)["']?([^\s"'$<(-][^\s"']{0,200})"""
)
"""A client of a database takes the password without a blank."""
_SAID = re.compile(
    r"""(?<![A-Za-z0-9])((?:[A-Za-z0-9]{1,20}[_.-]){0,2}(?i:password|passwd|passphrase)["']?[\ ]{0,2}[:=][\ ]{0,2}["']?)([^\s"',;$<(\[{)\]}]{4,200})(?![(\[.\w])"""
)
"""A password in prose, or in lower case."""
_SAID_IN_WORDS = re.compile(
    r"""(?<![A-Za-z0-9])((?i:password|passwd|passphrase|passcode|api[ ]key|secret[ ]key|access[ ]token)["']?[\ ](?i:is|was)(?:[\ ]now)?:?[\ ]{1,3}["'`]?)([^\s"'`,;$<(\[{)\]}]{4,200})"""
)
_QUOTED = re.compile(
    r"""(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_.-]{0,80}["']?[\ ]{0,3}(?:[:=]>?|,)[\ ]{0,3}["'])([^\s"'$<(\[{][^\s"'\n]{3,400})(?=["'])"""
)
"""A name and a value between quotes, as dictionaries, JSON and source write them."""
_SPACED = re.compile(
    r"""(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_.-]{0,80}["']?(?:[\ ]{1,3}[:=]>?[\ ]{0,3}|[:=]>?[\ ]{1,3}))([^\s"'`,;$<(\[{)\]}=]{4,400})(?![^\s,;"')}\]])"""
)
"""A name and a value with blanks beside the sign between them."""
_SET = re.compile(
    r"""(?<![A-Za-z0-9_])((?:setenv|export|set)\ [A-Za-z][A-Za-z0-9_]{0,80}\ ["']?)([^\s"'`,;$<(\[{)\]}=]{4,400})"""
)
_LOGIN = re.compile(
    r"""(?<![\w-])((?:login\ (?:[^\n|;&]{0,200}?\ )?-p[\ =]?|login\ [^\s:]{1,100}\ {1,5}password\ {1,5})["']?)([^\s"'$<(-][^\s"']{3,200})"""
)
"""Logging in to a registry of containers, and a line of .netrc."""
_PASSWORD_WORD = re.compile(
    r"""((?<![\w-])(?:password|passwd)[\ ]{1,5})((?=[A-Za-z!-/_^~-]{0,60}[0-9])[^\s"'`,;$<(\[{)\]}]{6,200})"""
)
_ENCODED = re.compile(
    r"(?<![A-Za-z0-9._~-])([A-Za-z0-9._~-]{1,80}%3[Aa])((?:[A-Za-z0-9._~!*()-]|%(?!40)[0-9A-Fa-f]{2}){1,100})(?=%40)"
)
"""User and password of an address, in the spelling that addresses have within others."""
_TOLD_LOWER = re.compile(
    r"(?i:token|passw[a-z]{1,6}|passphrase|secrets?|credentials?|(?:api|access|secret|auth|private|wandb)[_-]?key)\Z"
)
"""The end of a name that in lower case, too, is a secret's: `key` alone is an argument in many lines of source."""
_OF_MODELS = frozenset(
    "BOS EOS PAD UNK CLS SEP MASK IMAGE AUDIO VIDEO SPECIAL START END NEXT STOP PREFIX DECODER".split()
)
"""Words before TOKEN where it is one of a language."""
_PROSE = re.compile(r"(?i:[a-z]{1,30}(?:ed|ing|able|ible|ly|ory|ary|ent|ant|ous|ful|less|ive|en|id|al)[.:!?]?)\Z")
_SHORTEST_LOWER = 6
_NO_PASSWORDS = frozenset(
    """too long short weak strong good safe not only also never always still already same what which kept read taken sent shown used
    known here there then when where password passwd passphrase none null true false string text bytes optional required missing invalid wrong incorrect empty unset str secretstr value yes no see set
    hidden your this that from with prompt authentication failed""".split()
)
"""What stands behind these words in source and messages."""
_TRACKERS = frozenset("WANDB COMET NEPTUNE CLEARML SWANLAB MLFLOW".split())
_IDENTIFIES = frozenset(
    "ID IDS RUN COMMIT SHA REVISION REV HASH DIGEST VERSION TAG TAGS GROUP PROJECT ARTIFACT SWEEP ENTITY CHECKSUM".split()
)
"""Words of names whose value is known to all, however random it looks."""
_KEY_LIKE = re.compile(r"[0-9a-f]{32,100}|(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_=-]{24,2000}")
_ASSIGNED = re.compile(
    r"""(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)["']?[=:](?:"([^"\n]{0,500})"|'([^'\n]{0,500})'|([^\s,;&'"]*))"""
)
_FOLLOWED = re.compile(
    r"""(?<![A-Za-z0-9_])(?<![A-Za-z0-9_]-)([A-Za-z][A-Za-z0-9_-]{0,60})["']?(?:[\ ]{0,3}[=:][\ ]{0,3}|[\ ])["']?((?=[A-Za-z+/_-]{0,100}[0-9])[A-Za-z0-9+/_-]{24,})"""
)
"""A name, perhaps a sign of equality, and what is long enough for a key and no word."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
HIDDEN = "(hidden)"
_SHORT = 400
WAY_IN = (
    "Records and scripts are read by others: write NAME=VALUE into a file, `chmod 600` it, and name it by --env-file FILE "
    "(env.file in a profile); the job reads it and nothing keeps what it holds."
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of that name holds a secret.

    >>> is_secret_name("WANDB_API_KEY"), is_secret_name("hubToken"), is_secret_name("PGPASSWORD"), is_secret_name("KEYBOARD")
    (True, True, True, False)
    """
    return _kind_of(name) is not None


@functools.lru_cache(maxsize=4096)
def _kind_of(name: str) -> str | None:
    """`password` or `key`, for what a name says that it holds; None where that is no secret."""
    words = [word.upper() for word in _WORD.findall(name)]
    while words and words[-1].isdecimal():
        words.pop()
    if not words or words[-1] in _ABOUT:
        return None
    kinds = {_kind_of_word(*three) for three in zip(["", *words], words, [*words[1:], ""], strict=False)}
    return "password" if "password" in kinds else "key" if "key" in kinds else None


def _kind_of_word(before: str, word: str, after: str) -> str | None:
    if word == "AUTH" and after in ("HEADER", "HEADERS"):
        return "password"
    is_pair = word == "KEY" and (before == "PUBLIC" or after in ("VALUE", "VALUES"))
    if word in _PASSWORDS or (_RUN_TOGETHER.match(word) and "PASS" in word):
        return "password"
    if (word in _KEYS and not is_pair) or _RUN_TOGETHER.match(word):
        return "key"
    joined = _AT_THE_END_OF_A_WORD.match(word)
    if joined and joined[1] not in _NO_SECRETS_LEFT and not after:
        return "key" if joined[2] else "password"
    return "password" if before and not after and word in _AT_THE_END else None


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
    if not text.isprintable() and (plain := shown(text)) != text and _is_secret(plain, name):
        return True
    if has_secret_shape(text) or _is_kept(name, text):
        return True
    return any(_is_kept(*pair) for pair in _assigned(text))


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of what a text assigns to a name."""
    for name, *values in _ASSIGNED.findall(text):
        yield name, "".join(values)
    yield from _FOLLOWED.findall(text)


def _is_kept(name: str, value: str) -> bool:
    """Whether the value of a secret's name is one: a switch is none, nor is the path of a file of credentials."""
    if _is_trackers(name) and _KEY_LIKE.fullmatch(value.strip()):
        return True
    if _BEARER.fullmatch(value) or (RANDOM.fullmatch(value) and is_random(value)):
        return True
    kind = _kind_of(name)
    if kind is None or _HARMLESS.fullmatch(value.strip()) or (kind == "key" and _NUMBER.fullmatch(value.strip())):
        return False
    return not (value.startswith(("/", "~/", "${", "./")) and "CRED" in name.upper())


@functools.lru_cache(maxsize=4096)
def _is_trackers(name: str) -> bool:
    """Whether a variable of that name is a tracker's, and not one that names a run or the like."""
    words = {word.upper() for word in _WORD.findall(name)}
    return bool(words & _TRACKERS) and not words & (_ABOUT | _IDENTIFIES)


def find_secret(value: Any, place: str = "") -> str | None:
    """The dotted place of the first secret in a value of JSON types; None where there is none."""
    return next(_secrets(value, place, ""), None)


def _secrets(value: Any, place: str, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if is_secret(str(key)):
                yield f"{place}.{HIDDEN}".lstrip(".")
            else:
                yield from _secrets(inner, f"{place}.{key}".lstrip("."), str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _secrets(inner, place, name)
    elif value is not None and not isinstance(value, bool) and is_secret(str(value), name):
        yield place


def refuse_secrets(value: Any, where: str) -> None:
    """Raise a RequestError that names the place, and not the secret, where `value` holds one."""
    place = find_secret(value)
    if place is not None:
        raise RequestError(f"{where}{': ' if place else ''}{place} holds what looks like a secret. {WAY_IN}")


_PLACEHOLDER = "VALUE"
"""Stands for a value where a message says how something is written, as in KEY=VALUE."""


def redacted(text: str) -> str:
    """`text` without the secrets that are known by their shape, or by the name that they are assigned to.

    What nobody sees splits no secret: where one shows without hidden characters, the text is given without them.
    """
    if not text.isprintable():
        plain = shown(text)
        if plain != text and (safe := redacted(plain)) != plain:
            return safe
    if "\n" in text and "PRIVATE KEY" not in text:  # no other secret goes over several lines
        return "\n".join(map(redacted, text.split("\n")))
    return _short_redacted(text) if len(text) <= _SHORT else _redacted(text)


@functools.lru_cache(maxsize=20_000)
def _short_redacted(text: str) -> str:
    """The same: most lines of scripts stand in many runs."""
    return _redacted(text)


def _redacted(text: str) -> str:
    def hidden(found: re.Match[str]) -> str:
        # In lower case it is as likely an argument in a line of source: sorted(runs, key=age).
        value = next((one for one in found.groups()[1:] if one), "")
        is_hidden = (found[1].isupper() or found.re is _FOLLOWED) and _is_kept(found[1], value)
        if value.strip(".,;:()'\"`") == _PLACEHOLDER:
            return found[0]
        return found[0].replace(value, HIDDEN) if is_hidden else found[0]

    text = OF_A_SERVICE.sub(HIDDEN, SHAPES.sub(HIDDEN, text))
    text = PREFIXED.sub(lambda found: HIDDEN if is_drawn(found[1]) else found[0], text)
    text = RANDOM.sub(lambda found: HIDDEN if is_random(found[0]) else found[0], text)
    for pattern, is_one in _NAMED if _may_be_named(text) else ():
        text = pattern.sub(functools.partial(_without_value, is_one), text)
    return _FOLLOWED.sub(hidden, _ASSIGNED.sub(hidden, text))


def without_secrets(value: Any, name: str = "") -> Any:
    """A value of JSON types in which each text that is, or holds, a secret is hidden.

    >>> without_secrets({"env": {"HF_TOKEN": "abc"}, "steps": 3, "line": "export API_KEY=12345678x"})
    {'env': {'HF_TOKEN': '(hidden)'}, 'steps': 3, 'line': 'export API_KEY=(hidden)'}
    """
    if isinstance(value, Mapping):
        return {redacted(str(key)): without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if is_secret_name(name) and _is_kept(name, value) else redacted(value)


def has_secret_shape(text: str) -> bool:
    """Whether a secret that is known by its shape stands anywhere in `text`."""
    if SHAPES.search(text) or OF_A_SERVICE.search(text):
        return True
    if any(is_random(found[0]) for found in RANDOM.finditer(text)):
        return True
    if any(is_drawn(found[1]) for found in PREFIXED.finditer(text)):
        return True
    if not _may_be_named(text):
        return False
    return any(is_one(found) for pattern, is_one in _NAMED for found in pattern.finditer(text))


_WORDS_OF_NAMED = (
    "auth",
    "key",
    "token",
    "pass",
    "secret",
    "basic ",
    "mysql",
    "mariadb",
    "cred",
    "pwd",
    "login",
    "%3a",
)


def _may_be_named(text: str) -> bool:
    """Whether a word stands there without which no pattern of `_NAMED` finds anything; most lines have none."""
    lower = text.lower()
    return any(word in lower for word in _WORDS_OF_NAMED)


def _is_value(found: re.Match[str]) -> bool:
    """Whether what stands behind the name of a header or an option is no switch, number or name of a variable."""
    return not (_HARMLESS.fullmatch(found[2]) or _NUMBER.fullmatch(found[2]) or found[2].startswith(HIDDEN))


def _is_password(found: re.Match[str]) -> bool:
    """Whether what is said there can be one: no type, no word of a message, no name of a variable."""
    return found[2].strip("*.:!?").lower() not in (*_NO_PASSWORDS, "") and not found[2].startswith(HIDDEN)


def _is_told(found: re.Match[str]) -> bool:
    """Whether what stands behind "the password is" can be one, and is no word on it."""
    return _is_password(found) and _PROSE.match(found[2]) is None


def _is_of_a_secret(found: re.Match[str]) -> bool:
    """Whether the name is a secret's and what stands behind it can be one."""
    name = re.split(r"[^A-Za-z0-9_.-]", found[1].removeprefix("export ").removeprefix("setenv ").removeprefix("set "))[
        0
    ]
    words = {word.upper() for word in _WORD.findall(name)}
    if words & _OF_MODELS or words <= {"KEY", "KEYS"} or not (name.isupper() or _TOLD_LOWER.search(name)):
        return False
    if not name.isupper() and len(found[2]) < _SHORTEST_LOWER:
        return False
    return _is_kept(name, found[2]) and _is_told(found)


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


def _without_value(is_one: Callable[[re.Match[str]], bool], found: re.Match[str]) -> str:
    value = found[found.re.groups]
    return found[0][: -len(value)] + HIDDEN if is_one(found) else found[0]


_NAMED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    (_HEADER, _is_value),
    (_OPTION, _is_value),
    (_BASIC, _is_basic),
    (_TOKEN, _is_value),
    (_CLIENT, _is_password),
    (_SAID, _is_password),
    (_SAID_IN_WORDS, _is_told),
    (_QUOTED, _is_of_a_secret),
    (_SPACED, _is_of_a_secret),
    (_SET, _is_of_a_secret),
    (_LOGIN, _is_told),
    (_PASSWORD_WORD, _is_told),
    (_ENCODED, _is_encoded),
)
"""What is known by the words before it: the last group of each is the secret."""
