"""Words of a good end behind what ended the program: a batch script goes on after `python train.py` and prints what it likes."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from hpc_llm.diagnosis import Diagnosis, diagnose_stream
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


TRAINED_TO_ITS_END = (
    "***** Running training *****\n  Total optimization steps = 2\n{'loss': 2.1, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    "{'loss': 2.0, 'grad_norm': 1.0, 'learning_rate': 0.0, 'epoch': 1.0}\n{'train_runtime': 9.0, 'train_samples_per_second': 5.0, "
    "'train_steps_per_second': 1.0, 'train_loss': 2.0, 'epoch': 1.0}\n"
)
SAVED = "Model weights saved in /w/out/model.safetensors\n"
CRASHES = {
    "segfault": ("Segmentation fault (core dumped)\n", "destroy_process_group"),
    "collective_timeout": ("[rank1]: RuntimeError: Wait timeout\n", "destroy_process_group"),
    "disk_full": ("OSError: [Errno 28] No space left on device\n", "df -h"),
}


@pytest.mark.parametrize("cause", CRASHES)
def test_what_fails_behind_the_end_of_training_is_told_so(cause: str) -> None:
    crash, advised = CRASHES[cause]
    found = diagnose_stream(io.BytesIO((TRAINED_TO_ITS_END + SAVED + crash).encode()))
    assert found.cause.id == cause and "come to its end before that (line 5); line 6 says" in found.summary
    assert "need not be run again" in found.remedy and advised in found.remedy and not found.retry
    unsaved = diagnose_stream(io.BytesIO((TRAINED_TO_ITS_END + crash).encode()))
    assert "does not say that it saved" in unsaved.summary
    row = parse_stream("x", io.BytesIO((TRAINED_TO_ITS_END + crash).encode())).rows[-1]
    assert row.outcome == "FAILED" and (row.outcome_reason or "").startswith("training had ended before: ")


def test_a_crash_before_the_end_says_nothing_of_one() -> None:
    found = diagnose_stream(io.BytesIO(("step 1 loss 2.0\n" + SAVED + CRASHES["segfault"][0]).encode()))
    assert found.cause.id == "segfault" and "come to its end" not in found.summary


def test_a_thread_that_is_refused_while_python_ends_is_no_limit_of_the_node() -> None:
    text = "Exception ignored in atexit callback: <function f>\nRuntimeError: can't start new thread at interpreter shutdown\n"
    assert diagnose_stream(io.BytesIO((TRAINED_TO_ITS_END + text).encode())).cause.id != "node_limits"
