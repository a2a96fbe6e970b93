"""What a crash, a wait or a damaged file comes of, in the words of many programs: the cause, what is said and what to do."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]

BLAS = "OpenBLAS blas_thread_init: pthread_create failed for thread 60 of 64: Resource temporarily unavailable\n"
NCCL = "[rank{r}]:[{k}602 11:18:50.1 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank {r}] "
DUMP = (
    "Received a dump signal due to a collective timeout from {whom} and we will try our best to dump the debug info.\n"
)
JSON = (
    '  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads\n    return _default_decoder.decode(s)\n'
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
)
STEP = "{{'loss': {loss}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n"
END = "{'train_runtime': 3210.1, 'train_samples_per_second': 5.1, 'train_steps_per_second': 0.16, 'train_loss': 1.3, 'epoch': 1.0}\n"
ITERATION = (
    " iteration {n:8}/      40 | consumed samples: 2560 | elapsed time per iteration (ms): 8192.0 | learning rate: 1.0E-04 | "
    "global batch size:   256 | lm loss: 9.5E+00 | grad norm: 1.2 | number of skipped iterations:   0 | number of nan iterations:   {nan} |\n"
)


@pytest.mark.parametrize(
    "crash",
    [
        "srun: error: gn01: task 0: Segmentation fault\n",
        "n1: line 4: 77 Aborted                 (core dumped) python train.py\n",
        "torch.distributed.elastic api.py:869] failed (exitcode: -11) local_rank: 0 (pid: 12) of binary: python\n",
        'Traceback (most recent call last):\n  File "/e/numpy/__init__.py", line 23, in <module>\nKeyboardInterrupt\n',
    ],
)
@pytest.mark.parametrize(
    "limit",
    [
        BLAS,
        "libgomp: Thread creation failed: Resource temporarily unavailable\n",
        "OMP: Error #34: System unable to allocate necessary resources for OMP thread:\nOMP: System error #11: Resource temporarily unavailable\n",
        "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\n",
        "/w/run.sh: fork: retry: Resource temporarily unavailable\n",
    ],
)
def test_a_limit_of_threads_before_a_crash_is_its_cause(diagnose: Diagnose, limit: str, crash: str) -> None:
    found = diagnose(limit + crash)
    assert found.cause.id == "node_limits"
    assert "OPENBLAS_NUM_THREADS" in found.remedy and "OMP_NUM_THREADS" in found.remedy


def test_a_limit_after_a_crash_is_not_its_cause(diagnose: Diagnose) -> None:
    assert diagnose("srun: error: n1: task 0: Segmentation fault\n" + BLAS).cause.id == "segfault"


def test_a_limit_that_training_went_on_with_is_no_failure(diagnose: Diagnose) -> None:
    steps = "".join(STEP.format(loss=2 - n / 100, epoch=n / 20) for n in range(1, 20))
    assert diagnose(BLAS + steps + END).cause.id == "none"


def test_loading_is_no_training(diagnose: Diagnose) -> None:
    bars = "".join(f"Loading checkpoint shards: {n * 5}%|#  | {n}/20 [00:05<00:00,  2.71s/it]\n" for n in range(1, 21))
    assert diagnose(BLAS + bars + "srun: error: n1: task 0: Segmentation fault\n").cause.id == "node_limits"
    silent = diagnose(bars + "srun: error: gn01: tasks 0-3: Exited with exit code 1\n")
    assert (silent.cause.id, silent.summary, len(silent.evidence)) == ("unknown", "", 1)


@pytest.mark.parametrize(
    ("text", "rank", "reported"),
    [
        (NCCL.format(r=3, k="E") + DUMP.format(whom=" rank 5"), "3", "5"),
        (NCCL.format(r=2, k="E") + DUMP.format(whom="this local rank"), "2", None),
        (
            NCCL.format(r=4, k="F") + "Terminating the process after attempting to dump debug info, due to X.\n",
            "4",
            None,
        ),
    ],
)
def test_a_rank_that_is_told_of_a_timeout_names_itself(
    diagnose: Diagnose, text: str, rank: str, reported: str | None
) -> None:
    found = diagnose(text + "srun: error: gn04: task 3: Aborted (core dumped)\n")
    assert (found.cause.id, found.details["rank"], found.details.get("reported_by")) == (
        "collective_timeout", rank, reported,
    )  # fmt: skip
    assert reported is None or f"Rank {reported} was the first" in found.summary


def test_the_fault_of_a_rank_comes_before_the_timeout_that_it_gives_the_others(diagnose: Diagnose) -> None:
    fault = "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
    found = diagnose(NCCL.format(r=3, k="E") + DUMP.format(whom=" rank 5") + NCCL.format(r=5, k="E") + fault)
    assert (found.cause.id, found.details["rank"]) == ("kernel_failed", "5") and "CUDA_LAUNCH_BLOCKING" in found.remedy


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ('"/w/train.py", line 31, in load_rows\n    rows.append(json.loads(line))', "data_error"),
        ('"/home/config_tests/train.py", line 31, in __getitem__\n    return json.loads(self.lines[n])', "data_error"),
        ('"/w/train.py", line 31, in main\n    cfg = json.load(open(path))', "config_error"),
        ('"/e/deepspeed/runtime/config.py", line 7, in __init__\n    self._dict = json.load(file)', "config_error"),
        (
            '"/e/transformers/configuration_utils.py", line 7, in _dict_from_json_file\n    return json.loads(text)',
            "config_error",
        ),
        (
            '"/e/transformers/utils/hub.py", line 7, in get_checkpoint_shard_files\n    index = json.loads(f.read())',
            "model_missing",
        ),
        ('"/e/requests/models.py", line 975, in json\n    return complexjson.loads(self.text)', "python_exception"),
    ],
)
def test_the_frames_say_what_was_no_json(diagnose: Diagnose, frame: str, cause: str) -> None:
    found = diagnose(f"Traceback (most recent call last):\n  File {frame}\n{JSON}")
    assert found.cause.id == cause
    assert ("setting" in found.remedy) == (cause == "config_error")


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ("HARDWARE: Hardware exception", "gpu_hardware"),
        ("EXCEPTION: An HSAIL operation resulted in a hardware exception.", "segfault"),
        ("MEMORY_APERTURE_VIOLATION: beyond the largest legal address.", "segfault"),
        ("MEMORY_FAULT: Agent memory fault", "segfault"),
        ("OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.", "device_oom"),
        ("INVALID_ISA: The instruction set architecture is invalid.", "driver_mismatch"),
        ("INVALID_PACKET_FORMAT: The AQL packet is malformed.", "segfault"),
    ],
)
def test_what_a_queue_of_an_amd_gpu_ends_with(diagnose: Diagnose, status: str, cause: str) -> None:
    said = f":0:rocdevice.cpp:2984: 1 us: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_{status}\n"
    found = diagnose(said + "srun: error: n1: task 3: Aborted (core dumped)\n")
    assert found.cause.id == cause
    assert ("touched memory" in found.remedy) == ("MEMORY" in status)


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([STEP.format(loss=1, epoch=0.1), STEP.format(loss="nan", epoch=0.2), STEP.format(loss=1, epoch=0.3), END], "epoch 0.2"),
        ([ITERATION.format(n=10, nan=0), ITERATION.format(n=20, nan=1), ITERATION.format(n=30, nan=0)], "step 20"),
    ],
)  # fmt: skip
def test_a_loss_that_was_a_number_again_is_said_to_be(diagnose: Diagnose, lines: list[str], where: str) -> None:
    text = "".join(lines)
    said = f"he loss is not a finite number at {where}, and was finite again later"
    found, row = diagnose(text), parse_stream("x", io.BytesIO(text.encode())).rows[-1]
    assert (found.cause.id, found.summary) == ("nan_loss", f"T{said}.")
    assert (row.outcome, row.cause, row.invalid_reason) == ("INVALID", "nan_loss", f"t{said}")


def test_a_loss_that_stayed_none_is_not_said_to_be_finite_again(diagnose: Diagnose) -> None:
    text = (
        STEP.format(loss=1, epoch=0.1) + STEP.format(loss="nan", epoch=0.2) + STEP.format(loss="nan", epoch=0.3) + END
    )
    assert diagnose(text).summary == "The loss is not a finite number at epoch 0.2."


def test_weights_that_do_not_fit_are_named(diagnose: Diagnose) -> None:
    lines = "[rank0]: \tsize mismatch for embed.weight: copying a param with shape torch.Size([9]) from checkpoint\n"
    found = diagnose(f"[rank0]: RuntimeError: Error(s) in loading state_dict for Llama:\n{lines}")
    assert found.cause.id == "config_error" and found.summary.startswith("size mismatch for embed.weight")


CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_{status} when calling `cublasCreate(handle)`\n"
FRAMES = 'Traceback (most recent call last):\n  File "/w/t.py", line 114, in forward\n    return F.linear(input, self.weight)\n'
ASSERTIONS = {
    "srcIndex < srcSelectDimSize": "index_out_of_range",
    "t >= 0 && t < n_classes": "index_out_of_range",
    "probability tensor contains either `inf`, `nan` or element < 0": "nan_loss",
    "size > 0 && size < limit": "kernel_failed",
}


@pytest.mark.parametrize("status", ["ALLOC_FAILED", "NOT_INITIALIZED"])
@pytest.mark.parametrize("assertion", ASSERTIONS)
def test_a_library_that_fails_after_an_assertion_is_not_out_of_memory(
    diagnose: Diagnose, assertion: str, status: str
) -> None:
    line = "../aten/src/ATen/native/cuda/Indexing.cu:1146: block: [{n},0,0], thread: [96,0,0] Assertion `{a}` failed.\n"
    said = "".join(line.format(n=n, a=assertion) for n in range(200))
    assert diagnose(said + FRAMES + CUBLAS.format(status=status)).cause.id == ASSERTIONS[assertion]


def test_a_library_that_does_not_start_may_lack_memory(diagnose: Diagnose) -> None:
    sure, guessed = (diagnose(FRAMES + CUBLAS.format(status=one)) for one in ("ALLOC_FAILED", "NOT_INITIALIZED"))
    assert (sure.cause.id, sure.confidence) == ("device_oom", 0.85)
    assert guessed.cause.id == "device_oom" and guessed.confidence < 0.5 and "listed as FAILED" in guessed.summary
    assert "do not fit" not in guessed.meaning and "CUDA_LAUNCH_BLOCKING" in guessed.remedy


NCCL_ROOM = """\
localhost: [rank0]: Traceback (most recent call last):
localhost: [rank0]:   File "/w/Megatron-DeepSpeed/megatron/initialize.py", line 254, in _initialize_distributed
localhost: [rank0]:     eager_backend.eager_connect_single_device(device_id)
localhost: [rank0]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:230, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5
localhost: [rank0]: ncclUnhandledCudaError: Call to CUDA function failed.
localhost: [rank0]: Last error:
localhost: [rank0]: Failed to CUDA calloc async 4 bytes
"""
"""stark-sim/megatron-deepspeed-lock-clock, .context/dual32_run_v2.log: no model was made yet."""


def test_nccl_without_a_few_bytes_may_lack_memory(diagnose: Diagnose) -> None:
    guessed = diagnose(NCCL_ROOM)
    assert guessed.cause.id == "device_oom" and guessed.confidence == 0.5 and "listed as FAILED" in guessed.summary
    assert "nvidia-smi" in guessed.remedy and "ZeRO-3" not in guessed.remedy and "do not fit" not in guessed.meaning
    said = "n1:9:9 [0] include/alloc.h:228 NCCL WARN Cuda failure {}'{}'\n"
    assert diagnose(said.format("2 ", "out of memory") + NCCL_ROOM).confidence >= 0.9
    assert diagnose(said.format("", "the launch timed out and was terminated") + NCCL_ROOM).cause.id != "device_oom"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("unhandled cuda error, NCCL version 2.26.2\nLast error:\nCuda failure 1 'invalid argument'", "/dev/shm"),
        (
            "unhandled cuda error, NCCL version 2.26.2\nLast error:\nCuda failure 217 'peer access is not supported'",
            "/dev/shm",
        ),
        ("invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.26.2", "the same GPU"),
        (
            "internal error - please report this issue to the NCCL developers, NCCL version 2.26.2",
            "for a person to decide",
        ),
    ],
)
def test_what_nccl_says_of_the_gpu_is_no_failure_of_the_network(diagnose: Diagnose, said: str, advice: str) -> None:
    found = diagnose(
        f"{FRAMES}torch.distributed.DistBackendError: NCCL error in: /p/ProcessGroupNCCL.cpp:3356, {said}\n"
    )
    assert found.cause.id == "python_exception" and advice in found.remedy
    assert "over the network" not in found.remedy and "address" not in found.remedy
    other = diagnose(f"{FRAMES}torch.distributed.DistBackendError: remote store went away\n")
    assert "over the network" in other.remedy


@pytest.mark.parametrize(
    "why",
    [
        "Unable to contact slurm controller (connect failure)",
        "Socket timed out on send/recv operation",
        "Zero Bytes were transmitted or received",
        "Resource temporarily unavailable",
        "Slurm backup controller in standby mode",
        "I/O error writing script/environment to file",
    ],
)
@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed",
        "srun: error: Unable to allocate resources",
        "salloc: error: Job submit/allocate failed",
        "srun: error: Unable to create step for job 4711",
    ],
)
def test_a_scheduler_that_does_not_answer_is_asked_again(diagnose: Diagnose, said: str, why: str) -> None:
    found = diagnose(f"{said}: {why}\n")
    assert found.retry and found.cause.id == "unreachable" and "submit it again in some minutes" in found.remedy


@pytest.mark.parametrize(
    "why", ["Invalid account or account/partition combination specified", "Invalid qos specification"]
)
def test_a_request_that_is_refused_is_not(diagnose: Diagnose, why: str) -> None:
    found = diagnose(f"sbatch: error: Batch job submission failed: {why}\n")
    assert found.cause.id == "config_error" and not found.retry


@pytest.mark.parametrize(
    ("why", "asked"),
    [
        ("Invalid account or account/partition combination specified", "format=account,partition,qos"),
        ("Invalid qos specification", "format=account,partition,qos"),
        ("Invalid partition name specified", "sinfo -s"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "sinfo -o '%P %l'"),
        ("Invalid generic resource (gres) specification", "sinfo -o '%P %G'"),
        ("Requested node configuration is not available", "sinfo -o '%P %D"),
    ],
)
@pytest.mark.parametrize(
    "said", ["sbatch: error: Batch job submission failed", "salloc: error: Job submit/allocate failed", "srun: error: Unable to allocate resources"]
)  # fmt: skip
def test_what_is_refused_of_a_request_is_told_where_to_look_it_up(
    diagnose: Diagnose, said: str, why: str, asked: str
) -> None:
    found = diagnose(f"{said}: {why}\n")
    assert found.cause.id == "config_error" and asked in found.remedy and "named in the evidence" not in found.remedy


@pytest.mark.parametrize("option", ["--local-rank=0", "--local_rank 3", "--fast --local-rank=7"])
def test_an_option_that_a_launcher_adds_is_not_the_users(diagnose: Diagnose, option: str) -> None:
    found = diagnose(f"usage: t.py [-h]\nt.py: error: unrecognized arguments: {option}\n")
    assert found.cause.id == "config_error" and "torchrun" in found.remedy and "add_argument" in found.remedy
    own = diagnose("usage: t.py [-h]\nt.py: error: unrecognized arguments: --local-ranking=7\n")
    assert "torchrun" not in own.remedy


LIMIT = "slurmstepd: error: Exceeded step memory limit at some point.\n"


def test_a_limit_that_was_reached_at_some_point_kills_nothing(diagnose: Diagnose) -> None:
    steps = "".join(STEP.format(loss=2.5, epoch=n / 10) for n in range(1, 9))
    assert diagnose(steps + END + LIMIT).cause.id == "none"
    hint = diagnose(steps + LIMIT)
    assert hint.cause.id == "host_oom" and hint.confidence <= 0.5 and "killed" not in hint.meaning.lower()
    killed = diagnose(steps + LIMIT + "srun: error: n1: task 0: Killed\n")
    assert killed.cause.id == "host_oom" and killed.confidence >= 0.9


SEMAPHORE = (
    'Traceback (most recent call last):\n  File "/usr/lib/python3.10/multiprocessing/synchronize.py", line 57, in __init__\n'
    "    sl = self._semlock = _multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (SEMAPHORE, "bus_error"),
        (SEMAPHORE.replace("_multiprocessing.SemLock(", "_posixshmem.shm_open("), "bus_error"),
        ("RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: No space left on device (28)\n",
         "bus_error"),
        (SEMAPHORE.replace("multiprocessing/synchronize.py", "shutil.py").replace("_multiprocessing.SemLock(", "copy("),
         "disk_full"),
    ],
)  # fmt: skip
def test_full_shared_memory_is_no_full_disk(diagnose: Diagnose, text: str, cause: str) -> None:
    found = diagnose(text)
    assert found.cause.id == cause
    if cause == "bus_error":
        assert "/dev/shm" in found.remedy and "was killed by SIGBUS:" not in found.meaning


def test_the_advice_to_run_code_of_a_file_is_not_passed_on(diagnose: Diagnose) -> None:
    """torch's own words for pickled weights with more than tensors in them, in two of its releases."""
    again = "Re-running `torch.load` with `weights_only` set to `False` will likely succeed. Do it only if you got the file from a trusted source."
    two_ways = f"This file can still be loaded, to do so you have two options.\n\t(1) {again}"
    for words in (again, two_ways):
        found = diagnose(
            'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n    torch.load(path)\n'
            f"_pickle.UnpicklingError: Weights only load failed. {words}\n\tWeightsUnpickler error: Unsupported global: GLOBAL posix.system\n"
        )
        assert found.cause.id == "model_missing"
        assert "leave torch's check on" in found.remedy and "weights_only" not in found.remedy


