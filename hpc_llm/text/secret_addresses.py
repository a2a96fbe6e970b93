"""Addresses that let somebody in: a password before the host, or a segment of the path that nobody else can guess.

What was taken for a path has one slash behind its scheme.

A password may hold any character, so where it ends is known by the host behind it; a segment is known by its random letters, or
by a word before it. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import tells
from hpc_llm.text.secret_shapes import is_drawn
from hpc_llm.text.secret_values import is_composed, is_generated, is_reference

_USER = late_pattern(
    r"(?<![A-Za-z0-9+.-])(?:(?:[A-Za-z][A-Za-z0-9+.-]{0,20}:)?//|[A-Za-z][A-Za-z0-9+.-]{1,20}:/)[^\s/?#@:'\"\[<>]{0,200}:"
)
_REST = late_pattern(r"(?:[^\s<>'\"`]|['\"`](?![,;:\])}\s]|\Z)){1,500}")
_PORT = late_pattern(r"(?:\d{1,5}|port|PORT|\$\{?\w{1,40}\}?|\{\w{1,40}\}|%[ds])(?=[/?#,;)\]}'\"]|\Z)")
_HOST = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){0,8}"
_HOST_BEHIND = late_pattern(rf"(?!(?:sha\d{{3}}|md5):)(?:{_HOST}|\[[0-9A-Fa-f:]{{2,45}}\]|\$\{{?\w)")
_PLAIN = late_pattern(
    rf"""(?<![\w/@:.%+~-])(?P<user>[A-Za-z][\w.+-]{{0,60}}):
    (?!//)(?P<password>[^\s:"<>@]{{3,100}}|[^\s:"<>]{{3,100}})@(?P<host>{_HOST})(?P<port>:\d{{2,5}})?(?![\w@:.-])""",
    re.VERBOSE,
)
_LABELS = frozenset(
    """email emails mail mailto contact author authors from to cc bcc user username login owner maintainer maintainers reply-to sip sips xmpp
    acct ssh git rsync scp sftp http https by file image docker npm node host""".split()
)
"""Words before a colon and somebody's address of e-mail, or a place."""
_NO_HOST = late_pattern(r"v?\d+(?:\.\d+){0,2}[a-z]?\d*|sha\d{3}|md5|latest|main|master|dev|stable|nightly|HEAD")
"""Versions, branches and sums, which stand behind an `@` in names of packages and images."""
_ENDS = frozenset("='\"")
_ADDRESS = late_pattern(r"(?i:https?|wss?)://?([^\s/\"'<>|?#`]{1,200})(/[^\s\"'<>|?#`,;)\]}]{8,2000})")
_SEGMENT = late_pattern(r"[^/]+")
_BOT = late_pattern(r"bot[0-9]{5,20}:([A-Za-z0-9_-]{20,200})")
_HOOK = late_pattern(r"(?:incoming[_-]?)?(?:web)?hooks?(?:b\d)?|workflows", re.IGNORECASE)
"""What stands before the segments of an address to which anybody who knows it may write."""
_ID = late_pattern(r"[A-Za-z0-9_~=-]{20,500}")
_SERVICES = (
    "ftqq.com/",
    "ft07.com/",
    "hc-ping.com/",
    "day.app/",
    "nosnch.in/",
    "uptimerobot.com/",
    "cronitor.link/",
    "zendee.cn/",
)
_OF_A_SERVICE = late_pattern(
    r"(?<![\w-])(?:(?:sctapi|sc)\.ftqq\.com|push\.ft07\.com|hc-ping\.com|api\.day\.app|nosnch\.in|heartbeat\.uptimerobot\.com|cronitor\.link|qmsg\.zendee\.cn)"
    r"(?::\d{2,5})?/(?P<path>[^\s\"'<>|?#`,;)\]}]{8,300})"
)
"""Services that tell of the end of a job whoever knows the path, also where no scheme stands before their name."""
_OF_CONDA = late_pattern(r"/t/([A-Za-z0-9_-]{8,200})(?=/(?!\d+(?:/|\Z))|\Z)")
"""A token as conda takes it, on any host. In a forum a number stands behind the name of a topic."""
_KEY = late_pattern(r"[A-Za-z0-9]{20,200}")
_UUID = late_pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHARED = frozenset(("d", "folders", "file", "document"))
"""Behind them stand names of shared documents."""
_NO_LETTER = late_pattern(r"[^A-Za-z0-9]+")


