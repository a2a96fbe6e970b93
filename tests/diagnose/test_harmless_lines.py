"""Lines that only speak of what a cause is known by: they are no cause, and the scheduler's own words stand beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis

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
