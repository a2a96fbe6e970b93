"""The program started by hand in a folder that was used before: it writes nothing there, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from copied_ranks import variables_for
from tiny_plans import make_plan, start_worker

from hpc_llm.errors import RequestError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.loop import StepLog
from hpc_llm.worker.pretrain_llm import main
from hpc_llm.worker.request import refuse_used_folder

pytestmark = pytest.mark.train

WORKER = ("-m", "hpc_llm.worker.pretrain_llm")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path / "run")
    write_json(paths.experiment, {"schema": 1, "run_id": "run", "plan": make_plan("z2").to_dict()})
    return paths


@pytest.mark.parametrize(
    "name", ["exit.json", "result.json", "steps.jsonl", "failures/rank-1.json", "telemetry-2.jsonl"]
)
def test_a_second_start_by_hand_is_refused_and_changes_nothing(
    paths: RunPaths, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (paths.root / name).parent.mkdir(exist_ok=True)
    (paths.root / name).write_text('{"step": 1}\n')
    before = content(paths.root)
    assert main(["--run-dir", str(paths.root)]) == 2
    assert content(paths.root) == before
    assert capfd.readouterr().err == (
        f"pretrain_llm: the run in {paths.root} has been started before, {name.partition('/')[0]} would be lost: start it "
        "by its job.sh, which keeps what earlier tries left, or take another --run-dir.\n"
    )


def test_all_ranks_of_a_second_start_refuse(paths: RunPaths, copies: Path) -> None:
    """One that went on would wait for the others, be told to stop, and put that in place of the earlier result."""
    write_json(paths.result, {"schema": 1, "outcome": "FAILED", "outcome_reason": "the earlier one"})
    before = content(paths.root)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *WORKER)
    process = start_worker(paths.root, make_plan("z2", world_size=2), *launch, **variables_for(copies))
    _, errors = process.communicate(timeout=200)
    assert process.returncode != 0
    assert errors.count("has been started before, result.json would be lost") >= 1
    after = content(paths.root)
    assert {name: after[name] for name in after if name != "experiment.json"} == {"result.json": before["result.json"]}


def test_the_homeworks_flags_do_not_take_a_used_folder_either(paths: RunPaths, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    paths.steps.write_text('{"step": 1}\n')
    before = content(paths.root)
    flags = ["--deepspeed_config", str(config), "--model_name", "tiny", "--run-dir", str(paths.root)]
    assert main(flags) == 2
    assert content(paths.root) == before


def test_a_job_script_has_looked_already(paths: RunPaths) -> None:
    """A node of a slow file system may still see what the script has moved."""
    paths.steps.write_text('{"step": 1}\n')
    refuse_used_folder(paths, {"HPC_LLM_TRY": "2"})
    with pytest.raises(RequestError):
        refuse_used_folder(paths, {})


def test_the_steps_of_another_try_are_never_overwritten(paths: RunPaths) -> None:
    paths.steps.write_text('{"step": 1}\n')
    with pytest.raises(FileExistsError):
        StepLog(paths.steps, make_plan("z2"))
    assert json.loads(paths.steps.read_text()) == {"step": 1}
