"""What a program went on after did not end it; what came after the end of training did not come to a good one."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis, diagnose_stream
from hpc_llm.parsing import parse_stream
from hpc_llm.parsing.rows import Row

Diagnose = Callable[[str], Diagnosis]

HF = "{{'loss': {:.2f}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {:.2f}}}\n"
MEGATRON = (
    " iteration {:8d}/ 1000 | consumed samples: 64 | elapsed time per iteration (ms): 900.1 | learning rate: 1.0E-4 | "
    "global batch size: 64 | lm loss: 7.1E+00 | loss scale: 1.0 | grad norm: 1.1 |\n"
)
OWN = "step {}/900 | loss 2.31 | lr 1e-05\n"


def hf(first: int, last: int) -> str:
    return "".join(HF.format(3 - n / 100, n / 100) for n in range(first, last))


def megatron(first: int, last: int) -> str:
    return "".join(MEGATRON.format(n) for n in range(first, last))


def own(first: int, last: int) -> str:
    return "".join(OWN.format(n) for n in range(first, last))


PROGRAMS = {"hf": hf, "megatron": megatron, "own": own}
OOM = (
    "CUDA out of memory. Tried to allocate 1.20 GiB (GPU 3; 31.75 GiB total capacity; 28.00 GiB already allocated; "
    "512.00 MiB free; 29.90 GiB reserved in total by PyTorch)"
)
LIMIT = "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
TAKEN = "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO PREEMPTION ***\n"
QUOTA = (
    'Traceback (most recent call last):\n  File "/home/u/train.py", line 455, in save\n    torch.save(obj, f)\n'
    "OSError: [Errno 122] Disk quota exceeded: '/home/u/checkpoints/checkpoint_1_400.pt'\n"
)
BROKEN = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 4, in <module>\n    a[3]\nKeyError: 3\n'
ENDS = {"limit": (LIMIT, "walltime"), "preempted": (TAKEN, "preempted"), "quota": (QUOTA, "disk_full"), "error": (BROKEN, "python_exception")}  # fmt: skip
OUTLIVED = {
    "port": "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n",
    "helper": "/usr/bin/bash: line 1: 1234 Segmentation fault      (core dumped) nvidia-smi dmon > dmon.log\n",
    "wandb": "wandb: ERROR Error while saving artifact to staging: [Errno 122] Disk quota exceeded: '/home/u/wandb/artifacts/tmp3x'\n",
    "wandb's server": "wandb: ERROR Error while calling W&B API: storage quota exceeded (<Response [403]>)\n",
    "oom": f"OOM: Ran out of memory with exception: {OOM}\n",
    "worker": "RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed. \n",
}


def row_of(text: str) -> Row:
    return parse_stream("a.log", io.BytesIO(text.encode())).rows[-1]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("error", OUTLIVED)
def test_what_training_went_on_after_is_not_what_ended_it(
    error: str, end: str, program: str, diagnose: Diagnose
) -> None:
    said, cause = ENDS[end]
    for more in (2, 5, 7):
        text = PROGRAMS[program](1, 5) + OUTLIVED[error] + PROGRAMS[program](5, 5 + more) + said
        found, row = diagnose(text), row_of(text)
        assert (found.cause.id, row.cause) == (cause, cause), (more, found.chain, row.outcome_reason)
        assert found.confidence >= 0.85 and found.chain[0] == cause


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("end", [LIMIT, TAKEN])
def test_ranks_that_wait_for_one_that_failed_show_no_more_than_the_step_that_they_had(
    end: str, after: int, diagnose: Diagnose
) -> None:
    crashed = "run.sh: line 3: 77 Segmentation fault      (core dumped) python train.py\n"
    found = diagnose(hf(1, 5) + crashed + hf(5, 5 + after) + end)
    assert found.cause.id == "segfault"


def test_several_ranks_that_print_one_step_do_not_show_that_training_went_on(diagnose: Diagnose) -> None:
    crashed = "run.sh: line 3: 77 Segmentation fault      (core dumped) python train.py\n"
    assert diagnose(own(1, 5) + crashed + OWN.format(5) * 6 + LIMIT).cause.id == "segfault"
    killed = "srun: error: n2: task 3: Segmentation fault (core dumped)\n"
    assert diagnose(own(1, 5) + killed + own(5, 7) + LIMIT).cause.id in ("segfault", "walltime")


def test_a_progress_bar_shows_that_training_went_on_as_well(diagnose: Diagnose) -> None:
    bars = "".join(f" 20%|##| {n}/10000 [1:06:42<4:00:00,  2.00s/it]\r" for n in range(2001, 2100))
    text = hf(1, 5) + OUTLIVED["port"] + bars + "\n" + hf(5, 6) + TAKEN
    assert (diagnose(text).cause.id, row_of(text).cause) == ("preempted", "preempted")


GOES_ON = {
    "fairseq": f"2023 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: {OOM}\n"
    + "|===========|\n|   PyTorch CUDA memory summary, device ID 0    |\n|-----|\n" * 30
    + "2023 | WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass\n",
    "one line": f"WARNING {OOM}; skipping this batch\n",
    "traceback": f"Traceback (most recent call last):\n  File \"a.py\", line 1, in step\n    loss.backward()\nRuntimeError: {OOM}\nSkipping batch 17\n",
    "retry": f"RuntimeError: {OOM}\nOut of memory, retrying with a smaller batch\n",
    "composer": f"{OOM}\nCUDA out of memory detected. Train microbatch size will be decreased from 8 -> 4.\n",
    "ultralytics": f"{OOM}\nWARNING CUDA out of memory with batch=16. Reducing to batch=8 and retrying (1/3).\n",
}  # fmt: skip


@pytest.mark.parametrize("said", GOES_ON.values(), ids=GOES_ON)
def test_what_the_program_says_it_recovers_from_is_not_the_cause_of_another_end(said: str, diagnose: Diagnose) -> None:
    for after in (0, 1, 3):
        for end, cause in ENDS.values():
            text = own(1, 5) + said + own(5, 5 + after) + end
            assert diagnose(text).cause.id == cause, (after, end)
    assert diagnose(own(1, 5) + said + own(5, 7)).cause.id == "unknown"
    last = diagnose(own(1, 5) + said + own(5, 6) + f"RuntimeError: {OOM}\n")
    assert last.cause.id == "device_oom" and last.confidence > 0.9


@pytest.mark.parametrize("advice", ["Try reducing batch size to 1", "you could try skipping long batches", "Consider retrying with a smaller model"])  # fmt: skip
def test_an_advice_is_no_word_of_going_on(advice: str, diagnose: Diagnose) -> None:
    found = diagnose(own(1, 5) + f"RuntimeError: {OOM}\n{advice}\n")
    assert found.cause.id == "device_oom" and found.confidence > 0.9


HF_END = "{'train_runtime': 210.0, 'train_samples_per_second': 7.62, 'train_steps_per_second': 0.952, 'train_loss': 0.2, 'epoch': 1.0}\n"
SEFF = "\nJob ID: 445566\nCluster: levante\nUser/Group: u/u\nState: {} (exit code {})\nNodes: 1\nMemory Utilized: 13.99 GB\n"
JOBSTATS = "=====\n   Slurm Job Statistics\n=====\n         Job ID: 39861325\n  NetID/Account: a/math\n          State: {}\n          Nodes: 2\n"
FAILED_LATER = {
    "srun": "srun: error: n1: task 0: Exited with exit code 1\n",
    "step": "slurmstepd: error: *** STEP 9.0 ON n1 FAILED (non-zero exit code or other failure mode) ***\n",
    "seff": SEFF.format("FAILED", 127),
    "jobstats": JOBSTATS.format("FAILED"),
    "torchrun": "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
    "deepspeed": "[ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = 1\n",
    "mpirun": "Primary job  terminated normally, but 1 process returned\n",
}


@pytest.mark.parametrize("said", FAILED_LATER.values(), ids=FAILED_LATER)
def test_a_job_that_failed_after_training_is_not_said_to_be_well(said: str, diagnose: Diagnose) -> None:
    text = hf(1, 4) + HF_END + said
    found, row = diagnose(text), row_of(text)
    assert found.cause.id == row.cause == "unknown" and "then the job failed" in found.summary
    assert row.outcome == "FAILED" and row.outcome_reason is not None
    assert row.outcome_reason.startswith("training had ended before: ")
    assert any(one.text in said for one in found.evidence)


@pytest.mark.parametrize(
    "said",
    [
        "",
        SEFF.format("COMPLETED", 0),
        JOBSTATS.format("COMPLETED"),
        "srun: error: n1: task 0: Exited with exit code 143\n",
        "[INFO] [launch.py:351:main] Process 9 exits with return code = 0\n",
        "State: FAILED\n",
        "the export has FAILED for one model\n",
        LIMIT + "srun: error: n1: task 0: Exited with exit code 1\n",
    ],
)
def test_what_is_no_failure_after_training_is_none(said: str, diagnose: Diagnose) -> None:
    text = hf(1, 4) + HF_END + said
    assert (diagnose(text).cause.id, row_of(text).cause) == ("none", "none")


def test_a_step_that_failed_before_training_does_not_count_at_its_end(diagnose: Diagnose) -> None:
    text = FAILED_LATER["srun"] + hf(1, 4) + HF_END
    assert (diagnose(text).cause.id, row_of(text).cause) == ("none", "none")


STATES = {
    "TIMEOUT": "walltime", "DEADLINE": "walltime", "PREEMPTED": "preempted", "CANCELLED": "cancelled", "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail", "OUT_OF_MEMORY": "host_oom", "FAILED": "unknown", "COMPLETED": "none", "RUNNING": "unknown",
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_the_state_in_a_summary_of_the_job_is_read(state: str, diagnose: Diagnose) -> None:
    for summary in (SEFF.format(state, 0), JOBSTATS.format(state)):
        text = hf(1, 4) + summary
        assert (diagnose(text).cause.id, row_of(text).cause) == (STATES[state], STATES[state])
        earlier = diagnose(summary + hf(1, 4))
        assert earlier.cause.id == "unknown", "the summary of a job before it"


TABLE = "JobID        JobName     Elapsed   ReqMem  MaxRSS      State\n------------ ---------- -------- -------- ------- ----------\n"
TASKS = "{0}         fit.sl     00:10:48       1G         {1}\n{0}.batch   batch      00:10:48          102048K {1}\n"


@pytest.mark.parametrize("state", [*STATES, "CANCELLED by 1000", "CANCELLED+"])
def test_the_state_in_a_table_of_one_job_is_read(state: str, diagnose: Diagnose) -> None:
    text, cause = TABLE + TASKS.format(71001, state), STATES[state.split()[0].rstrip("+")]
    assert (diagnose("it begins\n" + text).cause.id, diagnose(text + TASKS.format(71002, state)).cause.id) == (
        cause,
        "unknown",
    )
    assert diagnose(TASKS.format(71001, state)).cause.id == "unknown", "a line that is in no table of sacct's"


@pytest.mark.parametrize("summary", [SEFF.format("COMPLETED", 0), TABLE + TASKS.format(71001, "COMPLETED")])
def test_a_script_that_ended_well_tells_of_none_of_its_programs(summary: str, diagnose: Diagnose) -> None:
    for failed, cause in (
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nKeyError: 'mass'\n",
            "python_exception",
        ),
        (FAILED_LATER["srun"], "unknown"),
    ):
        assert diagnose(failed + summary).cause.id == diagnose(failed).cause.id == cause
    assert row_of("it begins\n" + summary).outcome == "COMPLETED"


def test_that_training_had_ended_before_the_job_was_ended_is_told(diagnose: Diagnose) -> None:
    found = diagnose(hf(1, 4) + HF_END + SEFF.format("CANCELLED", 0))
    assert found.cause.id == "none" and "before the job was ended (State: CANCELLED" in found.summary


USED_UP = {
    "cxi": "n1:14132:14132 [3] nccl_net_ofi_sendrecv.c:1095 NCCL WARN NET/OFI Couldn't open CQ. RC: -28, ERROR: No space left on device",
    "verbs": "ibv_create_cq failed: No space left on device",
    "libfabric": "libfabric:14132:core:fi_cq_open():88<warn> cq: No space left on device",
    "inotify": "OSError: [Errno 28] inotify watch limit reached: No space left on device",
    "node": "Error: ENOSPC: System limit for number of file watchers reached",
    "cgroup": "mkdir: cannot create directory '/sys/fs/cgroup/memory/job_7': No space left on device",
    "semaphores": "semget: No space left on device",
    "server": "wandb: ERROR Error while calling W&B API: storage quota exceeded (<Response [403]>)",
    "requests": "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for quota metric 'Read requests'",
}


@pytest.mark.parametrize("line", USED_UP.values(), ids=USED_UP)
def test_what_is_used_up_and_no_disk_is_not_called_one(line: str, diagnose: Diagnose) -> None:
    found = diagnose(f"{own(1, 3)}{line}\n")
    assert found.cause.id != "disk_full" and "df -h" not in found.remedy.replace("df -h /dev/shm", "")


def test_a_network_card_that_is_used_up_is_told(diagnose: Diagnose) -> None:
    found = diagnose(
        own(1, 3) + USED_UP["cxi"] + "\n[rank3]: ncclSystemError: System call or external library call failed\n"
    )
    assert "ENOSPC of libfabric" in found.remedy and found.confidence >= 0.65


HELPER = """Traceback (most recent call last):
  File "/users/me/.local/bin/{}", line 5, in <module>
    from {} import cli
