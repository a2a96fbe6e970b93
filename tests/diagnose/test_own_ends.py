"""What a script ends itself when its work is done says nothing of memory and of no person; what ended its work still does."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]
STEP = (
    "srun: forcing job termination\nsrun: Job step aborted: Waiting up to 62 seconds for job step to finish.\n"
    "slurmstepd: error: *** STEP 77.1 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***\nsrun: error: n2: task 1: Killed\n"
)
SHELL = "/var/spool/slurmd/job77/slurm_script: line 43: 3411 {}                  {}\n"
ENDS = (
    "Script completed successfully\nScript ended with exit code: 0\nShutting down Ray cluster...\nTrying force stop...\nForce killing Ray cluster processes...\n",
    "Evaluation finished\nstopping ray\n",
    "accuracy: 0.71\nStopping the server\n",
    "[10:00:00] Killing the background monitor\n",
    "All prompts are done, shutting down\n",
    "=== Terminating vllm ===\n\n",
    "+ echo 'Stopping gpu monitor'\nStopping gpu monitor\n",
    "Job exited with code 0\nCleaning up\n",
)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize(
    "ended",
    [
        STEP,
        SHELL.format("Killed", "vllm serve /w/model --port 8000"),
        SHELL.format("Killed", "srun -N 2 ray start --block"),
        STEP + SHELL.format("Killed", "srun -N 2 ray start --block"),
        "Killed\n",
        "Terminated\n",
        "srun: error: n1: task 0: Exited with exit code 137\n",
        "srun: error: n[1-2]: tasks 0-1: Terminated\n",
    ],
)
def test_what_a_script_ends_itself_is_no_failure(ends: str, ended: str, diagnose: Diagnose) -> None:
    text = f"Found 2 nodes\n{ends}{ended}The cluster is down.\n"
    assert diagnose(text).cause.id == "unknown"
    assert parse_stream("x", io.BytesIO(text.encode())).rows[-1].outcome == "UNKNOWN"


@pytest.mark.parametrize(
    "name", ["./monitor.sh", "bash gpu_monitor.sh", "nohup python /w/watch_gpus.py", "log/gpu_log"]
)
def test_a_monitor_that_was_killed_is_no_failure(name: str, diagnose: Diagnose) -> None:
    trained = "{'loss': 1.5, 'epoch': 0.1}\n{'train_runtime': 100.0, 'epoch': 1.0}\n"
    assert diagnose(trained + SHELL.format("Killed", name)).cause.id == "none"


@pytest.mark.parametrize(
    "before",
    [
        "step 9 loss 2.5\n",
        "Download finished\n",
        "Starting the server\n",
        "Received SIGTERM, stopping the server\n",
        "Shutting down the cluster because of an error\n",
        "Early stopping monitor: no better for 3 epochs\n",
        "Stopping the server\nStarting the next round\n",
    ],
)
def test_what_others_end_is_told(before: str, diagnose: Diagnose) -> None:
    assert diagnose(before + SHELL.format("Killed", "python train.py")).cause.id == "host_oom"
    assert diagnose(before + STEP).cause.id == "cancelled"


@pytest.mark.parametrize("ends", ENDS)
def test_a_cancelled_job_and_an_error_before_are_told(ends: str, diagnose: Diagnose) -> None:
    job = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***\n"
    assert diagnose(ends + STEP + job).cause.id == "cancelled"
    raised = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\nValueError: x\n'
    assert diagnose(raised + ends + STEP).cause.id == "python_exception"


LAUNCHED = (
    'step 9 loss 2.5\nTraceback (most recent call last):\n  File "/e/bin/accelerate", line 8, in <module>\n    sys.exit(main())\n'
    '  File "/e/accelerate/commands/launch.py", line 986, in launch_command\n    simple_launcher(args)\n'
    "subprocess.CalledProcessError: Command '['/e/bin/python', 'train.py']' {}.\n"
)


@pytest.mark.parametrize(
    "said",
    [
        "died with <Signals.SIGTERM: 15>",
        "died with <Signals.SIGINT: 2>",
        "died with <Signals.SIGHUP: 1>",
        "returned non-zero exit status 143",
    ],
)
def test_a_launched_program_that_a_signal_ended_raised_nothing(said: str, diagnose: Diagnose) -> None:
    found = diagnose(LAUNCHED.format(said))
    assert (found.cause.id, found.to_dict()["retry"]) == ("cancelled", True) and found.is_in_doubt
    assert "by a signal" in found.meaning


def test_a_launched_program_that_was_killed_or_failed_is_told_as_before(diagnose: Diagnose) -> None:
    killed = diagnose(LAUNCHED.format("died with <Signals.SIGKILL: 9>"))
    assert (killed.cause.id, killed.to_dict()["retry"]) == ("host_oom", None)
    assert diagnose(LAUNCHED.format("returned non-zero exit status 1")).cause.id == "python_exception"
    raised = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: x\n'
    assert diagnose(raised + LAUNCHED.format("died with <Signals.SIGTERM: 15>")).details["exception"] == "ValueError"
