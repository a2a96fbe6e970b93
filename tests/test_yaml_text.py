"""YAML of a stranger: each kind of text that could crash, hang or mislead ends in one sentence, soon."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpc_llm.errors import ProfileError
from hpc_llm.text.yaml_text import DEEPEST, LARGEST_BYTES, MOST_VALUES, parse_yaml, read_yaml

NINE = ", ".join(["{0}"] * 9)
BOMB = "a: &a [x]\n" + "".join(
    f"{c}: &{c} [{NINE.format('*' + p)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 3000))
NESTED = {
    "brackets": "[" * 100_000,
    "closed brackets": "[" * 100_000 + "]" * 100_000,
    "braces": "{a: " * 100_000,
    "dashes": "- " * 100_000,
    "keys": "? " * 100_000,
    "indented": "".join(f"{' ' * i}k:\n" for i in range(1400)),
    "through aliases": CHAIN,
}
MANY = {
    "alias bomb": BOMB,
    "merged": "a: &a {x: 1}\nb: {<<: [" + ", ".join(["*a"] * 30_000) + "]}\n",
    "keys": "".join(f"k{i}: 1\n" for i in range(MOST_VALUES)),
    "items": "[" + "1," * MOST_VALUES + "]",
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(
        ProfileError, match=rf"^f, line \d+: not valid YAML: it is nested deeper than {DEEPEST} levels\.$"
    ):
        parse_yaml(text, "f")


@pytest.mark.parametrize("text", MANY.values(), ids=MANY)
def test_what_holds_too_much_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match=f"it holds more than {MOST_VALUES} values"):
        parse_yaml(text, "f")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: {c: *a}}", "&a {*a : 1}", "&a [&b [*a], *b]"])
def test_a_part_of_itself_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match=r"\*a is a part of itself"):
        parse_yaml(text, "f")


@pytest.mark.parametrize(
    "number", ["1" + "0" * 10_000, "-1" + "0" * 10_000, "9223372036854775808", "9" * 5000 + ".0", "1e999", "-1e999"]
)
def test_a_number_that_nothing_can_carry_is_refused_and_not_repeated(number: str) -> None:
    for text in (f"steps: {number}", f"[{number}]"):
        with pytest.raises(ProfileError, match=r"the number \S+ is (too large|not finite)") as refused:
            parse_yaml(text, "f")
        assert len(str(refused.value)) < 250


@pytest.mark.parametrize("text", [".nan", ".inf", "-.inf", "+.INF", ".NaN"])
def test_what_is_no_finite_number_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="is not finite"):
        parse_yaml(f"gradient_clipping: {text}", "f")


@pytest.mark.parametrize(
    "text",
    [
        "!!binary aGVsbG8=", "!!timestamp 2026-01-01", "!!set {a}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!int 1:30",
        "!!int 0o17", "!!float .inf", "!!python/object/apply:os.system [true]", "!include other.yaml", "!!map {}",
    ],
)  # fmt: skip
def test_a_tag_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="is not known here: write plain values"):
        parse_yaml(f"a: {text}", "f")


def test_a_value_may_be_said_to_be_text_and_used_twice() -> None:
    assert parse_yaml("a: !!str 12\nb: &b {x: 1}\nc: *b\nd: {<<: *b, y: 2}", "f") == {
        "a": "12", "b": {"x": 1}, "c": {"x": 1}, "d": {"x": 1, "y": 2},
    }  # fmt: skip


def test_a_name_of_digits_stays_as_it_is_written() -> None:
    text = "[2024_01, 1_0, 1_0.5, 0123, 2024-01-01, +5, -0, 24:00:00]"
    assert parse_yaml(text, "f") == text[1:-1].split(", ")
    assert parse_yaml("[0, -5, 10, 1.5, .5, 2e3]", "f") == [0, -5, 10, 1.5, 0.5, 2000.0]


def test_a_file_that_is_too_large_or_never_ends_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_text("#" * (LARGEST_BYTES + 1))
    os.mkfifo(tmp_path / "pipe.yaml")
    for path, said in (
        (large, "it is larger than 1 MiB"),
        (tmp_path / "pipe.yaml", "it is no regular file"),
        (Path("/dev/zero"), "it is no regular file"),
        (tmp_path, "Is a directory|it is no regular file"),
    ):
        with pytest.raises(ProfileError, match=f"cannot be read: ({said})"):
            read_yaml(path)


def test_a_pipe_of_the_shell_is_read_to_its_end() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "w") as pipe:
            pipe.write("a: 1\n" + "#" * 100_000)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_yaml(Path(f"/dev/fd/{reader}")) == {"a": 1}
    finally:
        thread.join()
        os.close(reader)


HOSTILE = {
    "profile": ("clusters/x.yaml", "[" * 100_000, ("render", "--cluster", "x", "--method", "z2")),
    "method": ("configs/x.yaml", BOMB, ("render", "--cluster", "local", "--method", "x")),
    "experiment": ("e.yaml", "steps: 1" + "0" * 10_000, ("render", "e.yaml")),
}


@pytest.mark.parametrize(("name", "text", "command"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_costs_one_sentence_and_little_memory(
    name: str, text: str, command: tuple[str, ...], own_folder: Path
) -> None:
    (own_folder / name).parent.mkdir(exist_ok=True)
    (own_folder / name).write_text(text)
    limited = ["bash", "-c", 'ulimit -v 1000000; ulimit -t 20; exec "$@"', "bash", sys.executable, "-m", "hpc_llm"]
    done = subprocess.run([*limited, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [sentence] = [line for line in done.stderr.splitlines() if "not valid YAML" in line]
    assert Path(name).name in sentence and len(sentence) < 400
    listed = subprocess.run([*limited, "clusters"], capture_output=True, text=True, check=False)
    assert listed.returncode == 0 and "taiwania2" in listed.stdout


def test_the_package_runs_as_a_module_and_takes_nothing_from_the_working_directory(own_folder: Path) -> None:
    (own_folder / "yaml.py").write_text("raise SystemExit('the yaml.py of the working directory ran')\n")
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm", "clusters", "local"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "") and "This machine" in done.stdout
