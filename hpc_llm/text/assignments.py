"""Where a text assigns a value to the name of a secret, in whatever language: the name counts, and what joins the two.

Each name is looked at, also within what stands behind another one: the value of a variable may be an address with a
query, and that of an option a variable of its own. Each look goes a bounded way, so a text takes a time that grows like it.
Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hpc_llm.text.bare_values import BARS, as_value, bare, bare_end, bare_password
from hpc_llm.text.connection_strings import in_connection_string, is_of_connection, is_password_of_connection
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_encoded import is_text
from hpc_llm.text.secret_names import OF_VARIABLES, is_collective, is_trackers, kind_of, tells, words_of
from hpc_llm.text.secret_values import (
    DIGITS_APART,
    is_composed,
    is_expression,
    is_generated,
    is_harmless,
    is_kept,
    is_key_of_trackers,
    is_long_number,
    is_mixed,
    is_mixed_word,
    is_number,
    is_reference,
    is_told,
)

NAMED = late_pattern(
    r"(?i)auth|key|token|pass|secret|cred|session|pwd|(?<![a-z0-9])(?:pw|pat|psk|t?otp|mfa)(?![a-z0-9])|[_-](?:pw|psk|otp|mfa)|[_-]pat(?![a-z])|[a-z]Pat(?![a-z])|dsn|cookie|jwt|bearer|wandb|comet|neptune|clearml|swanlab|mlflow|[?&;](?:sig|code|pw|sas)"
)
"""A word without which no name in a text is a secret's; most lines have none."""
_NAME = late_pattern(
    r"(?:(?i:api|access|secret|private|auth)[\ .](?=(?i:keys?|tokens?)\b))?[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*"
)
_QUOTE = r"""(?:\\{0,4}["'`]|%2[27]|&quot;|&\#3[49];|\\u002[27])"""
_BLANKS = r"[\ \t]{0,40}"
_SIGN = late_pattern(
    rf"""(?P<closed>{_QUOTE}{{0,2}}[\])]{{0,2}})
    (?:
      (?:{_BLANKS}:{_BLANKS}(?:[A-Za-z]{{1,20}}\.)?(?:Optional\[)?&?(?:str|bytes|String|STRING|string|SecretStr|Any)\]?(?:\ ?\|\ ?None)?)?
      (?P<sign>{_BLANKS}(?:=>|[:?]=|={{1,3}}|:[-=](?=[^\s}}]{{1,200}}\}})|:(?!:)|\\u003[dD]|%3[DdAa]|<-){_BLANKS}|(?:\[\d{{0,6}}\])?\+?=(?=\S))
    | (?P<pair>["']?\ {{0,3}},\ {{0,3}}["']?value["']?\ {{0,3}}[:=]\ {{0,3}}|["']?\ {{1,3}}value=|\ {{0,3}},\ {{0,3}}(?=["']))
    | (?P<tag>>|</[A-Za-z]{{1,20}}>\s{{0,20}}<[A-Za-z]{{1,20}}>)
    | (?P<loose>\ {{0,40}}(?:[{BARS}]|\.{{3,80}}|\t|->)\ {{0,40}}|\ {{1,4}})
    )""",
    re.VERBOSE,
)
"""What joins a name and its value: a sign, perhaps behind a type; a comma or `value=` in a list of pairs; a tag; or little."""
_OPEN = late_pattern(
    r"""(?:(?P<list>\[\ {0,3}|\{["']value["']:\ {0,3})?\(?\$?[rbfuRBFU]{0,2}(?P<quote>\\{0,4}(?:\"{3}|'{3}|["'`])|%2[27]|&quot;|&\#3[49];|\\u002[27]))?"""
)
_NEXT = late_pattern(r"""["']\ {0,3},\ {0,3}[rbfuRBFU]{0,2}(?P<quote>["'])""")
"""What stands between two texts of a list."""
_MOST_IN_A_LIST = 16
_SETS = late_pattern(
    r"""(?:(?<![\w-])(?:setenv|pushenv|export|setx?|printf\ -v|ENV|ARG|(?:npm|configure)\ set|config\ (?:set|--?[a-z]{1,12}))(?:\ {1,3}-{1,2}[A-Za-z-]{1,12}){0,3}\ {1,3}(?:[\w./:-]{1,40}[.:])?|(?<![\w-])--?(?:[\w-]{1,20}\.){0,2}|(?<![\w.-])spark\.(?:[\w-]{1,20}\.){0,4})["']?\Z"""
)
"""Words before a name whose value stands behind a blank: those of shells and recipes, the dashes of an option, Spark's settings."""
_BEFORE, _LONGEST_NAME = 60, 120
_TWO_DIGITS = late_pattern(r"[0-9A-Fa-f]{2}")
_OF_A_USER = frozenset("pwd pw pass psk auth".split())
_USER = late_pattern(
    r"""(?i)(?<![a-z])(?:user(?:[ _]?(?:name|id))?|uid|login|account)["']?(?:\ ?[=:]\ ?|\ )["']?[\w.@+-]{1,40}["']?[ ,;]{1,3}(?:(?:and|with)\ )?["']?\Z"""
)
_IN_A_QUERY = late_pattern(r"(?:[?&]|%3[Ff]|%26|&amp;)\Z")
_OF_QUERIES = frozenset("sig signature code auth pass pwd pw sas hmac".split())
"""Names that mean a secret in the query of an address only."""
_ROW = late_pattern(rf"[ \t]{{0,40}}[{BARS}]")
"""How a row of a table begins, whose cells end at a bar."""
_LONGEST = 500
_MORE = late_pattern(r"[^\s\"'`]*")
_LETTERS = frozenset(("-D", "\\n", "\\r", "\\t"))


