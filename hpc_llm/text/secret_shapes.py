"""The forms that services give their keys, by which a secret is found under any name. Standard library only."""

from __future__ import annotations

import itertools
import re

from hpc_llm.text.late_pattern import late_pattern

_MIXED = r"(?=[a-z0-9_-]{0,60}[A-Z])(?=[A-Za-z_-]{0,60}[0-9])"
"""Before what may hold `_` or `-`: without a capital and a digit it is a name of words, as `sk-lora_r8_alpha16`."""
_WORDS = r"(?![A-Za-z0-9]{30})(?:[A-Z]?[a-z]{2,15}(?![a-z])(?:(?:20[0-9]{6}|[0-9]{1,4})(?![0-9]))?){1,6}(?![A-Za-z0-9])"
"""Words with numbers or a date, as in `hf_datasets6750`: a name of a file. The hub's keys are longer."""
SHAPES = late_pattern(
    r"""(?<![A-Za-z0-9])(?:
      hf_(?!WORDS)(?:(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{10,}|[A-Za-z0-9]{20,}) | hf_oauth_[A-Za-z0-9]{20,} | api_org_[A-Za-z0-9]{16,}
    | sk-(?:ant|proj|svcacct|admin)-(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{16,}
    | sk-(?:[a-z]{2,8}-(?:[a-z0-9]{2,8}-)?)?(?:[A-Za-z0-9]{16,}|MIXED [A-Za-z0-9_]{16,}) | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}
    | sk-(?:[a-z]{2,8}-){0,2}[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} | SK[0-9a-f]{32}(?![0-9a-f]) | vercel_blob_rw_MIXED [A-Za-z0-9_]{20,}
    | AQ\.Ab[A-Za-z0-9_-]{30,} | ABSK[A-Za-z0-9+/]{60,}={0,2} | EAA[A-Za-z0-9]{0,20}[0-9][A-Za-z0-9]{60,} | eyJhcGlfYWRkcmVzcyI6[A-Za-z0-9+/_-]{30,}={0,2}
    | gh[opsur]_[A-Za-z0-9]{16,} | github_pat_MIXED [A-Za-z0-9_]{16,} | dckr_(?:pat|oat)_MIXED [A-Za-z0-9_-]{16,}
    | (?:AKIA|ASIA|ABIA)[A-Z0-9]{12,} | (?:shpss|lin_api|figd|rpa|KGAT|whsec|secret)_(?=[A-Za-z_]{0,60}[0-9])[A-Za-z0-9]{24,}
    | (?:pplx|xai)-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{24,} | sq0(?:csp|atp)-[A-Za-z0-9_-]{20,} | 1//0[A-Za-z0-9_-]{20,}
    | [0-9]{6,12}:AA[A-Za-z0-9_-]{30,} | [MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}
    | discord(?:app)?\.com/api/webhooks/[0-9]{10,20}/[A-Za-z0-9_-]{20,}
    | (?:gsk_[A-Za-z0-9]{52} | r8_[A-Za-z0-9]{37})(?![A-Za-z0-9]) | glsa_[A-Za-z0-9]{32}_[0-9A-Fa-f]{8} | ntn_[0-9]{11}[A-Za-z0-9]{35} | shp(?:at|ca|pa)_[0-9a-fA-F]{32}
    | (?:tgp|wandb)_v1_MIXED [A-Za-z0-9_-]{40,} | dapi[a-f0-9]{32}
    | gl(?:pat|dt|rt|ptt|cbt|agent|oas|soat|ft|imt)-(?:[A-Za-z0-9]{20,}|MIXED [A-Za-z0-9_-]{20,})
    | xox[a-z]-[A-Za-z0-9-]{8,} | xapp-[A-Za-z0-9-]{12,} | hooks\.slack\.com/services/[A-Za-z0-9/]{16,}
    | (?:[a-z]{2,12}\.)?anaconda\.(?:org|cloud|com)/t/(?!<)[A-Za-z0-9-]{8,}
    | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{16,} | GOCSPX-[A-Za-z0-9_-]{20,}
    | npm_[A-Za-z0-9]{30,} | pypi-Ag[A-Za-z0-9_-]{30,} | nvapi-MIXED [A-Za-z0-9_-]{60,} | dop_v1_[a-f0-9]{32,}
    | tskey-[a-z]{2,12}-[A-Za-z0-9]{6,40}-[A-Za-z0-9]{12,} | ms-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])
    | hv[sbr]\.[A-Za-z0-9_-]{20,} | sl\.(?:[a-z]\.)?MIXED [A-Za-z0-9_-]{60,} | SG\.[A-Za-z0-9_-]{16,60}\.[A-Za-z0-9_-]{16,} | AGE-SECRET-KEY-1[A-Z0-9]{20,}
    | [A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,}
    | eyJ[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{6,} | eyJ[A-Za-z0-9_-]{6,2000}\.eyJ[A-Za-z0-9_-]{3,2000}\.
    | (?:[Ss]et-)?[Cc]ookie:\ ?[^\s=;:]{1,60}=[^\s;$]{8,} | PuTTY-User-Key-File-[0-9]
    | sshpass\ -p\ ?[^\s$-][^\s]{0,200}
    | https?://?(?:(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,200}|(?=[A-Za-z_-]{1,60}[0-9]{1,60}[A-Za-z])[A-Za-z0-9_-]{10,200})@
    )
    | -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----[A-Za-z0-9+/=\s]{0,10000}
    | (?<=[Bb]earer\ )(?=[A-Za-z_.~+/=-]{0,200}[0-9])[A-Za-z0-9_.~+/=-]{12,}
    | (?<=X-Amz-Signature=)[0-9a-f]{64} | (?<=X-Goog-Signature=)[0-9a-f]{32,}
    | (?<=AccountKey=)[A-Za-z0-9+/]{20,}={0,2} | (?<=AccessKey=)[A-Za-z0-9+/]{20,}={0,2} | (?<=[?&]sig=)[A-Za-z0-9%+/_=-]{20,}""".replace(
        "MIXED", _MIXED
    ).replace("WORDS", _WORDS),
    re.VERBOSE,
)
_SERVICES = """jina lsv2 sbp vcp vci vca vcr vck tvly fw csk cpk pat pa ctx7sk sntrys sntryu glc rnd re phc phx phs pul PMAK NRAK NRII NRAA tskey
    pscale EZAK EZTK apify exa fc e2b ek esecret secret token apikey key pk ops pnu pnb rubygems shippo duffel lf fal""".split()