def secrets_in_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Where in a text logins stand, up to the `@` behind them, and secret segments of addresses."""
    if "@" in text and ":" in text:
        yield from _logins(text)
        yield from _plain_logins(text)
    if any(service in text for service in _SERVICES):
        yield from _segments_of_services(text)
    if ":/" in text:
        yield from _segments(text)


def _logins(text: str) -> Iterator[tuple[int, int]]:
    """Those behind `//`, or a scheme and one slash."""
    for found in _USER.finditer(text):
        rest = _REST.match(text, found.end())
        password = _password(rest[0]) if rest else ""
        if password and not is_reference(password):
            yield found.start(), found.end() + len(password) + 1


def _password(rest: str) -> str:
    """What of the rest of an address is a password; nothing where a port stands there."""
    rest = rest.partition("://")[0]
    length = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    end = rest.rfind("@", 0, length)
    if end < 0:
        end = -1 if _PORT.match(rest) else rest.rfind("@")
    return rest[:end] if end > 0 and _HOST_BEHIND.match(rest, end + 1) else ""


def _plain_logins(text: str) -> Iterator[tuple[int, int]]:
    """Those without a scheme, as programs take them for proxies."""
    for found in _PLAIN.finditer(text):
        password, start = found["password"], found.start()
        if found["user"].lower() in _LABELS or _NO_HOST.fullmatch(found["host"]) or not any(map(str.isalpha, password)):
            continue
        is_whole = (start == 0 or text[start - 1] in _ENDS) and text[found.end() : found.end() + 1] in ("", "/", *_ENDS)
        is_one = is_composed(password) and not set(password) & set("/,;()[]{}'")
        if (found["port"] or is_one or (is_whole and len(password) > _SHORT)) and not is_reference(password):
            yield start, found.end("password") + 1


_SHORT = 5


def _segments_of_services(text: str) -> Iterator[tuple[int, int]]:
    for address in _OF_A_SERVICE.finditer(text):
        for segment in _SEGMENT.finditer(text, *address.span("path")):
            if is_generated(segment[0], least=8):
                yield segment.span()


def _segments(text: str) -> Iterator[tuple[int, int]]:
    """Those of paths that let in whoever knows them."""
    for address in _ADDRESS.finditer(text):
        is_hook = any(_HOOK.fullmatch(label) for label in address[1].split("."))
        before, is_token = "", _OF_CONDA.search(address[2])
        if is_token and is_generated(is_token[1], least=8):
            yield address.start(2) + is_token.start(1), address.start(2) + is_token.end(1)
        for segment in _SEGMENT.finditer(text, address.start(2), address.end(2)):
            word = segment[0]
            if bot := _BOT.fullmatch(word):
                yield segment.start() + bot.start(1), segment.end()
            elif (is_generated(word, least=8) and (is_hook or tells(before))) or _is_alone(word, before):
                yield segment.span()
            is_hook = is_hook or _HOOK.fullmatch(word) is not None
            before = word


def _is_alone(word: str, before: str) -> bool:
    """Whether a segment lets in by its form: drawn letters, a key that something is sent to, or the name of a check that is pinged."""
    if before == "ping" and _UUID.fullmatch(word):
        return True
    if word.endswith(".send") and _KEY.fullmatch(word[:-5]) and is_generated(word[:-5], least=20):
        return True
    return _ID.fullmatch(word) is not None and before not in _SHARED and is_drawn(_NO_LETTER.sub("", word))
