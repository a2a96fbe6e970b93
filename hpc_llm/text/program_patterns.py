"""How programs take passwords as words of their command line; imported where one of them is named. Standard library only."""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern

_VALUE = (
    r"""(?:'(?P<{0}s>[^'\n]{{3,200}})'|"(?P<{0}d>[^"\n]{{3,200}})"|(?P<{0}>[^\s"'$<>(|;&`-][^\s"'|;&`]{{2,199}}))"""
)
_USER = r"""["']?[^\s:"'$|;&]{{1,60}}{0}(?P<{1}>[^\s"'$<>(|;&`][^\s"'|;&`]{{0,199}})"""

ASKING = r"""(?:kinit|sudo\ (?:-[a-zA-Z]{1,8}\ ){0,3}-[a-zA-Z]{0,6}S|sudo\ --stdin|cryptsetup|gpg|smbpasswd|chpasswd
    |passwd|iinit|aklog|klog|vncpasswd|(?:[\w-]{2,20}\ ){1,2}login|hf\ auth)"""
"""Programs that read a password from their input."""

_TAKES: tuple[tuple[str, str], ...] = (
    (r"curl", r"(?:-[a-zA-Z#]{0,8}[uU][\ =]?|--(?:proxy-)?user[\ =])" + _USER.format(":", "v0")),
    (r"https?|xh", r"(?:-a|--auth)[\ =]?" + _USER.format(":", "v1")),
    (r"curl|wget", r"--(?:oauth2-bearer|(?:proxy-|ftp-|http-)?password|pass|proxy-pass|tlspassword)[\ =]" + _VALUE.format("v17")),
    (r"wandb\ login", r"(?P<v2>(?:local-)?[0-9a-f]{40})(?![0-9A-Za-z])"),
    (r"redis-cli|keydb-cli|valkey-cli", r"(?:-a|--pass)\ " + _VALUE.format("v3")),
    (r"mongo(?:sh|dump|restore|import|export)?|cqlsh|ncftp(?:put|get|ls)|rdesktop", r"-p\ " + _VALUE.format("v4")),
    (r"sqlcmd|zip|unzip|ipmitool|mosquitto_(?:pub|sub)", r"-P\ ?" + _VALUE.format("v14")),
    (r"7z[ar]?|rar|unrar", r"-h?p(?:\ ?)" + _VALUE.format("v5")),
    (r"ldap(?:search|modify|add|delete|whoami|passwd)", r"-[a-zA-Z]{0,6}w\ " + _VALUE.format("v6")),
    (r"lftp|sftp|ftp", r"-u\ ?" + _USER.format(",", "v7")),
    (r"smbclient|rpcclient|net|smbget", r"(?:-U|--user)[\ =]?" + _USER.format("%", "v8")),
    (r"openssl", r"(?:-[a-z]{0,12}pass[a-z]{0,4}|-k|-K)\ pass:" + _VALUE.format("v9")),
    (r"htpasswd", r"-[a-zA-Z]{0,4}b[a-zA-Z]{0,4}\ [^\s]{1,120}\ [^\s]{1,60}\ " + _VALUE.format("v10")),
    (r"xfreerdp3?|wfreerdp", r"/p:" + _VALUE.format("v11")),
    (r"rclone\ obscure", r"" + _VALUE.format("v12")),
    (r"sqlplus", _USER.format("/", "v13")),
    (r"net\ use", r"(?:[A-Za-z*]:?\ )?[\\/]{2}[^\s]{1,120}\ " + _VALUE.format("v15") + r"\ {1,3}/"),
    (ASKING, r"(?:[^\n|;<]{0,200}\ )?<<<\ {0,3}" + _VALUE.format("v16")),
)  # fmt: skip
"""Program, and by which option it takes what."""
COMMAND = late_pattern(
    "|".join(
        rf"""(?:(?<![\w.-])(?:{program})(?:\.exe)?\ (?:[^\n|;]{{0,200}}?\ )??{takes})""" for program, takes in _TAKES
    ),
    re.VERBOSE,
)
SAID_TO = late_pattern(
    rf"""(?<![\w-])(?:echo|printf)\ (?:-[neE]{{1,3}}\ )?{_VALUE.format("v")}\ {{0,3}}\|\ {{0,3}}(?:[\w./-]{{0,60}}/)?
    {ASKING}""",
    re.VERBOSE,
)