OF_A_SERVICE = late_pattern(  # what services put before a key, `_` or `-` between; `SHAPES` has those of a form of their own
    rf"""(?<![A-Za-z0-9_./-])(?:{"|".join(sorted(_SERVICES))})[_-](?:[A-Za-z0-9]{{1,8}}[_-]){{0,2}}(?=[A-Za-z]{{0,60}}[0-9])(?=[0-9]{{0,60}}[A-Za-z])[A-Za-z0-9]{{20,}}[A-Za-z0-9_-]*
    | (?<![A-Za-z0-9_-])(?:(?:ATATT|ATCTT)3x[A-Za-z0-9_=-]{{16,}} | ATBB[A-Za-z0-9]{{20,}} | pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{32,}} | dp\.[a-z]{{2,5}}\.[A-Za-z0-9]{{32,}}
    | sntrys_[A-Za-z0-9_=+/-]{{24,}} | LTAI[A-Za-z0-9]{{16,}})
    | (?<![A-Za-z0-9_./:@-])(?:local-[0-9a-f]{{40}} | tk_(?=[A-Za-z]{{0,28}}[0-9])[A-Za-z0-9]{{29}})(?![A-Za-z0-9_/:@-]|\.[A-Za-z0-9])""",
    re.VERBOSE,
)
"""The last two, of a W&B server of one's own and of ntfy, are keys only where they stand alone: within a path or a tag `local-` may stand
before the sum of a commit."""
PREFIXED = late_pattern(  # a key of a service that is not known here
    r"(?<![A-Za-z0-9_./-])[A-Za-z][A-Za-z0-9]{1,11}[_-](?:[A-Za-z0-9]{1,8}[_-]){0,2}([A-Za-z0-9]{20,400})(?![A-Za-z0-9])"
)
RANDOM = late_pattern(
    r"(?:(?<![A-Za-z0-9+/=_.-])|(?<=[A-Za-z0-9_]=))(?:[A-Za-z0-9+/]{40}|[A-Za-z0-9+/]{86}==)(?![A-Za-z0-9+/=_.-])"
)
"""Keys of AWS and of Azure's storage have no other mark than their length."""
_OF_A_PATH = 4
"""So many slashes have paths, and of drawn keys of that length one in 250."""


def is_random(text: str) -> bool:
    """Whether letters and digits change too often for words, and it is no hexadecimal sum. Of a path only what stands between slashes tells."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in text]
    between = "/" if text.startswith("/") or text.count("/") >= _OF_A_PATH else ""
    changes = sum(
        one != other and not (between and between in (one, other)) for one, other in itertools.pairwise(kinds)
    )
    length = len(text) - (text.count(between) if between else 0)
    return {"A", "a", "0"} <= set(kinds) and changes * 5 >= length * 2


_WORD = late_pattern(r"[A-Z][a-z]{2,}")
"""In the name of a class."""


def is_drawn(text: str) -> bool:
    """Whether letters of both cases and digits are mixed as chance mixes them, and not as CamelCase or a list of settings does."""
    upper, lower, digits = (sum(map(kind, text)) for kind in (str.isupper, str.islower, str.isdigit))
    kinds = [c.isupper() - c.isdigit() for c in text]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    is_mixed = digits > 0 and digits * 3 <= len(text) <= 5 * min(upper, lower) and changes * 2 >= len(text) - 1
    return is_mixed and not _is_of_words(text)


def _is_of_words(text: str) -> bool:
    """Whether four words and more are most of it, as of a class: of drawn ones those of one in 300."""
    words = _WORD.findall(text)
    return len(words) >= 4 and sum(map(len, words)) * 10 >= len(text) * 7