class Assigned(NamedTuple):
    """A name, its value and how they are joined. A text may be full of them, and a tuple is made in a sixth of a data class's time."""

    name: str
    value: str
    start: int
    """Where the value begins in the text."""
    how: str
    """`tight`: a sign without blanks; `spaced`: with them; `option`: a blank behind a word that sets; `table`: dots, a bar, an arrow or a tab; `loose`: little else."""
    is_quoted: bool
    is_subscript: bool
    """Whether brackets close the name, as in source."""
    is_query: bool
    longer: str = ""
    """Of a password without quotes the value as far as it may go, where that is farther than of other values."""
    in_connection: bool = False
    """Whether it is `Pwd=` in a connection string; elsewhere that is the working directory."""
    is_listed: bool = False
    """Whether brackets open before it, as a list's."""
    is_option: bool = False
    """Whether dashes stand before the name."""
    is_beside_user: bool = False
    """Whether a user is told just before it."""


def secrets_assigned(text: str) -> Iterator[tuple[int, int]]:
    """Where the secrets stand that a text gives to names."""
    if NAMED.search(text) is None:
        return
    hidden, line = 0, _Line(text)
    for found in _NAME.finditer(text):
        if found.end() <= hidden:
            continue
        for name in _names(text, found):
            for assigned in _all_assigned(text, name, found.end(), line):
                if (one := _secret(assigned)) is not None:
                    hidden = _end(text, one)
                    yield one.start, hidden


class _Line:
    """The line of one place of a text behind another: nothing is looked at twice, however long a line is."""

    def __init__(self, text: str) -> None:
        self._text, self._seen, self._begin = text, 0, 0
        self._is_row: bool | None = None

    def is_row(self, place: int) -> bool:
        """Whether it is of a table."""
        newline = self._text.rfind("\n", self._seen, place)
        self._seen = max(place, self._seen)
        if newline >= 0:
            self._begin, self._is_row = newline + 1, None
        if self._is_row is None:
            self._is_row = _ROW.match(self._text, self._begin) is not None
        return self._is_row


def _names(text: str, found: re.Match[str]) -> list[str]:
    """The secret's name that stands there, perhaps behind the digits or the letter of an escape or of a compiler's option."""
    whole = found[0][-_LONGEST_NAME:]
    if not _is_name(whole):
        before, end = text[found.start() - 1 : found.start()], found.end()
        behind = 2 if before == "%" and _TWO_DIGITS.match(whole) else 1 if (before + whole[0]) in _LETTERS else 0
        whole = text[found.start() + behind : end] if behind else ""
    elif text[found.start() - 1 : found.start()] == "%" and _TWO_DIGITS.match(whole):
        whole = whole[2:]
    return [whole] if _is_name(whole) else []


def _is_name(name: str) -> bool:
    return kind_of(name) is not None or is_trackers(name) or name.lower() in _OF_QUERIES or name.upper() in OF_VARIABLES


def _end(text: str, one: Assigned) -> int:
    """Where a secret ends, however long it is."""
    end = one.start + len(one.value)
    more = _MORE.match(text, end) if len(one.value) >= _LONGEST else None
    return more.end() if more else end