@pytest.mark.parametrize("label", ["1: ", "10: ", "worker-1: ", "n0123.cluster.edu: "])
def test_the_rank_is_the_programs_and_not_that_of_srun_or_pdsh(label: str, diagnose: Diagnose) -> None:
    """bigyanghimire/deepspeed-experiments, standard-ulysses-1068.err: `srun --label` with one torchrun a node."""
    lines = (
        "[rank6]: Traceback (most recent call last):",
        '[rank6]:   File "/home/x/train.py", line 3, in <module>',
        "[rank6]:     f()",
        "[rank6]: AssertionError: [6]: query input tensor does not match the required shape",
    )
    found = diagnose("".join(f"{label}{line}\n" for line in lines))
    assert found.summary.startswith("Rank 6 failed first: AssertionError: [6]: query")


SIGBUS_LATER = (
    "0: E0402 16:35:51.839000 855264 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -7) "
    "local_rank: 3 (pid: 855405) of binary: /env/bin/python\n"
    "0:   traceback : Signal 7 (SIGBUS) received by PID 855405\n"
)
"""bigyanghimire/deepspeed-experiments, grouped-ulysses-1356.err: five ranks had raised the same KeyError before."""


def test_a_signal_behind_the_ranks_own_exceptions_is_not_the_root(diagnose: Diagnose) -> None:
    raised = "".join(
        f'1: [rank{n}]: Traceback (most recent call last):\n1: [rank{n}]:   File "/w/train.py", line 192, in train_step\n'
        f"1: [rank{n}]:     labels = batch[\"labels\"].to(device)\n1: [rank{n}]: KeyError: 'labels'\n"
        for n in (0, 4, 5)
    )
    found = diagnose(raised + SIGBUS_LATER)
    assert found.cause.id == "python_exception" and found.summary == "Rank 0 failed first: KeyError: 'labels'"
    assert diagnose(SIGBUS_LATER + raised).cause.id == "bus_error"
    named = (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    )
    assert diagnose(raised + named + SIGBUS_LATER).cause.id == "bus_error"


