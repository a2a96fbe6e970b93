"""A job that Slurm ended at its time limit was alive until then: what a program wrote down and went on with, or raised for the signal, is no cause."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]

LIMIT = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-01-01T03:00:00 DUE TO TIME LIMIT ***\n"
STEPS = "".join(
    f"{{'loss': {3 - n / 100}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {n / 100}}}\n" for n in range(1, 6)
)
FRAME = 'Traceback (most recent call last):\n  File "/home/u/{}", line 4, in {}\n    run()\n'
LOOP = FRAME.format("lib/python3.11/asyncio/events.py", "_run") + "zmq.error.ZMQError: Socket operation on non-socket\n"
TOLD = {
    "callback": f"Exception in callback Stream._run(1)\nhandle: <Handle Stream._run(1)>\n{LOOP}",
    "task": f"Task exception was never retrieved\nfuture: <Task finished name='Task-9' coro=<poll()>>\n{LOOP}",
    "server": "[E 06:45:20.847 NotebookApp] Uncaught exception in stream callback\n    Traceback (most recent call last):\n"
    '      File "/e/site-packages/zmq/stream.py", line 6, in _handle\n        self.recv()\n    ValueError: no such frame\n',
    "logger": "2025-01-01 01:00:00 ERROR uploader: one part is missing\n"
    + FRAME.format("e/site-packages/store/put.py", "put")
    + "ValueError: bad part\n",
}
OF_THE_SIGNAL = {
    "named": FRAME.format("train.py", "main") + "RuntimeError: received SIGTERM, stopping\n",
    "number": FRAME.format("train.py", "main") + "StopTraining: got signal 15\n",
    "code": FRAME.format("train.py", "<module>") + "SystemExit: 143\n",
    "handler": FRAME.format("train.py", "<module>")
    + '  File "/home/u/train.py", line 9, in handle_signal\n    raise Stopped("by the queue")\nstopping.Stopped: by the queue\n',
}
BROKEN = FRAME.format("train.py", "<module>") + "KeyError: 3\n"


@pytest.mark.parametrize("said", (TOLD | OF_THE_SIGNAL).values(), ids=TOLD | OF_THE_SIGNAL)
@pytest.mark.parametrize("before", ["", STEPS])
def test_the_time_limit_is_the_cause(before: str, said: str, diagnose: Diagnose) -> None:
    row = parse_stream("a.log", io.BytesIO((before + said + LIMIT).encode())).rows[-1]
    assert (diagnose(before + said + LIMIT).cause.id, row.cause, row.outcome) == ("walltime", "walltime", "TIMEOUT")


@pytest.mark.parametrize("said", [*TOLD.values(), *OF_THE_SIGNAL.values(), BROKEN])
def test_without_the_limit_the_exception_is_shown(said: str, diagnose: Diagnose) -> None:
    assert diagnose(STEPS + said).cause.id == "python_exception"


def test_an_exception_that_ended_a_process_before_the_limit_stays_the_cause(diagnose: Diagnose) -> None:
    assert diagnose(STEPS + BROKEN + LIMIT).chain[0] == "python_exception"
    assert diagnose(STEPS + TOLD["callback"] + BROKEN + LIMIT).summary.startswith("KeyError: 3")
