"""What all tests share: no settings of the person who runs them, and tools that must be there."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pace import slowness

pytest_plugins = ("copied_ranks",)

# An example that waits for a busy machine is none that fails.
hypothesis.settings.register_profile(
    "shared-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared-machine")

LONGEST = (
    "slurm/test_chaos.py", "worker/test_resume.py", "diagnose/test_diagnose_slurm.py", "worker/test_finetune.py",
    "slurm/test_slurm_jobs.py", "worker/test_training.py", "slurm/test_identity.py", "worker/test_keeping.py",
    "slurm/test_requeue.py", "runs/test_one_judge.py", "slurm/test_keeping_on_slurm.py", "worker/test_engines.py",
    "slurm/test_slurm_states.py", "test_study_runs.py", "test_finetune_example.py", "test_shared_folders.py",
    "worker/test_searching.py", "slurm/test_ledger.py", "worker/test_tensor_parallel.py", "worker/test_hybrid_sharding.py",
    "worker/test_launchers.py", "worker/test_worker_signals.py",
)  # fmt: skip
"""Files of half a minute and more: begun first, so that no process of several ends long after the others; those that wait
for Slurm and those that compute by turns, so that they share the cores."""

USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


def pytest_collection_finish() -> None:
    # What pytest knows of eleven thousand tests is not looked through each time for what nobody holds any more.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How long the suite took means something beside how slow the machine is."""
    terminalreporter.line(f"For a fixed work this machine takes {slowness():.1f} times as long as a usual one.")


def pytest_configure(config: pytest.Config) -> None:
    # A limit only finds what hangs, so it grows with how slow the machine is.
    if not hasattr(config, "workerinput"):  # a process of several is told
        config.option.timeout = float(config.option.timeout or config.getini("timeout")) * slowness()
    # In the background of a shell that is no terminal's, or under nohup, what a test starts would ignore them as this process does.
    for number, usual in USUAL.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def _shared_cache(made: pytest.TempPathFactory) -> Path:
    """One cache for all processes: compiled templates and the plotting library are made once."""
    ours = made.getbasetemp()
    cache = (ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours) / "cache"
    (cache / "hpc-llm").mkdir(parents=True, exist_ok=True)
    return cache


@pytest.fixture(autouse=True, scope="session")
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the user's own profiles nor an account of the shell decide a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_CACHE_HOME", str(_shared_cache(tmp_path_factory)))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        for name in ("SBATCH_ACCOUNT", "HPC_LLM_LOGS", "HPC_LLM_CACHE", "HPC_LLM_DEBUG"):
            patch.delenv(name, raising=False)
        # Threads that spin while they wait for each other cost ten times the work where tests share the cores.
        patch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        yield


@pytest.fixture(scope="session")
def tool() -> Callable[[str, str], str]:
    """`tool(command, package)`: the path of a program; where it is missing the test says how to get it."""

    def find(command: str, package: str) -> str:
        path = shutil.which(command)
        if path is not None:
            return path
        message = f"{command} is missing: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)

    return find


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with an empty home, configuration and cache folder beside it."""
    for name in ("cwd", "home", "config"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cwd"
