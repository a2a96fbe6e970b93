"""The example of fine-tuning as README gives it: prepared, trained, evaluated, kept; ended halfway, and gone on with."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from hpc_llm.records.files import read_json_lines
from hpc_llm.records.run import RunPaths

COMMAND = str(ROOT / ".venv" / "bin" / "hpc-llm")
EXAMPLE = "examples/finetune.yaml"

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("copied_ranks")]


def hpc_llm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False)


def submitted(
    folder: Path, *words: str, example: tuple[str, ...] = (EXAMPLE, "--cluster", "local")
) -> list[dict[str, Any]]:
    done = hpc_llm(folder, "submit", *example, "--json", *words)
    assert done.returncode == 0, done.stderr
    runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = tmp_path_factory.mktemp("finetune")
    shutil.copytree(ROOT / "examples", own / "examples")
    return own


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[dict[str, Any]]:
    return submitted(folder, "--wait")


def test_both_are_trained_evaluated_and_kept(folder: Path, runs: list[dict[str, Any]]) -> None:
    assert [run["outcome"] for run in runs] == ["COMPLETED", "COMPLETED"]
    for run in runs:
        result = run["result"]
        assert result["loss_last"] < result["loss_first"] - 0.3
        assert result["eval_loss"] < result["loss_first"] and result["perplexity"] > 1
        kept = RunPaths(Path(run["run_dir"]))
        assert (kept.model / "adapter_model.safetensors").stat().st_size > 10_000
        assert [path.name for path in sorted(kept.checkpoints.iterdir())] == ["step-16", "step-24"]
    table = hpc_llm(folder, "parse", "logs", "--format", "json")
    rows = {row["method"]: row for row in json.loads(table.stdout) if row["task"] == "finetune"}
    assert rows.keys() == {"lora", "qlora"} and all(row["eval_loss"] for row in rows.values())
    shown = hpc_llm(folder, "parse", "logs", "--format", "table").stdout
    assert all(f"{row['eval_loss']:.3f}" in shown for row in rows.values()), shown


def test_what_is_kept_of_random_weights_loads_by_itself(folder: Path, runs: list[dict[str, Any]]) -> None:
    """No other program could make these weights again, and no folder brought their tokenizer."""
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    for run in runs:
        kept = RunPaths(Path(run["run_dir"])).model
        model: Any = AutoPeftModelForCausalLM.from_pretrained(kept)
        tokenizer: Any = AutoTokenizer.from_pretrained(kept)
        text = (folder / "examples" / "questions.jsonl").read_text().partition("\n")[0] + "ß"
        tokens = tokenizer(text, return_tensors="pt").input_ids
        assert tokens[0].tolist() == list(text.encode()) and tokenizer.decode(tokens[0]) == text
        assert (tokenizer.eos_token_id, len(tokenizer)) == (256, 257)
        assert float(model(input_ids=tokens, labels=tokens).loss) < run["result"]["loss_first"]


def test_an_adapter_is_refused_with_the_command_that_merges_it(
    folder: Path, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = RunPaths(Path(runs[0]["run_dir"])).model
    refused = hpc_llm(folder, "render", "--cluster", "local", "--method", "lora", "--model", str(kept))
    assert refused.returncode == 2 and f"--resume {runs[0]['run_id']}" in refused.stderr, refused.stderr
    [command] = re.findall(
        r"^python -c '(.*)' logs/RUN/model merged$", (ROOT / "docs" / "training.md").read_text(), re.MULTILINE
    )
    monkeypatch.setattr("sys.argv", ["-c", str(kept), str(folder / "merged")])
    exec(command, {})
    taken = hpc_llm(folder, "render", "--cluster", "local", "--method", "lora", "--model", "merged", "--json")
    assert json.loads(taken.stdout)["plan"]["model"]["weights"] == "checkpoint", taken.stderr


def test_a_run_that_was_ended_halfway_is_gone_on_with(folder: Path, runs: list[dict[str, Any]]) -> None:
    """The longer run is ended once it has kept a checkpoint; what goes on from it ends where it would have."""
    [run] = submitted(folder, "--method", "lora", "--steps", "100000", "--save-every", "20")
    paths, end = RunPaths(Path(run["run_dir"])), time.monotonic() + 240
    while not paths.checkpoint(20).is_dir():
        assert time.monotonic() < end, (paths.root / "log.err").read_text()
        time.sleep(0.2)
    assert hpc_llm(folder, "cancel", run["run_id"]).returncode == 0
    done = max(int(path.name.partition("-")[2]) for path in paths.checkpoints.iterdir())
    words = ("--resume", run["run_id"], "--steps", str(done + 12), "--save-every", "8", "--wait")
    [after] = submitted(folder, *words, example=())
    assert after["outcome"] == "COMPLETED" and after["result"]["resumed"]["step"] >= 20
    steps = list(read_json_lines(RunPaths(Path(after["run_dir"])).steps))
    assert steps[0]["step"] == after["result"]["resumed"]["step"] + 1 and steps[-1]["step"] == done + 12
    before = [step for step in read_json_lines(paths.steps) if step["step"] < steps[0]["step"]]
    assert after["result"]["trained_tokens"] == sum(step["trained_tokens"] for step in [*before, *steps])
    evaluations = [*read_json_lines(paths.evaluations), *read_json_lines(RunPaths(Path(after["run_dir"])).evaluations)]
    best = min((one for one in evaluations if one["step"] <= done + 12), key=lambda one: float(one["eval_loss"]))
    assert (after["result"]["best_step"], after["result"]["best_eval_loss"]) == (best["step"], best["eval_loss"])
