"""What other programs, their launchers and their loggers call the same failure."""

from __future__ import annotations

import io
import re

import pytest
from diagnose_accuracy import samples

from hpc_llm.causes.exits import exit_code, exit_texts
from hpc_llm.causes.loggers import opens_a_message
from hpc_llm.diagnosis import Diagnosis, diagnose_stream
from hpc_llm.parsing import parse_stream


def said(text: str) -> Diagnosis:
    return diagnose_stream(io.BytesIO(text.encode()))


# --- codes of an end ------------------------------------------------------------------------------------------------

LAUNCHERS = {
    "composer": "ERROR:composer.cli.launcher:Rank 2 crashed with exit code {}.\n",
    "lightning": "[rank: 1] Child process with PID 77 terminated with code {}. Forcefully terminating all other processes\n",
    "torchrun": "E0318 17:26:49.123000 8 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {}) local_rank: 0 (pid: 8)\n",
    "deepspeed": "[2026-05-01 12:00:00,100] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = {}\n",
    "vllm": "ERROR 04-17 15:10:09 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 77 died, exit code: {}\n",
    "sglang": "[2026-05-01 12:00:00] Child process unexpectedly failed with exitcode={}. pid=77\n",
    "spawn": "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code {}\n",
    "shell": "run.sh: python ended with exit status {}\n",
    "accelerate": "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status {}.\n",
    "container": "container failed with non-zero exit code: {}\n",
    "pod": "    Exit Code:    {}\n",
    "mpi": "   Exit code:    {}\n",
}
CAUSES = {4: "segfault", 6: "segfault", 7: "bus_error", 8: "segfault", 9: "host_oom", 11: "segfault"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("signal", CAUSES)
def test_a_code_that_is_a_signal_leads_to_the_signals_cause(launcher: str, signal: int) -> None:
    for code in (-signal, 128 + signal):
        text = LAUNCHERS[launcher].format(code)
        assert said(text).cause.id == CAUSES[signal], text
        assert parse_stream("x", io.BytesIO(text.encode())).rows[0].outcome == "FAILED"
        assert re.search(exit_code(signal), text) and any(one in text for one in exit_texts(signal))


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("code", ["1", "2", "0", "-1", "9", "11", "1390", "13.9", "-110"])
def test_other_codes_are_no_signals(launcher: str, code: str) -> None:
    assert said(LAUNCHERS[launcher].format(code)).cause.id in ("unknown", "none", "python_exception")


def test_what_composer_ended_itself_is_no_cause() -> None:
    survivors = "Global rank 1 (PID 78) exited with code -9\nGlobal rank 2 (PID 79) exited with code -15\n"
    assert said("ERROR:composer.cli.launcher:Rank 0 crashed with exit code 1.\n" + survivors).cause.id == "unknown"
    assert said("ERROR:composer.cli.launcher:Rank 0 crashed with exit code -7.\n" + survivors).cause.id == "bus_error"


def test_a_code_in_a_sentence_about_something_else_says_nothing() -> None:
    for text in ("return code = 139.5 ms", "batch size 139", "loss -11", "code 3139", "error code: 139%"):
        assert said(text + "\n").cause.id == "unknown", text


# --- loggers --------------------------------------------------------------------------------------------------------

PREFIXES = [
    "ERROR 04-17 15:10:09 [engine.py:448] ",
    "(EngineCore_DP0 pid=6804) ERROR 10-11 10:42:14 [core.py:708] ",
    "(RayWorkerWrapper pid=933, ip=50.147.43.24) ERROR 05-28 08:52:46 [worker_base.py:612] ",
    "2025-01-01 10:00:00,123 - ERROR - ",
    "2025-01-01 10:00:00.123 | ERROR    | train:main:12 - ",
    "ERROR:root:",
    "[2025-01-01 10:00:00,123] [ERROR] [engine.py:12:step] ",
    "E0417 15:10:09.123456 140541 api.py:833] ",
    "[ERROR|trainer.py:12] 2025-01-01 10:00:00,123 >> ",
    "2025-01-01T10:00:00.123456Z ERROR text_generation_launcher: ",
    "[titan] 2026-05-01 10:00:00,000 - root - ERROR - ",
    "[NeMo E 2024-01-01 10:00:00 exp:12] ",
    "[rank3]:[E417 15:10:09.123456789 ProcessGroupNCCL.cpp:629] [Rank 3] ",
    "CRITICAL:my.module:",
    "[rank0]: ERROR - ",
]
SENTENCES = [
    "ERROR: the first try ended with ",
    "2025-01-01 10:00:00 - ERROR - caught ",
    "WARNING:root:",
    "2025-01-01 10:00:00,123 - INFO - ",
    "[WARNING] ",
    "retrying after ",
    "> ERROR said: '",
]
EXCEPTION = "ValueError: the shards of the two ranks differ\n"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_exception_behind_the_prefix_of_a_logger_is_one(prefix: str) -> None:
    assert opens_a_message((prefix + EXCEPTION).encode(), len(prefix))
    found = said(prefix + EXCEPTION)
    assert (found.cause.id, found.details["exception"]) == ("python_exception", "ValueError")
    assert parse_stream("x", io.BytesIO((prefix + EXCEPTION).encode())).rows[0].outcome == "FAILED"


@pytest.mark.parametrize("sentence", SENTENCES)
def test_an_exception_in_a_sentence_is_none(sentence: str) -> None:
    assert said(sentence + EXCEPTION).cause.id == "unknown"


FRAMES = '  File "/w/own.py", line 3, in load\n    check()\n'


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_traceback_whose_heading_alone_has_the_prefix(prefix: str) -> None:
    found = said(f"{prefix}Traceback (most recent call last):\n{FRAMES}mylab.ShardsAreStale: rebuild\n")
    assert (found.cause.id, found.details.get("exception")) == ("python_exception", "mylab.ShardsAreStale")


def test_a_traceback_that_a_program_tells_as_a_warning_is_none() -> None:
    assert (
        said(f"WARNING:root:Traceback (most recent call last):\n{FRAMES}mylab.ShardsAreStale: x\n").cause.id
        == "unknown"
    )


@pytest.mark.parametrize("prefix", PREFIXES)
def test_known_exceptions_keep_their_cause_behind_a_prefix(prefix: str) -> None:
    tried = 0
    for sample in samples():
        lines = sample.text.strip().splitlines()
        if len(lines) != 1 or not re.match(r"(?:\w+\.)*\w+Error: ", lines[0]):
            continue
        if said(lines[0] + "\n").cause.id == sample.cause:
            tried += 1
            assert said(prefix + lines[0] + "\n").cause.id == sample.cause, lines[0]
    assert tried > 10


# --- what came of the system or of the network ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.h:301] Connect timeout [none]", "unreachable"),
        ("[E528 08:52:46.164 ProcessGroupGloo.cpp:145] Gloo connectFullMesh failed with [/g/pair.cc:144] no error", "unreachable"),
        ("n1:1:2 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-b79-0-3-0 (size 4)", "bus_error"),
        ("ncclSystemError: System call (socket, malloc, munmap, etc) failed.", "python_exception"),
        ("requests.exceptions.ConnectionError: x", "python_exception"),
        ("OSError: [Errno 71] Protocol error", "python_exception"),
        ("subprocess.CalledProcessError: Command 'make' returned non-zero exit status 2.", "python_exception"),
    ],
)  # fmt: skip
def test_no_program_is_blamed_for_the_system(text: str, cause: str) -> None:
    found = said("Traceback (most recent call last):\n" + FRAMES + text + "\n")
    assert found.cause.id == cause
    assert "the fault is in the program or in" not in found.remedy


