"""How long the command line takes beside the tools under it, as ratios measured in one run on one machine.

    python benchmarks/slurm_cli.py [--repeats N]

Starts a throw-away Slurm (see tests/slurm), measures, and prints a table and one line of JSON. Exits 1 if a limit is missed.
Every figure is the median of its repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "slurm")]

from scratch_slurm import ScratchSlurm, missing_tools  # noqa: E402

from hpc_llm.records.run import RunPaths, array_folder  # noqa: E402
from hpc_llm.runs import status  # noqa: E402
from hpc_llm.schedulers import NewRun, Submission, create_runs, new_run_id, submit_slurm  # noqa: E402
from hpc_llm.schedulers.slurm.clients import cluster_name  # noqa: E402

HPC_LLM = str(Path(sys.executable).with_name("hpc-llm"))
REQUEST = [
    "--cluster=taiwania2", "--method=z3", "--model=tiny", "--partition=gtest", "--account=ACD110018", "--time=00:05:00",
]  # fmt: skip
RUNS = 1000


@dataclass(frozen=True)
class Figure:
    """One comparison; `value` is in the unit that `limit` is in."""

    what: str
    seconds: float
    beside: str
    beside_seconds: float
    value: float
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, metavar="N")
    repeats = parser.parse_args().repeats
    if lacking := missing_tools():
        print(lacking, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="slurm-cli-") as name, ScratchSlurm(Path(name) / "cluster") as slurm:
        os.environ.clear()
        os.environ.update(slurm.environ)
        figures = measure(Path(name), slurm, repeats)
    print_figures(figures)
    return 0 if all(figure.holds for figure in figures) else 1


def measure(folder: Path, slurm: ScratchSlurm, repeats: int) -> list[Figure]:
    os.chdir(folder)
    return [
        one_submission(folder, repeats),
        *a_thousand_runs(folder, slurm, repeats),
    ]


def one_submission(folder: Path, repeats: int) -> Figure:
    flags = ["--sbatch=hold"]
    script = folder / "plain.sh"
    rendered = subprocess.run([HPC_LLM, "render", *REQUEST, *flags], check=True, capture_output=True, text=True)
    script.write_text(rendered.stdout)
    plain, ours = medians(
        repeats, lambda: command("sbatch", str(script)), lambda: command(HPC_LLM, "submit", *REQUEST, *flags)
    )
    return Figure("hpc-llm submit", ours, "sbatch", plain, ours - plain, 0.5, "s more")


def a_thousand_runs(folder: Path, slurm: ScratchSlurm, repeats: int) -> list[Figure]:
    """One array: submitting it, and the status of its runs beside the one question to sacct that it takes."""
    before = time.perf_counter()
    runs = submit_array(folder / "logs")
    submitted = time.perf_counter() - before
    array, _, _ = json.loads(runs[0].job.read_text())["job_id"].partition("_")
    slurm.run("scontrol", "release", array)
    slurm.wait_until("the tasks are over", lambda: slurm.run("squeue", "-h", "-r", "-j", array) == "", seconds=300)
    slurm.wait_until("accounting has them", lambda: len(accounted(slurm, array)) >= RUNS, seconds=60)
    sacct, looked = medians(repeats, lambda: accounted(slurm, array), lambda: fresh_status(runs))
    return [
        Figure(f"submit {RUNS} runs as one array", submitted, "-", 0.0, submitted, 3.0, "s"),
        Figure(f"status of {RUNS} ended runs", looked, "sacct", sacct, looked - sacct, 1.0, "s more"),
    ]


def submit_array(logs: Path) -> list[RunPaths]:
    """All that submitting takes but planning and rendering, which an array needs once: folders, scripts, sbatch, records."""
    name = "thousand"
    folder = array_folder(logs, name)
    script = (
        f"#!/bin/bash\n#SBATCH --hold --array=0-{RUNS - 1} --time=00:05:00 --mem=1M --partition=gtest\n"
        f"#SBATCH --output={folder}/%a/log.out\nexit 1\n"
    )
    rng, ids = random.Random(), []  # type: ignore[var-annotated]
    for _ in range(RUNS):
        ids.append(new_run_id("taiwania2", "z3", "tiny", datetime.now(), rng, ids))
    submission = Submission(scheduler="slurm", time_s=300, array=name, cluster=cluster_name())
    new = [NewRun(run_id=i, experiment={"run_id": i, "plan": {"steps": 30}}, script=script) for i in ids]
    [runs] = create_runs(logs, [(submission, new)])
    submit_slurm(submission, runs, script)
    return runs


def accounted(slurm: ScratchSlurm, array: str) -> list[str]:
    answer: str = slurm.run("sacct", "-n", "-P", "-X", "-j", array, "-o", "JobID,State")
    return answer.splitlines()


def fresh_status(runs: list[RunPaths]) -> None:
    """As if nobody had looked before: answers that are final are kept, and would not be asked for again."""
    for run in runs:
        (run.submitit / "final.json").unlink(missing_ok=True)
    assert all(each.is_over for each in status(runs, now=time.time() + 300))  # no file is waited for any more


def command(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def medians(repeats: int, *actions: Callable[[], object]) -> list[float]:
    """Median seconds of each action; they take turns, so that what else the machine does meets all of them alike."""
    times: list[list[float]] = [[] for _ in actions]
    for turn in range(repeats + 1):
        for action, seconds in zip(actions, times, strict=True):
            before = time.perf_counter()
            action()
            if turn > 0:  # the first one fills the caches
                seconds.append(time.perf_counter() - before)
    return [statistics.median(seconds) for seconds in times]


def print_figures(figures: list[Figure]) -> None:
    print(f"{'what':<32} {'seconds':>8}  {'beside':<24} {'seconds':>8} {'figure':>8} {'limit':>6}  unit")
    for f in figures:
        mark = "" if f.holds else "  MISSED"
        print(
            f"{f.what:<32} {f.seconds:>8.3f}  {f.beside:<24} {f.beside_seconds:>8.3f} {f.value:>8.2f} {f.limit:>6.1f}"
            f"  {f.unit}{mark}"
        )
    machine = {"python": sys.version.split()[0], "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    print(json.dumps({"figures": [asdict(f) for f in figures], "machine": machine}))


if __name__ == "__main__":
    sys.exit(main())
