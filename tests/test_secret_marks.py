"""Passwords with marks in them that other values end at, and those of connection strings."""

from __future__ import annotations

import itertools
import time

import pytest
from pace import is_within

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
        assert is_within(time.process_time() - begun, 10)


@pytest.mark.parametrize("name", ["Pwd", "PWD", "pwd", "Pass"])
@pytest.mark.parametrize("password", ["Vq72mNp0Lzxx", "swordfish", "a7&Vq72mNp", "a7;Vq72mNp", "pa$$w0rd", "1234567"])
@pytest.mark.parametrize(
    "line",
    [
        "Server=db1;Uid=train;{}={};", "Server=db1;Uid=train;{}={}", "{}={};Server=db1;Uid=train", "cannot connect with DRIVER={{ODBC}};Server=db1; Uid=train; {}={};",
        "jdbc:sqlserver://db1:1433;databaseName=x;user=u;{}={}", 'conn = "Data Source=db1;User ID=u;{}={};Database=x"', "export SQL='Server=db1;Uid=train;{} = {};'",
    ],
)  # fmt: skip
def test_the_password_of_a_connection_string_is_hidden(line: str, password: str, name: str) -> None:
    text = line.format(name, password)
    assert is_secret(text) and redacted(text) == line.format(name, "(hidden)"), text


def test_a_password_in_braces_or_quotes_is_hidden() -> None:
    for password in ("{a7;Vq=2mNp}", "'a7;Vq=2mNp'", '"a7;Vq=2mNp"'):
        text = f"Server=db1;Uid=train;Pwd={password};Database=x"
        assert is_secret(text) and "2mNp" not in redacted(text) and redacted(text).endswith(";Database=x"), text


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/some/path", "OLDPWD=/x", "pwd: /home/x", "USER=me;PWD=/home/me;HOME=/home/me", "user=me; pwd=~/work; host=gn01", "HOST=gn01;OLDPWD=/work1/x;PWD=/work1/y", "lr=1;pwd=work1;steps=3",
        "PWD=work1", "Server=db1;Uid=u;Pwd=<your password>;", "Server=db1;Uid=u;Pwd=${PW};", "Server={s};Uid={u};Pwd={pwd};", "Server=db1;Uid=u;Pwd=%s;", "Server=db1;Uid=u;Pwd=;Database=x1",
        "Server=db1;Uid=u;Pwd=(hidden);", 'c = "Server=db1;Uid=u;Pwd=" + word1 + ";"', r"USER=me;PWD=C:\work1;HOST=gn01", "host=gn01; pass=2; fail=0", "Server=db1;Uid=u;Pwd=***;", "HOST=gn01; cd x1; pwd",
    ],
)  # fmt: skip
def test_the_working_directory_is_no_password(text: str) -> None:
    assert redacted(text) == text and not is_secret(text)
