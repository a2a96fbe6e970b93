"""Bars of inference and fine-tuning, whatever the runs' shapes, in three kinds of files and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hpc_llm
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting import collect, make_report
from hpc_llm.reporting.figures import figures

PLAN = {"cluster": "here", "model": "tiny", "world_size": 1, "gradient_accumulation_steps": 1, "sequence_length": 64}


def make_run(logs: Path, name: str, plan: dict[str, Any], result: dict[str, Any]) -> None:
    run = RunPaths(logs / name)
    run.root.mkdir(parents=True)
    whole = {**PLAN, "method": name, "micro_batch_size": len(name), **plan}
    run.experiment.write_text(json.dumps({"schema": 1, "run_id": name, "plan": whole}))
    run.result.write_text(json.dumps({"schema": 1, "outcome": "COMPLETED", "elapsed_s": 60.0, **result}))
    run.exit.write_text(json.dumps({"schema": 1, "exit_code": 0, "stage": "done"}))


def test_latency_throughput_memory_and_times_of_runs_of_any_shape(tmp_path: Path) -> None:
    for name, latency in (("ddp", 4.0), ("int8", 8.0)):
        result = {"latency_s_mean": latency, "tokens_per_second": 80 / latency, "peak_allocated_bytes": 3 << 30}
        make_run(tmp_path / "logs", name, {"task": "infer"}, result)
    for name, epoch in (("lora", 30.0), ("qlora+r", 90.0)):
        make_run(
            tmp_path / "logs", name, {"task": "finetune"}, {"epoch_time_s": epoch, "peak_allocated_bytes": 2 << 30}
        )
    make_run(tmp_path / "logs", "z3", {"task": "pretrain"}, {"epoch_time_s": 5.0})
    drawn = {one.section: one for one in figures(make_report(collect([tmp_path / "logs"]))) if one.kind == "bars"}
    bars = {name: {r["name"]: r["x"] for r in one.records} for name, one in drawn.items()}
    assert bars == {
        "inference_latency": {"ddp": 4.0, "int8": 8.0},
        "inference_throughput": {"ddp": 20.0, "int8": 10.0},
        "inference_memory": {"ddp": 3.0, "int8": 3.0},
        "finetune_time": {"lora": 60.0, "qlora+r": 60.0},
        "finetune_time_per_epoch": {"lora": 30.0, "qlora+r": 90.0},
        "finetune_memory": {"lora": 2.0, "qlora+r": 2.0},
    }
    made = hpc_llm.report(tmp_path / "logs", output=tmp_path / "out")
    written = {path.name for path in made.files}
    assert {f"{name}{suffix}" for name in bars for suffix in (".png", ".svg", ".pdf")} <= written
    assert (tmp_path / "out" / "finetune_time_per_epoch.pdf").read_bytes().startswith(b"%PDF")
    page = (tmp_path / "out" / "index.html").read_text()
    assert all(f'<section id="{name}"' in page for name in bars)
