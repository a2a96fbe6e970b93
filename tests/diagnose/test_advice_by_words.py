"""Advice that the words of the evidence decide: what is wrong there, and whose it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

Diagnose = Callable[[str], Diagnosis]

C10D = "[W socket.cpp:601] [c10d] The IPv4 network addresses of ({}) cannot be retrieved (gai error: {}).\n"
NO_NAME, NOT_NOW = "-2 - Name or service not known", "-3 - Temporary failure in name resolution"


@pytest.mark.parametrize(
    ("text", "retry", "is_list"),
    [
        (C10D.format("gpu[003-006], 29500", NO_NAME), False, True),
        (C10D.format("gpu003,gpu004, 29500", NO_NAME), False, True),
        (C10D.format("gpu003, 29500", NO_NAME), False, False),
        (C10D.format("gpu003, 29500", NOT_NOW), True, False),
        ("ssh: Could not resolve hostname gpu[1,7]: Name or service not known\n", False, True),
        ("ssh: Could not resolve hostname gpu1: Name or service not known\n", False, False),
        ("ssh: Could not resolve hostname gpu1: Temporary failure in name resolution\n", True, False),
    ],
)
def test_a_name_that_no_node_knows_is_not_known_next_time(
    diagnose: Diagnose, text: str, retry: bool, is_list: bool
) -> None:
    found = diagnose(text)
    assert found.cause.id == "unreachable" and found.retry is retry
    assert ("scontrol show hostnames" in found.remedy) is is_list


BARRIER = (
    "Traceback (most recent call last):\n"
    '  File "/w/train.py", line 9, in main\n    {}()\n'
    '  File "/e/torch/distributed/distributed_c10d.py", line 88, in {}\n    work = group.call()\n'
    "RuntimeError: CUDA error: out of memory\n"
)


@pytest.mark.parametrize(("call", "is_batch"), [("barrier", False), ("init_process_group", False), ("forward", True)])
def test_memory_that_ran_out_before_any_model_is_not_the_batch(diagnose: Diagnose, call: str, is_batch: bool) -> None:
    found = diagnose(BARRIER.format(call, call))
    assert found.cause.id == "device_oom"
    assert ("micro batch" in found.remedy, "nvidia-smi" in found.remedy) == (is_batch, not is_batch)


@pytest.mark.parametrize(
    ("path", "is_conda"),
    [
        ("/tmp/venv", False),
        ("/home/me/envs/old", False),
        ("/opt/miniconda3", True),
        ("/w/mambaforge", True),
        ("/w/miniforge3", True),
    ],
)
def test_an_activate_that_is_missing_is_told_as_what_it_is(diagnose: Diagnose, path: str, is_conda: bool) -> None:
    found = diagnose(f"/w/job.sh: line 4: {path}/bin/activate: No such file or directory\n")
    assert found.cause.id == "conda_not_initialised"
    assert ("conda info" in found.remedy, f"in {path} on" in found.remedy) == (is_conda, not is_conda)


def test_a_task_that_no_longer_answers_is_looked_at_itself(diagnose: Diagnose) -> None:
    said = "/job:jax_worker/replica:0/task:5 has been set to ERROR: UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout.\n"
    found = diagnose("step 41 loss 2.1\nstep 42 loss 2.0\n" + said)
    assert found.cause.id == "unreachable" and "task:5 no longer answers" in found.remedy and "NCCL" not in found.remedy


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (
            'Cannot load module "libs/julia/1.9" because these module(s) are loaded:\n   julia\n',
            "stands in its way",
        ),
        (
            " These module(s) or extension(s) exist but cannot be loaded as requested:\n" + '"fftw/3.3"\n',
            "wants others loaded",
        ),
        (' The following module(s) are unknown: "cuda/99"\n', "module avail"),
    ],
)
def test_a_module_that_others_keep_out_is_there(diagnose: Diagnose, said: str, advice: str) -> None:
    found = diagnose("Lmod has detected the following error: " + said)
    assert found.cause.id == "module_missing" and advice in found.remedy


@pytest.mark.parametrize(
    ("said", "advice", "meaning"),
    [
        ("ModuleNotFoundError: No module named 'src.loaders'\n", "put the place on PYTHONPATH", "no such package"),
        (
            "ImportError: cannot import name 'Shard' from 'torch.kept' (/e/site-packages/torch/kept.py)\n",
            "change the one on which less depends",
            "no such package",
        ),
        (
            "./solver: error while loading shared libraries: libgsl.so.27: cannot open shared object file\n",
            "ldd",
            "library",
        ),
        ("add failed: CUDA-capable device(s) is/are busy or unavailable\n", "nvidia-smi", "A call of the program"),
    ],
)
def test_what_is_missing_or_busy_is_told_whoever_needs_it(
    diagnose: Diagnose, said: str, advice: str, meaning: str
) -> None:
    found = diagnose(said)
    assert advice in found.remedy and meaning in found.meaning


TRACEBACK = 'Traceback (most recent call last):\n  File "/w/train.py", line 9, in <module>\n    main()\n'
KEYS = (
    'RuntimeError: Error(s) in loading state_dict for GPT:\n\tMissing key(s) in state_dict: "{}layers.0.weight", "{}layers.1.weight". \n'
    '\tUnexpected key(s) in state_dict: "{}layers.0.weight", "{}layers.1.weight". \n'
)


@pytest.mark.parametrize(
    ("text", "said", "unsaid"),
    [
        ("/var/spool/slurm_script: line 12: conda: command not found\n", "/etc/profile.d/conda.sh", "$(conda info"),
        ("/var/spool/slurm_script: line 5: module: command not found\n", "#!/bin/bash -l", "module avail"),
        (
            TRACEBACK + "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
            "newer driver",
            "load the toolkit",
        ),
        (
            TRACEBACK + "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n",
            "--nv",
            "install the package",
        ),
        (
            TRACEBACK
            + "ImportError: /e/transformer_engine_torch.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c10E\n",
            "--no-build-isolation transformer-engine-torch",
            "[pytorch]",
        ),
        (TRACEBACK + KEYS.format("", "", "module.", "module."), "take the prefix", "another model"),
        (TRACEBACK + KEYS.format("_orig_mod.", "_orig_mod.", "", ""), "take the prefix", "another model"),
        (TRACEBACK + KEYS.format("", "", "tower.", "tower."), "another model", "take the prefix from each"),
    ],
    ids=["conda", "module", "driver", "libcuda", "transformer engine", "ddp", "compiled", "another model"],
)
def test_advice_changes_what_failed(diagnose: Diagnose, text: str, said: str, unsaid: str) -> None:
    remedy = diagnose(text).remedy
    assert said in remedy and unsaid not in remedy, remedy


@pytest.mark.parametrize("name", ["argparse", "encodings", "json", "logging"])
def test_a_file_that_every_python_has_is_missing_where_its_folder_is_not_whole(diagnose: Diagnose, name: str) -> None:
    spawned = TRACEBACK.replace("/w/train.py", "/e/lib/python3.9/multiprocessing/spawn.py")
    found = diagnose(f"{spawned}ModuleNotFoundError: No module named '{name}'\n")
    assert found.cause.id == "package_missing" and f"{name} is a part of every Python" in found.meaning
    assert "whole" in found.remedy and "meanwhile" in found.remedy
    assert "built" not in found.remedy and "another Python" not in found.remedy


WORKER = TRACEBACK + "RuntimeError: DataLoader worker ({}\n"


@pytest.mark.parametrize(
    ("how", "is_memory"),
    [
        ("pid 311) exited unexpectedly with exit code 1. Details are lost due to multiprocessing.", False),
        ("pid 311) exited unexpectedly with exit code 255. Details are lost due to multiprocessing.", False),
        ("pid 311) is killed by signal: Killed. ", True),
    ],
)
def test_a_loaders_worker_that_failed_by_itself_wants_no_memory(diagnose: Diagnose, how: str, is_memory: bool) -> None:
    remedy = diagnose(WORKER.format(how)).remedy
    assert ("--mem=" in remedy, "shows the error itself" in remedy) == (is_memory, not is_memory)


@pytest.mark.parametrize(
    ("said", "is_label"),
    [
        ("Assertion `t >= 0 && t < n_classes` failed.", True),
        ("Assertion `cur_target >= 0 && cur_target < n_classes` failed.", True),
        ("Assertion `srcIndex < srcSelectDimSize` failed.", False),
    ],
)
def test_a_label_that_is_no_class_is_told_as_one(diagnose: Diagnose, said: str, is_label: bool) -> None:
    kernel = "/t/Loss.cu:271: nll_loss_forward: block: [0,0,0], thread: [31,0,0] "
    found = diagnose(f"{kernel}{said}\n{TRACEBACK}RuntimeError: CUDA error: device-side assert triggered\n")
    assert found.cause.id == "index_out_of_range"
    assert ("label" in found.remedy.splitlines()[0], "ignore_index" in found.remedy) == (is_label, is_label)
    assert ("max_position_embeddings" in found.remedy) is not is_label


@pytest.mark.parametrize(
    "said",
    [
        'Lmod has detected the following error:  The following module(s) are unknown:\n"gcc/99.1"\n',
        'Lmod has detected the following error: The following module(s) are unknown: "gcc/99.1"\n',
        "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'gcc/99.1'\n",
    ],
)
def test_a_module_that_is_not_there_is_looked_up_by_its_name(diagnose: Diagnose, said: str) -> None:
    found = diagnose(said)
    assert found.cause.id == "module_missing" and "`module spider gcc`" in found.remedy and "NAME" not in found.remedy
