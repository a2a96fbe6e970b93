"""hpc-llm clean --caches: prepared data and compiled operators, shown with the runs that want them, removed when nobody needs them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_folders import Folder, Slurm, job

from hpc_llm.api import clean
from hpc_llm.api.cleaning import Cleaned
from hpc_llm.cli import run as command
from hpc_llm.corpus.facts import CAUSAL, CorpusFacts
from hpc_llm.corpus.format import FACTS
from hpc_llm.corpus.key import CorpusRequest
from hpc_llm.records.files import read_json, write_json
from hpc_llm.runs.caches import note_readers
from hpc_llm.worker.preparing.build import prepare

A_MONTH_S = 30 * 86400


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusFacts:
    """Prepared data where runs in `logs` look for them."""
    source = tmp_path / "a.txt"
    source.write_text("What is learned. " * 50)
    request = CorpusRequest(sources=(str(source),), model="tiny", layout=CAUSAL)
    return prepare(request, tmp_path / "caches", lambda text: None, 512)


def reads(folder: Folder, corpus: Path) -> dict[str, Any]:
    record = read_json(folder.run.experiment) or {}
    record["plan"] = {**record["plan"], "workload": {"corpus": str(corpus)}}
    write_json(folder.run.experiment, record)
    return record


def one(found: list[Cleaned], path: Path) -> Cleaned:
    [chosen] = [each for each in found if each.taken.path == path]
    return chosen


def test_prepared_data_are_shown_with_their_size_and_readers_and_go_when_asked_for(
    folder: Folder, logs: Path, corpus: CorpusFacts, capsys: Any
) -> None:
    reads(folder.exit(0).result("COMPLETED"), corpus.folder)
    assert command(["clean", "--logs", str(logs), "--json"]) == 0
    [item] = json.loads(capsys.readouterr().out)["items"]
    size = sum(path.stat().st_size for path in corpus.folder.iterdir())
    assert (item["kind"], item["path"], item["size_bytes"]) == ("caches", str(corpus.folder), size)
    assert (item["wanted_by"], item["why"], item["state"]) == (
        ["run-1"],
        "it may go, and was not asked for: --caches removes it",
        "stays",
    )
    assert command(["clean", "--logs", str(logs), "--checkpoints", "--models", "--code"]) == 0
    assert command(["clean", "--logs", str(logs), "--caches", "--dry-run"]) == 0
    assert (corpus.folder / FACTS).is_file() and "would go" in capsys.readouterr().out
    assert command(["clean", "--logs", str(logs), "--caches"]) == 0
    assert not list(corpus.folder.parent.glob("[!.]*")) and not list(corpus.folder.parent.glob(".*.old"))
    assert folder.run.experiment.is_file()


def test_what_a_run_that_is_not_over_reads_stays(
    folder: Folder, logs: Path, corpus: CorpusFacts, slurm: Slurm, tmp_path: Path
) -> None:
    reads(folder, tmp_path / "logs" / ".." / "caches" / corpus.folder.name)  # however it is spelled
    slurm.says(job("RUNNING"))
    found = one(clean(remove=["caches"], logs=logs), corpus.folder)
    assert found.taken.stays == "run-1 wants it and is not over: RUNNING" and corpus.folder.is_dir()


def test_a_run_beside_another_folder_of_runs_is_known(
    folder: Folder, corpus: CorpusFacts, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have their data in the same place, and a study of many runs leaves one note."""
    monkeypatch.setenv("HPC_LLM_CACHE", str(corpus.folder.parent))
    others = tmp_path / "others"
    others.mkdir()
    note_readers([reads(folder, corpus.folder)] * 3, folder.run.root.parent, Path.home())
    assert len(list(corpus.folder.parent.glob(".readers-*/*.json"))) == 1
    slurm.says(job("PENDING"))
    found = one(clean(remove=["caches"], logs=others), corpus.folder)
    assert found.taken.stays == "run-1 wants it and is not over: PENDING"
    assert found.taken.wanted_by == ("run-1",)
    away = tmp_path / "away"
    note_readers([{"plan": {"workload": {"corpus": str(corpus.folder)}}}], away / "mount" / "logs", Path.home())
    shutil.rmtree(folder.run.root)
    found = one(clean(remove=["caches"], logs=others), corpus.folder)
    assert found.taken.stays == f"runs in {away}/mount/logs want it, and that folder is not seen from here"
    (away / "mount").mkdir(parents=True)  # now it is seen that they are gone
    assert one(clean(remove=["caches"], logs=others), corpus.folder).is_chosen and not corpus.folder.exists()


