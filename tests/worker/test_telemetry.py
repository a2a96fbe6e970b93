"""The thread that watches GPUs, with samplers that stand in for a driver; and the drivers' packages, stood in for too."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_plans import RunPlan, make_plan

from hpc_llm.records.run import RunPaths
from hpc_llm.worker.measure import samplers, telemetry
from hpc_llm.worker.measure.samplers import GpuState
from hpc_llm.worker.measure.telemetry import Gpus, Telemetry
from hpc_llm.worker.measure.window import Window

KEYS = "time gpu utilization memory_used_bytes power_w temperature_c sm_clock_hz sm_activity sm_occupancy".split()
TWO_GPUS = Gpus(node=0, addresses=("0000:3b:00.0", "0000:5e:00.0"), total=2)


class StandIn:
    """Two GPUs: one busy, one half as busy that tells no temperature. The thread that asked is remembered."""

    def __init__(self, fails: Callable[[int], bool] = lambda n: False) -> None:
        self.calls = 0
        self.threads: set[str] = set()
        self._fails = fails

    def sample(self) -> Sequence[GpuState]:
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        if self._fails(self.calls):
            raise RuntimeError("the GPU fell off the bus")
        busy = GpuState(utilization=0.8, memory_used_bytes=1 << 30, power_w=300.0, temperature_c=60.0, sm_activity=0.7)
        half = GpuState(utilization=0.4, memory_used_bytes=1 << 30, power_w=100.0, temperature_c=None, sm_activity=0.3)
        return [busy, half]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def said(result: dict[str, Any]) -> list[str]:
    return [sentence for sentence in result["adaptations"] if "telemetry" in sentence]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_thread_samples_until_it_is_stopped(tmp_path: Path) -> None:
    sampler, sentences, path = StandIn(), list[str](), tmp_path / "telemetry.jsonl"
    watching = Telemetry(sampler, path, sentences, interval_s=0.01)
    watching.start()
    wait_for(lambda: sampler.calls >= 5)
    watching.stop()
    calls = sampler.calls
    assert sampler.threads == {"telemetry"}
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}
    found = rows(path)
    assert [list(row) for row in found] == [KEYS] * (2 * calls)
    assert [row["gpu"] for row in found] == [0, 1] * calls
    assert found[1]["temperature_c"] is None and abs(found[0]["time"] - time.time()) < 60
    assert sentences == []


def test_a_sampler_that_raises_is_said_once_and_asked_again(tmp_path: Path) -> None:
    sampler, sentences = StandIn(fails=lambda n: n % 2 == 1), list[str]()
    watching = Telemetry(sampler, tmp_path / "telemetry.jsonl", sentences, interval_s=0.01)
    watching.start()
    wait_for(lambda: sampler.calls >= 6)
    watching.stop()
    assert sentences == ["The GPU telemetry has gaps: RuntimeError: the GPU fell off the bus."]
    assert len(rows(tmp_path / "telemetry.jsonl")) == sampler.calls // 2 * 2


def test_a_driver_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    class Hanging:
        def sample(self) -> Sequence[GpuState]:
            let_go.wait(100)
            return []

    monkeypatch.setattr(telemetry, "_WAIT_FOR_DRIVER_S", 0.05)
    watching = Telemetry(Hanging(), tmp_path / "telemetry.jsonl", [], interval_s=0.01)
    watching.start()
    began = time.monotonic()
    watching.stop()
    let_go.set()
    assert time.monotonic() - began < 50


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[StandIn], None]:
    """Let training on the CPU believe that it uses two GPUs, which the given sampler sees many times a second."""

    def watch(sampler: StandIn) -> None:
        monkeypatch.setattr(telemetry, "find_gpus", lambda device, ranks: TWO_GPUS)
        monkeypatch.setattr(samplers, "open_sampler", lambda addresses, is_rocm: sampler)
        monkeypatch.setattr(telemetry, "INTERVAL_S", 0.005)

    return watch


@pytest.mark.train
def test_training_records_it_and_the_result_has_the_means(
    watched: Callable[[StandIn], None], run_plan: RunPlan, tmp_path: Path
) -> None:
    watched(StandIn())
    result = run_plan(make_plan("ddp", steps=30))
    assert result["outcome"] == "COMPLETED" and said(result) == []
    assert result["gpu_utilization_mean"] == pytest.approx(0.6)
    assert result["gpu_power_w_mean"] == pytest.approx(200)
    assert result["sm_activity_mean"] == pytest.approx(0.5) and result["sm_occupancy_mean"] is None
    assert result["energy_j"] == pytest.approx(400 * result["measured_window_s"], rel=1e-6)
    assert rows(RunPaths(tmp_path / "run").telemetry)[0]["utilization"] == 0.8
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}


def test_what_was_seen_while_the_steps_waited_is_in_no_mean(tmp_path: Path) -> None:
    """One sample a second of ten; an evaluation took three of them, and the sample behind it covers its end."""
    paths, window = RunPaths(tmp_path), Window(torch.device("cpu"))
    window.span, window.left_out, window.elapsed_s = (100.0, 110.0), [(104.2, 107.2)], 7.0
    with paths.telemetry.open("w") as file:
        for second in range(98, 113):
            power = 10.0 if 104 < second <= 108 or not 100 <= second <= 110 else 600.0
            file.write(json.dumps({"time": second, "gpu": 0, "power_w": power}) + "\n")
    record: Any = SimpleNamespace(window=window, paths=paths, ranks=SimpleNamespace(local_rank=0, world_size=1))
    found = telemetry.means(record, Gpus(node=0, addresses=("0000:3b:00.0",), total=1), torch.device("cpu"))
    assert found == {"gpu_power_w_mean": 600.0, "energy_j": 4200.0}


@pytest.mark.train
def test_training_goes_on_without_a_driver_that_answers(
    watched: Callable[[StandIn], None], run_plan: RunPlan, tmp_path: Path
) -> None:
    watched(StandIn(fails=lambda n: True))
    result = run_plan(make_plan("ddp"))
    assert result["outcome"] == "COMPLETED"
    assert said(result) == ["The GPU telemetry has gaps: RuntimeError: the GPU fell off the bus."]
    assert [result[key] for key in ("gpu_utilization_mean", "gpu_power_w_mean", "energy_j")] == [None] * 3
    assert RunPaths(tmp_path / "run").telemetry_files() == []


@pytest.mark.train
def test_the_thread_ends_when_a_step_fails(
    watched: Callable[[StandIn], None], run_plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **more: Any) -> None:
        raise RuntimeError("CUDA out of memory")

    watched(StandIn())
    monkeypatch.setattr("hpc_llm.worker.tasks.training.run_steps", fail)
    result = run_plan(make_plan("ddp"))
    assert result["outcome"] == "OOM_DEVICE" and result["energy_j"] is None
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.train
def test_without_a_gpu_there_is_no_file(run_plan: RunPlan, tmp_path: Path) -> None:
    result = run_plan(make_plan("ddp"))
    assert result["gpu_utilization_mean"] is None and said(result) == []
    assert RunPaths(tmp_path / "run").telemetry_files() == []


def test_a_driver_that_cannot_be_opened_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpc_llm.worker.ranks import find_ranks
    from hpc_llm.worker.result import Record

    def refuse(addresses: Sequence[str], is_rocm: bool) -> None:
        raise OSError("libnvidia-ml.so.1 is missing")

    monkeypatch.setattr(samplers, "open_sampler", refuse)
    record = Record(paths=RunPaths(tmp_path), ranks=find_ranks({}), plan=make_plan())
    with telemetry.recording(record, TWO_GPUS):
        pass
    assert record.adaptations == ["There is no GPU telemetry: OSError: libnvidia-ml.so.1 is missing."]
    assert list(tmp_path.iterdir()) == []


def test_each_node_knows_its_own_gpus() -> None:
    ranks: list[tuple[str, str | None]] = [("b", "0:1"), ("a", "0:1"), ("b", "0:2"), ("a", "0:1")]
    assert telemetry.place(ranks, "b") == Gpus(node=0, addresses=("0:1", "0:2"), total=3)
    assert telemetry.place(ranks, "a") == Gpus(node=1, addresses=("0:1",), total=3), "two ranks share a GPU"
    assert telemetry.place([*ranks, ("c", None)], "a") == Gpus()


def test_each_node_has_its_file(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for node in (1, 0):
        paths.telemetry_of(node).write_text("")
    assert [path.name for path in paths.telemetry_files()] == ["telemetry-1.jsonl", "telemetry.jsonl"]
    assert paths.telemetry == paths.telemetry_of(0)


PYNVML = """
from types import SimpleNamespace as Values
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
NVML_SUCCESS, NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 0, 1
NVML_GPM_METRICS_GET_VERSION, NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 1, 2, 3
def nvmlInit(): pass
def nvmlDeviceGetHandleByPciBusId(address): return address
def nvmlDeviceGetUtilizationRates(gpu): return Values(gpu=97, memory=50)
def nvmlDeviceGetMemoryInfo(gpu): return Values(used=1 << 34)
def nvmlDeviceGetPowerUsage(gpu):
    if gpu == "0000:5e:00.0": raise NVMLError_NotSupported()
    return 281400