def test_a_program_is_blamed_for_its_own_exceptions() -> None:
    for name in ("KeyError", "TypeError", "AssertionError", "NameError"):
        found = said(f"Traceback (most recent call last):\n{FRAMES}{name}: 'x'\n")
        assert "the fault is in the program" in found.remedy


# --- programs that only infer ---------------------------------------------------------------------------------------

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB\n"
)
OF_TRAINING = re.compile(r"(?i)train|optimizer|gradient|micro batch|activation|ZeRO|FSDP|epoch|checkpoint")
ENGINES = [
    '(EngineCore_DP0 pid=6) ERROR 10-11 10:42:14 [core.py:708] ' + OOM,
    'Traceback (most recent call last):\n  File "/e/vllm/v1/worker/gpu_worker.py", line 3, in f\n    g()\n' + OOM,
    'Traceback (most recent call last):\n  File "/e/lm_eval/models/huggingface.py", line 3, in f\n    g()\n' + OOM,
    'Traceback (most recent call last):\n  File "/e/sglang/srt/scheduler.py", line 3, in f\n    g()\n' + OOM,
    'Traceback (most recent call last):\n  File "/e/transformers/generation/utils.py", line 3, in f\n    g()\n' + OOM,
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n",
    "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n",
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than "
    "the available KV cache memory (5.12 GiB).\n",
    "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB).\n",
    'Traceback (most recent call last):\n  File "/home/u/train-env/sglang/srt/scheduler.py", line 3, in f\n    g()\n' + OOM,
    "[2025-10-01 10:00:00] server_args=ServerArgs(model_path='/m')\nINFO waits for the server\n" + OOM,
    "INFO 10-01 10:00:00 [api_server.py:1896] vLLM API server version 0.10.2\n" + OOM,
    "ERROR text_generation_launcher: Shard complete standard error output:\nTraceback (most recent call last):\n  File \"/opt/bin/serve\", line 8\n" + OOM,
    'Traceback (most recent call last):\n  File "/w/serve.py", line 7, in <module>\n    engine = sgl.Engine(model_path=path)\n' + OOM,
]  # fmt: skip


