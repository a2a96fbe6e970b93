"""A run that trained for real, sent to each tracker and read back by that tracker's own library or program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import PROGRAM, SECRET
from run_folders import Folder
from wandb_server import service

import hpc_llm
from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.exporting.tracker import REPLACED, UNCHANGED, WRITTEN
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train
HOSTILE = {"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET * 2, "WANDB_MODE": "disabled", "WANDB_RUN_ID": "another",
           "WANDB_PROJECT": "another", "WANDB_NOTES": "of this shell"}  # fmt: skip
"""Of a shell in which other runs are tracked as they go."""


def exported(run: Path, to: str, out: Path, *more: str) -> dict[str, Any]:
    """What the console script says of a run that it sent, in a shell with settings of its own."""
    asked = [PROGRAM, "export", f"{run}/", "--to", to, "-o", out, "--json", *more]
    done = subprocess.run(
        asked, env={**os.environ, **HOSTILE}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    (sent,) = json.loads(done.stdout)["runs"]
    assert sent["run_id"] == run.name
    return dict(sent)


def sent_again(run: Path, to: str, out: Path, **more: str) -> dict[str, Any]:
    """The same from Python, in which the tracker's library is imported once."""
    (sent,) = hpc_llm.export(run, to=to, output=out, **more).runs
    return sent.to_dict()


def losses(run: Path) -> dict[int, float]:
    return {step["step"]: step["loss"] for step in read_json_lines(RunPaths(run).steps)}


def holds(folder: Path, *texts: str) -> list[str]:
    """Which of the texts stand in a file of the folder."""
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [text for text in texts if text.encode() in content]


def test_tensorboard_reads_steps_result_and_plan(trained: Path, tmp_path: Path, needs: Callable[..., None]) -> None:
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    assert exported(trained, "tensorboard", tmp_path)["state"] == WRITTEN
    assert exported(trained, "tensorboard", tmp_path)["state"] == UNCHANGED
    assert [path.name for path in tmp_path.iterdir()] == ["real"]
    read = EventAccumulator(str(tmp_path / "real"))
    read.Reload()
    assert {one.step: one.value for one in read.Scalars("loss")} == pytest.approx(losses(trained))
    times = {step["step"]: step["time"] for step in read_json_lines(RunPaths(trained).steps)}
    assert {one.step: one.wall_time for one in read.Scalars("loss")} == pytest.approx(times)
    result = read_json(RunPaths(trained).result)
    assert result is not None
    assert read.Scalars("result/tokens_per_second")[0].value == pytest.approx(result["tokens_per_second"])
    content = read.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    plan = metadata.parse_session_start_info_plugin_data(content).hparams
    assert plan["batch.micro_batch_size"].number_value == 2 and plan["method"].string_value == "ddp"
    assert b"outcome: COMPLETED" in read.Tensors("result/words")[0].tensor_proto.string_val[0]
    assert holds(tmp_path, SECRET, "of-nobodys-concern") == []


