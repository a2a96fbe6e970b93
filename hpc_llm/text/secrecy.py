"""What looks like a secret, by its name or by its shape: no record, script, page or message may keep it.

Standard library only. A name counts by its whole words, so TOKENIZERS_PARALLELISM and SSH_AUTH_SOCK are none; a value by
the prefixes and forms that services give their keys, so that a secret is found under any name.
"""

from __future__ import annotations

import base64
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hpc_llm.errors import RequestError

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
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      hf_(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{10,} | hf_[A-Za-z0-9]{20,} | api_org_[A-Za-z0-9]{16,}
    | sk-(?:ant|proj|svcacct|admin)-(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{16,}
    | sk-(?:[a-z]{2,8}-(?:[a-z0-9]{2,8}-)?)?[A-Za-z0-9_]{16,} | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}
    | gh[opsur]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,} | dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}
    | (?:AKIA|ASIA|ABIA)[A-Z0-9]{12,} | (?:shpss|lin_api|figd|rpa|KGAT|whsec|secret)_(?=[A-Za-z_]{0,60}[0-9])[A-Za-z0-9]{24,}
    | (?:pplx|xai)-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{24,} | sq0(?:csp|atp)-[A-Za-z0-9_-]{20,} | 1//0[A-Za-z0-9_-]{20,}
    | [0-9]{8,10}:AA[A-Za-z0-9_-]{33} | [MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}
    | discord(?:app)?\.com/api/webhooks/[0-9]{10,20}/[A-Za-z0-9_-]{20,}
    | (?:gsk|r8|glsa|ntn|shpat|tgp_v1|wandb_v1)_[A-Za-z0-9_]{24,} | dapi[a-f0-9]{32}
    | gl(?:pat|dt|rt|ptt|cbt|agent|oas|soat|ft|imt)-[A-Za-z0-9_-]{12,}
    | xox[a-z]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{12,} | hooks\.slack\.com/services/[A-Za-z0-9/]{16,}
    | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{16,} | GOCSPX-[A-Za-z0-9_-]{20,}
    | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{30,} | nvapi-[A-Za-z0-9_-]{20,} | dop_v1_[a-f0-9]{32,}
    | hv[sbr]\.[A-Za-z0-9_-]{20,} | SG\.[A-Za-z0-9_-]{16,60}\.[A-Za-z0-9_-]{16,} | AGE-SECRET-KEY-1[A-Z0-9]{20,}
    | [A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,}
    | eyJ[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{6,} | eyJ[A-Za-z0-9_-]{6,2000}\.eyJ[A-Za-z0-9_-]{3,2000}\.
    | (?:[Ss]et-)?[Cc]ookie:\ ?[^\s=;:]{1,60}=[^\s;$]{8,} | wandb\ login(?:\ --[a-z-]{1,20}){0,3}\ [0-9a-f]{40} | PuTTY-User-Key-File-[0-9]
    | curl\ [^\n]{0,80}?(?:-u|--user)[\ =][^\s:]{1,60}:[^\s$][^\s]{0,200} | sshpass\ -p\ ?[^\s$-][^\s]{0,200}
    | [a-z][a-z0-9+.-]{0,20}://[^\s/?\#@:'"]{0,200}:[^\s/?\#@'"$]{1,500}@
    | https?://(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,200}@
    )
    | -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----[A-Za-z0-9+/=\s]{0,10000}
    | (?<=[Bb]earer\ )(?=[A-Za-z_.~+/=-]{0,200}[0-9])[A-Za-z0-9_.~+/=-]{12,}
    | (?<=X-Amz-Signature=)[0-9a-f]{64} | (?<=X-Goog-Signature=)[0-9a-f]{32,}
    | (?<=AccountKey=)[A-Za-z0-9+/]{20,}={0,2} | (?<=AccessKey=)[A-Za-z0-9+/]{20,}={0,2} | (?<=[?&]sig=)[A-Za-z0-9%+/_=-]{20,}""",
    re.VERBOSE,
)
_SERVICES = """jina lsv2 sbp vcp vci vca vcr vck tvly fw csk cpk pat pa ctx7sk sntrys sntryu glc rnd re phc phx phs pul PMAK NRAK NRII NRAA tskey
    pscale EZAK EZTK apify exa fc e2b ek esecret secret token apikey key pk ops pnu pnb rubygems shippo duffel lf fal""".split()
_OF_A_SERVICE = (
    re.compile(  # what services put before a key, `_` or `-` between; `_SHAPES` has those of a form of their own
        rf"""(?<![A-Za-z0-9_./-])(?:{"|".join(sorted(_SERVICES))})[_-](?:[A-Za-z0-9]{{1,8}}[_-]){{0,2}}(?=[A-Za-z]{{0,60}}[0-9])[A-Za-z0-9]{{20,}}[A-Za-z0-9_-]*
    | (?<![A-Za-z0-9_-])(?:(?:ATATT|ATCTT)3x[A-Za-z0-9_=-]{{16,}} | ATBB[A-Za-z0-9]{{20,}} | pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{32,}} | dp\.[a-z]{{2,5}}\.[A-Za-z0-9]{{32,}}
    | sntrys_[A-Za-z0-9_=+/-]{{24,}} | LTAI[A-Za-z0-9]{{16,}})""",
        re.VERBOSE,
    )
)
_PREFIXED = re.compile(  # a key of a service that is not known here
    r"(?<![A-Za-z0-9_./-])[A-Za-z][A-Za-z0-9]{1,11}[_-](?:[A-Za-z0-9]{1,8}[_-]){0,2}([A-Za-z0-9]{20,400})(?![A-Za-z0-9])"
)
_RANDOM = re.compile(r"(?<![A-Za-z0-9+/=_.-])(?:[A-Za-z0-9+/]{40}|[A-Za-z0-9+/]{86}==)(?![A-Za-z0-9+/=_.-])")
"""Keys of AWS and of Azure's storage have no other mark than their length."""
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
_PROSE = re.compile(r"(?i:[a-z]{1,30}(?:ed|ing|able|ible|ly|ory|ary|ent|ant|ous|ful|less|ive|en|id|al)[.:!?]?)\Z")
_NO_PASSWORDS = frozenset(
    """too long short weak strong good safe not only also never always still already same what which kept read taken sent shown used
    known here there then when where password passwd passphrase none null true false string text bytes optional required missing invalid wrong incorrect empty unset
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
    if _BEARER.fullmatch(value) or (_RANDOM.fullmatch(value) and _is_random(value)):
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
    """`text` without the secrets that are known by their shape, or by the name that they are assigned to."""
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

    text = _OF_A_SERVICE.sub(HIDDEN, _SHAPES.sub(HIDDEN, text))
    text = _PREFIXED.sub(lambda found: HIDDEN if _is_drawn(found[1]) else found[0], text)
    text = _RANDOM.sub(lambda found: HIDDEN if _is_random(found[0]) else found[0], text)
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
    if _SHAPES.search(text) or _OF_A_SERVICE.search(text):
        return True
    if any(_is_random(found[0]) for found in _RANDOM.finditer(text)):
        return True
    if any(_is_drawn(found[1]) for found in _PREFIXED.finditer(text)):
        return True
    if not _may_be_named(text):
        return False
    return any(is_one(found) for pattern, is_one in _NAMED for found in pattern.finditer(text))


def _is_random(text: str) -> bool:
    """Whether letters and digits change too often for words, and it is no hexadecimal sum."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else "/" for c in text]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return {"A", "a", "0"} <= set(kinds) and changes * 5 >= len(text) * 2


def _is_drawn(text: str) -> bool:
    """Whether letters of both cases and digits are mixed as chance mixes them, and not as CamelCase or a list of settings does."""
    upper, lower, digits = (sum(map(kind, text)) for kind in (str.isupper, str.islower, str.isdigit))
    kinds = [c.isupper() - c.isdigit() for c in text]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return digits > 0 and digits * 3 <= len(text) <= 5 * min(upper, lower) and changes * 2 >= len(text) - 1


def _may_be_named(text: str) -> bool:
    """Whether a word stands there without which no pattern of `_NAMED` finds anything; most lines have none."""
    lower = text.lower()
    return any(word in lower for word in ("auth", "key", "token", "pass", "secret", "basic ", "mysql", "mariadb"))


def _is_value(found: re.Match[str]) -> bool:
    """Whether what stands behind the name of a header or an option is no switch, number or name of a variable."""
    return not (_HARMLESS.fullmatch(found[2]) or _NUMBER.fullmatch(found[2]) or found[2].startswith(HIDDEN))


def _is_password(found: re.Match[str]) -> bool:
    """Whether what is said there can be one: no type, no word of a message, no name of a variable."""
    return found[2].strip("*.:!?").lower() not in (*_NO_PASSWORDS, "") and not found[2].startswith(HIDDEN)


def _is_told(found: re.Match[str]) -> bool:
    """Whether what stands behind "the password is" can be one, and is no word on it."""
    return _is_password(found) and _PROSE.match(found[2]) is None


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
)
"""What is known by the words before it: the last group of each is the secret."""