def _all_assigned(text: str, name: str, end: int, line: _Line) -> Iterator[Assigned]:
    """What stands behind a name and a sign, each element of a list on its own."""
    one = _assigned(text, name, end, line)
    for _ in range(_MOST_IN_A_LIST):
        if one is None:
            return
        yield one
        after = _NEXT.match(text, one.start + len(one.value)) if one.is_listed else None
        one = after and one._replace(start=after.end(), value=_quoted(text, after.end(), after["quote"]))


def _assigned(text: str, name: str, end: int, line: _Line) -> Assigned | None:
    """What stands behind a name and a sign."""
    sign = _SIGN.match(text, end)
    if sign is None:
        return None
    begin = end - len(name)
    before = text[max(0, begin - _BEFORE) : begin]
    if sign["tag"] == ">" and not before.endswith("<"):
        return None
    opened = _OPEN.match(text, sign.end())
    quote = opened["quote"] if opened else None
    start = opened.end() if opened and quote else sign.end()
    how = _how(sign, before)
    longer = ""
    if quote is None and how == "tight" and name.isupper() and before[-1:] in ("'", '"') and not sign["closed"]:
        value = _quoted(text, start, before[-1])
    elif quote:
        value = _quoted(text, start, quote)
    else:
        is_cell = how in ("loose", "table") or line.is_row(begin)
        stop = bare_end(text, start, is_cell)
        value = as_value(text[start:stop])
        if not is_cell and how != "pair" and (kind_of(name) == "password" or is_of_connection(name)):
            longer = bare_password(text, start, begin, is_in_tag=sign["tag"] is not None, end=stop)
    told = len(longer) or len(value)
    if not told or (sign["tag"] == ">" and text[start + told : start + told + 2] != "</"):
        return None
    is_query = _IN_A_QUERY.search(before) is not None
    in_connection = (
        sign["sign"] is not None and is_of_connection(name) and in_connection_string(text, begin, start + told)
    )
    is_listed = opened is not None and bool(opened["list"])
    return Assigned(
        name,
        value,
        start,
        how,
        bool(quote),
        "]" in sign["closed"],
        is_query,
        longer,
        in_connection,
        is_listed,
        before.endswith("-"),
        name.lower() in _OF_A_USER and _USER.search(before) is not None,
    )


def _secret(one: Assigned) -> Assigned | None:
    """The same with the value that is to be hidden, all of a password; None where it is no secret."""
    is_secret = bool(one.value) and is_secret_value(one)
    if one.longer in ("", one.value):
        return one if is_secret else None
    whole = one._replace(value=one.longer)
    if is_secret:
        return whole
    may_go_on = not is_reference(one.value) if one.value else one.how == "tight" and one.name.isupper()
    return whole if may_go_on and is_composed(one.longer) and is_secret_value(whole) else None


def _how(sign: re.Match[str], before: str) -> str:
    if sign["loose"] is not None:
        is_table = bool(sign["loose"].strip(" "))
        return "table" if is_table else "option" if _SETS.search(before) else "loose"
    if sign["pair"] is not None:
        return "pair"
    return "spaced" if sign["sign"] is not None and sign["sign"] != sign["sign"].strip() else "tight"


def _quoted(text: str, start: int, quote: str) -> str:
    """The value up to the quote that closes it, or of a line that was cut off, what is left of its first word."""
    end = start
    while (end := text.find(quote, end, start + _LONGEST)) > 0 and text[end - 1] == "\\" and quote[0] != "\\":
        end += 1
    if end < 0:
        return bare(text, start)
    value = text[start:end]
    return value if "\n" not in value else value.split("\n")[0]


def is_secret_value(one: Assigned) -> bool:
    """Whether the value is one. Of what a `|` divides the first decides, or all of it where it is no list of what may stand there."""
    first, divided, _ = one.value.partition("|")
    if one.is_quoted or not divided:
        return _is_secret(one)
    if _is_secret(one._replace(value=first)):
        return True
    parts = one.value.split("|")
    is_choice = any(is_harmless(part) or not is_told(part) or is_expression(part) for part in parts)
    return _is_secret(one) and (not is_choice or any(is_composed(part) for part in parts if not is_harmless(part)))


