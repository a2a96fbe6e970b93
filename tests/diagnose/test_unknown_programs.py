"""Logs of programs that no format knows: their lines look like steps, and tell whether a message before them did harm."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pace import is_within

from hpc_llm.diagnosis import Diagnosis, diagnose_stream
from hpc_llm.parsing import parallel, parse_stream

STEPS = {
    "maxtext": "completed step: {n}, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, loss: 9.5",
    "olmo": "2024-08-06 10:00:00.520 host:0  olmo.train:908  INFO    [step={n}/739328,epoch=0]\n    train/CrossEntropyLoss=12.18",
    "verl": "(TaskRunner pid=16292) step:{n} - actor/pg_loss:0.001 - actor/grad_norm:0.069 - timing_s/step:96.551",
    "nanochat": "step {n:05}/21400 (0.10%) | loss: 11.000000 | grad norm: 1.2 | dt: 1050.00ms | tok/sec: 499,321",
    "fairseq": "2021-03-01 10:00:03 | INFO | train_inner | epoch 001: {n} / 3000 loss=9.1, ppl=550, num_updates={n}, lr=1e-5",
    "litgpt": "Epoch 1 | iter {n} step {n} | loss train: 2.840, val: n/a | iter time: 112.20 ms (step)",
    "own": "it {n} training loss 2.5",
}
NOTES = {
    "build": "/usr/bin/ld: cannot find -laio\ncollect2: error: ld returned 1 exit status\n",
    "package": "Traceback (most recent call last):\n  File \"/w/t.py\", line 3, in <module>\nModuleNotFoundError: No module named 'amp_C'\n",
    "port": "E0301 10:00:00 tensorboard] Could not bind to port 6006\nOSError: [Errno 98] Address already in use\n",
    "skipped batch": "WARNING: ran out of memory, attempting to recover from OOM, skipping batch\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB\n",
    "disk": "could not write the cache: OSError: [Errno 28] No space left on device\n",
}
ENDS = {
    "walltime": "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2025-03-01T12:00:00 DUE TO TIME LIMIT ***\n",
    "preempted": "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2025-03-01T12:00:00 DUE TO PREEMPTION ***\n",
    "cancelled": "slurmstepd: error: *** JOB 991 ON n1 CANCELLED AT 2025-03-01T12:00:00 ***\n",
}


def steps(program: str, first: int, count: int) -> str:
    return "".join(STEPS[program].format(n=n) + "\n" for n in range(first, first + count))


def cause_of(text: str) -> str:
    """What both say of it."""
    said = diagnose_stream(io.BytesIO(text.encode())).cause.id
    (row,) = parse_stream("x.log", io.BytesIO(text.encode())).rows
    assert row.cause == said
    return said


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("program", STEPS)
def test_what_a_program_went_on_after_does_not_say_how_it_ended(program: str, note: str) -> None:
    for cause, end in ENDS.items():
        assert cause_of(steps(program, 0, 3) + NOTES[note] + steps(program, 3, 60) + end) == cause


@pytest.mark.parametrize("program", STEPS)
def test_what_it_did_not_go_on_after_does(program: str, diagnose: Callable[[str], Diagnosis]) -> None:
    failed = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB\n"
    assert cause_of(steps(program, 0, 60) + failed + ENDS["cancelled"]) == "device_oom"


def test_the_steps_of_other_ranks_are_not_those_of_the_one_that_failed(diagnose: Callable[[str], Diagnosis]) -> None:
    def step(n: int, form: str) -> str:
        return "".join(form.format(r=r, n=n) for r in range(16))

    failed = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 39.39 GiB\n"
    for form in ("step {n} loss 2.{r}\n", "{r}: loss 2.{r}\n"):
        text = "".join(step(n, form) for n in range(1, 5)) + failed + step(5, form) + step(6, form)
        found = diagnose(text)
        assert found.cause.id == "device_oom"
        assert found.evidence[0].line == 65  # although the log by itself takes it for overcome


def test_an_evaluation_after_training_takes_its_end_not_back() -> None:
    evaluated = "".join(f"Evaluating: {n}%|█| {n}/99 [00:01<00:02, 5.1it/s]\n" for n in range(1, 60))
    text = steps("maxtext", 0, 60) + "Training completed\n" + evaluated + ENDS["walltime"]
    (row,) = parse_stream("x.log", io.BytesIO(text.encode())).rows
    assert row.cause == "none"


def test_pieces_of_a_log_say_what_the_whole_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("PIECE", 4096), ("LARGEST_PIECE", 4096), ("WORTHWHILE", 1)):
        monkeypatch.setattr(parallel, name, size)
    log = tmp_path / "x.log"
    log.write_text(NOTES["build"] + steps("maxtext", 0, 500) + ENDS["preempted"])
    readings = [one for group, _ in parallel.read_all([log], verbose=False, jobs=2) for one in group]
    assert [row.cause for one in readings for row in one.rows] == ["preempted"]


def test_a_log_of_nothing_but_ends_is_read_quickly() -> None:
    began = time.process_time()
    reading = parse_stream("x.log", io.BytesIO(ENDS["walltime"].encode() * 500))
    assert [row.outcome for row in reading.rows] == ["TIMEOUT"]
    assert is_within(time.process_time() - began, 3)
