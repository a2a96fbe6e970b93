"""What a program or a library caught, wrote down and went on after: it is no cause of another end."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]


def hf(first: int, last: int) -> str:
    return "".join(
        f"{{'loss': {3 - n / 100:.2f}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {n / 100}}}\n"
        for n in range(first, last)
    )


def verl(first: int, last: int) -> str:
    return "".join(
        f"(TaskRunner pid=2211) step:{n} - actor/entropy:0.5 - actor/pg_loss:0.01 - timing_s/step:50.1\n"
        for n in range(first, last)
    )


END = "{'train_runtime': 210.0, 'train_samples_per_second': 7.62, 'train_steps_per_second': 0.952, 'train_loss': 0.2, 'epoch': 1.0}\n"
LIMIT = "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
RAISED = (
    'Traceback (most recent call last):\n  File "/home/u/train.py", line 4, in <module>\n    a["b"]\nKeyError: \'b\'\n'
)
ENDS = {
    END: "none",
    LIMIT: "walltime",
    RAISED: "python_exception",
    "": "unknown",
    "srun: error: n1: task 0: Exited with exit code 1\n": "unknown",
}
TOOL = """\
(AgentLoopWorker pid=3311) ERROR 05-11 12:00:03 [tool_agent_loop.py:221] Error when executing tool: Expecting value: line 1 column 2 (char 1)
(AgentLoopWorker pid=3311) Traceback (most recent call last):
(AgentLoopWorker pid=3311)   File "/opt/verl/verl/experimental/agent_loop/tool_agent_loop.py", line 210, in _call_tool
(AgentLoopWorker pid=3311)     tool_args = json.loads(tool_call.arguments)
(AgentLoopWorker pid=3311)   File "/usr/lib/python3.10/json/__init__.py", line 346, in loads
(AgentLoopWorker pid=3311)     return _default_decoder.decode(s)
(AgentLoopWorker pid=3311) json.decoder.JSONDecodeError: Expecting value: line 1 column 2 (char 1)
"""
TOOL_OF_SGLANG = """\
(SGLangRolloutWorker pid=3311) ERROR:2025-07-11 12:00:03,111:Error in tool call
(SGLangRolloutWorker pid=3311) Traceback (most recent call last):
(SGLangRolloutWorker pid=3311)   File "/opt/verl/verl/workers/rollout/sglang_rollout/sglang_rollout.py", line 210, in _handle
(SGLangRolloutWorker pid=3311)     r = await self.call()
(SGLangRolloutWorker pid=3311) RuntimeError: tool failed
"""
REWARD = """\
(RewardWorker pid=3311) Traceback (most recent call last):
(RewardWorker pid=3311)   File "/opt/verl/verl/utils/reward_score/prime_math/__init__.py", line 210, in _handle
(RewardWorker pid=3311)     r = self.call()
(RewardWorker pid=3311) verl.utils.reward_score.prime_math.grader.TimeoutException: Timed out!
"""
BITSANDBYTES = """\
Could not find the bitsandbytes CUDA binary at PosixPath('/opt/env/lib/python3.11/site-packages/bitsandbytes/libbitsandbytes_cuda126.so')
Could not load bitsandbytes native library: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /opt/env/lib/python3.11/site-packages/bitsandbytes/libbitsandbytes_cpu.so)
Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/bitsandbytes/cextension.py", line 85, in <module>
    lib = get_native_library()
          ^^^^^^^^^^^^^^^^^^^^
  File "/opt/env/lib/python3.11/site-packages/bitsandbytes/cextension.py", line 72, in get_native_library
    dll = ct.cdll.LoadLibrary(str(binary_path))
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib64/python3.11/ctypes/__init__.py", line 454, in LoadLibrary
    return self._dlltype(name)
           ^^^^^^^^^^^^^^^^^^^
  File "/usr/lib64/python3.11/ctypes/__init__.py", line 376, in __init__
    self._handle = _dlopen(self._name, mode)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^
OSError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /opt/env/lib/python3.11/site-packages/bitsandbytes/libbitsandbytes_cpu.so)

CUDA Setup failed despite CUDA being available. Please run the following command to get more information:

python -m bitsandbytes

