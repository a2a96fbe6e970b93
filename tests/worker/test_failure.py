"""Whatever goes wrong, a result.json says what, and the rank that failed first is the cause."""

from __future__ import annotations

import errno
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from copied_ranks import variables_for
from tiny_plans import RunPlan, make_plan, start_worker

from hpc_llm.diagnosis import diagnose_run
from hpc_llm.parsing import parse_stream
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs import status
from hpc_llm.worker import failure, loop
from hpc_llm.worker.failure import classify

pytestmark = pytest.mark.train

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), Outcome.OOM_DEVICE),
        (torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB."), Outcome.OOM_DEVICE),
        (RuntimeError("CUDA error: out of memory"), Outcome.OOM_DEVICE),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), Outcome.OOM_DEVICE),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), Outcome.OOM_HOST),
        (MemoryError(), Outcome.OOM_HOST),
        # No machine has so much: what was wrong is the size.
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory."), Outcome.FAILED),
        (MemoryError("Unable to allocate 8.00 EiB for an array with shape (1,)"), Outcome.FAILED),
        (OSError(12, "Cannot allocate memory"), Outcome.OOM_HOST),
        (ValueError("no"), Outcome.FAILED),
    ],
)
def test_running_out_of_memory_says_which_memory(error: Exception, outcome: Outcome) -> None:
    assert classify(error) is outcome


NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:230, unhandled cuda error (run with NCCL_DEBUG=INFO for "
    "details), NCCL version 2.27.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n{}"
)


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("Failed to CUDA calloc async 4 bytes", Outcome.FAILED),
        ("Failed to CUDA malloc 6291456 bytes", Outcome.FAILED),
        ("Cuda failure 2 'out of memory'", Outcome.OOM_DEVICE),
        ("Cuda failure 1 'invalid argument'", Outcome.FAILED),
    ],
)
def test_the_worker_says_of_nccl_what_a_log_says(words: str, outcome: Outcome, tmp_path: Path) -> None:
    """NCCL names a lack of memory whatever failed, so that it is a guess: in a log, and in a rank's own record."""
    error = torch.distributed.DistBackendError(NCCL.format(words))
    assert classify(error) is outcome
    log = f'Traceback (most recent call last):\n  File "t.py", line 1, in f\ntorch.distributed.DistBackendError: {error}\n'
    (row,) = parse_stream("x", io.BytesIO(log.encode())).rows
    assert row.outcome == outcome.value
    run, text = RunPaths(tmp_path / "run-1"), {"traceback": log, "type": "DistBackendError", "message": str(error)}
    write_json(run.experiment, {"schema": 1, "run_id": run.run_id, "plan": make_plan("z3").to_dict()})
    for path in (run.failure(0), run.result):
        reason = f"rank 0: DistBackendError: {str(error).splitlines()[0]}"
        write_json(
            path, {"schema": 1, "rank": 0, "time": 1.0, **text, "outcome": outcome.value, "outcome_reason": reason}
        )
        write_json(
            run.exit, {"schema": 1, "exit_code": 1, "signal": None, "started_at": 0.0, "ended_at": 9.0, "host": "n"}
        )
    [state], found = status([run]), diagnose_run(run)
    assert (state.outcome, found.cause.id) == (outcome, row.cause)


def test_page_locked_memory_is_the_hosts() -> None:
    def pin_memory() -> None:
        raise RuntimeError("CUDA error: out of memory")

    with pytest.raises(RuntimeError) as caught:
        pin_memory()
    assert classify(caught.value) is Outcome.OOM_HOST


