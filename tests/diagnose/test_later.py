"""Logs that go on behind an error: further jobs and attempts in one file, and programs that caught what was raised."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from hpc_llm.causes import later
from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]
BEGIN = datetime(2026, 3, 6, 9, 0)
RAISED = """\
Traceback (most recent call last):
  File "/w/bench.py", line 459, in run
    slot = pool.take()
RuntimeError: no free slot
"""
ENDED = "slurmstepd: error: *** JOB {} ON n1 CANCELLED AT {} ***\n"
OPENING = "{:%F %T} - INFO - Reading the settings of the run\n{:%F %T} - INFO - Random seeds are set anew\n"


def _lines(count: int, minutes: float, begin: datetime = BEGIN) -> Iterator[str]:
    for number in range(count):
        time = begin + timedelta(minutes=minutes * number / count)
        yield f"{time:%F %T} [INFO] Split {number} of the pipeline: latency {100 + number} ms\n"


def _sweep(lines: int = 60, minutes: float = 600, end: str = "Done.\n") -> str:
    written = list(_lines(lines, minutes))
    return "".join((*written[:3], RAISED, *written[3:], end))


def _opening(minutes: float) -> str:
    time = BEGIN + timedelta(minutes=minutes)
    return OPENING.format(time, time)


def _outcome(text: str) -> str | None:
    return parse_stream("x", io.BytesIO(text.encode())).rows[-1].outcome


@pytest.mark.parametrize(
    "end",
    [
        "Done.\n",
        f"{BEGIN + timedelta(hours=10):%F %T} - INFO - Treinamento concluído com sucesso\n",
        "Total time: 6033.5\nSuccess rate: 18.0%\n",
    ],
)
def test_an_error_after_which_the_program_wrote_on_for_long_and_ended_in_order_is_no_verdict(
    end: str, diagnose: Diagnose
) -> None:
    found = diagnose(_sweep(end=end))
    assert found.cause.id == "unknown" and _outcome(_sweep(end=end)) == "UNKNOWN"
    assert "did not end it" in found.summary and "no free slot" in found.evidence[0].text
    assert "sacct" not in found.remedy and "results" in found.remedy


def test_an_error_far_before_the_end_was_overcome_too(diagnose: Diagnose) -> None:
    """Of so much text only the end is kept, in which no hour passes."""
    text = _sweep(end="") + "".join(_lines(20_000, 5, BEGIN + timedelta(hours=10))) + "Done.\n"
    assert diagnose(text).cause.id == "unknown" and _outcome(text) == "UNKNOWN"


@pytest.mark.parametrize(
    "text",
    [
        _sweep(lines=10),
        _sweep(minutes=2),
        _sweep(end=RAISED),
        _sweep(end=RAISED + "Done.\n"),
        _sweep(end="ERROR: 12 configurations failed\n"),
        "".join(_lines(60, 600))
        + RAISED
        + "cleaning up\nremoving the cache\ncopying logs\nthe job's last line\nDone.\n",
    ],
    ids=["little", "quickly", "another error", "another error, and the script's word", "not in order", "all before it"],
)
def test_an_error_after_which_little_is_seen_stays_the_verdict(text: str, diagnose: Diagnose) -> None:
    assert diagnose(text).cause.id == "python_exception" and _outcome(text) == "FAILED"


def test_of_attempts_in_one_file_the_last_one_says_how_it_ended(diagnose: Diagnose) -> None:
    text = _opening(0) + RAISED + _opening(60) + "loading the model\nTerminated\n"
    found = diagnose(text)
    assert (found.cause.id, found.chain) == ("cancelled", ("cancelled",)) and _outcome(text) == "CANCELLED"


def test_what_the_command_date_writes_is_a_clock_too(diagnose: Diagnose) -> None:
    attempt = (
        "Sat Dec 20 {}:48:39 CET 2025\n| Name of the processor | Memory |\n| Name of the process | Owner of it |\n"
    )
    text = attempt.format(18) + RAISED + attempt.format(20) + "loading the model\nTerminated\n"
    assert diagnose(text).cause.id == "cancelled"


def test_a_rank_that_begins_a_little_later_is_no_further_attempt(diagnose: Diagnose) -> None:
    text = _opening(0) + RAISED + _opening(0.5) + "loading the model\nTerminated\n"
    assert diagnose(text).cause.id == "python_exception"


def test_a_later_attempt_without_an_end_leaves_the_first_one_aside(diagnose: Diagnose) -> None:
    text = _opening(0) + RAISED + _opening(60) + "loading the model\n"
    assert diagnose(text).cause.id == "unknown"


def test_silence_before_the_same_lines_is_that_of_another_attempt(diagnose: Diagnose) -> None:
    said = _opening(0) + RAISED + _opening(60) + RAISED
    assert diagnose(said + _opening(61.8) + _opening(62.3) + "loading the model\n").cause.id == "unknown"
    assert diagnose(said + _opening(60.9) + "loading the model\n").cause.id == "python_exception"


OOM = 'Traceback (most recent call last):\n  File "/w/train.py", line 7, in main\n    step()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n'
RESTARTS = "I0306 09:00:00.100000 139 agent/server/api.py:958] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
QUEUED_AGAIN = "slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2026-03-06T09:00:00 DUE TO JOB REQUEUE ***\n"
SAME = "Loading the modules of this cluster for the job\nReading the settings of the training run\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OOM + "attempt 2 of 3\n" + RAISED, "python_exception"),
        (OOM + "attempt 2 of 3\nloading the model\n", "unknown"),
        (OOM + "=== Attempt 2/3 ===\nloading the model\nTraining finished\n", "none"),
        (OOM + "[2026-03-06 09:00:00] resuming run (attempt 2)\n" + RAISED, "python_exception"),
        (OOM + "Training crashed with exit code 1. Restarting in 30s\n" + RAISED, "python_exception"),
        (RAISED + RESTARTS + OOM, "device_oom"),
        (OOM + RESTARTS + "loading the model\n", "unknown"),
        (SAME + OOM + QUEUED_AGAIN + SAME + RAISED, "python_exception"),
        (SAME + QUEUED_AGAIN + SAME + "loading the model\n", "unknown"),
        (SAME + QUEUED_AGAIN + RAISED + "srun: error: n1: task 0: Terminated\n", "cancelled"),
        (OOM + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n" + RAISED, "device_oom"),
        (SAME + OOM + SAME + RAISED, "device_oom"),
        (OOM + "attempt 1 of 3\n" + RAISED, "device_oom"),
        (OOM + "Attempt 2/5 to connect to the server\nRetrying (2/3) to download weights\n", "device_oom"),
        (OOM + "data loading failed, retrying\n" + RAISED, "device_oom"),
    ],
)
def test_of_attempts_that_a_launcher_or_a_script_begins_the_last_one_counts(
    text: str, cause: str, diagnose: Diagnose
) -> None:
    assert diagnose(text).cause.id == cause
    assert (parse_stream("x", io.BytesIO(text.encode())).rows[-1].cause or "unknown") == cause


def test_the_attempts_before_the_last_one_are_named(diagnose: Diagnose) -> None:
    said = diagnose(OOM + RESTARTS + RAISED + RESTARTS + OOM).several
    assert said == "the last of several attempts; before it: device_oom (line 4), python_exception (line 9)"


FAULT = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f2b8c1c4740 (most recent call first):
  File "/opt/env/lib/python3.10/site-packages/torch/autograd/graph.py", line 769 in _engine_run_backward
  File "/home/u/train.py", line 212 in main

Extension modules: numpy.core._multiarray_umath, torch._C (total: 61)
E0612 14:02:11.482000 140213 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 3 (pid: 140299) of binary: /opt/env/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  exitcode  : -11 (pid: 140299)
  traceback : Signal 11 (SIGSEGV) received by PID 140299
"""
"""What Python's faulthandler writes, and torchrun behind it."""
STEPS = "".join(
    f"{{'loss': {3 - n / 100:.2f}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {n / 100}}}\n"
    for n in range(1, 20)
)