def test_what_could_not_be_made_again_stays(logs: Path, corpus: CorpusFacts, tmp_path: Path) -> None:
    (tmp_path / "a.txt").unlink()
    found = one(clean(remove=["caches"], logs=logs), corpus.folder)
    assert found.taken.stays == f"what it was made of is gone: {tmp_path}/a.txt" and corpus.folder.is_dir()


def test_half_of_one_stays_while_somebody_may_write_it(logs: Path, corpus: CorpusFacts) -> None:
    half, old = (corpus.folder.parent / name for name in (".making-x", f".{'0' * 32}.old"))
    half.mkdir()
    old.mkdir()
    clean(remove=["caches"], logs=logs)
    assert half.is_dir() and not old.exists()
    os.utime(half, (half.stat().st_mtime - A_MONTH_S,) * 2)
    clean(remove=["caches"], logs=logs)
    assert not half.exists()


@pytest.mark.parametrize("kind", ["torch_extensions", "torchinductor", "triton"])
def test_what_was_compiled_is_of_one_cluster(folder: Folder, logs: Path, slurm: Slurm, kind: str) -> None:
    places = [Path.home() / ".cache" / "hpc-llm" / name / kind for name in ("here", "there")]
    for place in places:
        (place / "cpu_adam").mkdir(parents=True)
        (place / "cpu_adam" / "cpu_adam.so").write_bytes(b"x" * 100)
    slurm.says(job("RUNNING"))
    found = clean(remove=["caches"], logs=logs)
    assert [each.taken.size_bytes for each in found] == [100, 100]
    assert [each.taken.stays for each in found] == ["run-1 wants it and is not over: RUNNING", None]
    assert [place.exists() for place in places] == [True, False]


def test_operators_that_runs_beside_another_folder_want_stay(folder: Folder, slurm: Slurm, tmp_path: Path) -> None:
    operators = Path.home() / ".cache" / "hpc-llm" / "here" / "torch_extensions"
    (operators / "cpu_adam").mkdir(parents=True)
    others = tmp_path / "others"
    others.mkdir()
    note_readers([{"plan": {"engine": {"name": "plain"}, "cluster": "here"}}], folder.run.root.parent, Path.home())
    assert not list(operators.parent.glob(".readers-*"))
    note_readers([{"plan": {"engine": {"name": "deepspeed"}, "cluster": "here"}}], folder.run.root.parent, Path.home())
    slurm.says(job("PENDING"))
    found = one(clean(remove=["caches"], logs=others), operators)
    assert found.taken.stays == "run-1 wants it and is not over: PENDING" and operators.is_dir()
    shutil.rmtree(folder.run.root)
    [note] = operators.parent.glob(".readers-*/*.json")
    text = note.read_text()
    note.write_text("{")
    assert "cannot be read" in str(one(clean(remove=["caches"], logs=others), operators).taken.stays)
    note.write_text(text)
    assert one(clean(remove=["caches"], logs=others), operators).is_chosen and not operators.exists()


def test_a_folder_of_runs_by_another_name_of_it_counts_once(folder: Folder, slurm: Slurm, tmp_path: Path) -> None:
    operators = Path.home() / ".cache" / "hpc-llm" / "here" / "torch_extensions"
    (operators / "cpu_adam").mkdir(parents=True)
    note_readers([{"plan": {"engine": {"name": "deepspeed"}, "cluster": "here"}}], folder.run.root.parent, Path.home())
    slurm.says(job("PENDING"))
    (tmp_path / "link").symlink_to(folder.run.root.parent)
    (tmp_path / "beside").mkdir()
    for logs in (folder.run.root.parent, tmp_path / "link", tmp_path / "beside" / ".." / folder.run.root.parent.name):
        assert one(clean(logs=logs), operators).taken.wanted_by == ("run-1",)


