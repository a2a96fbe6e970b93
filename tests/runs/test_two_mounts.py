"""One file system that is mounted twice, each time with a device number of its own: nothing is done that is not proven."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from run_folders import Folder, Slurm, job
from test_clean import keep, later_run

from hpc_llm.api import clean
from hpc_llm.records.files import read_json, write_json
from hpc_llm.runs import cancel, status
from hpc_llm.runs.wanted import Places, reserved


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the tests by a way that gives another device, and the same inodes."""
    place = tmp_path.parent / f"{tmp_path.name}-mount"
    place.symlink_to(tmp_path)
    look, real = os.stat, os.path.realpath

    def stat(path: Any, **how: Any) -> os.stat_result:
        found = look(path, **how)
        if isinstance(path, int) or not os.fspath(path).startswith(f"{place}/"):
            return found
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]], fields)

    def realpath(path: Any, **how: Any) -> Any:
        return os.fspath(path) if os.fspath(path).startswith(str(place)) else real(path, **how)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os.path, "realpath", realpath)
    yield place
    place.unlink()


def test_a_run_by_another_way_is_not_called_a_copy_and_nothing_is_done_to_it(
    folder: Folder, mount: Path, slurm: Slurm
) -> None:
    record = read_json(folder.run.job) or {}
    write_json(folder.run.job, {**record, "run_dir": str(folder.run.root)})
    slurm.says(job("RUNNING"))
    other = type(folder.run)(mount / "logs" / folder.run.root.name)
    [one], [own] = status([other]), status([folder.run])
    assert own.state == "RUNNING" and own.reason is None
    assert one.state == "UNKNOWN" and "by another way, or a copy of it on another file system" in str(one.reason)
    [refused] = cancel([other])
    assert "cancel that" in str(refused.problem) and not folder.run.cancelled.exists()


@pytest.mark.parametrize("is_marked", [True, False])
def test_what_a_run_goes_on_from_stays_by_either_way(
    folder: Folder, mount: Path, slurm: Slurm, tmp_path: Path, is_marked: bool
) -> None:
    keep(folder, 2, 4, 6).exit(1)
    if is_marked:  # in a folder that nobody looks through here
        elsewhere = tmp_path / "elsewhere" / "later"
        experiment = {"plan": {"workload": {"resume": str(folder.run.root)}}}
        later = later_run(elsewhere, folder.run.root)
        with reserved([(experiment, later.run, "0" * 36)]):
            pass
    else:
        later_run(tmp_path / "logs" / "later", folder.run.root)
    slurm.says(job("RUNNING"), "8")
    found = clean(remove=["checkpoints"], logs=mount / "logs")
    assert len(list(folder.run.checkpoints.iterdir())) == 3
    why = {str(one.taken.stays) for one in found if one.taken.run_id == folder.run.run_id}
    assert len(why) == 1 and "needs it" in why.pop()


def test_folders_of_one_name_on_two_devices_may_be_one(mount: Path, tmp_path: Path) -> None:
    places: Places[str] = Places()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        places.add(tmp_path / name, name)
    (tmp_path / "below" / "a").mkdir(parents=True)
    assert places.of(tmp_path / "a") == places.of(mount / "a") == ["a"]
    assert places.of(tmp_path / "below" / "a") == []  # one device tells its folders apart