ModuleNotFoundError: No module named 'dataclasses'
"""
JOB_DOWN = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n"


def cause_of(diagnose: Diagnose, text: str) -> str:
    return diagnose(text).cause.id


@pytest.mark.parametrize("tool", ["wandb", "tensorboard", "mlflow", "hf", "huggingface-cli"])
def test_a_tool_that_a_script_calls_beside_the_program_is_no_cause(tool: str, diagnose: Diagnose) -> None:
    """The program has its own end, or none that is known."""
    text = HELPER.format(tool, tool.replace("-", "_")) + "0: loading the model\n1: loading the model\n"
    assert cause_of(diagnose, text + JOB_DOWN) == "walltime"
    assert cause_of(diagnose, text) not in ("package_missing", "python_exception")
    assert cause_of(diagnose, HELPER.format("train.py", "x")) == "package_missing"


def test_an_exception_that_a_logger_tells_as_a_warning_is_no_cause(diagnose: Diagnose) -> None:
    line = "24: [rank24]:W0527 00:19:08.340000 50695 torch/_inductor/codecache.py:1052] [1/1] {}\n"
    said = ("Traceback (most recent call last):", '  File "/x/codecache.py", line 1048, in f', "    with open(x) as f:", "FileNotFoundError: [Errno 2] No such file: 'x'")  # fmt: skip
    text = "".join(map(line.format, said)) + "24: compiling anew\n"
    assert cause_of(diagnose, text + JOB_DOWN) == "walltime" and cause_of(diagnose, text) == "unknown"
    assert cause_of(diagnose, text.replace("W0527", "E0527") + JOB_DOWN) != "walltime"


TOLD = 'ERROR:2026-03-06 21:59:41,526:Traceback (most recent call last):\n  File "/w/reward.py", line 7, in score\n    a, b = found\nTypeError: no pair\n'
WRONG = 'Traceback (most recent call last):\n  File "/w/train.py", line 7, in <module>\n    main()\n{}\n'
NAME, FILE = (
    WRONG.format("NameError: name 'x' is not defined"),
    WRONG.format("FileNotFoundError: [Errno 2] No such file or directory: 'a'"),
)


def _epochs(first: int, last: int) -> str:
    return "".join(f"epoch {number} loss {3 - number / 100:.4f}\n" for number in range(first, last + 1))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (NAME + "loading\n" + _epochs(1, 3), "unknown"),
        (FILE + "loading\n" + _epochs(1, 3), "unknown"),
        (NAME + "loading\n" + _epochs(1, 2), "python_exception"),
        (_epochs(1, 3) + NAME + _epochs(4, 6), "python_exception"),
        (TOLD + "".join(f"(TaskRunner pid=7) step:{n} - actor/entropy:0.4\n" for n in (1, 2)), "unknown"),
        (TOLD + "(TaskRunner pid=7) step:1 - actor/entropy:0.4\n", "python_exception"),
    ],
    ids=["a name", "a file", "another rank's last steps", "within training", "told by the program", "told, and little more"],
)  # fmt: skip
def test_an_error_that_was_put_right_is_no_cause(text: str, cause: str) -> None:
    assert diagnose_stream(io.BytesIO(text.encode())).cause.id == cause
    assert (parse_stream("x", io.BytesIO(text.encode())).rows[-1].cause or "unknown") == cause


def test_what_fails_after_an_error_was_put_right_is_the_cause() -> None:
    text = FILE + "loading\n" + _epochs(1, 4) + NAME
    assert "NameError" in diagnose_stream(io.BytesIO(text.encode())).evidence[0].text


ABOVE = {
    "oom": f"warm-up with 64 rows: {OOM}\n",
    "kernel": "[ 9911.021331] Out of memory: Killed process 31 (tar) total-vm:91kB, anon-rss:45kB\n",
    "disk": "cannot keep the cache: [Errno 28] No space left on device\n",
    "nccl": "[rank2]:[E417 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, Timeout(ms)=600000) ran for 600003 milliseconds before timing out.\n",
    "segfault": "probe.sh: line 3: 88 Segmentation fault      (core dumped) ./probe\n",
    "slurm": "slurmstepd: error: Detected 2 oom_kill events in StepId=5.0. Some of the step tasks have been OOM Killed.\n",
    "srun": "srun: error: n4: task 0: Exited with exit code 1\n",
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("above", ABOVE)
def test_what_stands_above_all_steps_did_not_end_a_log_that_stops_behind_several(
    above: str, program: str, diagnose: Diagnose
) -> None:
    for steps in (3, 7):
        text = ABOVE[above] + PROGRAMS[program](1, 1 + steps)
        row = row_of(text)
        assert diagnose(text).cause.id == "unknown", steps
        assert row.cause in (None, "unknown") and row.outcome == "UNKNOWN"


@pytest.mark.parametrize("above", [one for one in ABOVE if one != "srun"])
def test_above_a_single_step_or_between_steps_it_stays_the_cause(above: str, diagnose: Diagnose) -> None:
    for text in (ABOVE[above] + own(1, 2), own(1, 3) + ABOVE[above] + own(3, 4), own(1, 5) + ABOVE[above]):
        assert diagnose(text).cause.id not in ("unknown", "none") and row_of(text).cause not in ("unknown", "none")


@pytest.mark.parametrize("end", [LIMIT, TAKEN])
def test_what_the_scheduler_says_needs_more_steps_behind_it(end: str, diagnose: Diagnose) -> None:
    assert diagnose(end + own(1, 5)).cause.id in ("walltime", "preempted")


SMALLER = [
    "falling back to a smaller micro-batch", "Fell short of memory, fall back to batch_size 4", "batch size 32 doesn't fit, using 16",
    "trying a smaller batch size", "nothing is said of it",
]  # fmt: skip


@pytest.mark.parametrize("said", SMALLER)
def test_memory_that_ran_out_above_one_step_is_not_what_an_exception_behind_it_ended(
    said: str, diagnose: Diagnose
) -> None:
    text = f"probing 32 rows\n{OOM}\n{said}\n" + own(1, 2) + BROKEN
    assert (diagnose(text).cause.id, row_of(text).cause) == ("python_exception", "python_exception")
    again = f"probing 32 rows\n{OOM}\n{said}\n" + own(1, 2) + f"RuntimeError: {OOM}\n"
    assert diagnose(again).cause.id == "device_oom"
