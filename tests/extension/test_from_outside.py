"""A task, an engine, a launcher, a cluster, a log format and a cause of another package, one file each, at work."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from installed import Cli

ASKED = ("--cluster", "theirs", "--method", "ddp", "--task", "polite", "--set", "engine=counting")
LOG = "".join(f"[toytrainer] batch {n}/4 cost={3 - n / 4} took 125ms\n" for n in range(1, 5))


def experiment(folder: Path, *lines: str) -> str:
    """A file, as tasks are named in one."""
    path = folder / "experiment.yaml"
    path.write_text("\n".join(("cluster: theirs", "method: ddp", "task: polite", *lines)) + "\n")
    return str(path)


def _diagnosed_as_diverged(cli: Cli, run: Path) -> str:
    """What the run is told to do where its result says that the loss was lost."""
    result = json.loads((run / "result.json").read_text())
    why = "the loss is not a finite number from step 2 on"
    changed = result | {"outcome": "INVALID", "outcome_reason": why, "invalid_reason": why}
    (run / "result.json").write_text(json.dumps(changed))
    return str(json.loads(cli("diagnose", "r", "--logs", "logs", "--json").stdout)["remedy"])


@pytest.mark.train
def test_task_engine_launcher_and_cluster_train_together_from_what_travels(cli: Cli, tmp_path: Path) -> None:
    asked = experiment(tmp_path, "steps: 4", "warmup-steps: 1", "set: {engine: counting, goodbye: farewell}")
    done = cli("submit", asked, "--logs", "logs", "--run-id", "r", "--wait")
    run = tmp_path / "logs" / "r"
    said = (run / "log.out").read_text() if (run / "log.out").exists() else ""
    assert done.returncode == 0, said + done.stderr
    (archive,) = (tmp_path / "logs" / ".code").glob("*.zip")
    assert {"their_task.py", "their_engine.py"} <= set(zipfile.ZipFile(archive).namelist())
    assert f"counted 4 steps in {archive}/their_engine.py" in said
    assert f"farewell from {archive}/their_task.py" in said
    result = json.loads((run / "result.json").read_text())
    assert (result["outcome"], result["engine"]) == ("COMPLETED", "counting")
    (row,) = json.loads(cli("parse", "logs", "--format", "json").stdout)
    assert (row["cluster"], row["task"], row["outcome"], row["measured_steps"]) == ("theirs", "polite", "COMPLETED", 3)
    advice = _diagnosed_as_diverged(cli, run)
    assert "--set optimizer.lr=" in advice and "it was 0.0008)" in advice, advice  # by the plan, their field in it


def test_what_an_engine_cannot_do_is_heard_at_planning_and_what_it_imports_is_probed(cli: Cli) -> None:
    asked = ("render", "--cluster", "theirs", "--set", "engine=counting", "--method")
    refused = cli(*asked, "z3")
    assert refused.returncode == 2 and not refused.stdout
    assert (
        refused.stderr == "hpc-llm: engine counting cannot split anything. Engines that can: deepspeed, fsdp2, flat.\n"
    )
    shown = cli(*asked, "ddp")
    assert "\nneed_packages torch transformers tokenizers\n" in shown.stdout, shown.stderr
    assert '\nlaunch env MY_PLACE=0 MY_ALL=1 MY_SLOT=0 "${rank[@]}"\n' in shown.stdout
    assert (
        "Engines that can: deepspeed, plain, counting."
        in cli("render", "--cluster", "theirs", "--method", "lora", "--set", "engine=fsdp2").stderr
    )
    assert (
        "Valid: counting, deepspeed, flat, fsdp2, plain."
        in cli(*asked[:3], "--set", "engine=conting", "--method", "z3").stderr
    )


def test_a_setting_that_only_deepspeed_heeds_selects_it_in_place_of_theirs_too(cli: Cli) -> None:
    done = cli(
        "render", "--cluster", "theirs", "--method", "ddp", "--set", "engine=counting",
        "--set", "deepspeed.zero_optimization.overlap_comm=false",
    )  # fmt: skip
    assert "engine counting becomes deepspeed: deepspeed.zero_optimization.overlap_comm is set" in done.stderr
    assert "need_packages torch transformers deepspeed\n" in done.stdout


def test_a_method_can_name_their_engine_and_not_where_it_lies(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    mine = "schema: 1\nname: {}\ndescription: mine\nletters: ddp\nengine: {}\noptimizer: {{type: AdamW}}\ndeepspeed: {{}}\n"
    (tmp_path / "configs" / "mine.yaml").write_text(mine.format("mine", "counting"))
    (tmp_path / "configs" / "typo.yaml").write_text(mine.format("typo", "countin"))
    assert (
        "need_packages torch transformers tokenizers\n"
        in cli("render", "--cluster", "local", "--method", "mine").stdout
    )
    typo = cli("render", "--cluster", "local", "--method", "typo")
    assert typo.returncode == 2 and "did you mean 'counting'?" in typo.stderr and "typo.yaml" in typo.stderr
    moved = cli("render", "--cluster", "local", "--method", "mine", "--set", "engine_module=os")
    assert moved.returncode == 2 and "engine_module" in moved.stderr and "it follows from the engine" in moved.stderr


def test_a_tracker_gets_runs_once(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "logs" / "r"
    run.mkdir(parents=True)
    (run / "experiment.json").write_text(
        json.dumps({"schema": 1, "plan": {"parallel": {"nodes": 1}, "model": {"name": "tiny"}}})
    )
    (run / "result.json").write_text(json.dumps({"schema": 1, "outcome": "COMPLETED"}))
    (run / "exit.json").write_text(json.dumps({"schema": 1, "exit_code": 0, "stage": "done"}))
    (run / "steps.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.5}\n')
    for state in ("written", "unchanged"):
        done = cli("export", "r", "--to", "ledger", "--json")
        assert json.loads(done.stdout)["runs"][0]["state"] == state, done.stderr
    (line,) = (tmp_path / "export" / "ledger.jsonl").read_text().splitlines()
    ledger = json.loads(line)
    assert (ledger["model"], ledger["outcome"], ledger["losses"]) == ("tiny", "COMPLETED", [3.0, 2.5])
    assert "Valid: ledger, mlflow, tensorboard, wandb." in cli("export", "r", "--to", "ledgr").stderr


def test_a_log_format_is_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "toy.log").write_text(f"[toytrainer] net of 1,200 weights\n{LOG}[toytrainer] done\n")
    (row,) = json.loads(cli("parse", "toy.log", "--format", "json").stdout)
    assert (row["format"], row["num_parameters"], row["loss_last"]) == ("toytrainer", 1200, 2.0)
    assert row["step_time_s_mean"] == pytest.approx(0.125) and row["outcome"] == "COMPLETED"


def test_a_cause_is_found_where_the_log_shows_it_and_where_it_is_only_spoken_of(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "toy.log").write_text(f"{LOG}toylicd: no seat left for reader\n")
    (tmp_path / "other.log").write_text(f"{LOG}the reader says `toylicd: no seat left` where none is free\n")
    found = json.loads(cli("diagnose", "toy.log", "--json").stdout)
    assert (found["cause"], found["retry"]) == ("licence_server", True)
    assert found["remedy"] == "wait until a licence is free, then submit again"
    assert [line["text"] for line in found["evidence"]] == ["toylicd: no seat left for reader"]
    assert json.loads(cli("diagnose", "other.log", "--json").stdout)["cause"] != "licence_server"
    assert "no licence was free" in cli("diagnose", "--list", "licence_server").stdout
    (row,) = json.loads(cli("parse", "toy.log", "--format", "json").stdout)
    assert "licence" in row["outcome_reason"] or "toylicd" in row["outcome_reason"], row
