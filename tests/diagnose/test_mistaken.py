"""Words that several causes share: a signal, a node that refuses, a warning, an error while a server stops as it was told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]

TRACEBACK = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\n'
REFUSED = "srun: error: Task launch for StepId=96.0 failed on node {node}: {why}\n"
TIMED_OUT = "Socket timed out on send/recv operation"
CONFIG = "Failed to load generation config for /m/a: /m/a does not appear to have a file named generation_config.json."


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("using device: mps\n[1]    15017 bus error  python3 train.py\n", "segfault"),
        ("[1]    15017 bus error  python3 train.py\n", "segfault"),
        ("run.sh: line 4: 15017 Bus error: 10           python3 train.py\n", "segfault"),
        ("using device: mps\nFatal Python error: Bus error\n", "segfault"),
        ("[1]    15017 bus error (core dumped)  python3 train.py\n", "bus_error"),
        ("run.sh: line 4: 15017 Bus error               python3 train.py\n", "bus_error"),
        ("Fatal Python error: Bus error\n", "bus_error"),
        ("mps: /tmp/nvidia-mps of the node\nFatal Python error: Bus error\n", "bus_error"),
        ("RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error.\n", "bus_error"),
        ("[1]    15017 bus error  python3 t.py\nERROR: Unexpected bus error encountered in worker.\n", "bus_error"),
    ],
)
def test_a_bus_error_is_one_of_shared_memory_where_linux_says_so(diagnose: Diagnose, text: str, cause: str) -> None:
    found = diagnose(text)
    assert found.cause.id == cause
    assert ("--shm-size" in found.remedy) == (cause == "bus_error")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (REFUSED.format(node="n1", why=TIMED_OUT) + REFUSED.format(node="n2", why="No such process"), "munge"),
        (f"srun: error: Application launch failed: {TIMED_OUT}\n", "munge"),
        ("slurmstepd: error: execve(): /tmp/slurmd/job7/slurm_script: No such file or directory\n", "#!/bin/bash"),
        ("slurmstepd: error: container_p_join: open failed /scratch/7/.active: No such file or directory\n", "tmpfs"),
    ],
)
def test_a_step_that_did_not_start_lost_no_node(diagnose: Diagnose, text: str, advice: str) -> None:
    found = diagnose(text)
    assert found.cause.id == "launch_failed" and advice in found.remedy and "--exclude" not in found.remedy


def test_a_node_that_refuses_alone_may_be_left_out(diagnose: Diagnose) -> None:
    found = diagnose(REFUSED.format(node="n1", why=TIMED_OUT))
    assert found.cause.id == "launch_failed" and "--exclude=n1" in found.remedy
    lost = diagnose(REFUSED.format(node="n1", why=TIMED_OUT) + "srun: error: Node failure on n1\n")
    assert lost.cause.id == "node_fail"


def test_a_fault_of_a_kernel_is_none_of_the_gpu(diagnose: Diagnose) -> None:
    queue = ":0:rocdevice.cpp:3586: Callback: Queue 0x7f78 aborting with error : HSA_STATUS_ERROR_{} code: 0x1016\n"
    found = diagnose(queue.format("EXCEPTION: An HSAIL operation resulted in a hardware exception."))
    assert (found.cause.id, found.confidence, found.retry) == ("segfault", 0.7, False)
    assert "kernel" in found.remedy and "submit it again" not in found.remedy
    assert "will fail again" not in diagnose(queue.format("HARDWARE: Hardware exception.")).meaning


@pytest.mark.parametrize(
    ("end", "cause"), [(f"{TRACEBACK}ValueError: it needs b\n", "python_exception"), ("", "unknown")]
)
def test_what_a_program_proceeds_without_did_not_end_it(diagnose: Diagnose, end: str, cause: str) -> None:
    assert diagnose(f"{CONFIG} Proceeding without generation config.\n{end}").cause.id == cause
    assert diagnose(f"{CONFIG}\n{end}").cause.id == "model_missing"


def test_a_server_that_was_told_to_stop_has_not_failed(diagnose: Diagnose) -> None:
    told = (
        "(EngineCore pid=7) INFO 08-01 23:37:28 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM\n"
    )
    server = "(APIServer pid=3) ERROR 08-01 23:37:28 [async_llm.py:704] "
    frames = "".join(f"{server}{line}\n" for line in TRACEBACK.splitlines())
    missed = f"{frames}{server}vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    own = f"{frames}{server}KeyError: 'a'\n"
    assert diagnose(told + missed).cause.id == "unknown"
    assert diagnose(missed).cause.id == diagnose(told + own).cause.id == "python_exception"
    assert diagnose(missed + told).cause.id == "python_exception"


def test_a_model_type_that_is_not_known_may_be_the_checkpoints_own(diagnose: Diagnose) -> None:
    text = "ValueError: The checkpoint has model type `own_vl` but Transformers does not recognize this architecture.\n"
    remedy = diagnose(TRACEBACK + text).remedy
    assert "--upgrade transformers" in remedy and "trust_remote_code" in remedy
