"""Every option of every command, given what it cannot be: one sentence, exit 2, no word of the parser's inside, nothing written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer
from rights import mounted

from hpc_llm.cli import COMMANDS, make_app, run

LONG = "b" * 300
NUMBERS = ("x", "-1", "1.5x")
PATHS = (LONG,)
GIVEN = {
    "render": ["--cluster", "local", "--method", "z3", "--model", "tiny"],
    "estimate": ["--cluster", "local", "--method", "z3", "--model", "tiny"],
    "submit": ["--cluster", "local", "--method", "z3", "--model", "tiny", "--dry-run"],
    "fetch": ["tiny", "--to", "there"],
    "export": ["nope", "--to", "wandb"],
    "parse": ["a.log"],
    "report": ["a.log"],
    **{name: ["nope"] for name in ("logs", "cancel", "diagnose")},
}
IGNORED = {("estimate", "--templates"), ("report", "--output"), ("export", "--output")}
"""A name too long is not looked at: nothing is rendered, or what is asked for before it is wrong."""


def options_of(name: str) -> list[Any]:
    command = typer.main.get_command(make_app([]))
    found = command.commands[name].params  # type: ignore[attr-defined]
    return [one for one in found if one.param_type_name == "option" and not one.is_flag]


def kind_of(option: Any) -> str:
    annotation = str(option.type_descriptor.annotation)
    return next((word for word in ("int", "float", "Path") if word in annotation), "text")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_says_in_a_sentence_what_it_cannot_be(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text("step 1/2 | loss 2.0 | 1.00s/it\n")
    before = sorted(tmp_path.rglob("*"))
    for option in options_of(name):
        kind, flag = kind_of(option), next(one for one in option.opts if one.startswith("--"))
        wrong = {"int": NUMBERS, "float": NUMBERS[:1], "Path": PATHS}.get(kind, ())
        for value in ("", *(() if (name, flag) in IGNORED else wrong)):
            code = run([name, *GIVEN.get(name, []), f"{flag}={value}"])
            said = capsys.readouterr().err
            assert code == 2, (name, flag, value, said)
            assert "unexpected" not in said and "Traceback" not in said and "PosixPath" not in said, said
            sentence = said.strip().splitlines()[-1]
            assert sentence.startswith("hpc-llm: ") and sentence[-1] in ".?", (name, flag, value, said)
            assert value or f"{flag} is empty: " in said
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["render", "--cluster", "local", "--method", "z3", "-o", "/no/such/thing"], "-o /no/such/thing: there is no folder /no/such."),
        (["render", "--cluster", "local", "--method", "z3", "-o", "/etc"], "-o /etc: it is a folder, the name of a file is needed."),
        (["parse", "a.log", "-o", "/no/such/thing.csv"], "-o /no/such/thing.csv: there is no folder /no/such."),
        (["parse", "a.log", "--columns", ","], "--columns ,: it names none. Valid: run_id, "),
        (["status", "--logs", ""], "--logs is empty: a variable of the shell may not be set."),
        (["models", "é" * 300], ": the name is too long for a file system. Give a shorter one."),
        (["render", "--cluster", "local", "--method", "z3", "--account", ""], "--account is empty"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_written_or_read_is_told_first(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_without_its_value_takes_no_option_for_one(
    name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value was forgotten, or a variable of the shell is not set and stands without quotes."""
    every = typer.main.get_command(make_app([])).commands[name].params  # type: ignore[attr-defined]
    behind = [one.opts[-1] for one in every if one.param_type_name == "option"] + ["--help"]
    for number, option in enumerate(options_of(name)):
        for flag in option.opts:
            following = behind[number % len(behind)]
            assert run([name, *GIVEN.get(name, []), flag, following, "5"]) == 2
            said = f"hpc-llm: {flag} needs a value behind it, and {following} is an option itself. `hpc-llm {name} -h` says which.\n"
            assert capsys.readouterr() == ("", said)
    assert list(own_folder.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_of_one_value_takes_no_second_one(
    name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in options_of(name):
        for flag in option.opts:
            is_refused = run([name, f"{flag}=17", "--no-such", flag, "23"]) == 2
            told = capsys.readouterr().err
            assert is_refused and (f"{flag} is given as 17 and as 23" in told) != option.multiple, told
            assert run([name, flag, "17", "--no-such", flag, "17"]) == 2
            assert "is given as" not in capsys.readouterr().err
    assert list(own_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["--method", "z2", "--method=z3"], "several are one word with commas, --method z2,z3."),
        (["--cluster", "a,b", "--cluster", "c,a"], "several are one word with commas, --cluster a,b,c."),
        (["--steps", "10", "--steps", "50"], "Several are runs of a study, a file with matrix: {steps: [10, 50]}."),
        (["--logs", "a", "--logs", "b"], "takes one value: give one.\n"),
    ],
)
def test_how_several_values_are_said(words: list[str], way: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", *words]) == 2
    assert way in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "--steps=5"], "--method needs a value behind it, and --steps=5 is an option itself."),
        (["--sbatch", "--nodes", "2"], "--sbatch needs a value behind it, and --nodes is an option itself."),
        (["--sbatch", "--nodes=2"], "--sbatch nodes: the plan has to know it. Use --nodes."),
        (["--task=--steps"], "there is no task '--steps'"),
        (["--name", "-x"], ""),
    ],
)
def test_what_is_no_option_or_is_joined_is_a_value(
    words: list[str], said: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", "--cluster", "local", "--method", "z3", "--model", "tiny", *words]) == (2 if said else 0)
    assert said in capsys.readouterr().err


def test_a_file_without_room_is_named_with_what_to_do(
    own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.log").write_text("{'loss': 2.0, 'grad_norm': 1.0, 'learning_rate': 1e-4, 'epoch': 0.5}\n" * 50)
    local = [*GIVEN["render"], "--cluster", "local"]
    with mounted(tmp_path / "disk", "1m") as disk:
        disk.fill()
        there = disk.folder
        writing = {
            there / "s.sh": ["render", *local, "-o", f"{there}/s.sh"],
            there / "r.csv": ["parse", "a.log", "-o", f"{there}/r.csv"],
            there / "rep/results.csv": ["report", "a.log", "-o", f"{there}/rep"],
        }
        for file, words in writing.items():
            assert run(words) == 1
            said = capsys.readouterr().err
            assert said.startswith(f"hpc-llm: {file}: No space left on device. Free room there, or name another place;")
        assert run(["submit", *local, "--logs", f"{there}/logs"]) == 1
        assert "Free room there, or use another --logs" in capsys.readouterr().err
        assert [path.name for path in there.rglob("*") if path.is_file()] == ["ballast"]
    assert list(own_folder.iterdir()) == [own_folder / "a.log"]


@pytest.fixture
def runs_of_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """logs/a holds a run, and logs itself none."""
    (tmp_path / "logs/a/run-1").mkdir(parents=True)
    (tmp_path / "logs/a/run-1/experiment.json").write_text('{"schema": 1, "run_id": "run-1"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", [["status"], ["export", "--to", "tensorboard"], ["logs"], ["cancel"], ["reconcile"]])
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("logs/a", "logs/a is no run, it holds 1: name the folder of runs as --logs logs/a "),
        ("a", "logs/a is no run, it holds 1: name the folder of runs as --logs logs/a "),
        ("./logs", "logs is no run: it holds no experiment.json that can be read; logs/a holds 1: --logs logs/a."),
        ("logs/nope", "there is no folder logs/nope."),
    ],
)
def test_a_folder_of_runs_where_a_run_is_wanted_is_told_with_its_way(
    verb: list[str], named: str, said: str, runs_of_two_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb[0], named, *verb[1:]]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["status"], ["status", "run-1"], ["reconcile"], ["clean"], ["clean", "--checkpoints"], ["cancel", "run-1"]],
)
def test_a_folder_of_runs_that_is_not_there_is_refused_but_for_the_usual_one(
    words: list[str], runs_of_two_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--logs", "logs/nope"]) == 2
    assert "there is no folder logs/nope: --logs" in capsys.readouterr().err
    (runs_of_two_folders / "elsewhere").mkdir()
    os.chdir(runs_of_two_folders / "elsewhere")
    usual = run(words)
    assert usual == (2 if "run-1" in words else 0) and "there is no folder" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "option", "text", "what"),
    [
        ("clusters", "cluster", "schema: 1\nname: mine\nscheduler: local\ngpu: {vendor: auto}\n", "the profile of a cluster"),
        ("clusters", "cluster", "extends: delta\nname: mine\nlaunch: {single_node: torchrun}\n", "the profile of a cluster"),
        ("configs", "method", "schema: 1\nname: mine\nletters: z3\nengine: [flat]\n", "a method"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_found", [True, False])
def test_a_profile_or_a_method_in_place_of_an_experiment_is_told_with_its_option(
    kind: str, option: str, text: str, what: str, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    file = Path(kind if is_found else "other", "mine.yaml")
    file.parent.mkdir()
    file.write_text(text)
    assert run(["render", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file} is {what}, and no experiment file: " in said
    found = "say" if is_found else f"as {kind}/mine.yaml of the working directory it is found by its name,"
    assert f" {found} --{option} mine." in said


def test_no_word_at_all_is_answered_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) in (0, 2)
    shown = capsys.readouterr()
    assert "Usage: hpc-llm" in shown.out + shown.err
    assert "unexpected" not in shown.out + shown.err
