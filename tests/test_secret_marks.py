"""Passwords with marks in them that other values end at, and those of connection strings."""

from __future__ import annotations

import itertools
import time

import pytest

from hpc_llm.text.secrecy import is_secret, redacted

REST = "Vq72mNp0Lzxx"
NAMED = ["DB_PASSWORD=", "password=", "password: ", "tool --password ", "PGPASSWORD=", "CLIENT_SECRET=", "db_pass = "]
MARKS = ["&", ";", '"', "`", "<", ">", "%", "%27", "%26", "%22", "%3B", "'"]
AROUND = ["{}", "env A=b {} python x.py", "msg='{}' x=1", '{{"m": "{}", "x": 1}}', "see `{}`, x"]


@pytest.mark.parametrize("mark", MARKS)
def test_a_password_goes_on_behind_a_mark(mark: str) -> None:
    for named, before, around in itertools.product(NAMED, ["Xk9", "a7", "12", "Xk99"], AROUND):
        if mark not in around:
            text = around.format(f"{named}{before}{mark}{REST}")
            assert is_secret(text) and redacted(text) == around.format(f"{named}(hidden)"), text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://h/d?password=x1y2&a=b", "https://h/d?password=(hidden)&a=b"), ("a=1&password=x1yz&b=2", "a=1&password=(hidden)&b=2"),
        ("next=%3Fpassword%3Dx1yz%26c%3Dd", "next=%3Fpassword%3D(hidden)%26c%3Dd"), ("PASSWORD=abcd&& ls", "PASSWORD=(hidden)&& ls"),
        ("PASSWORD=abcd; python x", "PASSWORD=(hidden); python x"), ("PASSWORD=abcd;A=b", "PASSWORD=(hidden);A=b"), ("<add password=abcd/>", "<add password=(hidden)/>"),
        ("<Password>Xk9&amp;Vq72</Password>", "<Password>(hidden)</Password>"), ("DB_PASSWORD=;Vq72mNp", "DB_PASSWORD=(hidden)"), ("DB_PASSWORD=&Vq72mNp", "DB_PASSWORD=(hidden)"),
        ('"DB_PASSWORD=abcd" x', '"DB_PASSWORD=(hidden)" x'), ('-e "A.DB_PASSWORD=Xk9&V1" x', '-e "A.DB_PASSWORD=(hidden)" x'), ("it's DB_PASSWORD=Xk9'Vq72 x", "it's DB_PASSWORD=(hidden) x"),
        ("Server=db;Password=a7;Vq72mNp;Data Source=h", "Server=db;Password=(hidden);Data Source=h"),
    ],
)  # fmt: skip
def test_what_ends_a_password(text: str, said: str) -> None:
    assert is_secret(text) and redacted(text) == said


@pytest.mark.parametrize(
    "text",
    ["PASSWORD=$X;exit1", "password: foo; bar2", "f(password=pw1);g2()", "PASSWORD=;A=b1", "password=%s&user=b1", "PASSWORD=${A}&x1", "password=;A1c"],
)  # fmt: skip
def test_what_stands_behind_no_password_stays(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)


def test_many_marks_take_a_time_that_grows_like_them() -> None:
    for text in ("PASSWORD=a&" * 20_000, "password='" * 20_000, "PASSWORD=" + "a;" * 100_000):
        begun = time.process_time()
        redacted(text)
        assert time.process_time() - begun < 10