def fail_at_step(number: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    step, calls = loop.take_step, []

    def failing(*arguments: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == number:
            raise error
        return step(*arguments)

    monkeypatch.setattr(loop, "take_step", failing)


def test_out_of_memory_in_a_step_is_a_row_with_what_was_measured(
    run_plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_step(8, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), monkeypatch)
    result = run_plan(make_plan("z2"))
    assert result["outcome"] == "OOM_DEVICE"
    assert result["outcome_reason"] == "rank 0: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert result["measured_steps"] == 5
    assert result["loss_first"] is not None
    assert result["failed_rank"] == 0
    failure = read_json(RunPaths(tmp_path / "run").failure(0))
    assert failure is not None
    assert failure["outcome"] == "OOM_DEVICE"
    assert "in failing" in failure["traceback"]


def test_an_unknown_deepspeed_key_fails_before_training(run_plan: RunPlan) -> None:
    result = run_plan(make_plan("z2", deepspeed={"zero_optimisation": {}}))
    assert result["outcome"] == "FAILED"
    assert "did you mean 'zero_optimization'?" in result["error"]["message"]
    assert result["measured_steps"] == 0
    assert result["tokens_per_second"] is None


def test_the_value_of_a_secret_variable_stands_in_no_record_of_an_error_that_tells_it(
    run_plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passwords = {"DB_PASSWORD": "correct/horse battery", "PROXY_PASS": "fair-wind", "HF_TOKEN": "none"}
    for name, value in passwords.items():
        monkeypatch.setenv(name, value)
    told = (
        "no login to db://u:correct%2Fhorse%20battery@h as 'correct/horse battery', none by fair-wind, of unfair-winds"
    )
    fail_at_step(3, RuntimeError(told), monkeypatch)
    result, paths = run_plan(make_plan("ddp")), RunPaths(tmp_path / "run")
    hidden = "no login to db://u:(hidden)@h as '(hidden)', none by (hidden), of unfair-winds"
    assert result["error"]["message"] == hidden and result["outcome_reason"] == f"rank 0: RuntimeError: {hidden}"
    for text in (paths.result.read_text(), paths.failure(0).read_text(), *capsys.readouterr()):
        assert "battery" not in text and "fair-wind," not in text
    assert hidden in (status([paths])[0].reason or "")


def test_fp16_on_the_cpu_fails_with_advice(run_plan: RunPlan) -> None:
    result = run_plan(make_plan("z2", precision="fp16"))
    assert result["outcome"] == "FAILED"
    assert "choose precision bf16 or fp32" in result["outcome_reason"]


def test_gpus_that_are_not_there_are_named(run_plan: RunPlan) -> None:
    result = run_plan(make_plan("z2", gpus_per_node=8))
    assert result["outcome"] == "FAILED"
    assert "wants 8 GPUs per node" in result["outcome_reason"]


def test_a_loss_that_is_not_a_number_makes_the_run_invalid(run_plan: RunPlan, tmp_path: Path) -> None:
    optimizer = {"type": "AdamW", "lr": 1e30, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    result = run_plan(make_plan("ddp", precision="fp32", optimizer=optimizer))
    assert result["outcome"] == "INVALID"
    assert "not a finite number from step" in result["invalid_reason"]
    assert result["loss_last"] is None
    assert '"loss": null' in RunPaths(tmp_path / "run").steps.read_text()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expected_gpu": "V100"}, "it ran on the CPU, V100 was planned"),
        ({"steps": 4}, "2 steps were measured, at least 3 are needed"),
    ],
)
def test_a_run_that_cannot_be_compared_is_invalid(changes: dict[str, Any], reason: str, run_plan: RunPlan) -> None:
    result = run_plan(make_plan("z2", **changes))
    assert (result["outcome"], result["invalid_reason"]) == ("INVALID", reason)
    assert result["tokens_per_second"] is not None


def test_a_wrong_number_of_ranks_is_invalid_and_trains_nothing(run_plan: RunPlan) -> None:
    result = run_plan(make_plan("z2", world_size=2))
    assert result["outcome"] == "INVALID"
    assert result["invalid_reason"].startswith("1 ranks were started, the plan is for 2")
    assert result["measured_steps"] == 0


def test_the_rank_that_failed_first_is_the_cause(tmp_path: Path, copies: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(HERE / "rank_1_fails.py")]
    process = start_worker(tmp_path / "run", make_plan("z2", world_size=2), *launch, **variables_for(copies))
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1, errors[-3000:]
    result = read_json(RunPaths(tmp_path / "run").result)
    assert result is not None
    assert (result["outcome"], result["failed_rank"]) == ("FAILED", 1)
    assert result["outcome_reason"] == "rank 1: ValueError: broken on purpose"
    assert json.loads(RunPaths(tmp_path / "run").failure(1).read_text())["local_rank"] == 1


class FullLog(io.StringIO):
    """A log on a disk that has no room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def without_room(until: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and logs take nothing until then."""
    write = RunPaths.write

    def full(paths: RunPaths, path: Path, value: Any) -> None:
        if not until():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(paths, path, value)

    monkeypatch.setattr(RunPaths, "write", full)
    monkeypatch.setattr(sys, "stderr", FullLog())


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room(
    run_plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(failure.time, "sleep", pauses.append)
    fail_at_step(6, OSError(errno.ENOSPC, "No space left on device"), monkeypatch)
    without_room(lambda: len(pauses) > 2, monkeypatch)
    result = run_plan(make_plan("ddp"))
    assert len(pauses) == 3
    assert result["outcome_reason"] == "rank 0: OSError: [Errno 28] No space left on device"
    assert read_json(RunPaths(tmp_path / "run").failure(0)) is not None


def test_a_disk_that_stays_full_does_not_hold_a_rank_for_ever(
    run_plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(failure, "_PATIENCE_S", 0.0)
    fail_at_step(6, ValueError("no"), monkeypatch)
    without_room(lambda: False, monkeypatch)
    with pytest.raises(AssertionError):  # there is no result, for which there was no room
        run_plan(make_plan("ddp"))
    assert "failures cannot be written: [Errno 28] No space left on device" in capsys.readouterr().out
