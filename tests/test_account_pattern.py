"""A profile's pattern of accounts is a regular expression whose match ends, or it is refused."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from pace import is_within

from hpc_llm.site.account_pattern import LONGEST_ACCOUNT, check_pattern, fits

GOOD = {
    "": ("x", "x" * 65), "-delta-gpu$": ("bbka-delta-gpu", "bbka-delta-cpu"), "^(ACD|MST|GOV|ENT)[0-9]+$": ("ACD1", "ACD"),
    r"^project_\d{9}$": ("project_465000001", "project_4"), r"^[A-Z]{2,6}[0-9]{4,6}(?:_g)?$": ("ABC1234_g", "ABC1234_h"),
    r"^p_[a-z0-9]+(-gpu|-cpu)$": ("p_x1-cpu", "p_x1"), r"^[^-]+-[]\]a-]+$": ("x-]", "x-b"), r"^m\d{4}(_g)?$": ("m1234_g", "m12345"),
    "^a b$": ("a b", "a  b"), "lab1|lab2": ("lab2", "lab3"), r"^\w+\.\w+@kit$": ("a.b@kit", "ab@kit"), "^((a|b)c)d$": ("bcd", "bd"),
}  # fmt: skip
"""Pattern -> an account that fits, and one that does not."""


@pytest.mark.parametrize("pattern", GOOD)
def test_what_sites_need_passes(pattern: str) -> None:
    check_pattern(pattern)
    fitting, other = GOOD[pattern]
    assert fits(pattern, fitting) and not fits(pattern, other)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "not a regular expression"), ("a{1000000000000}", "not a regular expression"), ("(a+)+$", r"at '\+\$' it goes beyond"),
        ("(a|a)*$", r"at '\*"), ("(a?){20}", r"at '\{20"), (r"(a)\1", "at "), ("(?=a)", "at "), ("(?P<x>a)", "at "), ("(?i)a", "at "),
        ("a*a*a*a*a*$", "5 parts of it can match in more than one way"), ("(a|a)" * 9, "9 parts"), ("(a)?" * 5, "5 parts"),
        ("a|b|(c|d)|(e|f)(g|h)(i|j)", "5 parts"), ("a" * 81, "it has 81 characters, 80 are allowed"), ("a+?b", r"at '\?b'"), ("a{1,2}+", "at |not a"),
    ],
)  # fmt: skip
def test_what_could_take_forever_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_pattern(pattern)


def test_whatever_passes_ends_soon() -> None:
    """All patterns of up to six of these parts that pass, on the account that costs them most, and the worst of full length."""
    parts = ["a*", "(a|a)", "(a|aa)?", "a{0,9}", ".+", "$"]
    made = ["".join(some) for length in range(1, 6) for some in itertools.product(parts, repeat=length)]
    made += [
        "a*a*a*(" + "|".join("a" * 34) + ")b",
        ".*.*.*.*b",
        "(" + "|".join("a" * 18) + ")" + "a*a*(" + "|".join("a" * 12) + ")$b",
    ]
    account = "a" * LONGEST_ACCOUNT
    tried = 0
    for pattern in made:
        try:
            check_pattern(pattern)
        except ValueError:
            continue
        tried += 1
        started = time.process_time()
        fits(pattern.replace("$", "") + "$", account + "b") if len(account) < LONGEST_ACCOUNT else fits(
            pattern, account
        )
        assert is_within(time.process_time() - started, 3), pattern
    assert tried > 500


def test_an_account_that_is_too_long_fits_nothing() -> None:
    assert not fits("a", "a" * (LONGEST_ACCOUNT + 1))
    assert re.search("a", "a" * (LONGEST_ACCOUNT + 1))
