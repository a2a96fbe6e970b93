"""nsys, ncu and rocprof: where they stand in a script, what they leave, and what is said where they are missing or locked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from copied_ranks import variables_for
from profiling_programs import write_profilers
from standin import Machine

import hpc_llm
from hpc_llm.errors import HpcLlmError
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "a site")
    write_profilers(made.folder / "bin")
    return made


NVIDIA = {
    "gpu__vendor": "nvidia", "gpu__model": "V100-SXM2-32GB", "gpu__arch": "sm_70", "gpu__memory_gib": 32, "gpu__per_node": 2,
    "gpu__capabilities": {"bf16": False, "flash_attention_2": False, "int8": False, "nf4": True}, "gpu__peak_tflops": {},
}  # fmt: skip


def test_each_rank_leaves_a_report_of_its_own(machine: Machine) -> None:
    """The launcher's stand-in starts one rank, which Open MPI's variable calls number 3."""
    text = machine.script(profile="rocprof")
    assert "profile_ranks rocprofv3 --runtime-trace" in text and "-rank-@" in text
    ended = machine.run(text, OMPI_COMM_WORLD_RANK="3", number="9")
    assert ended.code == 0 and ended.seen is not None, ended.stderr
    assert [path.name for path in RunPaths(ended.run).profiles()] == ["profile-rank-3_results.pftrace"]
    assert ended.seen["argv"][0] == "-u" or "--run-dir" in ended.seen["argv"]
    machine.behave("4")
    (ended.run / "exit.json").rename(ended.run / "before.json")
    again = machine.run(text, OMPI_COMM_WORLD_RANK="3")
    assert again.code == 4, "the exit code is the rank's"
    assert (ended.run / "tries" / "1" / "profile-rank-3_results.pftrace").is_file()


def test_the_module_of_a_profiler_is_loaded_where_it_is_asked_for(machine: Machine) -> None:
    cluster = machine.cluster(prelude__profilers={"rocprof": "rocm-profiling"})
    assert "load_module rocm-profiling" not in machine.script(cluster)
    ended = machine.run(machine.script(cluster, profile="rocprof"))
    assert ended.code == 0 and "module load rocm-profiling" in machine.log.read_text()


def test_locked_counters_are_told_and_the_run_counts(machine: Machine) -> None:
    text = machine.script(machine.cluster(**NVIDIA), profile="ncu", gpus_per_node=1)
    ended = machine.run(text)
    assert [path.name for path in RunPaths(ended.run).profiles()] == ["profile-rank-0.ncu-rep"]
    (ended.run / "exit.json").rename(ended.run / "before.json")
    (ended.run / "log.out").write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access\n")
    (ended.run / "profile-rank-0.ncu-rep").unlink()
    locked = machine.run(text, COUNTERS_LOCKED="1")
    said = "the profiler ncu left nothing: the counters of this node's GPUs are locked for users"
    assert locked.code == 0 and said in locked.stderr and locked.exit["reason"].startswith(said)


@pytest.mark.parametrize(
    ("cluster", "asked", "said"),
    [
        ("taiwania2", {"profile": "ncu"}, "the plan has 8 ranks: it runs each kernel several times"),
        ("taiwania2", {"profile": "rocprof"}, "rocprofv3 knows no GPU of nvidia. Use --profile nsys or ncu or torch"),
        ("mi210", {"profile": "nsys"}, "nsys knows no GPU of amd. Use --profile rocprof or torch"),
        ("local", {"profile": "ncu"}, "ncu looks at kernels of a GPU, and there is none. Use --profile torch"),
        ("local", {"profile": "rocprofv3"}, "it is called rocprof here. Use --profile rocprof"),
        ("taiwania2", {"profile": "nsys", "task": "tune"}, "Profile a training of the size that it finds"),
    ],
)
def test_what_can_see_nothing_is_refused_when_planning(cluster: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(HpcLlmError, match=said.replace("(", r"\(")):
        hpc_llm.plan(cluster=cluster, method="ddp", model="tiny", account="ACD110018", **asked)


@pytest.mark.train
def test_two_ranks_of_this_machine_are_profiled_and_the_tables_name_their_files(tmp_path: Path, copies: Path) -> None:
    programs = write_profilers(tmp_path / "programs")
    environ = {**os.environ, **variables_for(copies), "PATH": f"{programs}:{os.environ['PATH']}"}
    words = [
        "submit", "--cluster", "local", "--method", "ddp", "--model", "tiny", "--steps", "4", "--warmup-steps", "1",
        "--micro-batch-size", "2", "--sequence-length", "32", "--set", "tasks_per_node=2", "--run-id", "two", "--profile", "nsys",
        "--wait",
    ]  # fmt: skip

    def ask(*words: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        program = str(Path(sys.executable).with_name("hpc-llm"))
        return subprocess.run(
            [program, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False
        )

    refused = ask(*words, environ=dict(os.environ))
    assert (
        refused.returncode == 2
        and "its program nsys is not on PATH here. Install it, or take --profile torch" in refused.stderr
    )
    done = ask(*words, environ=environ)
    assert done.returncode == 0 and "take times from a run without it" in done.stderr, done.stderr
    run = RunPaths(tmp_path / "logs" / "two")
    names = ["profile-rank-0.nsys-rep", "profile-rank-1.nsys-rep"]
    assert [path.name for path in run.profiles()] == names
    assert (read_json(run.result) or {})["outcome"] == "COMPLETED"
    [row] = hpc_llm.parse(tmp_path / "logs")
    assert row.profile == " ".join(names)
    assert ask("report", "logs", "-o", "report", environ=environ).returncode == 0
    text = (tmp_path / "report" / "results.md").read_text()
    assert "Files of profiles" in text and "nsys-ui" in text and names[1] in text


def test_ncu_looks_into_as_many_kernels_as_are_asked_for(machine: Machine) -> None:
    cluster = machine.cluster(**NVIDIA)
    asked: dict[str, Any] = {"profile": "ncu", "gpus_per_node": 1}
    assert "--launch-count=200\n" in machine.script(cluster, **asked)
    assert "--launch-count=30\n" in machine.script(cluster, set=["profile_kernels=30"], **asked)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"profile": "nsys", "set": ["profile_kernels=30"]}, "it belongs to --profile ncu"),
        ({"set": ["profile_kernels=30"]}, "it belongs to --profile ncu"),
        ({"profile": "ncu", "set": ["profile_kernels=0"]}, "it must be at least 1"),
        ({"profile": "ncu", "set": ["profile_kernels=many"]}, "a whole number is needed"),
    ],
)
def test_a_number_of_kernels_that_means_nothing_is_refused(machine: Machine, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(HpcLlmError, match=said):
        machine.script(machine.cluster(**NVIDIA), gpus_per_node=1, **asked)