def nvmlDeviceGetTemperature(gpu, sensor):
    assert sensor == NVML_TEMPERATURE_GPU
    return 64
def nvmlDeviceGetClockInfo(gpu, clock):
    assert clock == NVML_CLOCK_SM
    return 1980
def nvmlGpmQueryDeviceSupport(gpu): return Values(isSupportedDevice=gpu != "0000:5e:00.0")
class c_nvmlGpmMetricsGet_t:
    def __init__(self): self.metrics = [Values(nvmlReturn=0), Values(nvmlReturn=0)]
taken = []
def nvmlGpmSampleAlloc(): return Values(at=None)
def nvmlGpmSampleGet(gpu, sample):
    taken.append(sample)
    sample.at = len(taken)
    return sample
def nvmlGpmMetricsGet(asked):
    assert asked.version == 1 and asked.numMetrics == 2
    assert asked.sample2.at == asked.sample1.at + 1 and len({id(one) for one in taken}) <= 2
    for metric in asked.metrics: metric.value = {2: 71.5, 3: 20.25}[metric.metricId]
    if asked.sample2.at == 3: asked.metrics[1].nvmlReturn = 3
"""
AMDSMI = """
from types import SimpleNamespace as Values
class AmdSmiLibraryException(Exception): pass
AmdSmiTemperatureType = Values(JUNCTION="hot")
AmdSmiTemperatureMetric = Values(CURRENT="now")
def amdsmi_init(): pass
def amdsmi_get_processor_handle_from_bdf(address): return address
def amdsmi_get_gpu_activity(gpu): return {"gfx_activity": 97, "mm_activity": "N/A"}
def amdsmi_get_gpu_vram_usage(gpu): return {"vram_total": 65520, "vram_used": 16384}
def amdsmi_get_power_info(gpu):
    if gpu == "0000:5e:00.0": return {"average_socket_power": "N/A", "current_socket_power": "N/A"}
    return {"average_socket_power": "N/A", "current_socket_power": 281.4}