@pytest.mark.parametrize("again", ["", SAME, "Restarting training (attempt {})\n"], ids=["nothing", "opening", "words"])
def test_each_attempt_that_crashed_is_told_as_one_that_did(again: str, diagnose: Diagnose) -> None:
    text = "".join(again.format(number) + STEPS + FAULT for number in (1, 2, 3))
    found = diagnose(text)
    assert found.cause.id == "segfault" and found.evidence[0].text.startswith("Fatal Python error")
    assert [(one.cause.id, one.outcome) for one in found.runs] == [("segfault", "FAILED")] * 3
    assert [row.cause for row in parse_stream("x", io.BytesIO(text.encode())).rows] == ["segfault"] * 3


@pytest.mark.parametrize("behind", ["", "\n  \n", "loading the model\n"])
def test_an_attempt_of_which_nothing_is_seen_leaves_the_one_before_it_the_last(behind: str, diagnose: Diagnose) -> None:
    text = (STEPS + FAULT + "Training crashed with exit code 1, restarting in 30 s (attempt 2/3)\n") * 2 + behind
    assert diagnose(text).cause.id == ("unknown" if behind.strip() else "segfault")


SERVER = "(APIServer pid={0}) INFO 09-30 18:36:42 [api_server.py:1896] vLLM API server version 0.10.2\n(APIServer pid={0}) INFO loads\n"
FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.57 GiB\n"
)
UP = "(APIServer pid={0}) INFO:     Application startup complete.\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (SERVER.format(7) + FAILED + SERVER.format(9) + UP.format(9), "unknown"),
        (SERVER.format(7) + FAILED + SERVER.format(9), "device_oom"),
        (SERVER.format(7) + UP.format(7) + FAILED, "device_oom"),
        (SERVER.format(7) + FAILED + SERVER.format(9) + UP.format(9) + FAILED, "device_oom"),
        (SERVER.format(7) + FAILED + SERVER.format(9) + UP.format(7) + UP.format(9), "device_oom"),
    ],
    ids=["another came up", "it did not come up", "the same", "it failed too", "both at once"],
)
def test_a_server_that_came_up_later_says_how_it_ended(text: str, cause: str, diagnose: Diagnose) -> None:
    assert diagnose(text).cause.id == cause
    assert parse_stream("x", io.BytesIO(text.encode())).rows[-1].cause == (None if cause == "unknown" else cause)


