"""What a run will keep is known when it is planned, and a disk that has no room for it is found then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

from hpc_llm.api import submit
from hpc_llm.errors import Notice, PlanError
from hpc_llm.planning.room import room_of


def room(method: str, **more: Any) -> Any:
    return room_of(planned("taiwania2", method, **{"save_every": 10, **more}).plan)


@pytest.mark.parametrize(
    ("method", "checkpoint_gib", "model_gib"),
    [("z3o", 75.3, 12.6), ("z3+lora", 0.2, 12.6), ("qlora", 0.2, 12.6), ("q", 1.5, 12.6)],
)
def test_the_sizes_follow_from_the_model_and_what_trains(method: str, checkpoint_gib: float, model_gib: float) -> None:
    """The weights of a preset are in no other place, so an adapter's base is kept beside it."""
    found = room(method, model="llama2-7b")
    assert found.checkpoint / 2**30 == pytest.approx(checkpoint_gib, rel=0.3)
    assert found.model / 2**30 == pytest.approx(model_gib, rel=0.5)
    assert found.most == 3 * found.checkpoint + found.model


def test_as_many_are_there_at_once_as_can_be() -> None:
    assert room("z2", model="tiny", steps=30, save_every=30).most == room("z2", model="tiny", save_every=30).most
    one = room("z2", model="tiny", steps=30, save_every=20, set=("keep=5",))
    assert one.most == 2 * one.checkpoint + one.model
    assert room_of(planned("taiwania2", "z2").plan) is None


class Disk:
    """What statvfs says of one that is nearly full."""

    f_frsize, f_bavail = 4096, (20 << 20) // 4096


def test_a_disk_without_room_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    monkeypatch.setattr(os, "statvfs", lambda place: Disk)
    with pytest.raises(
        PlanError,
        match=r"a run keeps up to \d+\.\d GiB \(\d+\.\d MiB a checkpoint\), .* has 20\.0 MiB left\. Make room, or use",
    ):
        submit(cluster="local", method="z2", model="llama-68m", steps=8, save_every=2, logs=logs)
    assert not logs.exists(), "so that `hpc-llm clean` would find nothing there"
    logs.mkdir()
    with pytest.raises(PlanError, match=r"Make room \(`hpc-llm clean"):
        submit(cluster="local", method="z2", model="llama-68m", steps=8, save_every=2, logs=logs)


def test_runs_that_fit_one_by_one_are_told_of_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpc_llm.api import prepare
    from hpc_llm.api.room import check_room

    monkeypatch.setattr(os, "statvfs", lambda place: Disk)
    batches = prepare(cluster="local", method="z2,z3", model="tiny", steps=8, save_every=2, logs=tmp_path)
    with pytest.warns(Notice, match=r"the 2 runs keep up to 3\d\.\d MiB together, and .* has 20\.0 MiB left"):
        check_room(batches, tmp_path)
