"""hpc-llm clean: shows all that is kept, removes what is asked for, never the last good state or what is not ours to take."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from made_runs import tensors
from rights import needs_root
from run_folders import Folder, Slurm, job

from hpc_llm.api import clean, diagnose
from hpc_llm.cli import run as command
from hpc_llm.errors import Notice, RequestError
from hpc_llm.records.checkpoints import MANIFEST, kept_in
from hpc_llm.records.digests import digests_of
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.models import MANIFEST as OF_MODEL
from hpc_llm.records.models import is_whole_model, write_manifest
from hpc_llm.records.run import CARRIED, RunPaths
from hpc_llm.runs import room
from hpc_llm.runs.alone import alone_in
from hpc_llm.runs.wanted import reserved

GOES_ON = "a run that is not over needs it: "


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def keep(folder: Folder, *steps: int, model: bool = False) -> Folder:
    for step in steps:
        place = folder.run.checkpoint(step)
        (place / "engine").mkdir(parents=True)
        (place / "engine" / "shard-0.bin").write_bytes(b"x" * 1000)
        write_json(place / MANIFEST, {"schema": 2, "step": step, "files": {"engine/shard-0.bin": 1000}})
    if model:
        folder.run.model.mkdir()
        write_json(folder.run.model / "config.json", {"model_type": "llama"})
        (folder.run.model / "model.safetensors").write_bytes(tensors({"weight": 500}))
        write_manifest(folder.run.model)
    return folder


def done(folder: Folder) -> Folder:
    return folder.exit(0).result("COMPLETED", measured_steps=98)  # of 100 that are planned, 2 to warm up


def failed(folder: Folder) -> Folder:
    return folder.exit(1, stage="launch").failure(0).result("FAILED", outcome_reason="boom")


def left(folder: Folder) -> list[str]:
    places = (folder.run.checkpoints, folder.run.root)
    names = {path.name for place in places if place.is_dir() for path in place.iterdir() if path.is_dir()}
    return sorted(names - {"checkpoints", "failures", "wanted-by"})


LOST = "it is the last one before step 6, whose loss is not a finite number"


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ((2, 4, 8), {4: f"{LOST}, and the run goes on from it", 8: "it is the newest"}),
        (
            (2, 4, 5, 6, 8),
            {4: f"{LOST}, and the run goes on from it", 8: "it is the newest"},
        ),  # that of 5 gave the loss
        ((5, 6, 8), {5: f"{LOST}, and the run goes on from it", 8: "it is the newest"}),
        ((6, 8), {8: "it is the newest, and the run goes on from it"}),
        ((2, 4), {4: f"{LOST}, and the run goes on from it"}),
    ],
)
def test_the_last_checkpoint_before_a_loss_that_is_not_finite_stays(
    folder: Folder, logs: Path, kept: tuple[int, ...], why: dict[int, str], capsys: Any
) -> None:
    reason = "the loss is not a finite number from step 6 on"
    keep(folder.exit(0).result("INVALID", invalid_reason=reason).made(8, lost=6), *kept, model=True)
    assert command(["clean", "--logs", str(logs), "--checkpoints", "--models", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    said = {int(one["path"].rpartition("-")[2]): one["why"] for one in items if one["kind"] == "checkpoints"}
    assert {step: text for step, text in said.items() if text != "--checkpoints was asked for"} == why
    assert {f"step-{step}" for step in why} <= set(left(folder)) <= {"model", *(f"step-{step}" for step in why)}


def test_the_state_before_a_loss_that_is_not_finite_is_proven_before_anything_goes(folder: Folder, logs: Path) -> None:
    keep(folder.exit(0).result("INVALID", invalid_reason="the loss is not a finite number").made(8, lost=6), 2, 4, 8)
    manifest = read_json(folder.run.checkpoint(4) / MANIFEST) or {}
    digests = {"engine/shard-0.bin": digests_of(folder.run.checkpoint(4) / "engine" / "shard-0.bin")}
    write_json(folder.run.checkpoint(4) / MANIFEST, {**manifest, "digests": digests})
    (folder.run.checkpoint(4) / "engine" / "shard-0.bin").write_bytes(b"y" * 1000)
    assert command(["clean", "--logs", str(logs), "--checkpoints"]) == 1
    assert left(folder) == ["step-2", "step-4", "step-8"]


def test_without_a_kind_all_is_shown_and_nothing_removed(folder: Folder, logs: Path, capsys: Any) -> None:
    keep(failed(folder), 2, 4)
    assert command(["clean", "--logs", str(logs), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(one["kind"], one["size_bytes"], one["state"]) for one in items] == [("checkpoints", 1000, "stays")] * 2
    may_go = "it may go, and was not asked for: --checkpoints removes it"
    assert [one["why"] for one in items] == [may_go, "it is the newest, and the run goes on from it"]
    assert left(folder) == ["step-2", "step-4"]
    assert command(["clean", "--logs", str(logs)]) == 0
    shown = capsys.readouterr()
    assert "run-1/checkpoints/step-2  may go" in shown.out and "nothing was removed" in shown.err


def test_each_entry_says_why_it_stays_or_goes(folder: Folder, logs: Path, capsys: Any) -> None:
    keep(done(folder), 2, 4, model=True)
    for flags, whys in (
        (["--dry-run"], ["it may go, and was not asked for: --checkpoints removes it"] * 2 + ["it may go, and was not asked for: --models removes it"]),
        (["--checkpoints", "--dry-run"], ["--checkpoints was asked for"] * 2 + ["with its checkpoints gone it is all that was trained"]),
        (["--models", "--dry-run"], ["it may go, and was not asked for: --checkpoints removes it"] * 2 + ["--models was asked for"]),
        (["--checkpoints", "--models"], ["--checkpoints was asked for"] * 2 + ["with its checkpoints gone it is all that was trained"]),
    ):  # fmt: skip
        assert command(["clean", "--logs", str(logs), "--json", *flags]) == 0
        assert [one["why"] for one in json.loads(capsys.readouterr().out)["items"]] == whys


def test_code_is_told_of_where_no_run_is_named_or_where_it_is_asked_for(folder: Folder, logs: Path) -> None:
    keep(done(folder), 2)
    (logs / CARRIED).mkdir()
    (logs / CARRIED / f"0123456789ab-{os.geteuid()}.zip").write_bytes(b"x")
    name = folder.run.run_id

    def kinds(*asked: Any, remove: tuple[str, ...] = ()) -> set[str]:
        return {one.taken.kind for one in clean(*asked, remove=remove, logs=logs, dry_run=True)}

    assert kinds() == kinds(remove=("checkpoints",)) == kinds([name], remove=("code",)) == {"checkpoints", "code"}
    assert kinds([name]) == kinds([name], remove=("checkpoints",)) == {"checkpoints"}


@pytest.mark.parametrize(
    ("kinds", "stays"),
    [
        (["checkpoints"], ["model", "step-4"]),
        (["model"], ["step-2", "step-4"]),
        (["checkpoints", "model"], ["step-4"]),
        (["code"], ["model", "step-2", "step-4"]),
    ],
)
def test_of_a_run_that_failed_the_newest_checkpoint_stays(
    folder: Folder, logs: Path, kinds: list[str], stays: list[str]
) -> None:
    keep(failed(folder), 2, 4, model=True)
    assert not any(one.problem for one in clean(remove=kinds, logs=logs))
    assert left(folder) == stays


@pytest.mark.parametrize(
    ("kinds", "stays"),
    [(["checkpoints"], ["model"]), (["model"], ["step-2", "step-4"]), (["checkpoints", "model"], ["model"])],
)
def test_of_a_run_that_came_to_its_end_one_of_both_stays(
    folder: Folder, logs: Path, kinds: list[str], stays: list[str]
) -> None:
    keep(done(folder), 2, 4, model=True)
    clean(remove=kinds, logs=logs, dry_run=True)
    assert left(folder) == ["model", "step-2", "step-4"]
    for _ in range(3):  # again and again: the last stays
        clean(remove=kinds, logs=logs)
        assert left(folder) == stays


def test_the_same_table_says_that_the_model_stays(folder: Folder, logs: Path, capsys: Any) -> None:
    keep(done(folder), 2, 4, model=True)
    for words in (["clean"], ["clean", "--checkpoints", "--dry-run"], ["clean", "--checkpoints"], ["clean"]):
        command([*words, "--logs", str(logs)])
        [line] = [one for one in capsys.readouterr().out.splitlines() if "/model" in one]
        assert ("may go" in line) == (words == ["clean"] and "step-2" in left(folder)), line
        assert ("all that was trained" in line) == ("may go" not in line), line


def test_a_model_alone_is_the_last_good_state(folder: Folder, logs: Path) -> None:
    keep(done(folder), model=True)
    [one] = clean(remove=["model"], logs=logs)
    assert one.taken.stays == "no checkpoint is left, so it is all that was trained" and left(folder) == ["model"]


def test_what_is_not_whole_is_no_good_state(folder: Folder, logs: Path) -> None:
    keep(failed(folder), 2, 4, 6)
    (folder.run.checkpoint(6) / "engine" / "shard-0.bin").write_bytes(b"x")
    (folder.run.checkpoints / ".step-8.part").mkdir()
    assert [one.step for one in kept_in(folder.run.root)] == [2, 4]
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4", "step-6"]  # what somebody damaged may still be of use to them


@pytest.mark.parametrize("damage", ["cut", "no record", "renamed", "a link", "another version", "removed"])
@pytest.mark.parametrize("kinds", [["model"], ["checkpoints"], ["checkpoints", "model"]])
def test_where_the_newest_checkpoint_is_not_whole_what_may_be_the_last_good_state_stays(
    folder: Folder, logs: Path, damage: str, kinds: list[str]
) -> None:
    keep(done(folder).steps(6), 2, 4, 6, model=True)
    newest = folder.run.checkpoint(6)
    if damage == "cut":
        (newest / "engine" / "shard-0.bin").write_bytes(b"x")
    elif damage == "no record":
        (newest / MANIFEST).unlink()
    elif damage == "renamed":
        newest.rename(newest.with_name("step-6.good"))
    elif damage == "a link":
        newest.rename(logs / "elsewhere")
        newest.symlink_to(logs / "elsewhere")
    elif damage == "another version":
        write_json(newest / MANIFEST, {"schema": 3, "step": 6, "files": {}})
    else:
        shutil.rmtree(newest)
    found = clean(remove=kinds, logs=logs)
    assert folder.run.model.is_dir()
    assert damage == "removed" or folder.run.checkpoint(4).is_dir()
    assert not any(one.is_chosen for one in found if not one.taken.is_whole)
    listed = [one.taken for one in found if not one.taken.is_whole]
    assert [one.stays is not None for one in listed] == ([] if damage == "removed" else [True])


def test_where_the_newest_checkpoint_is_whole_the_model_may_go(folder: Folder, logs: Path) -> None:
    keep(done(folder).steps(6), 2, 4, 6, model=True)
    clean(remove=["model"], logs=logs)
    assert left(folder) == ["step-2", "step-4", "step-6"]


def test_of_a_run_that_is_not_over_nothing_goes(folder: Folder, logs: Path, slurm: Slurm) -> None:
    keep(folder, 2, 4, model=True)
    slurm.says(job("RUNNING"))
    found = clean(remove=["checkpoints", "model"], logs=logs)
    assert {one.taken.stays for one in found} == {"the run is not over: RUNNING"}
    assert left(folder) == ["model", "step-2", "step-4"]


def test_what_a_run_that_is_not_over_goes_on_from_stays(folder: Folder, logs: Path, slurm: Slurm) -> None:
    keep(failed(folder), 2, 4)
    other = Folder(logs / "run-2", job_id="8")
    write_json(other.run.job, {**(read_json(other.run.job) or {}), "uuid": str(uuid4())})
    record = read_json(other.run.experiment) or {}
    write_json(other.run.experiment, {**record, "plan": {"workload": {"resume": str(folder.run.root)}}})
    slurm.says(job("PENDING", started_at=None), "8")
    found = clean(["run-1"], remove=["checkpoints"], logs=logs)
    assert {one.taken.stays for one in found} == {GOES_ON + str(other.run.root)} and len(left(folder)) == 2
    slurm.says(job("FAILED", 1), "8")
    clean(["run-1"], remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


def test_only_the_runs_that_are_named_are_touched(folder: Folder, logs: Path) -> None:
    other = keep(failed(Folder(logs / "run-2", job_id="8")), 1, 2)
    keep(failed(folder), 1, 2)
    clean("run-2", remove=["checkpoints"], logs=logs)
    assert (left(folder), left(other)) == (["step-1", "step-2"], ["step-2"])
    with pytest.raises(RequestError, match="run-9"):
        clean(["run-2", "run-9"], remove=["checkpoints"], logs=logs)
    with pytest.raises(RequestError, match="telemetry"):
        clean(remove=["telemetry"], logs=logs)


def test_diagnose_says_how_a_run_goes_on_that_kept_something(folder: Folder, logs: Path) -> None:
    timed_out = {"signal": "TERM", "stage": "launch", "time_limit_s": 3600}
    assert "--resume" not in diagnose(folder.exit(143, **timed_out).run.root)[0].remedy
    keep(folder, 2, 4)
    [found] = diagnose(folder.run.root)
    assert found.cause.id == "walltime"
    way = f"`hpc-llm submit … --resume run-1 --logs {folder.run.root.parent}`"
    assert f"; then, as it kept what it had trained, go on behind step 4 with {way}\n" in found.remedy


def test_links_are_not_followed(folder: Folder, logs: Path, tmp_path: Path) -> None:
    keep(failed(folder), 1, 2)
    folder.run.checkpoints.rename(tmp_path / "elsewhere")
    folder.run.checkpoints.symlink_to(tmp_path / "elsewhere")
    clean(remove=["checkpoints"], logs=logs)
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["step-1", "step-2"]


# --- a model that is none is no reason to let checkpoints go ----------------------------------------------------------


def cut_off(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def cut_to_its_table(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-500])


def of_zeros(model: Path) -> None:
    """As a disk leaves a file that had got its length and not its content."""
    path = model / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))


def holds_nothing(model: Path) -> None:
    (model / "model.safetensors").write_bytes(tensors({}))
    write_manifest(model)


def empty(model: Path) -> None:
    for path in model.iterdir():
        path.unlink()


def without(name: str) -> Any:
    return lambda model: (model / name).unlink()


def led_elsewhere(model: Path) -> None:
    (model / "model.safetensors").rename(model.parent / "elsewhere")
    (model / "model.safetensors").symlink_to(model.parent / "elsewhere")


def no_config(model: Path) -> None:
    (model / "config.json").write_text("{")
    write_manifest(model)


def lacks_a_shard(model: Path) -> None:
    (model / "model.safetensors").rename(model / "a.safetensors")
    write_json(
        model / "model.safetensors.index.json", {"weight_map": {"weight": "a.safetensors", "b": "b.safetensors"}}
    )


def lacks_a_tensor(model: Path) -> None:
    (model / "model.safetensors").rename(model / "a.safetensors")
    write_json(
        model / "model.safetensors.index.json", {"weight_map": {"weight": "a.safetensors", "b": "a.safetensors"}}
    )


def led_out_of_it(model: Path) -> None:
    (model / "model.safetensors").rename(model.parent / "a.safetensors")
    write_json(model / "model.safetensors.index.json", {"weight_map": {"weight": "../a.safetensors"}})


def pickled(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


DAMAGES = (
    cut_off, cut_to_its_table, of_zeros, holds_nothing, empty, without("model.safetensors"), without("config.json"), led_elsewhere, no_config,
    lacks_a_shard, lacks_a_tensor, led_out_of_it, pickled,
)  # fmt: skip


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoints_stay_where_the_model_is_not_whole(folder: Folder, logs: Path, damage: Any, is_older: bool) -> None:
    keep(done(folder), 2, 4, model=True)
    assert is_whole_model(folder.run.model)
    damage(folder.run.model)
    if is_older:
        (folder.run.model / OF_MODEL).unlink(missing_ok=True)
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["model", "step-4"]
    clean(remove=["checkpoints", "model"], logs=logs)
    assert left(folder) == ["step-4"]


def test_a_model_in_parts_and_an_adapter_are_whole_with_and_without_their_list(folder: Folder, tmp_path: Path) -> None:
    keep(folder, model=True)
    parts, adapter = folder.run.model, tmp_path / "adapter"
    (parts / "model.safetensors").rename(parts / "a.safetensors")
    (parts / "b.safetensors").write_bytes(tensors({"b": 3, "c": 0}))
    names = {"weight": "a.safetensors", "b": "b.safetensors", "c": "b.safetensors"}
    write_json(parts / "model.safetensors.index.json", {"metadata": {"total_size": 503}, "weight_map": names})
    write_json(adapter / "adapter_config.json", {"r": 8})
    (adapter / "adapter_model.safetensors").write_bytes(tensors({"lora_A": 10, "lora_B": 20}))
    for place in (parts, adapter):
        (place / OF_MODEL).unlink(missing_ok=True)
        assert is_whole_model(place)
        write_manifest(place)
        assert is_whole_model(place)


def test_a_list_of_a_model_that_names_files_elsewhere_proves_nothing(folder: Folder) -> None:
    keep(folder, model=True)
    (folder.run.root / "a.safetensors").write_bytes(b"x")
    write_json(folder.run.model / OF_MODEL, {"schema": 1, "files": {"../a.safetensors": 1}})
    assert not is_whole_model(folder.run.model)


# --- several at once ------------------------------------------------------------------------------------------------


def test_two_that_clean_at_once_leave_the_last_good_state(folder: Folder, logs: Path) -> None:
    """Each asks for another half of what is there, at the same time: whichever is first, one of both stays."""
    program = (
        "import sys, time; from hpc_llm.api import clean; time.sleep(max(0, float(sys.argv[3]) - time.time())); "
        "clean(remove=[sys.argv[2]], logs=sys.argv[1])"
    )
    for _ in range(4):
        keep(done(folder), 2, 4, model=not folder.run.model.exists())
        at = str(time.time() + 1.5)
        both = [
            subprocess.Popen([sys.executable, "-c", program, str(logs), kind, at]) for kind in ("checkpoints", "model")
        ]
        assert [one.wait(timeout=240) for one in both] == [0, 0]
        assert {"model", "step-4"} & {*left(folder)}
        for place in (folder.run.checkpoints, folder.run.model):
            shutil.rmtree(place, ignore_errors=True)


def test_what_another_did_between_the_looks_is_seen(
    folder: Folder, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has removed the model when this one, which saw it, is alone with the run."""
    keep(done(folder), 2, 4, model=True)

    @contextmanager
    def late(place: Path) -> Any:
        with alone_in(place) as why:
            shutil.rmtree(folder.run.model)
            yield why

    monkeypatch.setattr("hpc_llm.runs.alone.alone_in", late)
    found = clean(remove=["checkpoints"], logs=logs)
    problems = [one.problem for one in found if one.is_chosen]
    assert problems == [None, "it is the newest, and the run goes on from it"] and left(folder) == ["step-4"]


