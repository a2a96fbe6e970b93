"""Passwords and keys that programs take as words of their command line, where no name stands before them. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_values import is_composed, is_generated, is_harmless, is_number

_PROGRAMS = late_pattern(
    r"(?<![\w.-])(?:curl|wget|twine|https?|xh|ssh-keygen|mount[.\w]{0,6}|wandb|(?:redis|keydb|valkey)-cli|mongo\w{0,8}|cqlsh|ncftp\w{0,4}|sqlcmd|zip|unzip|ipmitool|mosquitto_\w{3}|rdesktop"
    r"|7z\w?|rar|unrar|ldap\w{3,6}|lftp|s?ftp|smb\w{3,6}|rpcclient|net|openssl|htpasswd|[xw]freerdp3?|rclone|sqlplus|mc|mcli|(?:oss|obs|tos)util\d{0,2}|cosc\w{2,3}|qshell|b2|wpa_passphrase|rabbitmqctl|poetry|doctl|influx|anaconda|ttyd|gotty|etcdctl|swift|kubectl|(?:ex|im)pdp|sqlldr)(?:\.exe)?\ "
    r"|\|\ {0,3}(?:[\w./-]{0,60}/)?(?:kinit|sudo|cryptsetup|gpg|smbpasswd|chpasswd|passwd|iinit|aklog|klog|vncpasswd|myproxy-logon|hf\ |[\w -]{2,42}\blogin)"
    r"|<<<"
)
"""The programs, by which most text is passed over: the patterns that look at their words are made where one is named."""

CERTIFICATE = late_pattern(
    r"""(?<![\w-])(--(?:proxy-|client-)?cert(?:ificate)?[\ =]["']?[^\s:"'$|;&]{1,200}:)([^\s"'$<>(|;&`/\\][^\s"'|;&`]{2,199})"""
)
"""curl's long form of a file and the password for it, known without the program's name."""
_LOGIN = late_pattern(
    r"""(?<![\w.-])[a-z][\w-]{1,30}\ {1,3}(?:[a-z][\w-]{1,30}\ {1,3})?login\b(?P<options>(?:\ {1,3}-{1,2}[A-Za-z][\w-]{0,30}(?:[=\ ](?!-)[^\s"'|;&]{1,100})?){0,4}?)"""
    r"""(?P<key>\ {1,3}-(?:k|t)(?:=|\ {1,3})|\ {1,3})["']?(?P<said>[A-Za-z0-9_][A-Za-z0-9_+=-]{5,199})(?![\w.:/@+=-])"""
)
"""A program that logs in: its key behind `-k`, or alone."""
_ALONE = late_pattern(r"\w{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""What may stand alone: names of runs and machines have `-` and `.`."""


def secrets_in_commands(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand.

    >>> text = "redis-cli -a hunter22 ping; echo $PW | kinit; unzip -P hunter33 a.zip"
    >>> [text[start:end] for start, end in secrets_in_commands(text)]
    ['hunter22', 'hunter33']
    """
    if "login " in text:
        for login in _LOGIN.finditer(text):
            if _is_key(login["said"], is_named=bool(login["key"].strip())):
                yield login.span("said")
    if _PROGRAMS.search(text) is None:
        return
    from hpc_llm.text.program_patterns import COMMAND, GIVEN_TO, SAID_TO, TAKEN

    seen: dict[str, int] = {}
    for program in COMMAND.finditer(text):
        which = program.lastgroup or ""
        position = program.end()
        while position >= seen.get(which, 0) and (found := TAKEN[which].match(text, position)):
            yield from _taken(found)
            position = seen[which] = found.end()
    for asking in (GIVEN_TO, SAID_TO):
        for found in asking.finditer(text):
            yield from _taken(found)


def is_of_certificate(found: re.Match[str]) -> bool:
    """Whether it is no number, variable or what stands for a password in a manual, as in FILE:PASSWORD."""
    is_word = found[2].isupper() and found[2].strip("`'.,").isalpha()
    return not (is_word or is_harmless(found[2]) or is_number(found[2]))


def _taken(found: re.Match[str]) -> Iterator[tuple[int, int]]:
    group = next(name for name, value in found.groupdict().items() if value is not None)
    if not is_harmless(found[group]) and not is_number(found[group]):
        yield found.span(group)


def _is_key(said: str, *, is_named: bool) -> bool:
    if is_harmless(said):
        return False
    return is_composed(said, marks="") if is_named else _ALONE.fullmatch(said) is not None and is_generated(said)