@pytest.mark.parametrize(
    ("first", "second"),
    [((304184, "2025-10-16T02:31:48"), (310529, "2025-10-16T02:31:48")), ((9, "2025-10-16T02:31:48"), (12, "2025-10-16T02:33:50"))],
    ids=["ids far apart", "ids near each other, at another time"],
)  # fmt: skip
def test_jobs_in_one_file_are_told_apart(first: tuple[int, str], second: tuple[int, str], diagnose: Diagnose) -> None:
    found = diagnose(RAISED + ENDED.format(*first) + "loading the model\n" + ENDED.format(*second))
    assert found.chain == ("cancelled",) and f"JOB {second[0]} " in found.evidence[0].text


def test_the_parts_of_one_job_end_at_once(diagnose: Diagnose) -> None:
    parts = ENDED.format(9, "2025-10-16T02:31:48") + ENDED.format(10, "2025-10-16T02:31:49")
    assert diagnose(RAISED + parts).chain == ("python_exception", "cancelled")


def test_a_rendezvous_without_an_address_is_not_advised_to_look_at_one(diagnose: Diagnose) -> None:
    raised = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
    assert "address in the evidence" not in diagnose(f"RuntimeError: Broken pipe\n{raised}\n").remedy
    timed_out = "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (192.0.0.1, 1234)."
    assert "address in the evidence" in diagnose(f"{timed_out}\n{raised}\n").remedy