def test_a_job_that_went_on_without_a_module_and_was_cancelled_was_cancelled(diagnose: Diagnose) -> None:
    """The same repository's mega-slurm-876.err: its other stream shows training."""
    missing = 'Lmod has detected the following error: The following module(s) are unknown:\n"cuda/11.8.0"\n'
    ended = "slurmstepd-hades: error: *** JOB 876 ON hades CANCELLED AT 2026-03-05T12:46:50 ***\n"
    assert diagnose(missing).cause.id == "module_missing"
    assert diagnose(missing + ended).cause.id == "cancelled"
    assert diagnose(missing + ended.replace("JOB 876", "STEP 876.0")).cause.id == "module_missing"


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ("", "package_missing"),
        (" (unknown location)", "package_missing"),
        (" (/env/lib/python3.11/site-packages/deepspeed/runtime/x.py)", "package_missing"),
        (" (/usr/lib/python3.10/collections/__init__.py)", "package_missing"),
        (" (/home/me/llm-training/DeepSpeed/deepspeed/runtime/x.py)", "python_exception"),
    ],
)
def test_a_name_that_a_checkout_of_ones_own_lacks_is_of_no_release(diagnose: Diagnose, where: str, cause: str) -> None:
    """bigyanghimire/deepspeed-experiments, standard-ulysses-1105.err: a module that no DeepSpeed has."""
    text = f"ImportError: cannot import name 'UlyssesSPDataLoaderAdapter2' from 'deepspeed.runtime.x'{where}\n"
    frames = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n'
    assert diagnose(frames + text).cause.id == cause