def test_of_runs_that_are_named_their_own_caches_are_looked_at(folder: Folder, logs: Path, corpus: CorpusFacts) -> None:
    other = Folder(logs / "run-2").exit(0).result("COMPLETED")
    reads(folder.exit(0).result("COMPLETED"), corpus.folder)
    assert clean([other.run.root], remove=["caches"], logs=logs) == [] and corpus.folder.is_dir()
    assert one(clean([folder.run.root], remove=["caches"], logs=logs), corpus.folder).is_chosen


def test_links_are_not_followed(logs: Path, corpus: CorpusFacts, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(corpus.folder, elsewhere)
    corpus.folder.symlink_to(elsewhere)
    assert clean(remove=["caches"], logs=logs) == [] and (elsewhere / FACTS).is_file()


@pytest.mark.parametrize(
    "note", ["{", "[]", "{}", '{"logs": 5}', '{"logs": ""}', '{"logs": "\\u0000"}', '{"logs": "x/y"}']
)
def test_a_note_that_says_nothing_keeps_its_own_data_alone(note: str, logs: Path, corpus: CorpusFacts) -> None:
    other = corpus.folder.with_name("0" * 32)
    shutil.copytree(corpus.folder, other)
    place = corpus.folder.parent / ".readers-4711"
    place.mkdir()
    (place / f"{corpus.folder.name}-0.json").write_text(note)
    clean(remove=["caches"], logs=logs)
    assert corpus.folder.is_dir() and not other.exists()


def test_notes_that_nobody_here_may_read_keep_what_they_may_be_about(
    logs: Path, corpus: CorpusFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of another user with umask 077, and a folder of runs that is shut: who is root sees both, so the system's answer is taken."""
    shut = corpus.folder.parent / ".readers-4711"
    shut.mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != shut and real(path, mode))
    found = one(clean(remove=["caches"], logs=logs), corpus.folder)
    assert found.taken.stays == f"others may read it: their notes in {shut} cannot be looked at"
    (closed := tmp_path / "closed").mkdir()
    write_json(shut / f"{corpus.folder.name}-0.json", {"schema": 1, "logs": str(closed / "x")})
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed and real(path, mode))
    found = one(clean(remove=["caches"], logs=logs), corpus.folder)
    assert found.taken.stays == f"runs in {closed}/x want it, and that folder is not seen from here"


@pytest.mark.parametrize(
    "name", ["d41d8cd98f00b204e9800998ecf8427e", ".making-x", ".d41d8cd98f00b204e9800998ecf8427e.old"]
)
@pytest.mark.parametrize("other", ["thesis.txt", "corpus.json/thesis.txt", "more/corpus.json"])
def test_folders_of_other_programs_stay_whatever_they_are_called(
    logs: Path, tmp_path: Path, name: str, other: str
) -> None:
    """Others name folders by sums as well, and a link may make any folder the one of prepared data."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "caches").symlink_to("theirs")
    path = tmp_path / "theirs" / name / other
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    for each in (path, *path.parents):  # old enough to have been given up
        if each.is_relative_to(tmp_path / "theirs" / name):
            os.utime(each, (1e9, 1e9))
    clean(remove=["caches"], logs=logs)
    assert path.read_text() == "precious"


def test_prepared_data_beside_which_somebody_put_a_file_stay(logs: Path, corpus: CorpusFacts) -> None:
    (corpus.folder / "notes.txt").write_text("precious")
    found = one(clean(remove=["caches"], logs=logs), corpus.folder)
    assert "notes.txt in it was not made by preparing data" in (found.taken.stays or "")
    assert (corpus.folder / "notes.txt").is_file()