def _is_secret(one: Assigned) -> bool:
    """Whether the value is one; the less the name and the sign tell, the more the value has to look like it."""
    name, value = one.name, one.value
    if is_trackers(name) and is_key_of_trackers(value):
        return True
    if one.in_connection:
        return len(value) >= _SHORTEST and is_password_of_connection(value) and not is_harmless(value)
    sure = tells(name)
    is_long = one.how == "tight" and is_long_number(name, value)
    if is_harmless(value) or (kind_of(name) == "key" and is_number(value) and not is_long):
        return False
    if one.is_query and (sure or name.lower() in _OF_QUERIES):
        is_drawn = is_generated(value, least=8) or (len(value) >= 8 and DIGITS_APART.search(value) is not None)
        return is_drawn or (sure == "surely" and len(value) >= _SHORTEST)
    if name.upper() in OF_VARIABLES:
        return _is_of_a_variable(one)
    if not sure:
        return one.name.lower() == "pwd" and _is_password_beside(one)
    if name.isupper() and one.how == "tight" and (one.is_quoted or not one.is_subscript):
        return is_kept(name, value)
    if sure == "maybe":
        return is_generated(value) or (one.how != "table" and is_mixed_word(value, least=10))
    if not one.is_quoted and (
        (is_expression(value) and not _ends_as_a_password(one)) or (one.is_subscript and not is_composed(value))
    ):
        return False
    if len(value) < (_SHORTEST if name.isupper() or kind_of(name) == "password" else _SHORTEST_OF_KEYS):
        return False
    if not is_kept(name, value) or not is_told(value):
        return False
    if one.how in ("loose", "table"):
        is_named = kind_of(name) == "password" or (one.how == "table" and sure == "surely" and _is_of_a_dump(one))
        is_drawn = is_generated(value) or (one.how == "loose" and is_mixed_word(value.rstrip(".")))
        return is_drawn or (is_named and is_composed(value, marks="") and len(value) > _SHORTEST)
    if (sure == "likely" and one.how != "tight" and not one.is_quoted) or (
        one.how == "pair" and not (name.isupper() and "_" in name)
    ):
        return is_composed(value)
    return not (name.lower() == "token" and one.how == "spaced" and not one.is_quoted and value.isalpha())


def _is_of_a_variable(one: Assigned) -> bool:
    """Whether the value of a name that as a whole means a secret is one, `pw` as `PW`: in lower case, too, such words mean other things.

    A compiler has passes, a service sessions, a message an authentication: their values have to be drawn. `pw` has to be no plain word.
    """
    name, value = one.name.upper(), one.value
    if is_collective(name):
        return one.how not in ("loose", "table") and is_mixed(value)
    if one.is_beside_user and _is_password_beside(one):
        return True
    if one.how in ("loose", "table") or (name == "PASS" and one.name != name):
        return is_mixed_word(value.rstrip("."))
    if not one.is_quoted and (is_expression(value) or one.is_subscript):
        return is_mixed_word(value)
    if is_generated(value, least=8):
        return _ADDRESS_IN_MEMORY.fullmatch(value) is None and (one.name == name or not is_text(value))
    is_named = name in _OF_PASSWORDS and (one.is_quoted or one.how in ("tight", "option"))
    return is_named and len(value) >= _SHORTEST_OF_KEYS and is_composed(value) and not value[0].isdigit()


def _is_password_beside(one: Assigned) -> bool:
    """Whether the value can be a password of the user before it; where none is it has to be drawn."""
    if is_mixed_word(one.value.rstrip(".")):
        return True
    is_word = one.is_beside_user and one.how != "table" and not is_expression(one.value) and "/" not in one.value
    return is_word and len(one.value) >= _SHORTEST_OF_KEYS and is_composed(one.value) and is_told(one.value)


def _ends_as_a_password(one: Assigned) -> bool:
    """Whether digits end a word that would name a variable of a secret: a shell's words are none, and of source few have two."""
    digits = _DIGITS_LAST.search(one.value)
    if digits is None or not one.value.isidentifier():
        return False
    return one.how == "option" or one.is_option or kind_of(one.name) == "password" or len(digits[0]) > 1


def _is_of_a_dump(one: Assigned) -> bool:
    """Whether it is an argument in a table of them: tables of results have columns for tokens, and values with units."""
    is_drawn = DIGITS_APART.search(one.value) is not None or is_generated(one.value, least=10)
    return len(words_of(one.name)) > 1 and (one.value[0].isalpha() or is_drawn)


_ADDRESS_IN_MEMORY = late_pattern(r"0[xX][0-9A-Fa-f]{1,16}")
_OF_PASSWORDS = frozenset("PW PSK".split())
_DIGITS_LAST = late_pattern(r"[0-9]{1,12}\Z")
_SHORTEST, _SHORTEST_OF_KEYS = 4, 6
