"""Runs that others made, or say to be mine: which of them counts, and that nobody's figures pass for mine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rights import needs_root
from synthetic import Made, write_run

import hpc_llm
from hpc_llm.api import prepare
from hpc_llm.cli import run as command
from hpc_llm.errors import Notice, PassedOverWarning, RequestError
from hpc_llm.exporting.finished import finished_runs
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.collect import collect
from hpc_llm.reporting.comparison import compare, run_table

OTHER = 12345
UUID = "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b"


def made(logs: Path, name: str) -> Path:
    folder = write_run(logs, Made(run_id=name, cluster="delta", method="z3"))
    job = {"schema": 2, "scheduler": "slurm", "uuid": UUID, "run_id": name, "run_dir": str(folder), "job_id": "1"}
    write_json(folder / "job.json", job)
    return folder


def given_to(user: int, folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)


def forged(run: Path, change: Callable[[dict[str, object]], None] = lambda job: None) -> Path:
    """A stranger's copy whose name sorts first, with other figures and whatever else they say of themselves."""
    copy = run.parent / f"000-{run.name}"
    shutil.copytree(run, copy)
    for name, wrong in (("result.json", {"peak_host_bytes": 1}), ("experiment.json", {"run_id": copy.name})):
        write_json(copy / name, {**json.loads((copy / name).read_text()), **wrong})
    job = json.loads((copy / "job.json").read_text())
    change(job)
    write_json(copy / "job.json", job)
    return copy