def amdsmi_get_temp_metric(gpu, sensor, metric):
    if gpu == "0000:5e:00.0": raise AmdSmiLibraryException()
    assert (sensor, metric) == ("hot", "now")
    return 64
AmdSmiClkType = Values(GFX="gfx")
def amdsmi_get_clock_info(gpu, kind): return {"clk": 1700 if kind == "gfx" else "N/A"}
"""
PROGRAM = """
import json, sys
from hpc_llm.worker.measure.samplers import open_sampler
sampler = open_sampler(["0000:3b:00.0", "0000:5e:00.0"], sys.argv[1] == "rocm")
looks = [sampler.sample() for _ in range(int(sys.argv[2]))] if sampler else None
print(json.dumps(looks and [[state.to_dict() for state in states] for states in looks]))
assert "torch" not in sys.modules
"""


def ask(kind: str, folder: Path, looks: int = 1) -> Any:
    """What a sampler says at each look in a process that finds the packages in `folder` before all others."""
    path = os.pathsep.join([str(folder), str(Path(samplers.__file__).parents[2])])
    command = [sys.executable, "-c", PROGRAM, kind, str(looks)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "package", "code", "hidden", "hertz"),
    [("cuda", "pynvml", PYNVML, {"power_w"}, 1.98e9), ("rocm", "amdsmi", AMDSMI, {"power_w", "temperature_c"}, 1.7e9)],
)
def test_the_drivers_units_become_si(
    kind: str, package: str, code: str, hidden: set[str], hertz: float, tmp_path: Path
) -> None:
    (tmp_path / f"{package}.py").write_text(code)
    [[first, second]] = ask(kind, tmp_path)
    seen = {"utilization": 0.97, "memory_used_bytes": 1 << 34, "power_w": 281.4, "temperature_c": 64}
    assert first == {**seen, "sm_clock_hz": hertz, "sm_activity": None, "sm_occupancy": None}
    assert second == {**first, **dict.fromkeys(hidden)}


def test_busy_sms_are_counted_between_two_looks_where_the_gpu_counts_them(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(PYNVML)
    looks = ask("cuda", tmp_path, looks=4)
    counted = [(first["sm_activity"], first["sm_occupancy"]) for first, _ in looks]
    assert counted == [(None, None), (0.715, 0.2025), (0.715, None), (0.715, 0.2025)]
    assert all(second["sm_activity"] is None for _, second in looks)


@pytest.mark.parametrize(
    "lacks",
    ["del nvmlGpmQueryDeviceSupport", "def nvmlGpmQueryDeviceSupport(gpu): raise NVMLError()", "def nvmlGpmSampleGet(gpu, sample): raise NVMLError()"],
)  # fmt: skip
def test_without_such_counters_all_else_is_told(lacks: str, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(f"{PYNVML}\n{lacks}\n")
    for first, _ in ask("cuda", tmp_path, looks=3):
        assert first["sm_activity"] is None and first["utilization"] == 0.97


@pytest.mark.parametrize(("kind", "package"), [("cuda", "pynvml"), ("rocm", "amdsmi")])
def test_without_the_package_there_is_no_sampler(kind: str, package: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text("raise ImportError('not here')\n")
    assert ask(kind, tmp_path) is None


def test_the_real_package_has_what_is_asked_of_it() -> None:
    import pynvml  # of the extra "train"

    for name in (line.split("(")[0].removeprefix("def ") for line in PYNVML.splitlines() if line.startswith("def ")):
        assert callable(getattr(pynvml, name))
    assert issubclass(pynvml.NVMLError_NotSupported, pynvml.NVMLError)
    with contextlib.suppress(pynvml.NVMLError):  # no driver here
        samplers.NvmlSampler([])
