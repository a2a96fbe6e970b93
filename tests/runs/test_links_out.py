"""Links in the folder of a run that lead out of it: who made the folder would have us show what is no part of the run."""

from __future__ import annotations

import json
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
