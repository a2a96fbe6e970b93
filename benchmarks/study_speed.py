"""How long a study of a thousand runs takes from its file to plans and scripts, through the console script.

    python benchmarks/study_speed.py [--runs N]

Three studies: one whose runs share one job array, one that needs a script for each of fifty settings, one of this machine,
where each run has a script of its own. Prints CPU seconds, the best of three, as others may share the cores; exits 1 above the limit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HPC_LLM = str(Path(sys.executable).with_name("hpc-llm"))
RUNS = 1000
LIMIT_S = 5.0
TRIES = 3
BASE = {"cluster": "taiwania2", "account": "ACD110018", "steps": 60, "model": "llama2-7b"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N")
    runs = parser.parse_args().runs
    minutes = [f"00:{minute:02}:00" for minute in range(10, 60)]
    studies: dict[str, dict[str, object]] = {
        "one array": {**BASE, "matrix": {"method": ["z3", "z3o"], "seed": list(range(runs // 2))}},
        "fifty arrays": {**BASE, "method": "z3", "matrix": {"time": minutes, "seed": list(range(runs // 50))}},
        "this machine": {"cluster": "local", "model": "tiny", "method": "z3", "matrix": {"seed": list(range(runs))}},
    }
    slowest = 0.0
    for name, content in studies.items():
        seconds = min(measure(content) for _ in range(TRIES))
        slowest = max(slowest, seconds)
        print(f"{name:<14}{runs:>6} runs {seconds:7.2f} s CPU   (limit for {RUNS}: {LIMIT_S:g} s)")
    return 0 if slowest <= LIMIT_S * max(runs, RUNS) / RUNS else 1


def measure(content: dict[str, object]) -> float:
    """CPU seconds of `render`, which plans, checks and renders all, and lists the runs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "study.yaml").write_text(yaml.safe_dump(content))
        process = subprocess.Popen([HPC_LLM, "render", "study.yaml"], cwd=folder, stdout=subprocess.DEVNULL)
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode != 0:
        raise SystemExit(f"hpc-llm render failed with code {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
