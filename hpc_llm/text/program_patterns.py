"""How programs take passwords as words of their command line; imported where one of them is named. Standard library only."""

from __future__ import annotations

import re

from hpc_llm.text.late_pattern import late_pattern

_VALUE = (
    r"""(?:'(?P<{0}s>[^'\n]{{3,200}})'|"(?P<{0}d>[^"\n]{{3,200}})"|(?P<{0}>[^\s"'$<>(|;&`-][^\s"'|;&`]{{2,199}}))"""
)
_USER = r"""["']?[^\s:"'$|;&]{{1,60}}{0}(?P<{1}>[^\s"'$<>(|;&`][^\s"'|;&`]{{0,199}})"""

ASKING = r"""(?:kinit|sudo\ (?:-[a-zA-Z]{1,8}\ ){0,3}-[a-zA-Z]{0,6}S|sudo\ --stdin|cryptsetup|gpg|smbpasswd|chpasswd
    |passwd|iinit|aklog|klog|vncpasswd|myproxy-logon|(?:[\w-]{2,20}\ ){1,2}login|hf\ auth)"""
"""Programs that read a password from their input."""

_CURL_FLAGS = r"-[0-9aBfgGiIjJklLnNOpqRsSvZ#]{0,8}"
_PASSWORD_OF_HTTP = (
    r"--(?:oauth2-bearer|(?:proxy-|ftp-|http-)?password|pass|proxy-pass|tlspassword)[\ =]" + _VALUE.format("v0")
)
_LOGIN_OF_CURL = r"(?:-[a-zA-Z#]{0,8}[uU][\ =]?|--(?:proxy-)?user[\ =])" + _USER.replace("{{1,60}}", "{{0,60}}").format(
    ":", "v1"
)
_COOKIE = rf"(?:{_CURL_FLAGS}b\ ?|--cookie[\ =])" + (
    r"""(?:'[^'=\s]{1,60}=(?P<v2s>[^'\n]{3,300})'|"[^"=\s]{1,60}=(?P<v2d>[^"\n]{3,300})"|[^\s'"=;|&$<>]{1,60}=(?P<v2>[^\s'"$<>(|&;`][^\s'"|&;`]{2,199}))"""
)
"""A file of cookies has no `=` in its name."""
_CERTIFICATE = rf"{_CURL_FLAGS}E\ ?" + _USER.replace("{{1,60}}", "{{1,200}}").format(":", "v3")
"""The long form is known without the program's name (`secret_programs`)."""
_WORD = r"""["']?[^\s"'|;&]{1,200}["']?\ {1,4}"""
_PASSWORD_OF_OPENSSL = r"(?:-[a-z]{0,12}pass[a-z]{0,4}|-k|-K)\ pass:" + _VALUE.format("v0")