def test_wandb_syncs_the_folder_once_however_often_it_is_sent(
    trained: Path, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("wandb")
    sent = exported(trained, "wandb", tmp_path, "--project", "mine")
    place = Path(sent["place"])
    assert sent["state"] == WRITTEN
    assert exported(trained, "wandb", tmp_path, "--project", "mine") == {**sent, "state": UNCHANGED}
    assert [path.name for path in (tmp_path / "wandb").iterdir()] == [place.name]
    key = {"WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)}
    with service() as there:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-m", "wandb", "sync", "--include-synced", place],
                env={"PATH": os.environ["PATH"], "WANDB_BASE_URL": there.url, **key}, cwd=tmp_path,
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    ((run_id, run),) = there.runs.items()
    assert (run_id, run.project, run.name, run.exit_code) == (sent["id"], "mine", "real", 0)
    assert {row["_step"]: row["loss"] for row in run.history} == pytest.approx(losses(trained))
    steps = list(read_json_lines(RunPaths(trained).steps))
    assert [row["_timestamp"] for row in run.history] == pytest.approx([step["time"] for step in steps])
    assert run.config["batch"]["micro_batch_size"] == 2 and run.config["optimizer"]["type"] == "AdamW"
    assert run.summary["outcome"] == "COMPLETED" and run.summary["measured_steps"] == 4
    said = "".join(there.said)
    assert [text for text in (SECRET, "of-nobodys-concern", "of this shell", str(tmp_path)) if text in said] == []
    assert holds(place, SECRET, "of-nobodys-concern") == []


def test_mlflow_finds_the_run_again_in_its_database(trained: Path, tmp_path: Path, needs: Callable[..., None]) -> None:
    needs("mlflow", "sqlalchemy", "alembic")
    from mlflow import MlflowClient

    sent = exported(trained, "mlflow", tmp_path, "--project", "mine")
    uri, _, run_id = sent["place"].partition(" run ")
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    assert [one.name for one in client.search_experiments() if one.name != "Default"] == ["mine"]
    mine = client.get_experiment_by_name("mine").experiment_id

    def found() -> dict[str, Any]:
        return {one.info.run_id: one for one in client.search_runs([mine])}

    assert sent_again(trained, "mlflow", tmp_path, project="mine")["state"] == UNCHANGED
    assert list(found()) == [run_id]
    run = found()[run_id]
    assert (run.info.status, run.info.run_name, run.data.params["batch.micro_batch_size"]) == ("FINISHED", "real", "2")
    history = client.get_metric_history(run_id, "loss")
    assert {one.step: one.value for one in history} == pytest.approx(losses(trained))
    result = read_json(RunPaths(trained).result)
    assert result is not None and run.data.metrics["tokens_per_second"] in (
        one["tokens_per_second"] for one in read_json_lines(RunPaths(trained).steps)
    )
    assert run.data.metrics["result.tokens_per_second"] == pytest.approx(result["tokens_per_second"])
    assert run.data.tags["hpc_llm.outcome"] == "COMPLETED"
    client.delete_tag(run_id, "hpc_llm.digest")  # as where it was interrupted
    again = sent_again(trained, "mlflow", tmp_path, project="mine")
    assert again["state"] == WRITTEN and list(found()) == [again["place"].partition(" run ")[2]] != [run_id]
    assert holds(tmp_path, SECRET, "of-nobodys-concern") == []


def test_mlflow_keeps_runs_in_a_folder_where_one_is_named(
    folder: Folder, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("mlflow")
    store = tmp_path / "store"
    sent = exported(folder.run.root, "mlflow", tmp_path / "out", "--uri", str(store))
    assert sent["state"] == WRITTEN and not (tmp_path / "out").exists()
    again = sent_again(folder.run.root, "mlflow", tmp_path / "out", uri=str(store))
    assert again == {**sent, "state": UNCHANGED}
    evaluated = next(store.rglob("metrics/eval_loss")).read_text().splitlines()
    assert [line.split()[1:] for line in evaluated] == [["2.5", "10"], ["2.5", "20"]]


def test_a_store_that_does_not_answer_is_one_sentence(folder: Folder, needs: Callable[..., None]) -> None:
    needs("mlflow")
    with pytest.raises(HpcLlmError, match=r"MLflow's store http://127\.0\.0\.1:9 cannot be used: ") as raised:
        hpc_llm.export(folder.run.root, to="mlflow", uri="http://127.0.0.1:9")
    assert "\n" not in str(raised.value) and raised.value.exit_code == 1


@pytest.mark.parametrize("to", ["tensorboard", "wandb"])
def test_a_run_that_has_changed_takes_the_place_of_what_was_sent(
    folder: Folder, tmp_path: Path, to: str, needs: Callable[..., None]
) -> None:
    needs(to)
    out = tmp_path / "out"
    first = hpc_llm.export(folder.run.root, to=to, output=out).runs[0]
    folder.steps(25)
    second = hpc_llm.export(folder.run.root, to=to, output=out).runs[0]
    assert (first.state, second.state, second.place, second.key) == (WRITTEN, REPLACED, first.place, first.key)
    places = list(out.glob("wandb/*")) or list(out.iterdir())
    assert [str(path) for path in places] == [second.place]


def test_what_lies_in_the_place_and_is_not_ours_stays(
    folder: Folder, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("tensorboard")
    kept = tmp_path / "out" / "run-1" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(
        RequestError, match="is there and is no earlier export of run run-1: give another folder with -o"
    ):
        hpc_llm.export(folder.run.root, to="tensorboard", output=tmp_path / "out")
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [kept]


@pytest.mark.parametrize("to", ["tensorboard", "wandb", "mlflow"])
def test_half_of_a_character_in_a_record_is_no_reason_not_to_send_it(
    folder: Folder, tmp_path: Path, to: str, needs: Callable[..., None]
) -> None:
    needs(to)
    record = json.loads(folder.run.experiment.read_text())
    record["plan"]["job.comment"] = record["plan"]["model.name"] = "half \ud83d"
    folder.run.experiment.write_text(json.dumps(record))
    sent = hpc_llm.export(folder.run.root, to=to, output=tmp_path / "out")
    assert [one.state for one in sent.runs] == [WRITTEN]
    assert holds(tmp_path / "out", "half \ufffd")


def test_two_exports_at_once_make_one_run(
    folder: Folder, tmp_path: Path, needs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server, that several write to: each sees what the other has written since, and both keep the same one."""
    needs("mlflow", "sqlalchemy", "alembic")
    from mlflow import MlflowClient

    from hpc_llm.exporting import mlflow

    out = tmp_path / "out"
    once = hpc_llm.export(folder.run.root, to="mlflow", output=out)
    uri = once.runs[0].place.partition(" run ")[0]
    looks = iter([[]])
    earlier = mlflow._earlier
    monkeypatch.setattr(mlflow, "_earlier", lambda client, key: next(looks, None) or earlier(client, key))
    monkeypatch.setattr(mlflow, "_folder", lambda uri: None)
    again = hpc_llm.export(folder.run.root, to="mlflow", output=out)
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    found = client.search_runs([client.get_experiment_by_name("hpc-llm").experiment_id])
    assert [f"{uri} run {one.info.run_id}" for one in found] == [again.runs[0].place]


def test_exports_into_one_folder_wait_for_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpc_llm.exporting import folders
    from hpc_llm.exporting.folders import one_at_a_time

    order: list[str] = []
    waits = threading.Event()
    monkeypatch.setattr(folders, "notice", lambda text: waits.set())

    def second() -> None:
        with one_at_a_time(tmp_path) as is_alone:
            order.append(f"second {is_alone}")

    with one_at_a_time(tmp_path):
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(60)
        order.append("first")
    other.join(60)
    assert order == ["first", "second True"]


@pytest.mark.parametrize("to", ["tensorboard", "wandb"])
def test_what_failed_in_the_middle_leaves_nothing_half_done(
    folder: Folder, tmp_path: Path, to: str, needs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(to)
    from hpc_llm.exporting import finished
    from hpc_llm.exporting.history import history as whole

    def cut(run: RunPaths) -> Any:
        for count, point in enumerate(whole(run)):
            if count == 5 and (tmp_path / "out").exists():
                raise OSError(28, "No space left on device")
            yield point

    monkeypatch.setattr(finished, "history", cut)
    with pytest.raises((OSError, HpcLlmError), match="No space left on device"):
        hpc_llm.export(folder.run.root, to=to, output=tmp_path / "out")
    assert [path for path in (tmp_path / "out").rglob("*") if path.name != "wandb"] == []


def test_settings_of_wandb_in_the_working_directory_name_nobody_to_whom_a_run_goes(
    folder: Folder, tmp_path: Path, needs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("wandb")
    (tmp_path / "clone" / "wandb").mkdir(parents=True)
    (tmp_path / "clone" / "wandb" / "settings").write_text(
        "[default]\nentity = somebody-else\nbase_url = https://h.example\n"
    )
    monkeypatch.chdir(tmp_path / "clone")
    hpc_llm.export(folder.run.root, to="wandb", output="out")
    [written] = Path("out").rglob("*.wandb")
    assert b"somebody-else" not in written.read_bytes() and b"h.example" not in written.read_bytes()


@pytest.mark.parametrize("what", ["export", "report"])
def test_nothing_is_written_through_a_link_that_nobody_named(
    folder: Folder, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / what).symlink_to("../theirs")
    monkeypatch.chdir(tmp_path / "clone")
    with pytest.raises(RequestError, match=rf"{what} is a link here, and leads to \.\./theirs"):
        if what == "export":
            hpc_llm.export(folder.run.root, to="tensorboard")
        else:
            hpc_llm.report(folder.run.root)
    assert list((tmp_path / "theirs").iterdir()) == []