Inspect the output of the command and see if you can locate CUDA libraries. You might need to add them
to your LD_LIBRARY_PATH. If you suspect a bug, please take the information from python -m bitsandbytes
and open an issue at: https://github.com/bitsandbytes-foundation/bitsandbytes/issues

"""
SENDER = """\
wandb: ERROR Error while calling W&B API: internal server error (<Response [500]>)
Thread SenderThread:
Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/wandb/sdk/internal/internal_util.py", line 48, in run
    self._run()
  File "/opt/env/lib/python3.10/site-packages/wandb/sdk/internal/sender.py", line 341, in send
    send_handler(record)
wandb.errors.CommError: internal server error
wandb: ERROR Internal wandb error: file data was not synced
"""
UPLOAD = """\
wandb: Network error (ConnectTimeout), entering retry loop.
wandb: 429 encountered ({"error":"rate limit exceeded"}), retrying request
Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/wandb/apis/normalize.py", line 41, in wrapper
    return func(*args, **kwargs)
requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: https://api.wandb.ai/graphql
"""
MLFLOW = """\
2025/03/01 10:00:01 WARNING mlflow.utils.autologging_utils: Encountered unexpected error during transformers autologging: API request failed
2025/03/01 10:00:01 ERROR mlflow.utils.async_logging.async_logging_queue: Run Id 4fa: Failed to log run data: Exception: API request to endpoint /api/2.0/mlflow/runs/log-batch failed with error code 503 != 200. Response body: 'upstream connect error'
Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/mlflow/utils/async_logging/async_logging_queue.py", line 144, in _log_run_data
    self._logging_func(
mlflow.exceptions.MlflowException: API request to endpoint /api/2.0/mlflow/runs/log-batch failed with error code 503 != 200. Response body: 'upstream connect error'
"""
EVENTS = """\
Exception in thread Thread-3:
Traceback (most recent call last):
  File "/usr/lib/python3.10/threading.py", line 1016, in _bootstrap_inner
    self.run()
  File "/opt/env/lib/python3.10/site-packages/tensorboard/summary/writer/event_file_writer.py", line 233, in run
    self._record_writer.write(data)
  File "/opt/env/lib/python3.10/site-packages/tensorboard/compat/tensorflow_stub/io/gfile.py", line 132, in write
    f.write(file_content)
OSError: [Errno 122] Disk quota exceeded: '/home/u/runs/events.out'
"""
HUB = """\
'(ReadTimeoutError("HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)"), '(Request ID: 8f1)')' thrown while requesting HEAD https://huggingface.co/x/resolve/main/config.json
Retrying in 1s [Retry 1/5].
"""
RETRIED = """\
[2026-01-06 15:32:18,446][huggingface_hub.utils._http][WARNING] - '(MaxRetryError("HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /u/x/resolve/main/config.json (Caused by SSLError(8))"), '(Request ID: 8f1)')' thrown while requesting HEAD https://huggingface.co/u/x/resolve/main/config.json
[2026-01-06 15:32:18,447][huggingface_hub.utils._http][WARNING] - Retrying in {0}s [Retry {0}/5].
"""
PUSH = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/huggingface_hub/utils/_http.py", line 409, in hf_raise_for_status
    response.raise_for_status()
requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: https://huggingface.co/api/models/u/x/commit/main
WARNING: push failed, continuing
"""
SAMPLE = """\
2025-05-01 10:00:00,123 - ERROR - data.loader - failed to read sample 812, retrying (1/3)
Traceback (most recent call last):
  File "/w/data/loader.py", line 88, in __getitem__
    img = Image.open(io.BytesIO(raw))
PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f9>
"""
DISK = """\
[ERROR] dataset.py:88 failed to read sample 812
Traceback (most recent call last):
  File "/w/data/loader.py", line 88, in __getitem__
    raw = f.read()
OSError: [Errno 5] Input/output error: '/scratch/x.bin'
"""

BESIDE = {"wandb's thread": SENDER, "wandb": UPLOAD, "mlflow": MLFLOW, "tensorboard": EVENTS, "bitsandbytes": BITSANDBYTES,
          "bitsandbytes logged": BITSANDBYTES.replace("Could not load", "ERROR:bitsandbytes.cextension:Could not load"), "hub": HUB}  # fmt: skip
TOLD = {"tool": TOOL, "sglang": TOOL_OF_SGLANG, "reward": REWARD, "push": PUSH, "sample": SAMPLE, "disk": DISK}


def causes(diagnose: Diagnose, text: str) -> tuple[str, str]:
    return diagnose(text).cause.id, parse_stream("x", io.BytesIO(text.encode())).rows[-1].cause or "unknown"


@pytest.mark.parametrize("said", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("before", [0, 5])
def test_what_fails_in_a_library_beside_the_program_is_no_cause_of_its_end(
    before: int, said: str, diagnose: Diagnose
) -> None:
    for after in (1, 3, 400):
        for end, cause in ENDS.items():
            text = hf(1, 1 + before) + said + hf(1 + before, 1 + before + after) + end
            assert causes(diagnose, text) == (cause, cause), (after, end)
    for end in (LIMIT, RAISED):
        assert causes(diagnose, hf(1, 1 + before) + said + end) == (ENDS[end], ENDS[end]), end
    assert not before or "'b'" in diagnose(hf(1, 6) + said + RAISED).summary


@pytest.mark.parametrize("said", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("steps", [hf, verl])
def test_what_the_program_wrote_down_and_went_on_after_is_no_cause(
    steps: Callable[[int, int], str], said: str, diagnose: Diagnose
) -> None:
    for after in (2, 5):
        for end, cause in ENDS.items():
            text = steps(1, 5) + said + steps(5, 5 + after) + end
            assert causes(diagnose, text) == (cause, cause), (after, end)
    for end in (LIMIT, RAISED):
        assert causes(diagnose, steps(1, 5) + said + steps(5, 6) + end) == (ENDS[end], ENDS[end]), end
    assert "'b'" in diagnose(steps(1, 5) + said + steps(5, 6) + RAISED).summary


@pytest.mark.parametrize(
    "said", [TOOL, TOOL_OF_SGLANG, REWARD, PUSH, SAMPLE], ids=["tool", "sglang", "reward", "push", "sample"]
)
def test_the_last_of_many_that_were_caught_at_one_place_is_no_cause(said: str, diagnose: Diagnose) -> None:
    text = "".join(verl(n, n + 1) + said for n in range(1, 30)) + said.replace("Expecting value", "Extra data")
    for end, cause in ENDS.items():
        assert causes(diagnose, text + end) == (cause, cause), end


@pytest.mark.parametrize("said", [TOOL, TOOL_OF_SGLANG, REWARD], ids=["tool", "sglang", "reward"])
def test_a_process_that_raises_the_same_again_went_on_after_it(said: str, diagnose: Diagnose) -> None:
    """Of rollouts no step is known; other processes raise the same, and each of many ranks may do so at its end."""
    roll = "(AgentLoopWorker pid=3311) <answer>(691, 256)</answer>\n" * 40
    text = "".join(roll + said.replace("3311", f"33{n % 2}1") for n in range(12)) + roll
    assert causes(diagnose, text) == ("unknown", "unknown")
    assert causes(diagnose, text + RAISED) == ("python_exception", "python_exception")
    each = "".join(said.replace("3311", str(3311 + n)) for n in range(12))
    assert causes(diagnose, roll + each) == causes(diagnose, said) != ("unknown", "unknown")


def test_the_first_and_only_one_may_have_ended_it(diagnose: Diagnose) -> None:
    for said in (TOOL_OF_SGLANG, REWARD, SAMPLE):
        assert causes(diagnose, hf(1, 5) + said) == ("python_exception", "python_exception")
    assert diagnose(BITSANDBYTES).cause.id == "driver_mismatch"


RUNS_OUT = 'ERROR:worker:failed\nTraceback (most recent call last):\n  File "/w/engine.py", line 3, in step\n    f()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n'


def test_memory_that_ran_out_again_is_not_forgiven(diagnose: Diagnose) -> None:
    text = "".join(hf(n, n + 1) + RUNS_OUT for n in range(1, 9))
    assert causes(diagnose, text) == ("device_oom", "device_oom")


CHAIN = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/wandb/apis/normalize.py", line 41, in wrapper
    return func(*args, **kwargs)
requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://api.wandb.ai/graphql

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/u/train.py", line 9, in <module>
    wandb.init(project="x")
  File "/opt/env/lib/python3.10/site-packages/wandb/sdk/wandb_init.py", line 1200, in init
    raise CommError("permission denied")
wandb.errors.CommError: permission denied
"""
IMPORT = """\
Traceback (most recent call last):
  File "/w/train.py", line 3, in <module>
    import bitsandbytes as bnb
  File "/opt/env/lib/python3.10/site-packages/bitsandbytes/cextension.py", line 20, in <module>
    raise RuntimeError('CUDA Setup failed despite GPU being available.')
RuntimeError: CUDA Setup failed despite GPU being available. Please run the following command to get more information:
"""
NEEDED = "Traceback (most recent call last):\n  File \"/w/train.py\", line 3, in <module>\n    f()\nAttributeError: 'NoneType' object has no attribute 'cquantize_blockwise_fp16_nf4'\n"
ENGINE = """\
ERROR 05-11 12:00:03 [core.py:396] Traceback (most recent call last):
ERROR 05-11 12:00:03 [core.py:396]   File "/opt/env/lib/python3.10/site-packages/vllm/v1/engine/core.py", line 387, in run_engine_core
ERROR 05-11 12:00:03 [core.py:396]     engine_core = EngineCoreProc(*args, **kwargs)
ERROR 05-11 12:00:03 [core.py:396] ValueError: no such quantization
Traceback (most recent call last):
  File "/w/serve.py", line 4, in <module>
    LLM(model="x")
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


@pytest.mark.parametrize(
    ("text", "cause", "evidence"),
    [
        (CHAIN, "python_exception", "HTTPError"),
        (IMPORT, "driver_mismatch", "CUDA Setup failed"),
        (BITSANDBYTES + NEEDED, "driver_mismatch", "cquantize_blockwise"),
        (ENGINE, "python_exception", "no such quantization"),
    ],
    ids=["wandb.init", "an import that fails", "what was missed later", "an engine's own log"],
)
def test_what_came_through_to_the_program_stays_the_cause(
    text: str, cause: str, evidence: str, diagnose: Diagnose
) -> None:
    for end in ("", "srun: error: n1: task 0: Exited with exit code 1\n"):
        found = diagnose(text + end)
        assert found.cause.id == cause and evidence in found.evidence[0].text


@pytest.mark.parametrize("tries", [1, 3])
def test_what_was_fetched_at_another_try_is_not_missing(tries: int, diagnose: Diagnose) -> None:
    retried = "".join(RETRIED.format(n) for n in range(1, tries + 1))
    got = "[2026-01-06 15:32:20,373][verl.checkpoint][INFO] - [Rank 0] Saved model config\n"
    assert diagnose(retried + got).cause.id == "unknown"
    assert diagnose(retried).cause.id == diagnose(retried + RAISED).cause.id == "model_missing"
    given_up = "".join(RETRIED.splitlines(keepends=True)[:1])
    assert diagnose(retried + given_up + got).cause.id == "model_missing"


@pytest.mark.parametrize(("files", "cause"), [(40, "cancelled"), (3, "python_exception")])
def test_a_program_that_tells_of_one_file_after_the_other_is_not_ended_by_the_first(
    diagnose: Diagnose, files: int, cause: str
) -> None:
    """Ranks that fail in one place are few, or say the same."""
    caught = "".join(
        f"[ERROR] 2026-04-13 15:55:{n:02d},680 - Fatal error on song-{n}.mid:\nTraceback (most recent call last):\n"
        '  File "/w/flatten.py", line 110, in process_file\n    mid.save(name)\n'
        f"PermissionError: [Errno 13] Permission denied: '/data/song-{n}.mid'\n[INFO] 2026-04-13 15:55:{n:02d},722 - Flattening song-{n + 1}.mid\n"
        for n in range(files)
    )
    end = "[2026-04-13T15:56:16.587] error: *** JOB 105 ON n1 CANCELLED AT 2026-04-13T15:56:16 DUE to SIGNAL Terminated ***\n"
    assert diagnose(caught + end).cause.id == cause
