"""The site of the chaos trials: a cluster profile without modules, fifty methods, and a training stack that takes no time.

The job scripts are the real ones, and so is the worker up to the moment at which it imports torch: there a stand-in does
what the run was told to do.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "chaos"
METHODS = tuple(f"m{number:02d}" for number in range(1, 51))

PROFILE = {
    "schema": 1,
    "name": CLUSTER,
    "title": "The scratch cluster as the chaos trials use it",
    "status": {"state": "active", "checked": "2026-11"},
    "sources": ["the scratch cluster's own configuration"],
    "scheduler": "slurm",
    "gpu": {"vendor": "none"},
    "request": {"gpu_style": "none", "export": "all", "extra": ["--mem=100M"]},
    "launch": {"single_node": "python", "multi_node": "srun", "allowed": ["python", "srun"]},
    "prelude": {"module_system": "none", "python": {"kind": "current"}},
    "defaults": {
        "model": "tiny", "gpus_per_node": 0, "time": "00:10:00", "steps": 4, "warmup_steps": 1, "sequence_length": 32,
        "micro_batch_size": 1,
    },
}  # fmt: skip

TORCH = """\
import json, os, pathlib, sys, time
run = pathlib.Path.cwd()
steps = int(os.environ.get("CHAOS_STEPS", "4"))
with open(run / "steps.jsonl", "a") as file:
    for step in range(1, steps + 1):
        line = {"step": step, "loss": 5 - step / 10, "step_time_s": 0.5, "tokens_per_second": 64.0, "warmup": step == 1}
        file.write(json.dumps({**line, "time": time.time()}) + "\\n")
what = os.environ.get("CHAOS_JOB", "waits")
if what == "waits":
    print("waits", flush=True)
    time.sleep(600)
if what == "exits":
    os._exit(7)
if what == "raises":
    raise RuntimeError("adapter shapes disagree: 64 and 48")
result = {
    "schema": 1, "outcome": "COMPLETED", "outcome_reason": None, "tokens_per_second": 64.0, "measured_steps": steps - 1,
    "step_time_s_mean": 0.5, "loss_first": 4.9, "loss_last": 5 - steps / 10,
}
(run / ".result").write_text(json.dumps(result))
os.replace(run / ".result", run / "result.json")
sys.stdout.flush()
os._exit(0)
"""


class ChaosSite:
    """Its files under `folder`, shared by all trials; `environ` leads hpc-llm to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.stack = self.folder / "stack"
        self.environ = {"XDG_CONFIG_HOME": str(self.folder / "config")}
        config = self.folder / "config" / "hpc-llm"
        _write(config / "clusters" / f"{CLUSTER}.yaml", yaml.safe_dump(PROFILE))
        z1 = (ROOT / "configs" / "z1.yaml").read_text()
        for method in METHODS:
            _write(config / "configs" / f"{method}.yaml", re.sub(r"(?m)^name: .*", f"name: {method}", z1))
        _write(self.stack / "torch" / "__init__.py", TORCH)
        for package in ("transformers", "deepspeed"):
            _write(self.stack / package / "__init__.py", "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
