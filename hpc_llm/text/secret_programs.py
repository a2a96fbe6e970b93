"""Passwords that programs take as words of their command line, where no name stands before them. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_values import is_harmless, is_number

_PROGRAMS = late_pattern(
    r"(?<![\w.-])(?:curl|wget|https?|xh|wandb|(?:redis|keydb|valkey)-cli|mongo\w{0,8}|cqlsh|ncftp\w{0,4}|sqlcmd|zip|unzip|ipmitool|mosquitto_\w{3}|rdesktop"
    r"|7z\w?|rar|unrar|ldap\w{3,6}|lftp|s?ftp|smb\w{3,6}|rpcclient|net|openssl|htpasswd|[xw]freerdp3?|rclone|sqlplus)(?:\.exe)?\ "
    r"|\|\ {0,3}(?:[\w./-]{0,60}/)?(?:kinit|sudo|cryptsetup|gpg|smbpasswd|chpasswd|passwd|iinit|aklog|klog|vncpasswd|hf\ |[\w -]{2,42}\blogin)"
    r"|<<<"
)
"""The programs, by which most text is passed over: the patterns that look at their words are made where one is named."""


def secrets_in_commands(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand.

    >>> text = "redis-cli -a hunter22 ping; echo $PW | kinit; unzip -P hunter33 a.zip"
    >>> [text[start:end] for start, end in secrets_in_commands(text)]
    ['hunter22', 'hunter33']
    """
    if _PROGRAMS.search(text) is None:
        return
    from hpc_llm.text.program_patterns import COMMAND, SAID_TO

    for pattern in (COMMAND, SAID_TO):
        for found in pattern.finditer(text):
            group = next(name for name, value in found.groupdict().items() if value is not None)
            if not is_harmless(found[group]) and not is_number(found[group]):
                yield found.span(group)
