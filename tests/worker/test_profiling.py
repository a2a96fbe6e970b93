"""What a step is made of: shares that add up to it, whatever overlaps, of made-up traces and of real ones of torch.profiler."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_plans import RunPlan, make_plan
from torch.profiler import ProfilerActivity, profile, record_function

import hpc_llm
from hpc_llm.errors import RequestError
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.profiling import window
from hpc_llm.worker.profiling.events import BATCH, END, OPTIMIZER, STEP
from hpc_llm.worker.profiling.intervals import Span, length, shared_out, union, within
from hpc_llm.worker.profiling.summary import summarize

pytestmark = pytest.mark.train
NAMES = ["compute", "optimizer", "communication", "copies", "idle"]
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(st.lists(SPANS, min_size=3, max_size=3), SPANS)
def test_each_moment_is_counted_once(kinds: list[list[Span]], windows: list[Span]) -> None:
    names = dict(zip("abc", kinds, strict=True))
    found = shared_out(names, windows, "rest")
    moments = [m for m in range(60) if any(b <= m < e for b, e in windows)]
    expected = dict.fromkeys([*names, "rest"], 0)
    for m in moments:
        expected[next((n for n, spans in names.items() if any(b <= m < e for b, e in spans)), "rest")] += 1
    assert found == expected and sum(found.values()) == length(union(windows))
    assert length(within(kinds[0], windows)) == expected["a"]


def event(
    name: str, category: str, begin: float, time_: float, thread: Any = 1, link: int | None = None
) -> dict[str, Any]:
    arguments = {} if link is None else {"correlation": link}
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": begin,
        "dur": time_,
        "pid": 1,
        "tid": thread,
        "args": arguments,
    }


GPU = [
    event(STEP, "user_annotation", 0, 1000),
    event(BATCH, "user_annotation", 10, 90),
    event("aten::mm", "cpu_op", 100, 20),
    event("cudaLaunchKernel", "cuda_runtime", 105, 5, link=7),
    event("aten::item", "cpu_op", 300, 100),
    event("cudaStreamSynchronize", "cuda_runtime", 310, 80),
    event(OPTIMIZER, "user_annotation", 500, 50),
    event("cudaLaunchKernel", "cuda_runtime", 510, 5, link=8),
    event(END, "user_annotation", 600, 400),
    event("cudaDeviceSynchronize", "cuda_runtime", 601, 398),
    event("gemm", "kernel", 100, 300, thread="s7", link=7),
    event("ncclDevKernel_AllReduce_Sum_bf16", "kernel", 350, 200, thread="s9", link=9),
    event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 500, 100, thread="s7", link=10),
    event("adam", "kernel", 700, 100, thread="s7", link=8),
    event("gemm", "kernel", 1000, 50, thread="s7", link=11),  # of no marked step
    {"ph": "i", "name": "an instant", "ts": 5},
    {"ph": "X", "name": "without an end", "cat": "kernel", "ts": 5},
]


def test_what_overlaps_on_a_gpu_goes_to_computing_first_and_kernels_to_who_launched_them() -> None:
    found = summarize({"traceEvents": GPU})
    assert found is not None
    micro = {name: round(seconds * 1e6, 6) for name, seconds in found["seconds"].items()}
    assert micro == {"compute": 300, "optimizer": 100, "communication": 150, "copies": 50, "idle": 400}
    assert list(found["shares"]) == NAMES and sum(found["shares"].values()) == pytest.approx(1)
    assert found["hidden_communication_s"] * 1e6 == pytest.approx(50)
    rows = {row["name"]: (row["kind"], round(row["time_s"] * 1e6, 6), row["calls"]) for row in found["kernels"]}
    assert rows["gemm"] == ("compute", 300, 1) and rows["adam"] == ("optimizer", 100, 1)
    waits = {(row["what"], row["inside"]): round(row["time_s"] * 1e6, 6) for row in found["waits"]}
    assert waits == {
        ("next batch", None): 90,
        ("aten::item", None): 100,
        ("the device at the end of the step", None): 400,
    }


def test_a_trace_without_a_marked_step_says_nothing() -> None:
    assert summarize({"traceEvents": GPU[1:]}) is None
    assert summarize({}) is None


def traced(tmp_path: Path, act: Callable[[], None]) -> dict[str, Any]:
    """What a profile says of two steps that do this."""
    act()  # what is slow the first time only
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            with record_function(STEP):
                act()
    profiler.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    with gzip.open(tmp_path / "trace.json.gz") as file:
        found = summarize(json.load(file))
    assert found is not None and found["steps"] == 2
    return found


def known_program(tmp_path: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """What a profile says of steps that sleep and copy, and how long each part took by the clock."""
    source, target = torch.ones(1 << 23), torch.zeros(1 << 23)
    took: dict[str, list[float]] = {"copies": [], "idle": [], "optimizer": [], "batch": [], "compute": []}

    def timed(what: str, act: Callable[[], object]) -> None:
        began = time.perf_counter()
        act()
        took[what].append(time.perf_counter() - began)

    def step() -> None:
        with record_function(BATCH):
            timed("batch", lambda: time.sleep(0.05))
        timed("copies", lambda: [target.copy_(source) for _ in range(4)])
        timed("idle", lambda: time.sleep(0.08))
        timed("compute", lambda: [torch.sin(source, out=target) for _ in range(2)])  # to free memory is no operator
        with record_function(OPTIMIZER):
            timed("optimizer", lambda: [target.add_(source).copy_(source) for _ in range(2)])

    found = traced(tmp_path, step)
    return found, {what: sum(times[1:]) / 2 for what, times in took.items()}  # the first was not profiled


def test_known_sleeps_and_copies_are_found(tmp_path: Path) -> None:
    for _ in range(20):  # between two operators another process may get the core: that is idle, and no operator's time
        found, clock = known_program(tmp_path)
        seconds = found["seconds"]
        assert sum(seconds.values()) == pytest.approx(found["step_time_s"])
        assert sum(found["shares"].values()) == pytest.approx(1)
        assert seconds["idle"] >= clock["idle"] + clock["batch"] - 1e-3
        assert all(seconds[kind] <= clock[kind] + 1e-3 for kind in ("copies", "compute", "optimizer"))
        assert seconds["communication"] == 0 and found["device"] == "cpu"
        (batch,) = (row for row in found["waits"] if row["what"] == "next batch")
        assert batch["time_s"] >= clock["batch"] - 1e-3 and batch["calls"] == 1
        calls = {(row["name"], row["kind"]): row["calls"] for row in found["kernels"]}
        assert calls["aten::copy_", "copies"] == 4 and calls["aten::copy_", "optimizer"] == 2
        assert calls["aten::sin", "compute"] == 2
        if all(seconds[kind] == pytest.approx(clock[kind], rel=0.1) for kind in ("copies", "compute", "optimizer")):
            return
    pytest.fail(f"{seconds} in place of {clock}")


def test_a_profile_lies_behind_the_measured_steps_and_changes_nothing_of_them(
    run_plan: RunPlan, tmp_path: Path
) -> None:
    plain = run_plan(make_plan("z3"))
    losses = [row["loss"] for row in read_json_lines(RunPaths(tmp_path / "run").steps)]
    (tmp_path / "run").rename(tmp_path / "plain")
    result = run_plan(make_plan("z3", profile="torch"))
    paths = RunPaths(tmp_path / "run")
    assert [row["loss"] for row in read_json_lines(paths.steps)] == losses
    assert (result["measured_steps"], result["outcome"]) == (plain["measured_steps"], "COMPLETED")
    found = read_json(paths.profile)
    assert found is not None and list(found["seconds"]) == NAMES
    assert sum(found["shares"].values()) == pytest.approx(1) and found["steps"] == window.STEPS
    assert found["shares"]["compute"] > 0 and found["shares"]["optimizer"] > 0
    assert found["measured_step_time_s"] == pytest.approx(result["step_time_s_mean"])
    assert [row["time_s"] for row in found["kernels"]] == sorted(
        (row["time_s"] for row in found["kernels"]), reverse=True
    )
    with gzip.open(paths.root / found["trace"]) as file:
        assert sum(one.get("name") == STEP for one in json.load(file)["traceEvents"]) >= window.STEPS


def test_a_profile_that_fails_costs_only_itself(
    run_plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(window, "take_step", lambda *_: (_ for _ in ()).throw(RuntimeError("no memory for a profiler")))
    assert run_plan(make_plan("ddp", profile="torch"))["outcome"] == "COMPLETED"
    assert "no profile: RuntimeError: no memory for a profiler" in capfd.readouterr().out
    assert not RunPaths(tmp_path / "run").profile.exists()


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_trace_that_cannot_be_kept_leaves_no_half_of_it(tmp_path: Path, is_whole: bool) -> None:
    class OnAFullDisk:
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_bytes(gzip.compress(b'{"traceEvents": []}')[: None if is_whole else 9])
            if not is_whole:
                raise OSError(28, "No space left on device")

    record: Any = SimpleNamespace(paths=RunPaths(tmp_path))
    with pytest.raises(ValueError if is_whole else OSError):
        window._keep(record, OnAFullDisk())
    assert list(tmp_path.iterdir()) == []


def test_the_console_profiles_two_ranks_and_refuses_what_it_does_not_know(tmp_path: Path, copied_ranks: None) -> None:
    program = Path(sys.executable).parent / "hpc-llm"
    asked = (
        "--cluster",
        "local",
        "--method",
        "ddp",
        "--model",
        "tiny",
        "--steps",
        "4",
        "--warmup-steps",
        "1",
        "--logs",
        "logs",
    )
    sizes = ("--micro-batch-size", "2", "--sequence-length", "32", "--set", "tasks_per_node=2")

    def submit(*more: str) -> subprocess.CompletedProcess[str]:
        words = [program, "submit", *asked, *sizes, *more]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    done = submit("--profile", "torch", "--run-id", "two", "--wait")
    assert done.returncode == 0, done.stderr
    found = read_json(RunPaths(tmp_path / "logs" / "two").profile)  # `--wait` waits for it
    assert (
        found is not None and found["shares"]["communication"] > 0 and sum(found["shares"].values()) == pytest.approx(1)
    )
    for words, said in (
        (
            ("--profile", "torhc"),
            "there is no profiler 'torhc': did you mean 'torch'? Valid: ncu, nsys, rocprof, torch.",
        ),
    ):
        refused = submit(*words)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    with pytest.raises(RequestError, match="with task infer no step of training is there to be looked into"):
        hpc_llm.plan(cluster="local", method="ddp", model="tiny", task="infer", profile="torch")
    assert [path.name for path in (tmp_path / "logs").iterdir() if not path.name.startswith(".")] == ["two"]