def test_the_reason_of_a_kernel_that_nobody_compiles_is_the_compilers_line() -> None:
    text = 'Traceback (most recent call last):\n  File "/w/t.py", line 1, in f\n    x.erfinv_()\nRuntimeError:\n  #define X\nnvrtc: error: invalid value for --gpu-architecture (-arch)\n'
    row = parse_stream("x", io.BytesIO(text.encode())).rows[-1]
    assert (row.cause, row.outcome_reason) == (
        "driver_mismatch",
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
    )


def test_who_generates_is_not_advised_to_learn_slower(diagnose: Diagnose) -> None:
    text = 'Traceback (most recent call last):\n  File "/w/answer.py", line 31, in <module>\n    out = model.generate(**inputs)\nRuntimeError: probability tensor contains either `inf`, `nan` or element < 0\n'
    assert "learning rate" not in diagnose(text).remedy


def test_a_child_whose_parent_ended_is_no_rank(diagnose: Diagnose) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/e/lib/python3.10/multiprocessing/spawn.py", line 126, in _main\n'
        "    self = reduction.pickle.load(from_parent)\n_pickle.UnpicklingError: pickle data was truncated\n"
    )
    found = diagnose(text)
    assert found.cause.id == "unknown" and "rank" not in found.summary and "started this one" in found.summary


def test_each_line_of_a_job_taken_down_is_read_once() -> None:
    line = "slurmstepd: error: *** JOB {0} ON n{0} CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
    later._down.cache_clear()
    text = "".join(map(line.format, range(400)))
    assert parse_stream("x", io.BytesIO(text.encode())).rows[-1].cause == "walltime"
    assert 0 < later._down.cache_info().misses <= 400


LOADED = "Loaded module: toolchain/7\nLoaded dependency [solver/v7-prod]: driver/10\nLoaded module: solver/v7\n"
FAILURES = (
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "DataLoader worker (pid 7) exited unexpectedly with exit code 1.",
    "the last one failed of this",
)


def _raised(message: str) -> str:
    return f'Traceback (most recent call last):\n  File "/w/t.py", line 9, in <module>\nRuntimeError: {message}\n'


@pytest.mark.parametrize("more", ["", LOADED, "\n" + LOADED + LOADED], ids=["", "one without output", "two"])
@pytest.mark.parametrize("failures", [FAILURES, (FAILURES[2], *FAILURES)], ids=["another", "that of the first"])
def test_attempts_that_begin_alike_behind_exceptions_end_as_the_last(
    failures: tuple[str, ...], more: str, diagnose: Diagnose
) -> None:
    text = "".join(LOADED + _raised(one) for one in failures) + more
    found = diagnose(text)
    assert found.evidence[0].text == f"RuntimeError: {FAILURES[-1]}" and "several attempts" in found.several
    row = parse_stream("x", io.BytesIO(text.encode())).rows[-1]
    assert row.outcome_reason == f"RuntimeError: {FAILURES[-1]}"


def test_the_last_of_them_may_have_failed_of_nothing(diagnose: Diagnose) -> None:
    text = "".join(LOADED + _raised(one) for one in FAILURES) + LOADED + "Saved 12 figures\n"
    assert diagnose(text).cause.id == "unknown" and _outcome(text) == "UNKNOWN"


@pytest.mark.parametrize(
    "text",
    [
        "".join(LOADED + _raised(one) for one in FAILURES[:1] + FAILURES[2:]),
        "".join(map(_raised, FAILURES)),
        LOADED * 3 + "".join(map(_raised, FAILURES)),
    ],
    ids=["two alone", "ranks without output", "ranks"],
)
def test_what_ranks_write_one_after_the_other_is_one_attempt(text: str, diagnose: Diagnose) -> None:
    assert diagnose(text).cause.id == "device_oom" and _outcome(text) == "OOM_DEVICE"