CLAIMS: dict[str, Callable[[Path, dict[str, object]], None]] = {
    "a copy": lambda run, job: None,
    "says to be the run itself": lambda run, job: job.update(
        run_id=f"000-{run.name}", run_dir=str(run.parent / f"000-{run.name}")
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_strangers_copy_takes_nobodys_place(claim: str, tmp_path: Path) -> None:
    needs_root("give a folder to somebody else")
    run = made(tmp_path, "mine")
    copy = forged(run, lambda job: CLAIMS[claim](run, job))
    given_to(OTHER, copy)
    said = (
        f"{copy.name}: a copy of .*mine: one measurement counts once" if claim == "a copy" else f"1 run of user {OTHER}"
    )
    with pytest.warns((PassedOverWarning, Notice), match=said):
        runs = collect([tmp_path])
    assert [one.row.run_id for one in runs if one.owner is None] == ["mine"]
    assert [row["runs"] for row in compare(run_table(runs))] == [1] * len(runs)
    with pytest.warns(PassedOverWarning, match="which is sent"):
        assert [one.run_id for one in finished_runs([RunPaths(copy), RunPaths(run)])] == ["mine"]


def test_of_ones_own_the_run_itself_counts(tmp_path: Path) -> None:
    run = made(tmp_path, "mine")
    copy = forged(run)
    shutil.copytree(run, tmp_path / "backup" / "mine")
    with pytest.warns(PassedOverWarning):
        runs = collect([tmp_path / "backup", tmp_path])
    assert [Path(one.source) for one in runs] == [run]
    rows = {row.run_id: row.outcome_reason for row in hpc_llm.parse(tmp_path)}
    assert rows[copy.name] == "its folder is a copy of run mine" and rows["mine"] is None


def test_two_copies_of_which_nothing_tells_the_run_are_not_sent(tmp_path: Path) -> None:
    run = made(tmp_path, "mine")
    shutil.copytree(run, tmp_path / "one")
    run.rename(tmp_path / "two")
    with pytest.raises(RequestError, match="the same run, one a copy: name one"):
        finished_runs([RunPaths(tmp_path / "one"), RunPaths(tmp_path / "two")])


def test_the_runs_of_one_queue_are_several(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = made(tmp_path, name)
        write_json(folder / "job.json", {"schema": 2, "scheduler": "local", "uuid": UUID, "run_id": name})
    assert len({one.key for one in finished_runs([RunPaths(tmp_path / "a"), RunPaths(tmp_path / "b")])}) == 2


def test_nobodys_figures_go_into_a_mean_with_those_of_others(tmp_path: Path) -> None:
    needs_root("give a folder to somebody else")
    for number, name in enumerate(("a", "b", "theirs")):
        folder = made(tmp_path, name)
        job = json.loads((folder / "job.json").read_text())
        write_json(folder / "job.json", {**job, "uuid": f"{number}{UUID[1:]}"})
    given_to(OTHER, tmp_path / "theirs")
    with pytest.warns(Notice, match=f"1 run of user {OTHER}: .* rows of their own"):
        runs = collect([tmp_path])
    rows = {row["configuration"]: row["runs"] for row in compare(run_table(runs))}
    assert rows == {"": 2, f"of user {OTHER}": 1}
    with pytest.warns(Notice, match="what is sent of them is what these wrote"):
        finished_runs([RunPaths(tmp_path / "theirs")])


@pytest.mark.parametrize(
    "content", [b"axes.facecolor: red\nsavefig.dpi: 7\nfont.size: 99\n", b"\xff\xfe\n", b"axes.titlesize\n"]
)
def test_settings_of_plots_in_the_working_directory_are_nobodys(content: bytes, tmp_path: Path) -> None:
    made(tmp_path / "logs", "mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "matplotlibrc").write_bytes(content)
    plots = []
    for place in (tmp_path, tmp_path / "foreign"):
        words = [sys.executable, "-m", "hpc_llm", "report", tmp_path / "logs", "-o", place / "out"]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "matplotlibrc" not in done.stderr, done.stderr
        plots.append({path.name: path.read_bytes() for path in (place / "out").rglob("*.svg")})
    assert plots[0] == plots[1] and plots[0]


@pytest.mark.parametrize(
    ("ran", "rows"),
    [
        ({"versions": {"torch": "2.9.0"}}, 2),
        ({"fused": ["loss"]}, 2),
        ({"adaptations": ["The layers run uncompiled, for nothing can be compiled here: x"]}, 2),
        ({"adaptations": ["There is no GPU telemetry: OSError: x."]}, 1),
        ({}, 1),
    ],
)
def test_what_ran_otherwise_is_no_repeat(ran: dict[str, object], rows: int, tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        folder = made(tmp_path, name)
        write_json(
            folder / "job.json", {**json.loads((folder / "job.json").read_text()), "uuid": f"{number}{UUID[1:]}"}
        )
    held = json.loads((tmp_path / "c/result.json").read_text())
    write_json(tmp_path / "c/result.json", {**held, **ran})
    compared = compare(run_table(collect([tmp_path])))
    assert len(compared) == rows
    assert rows == 1 or [row["configuration"] for row in compared if row["runs"] == 1] != [""]


def test_a_script_of_other_templates_is_no_repeat(tmp_path: Path) -> None:
    digests = []
    for text in ("export OMP_NUM_THREADS=1", "export OMP_NUM_THREADS=2"):
        folder = tmp_path / text[-1]
        folder.mkdir()
        (folder / "launch.sh.j2").write_text(f"{text}\n")
        [batch] = prepare(cluster="local", method="z3", model="tiny", templates=folder, logs=tmp_path / "runs")
        digests.append(batch.templates)
    [plain] = prepare(cluster="local", method="z3", model="tiny", logs=tmp_path / "runs")
    assert plain.templates is None and len({*digests, None}) == 3
    for number, name in enumerate("abcd"):
        folder = made(tmp_path / "logs", name)
        write_json(
            folder / "job.json", {**json.loads((folder / "job.json").read_text()), "uuid": f"{number}{UUID[1:]}"}
        )
        if name in "cd":
            held = json.loads((folder / "experiment.json").read_text())
            write_json(folder / "experiment.json", {**held, "templates": digests[0]})
    compared = compare(run_table(collect([tmp_path / "logs"])))
    assert [row["runs"] for row in compared] == [2, 2]
    assert any(f"templates={digests[0]}" in row["configuration"] for row in compared)


def test_rows_of_another_setting_are_not_said_to_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "now", "a")
    write_run(tmp_path / "then", Made(run_id="b", cluster="mi210", method="z2"))
    words = ["report", tmp_path / "now", "--baseline", tmp_path / "then" / "b", "-o", tmp_path / "out"]
    assert command([str(word) for word in words]) == 0
    assert ": 0, of them worse: 0; 1 more of another setting" in capsys.readouterr().err