CLAIMS = """
import pathlib, sys
from hpc_llm.schedulers.claim import claimed
with claimed(pathlib.Path(sys.argv[1])) as is_ours:
    assert is_ours
    print("claimed", flush=True)
    sys.stdin.read()
"""


@contextmanager
def claimed_by_another(run: RunPaths) -> Iterator[None]:
    """As by another node, which sees no lock of this one."""
    words = [sys.executable, "-c", CLAIMS, str(run.root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"claimed\n"
        yield
        process.communicate(timeout=240)


def test_while_another_is_at_it_nothing_goes(folder: Folder, logs: Path, capsys: Any) -> None:
    keep(failed(folder), 2, 4)
    with alone_in(folder.run.root) as why:
        assert why is None
        assert command(["clean", "--checkpoints", "--logs", str(logs)]) == 1
        assert "not removed: another command is at it" in capsys.readouterr().out
    with claimed_by_another(folder.run):
        [first, _] = clean(remove=["checkpoints"], logs=logs)
        assert first.problem is not None and first.problem.startswith("process ")
    assert left(folder) == ["step-2", "step-4"]
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


def test_on_a_full_disk_there_is_room_to_clean(folder: Folder, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    keep(failed(folder), 2, 4)
    monkeypatch.setattr("hpc_llm.schedulers.claim.new_file", full)
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


def test_what_was_being_removed_when_it_was_killed_is_no_checkpoint(
    folder: Folder, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(failed(folder), 2, 4)

    def killed(place: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("hpc_llm.runs.room.shutil.rmtree", killed)
        clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == [".step-2.old", "step-4"]
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


# --- what goes on from it, wherever that lies -------------------------------------------------------------------------


def later_run(root: Path, resume: Path) -> Folder:
    """A run with a job of its own that begins with `resume`."""
    other = Folder(root, job_id="8")
    write_json(other.run.job, {**(read_json(other.run.job) or {}), "uuid": LATER})
    record = read_json(other.run.experiment) or {}
    write_json(other.run.experiment, {**record, "plan": {**record["plan"], "workload": {"resume": str(resume)}}})
    return other


LATER = str(uuid4())


@pytest.mark.parametrize("spelled", ["logs", "run", "checkpoint", "dots", "checkpoints"])
def test_a_link_to_what_it_goes_on_from_is_the_same(
    folder: Folder, logs: Path, tmp_path: Path, slurm: Slurm, spelled: str
) -> None:
    keep(failed(folder), 2, 4)
    link = tmp_path / "link"
    targets = {
        "logs": logs,
        "run": folder.run.root,
        "checkpoint": folder.run.checkpoint(2),
        "checkpoints": folder.run.checkpoints,
    }
    link.symlink_to(targets.get(spelled, tmp_path))
    places = {
        "logs": link / "run-1",
        "run": link,
        "checkpoint": link,
        "checkpoints": link / "step-2",
        "dots": link / "logs" / ".." / "logs" / "run-1",
    }
    later_run(logs / "run-2", places[spelled])
    slurm.says(job("PENDING", started_at=None), "8")
    clean(["run-1"], remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-2", "step-4"]


def submit(folder: Folder, root: Path, resume: Path) -> Folder:
    """As the command does: the mark, then the folder of the run."""
    experiment = {"plan": {"workload": {"resume": str(resume)}}}
    with reserved([(experiment, RunPaths(root), LATER)]):
        return later_run(root, resume)


def test_a_run_in_another_folder_of_runs_is_known_until_it_is_over(
    folder: Folder, logs: Path, tmp_path: Path, slurm: Slurm
) -> None:
    keep(failed(folder), 2, 4)
    other = submit(folder, tmp_path / "others" / "run-2", folder.run.checkpoint(2))
    slurm.says(job("PENDING", started_at=None), "8")
    for _ in range(2):
        found = clean(remove=["checkpoints"], logs=logs)
        assert {one.taken.stays for one in found} == {GOES_ON + str(other.run.root)}
        assert left(folder) == ["step-2", "step-4"]
        slurm.says(job("RUNNING"), "8")
    slurm.says(job("FAILED", 1), "8")
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


def test_one_that_is_being_submitted_is_waited_for_and_one_that_is_gone_is_not(
    folder: Folder, logs: Path, tmp_path: Path
) -> None:
    keep(failed(folder), 2, 4)
    gone = tmp_path / "others" / "run-2"
    gone.parent.mkdir()
    with reserved([({"plan": {"workload": {"resume": str(folder.run.root)}}}, RunPaths(gone), LATER)]):
        [first, _] = clean(remove=["checkpoints"], logs=logs)
        assert first.taken.stays == f"{gone} is being submitted and needs it"
    [mark] = folder.run.wanted_by.iterdir()
    gone.parent.rename(tmp_path / "unseen")
    os.utime(mark, (1, 1))
    [first, _] = clean(remove=["checkpoints"], logs=logs)
    assert first.taken.stays == f"{gone}, which needs it, is not seen from here; if that is over, remove {mark}"
    (tmp_path / "unseen").rename(gone.parent)
    clean(remove=["checkpoints"], logs=logs)
    assert left(folder) == ["step-4"]


def test_a_submission_that_fails_leaves_no_mark(folder: Folder, tmp_path: Path) -> None:
    keep(failed(folder), 2, 4)
    wanted = [({"plan": {"workload": {"resume": str(folder.run.root)}}}, RunPaths(tmp_path / "x"), LATER)]
    with pytest.raises(RequestError, match="refused"), reserved(wanted):
        assert len(list(folder.run.wanted_by.iterdir())) == 1
        raise RequestError("refused")
    assert list(folder.run.wanted_by.iterdir()) == []


@pytest.mark.parametrize("how", ["a link", "somebody else's"])
def test_no_mark_is_made_where_somebody_else_leads_to(folder: Folder, tmp_path: Path, how: str) -> None:
    keep(failed(folder), 2)
    (tmp_path / "mine").mkdir()
    folder.run.wanted_by.symlink_to(tmp_path / "mine")
    if how != "a link":
        needs_root("own a folder as somebody else")
        folder.run.wanted_by.unlink()
        os.chown(folder.run.root, 65534, 65534)
    wanted = [({"plan": {"workload": {"resume": str(folder.run.root)}}}, RunPaths(tmp_path / "x"), LATER)]
    with pytest.warns(Notice, match="will not know that x needs it"), reserved(wanted):
        assert list((tmp_path / "mine").iterdir()) == []
        assert how == "a link" or not folder.run.wanted_by.exists()


def test_nothing_is_submitted_that_goes_on_from_what_is_being_removed(folder: Folder, tmp_path: Path) -> None:
    keep(failed(folder), 2, 4)
    experiment = {"plan": {"workload": {"resume": str(folder.run.checkpoint(2))}}}
    wanted = [(experiment, RunPaths(tmp_path / "x"), LATER)]
    with (
        claimed_by_another(folder.run),
        pytest.raises(RequestError, match=r"is at that run\. Try again"),
        reserved(wanted),
    ):
        raise AssertionError("it was submitted")
    shutil.rmtree(folder.run.checkpoint(2))
    with pytest.raises(RequestError, match="holds no whole checkpoint any more"), reserved(wanted):
        raise AssertionError("it was submitted")


def test_runs_of_one_name_in_two_folders_are_two(folder: Folder, logs: Path, tmp_path: Path) -> None:
    keep(done(folder), 2, model=True)
    other = keep(failed(Folder(tmp_path / "others" / "run-1", job_id="9")), 2, model=True)
    clean([str(folder.run.root), str(other.run.root)], remove=["checkpoints", "model"], logs=logs)
    assert (left(folder), left(other)) == (["model"], ["step-2"])


def test_a_run_that_is_named_twice_is_one(folder: Folder, logs: Path, tmp_path: Path) -> None:
    keep(failed(folder), 2, 4, model=True)
    (tmp_path / "link").symlink_to(logs)
    found = clean([str(folder.run.root), str(tmp_path / "link" / "run-1")], remove=["checkpoints", "model"], logs=logs)
    assert [one.problem for one in found] == [None] * 3 and left(folder) == ["step-4"]


@pytest.mark.parametrize("is_named", [False, True])
def test_a_link_that_is_a_run_removes_nothing_of_the_run_that_it_leads_to(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_named: bool
) -> None:
    """As a folder of runs that was cloned may hold one, to a run of this user's elsewhere."""
    real = keep(done(Folder(tmp_path / "mine" / "r0")), 2, 4, model=True)
    logs.mkdir()
    (logs / "r5").symlink_to(Path("..", "mine", "r0"))
    names = ["r5"] if is_named else []
    assert command(["clean", *names, "--checkpoints", "--models", "--logs", str(logs)]) == 0
    assert left(real) == ["model", "step-2", "step-4"]
    assert f"name the run by its own folder, {real.run.root}" in " ".join(capsys.readouterr().out.split())
    clean(real.run.root, remove=["checkpoints"], logs=logs)
    assert left(real) == ["model"]


@pytest.mark.parametrize("kind", ["checkpoints", "model"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_state_that_is_left_must_hold_what_was_written(
    folder: Folder, logs: Path, kind: str, is_damaged: bool
) -> None:
    """Bytes that changed at the same size, in the model or in the newest checkpoint."""
    keep(done(folder), 4, 6, model=True)
    relied = folder.run.model
    if kind == "model":
        relied = folder.run.checkpoints / "step-6"
        record = json.loads((relied / "checkpoint.json").read_text())
        record["digests"] = {name: digests_of(relied / name) for name in record["files"]}
        record.pop("own_digest", None)
        (relied / "checkpoint.json").write_text(json.dumps(record))
    before = left(folder)
    if is_damaged:
        largest = max(
            (path for path in relied.rglob("*.*") if path.suffix != ".json"), key=lambda path: path.stat().st_size
        )
        content = largest.read_bytes()
        largest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    told = {one.taken.path: one.problem for one in clean(remove=[kind], logs=logs, dry_run=True) if one.is_chosen}
    assert left(folder) == before
    found = [one for one in clean(remove=[kind], logs=logs) if one.is_chosen]
    assert told == {one.taken.path: one.problem for one in found}
    assert found and all(("does not hold what was written" in (one.problem or "")) is is_damaged for one in found)
    assert (left(folder) == before) is is_damaged


def test_what_another_removes_while_it_is_looked_at_takes_no_room(
    folder: Folder, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(done(folder), 2, 4, model=True)
    whole = room.is_whole_model

    def removed_meanwhile(place: Path) -> bool:
        answer = whole(place)
        shutil.rmtree(place)
        return answer

    monkeypatch.setattr(room, "is_whole_model", removed_meanwhile)
    taken = {one.taken.path.name: one.taken.size_bytes for one in clean(logs=logs)}
    assert taken["model"] == 0 < taken["step-4"]