@pytest.mark.parametrize("text", ENGINES)
def test_nothing_of_training_is_advised_to_what_infers(text: str) -> None:
    found = said(text)
    assert found.cause.id == "device_oom"
    assert not OF_TRAINING.search(found.remedy + found.meaning), found.remedy


def test_what_infers_is_not_advised_to_train_when_the_host_kills_it() -> None:
    killed = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=71.0. Some of the step tasks have been OOM Killed.\n"
    )
    found = said("INFO 10-01 10:00:00 [api_server.py:1896] vLLM API server version 0.10.2\n" + killed)
    assert found.cause.id == "host_oom" and not OF_TRAINING.search(found.remedy), found.remedy


def test_where_a_log_does_not_say_what_the_program_is_the_advice_fits_both() -> None:
    found = said("loading the model\n" + OOM)
    assert "where it trains" in found.remedy and "where it only infers" in found.remedy
    assert "optimizer" not in found.meaning


@pytest.mark.parametrize("frame", ["/e/trl/trainer/grpo_trainer.py", "/e/verl/workers/actor.py", "/w/train.py"])
def test_an_engine_within_training_is_training(frame: str) -> None:
    text = f'Traceback (most recent call last):\n  File "{frame}", line 3, in f\n    g()\n  File "/e/vllm/x.py", line 3, in g\n    h()\n{OOM}'
    assert "gradient accumulation" in said(text).remedy


@pytest.mark.parametrize(
    ("text", "advised", "never"),
    [
        ("CUDA Error: out of memory at /src/csrc/cumem_allocator.cpp:62\n", "gpu_memory_utilization", "ALLOC_CONF"),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 9.1 GB).\n", "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "nvidia-smi"),
        ("RESOURCE_EXHAUSTED: Attempting to reserve 10.51G at the bottom of memory. That was not possible.\n", "jax.checkpoint", "ZeRO"),
        ("NPU out of memory. Tried to allocate 1.00 GiB (NPU 0; 40.00 GiB total capacity; 20.00 GiB already allocated; 0.20 GiB free; 38.50 GiB "
         "reserved in total by PyTorch)\n", "PYTORCH_NPU_ALLOC_CONF", "CUDA"),
        ("ggml_backend_cuda_buffer: cudaMalloc failed: out of memory\n", "-ngl", "ZeRO"),
    ],
)  # fmt: skip
def test_each_kind_of_memory_has_advice_of_its_own(text: str, advised: str, never: str) -> None:
    found = said(text)
    assert found.cause.id == "device_oom" and "optimizer" not in found.meaning
    assert advised in found.remedy and never not in found.remedy


# --- an evaluation --------------------------------------------------------------------------------------------------

TRAINED = "{{'loss': {}, 'grad_norm': 1.0, 'learning_rate': 1e-5, 'epoch': 0.{}}}\n"
END = "{'train_runtime': 50.0, 'train_samples_per_second': 2.0, 'train_steps_per_second': 0.2, 'train_loss': 1.9, 'epoch': 1.0}\n"


@pytest.mark.parametrize(
    "line",
    [
        "{'eval_loss': nan, 'eval_runtime': 10.0, 'epoch': 0.2}\n",
        "val_loss: nan\n",
        "validation loss = nan\n",
        "test/loss: nan\n",
        "best_train_loss: nan\n",
        "  lowest loss: nan\n",
    ],
)
def test_a_loss_of_an_evaluation_that_is_no_number_invalidates_no_training(line: str) -> None:
    text = TRAINED.format(2.0, 1) + line + TRAINED.format(1.8, 3) + END
    (row,) = parse_stream("x", io.BytesIO(text.encode())).rows
    found = said(text)
    assert (found.cause.id, row.outcome) == ("none", "COMPLETED")
    assert ("labels" in found.summary) == ("eval_loss" in line)
    assert said(TRAINED.format("nan", 1) + line + TRAINED.format("nan", 3) + END).cause.id == "nan_loss"
