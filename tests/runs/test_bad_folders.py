"""One bad folder costs one line: the others are shown, it is named with its reason, and the command ends well."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rights import needs_root
from run_folders import Folder

from hpc_llm.cli import run as command
from hpc_llm.records.files import LARGEST_RECORD
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.reading import read_records

COMMANDS = ("status", "parse", "diagnose", "report")


def words(name: str, logs: Path, out: Path) -> list[str]:
    """The command that looks at all that is in `logs`."""
    return {
        "status": ["status", "--json", "--logs", str(logs)],
        "parse": ["parse", "--format=json", str(logs)],
        "diagnose": ["diagnose", "--json", str(logs)],
        "report": ["report", str(logs), "-o", str(out)],
    }[name]


def shown(name: str, printed: str, out: Path) -> set[str]:
    """The runs that the command shows."""
    if name == "report":
        return set((out / "results.csv").read_text().replace('"', " ").replace(",", " ").split()) & NAMES
    found = json.loads(printed)
    rows = found["runs"] if name == "status" else found if isinstance(found, list) else [found]
    return {str(row.get("run_id") or row.get("source")) for row in rows}


NAMES = {"good-1", "good-2", "bad"}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    for name in ("good-1", "good-2"):
        Folder(folder / name).exit(0).result("COMPLETED", tokens_per_second=5.0).steps(3)
    Folder(folder / "bad").exit(3).failure(0).steps(3)
    return folder


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _sparse(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(LARGEST_RECORD + 1)


def _loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deep": lambda path: path.write_text("[" * 100_000),
    "deep object": lambda path: path.write_text('{"a":' * 100_000),
    "NaN": lambda path: path.write_text('{"exit_code": NaN, "started_at": Infinity, "rank": -Infinity, "time": NaN}'),
    "out of range": lambda path: path.write_text('{"started_at": 1e308, "ended_at": 1e999, "time": -5, "restart_count": 1e400}'),
    "ten thousand digits": lambda path: path.write_text('{"exit_code": 1' + "0" * 10_000 + "}"),
    "wrong types": lambda path: path.write_text('{"exit_code": "1", "outcome": [], "job_id": {}, "time": "now", "plan": 3}'),
    "a job id that is none": lambda path: path.write_text('{"scheduler": "slurm", "job_id": "abc", "submitted_at": "x"}'),
    "empty": lambda path: path.write_text(""),
    "half": lambda path: path.write_text('{"exit_code": 1, "sta'),
    "a list": lambda path: path.write_text("[1]"),
    "not UTF-8": lambda path: path.write_bytes(b'{"reason": "\xff\xfe"}'),
    "a pipe": _fifo,
    "a device": lambda path: (path.unlink(missing_ok=True), path.symlink_to("/dev/zero")),
    "huge": _sparse,
    "a link to itself": _loop,
    "a folder": _folder,
}  # fmt: skip
RECORDS = ("exit.json", "result.json", "job.json", "submission.json", "failures/rank-0.json", "scheduler.json", "steps.jsonl",
           "started.jsonl", "submitit/final.json", "submitit/process.json", "log.err", "cancelled.json")  # fmt: skip


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_keeps_no_run_from_being_shown(
    logs: Path, tmp_path: Path, record: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = logs / "bad" / record
    path.parent.mkdir(exist_ok=True)
    DAMAGES[damage](path)
    for name in COMMANDS[:3]:
        assert command(words(name, logs, tmp_path / "out")) == 0, capsys.readouterr().err
        assert shown(name, capsys.readouterr().out, tmp_path) == NAMES


def test_the_report_shows_what_is_left_of_damaged_runs(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (record, damage) in enumerate((r, d) for r in RECORDS for d in DAMAGES):
        root = logs / f"bad-{number}"
        Folder(root).exit(3).failure(0).steps(3)
        (root / record).parent.mkdir(exist_ok=True)
        DAMAGES[damage](root / record)
    assert command(["report", str(logs), "-o", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert shown("report", "", tmp_path / "out") == NAMES


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("deep", "nested too deep"),
        ("a pipe", "no regular file"),
        ("huge", "larger than 64 MiB"),
        ("not UTF-8", "not UTF-8"),
        ("wrong types", "its exit_code is text"),
        ("out of range", "its started_at is no sensible number"),
        ("a link to itself", "too many levels of symbolic links"),
    ],
)
def test_a_damage_is_named_once_with_its_file_and_its_reason(
    logs: Path, damage: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[damage](logs / "bad" / "exit.json")
    assert any(why in found.why for found in read_records(RunPaths(logs / "bad")).damages)
    assert command(["status", "--logs", str(logs)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if why in line]
    assert len(lines) == 1 and f"{logs}/bad/exit.json" in lines[0]


def test_links_give_no_second_row_and_end_no_search(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "latest").symlink_to("good-2")
    (logs / "itself").symlink_to("itself")
    (logs / "nothing").symlink_to("no-such-run")
    (logs / "up").symlink_to("..")
    (logs / "sub").mkdir()
    (logs / "sub" / "again").symlink_to("../sub")
    for name in COMMANDS:
        assert command(words(name, logs, tmp_path / "out")) == 0
        told = capsys.readouterr()
        assert shown(name, told.out, tmp_path / "out") == NAMES, name
        if name != "report":
            assert told.out.count("good-2") == (1 if name == "status" else told.out.count("good-1"))
        assert len([line for line in told.err.splitlines() if "passed over" in line]) == 1 and "itself" in told.err


def as_nobody(given: list[str], out: Path, err: Path) -> int:
    """Run the command in a child as a user who owns nothing; what it imports is loaded before, by who may read it."""
    child = os.fork()
    if child == 0:
        try:
            for stream, file in ((sys.stdout, out), (sys.stderr, err)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), stream.fileno())
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            code = command(given)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            code = 99
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", COMMANDS[:3])
def test_a_folder_of_somebody_else_is_named_and_the_others_are_shown(
    logs: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    needs_root("become another user")
    for path in (*tmp_path.parents, tmp_path):
        if path.stat().st_uid == os.geteuid() and path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o755)
    Folder(logs / "private").exit(0).result("COMPLETED")
    (logs / "private").chmod(0o700)
    (logs / "bad" / "exit.json").chmod(0o600)
    (logs / "secret.out").write_text("step 1 | loss 2.0\n")
    (logs / "secret.out").chmod(0o600)
    written = tmp_path / "written"
    written.mkdir(mode=0o777)
    written.chmod(0o777)
    given = words(name, logs, written / "report")
    with capfd.disabled():
        assert command(given) == 0
        code = as_nobody(given, written / "out", written / "err")
    said = (written / "err").read_text()
    assert code == 0, said
    assert shown(name, (written / "out").read_text(), written / "report") == NAMES
    assert f"{logs}/private: permission denied" in said and f"{logs}/bad/exit.json: permission denied" in said


@pytest.mark.parametrize(
    "value",
    ["[" * 900 + "]" * 900, "[" * 100_000, "1" + "0" * 4000, "1" + "0" * 400, "1e999", "-1e999", "[" * 99 + "1e999" + "]" * 99],
    ids=["deep", "endless", "digits", "beyond a float", "inf", "minus inf", "deep inf"],
)  # fmt: skip
def test_a_record_with_a_value_that_nothing_can_hold_costs_its_figure_and_not_the_command(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a number is too large nobody knows it; what is nested too deep is no record of ours."""
    from hpc_llm.cli import run

    monkeypatch.chdir(tmp_path)
    for name, file in (("a", "result.json"), ("b", "exit.json"), ("c", "steps.jsonl"), ("d", "experiment.json")):
        folder = Path("logs") / name
        folder.mkdir(parents=True)
        (folder / "experiment.json").write_text('{"schema": 1, "run_id": "x", "plan": {}}')
        texts = {
            "result.json": f'{{"schema": 1, "outcome": "COMPLETED", "tokens_per_second": {value}, "more": {value}}}',
            "exit.json": f'{{"schema": 1, "exit_code": {value}, "started_at": {value}, "ended_at": {value}}}',
            "steps.jsonl": f'{{"step": {value}, "loss": {value}, "step_time_s": {value}}}\n',
            "experiment.json": f'{{"schema": 1, "plan": {{"steps": {value}, "deepspeed": {value}}}}}',
        }
        (folder / file).write_text(texts[file])
    for words in (
        ["status"],
        ["status", "--json"],
        ["parse", "logs"],
        ["parse", "--steps", "logs"],
        ["diagnose", "logs"],
    ):
        assert run(words) == 0, words
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err and "Infinity" not in shown.out and "0" * 300 not in shown.out


def test_of_the_errors_of_many_ranks_the_earliest_are_kept_whole(tmp_path: Path) -> None:
    """A job of thousands of ranks that all fail with long messages takes the memory of a few."""
    made = Folder(tmp_path / "many")
    for rank in range(60):
        made.failure(rank, message="m" * 9000, traceback="t" * 90_000 + "the end", time=1_780_000_000.0 - rank)
    found = read_records(made.run).failures
    assert [failure.rank for failure in found] == list(reversed(range(60)))
    assert all(len(failure.traceback) > 90_000 for failure in found[:16])
    assert all(failure.message and failure.traceback.endswith("the end") for failure in found)
    assert sum(len(failure.message + failure.traceback) for failure in found[16:]) < 60 * 6000
