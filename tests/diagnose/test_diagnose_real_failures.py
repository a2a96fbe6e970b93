"""Failures produced for real on this machine: the programs themselves write the evidence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_runs import make_run, submit_local
from rights import mounted
from tiny_plans import make_plan

from hpc_llm.diagnosis import Diagnosis, diagnose_files, diagnose_run
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.run import RunPaths
from hpc_llm.runs import wait

SCRIPT = """\
#!/bin/bash
run={root}
finish() {{
  code=$?
  printf '{{"schema": 1, "exit_code": %s, "signal": null, "stage": "done", "reason": null, "host": "here",' "$code" > "$run/e"
  printf ' "started_at": %s, "ended_at": %s, "time_limit_s": null}}' "$started" "$(date +%s)" >> "$run/e"
  mv "$run/e" "$run/exit.json"
}}
started=$(date +%s)
trap finish EXIT
{command}
"""


def says(folder: Path, code: str, *, environ: dict[str, str] | None = None) -> Diagnosis:
    """The diagnosis of what a Python program prints when it fails."""
    log = folder / "job.err"
    with log.open("wb") as errors:
        done = subprocess.run(
            [sys.executable, "-c", code], stderr=errors, env={**os.environ, **(environ or {})}, check=False
        )
    assert done.returncode != 0
    return diagnose_files([log])


def train(logs: Path, plan: Plan) -> RunPaths:
    """A run of the real training program, under torchrun if it has several ranks, started as `hpc-llm submit` does."""
    launch = (
        f"-m torch.distributed.run --standalone --nproc-per-node={plan.parallel.world_size}"
        if plan.parallel.world_size > 1
        else "-u"
    )
    script = (
        f"export OMP_NUM_THREADS=1\n{sys.executable} {launch} -m hpc_llm.worker.pretrain_llm --run-dir {logs / 'r'}"
    )
    text = SCRIPT.format(root=logs / "r", command=script)
    run = make_run(logs, "r", {"run_id": "r", "plan": plan.to_dict(), "origins": {}}, text)
    submit_local([run])
    return run


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that is taken as long as the test runs."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.train
def test_a_rank_is_killed(tmp_path: Path) -> None:
    run = train(tmp_path, make_plan("z2", world_size=2, steps=100000, precision="fp32"))
    deadline = time.monotonic() + 200
    while not run.steps.exists() or run.steps.read_text().count("\n") < 3:
        assert time.monotonic() < deadline and not run.exit.exists(), run.stderr.read_text()
        time.sleep(0.2)
    os.kill(_process_of(run, rank=1), signal.SIGKILL)
    wait([run])
    found = diagnose_run(run)
    assert found.cause.id == "host_oom", found
    assert found.confidence <= 0.75
    assert any("SIGKILL" in e.text or "exitcode" in e.text for e in found.evidence)


def _process_of(run: RunPaths, rank: int) -> int:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"\0RANK={rank}\0".encode() in b"\0" + environ and str(run.root).encode() in words:
            return int(entry.name)
    raise AssertionError("the rank is not there")


@pytest.mark.train
def test_a_learning_rate_that_is_far_too_large(tmp_path: Path) -> None:
    optimizer = {"type": "AdamW", "lr": 1e30, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    plan = make_plan("z2", precision="fp32", steps=8, optimizer=optimizer, deepspeed={"gradient_clipping": 0.0})
    run = train(tmp_path, plan)
    wait([run])
    found = diagnose_run(run)
    assert found.cause.id == "nan_loss", (found, run.stderr.read_text()[-2000:])
    assert "optimizer.lr" in found.remedy


def test_the_port_is_taken(tmp_path: Path, taken_port: int) -> None:
    code = "import torch.distributed as d; d.init_process_group('gloo')"
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken_port), "RANK": "0", "WORLD_SIZE": "1"}
    found = says(tmp_path, code, environ=meeting)
    assert (found.cause.id, found.retry) == ("port_in_use", True)


def test_a_key_that_deepspeed_does_not_know(tmp_path: Path) -> None:
    config = {"train_batch_size": 1, "zero_optimization": {"stage": 3, "offload_optimiser": {"device": "cpu"}}}
    found = says(tmp_path, f"from deepspeed import DeepSpeedConfig; DeepSpeedConfig({config})")
    assert (found.cause.id, found.retry) == ("config_error", False)


def test_a_package_that_is_not_there(tmp_path: Path) -> None:
    found = says(tmp_path, "import a_package_that_nobody_has")
    assert found.cause.id == "package_missing" and "find out what brings a_package_that_nobody_has" in found.remedy


def test_memory_that_the_system_does_not_give(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)); x = bytearray(1 << 31)"
    assert says(tmp_path, limit).cause.id == "host_oom"


def test_a_crash_in_native_code(tmp_path: Path) -> None:
    assert (
        says(tmp_path, "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)").cause.id == "segfault"
    )


def test_a_model_that_is_nowhere(tmp_path: Path) -> None:
    code = "from transformers import AutoConfig; AutoConfig.from_pretrained('nobody/has-this')"
    assert says(tmp_path, code, environ={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}).cause.id == "model_missing"


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    found = says(tmp_path, "import torch; torch.zeros(1).to('cuda:7')", environ={"CUDA_VISIBLE_DEVICES": ""})
    assert found.cause.id == "gpu_missing"


def test_a_device_that_is_always_full(tmp_path: Path) -> None:
    assert says(tmp_path, "f = open('/dev/full', 'w', buffering=1); f.write('x\\n')").cause.id == "disk_full"


def test_a_small_file_system_is_filled_by_a_checkpoint(tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "64k") as disk:
        found = says(tmp_path, f"import torch; torch.save(torch.zeros(1 << 20), {str(disk.folder / 'model.pt')!r})")
    assert found.cause.id == "disk_full"
