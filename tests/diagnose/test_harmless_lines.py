"""Lines that only speak of what a cause is known by: they are no cause, and the scheduler's own words stand beside them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

HARMLESS = """\
Using DeepSpeed config: /w/ds.json
DeepSpeed config loaded OK
no DeepSpeed config was given
DeepSpeed config = {'train_batch_size': 8}
[INFO] [config.py:987:print] DeepSpeed configuration
Found DeepSpeed config at ds_config.json, using it
Reading the DeepSpeed config from configs/z3.json
The DeepSpeed config is valid
Expected a string path to a file: found one
Check batch related parameters: OK
Batch related parameters: micro 4, accumulation 2
batch related parameters were set automatically
using an untested ZeRO Optimizer is allowed
zero_allow_untested_optimizer is true: untested ZeRO Optimizer permitted
pipeline parallelism is not supported by DeepSpeed ZeRO-3, using ZeRO-1
overlap_comm is not supported by DeepSpeed here; ignored
zero_force_ds_cpu_optimizer=false
DeepSpeedConfigError: is handled by the wrapper
0 uncorrectable ECC errors
no uncorrectable ECC errors were found
Uncorrectable ECC errors: 0
uncorrectable ECC errors: 0
ECC_UNCORRECTABLE: 0
no GPU has fallen off the bus
ENOSPC handling enabled
retries on ENOSPC: 3
EMFILE limit raised to 65536
soft limit 65536, EMFILE not expected
minimum loss scale reached (0 times)
number of nan iterations: 0
number of skipped iterations: 0
FlashAttention only supports Ampere GPUs or newer: found A100
FlashAttention2 has been toggled on
FlashAttention2 has been toggled on for this model
Ninja is required to load C++ extensions: found ninja 1.11
Ninja is required to load C++ extensions (it is installed)
no nan in the loss
BrokenPipeError handling installed
HF_HUB_OFFLINE: OfflineModeIsEnabled is raised on downloads
LocalEntryNotFoundError is caught
GatedRepoError handler registered
SafetensorError: none
yaml.scanner loaded
CUDA out of memory retries: 0
memory: 0 OOM so far
found no NVIDIA driver warnings
driver on your system is new enough
numactl not used: No such file or directory: is fine
Setting: preempted jobs are requeued
time limit: 2:00:00
Terminated workers: 0
Killed: 0
Detected KeyboardInterrupt handler
checkpoint being loaded used a DP world size of 4, as now
No devices were found in exclude list
api_key not configured
GLIBCXX_3.4.29 found
loss scale: 65536
unable to write to file: none
""".splitlines()
LIMIT = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize("line", HARMLESS)
def test_a_line_that_says_nothing_of_an_error_is_no_cause(line: str, diagnose: Callable[[str], Diagnosis]) -> None:
    text = f"{line}\n[rank0]: {line}\n2026-08-16 16:00:00,123 INFO {line}\n"
    assert diagnose(text).cause.id in ("none", "unknown")
    assert diagnose(text + LIMIT).cause.id == "walltime"


@pytest.mark.parametrize(
    "line",
    [
        "x.py:1: UserWarning: Not enough free disk space to download the file. The expected file size is: 9 MB. The target location has 3 MB",
        "bash: fork: retry: Resource temporarily unavailable",
        "2026-05-01 10:00:00 WARNING OSError: [Errno 28] No space left on device",
    ],
)
@pytest.mark.parametrize(
    ("why", "cause"), [("TIME LIMIT", "walltime"), ("PREEMPTION", "preempted"), ("NODE FAILURE", "node_fail")]
)
def test_slurms_words_beat_what_says_nothing_of_an_error(
    line: str, why: str, cause: str, diagnose: Callable[[str], Diagnosis]
) -> None:
    ended = f"slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-05-01T10:30:00 DUE TO {why} ***\n"
    assert diagnose(f"{line}\n{ended}").cause.id == cause
    assert diagnose(f"{line}\nstep 1 | loss 2.0\n{ended}").cause.id == cause


def test_an_error_before_slurms_words_stays_the_root(diagnose: Callable[[str], Diagnosis]) -> None:
    failed = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no\n'
    ended = "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-05-01T10:30:00 DUE TO TIME LIMIT ***\n"
    assert diagnose(failed + ended).cause.id == "python_exception"


AT_SHUTDOWN = """\
0: SUMMARY: config=configs/bf16_full.json params=1818416209 peak_mem_bytes=12537327616 avg_step_time=0.8513
0: [rank0]:[W212 13:45:52.354022454 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. (function operator())
3: [W212 13:45:53.869814256 TCPStore.cpp:131] [c10d] recvVector failed on SocketImpl(fd=4, addr=[n3]:51590, remote=[n0]:29501): failed to recv, got 0 bytes
3: Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:670 (most recent call first):
3: frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f2f8ce6c446 in /env/lib/libc10.so)
3: W0212 13:45:53.870000 1584981 site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1282] The node 'n3_1584981_0' has failed to shutdown the rendezvous '11' due to an error of type RendezvousConnectionError.
3: [W212 13:45:53.898171974 TCPStore.cpp:122] [c10d] sendBytes failed on SocketImpl(fd=4, addr=[n3]:51590, remote=[n0]:29501): {why}
"""
"""bigyanghimire/deepspeed-experiments, step_time_analysis/logs: torchrun on four nodes, of which the one with the store ended first."""


@pytest.mark.parametrize("why", ["Broken pipe", "Connection reset by peer"])
def test_torchs_warning_that_the_store_of_a_rendezvous_is_gone_is_no_failure(
    why: str, diagnose: Callable[[str], Diagnosis]
) -> None:
    text = AT_SHUTDOWN.format(why=why)
    found = diagnose(text)
    assert found.cause.id == "unknown" and "rank died" not in found.summary
    assert parse_stream("x", io.BytesIO(text.encode())).rows[-1].outcome == "UNKNOWN"
    died = f"[rank3]: torch.distributed.DistBackendError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer\n3: RuntimeError: {why}\n"
    assert parse_stream("x", io.BytesIO((text + died).encode())).rows[-1].outcome == "FAILED"


NUMPY = """\
A module that was compiled using NumPy 1.x cannot be run in
NumPy 2.1.1 as it may crash. To support both 1.x and 2.x
Traceback (most recent call last):  File "/env/lib/python3.10/runpy.py", line 196, in _run_module_as_main
    return _run_code(code, main_globals, None,
"""
WENT_ON = "/env/torch/nn/modules/transformer.py:20: UserWarning: Failed to initialize NumPy: _ARRAY_API not found (Triggered internally at ../torch/csrc/utils/tensor_numpy.cpp:84.)\n"
"""ROCm/rocm-blogs, LLAMA_Fine_Tuning_with_QLoRA.ipynb, which then trains 250 steps."""


def test_torch_goes_on_without_numpy(diagnose: Callable[[str], Diagnosis]) -> None:
    assert diagnose(NUMPY).cause.id == "packages_apart"
    assert diagnose(NUMPY + WENT_ON).cause.id == "unknown"
    assert parse_stream("x", io.BytesIO((NUMPY + WENT_ON).encode())).rows[-1].outcome == "UNKNOWN"


NO_ROOM = "UserWarning: Not enough free disk space to download the file. The expected file size is: 9.8 MB. The target location /c has 7.2 MB free disk space.\n  warnings.warn(\n"


@pytest.mark.parametrize("place", ["/env/huggingface_hub/file_download.py:992: ", "[rank0]: /env/f.py:9: "])
@pytest.mark.parametrize(
    ("behind", "cause"),
    [
        ("model.safetensors:   0%|          | 0.00/9.98G [00:00<?, ?B/s]\n", "unknown"),
        ("/env/f.py:992: " + NO_ROOM + "Loaded the model\n", "unknown"),
        ("", "disk_full"),
        ("srun: error: n1: task 0: Exited with exit code 1\n", "disk_full"),
        ("Loaded the model\nOSError: [Errno 28] No space left on device\n", "disk_full"),
    ],
)
def test_a_warning_of_too_little_room_decides_where_nothing_goes_on_behind_it(
    place: str, behind: str, cause: str, diagnose: Callable[[str], Diagnosis]
) -> None:
    assert diagnose(f"{place}{NO_ROOM}{behind}").cause.id == cause


@pytest.mark.parametrize(
    ("said", "is_over"),
    [
        ("INFO: Running dummy shapes through finished training model", False),
        ("Loading the finished training data", False),
        ("Rank 0 has not finished training", False),
        ("Rank 0 finished training", True),
        ("INFO: Finished training model in 3 h", True),
    ],
)
def test_a_finished_training_is_no_end_of_this_one(
    said: str, is_over: bool, diagnose: Callable[[str], Diagnosis]
) -> None:
    raised = "Traceback (most recent call last):\n  File \"t.py\", line 9, in <module>\nFileNotFoundError: [Errno 2] No such file or directory: 'x.pt'\n"
    row = parse_stream("x", io.BytesIO(f"{said}\n{raised}".encode())).rows[-1]
    assert str(row.outcome_reason).startswith("training had ended before") == is_over
    assert ("had come to its end" in str(diagnose(f"{said}\n{raised}"))) == is_over
