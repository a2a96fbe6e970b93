"""Links in the folder of a run that lead out of it: who made the folder would have us show what is no part of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_folders import Folder

from hpc_llm.cli import run as command
from hpc_llm.records.files import LEADS_OUT, open_regular, read_regular, read_text, why_not_followed

SECRET = "RuntimeError: CUDA out of memory of my-private-thing"
RECORDS = {"exit.json": {"schema": 1, "exit_code": 7, "reason": SECRET}, "result.json": {"schema": 1, "task": SECRET}}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "logs" / "r").exit(1, stage="launch")
    (tmp_path / "private.txt").write_text(f"Traceback (most recent call last):\n{SECRET}\n")
    return made


@pytest.mark.parametrize("to", ["relative", "absolute", "by another link", "a folder"])
def test_no_command_shows_what_such_a_link_leads_to(
    folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], to: str
) -> None:
    log, private = folder.run.stderr, tmp_path / "private.txt"
    if to == "by another link":
        (folder.run.root / "other").symlink_to(private)
        log.symlink_to("other")
    elif to == "a folder":
        (tmp_path / "private").mkdir()
        (tmp_path / "private" / "rank-0.json").write_text(json.dumps({"schema": 1, "type": "E", "message": SECRET}))
        log.write_text("")
        folder.run.failures.symlink_to(tmp_path / "private")
    else:
        log.symlink_to(private if to == "absolute" else Path("..", "..", "private.txt"))
    logs, page = str(tmp_path / "logs"), str(tmp_path / "page")
    for words in (
        ["logs", "r"], ["diagnose", "r"], ["status"], ["parse", logs], ["report", logs, "-o", page], ["parse", f"{logs}/r"],
    ):  # fmt: skip
        command([*words, *([] if words[0] in ("parse", "report") else ["--logs", logs])])
        said = capfd.readouterr()
        assert "my-private-thing" not in said.out + said.err, words
        assert LEADS_OUT in said.err or (words[0], to) == ("logs", "a folder"), words
    assert not any("my-private-thing" in path.read_text(errors="replace") for path in Path(page).rglob("*.*"))


@pytest.mark.parametrize("name", RECORDS)
def test_nor_is_a_record_taken_from_there(
    folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "private.json").write_text(json.dumps(RECORDS[name]))
    (folder.run.root / name).unlink(missing_ok=True)
    (folder.run.root / name).symlink_to(tmp_path / "private.json")
    assert command(["status", "--logs", str(tmp_path / "logs")]) == 0
    said = capfd.readouterr()
    assert "my-private-thing" not in said.out + said.err and LEADS_OUT in said.err


def test_links_that_stay_in_their_run_or_are_in_no_run_are_followed(folder: Folder, tmp_path: Path) -> None:
    inside, loose = folder.run.stderr, tmp_path / "loose.log"
    (folder.run.submitit).mkdir()
    (folder.run.submitit / "1_log.err").write_text("inside\n")
    inside.symlink_to(Path("submitit", "1_log.err"))
    loose.symlink_to(folder.run.submitit / "1_log.err")
    array = tmp_path / "logs" / ".array-a"
    array.mkdir()
    (array / "0").symlink_to(Path("..", "r"))
    for path in (inside, loose, array / "0" / "log.err"):
        assert read_text(path) == "inside\n"
    assert why_not_followed(array / "0") is None
    deep = folder.run.root / "search" / "3" / "failures"
    deep.mkdir(parents=True)
    (deep / "rank-0.json").symlink_to(tmp_path / "private.txt")
    for read in (read_regular, open_regular):
        with pytest.raises(PermissionError, match="leads out"):
            read(deep / "rank-0.json")


@pytest.mark.parametrize("verb", ["diagnose", "parse"])
@pytest.mark.parametrize("way", ["file", "folder"])
def test_nor_where_it_is_named_itself(
    folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: str, way: str
) -> None:
    named = folder.run.stderr
    if way == "file":
        named.symlink_to(tmp_path / "private.txt")
    else:
        (folder.run.root / "more").symlink_to(tmp_path)
        named = folder.run.root / "more" / "private.txt"
    assert command([verb, str(named)]) != 0
    said = capfd.readouterr()
    assert "my-private-thing" not in said.out + said.err and LEADS_OUT in said.err


@pytest.mark.parametrize("verb", ["diagnose", "parse"])
def test_outside_of_runs_a_link_is_followed_where_it_is_named(
    folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    (tmp_path / "latest.log").symlink_to("private.txt")
    (tmp_path / "latest").symlink_to(folder.run.root)
    (tmp_path / "all").symlink_to(tmp_path / "logs")
    for name, shown in (("latest.log", "my-private-thing"), ("latest", "r"), ("all", "r")):
        command([verb, str(tmp_path / name)])
        said = capfd.readouterr()
        assert shown in said.out and "leads out" not in said.err, name


@pytest.mark.parametrize("verb", ["diagnose", "parse"])
def test_in_a_folder_that_is_searched_no_link_leads_out_of_it_but_to_a_run(
    folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    searched = tmp_path / "unpacked"
    (searched / "deep").mkdir(parents=True)
    for name, to in {
        "job.log": "../private.txt",
        "deep/abs.log": str(tmp_path / "private.txt"),
        "home": "..",
        "run": "../logs/r",
    }.items():
        (searched / name).symlink_to(to)
    (searched / "good.log").write_text("Traceback (most recent call last):\n  x\nRuntimeError: good-one\n")
    (searched / "same.log").symlink_to("good.log")
    command([verb, str(searched)])
    said = capfd.readouterr()
    assert "my-private-thing" not in said.out + said.err and "good-one" in said.out
    assert said.err.count("leads out of the folder that is searched") == 2
    assert re.search(r"(?m)^run[:,]", said.out)
