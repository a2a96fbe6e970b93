"""Values of options that were meant for a secret: `--hub-tokn V`, `--passw V`, as they are misspelt or cut short. Standard library only.

An option counts by its last words: what is one letter off the word for a secret, or begins it, stands for it, and the value
is looked at as behind that word. What is a word of its own, or of language models (`--eos-tok`), is none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from hpc_llm.text.assignments import Assigned, is_secret_value
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import is_of_models, says_of_secrets, tells, words_of
from hpc_llm.text.secret_values import is_generated

_OPTION = late_pattern(
    r"""(?<![\w-])--?(?P<name>[A-Za-z][\w.-]{1,60})(?:=|["']?,?\ {1,4})"""
    r"""(?:'(?P<single>[^'\n]{3,300})'|"(?P<double>[^"\n]{3,300})"|(?P<bare>[^\s"'$<>()\[\]{}|;&`-][^\s"'|;&`]{2,299}))"""
)
_LIKE = "TOKEN PASSWORD PASSWD PASSPHRASE PASSCODE SECRET CREDENTIAL CREDENTIALS".split()
_LIKE_TOGETHER = "APIKEY ACCESSKEY SECRETKEY PRIVATEKEY AUTHKEY APITOKEN ACCESSTOKEN AUTHTOKEN".split()
"""Words that may be two: `api-ky`."""
_CUT_SHORT = "PASSWORD PASSPHRASE PASSCODE SECRET CREDENTIAL".split()
_LEAST = 4
_OTHERS = {
    "PSW": "PASSWORD", "PSWD": "PASSWORD", "PASWD": "PASSWORD", "PWRD": "PASSWORD", "PSWRD": "PASSWORD", "PSSWD": "PASSWORD", "PASSWRD": "PASSWORD",
    "SCRT": "SECRET", "SECR": "SECRET",
    "TOK": "TOKEN", "TKN": "TOKEN", "TKEN": "TOKEN", "TOKE": "TOKEN",
}  # fmt: skip
_OF_SERVICES = frozenset(
    """HF HUB HUGGINGFACE GITHUB GITLAB GH GIT API ACCESS AUTH OAUTH WANDB BOT SESSION REFRESH BEARER USER LOGIN SLACK DISCORD TELEGRAM
    MODELSCOPE SECRET PRIVATE CLIENT SERVICE REGISTRY REPO""".split()
)
"""What stands before a token that is no piece of a text."""
_NONE = frozenset(
    "SECRETS PASSWORDS TAKEN WOKEN TOKENS PASSED PASSES PASS SECRETE SECRETED BROKEN SPOKEN TOKEY".split()
)
"""Words that are one letter off, and mean something else."""
_ALONE = frozenset("PASS PWD PW PWORD AUTH".split())
"""A compiler has passes, a container a working directory: their values have to be drawn."""


def secrets_in_options(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand.

    >>> text = "train.py --hub-tokn hunter22 --eos-tok stop1 --passw=hunter33 --tokenizer gpt2"
    >>> [text[start:end] for start, end in secrets_in_options(text)]
    ['hunter22', 'hunter33']
    """
    if "-" not in text:
        return
    for found in _OPTION.finditer(text):
        meant = _meant(found["name"])
        if meant:
            group = next(name for name in ("single", "double", "bare") if found[name] is not None)
            if _is_secret(meant, found[group], is_quoted=group != "bare"):
                yield found.span(group)


def _is_secret(name: str, value: str, *, is_quoted: bool) -> bool:
    if name in ("pass", "tok"):
        return is_generated(value, least=8)
    return is_secret_value(Assigned(name, value, 0, "option", is_quoted, is_subscript=False, is_query=False))


@functools.lru_cache(maxsize=4096)
def _meant(option: str) -> str:
    """The name that an option stands for, in lower case; "" where it is spelled as it should be, or is another."""
    words = words_of(option)
    if not words or says_of_secrets(words[-1]):
        return ""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if words == [last] and last in _ALONE:
        return "pass"
    if tells(option) in ("surely", "likely") or last in _NONE or is_of_models(before):
        return ""
    service = next((one for one in _OF_SERVICES if last.startswith(one) and len(last) > len(one) + 2), "")
    meant = _word(last) or (_word(last[len(service) :]) if service else "")
    if last.removeprefix(service) == "TOK":  # `--tok` may name a tokenizer
        return "hub_token" if service or before in _OF_SERVICES else "tok"
    if meant:
        return f"hub_{meant.lower()}"
    return "api_key" if any(_is_near(before + last, word) for word in _LIKE_TOGETHER) else ""


def _word(word: str) -> str:
    """The word for a secret that one stands for."""
    if word in _OTHERS:
        return _OTHERS[word]
    cut = next((one for one in _CUT_SHORT if len(word) >= _LEAST and one != word and one.startswith(word)), "")
    return cut if cut and word not in _NONE else next((whole for whole in _LIKE if _is_near(word, whole)), "")


def _is_near(word: str, whole: str) -> bool:
    """Whether one letter is missing, too many or another, or two have changed places.

    >>> [_is_near(word, "TOKEN") for word in ("TOKN", "TOEKN", "TOKENN", "TOKAN", "TOKENIZER")]
    [True, True, True, True, False]
    """
    if word == whole or abs(len(word) - len(whole)) > 1:
        return False
    same = next((k for k, (one, other) in enumerate(zip(word, whole, strict=False)) if one != other), None)
    if same is None:
        return True
    mine, theirs = word[same:], whole[same:]
    return (
        mine[1:] == theirs or mine == theirs[1:] or mine[1:] == theirs[1:]
        or (mine[:2] == theirs[:2][::-1] and mine[2:] == theirs[2:])
    )  # fmt: skip