_TAKES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"curl", (_LOGIN_OF_CURL, _PASSWORD_OF_HTTP, _COOKIE, _CERTIFICATE)),
    (r"wget", (_PASSWORD_OF_HTTP,)),
    (r"twine\ upload", (r"(?:-p\ ?|--password[\ =])" + _VALUE.format("v0"),)),
    (r"https?|xh", (r"(?:-a|--auth)[\ =]?" + _USER.format(":", "v0"),)),
    (r"wandb\ login", (r"(?P<v0>(?:local-)?[0-9a-f]{40})(?![0-9A-Za-z])",)),
    (r"redis-cli|keydb-cli|valkey-cli", (r"(?:-a|--pass)\ " + _VALUE.format("v0"),)),
    (r"mongo(?:sh|dump|restore|import|export)?|cqlsh|ncftp(?:put|get|ls)|rdesktop", (r"-p\ " + _VALUE.format("v0"),)),
    (r"sqlcmd|zip|unzip|ipmitool|mosquitto_(?:pub|sub)", (r"-P\ ?" + _VALUE.format("v0"),)),
    (r"7z[ar]?|rar|unrar", (r"-h?p(?:\ ?)" + _VALUE.format("v0"),)),
    (r"ldap(?:search|modify|add|delete|whoami|passwd)", (r"-[a-zA-Z]{0,6}w\ " + _VALUE.format("v0"),)),
    (r"lftp|sftp|ftp", (r"-u\ ?" + _USER.format(",", "v0"),)),
    (r"net\ use", (r"(?:[A-Za-z*]:?\ )?[\\/]{2}[^\s]{1,120}\ " + _VALUE.format("v0") + r"\ {1,3}/",)),
    (r"smbclient|rpcclient|net|smbget", (r"(?:-U|--user)[\ =]?" + _USER.format("%", "v0"),)),
    (r"mount(?:\.cifs|\.smb3|_smbfs)?", (
        r"""-o\ ?["']?(?:[^\s"'|;]{0,200}?,)??pass(?:word2?|wd)?=(?P<v0>[^\s"',$<>(|;&`][^\s"',|;&`]{2,199})""",
        r"""-o\ ?["']?(?:[^\s"'|;]{0,200}?,)??user(?:name)?=[^\s"',%$|;]{1,60}%(?P<v1>[^\s"',$<>(|;&`][^\s"',|;&`]{2,199})""",
    )),
    (r"ssh-keygen", (r"-[a-zA-Z]{0,4}[NP]\ ?" + _VALUE.format("v0"),)),
    (r"openssl\ enc", (_PASSWORD_OF_OPENSSL, r"-[kK]\ " + _VALUE.format("v1"))),
    (r"openssl(?!\ enc\ )", (_PASSWORD_OF_OPENSSL,)),
    (r"htpasswd", (r"-[a-zA-Z]{0,4}b[a-zA-Z]{0,4}\ [^\s]{1,120}\ [^\s]{1,60}\ " + _VALUE.format("v0"),)),
    (r"xfreerdp3?|wfreerdp", (r"/p:" + _VALUE.format("v0"),)),
    (r"rclone\ obscure", (_VALUE.format("v0"),)),
    (r"mc(?:li)?\ (?:--?[\w-]{1,20}\ ){0,3}(?:alias\ (?:set|s)|config\ host\ add)", (_WORD + r"""["']?https?://""" + _WORD + _WORD + _VALUE.format("v0"),)),
    (r"mc(?:li)?\ admin\ user\ add", (_WORD + _WORD + _VALUE.format("v0"),)),
    (r"(?:oss|obs|tos)util(?:64)?", (r"-k[\ =]" + _VALUE.format("v0"),)),
    (r"coscmd|coscli", (r"-s[\ =]" + _VALUE.format("v0"),)),
    (r"qshell\ account|b2\ (?:account\ )?authorize(?:[_-]account)?|wpa_passphrase|rabbitmqctl\ (?:add_user|change_password|authenticate_user)|poetry\ config\ http-basic\.[\w-]{1,60}", (
        _WORD + _VALUE.format("v0"),
    )),
    (r"poetry\ config\ pypi-token\.[\w-]{1,60}", (_VALUE.format("v0"),)),
    (r"doctl|influx|anaconda", (r"-t[\ =]" + _VALUE.format("v0"),)),
    (r"ttyd|gotty", (r"(?:-c|--credential)[\ =]" + _USER.format(":", "v0"),)),
    (r"etcdctl", (r"--user[\ =]" + _USER.format(":", "v0"),)),
    (r"swift", (r"-K[\ =]?" + _VALUE.format("v0"),)),
    (r"kubectl\ create\ secret\ generic", (r"--from-literal[\ =][^\s=]{1,100}=(?P<v0>[^\s\"'$<>(|;&`][^\s\"'|;&`]{2,199})",)),
    (r"sqlplus|expdp|impdp|sqlldr", (_USER.format("/", "v0"),)),
)  # fmt: skip
"""Programs, and by which options they take what. `TAKEN` looks a bounded way ahead for these, so none of them looks ahead itself."""
COMMAND = late_pattern(
    rf"(?<![\w.-])(?:{'|'.join(f'(?P<p{place}>{program})' for place, (program, _) in enumerate(_TAKES))})(?:\.exe)?\ ",
    re.VERBOSE,
)
"""A program by its name; the group tells which of `TAKEN` its words are looked at with."""
TAKEN = {
    f"p{place}": late_pattern(rf"(?:[^\n|;]{{0,200}}?(?<=\ ))??(?:{'|'.join(takes)})", re.VERBOSE)
    for place, (_, takes) in enumerate(_TAKES)
}
"""What follows a program up to what it takes, from where its words begin or go on."""
GIVEN_TO = late_pattern(rf"(?<![\w.-]){ASKING}\ (?:[^\n|;<]{{0,200}}\ )?<<<\ {{0,3}}{_VALUE.format('v')}", re.VERBOSE)
SAID_TO = late_pattern(
    rf"""(?<![\w-])(?:echo|printf)\ (?:-[neE]{{1,3}}\ )?{_VALUE.format("v")}\ {{0,3}}\|\ {{0,3}}(?:[\w./-]{{0,60}}/)?
    {ASKING}""",
    re.VERBOSE,
)
