"""Words of a good end behind what ended the program: a batch script goes on after `python train.py` and prints what it likes."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis
from hpc_llm.parsing import parse_stream

Diagnose = Callable[[str], Diagnosis]
STEPS = "".join(f"{{'loss': {3 - n / 10:.2f}, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n" for n in range(1, 6))
SUMMARY = "{'train_runtime': 100.0, 'train_samples_per_second': 10.0, 'train_steps_per_second': 1.25, 'train_loss': 2.0, 'epoch': 1.0}\n"
RAISED = 'Traceback (most recent call last):\n  File "/w/train.py", line 10, in <module>\n    main()\n{}\n'
OOM = RAISED.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
ENDINGS = {
    "device_oom": OOM,
    "python_exception": RAISED.format("ValueError: x"),
    "disk_full": RAISED.format("OSError: [Errno 122] Disk quota exceeded: 'model.safetensors'"),
    "walltime": "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
    "host_oom": "/var/spool/slurmd/job77/slurm_script: line 20:  4242 Killed                  python train.py\n",
    "unknown": "srun: error: n1: task 3: Exited with exit code 1\n",
    "segfault": "/var/spool/slurmd/job77/slurm_script: line 20:  4242 Segmentation fault      (core dumped) python train.py\n",
}
WORDS = [
    "Training finished at Wed Nov 25",
    "Training complete.",
    "[2026-01-01 10:00:00] training done",
    "== Finished training ==",
]


def _parsed(text: str) -> tuple[str | None, str | None]:
    row = parse_stream("x", io.BytesIO(text.encode())).rows[-1]
    return row.outcome, row.cause


@pytest.mark.parametrize("before", [STEPS, STEPS + SUMMARY])
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("cause", ENDINGS)
def test_they_do_not_count(cause: str, words: str, before: str, diagnose: Diagnose) -> None:
    """What is said is what is said without them, whatever that is."""
    alone, text = before + ENDINGS[cause], f"{before}{ENDINGS[cause]}{words}\n"
    assert diagnose(text).cause is diagnose(alone).cause and _parsed(text) == _parsed(alone)
    assert before != STEPS or (diagnose(text).cause.id, _parsed(text)[1]) == (cause, cause)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize(
    "text",
    [
        STEPS,
        f"{OOM}{STEPS}",
        f"{STEPS}WARNING: no upload:\n{RAISED.format('ValueError: x')}",
        f"{STEPS}UserWarning: torch.OutOfMemoryError: CUDA out of memory. was caught\n",
        f"{STEPS}Exception ignored in: <function f>\n{RAISED.format('ValueError: x')}",
    ],
)
def test_they_do_where_the_program_went_on(text: str, words: str, diagnose: Diagnose) -> None:
    assert diagnose(f"{text}{words}\n").cause.id == "none" and _parsed(f"{text}{words}\n")[0] == "COMPLETED"


def test_a_program_s_own_account_of_its_training_counts_behind_an_error(diagnose: Diagnose) -> None:
    assert diagnose(f"{STEPS}{OOM}{SUMMARY}").cause.id == "none"


@pytest.mark.parametrize(
    "row",
    [
        '{{"prompt": "x", "completion": "{}"}}', "{{'id': 3, 'text': '{}'}}", '[{{"role": "user", "content": "{}"}}]', '  {{"n": 1, "messages": ["{}"]}}',
        '[rank0]: {{"chosen": "a", "rejected": "{}"}}',
    ],
)  # fmt: skip
def test_the_text_of_a_row_of_data_is_no_error(row: str, diagnose: Diagnose) -> None:
    said = row.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    text = f"{STEPS}{said}\n{RAISED.format('ZeroDivisionError: division by zero')}"
    assert diagnose(text).cause.id == "python_exception" and _parsed(text) == ("FAILED", "python_exception")


@pytest.mark.parametrize("row", ['{{"level": "error", "message": "{}"}}', '{{"prompt": "x", "error": "{}"}}'])
def test_the_error_of_a_structured_log_is_one(row: str, diagnose: Diagnose) -> None:
    said = row.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    assert diagnose(f"{STEPS}{said}\n").cause.id == "device_oom"
